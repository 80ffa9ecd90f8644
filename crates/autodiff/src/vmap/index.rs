//! Batching of slices, gathers and scatters at computed indices. Indices that differ between
//! examples become indices of a gather or a scatter with a batch axis.

use super::Batched;
use super::rules::shifted;
use crate::emit::{View, ints};
use crate::scalar::Scalars;
use tessera_diag::Diagnostic;
use tessera_graph::dims::{compute, same};
use tessera_graph::{GraphOp, extents, scalar, tensor};
use tessera_ir::{Attr, Dim, DimOp, OpId, OpSpec, Value};
use tessera_numerics::{DType, NumType, ScalarFn};

/// Zero, as a position along the axis.
fn origin(b: &mut Batched<'_>) -> Result<Value, Diagnostic> {
    b.em.zeros(&scalar(DType::I64))
}

/// The axes along which a part is smaller than the whole, and the indices of its elements along
/// them: [size, extents of the part along these axes, how many axes].
fn places(
    b: &mut Batched<'_>,
    whole: &[Dim],
    part: &[Dim],
    at: &[Value],
) -> Result<(Vec<usize>, Option<Value>), Diagnostic> {
    let axes: Vec<usize> = (0..whole.len()).filter(|&i| !same(&whole[i], &part[i])).collect();
    let mut dims = vec![b.size.clone()];
    dims.extend(axes.iter().map(|&i| part[i].clone()));
    let ty = tensor(dims.clone(), NumType::plain(DType::I64));
    let column = [&dims[..], &[Dim::Static(1)]].concat();
    let mut columns = Vec::new();
    for (k, &axis) in axes.iter().enumerate() {
        let start = b.full(at[axis])?;
        let start = b.em.cast_to(start, DType::I64)?;
        // A part that would leave the array is moved back inside.
        let one = [b.size.clone()];
        let last = compute(DimOp::Sub, &whole[axis], &part[axis]);
        let (zero, last) = (b.em.extent(&Dim::Static(0), &one)?, b.em.extent(&last, &one)?);
        let start = b.em.ew(ScalarFn::Clamp, &[start, zero, last])?;
        let start = b.em.broadcast(start, &dims, &[0])?;
        let along = b.em.iota(&ty, k + 1)?;
        let index = b.em.add(start, along)?;
        columns.push(b.em.reshape(index, &column)?);
    }
    match columns.is_empty() {
        true => Ok((axes, None)),
        false => {
            let last = dims.len() as i64;
            Ok((axes, Some(b.em.concat(&columns, last)?)))
        }
    }
}

/// How the axes of a part lie after its indexed axes came to the front, first the examples.
fn order(rank: usize, axes: &[usize]) -> Vec<i64> {
    let rest = (0..rank).filter(|i| !axes.contains(i));
    std::iter::once(0)
        .chain(axes.iter().map(|&i| i as i64 + 1))
        .chain(rest.map(|i| i as i64 + 1))
        .collect()
}

fn inverse(perm: &[i64]) -> Vec<i64> {
    let mut back = vec![0; perm.len()];
    for (i, &p) in perm.iter().enumerate() {
        back[p as usize] = i as i64;
    }
    back
}

pub fn dynamic_slice(b: &mut Batched<'_>, id: OpId, view: &View<'_>) -> Result<(), Diagnostic> {
    let op = view.op;
    let (x, at) = (op.operands[0], &op.operands[1..]);
    let (whole, part) = (b.dims(x), b.dims(op.result()));
    let result = if b.any(at) {
        let (axes, indices) = places(b, &whole, &part, at)?;
        match indices {
            None => b.full(x)?,
            Some(indices) => {
                let on = b.on(x) as i64;
                let new = b.new_value(x);
                let spec = OpSpec::new(GraphOp::Gather, &[new, indices])
                    .attr("axes", ints(axes.iter().map(|&a| a as i64 + on)))
                    .attr("batch", Attr::Int(on));
                let read = b.em.op(spec)?;
                b.em.transpose(read, &inverse(&order(whole.len(), &axes)))?
            }
        }
    } else {
        let mut places = vec![origin(b)?];
        places.extend(b.new_values(at));
        let new = b.full(x)?;
        let extent = extents(&b.em.exprs(&b.with_axis(&part))?);
        let spec = OpSpec::new(op.code, &[new]).group("at", &places).attr("extent", extent);
        b.em.op(spec)?
    };
    b.set_all(id, &[result]);
    Ok(())
}

