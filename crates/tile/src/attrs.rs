//! Accessors for attributes of ops, shared by every backend and level.

use tessera_ir::{Attr, Level, Op};
use tessera_numerics::{DType, Rounding, Scalar, cast, decode};

/// The grid axis of an op, its attribute `axis`.
pub fn grid_axis<L: Level>(op: &Op<L>) -> usize {
    op.attr("axis").and_then(Attr::as_int).unwrap_or(0).clamp(0, 2) as usize
}

/// The axes of an access that must be held against the extents.
pub fn checked_axes<L: Level>(op: &Op<L>, rank: usize) -> Vec<bool> {
    if op.attr("inbounds").and_then(Attr::as_bool) == Some(true) {
        return vec![false; rank];
    }
    match op.attr("bounds").and_then(Attr::as_list) {
        Some(words) => words.iter().map(|w| w.as_word() != Some("inside")).collect(),
        None => vec![true; rank],
    }
}

/// How a cast to this dtype rounds, and whether it saturates.
pub fn cast_mode<L: Level>(op: &Op<L>, to: DType) -> (Rounding, bool) {
    let round = op.attr("round").and_then(Attr::as_word).and_then(Rounding::from_name);
    let saturate = op.attr("saturate").and_then(Attr::as_bool);
    (round.unwrap_or(Rounding::Rne), saturate.unwrap_or(to.saturates_by_default()))
}

/// The value of a constant, in the carrier of its dtype.
pub fn constant_of<L: Level>(op: &Op<L>, dtype: DType) -> Scalar {
    match op.attr("value") {
        Some(Attr::Bool(b)) => Scalar::Bool(*b),
        // Unsigned values above i64::MAX are written as the i64 with the same bits.
        Some(Attr::Int(v)) => decode(dtype, *v as u64),
        Some(Attr::Float(v)) => cast(Scalar::F64(*v), DType::F64, dtype),
        _ => Scalar::zero(dtype),
    }
}
