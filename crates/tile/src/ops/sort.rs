//! Sorting along an axis, and counting.

use super::parts::axis_of;
use super::shape::report;
use crate::Tile;
use tessera_ir::{Func, InferContext, OpErrors, OpId, Type};
use tessera_numerics::DType;

pub fn infer_sort(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    let x = &c.operands[0];
    axis_of(c, x.rank())?;
    Ok(vec![x.clone(), x.with_dtype(DType::I32)])
}

pub fn verify_sort(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    report(func, id, errors, infer_sort);
    let dtype = func.ty(func.ops[id].operands[0]).dtype();
    if dtype != dtype.compute() && dtype != DType::Bool {
        errors.ty(format!("expected a dtype that is compared as it is, got {dtype}"));
    }
}

pub fn verify_histogram(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (x, bins) = (func.ty(op.operands[0]), func.ty(op.result()));
    if !x.dtype().is_int() {
        errors.ty(format!("expected a tile of integers to count, got {x}"));
    }
    if !bins.is_tile() || bins.rank() != 1 || bins.dtype() != DType::I32 {
        errors.ty(format!("expected counts as a tile of rank 1 of i32, got {bins}"));
    }
}
