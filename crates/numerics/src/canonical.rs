//! The canonical reduction CR of LANGUAGE 14, streamed.
//!
//! Element `i` of a chunk goes to lane `i mod 64`, the lanes are folded in halves, and the results of
//! chunks of 65536 elements are reduced again in the same way. The tree depends on positions only, so
//! any tiling, vector width or thread count can reproduce it.

use crate::dtype::DType;
use crate::reduce::ReduceOp;
use crate::scalar::{Carrier, Scalar};

/// Independent partial results.
pub const LANES: usize = 64;
/// Elements reduced as one chunk.
pub const CHUNK: usize = 65536;

/// A canonical reduction in progress. Elements are pushed in ascending position.
pub struct Canonical<T, F> {
    join: F,
    init: T,
    /// `levels[0]` takes elements, `levels[k + 1]` the results of full chunks of `levels[k]`.
    levels: Vec<Level<T>>,
}

struct Level<T> {
    lanes: [T; LANES],
    len: usize,
}

impl<T: Copy, F: Fn(T, T) -> T> Canonical<T, F> {
    /// `init` starts every lane: the operator's identity.
    pub fn new(init: T, join: F) -> Self {
        Canonical { join, init, levels: vec![Level { lanes: [init; LANES], len: 0 }] }
    }

    #[inline]
    pub fn push(&mut self, x: T) {
        // A full chunk is folded only when one more element comes: exactly 65536 elements are one
        // chunk, not a chunk of one chunk.
        if self.levels[0].len == CHUNK {
            self.carry(0);
        }
        self.put(0, x);
    }

    #[inline]
    fn put(&mut self, k: usize, x: T) {
        let level = &mut self.levels[k];
        let lane = &mut level.lanes[level.len % LANES];
        *lane = (self.join)(*lane, x);
        level.len += 1;
    }

    /// Empties the full level `k` into the one above, making room there first.
    #[cold]
    fn carry(&mut self, k: usize) {
        let empty = || Level { lanes: [self.init; LANES], len: 0 };
        let full = std::mem::replace(&mut self.levels[k], empty());
        if k + 1 == self.levels.len() {
            self.levels.push(empty());
        }
        if self.levels[k + 1].len == CHUNK {
            self.carry(k + 1);
        }
        let x = self.fold(full.lanes);
        self.put(k + 1, x);
    }

    fn fold(&self, mut lanes: [T; LANES]) -> T {
        for h in [32, 16, 8, 4, 2, 1] {
            for j in 0..h {
                lanes[j] = (self.join)(lanes[j], lanes[j + h]);
            }
        }
        lanes[0]
    }

    /// The result. Over no elements it is the identity, so a float sum of nothing is −0.0.
    pub fn finish(mut self) -> T {
        let mut k = 0;
        while k + 1 < self.levels.len() {
            self.carry(k);
            k += 1;
        }
        self.fold(self.levels[k].lanes)
    }
}

/// CR with `+` over f32, the sum of every strict reduction.
pub fn canonical_sum_f32(xs: impl Iterator<Item = f32>) -> f32 {
    let mut acc = Canonical::new(-0.0f32, |a, b| a + b);
    xs.for_each(|x| acc.push(x));
    acc.finish()
}

/// CR with any operator over any carrier type; `None` where the operator does not take the type.
pub fn canonical_reduce<T: Carrier>(op: ReduceOp, xs: impl Iterator<Item = T>) -> Option<T> {
    let init = T::from_scalar(op.identity(T::DTYPE)?)?;
    let mut acc = Canonical::new(init, T::binary(op.combine().kernel(T::DTYPE)?)?);
    xs.for_each(|x| acc.push(x));
    Some(acc.finish())
}

/// [`canonical_reduce`] over values whose type is known only at run time. `None` also when an
/// element is not of type `dt`.
pub fn canonical_reduce_scalars(
    op: ReduceOp,
    dt: DType,
    xs: impl Iterator<Item = Scalar>,
) -> Option<Scalar> {
    fn typed<T: Carrier>(op: ReduceOp, xs: impl Iterator<Item = Scalar>) -> Option<Scalar> {
        let xs: Option<Vec<T>> = xs.map(T::from_scalar).collect();
        canonical_reduce(op, xs?.into_iter()).map(T::into_scalar)
    }
    // `identity` refuses every type that is no carrier, and `dt` is then one of these seven.
    match op.identity(dt)? {
        Scalar::Bool(_) => typed::<bool>(op, xs),
        Scalar::I32(_) => typed::<i32>(op, xs),
        Scalar::I64(_) => typed::<i64>(op, xs),
        Scalar::U32(_) => typed::<u32>(op, xs),
        Scalar::U64(_) => typed::<u64>(op, xs),
        Scalar::F32(_) => typed::<f32>(op, xs),
        Scalar::F64(_) => typed::<f64>(op, xs),
    }
}
