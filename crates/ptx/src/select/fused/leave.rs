//! Sums that leave the loop in which multiply-adds make them.
//!
//! An assembler gives a number one register for as long as it can. A store of several neighbours takes
//! registers in a row, and would so decide for the whole loop before it in which bank each sum is: in
//! those of the operand that it is added to, as often as not. So the loop's registers end with the
//! loop, by an operation that changes nothing and that no assembler sees through.

use super::super::{Repr, Select};
use crate::inst::*;
use tessera_ir::Value;
use tessera_staged::StagedOp;

impl Select<'_> {
    /// Whether a value that a loop carries on is sums of multiply-adds.
    pub fn are_fused_sums(&self, next: Value) -> bool {
        let func = self.func;
        let issue = func.def(next).filter(|op| op.code == StagedOp::MmaRetire);
        let issue = issue.and_then(|op| func.def_id(op.operands[0]));
        issue.is_some_and(|id| func.ops[id].code == StagedOp::MmaIssue && !self.is_async_mma(id))
    }

    /// The same numbers in registers that are no others' places.
    pub fn untied(&mut self, regs: &[Reg]) -> Vec<Reg> {
        let views = self.func.params().iter().find_map(|&p| match self.repr(p) {
            Repr::View(view) => Some(view.word),
            _ => None,
        });
        let Some(word) = views else { return regs.to_vec() };
        // No address has its highest bit.
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
