//! Parts of tiles: slices, concatenation, elements by position.

use super::shape::report;
use crate::Tile;
use tessera_ir::{Attr, Dim, Func, InferContext, OpErrors, OpId, Type};

/// The step of a slice along each axis.
pub fn slice_steps(step: Option<&Attr>, rank: usize) -> Vec<i64> {
    step.and_then(Attr::as_ints).unwrap_or_else(|| vec![1; rank])
}

pub fn verify_slice(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (from, to) = (func.ty(op.operands[0]), func.ty(op.result()));
    let start = op.attr("start").and_then(Attr::as_ints).unwrap_or_default();
    let step = slice_steps(op.attr("step"), from.rank());
    let rank = from.rank();
    if to.rank() != rank || !to.is_tile() || from.dtype() != to.dtype() {
        errors.shape(format!("expected a tile of rank {rank} of the same dtype, got {to}"));
        return;
    }
    if start.len() != rank || step.len() != rank {
        errors.shape(format!("expected a start and a step for each of {rank} axes"));
        return;
    }
    let (Some(sizes), Some(extents)) = (from.static_shape(), to.static_shape()) else { return };
    for axis in 0..rank {
        // The first and the last position; their sum may not wrap.
        let span = (extents[axis] - 1).max(0).checked_mul(step[axis]);
        let last = span.and_then(|s| s.checked_add(start[axis]));
        let inside = |p: i64| (0..sizes[axis]).contains(&p);
        let fits = extents[axis] == 0 || (inside(start[axis]) && last.is_some_and(inside));
        if step[axis] == 0 || !fits {
            errors.shape(format!(
                "expected positions inside {from}, got {} from {} by {} along axis {axis}",
                extents[axis], start[axis], step[axis]
            ));
        }
    }
}

/// The attribute `axis` as an axis of a tile.
pub(super) fn axis_of(c: &InferContext<'_>, rank: usize) -> Result<usize, String> {
    let axis = c.attrs.get("axis").and_then(Attr::as_int).unwrap_or(-1);
    usize::try_from(axis)
        .ok()
        .filter(|&a| a < rank)
        .ok_or_else(|| format!("expected an axis below {rank}, got {axis}"))
}

pub fn infer_concat(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    concat(c, c.group("parts"))
}

fn concat(c: &InferContext<'_>, parts: &[Type]) -> Result<Vec<Type>, String> {
    let first = parts.first().ok_or("expected at least one tile")?;
    let axis = axis_of(c, first.rank())?;
    let mut shape = first.shape().to_vec();
    let mut extent = Some(0);
    for part in parts {
        let alike = part.dtype() == first.dtype()
            && part.rank() == first.rank()
            && (0..first.rank()).all(|d| d == axis || part.shape()[d] == shape[d]);
        if !alike {
            return Err(format!(
                "expected tiles that agree but for axis {axis}, got {first} and {part}"
            ));
        }
        extent =
            extent.zip(part.shape()[axis].as_static()).and_then(|(a, b)| i64::checked_add(a, b));
    }
    shape[axis] = extent.map_or(Dim::Any, Dim::Static);
    Ok(vec![Type::value(shape, first.dtype())])
}

pub fn verify_concat(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let parts: Vec<Type> = op.group("parts").iter().map(|&v| func.ty(v).clone()).collect();
    let context = InferContext { operands: &[], groups: &[], attrs: &op.attrs };
    match concat(&context, &parts) {
        Err(why) => errors.shape(why),
        Ok(wanted) if wanted[0] != *func.ty(op.result()) => {
            errors.shape(format!("expected {}, got {}", wanted[0], func.ty(op.result())));
        }
        Ok(_) => {}
    }
}

pub fn infer_take(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    let (x, index) = (&c.operands[0], &c.operands[1]);
    let axis = axis_of(c, x.rank())?;
    if !index.dtype().is_int() {
        return Err(format!("expected positions of an integer dtype, got {index}"));
    }
    let alike = index.rank() == x.rank()
        && (0..x.rank()).all(|d| d == axis || index.shape()[d] == x.shape()[d]);
    if !alike {
        return Err(format!(
            "expected positions that agree with {x} but for axis {axis}, got {index}"
        ));
    }
    Ok(vec![index.with_dtype(x.dtype())])
}

pub fn verify_take(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    report(func, id, errors, infer_take);
}
