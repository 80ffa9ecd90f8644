//! Functions that are cheap for most numbers, of tiles that threads hold much of.
//!
//! Exponentials and inverses come from a unit that takes 16 elements in a clock, an eighth of what the
//! others do. Where a kernel keeps it busy, a function that needs it twice an element decides how long
//! all takes. So the elements of a thread are taken in parts: a part whose numbers are all small in a
//! whole warp is computed by a polynomial alone, any other goes on behind the kernel to what is right
//! everywhere. Which of them an element's result comes from is decided by the element itself, so that
//! it depends on no other.

use super::{Repr, Select};
use crate::inst::*;
use tessera_ir::{OpId, Value};

/// Elements of a part: enough that asking costs little, and few registers for what is asked about.
const PART: usize = 16;

impl Select<'_> {
    /// tanh of a tile, where threads hold whole parts of it.
    pub fn tanh_in_parts(&mut self, id: OpId, operand: Value) -> bool {
        let tile = matches!(self.repr(operand), Repr::Tile(_) | Repr::Lazy(_) | Repr::Packed(_));
        let result = self.func.ops[id].result();
        if !tile || (self.layout(result).regs() as usize) < PART {
            return false;
        }
        let xs = self.regs(operand);
        let mut out = Vec::with_capacity(xs.len());
        for part in xs.chunks(PART) {
            let own = self.tanh_of_part(part);
            out.extend(own);
        }
        self.set(result, Repr::Tile(out));
        true
    }

    fn tanh_of_part(&mut self, xs: &[Reg]) -> Vec<Reg> {
        let mut most = None;
        let mut out = Vec::with_capacity(xs.len());
        for &x in xs {
            let (near, now) = self.scalars().small_tanh(x, most);
            out.push(near);
            most = Some(now);
        }
        let Some(most) = most else { return out };
        let small = self.scalars().all_small(most);
        let any = self.asm.reg(Class::Pred);
        let p = Guardless { reg: small, negated: true };
        self.asm.emit(Inst::Vote { kind: Vote::Any, d: any, p, mask: Opnd::Int(-1) });
        let [seldom, done] = [self.asm.label(), self.asm.label()];
        self.asm.when(any, true, |asm| asm.emit(Inst::Bra { to: seldom, uniform: true }));
        self.asm.place(done);
        let here = self.asm.kernel.body.len();
        self.asm.place(seldom);
        for (&x, &near) in xs.iter().zip(&out) {
            let y = self.scalars().large_tanh(x, near);
            self.asm.mov_to(Ty::F32, near, y);
        }
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.behind.extend(self.asm.kernel.body.split_off(here));
        out
    }
}
