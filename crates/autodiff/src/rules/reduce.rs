//! Reductions, running reductions and sorting.
//!
//! The derivative of a product uses two running products, from both ends, so that zeros are exact
//! to any order. The cotangent of a maximum is shared by the elements equal to it. The derivative
//! of a running product is a recurrence, which is a loop. Running maxima and sorting permute
//! elements; their cotangents go back to where the elements came from.

use crate::emit::{Emit, Out, Outs, View, expr};
use crate::rules::{Kept, one};
use crate::scalar::Scalars;
use tessera_diag::Diagnostic;
use tessera_graph::dims::count;
use tessera_graph::{GraphOp, tensor};
use tessera_ir::{Attr, Attrs, Dim, OpSpec, Value};
use tessera_numerics::{DType, NumType, ReduceOp, ScalarFn};

/// The axes that a reduction over `axes` keeps.
fn kept(rank: usize, axes: &[i64]) -> Vec<i64> {
    (0..rank as i64).filter(|a| !axes.contains(a)).collect()
}

/// A reduced value at every element it came from.
fn spread_back(em: &mut Emit, r: Value, like: Value, axes: &[i64]) -> Out {
    let dims = em.shape(like);
    let kept = kept(dims.len(), axes);
    em.broadcast(r, &dims, &kept)
}

pub fn reduce_jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    let Some(t) = t[0] else { return Ok(vec![None]) };
    let axes = v.ints("axes");
    Ok(match v.reduce_op() {
        ReduceOp::Sum => one(em.op(v.spec_on(&[t]))?),
        ReduceOp::Prod => {
            let others = others(em, v.operands[0], &axes)?;
            let term = em.mul(t, others)?;
            one(em.sum(term, &axes)?)
        }
        ReduceOp::Max | ReduceOp::Min => {
            let share = share(em, v, &axes)?;
            let term = em.mul(t, share)?;
            one(em.sum(term, &axes)?)
        }
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => vec![None],
    })
}

pub fn reduce_vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>]) -> Outs {
    let Some(ct) = ct[0] else { return Ok(vec![None]) };
    let axes = v.ints("axes");
    let x = v.operands[0];
    let back = spread_back(em, ct, x, &axes)?;
    Ok(match v.reduce_op() {
        ReduceOp::Sum => one(back),
        ReduceOp::Prod => {
            let others = others(em, x, &axes)?;
            one(em.mul(back, others)?)
        }
        ReduceOp::Max | ReduceOp::Min => {
            let share = share(em, v, &axes)?;
            one(em.mul(back, share)?)
        }
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => vec![None],
    })
}

/// The share of each element in the cotangent of the maximum: elements equal to it share it evenly.
fn share(em: &mut Emit, v: &View<'_>, axes: &[i64]) -> Out {
    let x = v.operands[0];
    let best = spread_back(em, v.result(), x, axes)?;
    let equal = em.ew(ScalarFn::Eq, &[x, best])?;
    let (one, zero) = (em.like(1.0, x)?, em.like(0.0, x)?);
    let equal = em.select(equal, one, zero)?;
    let count = em.sum(equal, axes)?;
    let count = spread_back(em, count, x, axes)?;
    em.ew(ScalarFn::Div, &[equal, count])
}

/// For each element the product of all others along the axes.
fn others(em: &mut Emit, x: Value, axes: &[i64]) -> Out {
    let dims = em.shape(x);
    let mut perm = kept(dims.len(), axes);
    let lead = perm.len();
    perm.extend(axes);
    let turned = em.transpose(x, &perm)?;
    let turned_dims = em.shape(turned);
    let mut flat_dims = turned_dims[..lead].to_vec();
    flat_dims.push(count(&turned_dims[lead..]));
    let flat = em.reshape(turned, &flat_dims)?;
    let before = running(em, flat, ReduceOp::Prod, lead, true, false)?;
    let after = running(em, flat, ReduceOp::Prod, lead, true, true)?;
    let others = em.mul(before, after)?;
    let others = em.reshape(others, &turned_dims)?;
    let mut back = vec![0; perm.len()];
    for (i, &p) in perm.iter().enumerate() {
        back[p as usize] = i as i64;
    }
    em.transpose(others, &back)
}

