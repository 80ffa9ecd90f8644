//! Constants, positions, selection, conversion, and ops that hand on what they get.

use crate::dims::{known, same_shape, show};
use crate::rule::{Refusal, Rule, Ruled, Site, axis, joint, scalar, tensor};
use tessera_ir::{Attr, Type};
use tessera_numerics::{DType, Rounding};

pub struct Const;

impl Rule for Const {
    fn types(s: &Site<'_>) -> Ruled {
        let ty = s.written()?;
        let dtype = ty.dtype();
        match (s.attr("value"), s.attr("data").map(|d| d.as_str().unwrap_or_default())) {
            (Some(value), None) => {
                let good = match value {
                    Attr::Bool(_) => dtype == DType::Bool,
                    Attr::Int(v) => dtype.is_int() && fits(*v, dtype),
                    Attr::Float(_) => dtype.is_float(),
                    _ => false,
                };
                if !good {
                    let why = format!("expected a value of dtype {dtype}, got {value}");
                    return Err(Refusal::ty(why));
                }
            }
            (None, Some(data)) => {
                let count = ty
                    .static_shape()
                    .and_then(|s| s.iter().try_fold(1i64, |n, &d| n.checked_mul(d.max(0))))
                    .and_then(|n| usize::try_from(n).ok()?.checked_mul(2 * dtype.bytes()));
                if count != Some(data.len()) || hex_bytes(data).is_none() {
                    return Err(Refusal::shape(format!(
                        "expected `data` to hold {} hexadecimal digits for {ty}, got {}",
                        count.map_or("a known number of".into(), |c| c.to_string()),
                        data.len()
                    )));
                }
            }
            _ => return Err(Refusal::structure("expected one of `value` and `data`")),
        }
        Ok(vec![ty.clone()])
    }
}

/// The bytes of a dense constant.
pub fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| (c as char).to_digit(16).filter(|_| !c.is_ascii_uppercase());
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[a, b]| Some((digit(*a)? * 16 + digit(*b)?) as u8)).collect()
}

/// The `data` of a dense constant: elements as in memory, row-major, little-endian and unpacked.
pub fn hex_text(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    out
}

fn fits(v: i64, dtype: DType) -> bool {
    let bits = dtype.bits();
    // Values above i64::MAX are written as the i64 with the same bits.
    if bits >= 64 {
        return true;
    }
    if dtype.is_unsigned_int() {
        (0..1 << bits).contains(&v)
    } else {
        (-(1 << (bits - 1))..1 << (bits - 1)).contains(&v)
    }
}

pub struct Iota;

impl Rule for Iota {
    fn types(s: &Site<'_>) -> Ruled {
        let ty = s.written()?;
        axis("axis", s.int("axis", -1), ty)?;
        if ty.dtype() == DType::Bool {
            return Err(Refusal::ty("expected positions of a number dtype, got bool"));
        }
        Ok(vec![ty.clone()])
    }
}

pub struct Select;

impl Rule for Select {
    /// The condition has the operands' shape, or no axes.
    fn types(s: &Site<'_>) -> Ruled {
        let (c, a, b) = (s.operand(0)?, s.operand(1)?, s.operand(2)?);
        if c.dtype() != DType::Bool {
            return Err(Refusal::ty(format!("expected a bool condition, got {}", c.dtype())));
        }
        if !same_shape(a.shape(), b.shape()) {
            return Err(Refusal::shape(format!(
                "expected two values of one shape, got {} and {}",
                show(a.shape()),
                show(b.shape())
            )));
        }
        if a.dtype() != b.dtype() {
            return Err(Refusal::ty(format!(
                "expected two values of one dtype, got {} and {}",
                a.dtype(),
                b.dtype()
            )));
        }
        if c.rank() > 0 && !same_shape(c.shape(), a.shape()) {
            return Err(Refusal::shape(format!(
                "expected a condition of the values' shape, got {} and {}",
                show(c.shape()),
                show(a.shape())
            )));
        }
        let dims = a.shape().iter().zip(b.shape()).map(|(x, y)| known(x, y)).collect();
        Ok(vec![tensor(dims, joint(&[a, b]))])
    }
}

fn same_extents(from: &Type, to: &Type) -> Result<(), Refusal> {
    if same_shape(from.shape(), to.shape()) {
        return Ok(());
    }
    Err(Refusal::shape(format!(
        "expected a result of the operand's shape, got {} and {}",
        show(from.shape()),
        show(to.shape())
    )))
}

pub struct Cast;

impl Rule for Cast {
    fn types(s: &Site<'_>) -> Ruled {
        let (from, to) = (s.operand(0)?, s.written()?);
        same_extents(from, to)?;
        if let Some(mode) = s.word("round")
            && !matches!(Rounding::from_name(mode), Some(r) if r != Rounding::Stochastic)
        {
            return Err(Refusal::ty(format!(
                "expected a rounding mode of rne rtz up down, got {mode}"
            )));
        }
        Ok(vec![to.clone()])
    }
}

pub struct Bitcast;

impl Rule for Bitcast {
    fn types(s: &Site<'_>) -> Ruled {
        let (from, to) = (s.operand(0)?, s.written()?);
        same_extents(from, to)?;
        if from.dtype().bits() != to.dtype().bits() {
            return Err(Refusal::ty(format!(
                "expected dtypes of one width, got {} and {}",
                from.dtype(),
                to.dtype()
            )));
        }
        Ok(vec![to.clone()])
    }
}

pub struct DimOf;

impl Rule for DimOf {
    fn types(s: &Site<'_>) -> Ruled {
        match s.expr("name") {
            Some(_) => Ok(vec![scalar(DType::I64)]),
            None => Err(Refusal::structure("expected a dimension expression in `name`")),
        }
    }
}

pub struct Same;

impl Rule for Same {
    fn types(s: &Site<'_>) -> Ruled {
        Ok(vec![s.operand(0)?.clone()])
    }
}

pub struct SameAll;

impl Rule for SameAll {
    fn types(s: &Site<'_>) -> Ruled {
        Ok(s.group("values").to_vec())
    }
}
