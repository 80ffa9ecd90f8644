//! Matrix multiply-accumulate of class `seq` (LANGUAGE 13): for each k, ascending, one fused
//! multiply-add from the accumulator. Whatever class an mma requests, this is what it gets.
//!
//! A block of columns is kept in registers over the whole of k. That changes no element's order.

use crate::value::{Data, Tile};
use std::sync::Arc;

/// Columns of one block: eight vectors of eight f32.
const COLUMNS: usize = 64;

/// `None` when the operands are not of one of the op's rows.
pub(crate) fn mma(a: &Data, b: &Data, mut acc: Tile, k: usize, n: usize) -> Option<Tile> {
    match (a, b, Arc::make_mut(&mut acc)) {
        (Data::F32(a), Data::F32(b), Data::F32(acc)) => f32_rows(a, b, acc, k, n),
        (Data::F64(a), Data::F64(b), Data::F64(acc)) => f64_rows(a, b, acc, k, n),
        // Products of 8-bit numbers are exact; the sum wraps like all integers.
        (Data::I32(a), Data::I32(b), Data::I32(acc)) => {
            rows(a, b, acc, k, n, |a, b, c| c.wrapping_add(a.wrapping_mul(b)));
        }
        _ => return None,
    }
    Some(acc)
}

#[inline(always)]
fn rows<T: Copy + Default>(
    a: &[T],
    b: &[T],
    acc: &mut [T],
    k: usize,
    n: usize,
    fma: impl Fn(T, T, T) -> T + Copy,
) {
    for (a, acc) in a.chunks_exact(k).zip(acc.chunks_exact_mut(n)) {
        let mut j = 0;
        while j + COLUMNS <= n {
            block::<T, COLUMNS>(a, b, &mut acc[j..], n, j, fma);
            j += COLUMNS;
        }
        while j + 8 <= n {
            block::<T, 8>(a, b, &mut acc[j..], n, j, fma);
            j += 8;
        }
        while j < n {
            block::<T, 1>(a, b, &mut acc[j..], n, j, fma);
            j += 1;
        }
    }
}

#[inline(always)]
fn block<T: Copy + Default, const W: usize>(
    a: &[T],
    b: &[T],
    acc: &mut [T],
    n: usize,
    j: usize,
    fma: impl Fn(T, T, T) -> T,
) {
    let mut sums = [T::default(); W];
    sums.copy_from_slice(&acc[..W]);
    for (&a, b) in a.iter().zip(b.chunks_exact(n)) {
        let b = &b[j..j + W];
        for (sum, &b) in sums.iter_mut().zip(b) {
            *sum = fma(a, b, *sum);
        }
    }
    acc[..W].copy_from_slice(&sums);
}

macro_rules! float_rows {
    ($name:ident, $fused:ident, $t:ident) => {
        pub fn $name(a: &[$t], b: &[$t], acc: &mut [$t], k: usize, n: usize) {
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                // SAFETY: the processor has the features the function is compiled for.
                return unsafe { $fused(a, b, acc, k, n) };
            }
            rows(a, b, acc, k, n, $t::mul_add);
        }

        /// The same loops where `mul_add` is one instruction. Both give the exact fused result.
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn $fused(a: &[$t], b: &[$t], acc: &mut [$t], k: usize, n: usize) {
            rows(a, b, acc, k, n, |a, b, c| a.mul_add(b, c));
        }
    };
}

float_rows!(f32_rows, f32_rows_fused, f32);
float_rows!(f64_rows, f64_rows_fused, f64);
