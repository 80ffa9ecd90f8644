//! Functions that are cheap for most numbers, of tiles that threads hold much of.
//!
//! Exponentials and inverses come from a unit that takes 16 elements in a clock, an eighth of what the
//! others do. Where a kernel keeps it busy, a function that needs it twice an element decides how long
//! all takes. So the elements of a thread are taken in parts: a part whose numbers are all small in a
//! whole warp is computed by a polynomial alone, any other goes on behind the kernel to what is right
//! everywhere. Which of them an element's result comes from is decided by the element itself, so that
//! it depends on no other. A number that all results are multiplied by goes into the coefficients.

use super::{Repr, Select};
use crate::inst::*;
use tessera_ir::{OpId, Value};
use tessera_numerics::{DType, Profile, Scalar, ScalarFn};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;
use tessera_tile::attrs::constant_of;

/// Elements of a part: enough that asking costs little, and few registers for what is asked about.
const PART: usize = 16;

impl Select<'_> {
    /// Emits a tanh of which threads hold whole parts, or the product of one by a number; whether an op
    /// is either. One that only such a product takes is left to that.
    pub fn tanh_in_parts(&mut self, id: OpId, f: ScalarFn) -> bool {
        let func = self.func;
        match f {
            ScalarFn::Tanh if self.is_tanh_in_parts(id) => {
                if self.only_times_a_number(id) {
                    return true;
                }
                self.emit_tanh(id, func.ops[id].operands[0], 1.0)
            }
            ScalarFn::Mul => match self.tanh_times(id).filter(|t| self.only_times_a_number(t.0)) {
                Some((tanh, times)) => self.emit_tanh(id, func.ops[tanh].operands[0], times),
                None => false,
            },
            _ => false,
        }
    }

    fn is_tanh_in_parts(&self, id: OpId) -> bool {
        let func = self.func;
        let op = &func.ops[id];
        if op.code != StagedOp::Tile(TileOp::Ew(ScalarFn::Tanh)) {
            return false;
        }
        let x = op.operands[0];
        let tile = !matches!(self.repr(x), Repr::Scalar(_) | Repr::Splat(_));
        self.profile != Profile::Strict
            && func.ty(x).dtype() == DType::F32
            && func.ty(x).is_tile()
            && tile
            && self.layout(x).regs() as usize >= PART
    }

    /// The tanh that a product multiplies by a number that is known, and the number.
    fn tanh_times(&self, id: OpId) -> Option<(OpId, f64)> {
        let func = self.func;
        let op = &func.ops[id];
        let number = |v: Value| {
            let mut v = v;
            while let Some(op) = func.def(v).filter(|op| {
                [StagedOp::Tile(TileOp::Broadcast), StagedOp::ConvertLayout].contains(&op.code)
            }) {
                v = op.operands[0];
            }
            let op = func.def(v).filter(|op| op.code == StagedOp::Tile(TileOp::Const))?;
            match constant_of(op, DType::F32) {
                Scalar::F32(x) if x.is_finite() => Some(f64::from(x)),
                _ => None,
            }
        };
        // Nothing between the two may write over what the tanh is of, as regions do.
        let tanh = |v: Value| {
            let made = func.def_id(v).filter(|&o| func.ops[o].block == op.block)?;
            let ops = &func.blocks[op.block].ops;
            let mut between = ops.iter().skip_while(|&&o| o != made).take_while(|&&o| o != id);
            let straight = between.all(|&o| func.ops[o].regions.is_empty());
            (straight && self.is_tanh_in_parts(made)).then_some(made)
        };
        if op.code != StagedOp::Tile(TileOp::Ew(ScalarFn::Mul)) || !func.ty(op.result()).is_tile() {
            return None;
        }
        let [a, b] = [op.operands[0], op.operands[1]];
        let second = || tanh(b).zip(number(a));
        tanh(a).zip(number(b)).or_else(second)
    }

    /// Whether one product takes a tanh, and nothing else.
    fn only_times_a_number(&self, tanh: OpId) -> bool {
        let func = self.func;
        let v = func.ops[tanh].result();
        let mut users = func.walk().into_iter().filter(|&o| func.ops[o].operands.contains(&v));
        let only = users.next();
        users.next().is_none() && only.is_some_and(|o| self.tanh_times(o).is_some())
    }

    fn emit_tanh(&mut self, id: OpId, operand: Value, times: f64) -> bool {
        let result = self.func.ops[id].result();
        let xs = self.regs(operand);
        let mut out = Vec::with_capacity(xs.len());
        for part in xs.chunks(PART) {
            let own = self.tanh_of_part(part, times);
            out.extend(own);
        }
        self.set(result, Repr::Tile(out));
        true
    }

    fn tanh_of_part(&mut self, xs: &[Reg], times: f64) -> Vec<Reg> {
        let mut most = None;
        let mut out = Vec::with_capacity(xs.len());
        for &x in xs {
            let (near, now) = self.scalars().small_tanh(x, times, most);
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
            let y = self.scalars().large_tanh(x, times, near);
            self.asm.mov_to(Ty::F32, near, y);
        }
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.behind.extend(self.asm.kernel.body.split_off(here));
        out
    }
}
