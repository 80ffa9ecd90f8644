//! Gathers and scatters at computed indices: the transpose of a gather is a scatter-add, and the
//! other way round. Indices are integers and have no derivative.

use crate::emit::{Emit, Outs, View};
use crate::rules::one;
use crate::scalar::Scalars;
use tessera_graph::{GraphOp, extents};
use tessera_ir::{Attr, OpSpec, Value};

pub fn part_jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    let arrays = v.op.positional().len();
    if t[..arrays].iter().all(Option::is_none) {
        return Ok(vec![None]);
    }
    let mut operands = v.operands.clone();
    for (place, &t) in t[..arrays].iter().enumerate() {
        operands[place] = match t {
            Some(t) => t,
            None => em.like(0.0, v.operands[place])?,
        };
    }
    Ok(one(em.op(v.spec_on(&operands))?))
}

pub fn part_vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>], wanted: &[bool]) -> Outs {
    let mut out = vec![None; v.operands.len()];
    let Some(ct) = ct[0] else { return Ok(out) };
    let arrays = v.op.positional().len();
    let (x, at) = (v.operands[0], &v.operands[arrays..]);
    let update = |em: &mut Emit, whole: Value, part: Value| {
        em.op(OpSpec::new(GraphOp::DynamicUpdateSlice, &[whole, part]).group("at", at))
    };
    if v.op.code == GraphOp::DynamicSlice {
        let zeros = em.like(0.0, x)?;
        out[0] = Some(update(em, zeros, ct)?);
        return Ok(out);
    }
    let part = v.operands[1];
    if wanted[0] {
        let zeros = em.like(0.0, part)?;
        out[0] = Some(update(em, ct, zeros)?);
    }
    if wanted[1] {
        let extent = extents(&em.exprs(&em.shape(part))?);
        let spec = OpSpec::new(GraphOp::DynamicSlice, &[ct]).group("at", at).attr("extent", extent);
        out[1] = Some(em.op(spec)?);
    }
    Ok(out)
}

/// A gather or scatter of other arrays at the places of this one.
pub fn at_same(
    v: &View<'_>,
    code: GraphOp,
    operands: &[Value],
    outside: &str,
) -> OpSpec<tessera_graph::Graph> {
    OpSpec::new(code, operands)
        .attr("axes", crate::emit::ints(v.ints("axes")))
        .attr("batch", Attr::Int(v.int("batch", 0)))
        .attr("oob", Attr::word(outside))
}

pub fn clamps(v: &View<'_>) -> bool {
    match v.op.code {
        GraphOp::Gather => v.word("oob") != "fill",
        _ => v.word("oob") == "clamp",
    }
}

pub fn gather_jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    let other = t.get(2).copied().flatten();
    if t[0].is_none() && other.is_none() {
        return Ok(vec![None]);
    }
    let x = match t[0] {
        Some(t) => t,
        None => em.like(0.0, v.operands[0])?,
    };
    // Outside, the tangent is that of `other`, or zero as it is where `other` is not given.
    let outside = if clamps(v) { "clamp" } else { "fill" };
    let mut spec = at_same(v, GraphOp::Gather, &[x, v.operands[1]], outside);
    if let Some(other) = other {
        spec = spec.group("other", &[other]);
    }
    Ok(one(em.op(spec)?))
}

pub fn gather_vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>], wanted: &[bool]) -> Outs {
    let mut out = vec![None; v.operands.len()];
    let Some(ct) = ct[0] else { return Ok(out) };
    let (x, at) = (v.operands[0], v.operands[1]);
    if wanted[0] {
        let zeros = em.like(0.0, x)?;
        let outside = if clamps(v) { "clamp" } else { "drop" };
        let spec = at_same(v, GraphOp::Scatter, &[zeros, at, ct], outside);
        out[0] = Some(em.op(spec.attr("op", Attr::word("sum")))?);
    }
    if wanted.get(2) == Some(&true) {
        let (zeros, fill) = (em.like(0.0, x)?, em.like(1.0, v.operands[2])?);
        let spec = at_same(v, GraphOp::Gather, &[zeros, at], "fill").group("other", &[fill]);
        let outside = em.op(spec)?;
        let there = em.mul(ct, outside)?;
        out[2] = Some(em.sum_whole(there)?);
    }
    Ok(out)
}
