//! Loops whose words take turns in two sets of registers.
//!
//! Where a turn computes the words that the next one's product reads, the engine may still read those
//! of the turn before: the new ones stand in other registers, and would have to be moved at the end of
//! every turn. With two turns in a row the first reads one set and writes the other, the second the
//! reverse, and nothing moves. A loop that ends after the first of two moves them once.

use super::control::Carried;
use super::{Repr, Select};
use crate::inst::*;
use tessera_diag::Diagnostics;
use tessera_ir::{OpId, Value, ValueDef};
use tessera_lower::stage::{Off, Step};
use tessera_staged::StagedOp;

impl Select<'_> {
    /// Whether two turns of a loop stand in a row: it carries the words of a product's left operand,
    /// anew in each turn, and no accumulator.
    pub fn takes_turns(&self, id: OpId, carried: &[Carried], next: &[Value]) -> bool {
        let func = self.func;
        let body = func.ops[id].regions[0];
        let pending = carried.iter().zip(next).any(|(c, &v)| {
            matches!(c, Carried::Pending { .. }) && !func.ty(v).is_tile()
        });
        if pending || Off::of(func).has(Step::Unroll) {
            return false;
        }
        func.blocks[body].ops.iter().any(|&o| {
            if func.ops[o].code != StagedOp::MmaIssue || !self.is_engine_product(o) {
                return false;
            }
            let mut left = func.ops[o].operands[0];
            while let Some(op) = func.def(left).filter(|op| op.code == StagedOp::ConvertLayout) {
                left = op.operands[0];
            }
            match func.values[left].def {
                ValueDef::Arg(block, n) if block == body => {
                    n.checked_sub(1).is_some_and(|n| self.is_made_anew(&carried[n], next[n]))
                }
                _ => false,
            }
        })
    }

    /// Whether a loop carries words, and its turn has just made others.
    fn is_made_anew(&self, carried: &Carried, next: Value) -> bool {
        match (carried, self.repr(next)) {
            (Carried::Words(own), Repr::Packed(words)) => {
                words.len() == own.len() && words.iter().all(|w| !own.contains(w))
            }
            _ => false,
        }
    }

    /// The second of two turns, which reads the words where the first has left them; gives where it
    /// is. If there is none the loop ends here.
    pub fn second_turn(
        &mut self,
        id: OpId,
        (i, hi, step): (Reg, Reg, Reg),
        carried: &[Carried],
        done: Label,
    ) -> Result<Reg, Diagnostics> {
        let func = self.func;
        let body = func.ops[id].regions[0];
        let args = &func.blocks[body].args;
        let next = self.yielded(body);
        let at = self.asm.int(Alu::Add, Ty::S64, &[i.into(), step.into()]);
        let more = self.asm.setp(Cmp::Lt, Ty::S64, at, hi);
        let odd = self.asm.label();
        self.asm.when(more, false, |asm| asm.emit(Inst::Bra { to: odd, uniform: true }));
        let here = self.asm.kernel.body.len();
        self.asm.place(odd);
        self.carry_on(carried, &next);
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.behind.extend(self.asm.kernel.body.split_off(here));

        let anew: Vec<bool> =
            carried.iter().zip(&next).map(|(c, &v)| self.is_made_anew(c, v)).collect();
        let words: Vec<Repr> = next.iter().map(|&v| self.repr(v).clone()).collect();
        let moved: Vec<usize> = (0..next.len()).filter(|&n| !anew[n]).collect();
        let values: Vec<Value> = moved.iter().map(|&n| next[n]).collect();
        self.carry_some(moved.iter().map(|&n| &carried[n]), &values);
        self.end_turn();
        self.set(args[0], Repr::Scalar(at));
        for (n, &arg) in args[1..].iter().enumerate() {
            match anew[n] {
                true => self.set(arg, words[n].clone()),
                false => self.bind_carried(arg, &carried[n]),
            }
        }
        // What was asked in the first turn is asked anew.
        self.votes.retain(|_, (_, block)| *block != body);
        self.block(body)?;
        Ok(at)
    }
}
