//! Conversion between element types (LANGUAGE 9).

use crate::codec::{decode, encode};
use crate::dtype::DType;
use crate::modes::Rounding;
use crate::scalar::Scalar;

/// Converts by the language's rules: floats round to nearest even, saturating into fp8, fp6 and fp4;
/// float to int truncates, saturates, and takes NaN to 0; ints wrap.
///
/// The result is held in `to`'s carrier. A `v` that is not held in `from`'s carrier is first brought
/// to `from` by the same rules.
pub fn cast(v: Scalar, from: DType, to: DType) -> Scalar {
    cast_with(v, from, to, Rounding::Rne, to.saturates_by_default())
}

/// [`cast`] with the rounding and saturation of a policy. `sat` on an integer target clamps integers
/// instead of wrapping them.
pub fn cast_with(v: Scalar, from: DType, to: DType, r: Rounding, sat: bool) -> Scalar {
    let held = if v.dtype() == from.carrier() {
        v
    } else {
        decode(from, encode(from, v, Rounding::Rne, from.saturates_by_default()))
    };
    decode(to, encode(to, held, r, sat))
}
