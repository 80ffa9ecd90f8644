//! Loads, stores and shared memory.

use crate::{Tile, TileOp};
use tessera_diag::Code;
use tessera_ir::{Attr, Dim, Func, InferContext, OpErrors, OpId, Shape, Type};
use tessera_numerics::{DType, ReduceOp};

/// The shape of a block: axes with extent 0 are single positions and are dropped; those with -1 are
/// kept and have no element (until `tile-empty` takes such blocks away).
pub fn block_shape(extent: &[i64]) -> Shape {
    extent.iter().filter(|&&e| e != 0).map(|&e| Dim::Static(e.max(0))).collect()
}

pub fn infer_load(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    let extent =
        c.attrs.get("extent").and_then(Attr::as_ints).ok_or("expected attribute `extent`")?;
    // The op's `verify` says more about it.
    if extent.iter().any(|&e| e < -1) {
        return Err("expected extents of -1 or more".into());
    }
    Ok(vec![Type::value(block_shape(&extent), c.operands[0].dtype())])
}

/// What loads, stores and accumulations have in common.
pub fn verify_access(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let mem = func.ty(op.operands[0]);
    let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let (rank, given, at) = (mem.rank(), extent.len(), op.group("at").len());
    if given != rank || at != rank {
        errors.shape(format!(
            "expected {rank} positions and extents for {mem}, got {at} and {given}"
        ));
        return;
    }
    if extent.iter().any(|&e| e < -1) {
        errors.shape(format!("expected extents of -1 or more, got {extent:?}"));
        return;
    }
    if let Some(step) = op.attr("step").and_then(Attr::as_ints)
        && (step.len() != rank || step.iter().any(|&s| s < 1))
    {
        errors.shape(format!("expected a step of 1 or more for each of {rank} axes, got {step:?}"));
        return;
    }
    if let Some(bounds) = op.attr("bounds").and_then(Attr::as_list) {
        let known = bounds.iter().all(|b| matches!(b.as_word(), Some("inside" | "checked")));
        if bounds.len() != rank || !known {
            errors.structure(format!(
                "expected `inside` or `checked` for each of {rank} axes in `bounds`"
            ));
        }
    }
    // A statement about memory neither reads nor writes it.
    if op.code == TileOp::Owned {
        return;
    }
    privilege(func, id, errors);
    let block = Type::value(block_shape(&extent), mem.dtype());
    if op.code == TileOp::Load {
        other(func, id, errors);
        return;
    }
    let value = func.ty(op.operands[1]);
    if value.shape() != block.shape() {
        errors.shape(format!("expected a value of the block's shape {block}, got {value}"));
    }
    if op.code == TileOp::Accumulate {
        match op.attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name) {
            None => errors.structure("expected a reduction operator in `op`"),
            Some(_) if value.dtype() != value.dtype().compute() => {
                errors.ty(format!("expected a dtype that arithmetic is done in, got {value}"));
            }
            Some(r) if !r.combine().accepts(value.dtype()) => {
                errors.ty(format!("expected a dtype that `{}` combines, got {value}", r.name()));
            }
            Some(r) => operator(mem, r, errors),
        }
    } else if value.dtype() != mem.dtype() {
        errors.ty(format!("expected a value of dtype {}, got {value}: cast it first", mem.dtype()));
    }
    mask(func, id, value.shape(), errors);
}

/// The padding value has the memory's dtype.
fn other(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let mem = func.ty(op.operands[0]);
    if let Some(&other) = op.group("other").first()
        && func.ty(other).dtype() != mem.dtype()
    {
        errors.ty(format!("expected `other` of dtype {}, got {}", mem.dtype(), func.ty(other)));
    }
}

/// A `reduce_*` parameter is folded into with its own operator (LANGUAGE 5).
fn operator(mem: &Type, op: ReduceOp, errors: &mut OpErrors) {
    let Type::View { privilege, .. } = mem else { return };
    if let Some(own) = privilege.name().strip_prefix("reduce_")
        && own != op.name()
    {
        errors.push(
            Code::E_PRIVILEGE,
            format!(
                "expected the operator `{own}` of the parameter's privilege, got `{}`",
                op.name()
            ),
        );
    }
}

fn mask(func: &Func<Tile>, id: OpId, shape: &[Dim], errors: &mut OpErrors) {
    if let Some(&mask) = func.ops[id].group("mask").first() {
        let ty = func.ty(mask);
        if ty.dtype() != DType::Bool || (ty.rank() > 0 && ty.shape() != shape) {
            errors.shape(format!("expected a bool mask of the value's shape, got {ty}"));
        }
    }
}