fn running(
    em: &mut Emit,
    x: Value,
    op: ReduceOp,
    axis: usize,
    exclusive: bool,
    reverse: bool,
) -> Out {
    let spec = OpSpec::new(GraphOp::Scan, &[x])
        .attr("op", Attr::word(op.name()))
        .attr("axis", Attr::Int(axis as i64))
        .attr("exclusive", Attr::Bool(exclusive))
        .attr("reverse", Attr::Bool(reverse));
    em.op(spec)
}

pub fn scan_jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    let Some(t) = t[0] else { return Ok(vec![None]) };
    let axis = v.int("axis", 0) as usize;
    let (exclusive, reverse) = (v.flag("exclusive"), v.flag("reverse"));
    let x = v.operands[0];
    Ok(match v.reduce_op() {
        ReduceOp::Sum => one(em.op(v.spec_on(&[t]))?),
        ReduceOp::Prod => {
            let before = running(em, x, ReduceOp::Prod, axis, true, reverse)?;
            let moved = em.mul(before, t)?;
            // d' = d x + moved; the step is d' or, where exclusive, d.
            let xs = [em.move_axis(x, axis, 0)?, em.move_axis(moved, axis, 0)?];
            let steps = recurrence(em, xs, reverse, exclusive)?;
            one(em.move_axis(steps, 0, axis)?)
        }
        ReduceOp::Max | ReduceOp::Min => {
            let at = origins(em, v, axis)?;
            let t = em.move_axis(t, axis, em.rank(t) - 1)?;
            let there = em.take_last(t, at)?;
            let last = em.rank(there) - 1;
            one(em.move_axis(there, last, axis)?)
        }
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => vec![None],
    })
}

pub fn scan_vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>]) -> Outs {
    let Some(ct) = ct[0] else { return Ok(vec![None]) };
    let axis = v.int("axis", 0) as usize;
    let (exclusive, reverse) = (v.flag("exclusive"), v.flag("reverse"));
    let x = v.operands[0];
    Ok(match v.reduce_op() {
        ReduceOp::Sum => one(running(em, ct, ReduceOp::Sum, axis, exclusive, !reverse)?),
        ReduceOp::Prod => {
            let before = running(em, x, ReduceOp::Prod, axis, true, reverse)?;
            let xs = [em.move_axis(x, axis, 0)?, em.move_axis(ct, axis, 0)?];
            let steps = answers(em, xs, !reverse, exclusive)?;
            let steps = em.move_axis(steps, 0, axis)?;
            one(em.mul(before, steps)?)
        }
        ReduceOp::Max | ReduceOp::Min => {
            let at = origins(em, v, axis)?;
            let last = em.rank(ct) - 1;
            let ct = em.move_axis(ct, axis, last)?;
            let like = em.ty(ct);
            let sums = em.put_last(&like, at, ct, false)?;
            one(em.move_axis(sums, last, axis)?)
        }
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => vec![None],
    })
}

/// Steps of `d' = d x + m` from zero: after each step, or before it.
fn recurrence(em: &mut Emit, [x, m]: [Value; 2], reverse: bool, before: bool) -> Out {
    looped(em, [x, m], reverse, |em, d, x, m| {
        let next = em.ew(ScalarFn::Fma, &[d, x, m])?;
        Ok((next, if before { d } else { next }))
    })
}

/// The same backwards: with `s` the sum so far, a step's cotangent is `ct + s`, and `x` times it is
/// carried on; of an exclusive product it is `s`, and `ct + x s` is carried on.
fn answers(em: &mut Emit, [x, ct]: [Value; 2], reverse: bool, exclusive: bool) -> Out {
    looped(em, [x, ct], reverse, |em, s, x, ct| {
        if exclusive {
            return Ok((em.ew(ScalarFn::Fma, &[x, s, ct])?, s));
        }
        let sum = em.add(ct, s)?;
        Ok((em.mul(x, sum)?, sum))
    })
}

