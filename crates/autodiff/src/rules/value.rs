//! Elementwise functions, selection and conversion.

use crate::emit::{Emit, Outs, View};
use crate::rules::one;
use crate::scalar::Scalars;
use tessera_graph::GraphOp;
use tessera_ir::{OpSpec, Value};
use tessera_numerics::ScalarFn;

pub fn ew_jvp(em: &mut Emit, v: &View<'_>, f: ScalarFn, t: &[Option<Value>]) -> Outs {
    let mut sum = None;
    for (by, &t) in t.iter().enumerate() {
        let Some(t) = t else { continue };
        let factor = em.factor(f, &v.operands, v.result(), by)?;
        let term = em.along(t, factor)?;
        sum = em.sum_of(sum, term)?;
    }
    Ok(vec![sum])
}

pub fn ew_vjp(
    em: &mut Emit,
    v: &View<'_>,
    f: ScalarFn,
    ct: &[Option<Value>],
    wanted: &[bool],
) -> Outs {
    let Some(ct) = ct[0] else { return Ok(vec![None; v.operands.len()]) };
    let mut out = Vec::with_capacity(wanted.len());
    for (by, &wanted) in wanted.iter().enumerate() {
        out.push(match wanted {
            true => {
                let factor = em.factor(f, &v.operands, v.result(), by)?;
                em.along(ct, factor)?
            }
            false => None,
        });
    }
    Ok(out)
}

pub fn select_jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    let (a, b) = match (t[1], t[2]) {
        (None, None) => return Ok(vec![None]),
        (Some(a), Some(b)) => (a, b),
        (Some(a), None) => (a, em.like(0.0, a)?),
        (None, Some(b)) => (em.like(0.0, b)?, b),
    };
    Ok(one(em.select(v.operands[0], a, b)?))
}

pub fn select_vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>], wanted: &[bool]) -> Outs {
    let Some(ct) = ct[0] else { return Ok(vec![None; 3]) };
    let zero = em.like(0.0, ct)?;
    let a = if wanted[1] { Some(em.select(v.operands[0], ct, zero)?) } else { None };
    let b = if wanted[2] { Some(em.select(v.operands[0], zero, ct)?) } else { None };
    Ok(vec![None, a, b])
}

pub fn cast_jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    let ty = em.ty(v.result());
    match t[0] {
        Some(t) if ty.dtype().is_float() => Ok(one(em.op(v.spec_on(&[t]).result(ty))?)),
        _ => Ok(vec![None]),
    }
}

pub fn cast_vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>]) -> Outs {
    let ty = em.ty(v.operands[0]);
    match ct[0] {
        Some(ct) if ty.dtype().is_float() => Ok(one(em.retype(ct, &ty)?)),
        _ => Ok(vec![None]),
    }
}

/// The same bits as a float of another dtype are no function of calculus.
pub fn bitcast(em: &mut Emit, v: &View<'_>, along: &[Option<Value>]) -> Outs {
    let (from, to) = (em.dtype(v.operands[0]), em.dtype(v.result()));
    match along[0] {
        None => Ok(vec![None]),
        Some(x) if from == to => Ok(one(x)),
        Some(_) if !to.is_float() => Ok(vec![None]),
        Some(_) => em.refuse(
            format!("bitcast from {from} to {to} has no derivative: it is not continuous"),
            "use cast, or stop_gradient where no gradient is meant",
        ),
    }
}

/// Tangents are held back as the values are.
pub fn barrier(em: &mut Emit, t: &[Option<Value>]) -> Outs {
    let there: Vec<_> = t.iter().flatten().copied().collect();
    if there.is_empty() {
        return Ok(t.to_vec());
    }
    let mut held =
        em.ops(OpSpec::new(GraphOp::OptBarrier, &[]).group("values", &there))?.into_iter();
    Ok(t.iter().map(|t| t.and_then(|_| held.next())).collect())
}

/// Tangents and cotangents are placed as the value is.
pub fn placed(em: &mut Emit, v: &View<'_>, along: Option<Value>) -> Outs {
    match along {
        Some(x) => Ok(one(em.op(v.spec_on(&[x]))?)),
        None => Ok(vec![None]),
    }
}
