//! One application of a scalar function, for constant folding and tests.

use crate::kernel::Kernel;
use crate::scalar::Scalar;
use crate::scalar_fn::ScalarFn;

/// `f` of `args`, by the same function that [`ScalarFn::kernel`] gives. `None` when the number of
/// operands is wrong, they are not all of one type, or `f` does not take that type.
pub fn eval(f: ScalarFn, args: &[Scalar]) -> Option<Scalar> {
    apply(f.kernel(args.first()?.dtype())?, args)
}

/// A kernel on operands of its types; `None` for any others.
pub(crate) fn apply(kernel: Kernel, args: &[Scalar]) -> Option<Scalar> {
    use Scalar::{Bool, F32, F64, I32, I64, U32, U64};
    Some(match (kernel, args) {
        (Kernel::F32U(k), &[F32(a)]) => F32(k(a)),
        (Kernel::F32B(k), &[F32(a), F32(b)]) => F32(k(a, b)),
        (Kernel::F32T(k), &[F32(a), F32(b), F32(c)]) => F32(k(a, b, c)),
        (Kernel::F32P(k), &[F32(a)]) => Bool(k(a)),
        (Kernel::F32C(k), &[F32(a), F32(b)]) => Bool(k(a, b)),
        (Kernel::F64U(k), &[F64(a)]) => F64(k(a)),
        (Kernel::F64B(k), &[F64(a), F64(b)]) => F64(k(a, b)),
        (Kernel::F64T(k), &[F64(a), F64(b), F64(c)]) => F64(k(a, b, c)),
        (Kernel::F64P(k), &[F64(a)]) => Bool(k(a)),
        (Kernel::F64C(k), &[F64(a), F64(b)]) => Bool(k(a, b)),
        (Kernel::I32U(k), &[I32(a)]) => I32(k(a)),
        (Kernel::I32B(k), &[I32(a), I32(b)]) => I32(k(a, b)),
        (Kernel::I32T(k), &[I32(a), I32(b), I32(c)]) => I32(k(a, b, c)),
        (Kernel::I32C(k), &[I32(a), I32(b)]) => Bool(k(a, b)),
        (Kernel::I64U(k), &[I64(a)]) => I64(k(a)),
        (Kernel::I64B(k), &[I64(a), I64(b)]) => I64(k(a, b)),
        (Kernel::I64T(k), &[I64(a), I64(b), I64(c)]) => I64(k(a, b, c)),
        (Kernel::I64C(k), &[I64(a), I64(b)]) => Bool(k(a, b)),
        (Kernel::U32U(k), &[U32(a)]) => U32(k(a)),
        (Kernel::U32B(k), &[U32(a), U32(b)]) => U32(k(a, b)),
        (Kernel::U32T(k), &[U32(a), U32(b), U32(c)]) => U32(k(a, b, c)),
        (Kernel::U32C(k), &[U32(a), U32(b)]) => Bool(k(a, b)),
        (Kernel::U64U(k), &[U64(a)]) => U64(k(a)),
        (Kernel::U64B(k), &[U64(a), U64(b)]) => U64(k(a, b)),
        (Kernel::U64T(k), &[U64(a), U64(b), U64(c)]) => U64(k(a, b, c)),
        (Kernel::U64C(k), &[U64(a), U64(b)]) => Bool(k(a, b)),
        (Kernel::BoolU(k), &[Bool(a)]) => Bool(k(a)),
        (Kernel::BoolB(k), &[Bool(a), Bool(b)]) => Bool(k(a, b)),
        _ => return None,
    })
}
