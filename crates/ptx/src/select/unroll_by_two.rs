//! Unroll by two: loops with register-operand WGMMA run two iterations per generated loop
//! iteration.
//!
//! WGMMA reads its register operand until the iteration ends, while the operand of the next
//! iteration is computed into other registers. Without unrolling all of them would be moved in
//! every iteration. Unrolled by two, the second iteration reads the registers that the first has
//! written, and writes those that the first read. Registers are moved only if the loop ends after
//! an odd number of iterations.

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

/// Moves count where an iteration has fewer instructions than this per moved register.
const SHORT: usize = 12;

/// The registers of a loop's index, and its bounds.
pub struct Iterations {
    pub at: Reg,
    pub end: Reg,
    pub step: Reg,
    /// What follows the last position may be no i64.
    pub may_overflow: bool,
}

/// The exit after an odd number of iterations, and the moves there.
pub struct Odd {
    label: Label,
    moves: Vec<Stmt>,
}

impl Select<'_> {
    /// Whether WGMMA reads loop-carried registers, and an iteration is so short that their moves
    /// count; the code of its first one begins at `start`.
    pub fn unrolls_by_two(&self, id: OpId, carried: &[Carried], start: usize, index: Reg) -> bool {
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

    /// Whether the results of an iteration can be the next one's inputs in place: not the index,
    /// which is incremented, and each tile must have its own registers, which are the loop's.
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

    /// Which loop-carried value a tile is, in any layout.
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

    /// Emits the second iteration: it continues with the first one's results in place.
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
        // What was cached in the first iteration is computed anew.
        let mut blocks = BTreeSet::from([body]);
        let func = self.func;
        func.walk_block(body, &mut |id| blocks.extend(&func.ops[id].regions));
        self.votes.retain(|_, (_, at)| !blocks.contains(at));
        self.stamp_iteration(stamping);
        self.block(body)?;
        Ok(Odd { label, moves })
    }

    /// Increments the index; returns whether there is another iteration.
    pub fn step_on(&mut self, iterations: &Iterations) -> Reg {
        let more = iterations.may_overflow.then(|| {
            // What is left is above 0, and a u64 holds it.
            let left =
                self.asm.int(Alu::Sub, Ty::S64, &[iterations.end.into(), iterations.at.into()]);
            self.asm.setp(Cmp::Lt, Ty::U64, iterations.step, left)
        });
        let stepped =
            self.asm.int(Alu::Add, Ty::S64, &[iterations.at.into(), iterations.step.into()]);
        self.asm.mov_to(Ty::B64, iterations.at, stepped);
        more.unwrap_or_else(|| self.asm.setp(Cmp::Lt, Ty::S64, iterations.at, iterations.end))
    }

    /// After the loop: the exit after an odd number of iterations.
    pub fn leave_odd(&mut self, odd: Odd) {
        let done = self.asm.label();
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.asm.place(odd.label);
        self.asm.kernel.body.extend(odd.moves);
        self.asm.place(done);
    }
}