pub fn dynamic_update(b: &mut Batched<'_>, id: OpId, view: &View<'_>) -> Result<(), Diagnostic> {
    let op = view.op;
    let (x, update, at) = (op.operands[0], op.operands[1], &op.operands[2..]);
    let (whole, part) = (b.dims(x), b.dims(update));
    let (new, new_update) = (b.full(x)?, b.full(update)?);
    let result = if b.any(at) {
        let (axes, indices) = places(b, &whole, &part, at)?;
        match indices {
            None => new_update,
            Some(indices) => {
                let updates = b.em.transpose(new_update, &order(whole.len(), &axes))?;
                let axes: Vec<i64> = axes.iter().map(|&a| a as i64).collect();
                let spec = OpSpec::new(GraphOp::Scatter, &[new, indices, updates])
                    .attr("op", Attr::word("set"))
                    .attr("axes", shifted(&axes))
                    .attr("batch", Attr::Int(1))
                    .attr("unique", Attr::Bool(true));
                b.em.op(spec)?
            }
        }
    } else {
        let mut places = vec![origin(b)?];
        places.extend(b.new_values(at));
        b.em.op(OpSpec::new(op.code, &[new, new_update]).group("at", &places))?
    };
    b.set_all(id, &[result]);
    Ok(())
}

pub fn gather(b: &mut Batched<'_>, id: OpId, view: &View<'_>) -> Result<(), Diagnostic> {
    let op = view.op;
    let (x, at) = (op.operands[0], op.operands[1]);
    let other = op.operands.get(2).copied();
    let (axes, batch) = (view.ints("axes"), view.int("batch", 0));
    let outside = if view.word("oob") == "fill" { "fill" } else { "clamp" };
    let lead = b.source.ty(at).rank() - 1;
    // An array that is the same for all, or places that are, need no pairing.
    let (new, new_at, by, pairs) = match (b.on(x), b.on(at)) {
        (false, _) if batch == 0 => (b.new_value(x), b.new_value(at), 0, 0),
        (true, false) if batch == 0 => (b.new_value(x), b.new_value(at), 1, 0),
        _ => (b.full(x)?, b.full(at)?, 1, batch + 1),
    };
    let shared = b.on(x) && !b.on(at) && batch == 0;
    let still = !b.on(x) && !b.on(at) && batch == 0;
    let read = |b: &mut Batched<'_>, x: Value, other: Option<Value>| {
        let mut spec = OpSpec::new(GraphOp::Gather, &[x, new_at])
            .attr("axes", ints(axes.iter().map(|a| a + by)))
            .attr("batch", Attr::Int(pairs))
            .attr("oob", Attr::word(outside));
        if let Some(other) = other {
            spec = spec.group("other", &[other]);
        }
        let read = b.em.op(spec)?;
        // The examples follow the places, and come to the front.
        let read = if shared { b.em.move_axis(read, lead, 0)? } else { read };
        if still { b.repeat(read) } else { Ok(read) }
    };
    let result = match other {
        Some(other) if b.on(other) => {
            let inner = read(b, new, None)?;
            let flags = tensor(b.em.shape(new), NumType::plain(DType::Bool));
            let here = b.em.splat(0.0, &flags)?;
            let gone = b.em.splat(1.0, &scalar(DType::Bool))?;
            let gone = read(b, here, Some(gone))?;
            let dims = b.em.shape(inner);
            let others = b.new_value(other);
            let others = b.em.broadcast(others, &dims, &[0])?;
            b.em.select(gone, others, inner)?
        }
        _ => {
            let other = other.map(|o| b.new_value(o));
            read(b, new, other)?
        }
    };
    b.set_all(id, &[result]);
    Ok(())
}
