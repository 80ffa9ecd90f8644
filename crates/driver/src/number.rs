//! Python numbers as scalars of a parameter's dtype: range-checked, never cut off in silence.

use crate::args::{Arg, Number};
use tessera_numerics::{DType, Scalar, cast};

/// `Err` says what was expected and what came.
pub fn scalar_of(arg: &Arg, dtype: DType) -> Result<Scalar, String> {
    let wrong = || Err(format!("expected a number for {dtype}, got {}", arg.describe()));
    let Arg::Number { value, .. } = arg else { return wrong() };
    match (value, dtype.carrier()) {
        (Number::Bool(v), DType::Bool) => Ok(Scalar::Bool(*v)),
        (_, DType::Bool) => Err(format!("expected True or False, got {}", arg.describe())),
        (Number::Bool(v), _) => int(i128::from(*v), dtype),
        (Number::Int(v), _) => int(*v, dtype),
        (Number::Float(v), _) if dtype.is_float() => float(*v, dtype),
        (Number::Float(_) | Number::Huge(_), _) => {
            Err(format!("expected an integer that fits {dtype}, got {}", arg.describe()))
        }
    }
}

fn int(value: i128, dtype: DType) -> Result<Scalar, String> {
    if dtype.is_float() {
        // An integer is exact in f64 up to 2^53; beyond it rounds once more, as in Python.
        return float(value as f64, dtype);
    }
    let bits = dtype.bits();
    let (low, high) = if dtype.is_signed_int() {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    if !(low..=high).contains(&value) {
        return Err(format!("expected an integer from {low} to {high} for {dtype}, got {value}"));
    }
    Ok(match dtype.carrier() {
        DType::I64 => Scalar::I64(value as i64),
        DType::U32 => Scalar::U32(value as u32),
        DType::U64 => Scalar::U64(value as u64),
        _ => Scalar::I32(value as i32),
    })
}

/// Rounds once, to the dtype itself: a bf16 scalar is a bf16 value.
fn float(value: f64, dtype: DType) -> Result<Scalar, String> {
    let storage = if dtype == DType::Tf32 { DType::F32 } else { dtype };
    let rounded = cast(Scalar::F64(value), DType::F64, storage);
    if value.is_finite() && !rounded.as_f64().is_finite() {
        return Err(format!("expected a number in the range of {dtype}, got {value}"));
    }
    Ok(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(value: Number) -> Arg {
        Arg::Number { value, dtype: None }
    }

    #[test]
    fn numbers_are_checked_against_the_dtype() {
        assert_eq!(scalar_of(&number(Number::Int(255)), DType::U8), Ok(Scalar::I32(255)));
        assert!(scalar_of(&number(Number::Int(256)), DType::U8).unwrap_err().contains("0 to 255"));
        assert!(scalar_of(&number(Number::Float(1.5)), DType::I32).is_err());
        assert_eq!(scalar_of(&number(Number::Int(3)), DType::F32), Ok(Scalar::F32(3.0)));
        assert!(scalar_of(&number(Number::Float(1e300)), DType::F32).is_err());
        assert!(scalar_of(&number(Number::Float(f64::INFINITY)), DType::F32).is_ok());
        assert!(scalar_of(&Arg::None, DType::F32).is_err());
    }
}
