//! Explicit shared memory, and tiles that are loaded from and stored to it.

use crate::{Staged, StagedOp};
use tessera_ir::{Attr, Dim, Func, InferContext, OpErrors, OpId, Type, Value};
use tessera_layout::{In, Layout, Shared};

/// Memory that all of a block shares exists from its begin to its end.
pub(super) fn made_once(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    if func.blocks[func.ops[id].block].parent.is_some() {
        errors
            .structure("expected shared memory, pipelines and order barriers to be made in the function's body");
    }
}

pub fn verify_alloc(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    // Each replica of a role has its own.
    let around = func.blocks[func.ops[id].block].parent.map(|o| func.ops[o].code);
    if around != Some(StagedOp::WarpRole) {
        made_once(func, id, errors);
    }
    let ty = func.ty(func.ops[id].result());
    if !matches!(ty, Type::Smem { .. }) {
        errors.ty(format!("expected shared memory, got {ty}"));
    }
    let alignment = func.ops[id].attr("alignment").and_then(Attr::as_int);
    if alignment.is_some_and(|a| a <= 0 || a.count_ones() != 1) {
        errors.structure("expected an alignment that is a power of two");
    }
}

/// The axes of the memory that a view still has, in its order.
fn view_axes(extent: &[i64], perm: Option<&[i64]>) -> Result<Vec<usize>, String> {
    let kept: Vec<usize> = (0..extent.len()).filter(|&axis| extent[axis] != 0).collect();
    let Some(perm) = perm else { return Ok(kept) };
    let mut seen = perm.to_vec();
    seen.sort_unstable();
    if !seen.iter().copied().eq(0..kept.len() as i64) {
        return Err(format!(
            "expected a permutation of the {} axes in `perm`, got {perm:?}",
            kept.len()
        ));
    }
    Ok(perm.iter().map(|&p| kept[p as usize]).collect())
}

/// The type of a view. Its layout has the form of the memory's: order, swizzle, padding and panels.
/// Addresses are those of the memory it is a part of, from the positions `at` on.
pub fn infer_view(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    let Some(mem @ Type::Smem { dtype, layout, .. }) = c.operands.first() else {
        return Err("expected shared memory".into());
    };
    let extent = c.attrs.get("extent").and_then(Attr::as_ints).unwrap_or_default();
    let perm = c.attrs.get("perm").and_then(Attr::as_ints);
    let (rank, given, at) = (mem.rank(), extent.len(), c.group("at").len());
    if given != rank || at != rank {
        return Err(format!(
            "expected {rank} positions and extents for {mem}, got {at} and {given}"
        ));
    }
    let inside = |(d, &e): (&Dim, &i64)| d.as_static().is_some_and(|d| (0..=d).contains(&e));
    if !mem.shape().iter().zip(&extent).all(inside) {
        return Err(format!("expected extents inside {mem}, got {extent:?}"));
    }
    let axes = view_axes(&extent, perm.as_deref())?;
    let shape: Vec<i64> = axes.iter().map(|&axis| extent[axis]).collect();
    let here = |axis: &usize| axes.iter().position(|a| a == axis);
    let form = Shared {
        shape: shape.iter().map(|&d| d as u32).collect(),
        order: layout.order.iter().filter_map(here).collect(),
        // Panels are cut along the fastest axis, and go with it.
        panel: layout.panel.filter(|_| layout.order.first().is_some_and(|a| here(a).is_some())),
        ..(**layout).clone()
    };
    Ok(vec![Type::smem(&shape, *dtype, form)])
}

pub fn verify_view(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let types = |values: &[Value]| values.iter().map(|&v| func.ty(v).clone()).collect::<Vec<_>>();
    let context = InferContext {
        operands: &types(op.positional()),
        groups: &[("at", types(op.group("at")))],
        attrs: &op.attrs,
    };
    if let Err(why) = infer_view(&context) {
        errors.shape(why);
    }
}

/// A tile and the memory it is read from or written to are of one shape and dtype.
fn same(mem: &Type, tile: &Type, errors: &mut OpErrors) {
    if !tile.is_tile() {
        errors.ty(format!("expected a tile, got {tile}"));
    } else if tile.shape() != mem.shape() {
        errors.shape(format!("expected a tile of the memory's shape {mem}, got {tile}"));
    } else if tile.dtype() != mem.dtype() {
        errors.ty(format!("expected a tile of dtype {}, got {tile}", mem.dtype()));
    } else if let (Type::Smem { layout: memory, .. }, Some(layout)) = (mem, tile.layout())
        && memory.blocks > 1
        && !holds_its_part(memory, layout)
    {
        errors
            .ty(format!("expected a tile of which each block holds its part of {mem}, got {tile}"));
    }
}

/// Whether the threads of a block hold only elements that are in the block's own part.
pub fn holds_its_part(memory: &Shared, layout: &Layout) -> bool {
    let Some(&fast) = memory.order.first() else { return false };
    let part = memory.part();
    let ctas = layout.bases(In::Cta);
    let own = |(i, basis): (usize, &Vec<u32>)| {
        basis.iter().enumerate().all(|(dim, &at)| at == if dim == fast { part << i } else { 0 })
    };
    let others = [In::Reg, In::Lane, In::Warp];
    layout.ctas() == memory.blocks
        && ctas.iter().enumerate().all(own)
        && others.iter().all(|&i| layout.bases(i).iter().all(|basis| basis[fast] < part))
        && layout.repeat()[fast] == 1
}

pub fn verify_load(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    same(func.ty(op.operands[0]), func.ty(op.result()), errors);
}

pub fn verify_store(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    same(func.ty(op.operands[0]), func.ty(op.operands[1]), errors);
}

/// The type of a block of a tile: its layout has the same atom, repeated as often as the block needs.
pub fn infer_part(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    let Some(tile @ Type::Frag { dtype, layout, .. }) = c.operands.first() else {
        return Err("expected a tile with a layout".into());
    };
    let [at, extent] = ["at", "extent"].map(|name| part_of(c.attrs.get(name)));
    let part = at.as_ref().zip(extent.as_ref()).and_then(|(at, e)| layout.part(at, e));
    let (Some((part, _)), Some(extent)) = (part, extent) else {
        let atom = layout.box_extents();
        return Err(format!(
            "expected a block of whole atoms of {atom:?} inside {tile}, got another"
        ));
    };
    let shape: Vec<i64> = extent.iter().map(|&e| e.into()).collect();
    Ok(vec![Type::frag(&shape, *dtype, part)])
}

/// Positions or extents of a block, as layouts count them.
pub fn part_of(attr: Option<&Attr>) -> Option<Vec<u32>> {
    attr?.as_ints()?.into_iter().map(|n| u32::try_from(n).ok()).collect()
}

pub fn verify_part(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let operands = [func.ty(op.operands[0]).clone()];
    let context = InferContext { operands: &operands, groups: &[], attrs: &op.attrs };
    match infer_part(&context) {
        Ok(wanted) if wanted[0] == *func.ty(op.result()) => {}
        Ok(wanted) => {
            errors.ty(format!("expected {}, got {}", wanted[0], func.ty(op.result())));
        }
        Err(why) => errors.shape(why),
    }
}
