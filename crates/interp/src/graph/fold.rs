//! Arithmetic in an accumulator: in its carrier, or, where it is stored narrower, rounded to it at
//! every step.

use super::array::{Array, convert};
use crate::value::Tile;
use tessera_numerics::{DType, ReduceOp, Scalar, ScalarFn, cast, eval};

/// The accumulator dtype of a reduction: the accumulator of the policy for sums and products, the
/// carrier for operators that never make a new value.
pub fn accumulator(x: &Array, op: ReduceOp) -> DType {
    match op {
        ReduceOp::Sum | ReduceOp::Prod => x.elem.accumulator().dtype(),
        ReduceOp::Max | ReduceOp::Min | ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => {
            x.dtype().carrier()
        }
    }
}

/// The elements in the carrier of the accumulator.
pub fn in_accumulator(x: &Array, accum: DType) -> Option<Tile> {
    convert(&x.data, x.dtype(), accum)
}

/// Whether every step has to be rounded.
pub fn is_narrow(accum: DType) -> bool {
    accum != accum.carrier()
}

/// `a op b`, kept in `accum`.
pub fn join(op: ReduceOp, accum: DType, a: Scalar, b: Scalar) -> Option<Scalar> {
    settle(eval(op.combine(), &[a, b])?, accum)
}

/// `a * b + c`, kept in `accum`.
pub fn fused(accum: DType, a: Scalar, b: Scalar, c: Scalar) -> Option<Scalar> {
    settle(eval(ScalarFn::Fma, &[a, b, c])?, accum)
}

fn settle(x: Scalar, accum: DType) -> Option<Scalar> {
    Some(if is_narrow(accum) { cast(x, accum.carrier(), accum) } else { x })
}
