//! Ops that only rearrange elements.

use crate::Tile;
use tessera_ir::{Attr, Dim, Func, InferContext, OpErrors, OpId, Type};

fn count(ty: &Type) -> Option<i64> {
    ty.static_shape()?.iter().try_fold(1i64, |n, &d| n.checked_mul(d))
}

pub fn verify_reshape(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (from, to) = (func.ty(op.operands[0]), func.ty(op.result()));
    if count(from).is_none()
        || count(from) != count(to)
        || from.dtype() != to.dtype()
        || !matches!(to, Type::Tile { .. })
    {
        errors.shape(format!(
            "expected a tile with as many elements of the same dtype, got {from} to {to}"
        ));
    }
}

pub fn infer_transpose(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    let ty = &c.operands[0];
    let perm = c.attrs.get("perm").and_then(Attr::as_ints).unwrap_or_default();
    let mut seen = perm.clone();
    seen.sort_unstable();
    if seen != (0..ty.rank() as i64).collect::<Vec<_>>() {
        return Err(format!("expected a permutation of the {} axes, got {perm:?}", ty.rank()));
    }
    let shape = perm.iter().map(|&p| ty.shape()[p as usize].clone()).collect();
    Ok(vec![Type::Tile { shape, dtype: ty.dtype() }])
}

pub fn verify_transpose(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    report(func, id, errors, infer_transpose);
}

pub fn verify_broadcast(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (from, to) = (func.ty(op.operands[0]), func.ty(op.result()));
    let ranks = from.rank() == 0 || from.rank() == to.rank();
    let stretch = from.shape().iter().zip(to.shape()).all(|(a, b)| a == b || a.is_one());
    if !ranks || !stretch || !matches!(to, Type::Tile { .. }) {
        errors.shape(format!(
            "expected a scalar or a tile whose extents are 1 or the result's, got {from} to {to}"
        ));
    } else if from.dtype() != to.dtype() {
        errors.ty(format!("expected the result to keep the dtype, got {from} to {to}"));
    }
}

pub fn infer_expand(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    let ty = &c.operands[0];
    let axis = c.attrs.get("axis").and_then(Attr::as_int).unwrap_or(-1);
    if axis < 0 || axis as usize > ty.rank() {
        return Err(format!("expected an axis from 0 to {}, got {axis}", ty.rank()));
    }
    let mut shape = ty.shape().to_vec();
    shape.insert(axis as usize, Dim::Static(1));
    Ok(vec![Type::Tile { shape, dtype: ty.dtype() }])
}

pub fn verify_expand(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    report(func, id, errors, infer_expand);
}

/// Reports what inference objects to.
pub(super) fn report(
    func: &Func<Tile>,
    id: OpId,
    errors: &mut OpErrors,
    infer: fn(&InferContext<'_>) -> Result<Vec<Type>, String>,
) {
    let op = &func.ops[id];
    let types: Vec<_> = op.positional().iter().map(|&v| func.ty(v).clone()).collect();
    if let Err(why) = infer(&InferContext { operands: &types, groups: &[], attrs: &op.attrs }) {
        errors.shape(why);
    }
}
