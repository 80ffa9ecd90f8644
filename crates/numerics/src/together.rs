//! Arrays combined element by element: CR over their order, with the same bits as [`crate::canonical_reduce`] of each element.

use crate::canonical::LANES;
use crate::dtype::DType;
use crate::float_math as fm;
use crate::reduce::ReduceOp;

/// Elements that are combined at a time, so that they stay in the cache.
const SOME: usize = 1024;

/// Element `i` of `out` becomes the reduction of the elements `i` of `values`; all are as long as `out`, in bytes. False, and nothing is
/// written, where the operator does not take the dtype or no combination of arrays of that dtype is known.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn combine_arrays(op: ReduceOp, dtype: DType, values: &[&[u8]], out: &mut [u8]) -> bool {
    if values.is_empty() || values.iter().any(|v| v.len() != out.len()) {
        return false;
    }
    macro_rules! with {
        ($t:ty, $join:expr) => {{
            run(values, out, <$t>::from_ne_bytes, <$t>::to_ne_bytes, $join);
            true
        }};
    }
    macro_rules! float {
        ($t:ident) => {
            match op {
                ReduceOp::Sum => with!($t, |a, b| a + b),
                ReduceOp::Prod => with!($t, |a, b| a * b),
                ReduceOp::Max => with!($t, fm::$t::maximum),
                ReduceOp::Min => with!($t, fm::$t::minimum),
                ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => false,
            }
        };
    }
    macro_rules! int {
        ($t:ident) => {
            match op {
                ReduceOp::Sum => with!($t, |a, b| a.wrapping_add(b)),
                ReduceOp::Prod => with!($t, |a, b| a.wrapping_mul(b)),
                ReduceOp::Max => with!($t, |a, b| a.max(b)),
                ReduceOp::Min => with!($t, |a, b| a.min(b)),
                ReduceOp::And => with!($t, |a, b| a & b),
                ReduceOp::Or => with!($t, |a, b| a | b),
                ReduceOp::Xor => with!($t, |a, b| a ^ b),
            }
        };
    }
    match dtype {
        // A byte of 0 or 1.
        DType::Bool => match op {
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Or => with!(u8, |a, b| a | b),
            ReduceOp::Prod | ReduceOp::Min | ReduceOp::And => with!(u8, |a, b| a & b),
            ReduceOp::Xor => with!(u8, |a, b| a ^ b),
        },
        DType::I8 => int!(i8),
        DType::I16 => int!(i16),
        DType::I32 => int!(i32),
        DType::I64 => int!(i64),
        DType::U8 => int!(u8),
        DType::U16 => int!(u16),
        DType::U32 => int!(u32),
        DType::U64 => int!(u64),
        DType::F32 => float!(f32),
        DType::F64 => float!(f64),
        // Contributions of these are kept in f32.
        DType::Tf32
        | DType::F16
        | DType::BF16
        | DType::Fp8E4M3
        | DType::Fp8E5M2
        | DType::Fp6E3M2
        | DType::Fp6E2M3
        | DType::Fp4E2M1
        | DType::E8M0
        | DType::I4 => false,
    }
}

fn run<T: Copy, const N: usize>(
    values: &[&[u8]],
    out: &mut [u8],
    load: impl Fn([u8; N]) -> T,
    store: impl Fn(T) -> [u8; N],
    join: impl Fn(T, T) -> T,
) {
    let join = |a: [u8; N], b: [u8; N]| store(join(load(a), load(b)));
    let (out, _) = out.as_chunks_mut::<N>();
    let values: Vec<&[[u8; N]]> = values.iter().map(|value| value.as_chunks::<N>().0).collect();
    let mut held = vec![[0; N]; (LANES.ilog2() as usize + 1) * SOME.min(out.len())];
    for (start, out) in out.chunks_mut(SOME).enumerate().map(|(i, out)| (i * SOME, out)) {
        let some: Vec<&[[u8; N]]> = values.iter().map(|v| &v[start..start + out.len()]).collect();
        if let Some(only) = fold(&some, 0, 1, out, &mut held, &join) {
            out.copy_from_slice(only);
        }
    }
}

/// Lane `lane` once the tree has joined all lanes that are a multiple of `apart` from it: in `to`, or, where it is one of the values,
/// that value and nothing in `to`. What is joined is read where it is: each join is one pass.
fn fold<'v, const N: usize>(
    values: &[&'v [[u8; N]]],
    lane: usize,
    apart: usize,
    to: &mut [[u8; N]],
    held: &mut [[u8; N]],
    join: &impl Fn([u8; N], [u8; N]) -> [u8; N],
) -> Option<&'v [[u8; N]]> {
    if apart == LANES {
        let mut later = values[lane..].iter().step_by(LANES);
        let first = later.next()?;
        let Some(second) = later.next() else { return Some(first) };
        pass(to, first, second, join);
        later.for_each(|value| pass_on(to, value, join));
        return None;
    }
    let low = fold(values, lane, 2 * apart, to, held, join);
    if lane + apart >= values.len() {
        return low;
    }
    let (here, deeper) = held.split_at_mut(to.len());
    let high = fold(values, lane + apart, 2 * apart, here, deeper, join);
    match (low, high) {
        (Some(low), Some(high)) => pass(to, low, high, join),
        (Some(low), None) => pass(to, low, here, join),
        (None, high) => pass_on(to, high.unwrap_or(here), join),
    }
    None
}

fn pass<const N: usize>(
    to: &mut [[u8; N]],
    a: &[[u8; N]],
    b: &[[u8; N]],
    join: &impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
        *to = join(*a, *b);
    }
}

fn pass_on<const N: usize>(
    to: &mut [[u8; N]],
    b: &[[u8; N]],
    join: &impl Fn([u8; N], [u8; N]) -> [u8; N],
) {
    for (to, b) in to.iter_mut().zip(b) {
        *to = join(*to, *b);
    }
}
