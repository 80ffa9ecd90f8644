//! Accumulators that leave the loop of multiply-adds.
//!
//! The assembler gives a value one register for as long as it can. A vector store takes consecutive
//! registers, and would decide the bank of each accumulator for the whole loop before it, often the
//! bank of the operand that it is added to. So the live ranges of the loop's registers end with the
//! loop, by an operation that changes nothing and that the assembler cannot see through.

use super::super::{Repr, Select};
use crate::inst::*;
use tessera_ir::Value;
use tessera_staged::StagedOp;

impl Select<'_> {
    /// Whether a loop-carried value is an accumulator of multiply-adds.
    pub fn is_fused_accumulator(&self, next: Value) -> bool {
        let func = self.func;
        let issue = func.def(next).filter(|op| op.code == StagedOp::MmaRetire);
        let issue = issue.and_then(|op| func.def_id(op.operands[0]));
        issue.is_some_and(|id| func.ops[id].code == StagedOp::MmaIssue && !self.is_async_mma(id))
    }

    /// The same values in fresh registers.
    pub fn untied(&mut self, regs: &[Reg]) -> Vec<Reg> {
        let views = self.func.params().iter().find_map(|&p| match self.repr(p) {
            Repr::View(view) => Some(view.word),
            _ => None,
        });
        let Some(word) = views else { return regs.to_vec() };
        // No address has its highest bit set.
        let address = self.word(word);
        let [zero, narrow] = self.head(|me| {
            let zero = me.asm.int(Alu::Shr, Ty::U64, &[address.into(), Opnd::Int(63)]);
            [zero, me.asm.cvt(Ty::U32, Ty::U64, None, zero)]
        });
        let mut out = Vec::with_capacity(regs.len());
        for &r in regs {
            out.push(match r.class {
                Class::B32 => self.asm.int(Alu::Xor, Ty::B32, &[r.into(), narrow.into()]),
                Class::B64 => self.asm.int(Alu::Xor, Ty::B64, &[r.into(), zero.into()]),
                Class::B16 | Class::Pred => r,
            });
        }
        out
    }
}
