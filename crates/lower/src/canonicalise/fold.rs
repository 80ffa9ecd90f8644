//! Constants: reading them, folding ops over them, writing them. Only what gives the same bits as
//! running the op.

use tessera_ir::{Attr, Op, Type, Value};
use tessera_numerics::{DType, Rounding, Scalar, ScalarFn, cast, cast_with, eval};
use tessera_tile::{Tile, TileFunc, TileOp};

/// The value of a scalar constant, in the carrier of its dtype.
pub(super) fn constant(func: &TileFunc, value: Value) -> Option<Scalar> {
    let op = func.def(value).filter(|op| op.code == TileOp::Const)?;
    // Checked mode must see it read.
    if op.attr("unset").is_some() {
        return None;
    }
    let Type::Scalar(dtype) = *func.ty(value) else { return None };
    let held = match op.attr("value")? {
        Attr::Bool(v) => Scalar::Bool(*v),
        // An unsigned 64-bit number is written as the i64 with the same bits.
        Attr::Int(v) if dtype == DType::U64 => Scalar::U64(*v as u64),
        Attr::Int(v) => cast(Scalar::I64(*v), DType::I64, dtype),
        Attr::Float(v) => cast(Scalar::F64(*v), DType::F64, dtype),
        _ => return None,
    };
    (held.dtype() == dtype.carrier()).then_some(held)
}

/// The attribute that writes a constant. `None` for NaN, whose bits the text does not keep.
fn attr(value: Scalar) -> Option<Attr> {
    Some(match value {
        Scalar::Bool(v) => Attr::Bool(v),
        Scalar::U64(v) => Attr::Int(v as i64),
        Scalar::F32(_) | Scalar::F64(_) if value.as_f64().is_nan() => return None,
        Scalar::F32(_) | Scalar::F64(_) => Attr::Float(value.as_f64()),
        other => Attr::Int(i64::try_from(other.as_int()?).ok()?),
    })
}

/// What the op gives, as the value of a constant of its result type. `operands` are those of the
/// new function.
pub(super) fn fold(
    func: &TileFunc,
    op: &Op<Tile>,
    operands: &[Value],
    result: &Type,
) -> Option<Attr> {
    let Type::Scalar(to) = *result else { return None };
    let args: Vec<Scalar> = operands.iter().map(|&v| constant(func, v)).collect::<Option<_>>()?;
    let value = match op.code {
        TileOp::Ew(f) if folds(f) => eval(f, &args)?,
        TileOp::Cast => {
            let from = func.ty(operands[0]).dtype();
            let round = op
                .attr("round")
                .and_then(Attr::as_word)
                .map_or(Some(Rounding::Rne), Rounding::from_name)?;
            if round == Rounding::Stochastic {
                return None;
            }
            let saturate =
                op.attr("saturate").and_then(Attr::as_bool).unwrap_or(to.saturates_by_default());
            cast_with(args[0], from, to, round, saturate)
        }
        _ => return None,
    };
    attr(value)
}

/// Functions that every backend computes to the same bits. The others have an error bound, and
/// folding them would give other bits than running them.
fn folds(f: ScalarFn) -> bool {
    f.real().is_none()
}

/// The operand that the op gives back unchanged, if it does.
pub(super) fn same_as(
    func: &TileFunc,
    op: &Op<Tile>,
    operands: &[Value],
    result: &Type,
) -> Option<Value> {
    match op.code {
        TileOp::Cast | TileOp::Broadcast | TileOp::Bitcast | TileOp::Reshape => {
            Some(operands[0]).filter(|&v| func.ty(v) == result)
        }
        TileOp::Transpose => {
            let perm = op.attr("perm").and_then(Attr::as_ints)?;
            perm.iter().zip(0..).all(|(p, i)| *p == i).then_some(operands[0])
        }
        TileOp::Select => {
            let Scalar::Bool(taken) = constant(func, operands[0])? else { return None };
            Some(operands[if taken { 1 } else { 2 }])
        }
        // Of integers only: x + 0.0 is not x for x = -0.0.
        TileOp::Ew(f) if result.dtype().is_int() => {
            let is =
                |i: usize, v: i128| constant(func, operands[i]).and_then(Scalar::as_int) == Some(v);
            match f {
                ScalarFn::Add if is(0, 0) => Some(operands[1]),
                ScalarFn::Add | ScalarFn::Sub if is(1, 0) => Some(operands[0]),
                ScalarFn::Mul if is(0, 1) => Some(operands[1]),
                ScalarFn::Mul | ScalarFn::FloorDiv if is(1, 1) => Some(operands[0]),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Of a division of floats by a power of two, the constant to multiply by instead: both are the same
/// number, rounded once. `None` where the inverse is not a normal number of the dtype: that of a
/// denormal divisor may be beyond its largest, that of a large one a denormal that some targets flush.
pub(super) fn inverse(func: &TileFunc, op: &Op<Tile>, operands: &[Value]) -> Option<Attr> {
    let normal = match func.ty(*operands.first()?).dtype() {
        DType::F32 => f64::from(f32::MIN_POSITIVE)..=f64::from(f32::MAX),
        DType::F64 => f64::MIN_POSITIVE..=f64::MAX,
        _ => return None,
    };
    if op.code != TileOp::Ew(ScalarFn::Div) {
        return None;
    }
    let by = func.def(operands[1]).filter(|by| by.code == TileOp::Broadcast);
    let by = constant(func, by.map_or(operands[1], |by| by.operands[0]))?.as_f64();
    let power = by.is_normal() && by.to_bits() << 12 == 0;
    let inverse = 1.0 / by;
    (power && normal.contains(&inverse.abs())).then_some(Attr::Float(inverse))
}
