//! Constants, ranges, selection and conversion.

use crate::Tile;
use tessera_ir::{Attr, Func, InferContext, OpErrors, OpId, Type};
use tessera_numerics::{DType, Rounding};

pub fn verify_const(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let ty = func.ty(op.result());
    if !ty.is_value() {
        errors.ty(format!("expected a constant of scalar or tile type, got {ty}"));
        return;
    }
    let good = match op.attr("value") {
        Some(Attr::Bool(_)) => ty.dtype() == DType::Bool,
        Some(Attr::Int(v)) => ty.dtype().is_int() && fits(*v, ty.dtype()),
        Some(Attr::Float(_)) => ty.dtype().is_float(),
        _ => false,
    };
    if !good {
        let value = op.attr("value").map_or(String::new(), Attr::to_string);
        errors.ty(format!("expected a value of dtype {}, got {value}", ty.dtype()));
    }
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

pub fn verify_iota(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let ty = func.ty(op.result());
    if !matches!(ty, Type::Tile { shape, dtype: DType::I32 } if shape.len() == 1) {
        errors.ty(format!("expected a rank-1 tile of i32, got {ty}"));
        return;
    }
    let start = op.attr("start").and_then(Attr::as_int).unwrap_or(0);
    let end = ty.static_shape().and_then(|s| start.checked_add(s[0] - 1));
    if i32::try_from(start).is_err() || end.is_none_or(|e| i32::try_from(e).is_err()) {
        errors.shape(format!("expected a range inside 32 bits, got one from {start}"));
    }
}

pub fn infer_select(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    c.operands.get(1).map(|t| vec![t.clone()]).ok_or_else(|| "expected three operands".into())
}

/// The condition is a scalar, or a tile of the operands' shape.
pub fn verify_select(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (c, a, b) = (func.ty(op.operands[0]), func.ty(op.operands[1]), func.ty(op.operands[2]));
    if a != b {
        errors.ty(format!("expected two values of one type, got {a} and {b}"));
    }
    if c.dtype() != DType::Bool {
        errors.ty(format!("expected a bool condition, got {c}"));
    } else if c.rank() > 0 && c.shape() != a.shape() {
        errors.shape(format!("expected a condition of the values' shape, got {c} with {a}"));
    }
}

pub fn verify_cast(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (from, to) = (func.ty(op.operands[0]), func.ty(op.result()));
    if from.shape() != to.shape() || !to.is_value() {
        errors.shape(format!("expected a result of the operand's shape, got {from} to {to}"));
    }
    if let Some(mode) = op.attr("round").and_then(Attr::as_word)
        && Rounding::from_name(mode).is_none()
    {
        errors.ty(format!("expected a rounding mode of rne rtz up down stochastic, got {mode}"));
    }
}

pub fn verify_bitcast(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (from, to) = (func.ty(op.operands[0]), func.ty(op.result()));
    if from.shape() != to.shape() || !to.is_value() {
        errors.shape(format!("expected a result of the operand's shape, got {from} to {to}"));
    } else if from.dtype().bits() != to.dtype().bits() {
        errors.ty(format!("expected dtypes of one width, got {} and {}", from.dtype(), to.dtype()));
    }
}

pub fn infer_philox(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    c.operands
        .get(1)
        .map(|t| vec![t.with_dtype(DType::U32)])
        .ok_or_else(|| "expected two operands".into())
}

pub fn verify_philox(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let counter = func.ty(op.operands[1]);
    if counter.dtype() != DType::I64 {
        errors.ty(format!("expected a counter of dtype i64, got {counter}"));
    }
    let word = op.attr("word").and_then(Attr::as_int).unwrap_or(0);
    if !(0..4).contains(&word) {
        errors.structure(format!("expected a word of 0 to 3, got {word}"));
    }
}
