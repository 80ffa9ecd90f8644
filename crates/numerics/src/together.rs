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

fn run<T: Copy + Default, const N: usize>(
    values: &[&[u8]],
    out: &mut [u8],
    load: impl Fn([u8; N]) -> T,
    store: impl Fn(T) -> [u8; N],
    join: impl Fn(T, T) -> T,
) {
    let lanes = values.len().min(LANES);
    let mut held = vec![vec![T::default(); SOME]; lanes];
    let count = out.len() / N;
    for start in (0..count).step_by(SOME) {
        let n = SOME.min(count - start);
        let bytes = start * N..(start + n) * N;
        for (at, value) in values.iter().enumerate() {
            let (given, _) = value[bytes.clone()].as_chunks::<N>();
            let lane = &mut held[at % LANES][..n];
            for (here, x) in lane.iter_mut().zip(given) {
                *here = if at < LANES { load(*x) } else { join(*here, load(*x)) };
            }
        }
        let mut half = LANES / 2;
        while half > 0 {
            let (low, high) = held.split_at_mut(half.min(lanes));
            for (a, b) in low.iter_mut().zip(high.iter().take(half)) {
                for (x, y) in a[..n].iter_mut().zip(&b[..n]) {
                    *x = join(*x, *y);
                }
            }
            half /= 2;
        }
        let (there, _) = out[bytes].as_chunks_mut::<N>();
        for (to, x) in there.iter_mut().zip(&held[0]) {
            *to = store(*x);
        }
    }
}
