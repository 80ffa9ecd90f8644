//! Pieces of shared memory.

use tessera_ir::Value;

/// The memory that a piece is a part of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::verify) enum Base {
    Alloc(Value),
    /// A field of a pipeline's stage, at a counter; `filling` while its producer has it.
    Field {
        pipeline: Value,
        i: i64,
        name: String,
        filling: bool,
    },
}

/// Along one axis the first position and how many, where they are known.
type Bound = Option<(i64, i64)>;

/// A block of it: along each axis of the base the first position and how many. An axis whose
/// positions are not known is not restricted.
#[derive(Clone, PartialEq, Debug)]
pub(in crate::verify) struct Place {
    pub base: Base,
    pub bounds: Vec<Bound>,
    /// The axes of the base that a view of the piece still has, in its order.
    pub axes: Vec<usize>,
}

impl Place {
    pub fn whole(base: Base, rank: usize) -> Self {
        Self { base, bounds: vec![None; rank], axes: (0..rank).collect() }
    }

    /// A block of the piece.
    pub fn view(&self, at: &[Option<i64>], extent: &[i64], perm: Option<&[i64]>) -> Self {
        let mut out = self.clone();
        let mut kept = Vec::new();
        for ((&axis, at), &len) in self.axes.iter().zip(at).zip(extent) {
            let first = self.bounds[axis].map_or(0, |(first, _)| first);
            out.bounds[axis] = at.map(|at| (first + at, len.max(1)));
            if len != 0 {
                kept.push(axis);
            }
        }
        out.axes = match perm {
            Some(perm) => perm.iter().filter_map(|&p| kept.get(p as usize).copied()).collect(),
            None => kept,
        };
        out
    }

    pub fn overlaps(&self, other: &Place) -> bool {
        let apart = |(a, b): (&Bound, &Bound)| match (a, b) {
            (Some((a, n)), Some((b, m))) => a + n <= *b || b + m <= *a,
            _ => false,
        };
        same_memory(&self.base, &other.base) && !self.bounds.iter().zip(&other.bounds).any(apart)
    }
}

/// Filling and reading are two handles of one memory.
fn same_memory(a: &Base, b: &Base) -> bool {
    match (a, b) {
        (Base::Alloc(a), Base::Alloc(b)) => a == b,
        (
            Base::Field { pipeline: r, i, name: n, .. },
            Base::Field { pipeline: s, i: j, name: m, .. },
        ) => (r, i, n) == (s, j, m),
        _ => false,
    }
}
