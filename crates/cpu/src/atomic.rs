//! Atomic read-modify-writes of one element of any dtype. Where other threads may access the
//! memory: one instruction if the processor has it, else a compare-and-swap loop. Where a launch is
//! alone (`alone.rs`): a plain load and store.

use crate::fold::Fold;
use crate::llvm::{AtomicChange, IntCmp, Ir, Val};
use crate::memory::Mem;
use crate::scalar::Scalars;
use tessera_ir::{Attr, Op, OpId};
use tessera_numerics::{Basic, DType, ScalarFn};
use tessera_tile::ops::atomic::{combine, is_used};
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

/// Whether an op `atomic` folds and its result, the old value, is unused.
pub fn only_folds(func: &TileFunc, id: OpId) -> bool {
    matches!(Change::of(func, &func.ops[id]).what, What::Fold(_)) && !is_used(func, id)
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

    /// Whether it is a few instructions where the launch is alone.
    pub fn is_short(&self) -> bool {
        self.fold.is_none_or(|fold| fold.is_short())
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
        if let Some(how) = self.instruction(dtype) {
            return ir.atomic_change(how, p, given);
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

    /// The same where no other thread accesses the memory.
    pub fn emit_alone(
        &self,
        s: &Scalars<'_>,
        mem: &Mem,
        p: Val,
        value: Val,
        expected: Option<Val>,
    ) -> Val {
        let (ir, dtype) = (s.ir, mem.dtype);
        let old = ir.load(s.stored(dtype, 1), p, 1);
        let new = match (self.fold, expected) {
            (Some(fold), _) => fold.code(s, s.decode(old, dtype), value),
            (None, None) => s.encode(value, dtype),
            (None, Some(expected)) => {
                let same = ir.icmp(IntCmp::LLVMIntEQ, old, s.encode(expected, dtype));
                ir.select(same, s.encode(value, dtype), old)
            }
        };
        ir.store(new, p, 1);
        old
    }

    /// By whichever of the two it may be: `alone` is known when the launch begins.
    pub fn emit_either(
        &self,
        s: &Scalars<'_>,
        mem: &Mem,
        p: Val,
        value: Val,
        expected: Option<Val>,
        alone: Val,
    ) -> Val {
        s.ir.if_else(
            alone,
            |_| vec![self.emit_alone(s, mem, p, value, expected)],
            |_| vec![self.emit(s, mem, p, value, expected)],
        )[0]
    }

    /// The instruction that does it, of integers that are computed as they are stored.
    #[deny(clippy::wildcard_enum_match_arm)]
    fn instruction(&self, dtype: DType) -> Option<AtomicChange> {
        use AtomicChange::*;
        use Basic::*;
        use DType::*;
        let signed = match dtype {
            I32 | I64 => true,
            U32 | U64 => false,
            Bool | I4 | I8 | I16 | U8 | U16 | F64 | F32 | Tf32 | F16 | BF16 | Fp8E4M3 | Fp8E5M2
            | Fp6E3M2 | Fp6E2M3 | Fp4E2M1 | E8M0 => return None,
        };
        let f = match self.what {
            What::Fold(f) if self.fold.is_some_and(|fold| fold.is_plain()) => f,
            What::Exchange => return Some(LLVMAtomicRMWBinOpXchg),
            What::Fold(_) | What::CompareExchange => return None,
        };
        Some(match f.basic()? {
            Add => LLVMAtomicRMWBinOpAdd,
            Sub => LLVMAtomicRMWBinOpSub,
            And => LLVMAtomicRMWBinOpAnd,
            Or => LLVMAtomicRMWBinOpOr,
            Xor => LLVMAtomicRMWBinOpXor,
            Maximum if signed => LLVMAtomicRMWBinOpMax,
            Maximum => LLVMAtomicRMWBinOpUMax,
            Minimum if signed => LLVMAtomicRMWBinOpMin,
            Minimum => LLVMAtomicRMWBinOpUMin,
            Mul | Div | FloorDiv | Mod | Neg | Abs | Fma | Sqrt | Recip | Floor | Ceil | Round
            | Trunc | Sign | Clamp | Not | Shl | Shr | Popcount | Clz | Ctz | Brev | MulHi
            | FunnelShift | Eq | Ne | Lt | Le | Gt | Ge | IsNan | IsInf | IsFinite => {
                return None;
            }
        })
    }
}

/// Calls `body` for the lanes of a vector that are on, in ascending order. With `unroll` vectors in
/// which all are on take no loop; `body` is emitted more than once then.
pub fn each_lane(
    ir: &Ir,
    lanes: u32,
    on: Option<Val>,
    unroll: bool,
    body: &mut dyn FnMut(&Ir, Val),
) {
    let on = on.filter(|&on| !ir.is_all_ones(on));
    let one_by_one = |ir: &Ir, body: &mut dyn FnMut(&Ir, Val)| {
        (0..lanes).for_each(|lane| body(ir, ir.c64(lane.into())));
    };
    match on {
        None if unroll || lanes == 1 => one_by_one(ir, body),
        None => {
            ir.for_range(ir.c64(0), ir.c64(lanes.into()), 1, &[], |ir, lane, _| {
                body(ir, lane);
                Vec::new()
            });
        }
        Some(on) if lanes == 1 => ir.when(on, |ir| body(ir, ir.c64(0))),
        Some(on) => {
            let bits = ir.zext(ir.bitcast(on, ir.int(lanes)), ir.i64());
            if !unroll {
                return for_each_bit(ir, bits, |lane| body(ir, lane));
            }
            let (whole, some, end) = (ir.block("whole"), ir.block("some"), ir.block("end"));
            ir.branch(ir.all(on), whole, some);
            ir.goto(whole);
            one_by_one(ir, body);
            ir.jump(end);
            ir.goto(some);
            for_each_bit(ir, bits, |lane| body(ir, lane));
            ir.jump(end);
            ir.goto(end);
        }
    }
}

/// A loop over the bits of a number that are set, lowest first.
pub fn for_each_bit(ir: &Ir, bits: Val, body: impl FnOnce(Val)) {
    let (before, head, end) = (ir.here(), ir.block("lane"), ir.block("end"));
    let some = |bits: Val| ir.icmp(IntCmp::LLVMIntNE, bits, ir.c64(0));
    ir.branch(some(bits), head, end);
    ir.goto(head);
    let left = ir.phi(ir.i64(), &[(bits, before)]);
    body(ir.intrinsic("llvm.cttz", &[ir.i64()], &[left, ir.bool(true)]));
    let rest = ir.and(left, ir.add_const(left, -1));
    ir.incoming(left, rest, ir.here());
    ir.branch(some(rest), head, end);
    ir.goto(end);
}