/// Views say what may be done with them.
fn privilege(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let Type::View { privilege, .. } = func.ty(op.operands[0]) else { return };
    let good = match op.code {
        TileOp::Load | TileOp::Gather => privilege.reads() && !privilege.reduces(),
        TileOp::Accumulate => privilege.writes() && (privilege.reduces() || privilege.reads()),
        _ => privilege.writes() && !privilege.reduces(),
    };
    if !good {
        let name = func.name_of(op.operands[0]).unwrap_or("memory");
        let does = match op.code {
            TileOp::Load | TileOp::Gather => "read",
            TileOp::Accumulate => "accumulated into",
            _ => "written",
        };
        errors.push(
            Code::E_PRIVILEGE,
            format!("expected a privilege that lets `{name}` be {does}, got {}", privilege.name()),
        );
    }
}

pub(super) fn index_shape(types: &[Type]) -> Result<Shape, String> {
    let mut shape: Option<&[Dim]> = None;
    for ty in types.iter().filter(|t| t.rank() > 0) {
        match shape {
            Some(s) if s != ty.shape() => return Err("expected index tiles of one shape".into()),
            _ => shape = Some(ty.shape()),
        }
    }
    shape.map(<[Dim]>::to_vec).ok_or_else(|| "expected at least one index tile".into())
}

pub fn infer_gather(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    Ok(vec![Type::value(index_shape(c.group("at"))?, c.operands[0].dtype())])
}

pub fn verify_indexed(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let mem = func.ty(op.operands[0]);
    let at: Vec<_> = op.group("at").iter().map(|&v| func.ty(v).clone()).collect();
    if at.len() != mem.rank() {
        errors.shape(format!("expected {} indices for {mem}, got {}", mem.rank(), at.len()));
        return;
    }
    privilege(func, id, errors);
    match index_shape(&at) {
        Err(why) => errors.shape(why),
        Ok(shape) if op.code == TileOp::Scatter => {
            let value = func.ty(op.operands[1]);
            if value.shape() != shape {
                errors.shape(format!("expected a value of the index tiles' shape, got {value}"));
            }
            if value.dtype() != mem.dtype() {
                errors.ty(format!(
                    "expected a value of dtype {}, got {value}: cast it first",
                    mem.dtype()
                ));
            }
            mask(func, id, &shape, errors);
        }
        Ok(_) => other(func, id, errors),
    }
}

pub fn verify_buf_alloc(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let ty = func.ty(func.ops[id].result());
    if !matches!(ty, Type::Buf { .. }) {
        errors.ty(format!("expected a buffer type, got {ty}"));
    }
    let alignment = func.ops[id].attr("alignment").and_then(Attr::as_int);
    if alignment.is_some_and(|a| a <= 0 || a.count_ones() != 1) {
        errors.structure("expected an alignment that is a power of two");
    }
}

/// One of `n` and `stage`, and neither below zero.
pub fn verify_wait(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let given: Vec<i64> =
        ["n", "stage"].iter().filter_map(|a| func.ops[id].attr(a).and_then(Attr::as_int)).collect();
    if given.len() != 1 || given[0] < 0 {
        errors.structure("expected `n` or `stage`, of 0 or more");
    }
}

pub fn verify_copy(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (dst, src) = (func.ty(op.operands[0]), func.ty(op.operands[1]));
    let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    if extent.len() != src.rank() || op.group("at").len() != src.rank() {
        errors.shape(format!("expected {} positions and extents for {src}", src.rank()));
    } else if dst.shape().get(op.group("into").len()..) != Some(&block_shape(&extent)) {
        let part = if op.group("into").is_empty() { "" } else { " behind the positions `into`" };
        errors.shape(format!(
            "expected a block of the buffer's shape {dst}{part}, got extents {extent:?}"
        ));
    }
    if let Some(stage) = op.attr("stage").and_then(Attr::as_int)
        && stage < 0
    {
        errors.structure(format!("expected a stage of 0 or more, got {stage}"));
    }
    if dst.dtype() != src.dtype() {
        errors.ty(format!("expected one dtype, got a copy of {src} into {dst}"));
    }
    if let Type::View { privilege, .. } = src
        && (!privilege.reads() || privilege.reduces())
    {
        errors.push(
            Code::E_PRIVILEGE,
            format!("expected a source that may be read, got {}", privilege.name()),
        );
    }
}
