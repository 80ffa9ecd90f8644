//! Quotients and remainders of 64-bit integers: no processor has a vector instruction for them.
//!
//! Ids grow by one from lane to lane: the first lane is divided and the others follow from it. All
//! other values are divided lane by lane in a loop: sixteen unrolled divisions are a lot of code.

use super::{Lanes, Repr};
use crate::llvm::{IntCmp, Val};
use tessera_ir::{Attr, Op, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{Tile, TileOp};

/// Divisors that count as small: with the lanes of a vector they are far from the end of 32 bits.
const SMALL: i64 = 1 << 24;

impl<'a> Lanes<'a> {
    /// Where an op is a division of positions, its result.
    pub fn divided(&self, op: &Op<Tile>, f: ScalarFn) -> Option<Repr> {
        let wide = matches!(self.dtype(op.operands[0]), DType::I64 | DType::U64);
        if !wide || !matches!(f, ScalarFn::FloorDiv | ScalarFn::Mod) {
            return None;
        }
        let ir = self.ir;
        let (a, b) = (self.repr(op.operands[0]), self.repr(op.operands[1]));
        let known = match b {
            Repr::Uniform(by) => ir.as_int(by),
            _ => None,
        };
        let power = known.is_some_and(|k| k > 0 && k & (k - 1) == 0);
        match (a, b) {
            (Repr::Uniform(_), Repr::Uniform(_)) => None,
            // Shifted and masked.
            _ if power => None,
            (Repr::Steps { first, step: 1 }, Repr::Uniform(by)) if self.is_id(op.operands[0]) => {
                Some(Repr::Each(match known {
                    Some(1..=SMALL) => self.of_id(f, first, by),
                    // By zero and by negative numbers, or with several quotients in one vector.
                    _ => {
                        let long = ir.c64(self.width.into());
                        let one_step = ir.icmp(IntCmp::LLVMIntSGE, by, long);
                        let quick = |_: &_| vec![self.of_id_once(f, first, by)];
                        let slow = |_: &_| vec![self.one_by_one(op, f, a, b)];
                        ir.if_else(one_step, quick, slow)[0]
                    }
                }))
            }
            _ => Some(Repr::Each(self.one_by_one(op, f, a, b))),
        }
    }

    /// Whether a value is an id or a little off: no lane is near the end of the number range.
    fn is_id(&self, v: Value) -> bool {
        let Some(op) = self.func.def(v) else { return false };
        let little = |v: Value| {
            let op = self.func.def(v).filter(|op| op.code == TileOp::Const);
            let value = op.and_then(|op| op.attr("value")).and_then(Attr::as_int);
            value.is_some_and(|k| k.abs() < SMALL)
        };
        match op.code {
            TileOp::LinearId | TileOp::LocalId => true,
            TileOp::Ew(ScalarFn::Add) => {
                let [a, b] = [op.operands[0], op.operands[1]];
                (self.is_id(a) && little(b)) || (little(a) && self.is_id(b))
            }
            TileOp::Ew(ScalarFn::Sub) => self.is_id(op.operands[0]) && little(op.operands[1]),
            _ => false,
        }
    }

    /// The first lane's quotient and rest.
    fn first(&self, first: Val, by: Val) -> (Val, Val) {
        let quotient = self.s.apply(ScalarFn::FloorDiv, DType::I64, &[first, by]);
        (quotient, self.ir.sub(first, self.ir.mul(quotient, by)))
    }

    /// By a small positive number: what is added to the first lane's rest is divided in 32 bits.
    fn of_id(&self, f: ScalarFn, first: Val, by: Val) -> Val {
        let (ir, n) = (self.ir, self.width);
        let (quotient, rest) = self.first(first, by);
        let steps = ir.const_steps(ir.vec(ir.i32(), n), 0, 1);
        let rest = ir.add(ir.splat(ir.trunc(rest, ir.i32()), n), steps);
        let by = ir.splat(ir.trunc(by, ir.i32()), n);
        let more = ir.udiv(rest, by);
        let wide = ir.vec(ir.i64(), n);
        match f {
            ScalarFn::FloorDiv => ir.add(ir.splat(quotient, n), ir.zext(more, wide)),
            _ => ir.zext(ir.sub(rest, ir.mul(more, by)), wide),
        }
    }

    /// By a number that the lanes of a vector reach at most once.
    fn of_id_once(&self, f: ScalarFn, first: Val, by: Val) -> Val {
        let (ir, n) = (self.ir, self.width);
        let (quotient, rest) = self.first(first, by);
        let rest = self.widen(Repr::Steps { first: rest, step: 1 });
        let by = ir.splat(by, n);
        // Without a sign: by the largest divisors the sum is above the signed numbers.
        let over = ir.icmp(IntCmp::LLVMIntUGE, rest, by);
        match f {
            ScalarFn::FloorDiv => ir.add(ir.splat(quotient, n), ir.zext(over, ir.vec(ir.i64(), n))),
            _ => ir.sub(rest, ir.select(over, by, ir.zero(ir.ty(by)))),
        }
    }

    fn one_by_one(&self, op: &Op<Tile>, f: ScalarFn, a: Repr, b: Repr) -> Val {
        let (ir, dtype) = (self.ir, self.dtype(op.operands[0]));
        let room = |x: Val| {
            let p = ir.alloca(ir.ty(x), 64);
            ir.store(x, p, 64);
            p
        };
        let (x, y) = (room(self.widen(a)), room(self.widen(b)));
        ir.for_range(ir.c64(0), ir.c64(self.width.into()), 1, &[], |ir, lane, _| {
            let at = |p: Val| ir.offset(p, ir.mul_const(lane, 8));
            let args = [ir.load(ir.i64(), at(x), 8), ir.load(ir.i64(), at(y), 8)];
            ir.store(self.s.apply(f, dtype, &args), at(x), 8);
            Vec::new()
        });
        ir.load(ir.vec(ir.i64(), self.width), x, 64)
    }
}
