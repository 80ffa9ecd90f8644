//! Bulk asynchronous copies (TMA) between shared and global memory.

use crate::{Staged, StagedOp};
use tessera_diag::Code;
use tessera_ir::{Attr, Func, OpErrors, OpId, Type};
use tessera_numerics::{DType, ReduceOp};
use tessera_tile::ops::memory::block_shape;

/// Checks a block of a view against the shared memory that `fill` and `bulk_store` copy.
pub(super) fn block(func: &Func<Staged>, id: OpId, mem: &Type, view: &Type, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let (rank, given, at) = (view.rank(), extent.len(), op.group("at").len());
    if given != rank || at != rank {
        errors.shape(format!(
            "expected {rank} positions and extents for {view}, got {at} and {given}"
        ));
    } else if extent.iter().any(|&e| e < 0) {
        errors.shape(format!("expected extents of 0 or more, got {extent:?}"));
    } else if squeezed(&block_shape(&extent)) != squeezed(mem.shape()) {
        errors.shape(format!("expected a block of the shape of {mem}, got extents {extent:?}"));
    }
    // Operands of tf32 MMAs are rounded by the copy.
    let rounds =
        op.code == StagedOp::Fill && (view.dtype(), mem.dtype()) == (DType::F32, DType::Tf32);
    if mem.dtype() != view.dtype() && !rounds {
        errors.ty(format!("expected one dtype, got {mem} and {view}"));
    }
    if let Some(bounds) = op.attr("bounds").and_then(Attr::as_list) {
        let known = bounds.iter().all(|b| matches!(b.as_word(), Some("inside" | "checked")));
        if bounds.len() != rank || !known {
            errors.structure(format!(
                "expected `inside` or `checked` for each of {rank} axes in `bounds`"
            ));
        }
    }
}

/// Axes of one position do not change where elements are.
fn squeezed(shape: &[tessera_ir::Dim]) -> Vec<&tessera_ir::Dim> {
    shape.iter().filter(|d| !d.is_one()).collect()
}

pub fn verify_store(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (mem, view) = (func.ty(op.operands[0]), func.ty(op.operands[1]));
    block(func, id, mem, view, errors);
    if let Type::View { privilege, .. } = view
        && (!privilege.writes() || privilege.reduces())
    {
        errors.push(
            Code::E_PRIVILEGE,
            format!("expected a parameter that may be written, got {}", privilege.name()),
        );
    }
}

pub fn verify_reduce(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (mem, view) = (func.ty(op.operands[0]), func.ty(op.operands[1]));
    block(func, id, mem, view, errors);
    let name = op.attr("op").and_then(Attr::as_word).unwrap_or_default();
    match ReduceOp::from_name(name) {
        None => errors.structure("expected a reduction operator in `op`"),
        Some(r) if !r.combine().accepts(mem.dtype().compute()) => {
            errors.ty(format!("expected a dtype that `{name}` combines, got {mem}"));
        }
        Some(_) => {}
    }
    let Type::View { privilege, .. } = view else { return };
    let own = privilege.name().strip_prefix("reduce_");
    let good = own.map_or(privilege.writes() && privilege.reads(), |own| own == name);
    if !good {
        errors.push(
            Code::E_PRIVILEGE,
            format!("expected a parameter that `{name}` may fold into, got {}", privilege.name()),
        );
    }
}

pub fn verify_wait(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    if func.ops[id].attr("keep").and_then(Attr::as_int).is_none_or(|k| k < 0) {
        errors.structure("expected `keep` of 0 or more");
    }
}
