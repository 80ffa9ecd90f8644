//! Changes of one element that nothing comes between, on codes of any dtype: read, compute what
//! should be there, and put it there if nobody was faster.

use crate::llvm::Val;
use crate::memory::Mem;
use crate::scalar::Scalars;
use tessera_ir::{Attr, Op, Type};
use tessera_numerics::{DType, Rounding, ScalarFn};
use tessera_tile::ops::atomic::combine;
use tessera_tile::{Tile, TileFunc};

/// What an op `atomic` does to an element.
#[derive(Copy, Clone)]
pub struct Change {
    pub what: What,
    /// The dtype of the value given.
    compute: DType,
    round: Rounding,
    saturate: bool,
}

#[derive(Copy, Clone, PartialEq)]
pub enum What {
    Fold(ScalarFn),
    Exchange,
    CompareExchange,
}

impl Change {
    pub fn of(func: &TileFunc, op: &Op<Tile>) -> Self {
        let name = op.attr("op").and_then(Attr::as_word).unwrap_or("add");
        let what = match (name, combine(name)) {
            (_, Some(f)) => What::Fold(f),
            ("cas", None) => What::CompareExchange,
            (_, None) => What::Exchange,
        };
        let (round, saturate) = match func.ty(op.operands[0]) {
            Type::View { elem, .. } => (elem.rounding(), elem.saturates()),
            ty => (Rounding::Rne, ty.dtype().saturates_by_default()),
        };
        Self { what, compute: func.ty(op.operands[1]).dtype(), round, saturate }
    }

    /// Changes the element at `p`; gives the code that was there. `value` and `expected` are one
    /// lane each, in their carriers.
    pub fn emit(
        &self,
        s: &Scalars<'_>,
        mem: &Mem,
        p: Val,
        value: Val,
        expected: Option<Val>,
    ) -> Val {
        let (ir, dtype) = (s.ir, mem.dtype);
        let ty = s.stored(dtype, 1);
        let given = match self.what {
            What::Fold(_) => value,
            What::Exchange | What::CompareExchange => s.encode(value, dtype),
        };
        if let (What::CompareExchange, Some(expected)) = (self.what, expected) {
            return ir.compare_exchange(p, s.encode(expected, dtype), given).0;
        }
        let first = ir.load(ty, p, 1);
        let (before, again, done) = (ir.here(), ir.block("change"), ir.block("changed"));
        ir.jump(again);
        ir.goto(again);
        let old = ir.phi(ty, &[(first, before)]);
        let new = match self.what {
            What::Fold(f) => {
                let from = s.decode(old, dtype);
                let keep = self.compute.saturates_by_default();
                let from = s.cast(from, dtype, self.compute, Rounding::Rne, keep);
                let sum = s.apply(f, self.compute, &[from, given]);
                s.encode(s.cast(sum, self.compute, dtype, self.round, self.saturate), dtype)
            }
            What::Exchange | What::CompareExchange => given,
        };
        let (found, swapped) = ir.compare_exchange(p, old, new);
        let last = ir.here();
        ir.incoming(old, found, last);
        ir.branch(swapped, done, again);
        ir.goto(done);
        found
    }
}
