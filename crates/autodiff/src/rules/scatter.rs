//! Derivatives of scatters, by their operator. Where several updates write one element, the
//! cotangent of `set` goes to the last one, that of `max` and `min` is shared by all updates equal
//! to the result, and each update of `prod` gets it times the product of the others.

use crate::emit::{Emit, Out, Outs, View};
use crate::rules::index::{at_same, clamps};
use crate::rules::one;
use crate::scalar::Scalars;
use tessera_graph::ops::index::scatter_op;
use tessera_graph::{GraphOp, tensor};
use tessera_ir::{Attr, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp, ScalarFn};

/// Reads at the places that are written.
fn read(em: &mut Emit, v: &View<'_>, x: Value) -> Out {
    let outside = if clamps(v) { "clamp" } else { "fill" };
    em.op(at_same(v, GraphOp::Gather, &[x, v.operands[1]], outside))
}

fn write(em: &mut Emit, v: &View<'_>, x: Value, updates: Value, op: &str) -> Out {
    let outside = if clamps(v) { "clamp" } else { "drop" };
    let mut spec = at_same(v, GraphOp::Scatter, &[x, v.operands[1], updates], outside)
        .attr("op", Attr::word(op));
    if v.flag("unique") {
        spec = spec.attr("unique", Attr::Bool(true));
    }
    em.op(spec)
}

fn or_zeros(em: &mut Emit, t: Option<Value>, like: Value) -> Out {
    match t {
        Some(t) => Ok(t),
        None => em.like(0.0, like),
    }
}

pub fn jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    if t[0].is_none() && t[2].is_none() {
        return Ok(vec![None]);
    }
    let (x, u) = (v.operands[0], v.operands[2]);
    Ok(match scatter_op(v.word("op")) {
        None => {
            let (x, u) = (or_zeros(em, t[0], x)?, or_zeros(em, t[2], u)?);
            one(write(em, v, x, u, "set")?)
        }
        Some(ReduceOp::Sum) => {
            let x = or_zeros(em, t[0], x)?;
            match t[2] {
                Some(u) => one(write(em, v, x, u, "sum")?),
                None => one(x),
            }
        }
        Some(ReduceOp::Prod) => {
            let from_x = match t[0] {
                Some(t) => {
                    let factor = product_of_updates(em, v)?;
                    em.mul(t, factor)?
                }
                None => em.like(0.0, x)?,
            };
            match t[2] {
                Some(t) => {
                    let others = others(em, v)?;
                    let term = em.mul(t, others)?;
                    one(write(em, v, from_x, term, "sum")?)
                }
                None => one(from_x),
            }
        }
        Some(ReduceOp::Max | ReduceOp::Min) => {
            let Shares { from_x, from_u, count } = shares(em, v)?;
            let zero = em.like(0.0, x)?;
            let mut sum = match t[0] {
                Some(t) => em.select(from_x, t, zero)?,
                None => zero,
            };
            if let Some(t) = t[2] {
                let zero = em.like(0.0, t)?;
                let part = em.select(from_u, t, zero)?;
                sum = write(em, v, sum, part, "sum")?;
            }
            one(em.ew(ScalarFn::Div, &[sum, count])?)
        }
        // Integers and bools only.
        Some(ReduceOp::And | ReduceOp::Or | ReduceOp::Xor) => vec![None],
    })
}

pub fn vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>], wanted: &[bool]) -> Outs {
    let mut out = vec![None; 3];
    let Some(ct) = ct[0] else { return Ok(out) };
    let u = v.operands[2];
    match scatter_op(v.word("op")) {
        None => {
            if wanted[0] {
                let zeros = em.like(0.0, u)?;
                out[0] = Some(write(em, v, ct, zeros, "set")?);
            }
            if wanted[2] {
                let there = read(em, v, ct)?;
                out[2] = Some(if v.flag("unique") {
                    there
                } else {
                    let zeros = em.like(0.0, there)?;
                    let last = last_writer(em, v)?;
                    em.select(last, there, zeros)?
                });
            }
        }
        Some(ReduceOp::Sum) => {
            out[0] = wanted[0].then_some(ct);
            if wanted[2] {
                out[2] = Some(read(em, v, ct)?);
            }
        }
        Some(ReduceOp::Prod) => {
            if wanted[0] {
                let factor = product_of_updates(em, v)?;
                out[0] = Some(em.mul(ct, factor)?);
            }
            if wanted[2] {
                let (others, there) = (others(em, v)?, read(em, v, ct)?);
                out[2] = Some(em.mul(there, others)?);
            }
        }
        Some(ReduceOp::Max | ReduceOp::Min) => {
            let Shares { from_x, from_u, count } = shares(em, v)?;
            let share = em.ew(ScalarFn::Div, &[ct, count])?;
            let zeros = em.like(0.0, ct)?;
            if wanted[0] {
                out[0] = Some(em.select(from_x, share, zeros)?);
            }
            if wanted[2] {
                let there = read(em, v, share)?;
                let zeros = em.like(0.0, there)?;
                out[2] = Some(em.select(from_u, there, zeros)?);
            }
        }
        Some(ReduceOp::And | ReduceOp::Or | ReduceOp::Xor) => {}
    }
    Ok(out)
}

