//! Changes of one element that nothing comes between, on codes of any dtype: read, compute what
//! should be there, and put it there if nobody was faster.

use crate::fold::Fold;
use crate::llvm::Val;
use crate::memory::Mem;
use crate::scalar::Scalars;
use tessera_ir::{Attr, Op};
use tessera_numerics::ScalarFn;
use tessera_tile::ops::atomic::combine;
use tessera_tile::{Tile, TileFunc};

/// What an op `atomic` does to an element.
#[derive(Copy, Clone)]
pub struct Change {
    pub what: What,
    /// Of those that fold.
    fold: Option<Fold>,
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
        let fold = match what {
            What::Fold(f) => {
                Some(Fold::new(func.ty(op.operands[0]), f, func.ty(op.operands[1]).dtype()))
            }
            What::Exchange | What::CompareExchange => None,
        };
        Self { what, fold }
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
        let given = if self.fold.is_some() { value } else { s.encode(value, dtype) };
        if let (What::CompareExchange, Some(expected)) = (self.what, expected) {
            return ir.compare_exchange(p, s.encode(expected, dtype), given).0;
        }
        let first = ir.load(ty, p, 1);
        let (before, again, done) = (ir.here(), ir.block("change"), ir.block("changed"));
        ir.jump(again);
        ir.goto(again);
        let old = ir.phi(ty, &[(first, before)]);
        let new = self.fold.map_or(given, |fold| fold.code(s, s.decode(old, dtype), given));
        let (found, swapped) = ir.compare_exchange(p, old, new);
        let last = ir.here();
        ir.incoming(old, found, last);
        ir.branch(swapped, done, again);
        ir.goto(done);
        found
    }
}