/// A loop over the first axis that carries one value, from zero, and stacks one.
fn looped(
    em: &mut Emit,
    [x, y]: [Value; 2],
    reverse: bool,
    step: impl Fn(&mut Emit, Value, Value, Value) -> Result<(Value, Value), Diagnostic>,
) -> Out {
    let dims = em.shape(x);
    let zeros = em.zeros(&tensor(dims[1..].to_vec(), tessera_graph::elem(&em.ty(x))))?;
    let attrs = Attrs::new()
        .with("trip", expr(&dims[0], &em.loc)?.into())
        .with("reverse", Attr::Bool(reverse));
    let loc = em.loc.clone();
    let groups = [("init", vec![zeros]), ("xs", vec![x, y])];
    let args = em.b.open("loop", &[], &groups, attrs, loc)?;
    let (next, stacked) = step(em, args[1], args[2], args[3])?;
    let results = em.b.close(&[next, stacked])?;
    Ok(results[1])
}

/// The index of the element that each step of a running maximum took, along the last axis: an index
/// outside where there is none. Of equal elements the last one counts.
fn origins(em: &mut Emit, v: &View<'_>, axis: usize) -> Out {
    let (exclusive, reverse) = (v.flag("exclusive"), v.flag("reverse"));
    let x = v.operands[0];
    let rank = em.rank(x);
    let x = em.move_axis(x, axis, rank - 1)?;
    let axis = rank - 1;
    let dims = em.shape(x);
    let best = running(em, x, v.reduce_op(), axis, false, reverse)?;
    let records = em.ew(ScalarFn::Eq, &[x, best])?;
    let whole = tensor(dims.clone(), NumType::plain(DType::I64));
    // Positions ascend in the direction of the scan, so that the greatest is the newest.
    let iteration = |em: &mut Emit, at: Value| -> Out {
        if !reverse {
            return Ok(at);
        }
        let last =
            tessera_graph::dims::compute(tessera_ir::DimOp::Sub, &dims[axis], &Dim::Static(1));
        let last = em.extent(&last, &dims)?;
        em.sub(last, at)
    };
    let at = em.iota(&whole, axis)?;
    let at = iteration(em, at)?;
    let none = em.splat(-1.0, &whole)?;
    let at = em.select(records, at, none)?;
    let at = running(em, at, ReduceOp::Max, axis, exclusive, reverse)?;
    iteration(em, at)
}

/// The sort with one operand more: where each element comes from.
pub fn sort_primal(em: &mut Emit, v: &View<'_>) -> Result<Kept, Diagnostic> {
    let axis = v.int("axis", 0);
    let ty = tensor(em.shape(v.operands[0]), NumType::plain(DType::I64));
    let at = em.iota(&ty, axis as usize)?;
    let mut operands = v.operands.clone();
    operands.push(at);
    let mut spec = OpSpec::new(GraphOp::Sort, &[]).group("values", &operands);
    spec.attrs = v.op.attrs.clone();
    let mut results = em.ops(spec)?;
    let from = results.split_off(v.operands.len());
    Ok(Kept { results, extra: from })
}

pub fn sort_jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    let axis = v.int("axis", 0) as usize;
    let last = em.rank(v.extra[0]) - 1;
    let at = em.move_axis(v.extra[0], axis, last)?;
    let mut out = Vec::new();
    for &t in t {
        out.push(match t {
            Some(t) => {
                let t = em.move_axis(t, axis, last)?;
                let there = em.take_last(t, at)?;
                Some(em.move_axis(there, last, axis)?)
            }
            None => None,
        });
    }
    Ok(out)
}

pub fn sort_vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>], wanted: &[bool]) -> Outs {
    let axis = v.int("axis", 0) as usize;
    let last = em.rank(v.extra[0]) - 1;
    let at = em.move_axis(v.extra[0], axis, last)?;
    let mut out = Vec::new();
    for (&ct, &wanted) in ct.iter().zip(wanted) {
        out.push(match ct {
            Some(ct) if wanted => {
                let ct = em.move_axis(ct, axis, last)?;
                let like = em.ty(ct);
                let sums = em.put_last(&like, at, ct, true)?;
                Some(em.move_axis(sums, last, axis)?)
            }
            _ => None,
        });
    }
    Ok(out)
}