/// Whether an update is the last one at its place, which is the one that stays.
fn last_writer(em: &mut Emit, v: &View<'_>) -> Out {
    let whole = |ty: Type| tensor(ty.shape().to_vec(), NumType::plain(DType::I64));
    let (x, u) = (whole(em.ty(v.operands[0])), whole(em.ty(v.operands[2])));
    // Updates are numbered in row-major order, the order they are taken in.
    let count = tessera_graph::dims::count(u.shape());
    let flat = em.iota(&tensor(vec![count], NumType::plain(DType::I64)), 0)?;
    let own = em.reshape(flat, u.shape())?;
    let none = em.splat(-1.0, &x)?;
    let stays = write(em, v, none, own, "set")?;
    let stays = read(em, v, stays)?;
    em.ew(ScalarFn::Eq, &[stays, own])
}

fn product_of_updates(em: &mut Emit, v: &View<'_>) -> Out {
    let ones = em.like(1.0, v.operands[0])?;
    write(em, v, ones, v.operands[2], "prod")
}

/// For each update the product of all else at its place. Zeros are counted and left out of a
/// product of the rest, so that no zero is divided by.
fn others(em: &mut Emit, v: &View<'_>) -> Out {
    let (x, u) = (v.operands[0], v.operands[2]);
    if v.flag("unique") {
        return read(em, v, x);
    }
    let (zero_x, one_x) = (em.like(0.0, x)?, em.like(1.0, x)?);
    let (zero_u, one_u) = (em.like(0.0, u)?, em.like(1.0, u)?);
    let none_x = em.ew(ScalarFn::Eq, &[x, zero_x])?;
    let none_u = em.ew(ScalarFn::Eq, &[u, zero_u])?;
    let rest_x = em.select(none_x, one_x, x)?;
    let rest_u = em.select(none_u, one_u, u)?;
    let product = write(em, v, rest_x, rest_u, "prod")?;
    let (count_x, count_u) = (em.select(none_x, one_x, zero_x)?, em.select(none_u, one_u, zero_u)?);
    let zeros = write(em, v, count_x, count_u, "sum")?;
    let (product, zeros) = (read(em, v, product)?, read(em, v, zeros)?);
    let own = em.ew(ScalarFn::Div, &[product, rest_u])?;
    let whole = em.ew(ScalarFn::Eq, &[zeros, count_u])?;
    em.select(whole, own, zero_u)
}

/// What is equal to the result, and how many are.
struct Shares {
    from_x: Value,
    from_u: Value,
    count: Value,
}

fn shares(em: &mut Emit, v: &View<'_>) -> Result<Shares, tessera_diag::Diagnostic> {
    let (x, u, r) = (v.operands[0], v.operands[2], v.result());
    let there = read(em, v, r)?;
    let from_x = em.ew(ScalarFn::Eq, &[x, r])?;
    let from_u = em.ew(ScalarFn::Eq, &[u, there])?;
    let (one_x, zero_x) = (em.like(1.0, x)?, em.like(0.0, x)?);
    let (one_u, zero_u) = (em.like(1.0, u)?, em.like(0.0, u)?);
    let (of_x, of_u) = (em.select(from_x, one_x, zero_x)?, em.select(from_u, one_u, zero_u)?);
    let count = write(em, v, of_x, of_u, "sum")?;
    Ok(Shares { from_x, from_u, count })
}
