//! Loops that run two iterations a round.
//!
//! A loop may hand registers to the matrix engine, which reads them until the iteration ends, and make those of
//! the next iteration meanwhile: these are others, and with one iteration a round all of them would be moved in every
//! iteration. With two the second goes on where the first has left them, and what it makes lies where the first
//! began. Only a loop that ends after a first iteration moves.

use super::select_control::Carried;
use super::stamps::{Stamping, has_loops};
use super::{Repr, Select};
use crate::inst::*;
use crate::module::Stmt;
use std::collections::BTreeSet;
use tessera_diag::Diagnostics;
use tessera_ir::{BlockId, OpId, Value, ValueDef};
use tessera_lower::stage::{Off, Step};
use tessera_staged::StagedOp;

/// Instructions that an iteration computes for each register that would be moved, beside which that counts.
const SHORT: usize = 12;

/// The registers of a loop's index, and its bounds.
pub struct Iterations {
    pub at: Reg,
    pub end: Reg,
    pub step: Reg,
}

/// Where a loop is left after the first iteration of a round, and what moves things into place there.
pub struct Odd {
    label: Label,
    moves: Vec<Stmt>,
}

impl Select<'_> {
    /// Whether the engine reads registers that a loop carries from iteration to iteration, and an iteration is so short that
    /// their moves count; the code of its first one begins at `start`.
    pub fn runs_twice(&self, id: OpId, carried: &[Carried], start: usize, index: Reg) -> bool {
        let func = self.func;
        let body = func.ops[id].regions[0];
        if has_loops(func, body) || !self.has_roles() || Off::of(func).has(Step::UnrollByTwo) {
            return false;
        }
        let next = self.yielded(body);
        if !self.stand_by_themselves(&next, body, index) {
            return false;
        }
        let mut moved = 0;
        for &o in &func.blocks[body].ops {
            let op = &func.ops[o];
            let read = op.code == StagedOp::MmaIssue && self.is_async_mma(o);
            let at = self.carried_as(op.operands.first().copied(), body).filter(|_| read);
            match at.filter(|&i| self.is_made_in(next[i], body)).map(|i| &carried[i]) {
                Some(Carried::Regs(regs) | Carried::Words(regs)) => moved += regs.len(),
                Some(Carried::Pending { .. }) | None => {}
            }
        }
        let computes = |s: &&Stmt| {
            matches!(
                s,
                Stmt::Inst {
                    inst: Inst::Alu { .. }
                        | Inst::Cvt { .. }
                        | Inst::Setp { .. }
                        | Inst::Selp { .. },
                    ..
                }
            )
        };
        let computed = self.asm.kernel.body.iter().skip(start).filter(computes).count();
        let pending = carried.iter().any(|c| matches!(c, Carried::Pending { .. }));
        moved > 0 && !pending && computed <= SHORT * moved
    }

    /// Whether what an iteration leaves can be what the next begins with, where it is: not the index, which counts on,
    /// and of tiles each has registers of its own, which are the loop's.
    fn stand_by_themselves(&self, next: &[Value], body: BlockId, index: Reg) -> bool {
        let mut tiles = BTreeSet::new();
        next.iter().zip(&self.func.blocks[body].args[1..]).all(|(&v, &arg)| match self.repr(v) {
            Repr::Scalar(r) | Repr::Splat(r) => *r != index,
            Repr::Tile(regs) | Repr::Packed(regs) => {
                (v == arg || self.is_made_in(v, body)) && regs.iter().all(|&r| tiles.insert(r))
            }
            _ => true,
        })
    }

    /// Which of the values that a loop carries a tile is, in whatever layout.
    fn carried_as(&self, v: Option<Value>, body: BlockId) -> Option<usize> {
        let func = self.func;
        match func.values[v?].def {
            ValueDef::Arg(block, i) if block == body => i.checked_sub(1),
            ValueDef::Arg(..) => None,
            ValueDef::Result(id, _) => {
                let op = &func.ops[id];
                let same = op.code == StagedOp::ConvertLayout && op.block == body;
                same.then(|| self.carried_as(op.operands.first().copied(), body))?
            }
        }
    }

    fn is_made_in(&self, v: Value, body: BlockId) -> bool {
        let func = self.func;
        matches!(func.values[v].def, ValueDef::Result(id, _) if func.ops[id].block == body)
    }

    /// The second iteration of a round, after the first: it goes on with what that has left, where it is.
    pub fn second_iteration(
        &mut self,
        body: BlockId,
        carried: &[Carried],
        iterations: &Iterations,
        stamping: Option<&Stamping>,
    ) -> Result<Odd, Diagnostics> {
        let next = self.yielded(body);
        let start = self.asm.kernel.body.len();
        self.carry_on(carried, &next);
        let moves = self.asm.kernel.body.split_off(start);
        self.end_iteration();
        let more = self.step_on(iterations);
        let label = self.asm.label();
        self.asm.when(more, false, |asm| asm.emit(Inst::Bra { to: label, uniform: true }));
        let args = &self.func.blocks[body].args[1..];
        let left: Vec<Repr> = carried
            .iter()
            .zip(&next)
            .map(|(carried, &v)| match carried {
                Carried::Words(_) => Repr::Packed(self.words_of(v)),
                Carried::Regs(_) | Carried::Pending { .. } => self.repr(v).clone(),
            })
            .collect();
        args.iter().zip(left).for_each(|(&arg, repr)| self.set(arg, repr));
        // What was requested in the first iteration is requested anew.
        let mut blocks = BTreeSet::from([body]);
        let func = self.func;
        func.walk_block(body, &mut |id| blocks.extend(&func.ops[id].regions));
        self.votes.retain(|_, (_, at)| !blocks.contains(at));
        self.stamp_iteration(stamping);
        self.block(body)?;
        Ok(Odd { label, moves })
    }

    /// Counts an iteration; whether there is another.
    pub fn step_on(&mut self, iterations: &Iterations) -> Reg {
        let stepped =
            self.asm.int(Alu::Add, Ty::S64, &[iterations.at.into(), iterations.step.into()]);
        self.asm.mov_to(Ty::B64, iterations.at, stepped);
        self.asm.setp(Cmp::Lt, Ty::S64, iterations.at, iterations.end)
    }

    /// After the last round: what a loop does that is left after a first iteration.
    pub fn leave_odd(&mut self, odd: Odd) {
        let done = self.asm.label();
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.asm.place(odd.label);
        self.asm.kernel.body.extend(odd.moves);
        self.asm.place(done);
    }
}
