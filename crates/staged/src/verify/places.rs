//! Ownership of tiles: a tile belongs to the threads that hold it. Its layout is over as many warps
//! as the role, or the block, has. A role does not use tiles from outside, and a single thread
//! holds no tiles. Tiles reach shared memory only by explicit ops. Every type's layout is of its
//! own shape. Pipelines, order barriers and buffers are identified by the op that made them. Buffers
//! belong to the whole block: roles do not access them.

use crate::layouts::extents;
use crate::ops::roles::{RoleInfo, role_info, role_of};
use crate::{Staged, StagedOp, kind_of};
use tessera_ir::{Attr, Func, OpErrors, OpId, Type, Value, ValueDef};
use tessera_layout::Shared;
use tessera_tile::{KernelKind, TileOp};

pub(super) fn check(func: &Func<Staged>, errors: &mut OpErrors) {
    let threads = func.attrs.get("threads").and_then(Attr::as_int);
    let group = kind_of(func) == Some(KernelKind::Group);
    if group && threads.is_none() {
        errors.structure("expected the function attribute `threads`");
        return;
    }
    for &param in func.params() {
        if !matches!(func.ty(param), Type::Scalar(_) | Type::View { .. }) {
            let ty = func.ty(param);
            errors.ty(format!("expected a scalar or a view as a parameter, got {ty}"));
        }
    }
    for id in func.walk() {
        errors.at_op(func, id);
        let op = &func.ops[id];
        let makes = matches!(op.code, StagedOp::PipelineCreate | StagedOp::OrderBarrierCreate);
        let role = match op.code {
            StagedOp::WarpRole => Some(id),
            _ => role_of(func, id),
        };
        let info = role.map(|r| role_info(func, r));
        let warps = info.as_ref().map_or(threads.unwrap_or(32) / 32, |r| r.warps);
        for &v in op.results.iter().chain(op.regions.iter().flat_map(|&r| &func.blocks[r].args)) {
            layout_of(func.ty(v), warps, info.as_ref(), errors);
            if matches!(func.ty(v), Type::Pipeline { .. } | Type::OrderBarrier) && !makes {
                errors.ty("expected pipelines and order barriers to be used as they were made, got one carried");
            }
            let is_buffer = matches!(func.ty(v), Type::Buf { .. });
            if is_buffer && op.code != StagedOp::Tile(TileOp::BufAlloc) {
                errors.ty("expected a buffer to be used as it was made, got one carried");
            }
        }
        let touched = op.operands.iter().chain(&op.results);
        if role.is_some() && touched.into_iter().any(|&v| matches!(func.ty(v), Type::Buf { .. })) {
            errors.structure("expected the whole block to access a buffer, got one in a role");
        }
        let on_shared = op.operands.iter().any(|&v| matches!(func.ty(v), Type::Smem { .. }));
        if group && on_shared && matches!(op.code, StagedOp::Tile(_)) {
            errors
                .structure("expected `frag_load` or `frag_store` between tiles and shared memory");
        }
        let divided =
            |v: &Value| matches!(func.ty(*v), Type::Smem { layout, .. } if layout.blocks > 1);
        if op.operands.iter().any(divided)
            && !matches!(op.code, StagedOp::FragLoad | StagedOp::FragStore)
        {
            errors.structure("expected memory that blocks divide to be read and written as tiles");
        }
        if let Some(role) = role {
            op.operands.iter().for_each(|&v| outside(func, v, role, errors));
        }
    }
}

fn layout_of(ty: &Type, warps: i64, role: Option<&RoleInfo>, errors: &mut OpErrors) {
    match ty {
        Type::Frag { layout, .. } => {
            if layout.shape() != extents(ty) {
                let shape = layout.shape();
                errors.ty(format!("expected a layout of the tile's shape, got one of {shape:?}"));
            } else if role.is_some_and(|r| r.one_thread) {
                errors.ty(format!("expected no tile where one thread runs, got {ty}"));
            } else if i64::from(layout.warps()) != warps {
                let got = layout.warps();
                errors.ty(format!("expected a layout over {warps} warps, got {got} in {ty}"));
            }
        }
        Type::Pending(tile) => layout_of(tile, warps, role, errors),
        Type::Smem { layout, .. } => shared(ty, layout, errors),
        Type::Pipeline { fields, .. } | Type::Stage { fields } => {
            fields.iter().for_each(|f| shared(&f.as_smem(), &f.layout, errors));
        }
        Type::Scalar(_) | Type::View { .. } | Type::Buf { .. } | Type::OrderBarrier => {}
        // The level admits none of these.
        Type::Tile { .. } | Type::Tensor { .. } | Type::Event => {}
    }
}

fn shared(ty: &Type, layout: &Shared, errors: &mut OpErrors) {
    if layout.shape != extents(ty) {
        let shape = &layout.shape;
        errors.ty(format!("expected a layout of the memory's shape, got one of {shape:?}"));
    } else if layout.elem_bytes as usize != ty.dtype().bytes() {
        let bytes = layout.elem_bytes;
        errors.ty(format!("expected a layout of the dtype's bytes, got one of {bytes} in {ty}"));
    }
}

/// Tiles, pending or not, stay with the threads that have them.
fn outside(func: &Func<Staged>, v: Value, role: OpId, errors: &mut OpErrors) {
    let ty = func.ty(v);
    if !matches!(ty, Type::Frag { .. } | Type::Pending(_) | Type::Stage { .. }) {
        return;
    }
    let block = match func.values[v].def {
        ValueDef::Result(op, _) => func.ops[op].block,
        ValueDef::Arg(block, _) => block,
    };
    if !func.block_within(block, func.ops[role].regions[0]) {
        let name = func.name_of(v).map_or_else(|| v.to_string(), str::to_string);
        errors.structure(format!(
            "expected a role to use its own tiles only, got %{name} from outside: hand it over \
             through shared memory"
        ));
    }
}
