//! Slices, gathers and scatters at computed indices.

use crate::dims::{same, same_shape, show};
use crate::rule::{Refusal, Rule, Ruled, Site, distinct, elem, expect_scalar, tensor};
use tessera_ir::{Dim, Type};
use tessera_numerics::ReduceOp;

/// One integer without axes for each axis.
fn starts(s: &Site<'_>, x: &Type) -> Result<(), Refusal> {
    let at = s.group("at");
    if at.len() != x.rank() {
        return Err(Refusal::shape(format!(
            "expected one position for each axis of {}, got {}",
            show(x.shape()),
            at.len()
        )));
    }
    for ty in at {
        if !ty.dtype().is_int() || ty.rank() != 0 {
            return Err(Refusal::ty(format!(
                "expected positions to be integers without axes, got {ty}"
            )));
        }
    }
    Ok(())
}

fn window_fits(x: &[Dim], part: &[Dim]) -> Result<(), Refusal> {
    let smaller = |a: &Dim, b: &Dim| match (a.as_static(), b.as_static()) {
        (Some(a), Some(b)) => 0 <= a && a <= b,
        _ => true,
    };
    if x.len() == part.len() && part.iter().zip(x).all(|(p, x)| smaller(p, x)) {
        return Ok(());
    }
    Err(Refusal::shape(format!(
        "expected a part that fits into the whole, got {} and {}",
        show(part),
        show(x)
    )))
}

pub struct DynamicSlice;

impl Rule for DynamicSlice {
    fn types(s: &Site<'_>) -> Ruled {
        let x = s.operand(0)?;
        starts(s, x)?;
        let extent = s.exprs("extent", x.rank())?;
        window_fits(x.shape(), &extent)?;
        Ok(vec![tensor(extent, elem(x))])
    }
}

pub struct DynamicUpdateSlice;

impl Rule for DynamicUpdateSlice {
    fn types(s: &Site<'_>) -> Ruled {
        let (x, update) = (s.operand(0)?, s.operand(1)?);
        starts(s, x)?;
        window_fits(x.shape(), update.shape())?;
        one_dtype(x, update)?;
        Ok(vec![x.clone()])
    }
}

fn one_dtype(x: &Type, update: &Type) -> Result<(), Refusal> {
    if x.dtype() == update.dtype() {
        return Ok(());
    }
    Err(Refusal::ty(format!(
        "expected the update to have the array's dtype, got {} and {}",
        x.dtype(),
        update.dtype()
    )))
}

/// The shape of what is gathered: the axes of the indices but the last, then the axes of `x` that
/// are neither paired nor indexed.
fn gathered(s: &Site<'_>, x: &Type, indices: &Type) -> Result<Vec<Dim>, Refusal> {
    if !indices.dtype().is_int() {
        return Err(Refusal::ty(format!("expected integer indices, got {}", indices.dtype())));
    }
    let axes = s.ints("axes");
    let at = distinct("axes", &axes, x)?;
    let batch = s.int("batch", 0);
    let batch = usize::try_from(batch).ok().filter(|&b| b <= x.rank() && b < indices.rank().max(1));
    let Some(batch) = batch else {
        return Err(Refusal::shape(format!(
            "expected `batch` to count leading axes of both, got {} and {}",
            show(x.shape()),
            show(indices.shape())
        )));
    };
    if let Some(paired) = at.iter().find(|&&a| a < batch) {
        return Err(Refusal::structure(format!(
            "expected `axes` to leave out the {batch} paired axes, got {paired}"
        )));
    }
    let last = indices.shape().last().and_then(Dim::as_static);
    if last != Some(at.len() as i64) {
        return Err(Refusal::shape(format!(
            "expected the last axis of the indices to hold one index for each of {} axes, got {}",
            at.len(),
            show(indices.shape())
        )));
    }
    let lead = &indices.shape()[..indices.rank() - 1];
    if !lead[..batch].iter().zip(x.shape()).all(|(a, b)| same(a, b)) {
        return Err(Refusal::shape(format!(
            "expected the first {batch} axes of both to agree, got {} and {}",
            show(x.shape()),
            show(indices.shape())
        )));
    }
    let rest = x.shape().iter().enumerate().skip(batch).filter(|(i, _)| !at.contains(i));
    Ok(lead.iter().chain(rest.map(|(_, d)| d)).cloned().collect())
}

pub struct Gather;

impl Rule for Gather {
    fn types(s: &Site<'_>) -> Ruled {
        let (x, indices) = (s.operand(0)?, s.operand(1)?);
        let dims = gathered(s, x, indices)?;
        let outside = s.choice("oob", &["clamp", "fill"], "clamp")?;
        if let Some(other) = s.group("other").first() {
            expect_scalar("other", other, x.dtype())?;
            if outside != "fill" {
                return Err(Refusal::structure("expected `other` with `oob = fill` only"));
            }
        }
        Ok(vec![tensor(dims, elem(x))])
    }
}

/// What a scatter may do where it writes.
pub const SCATTER_OPS: [&str; 8] = ["set", "sum", "max", "min", "prod", "and", "or", "xor"];

pub struct Scatter;

impl Rule for Scatter {
    fn types(s: &Site<'_>) -> Ruled {
        let (x, indices, updates) = (s.operand(0)?, s.operand(1)?, s.operand(2)?);
        let dims = gathered(s, x, indices)?;
        s.choice("oob", &["clamp", "drop"], "drop")?;
        one_dtype(x, updates)?;
        if !same_shape(&dims, updates.shape()) {
            return Err(Refusal::shape(format!(
                "expected updates of the indexed shape, got {} and {}",
                show(&dims),
                show(updates.shape())
            )));
        }
        let word = s.choice("op", &SCATTER_OPS, "")?;
        if word != "set" {
            super::reduce::operator("op", &word, x.dtype())?;
        }
        Ok(vec![x.clone()])
    }
}

/// How a scatter joins what is there with what comes; `None` takes what comes.
pub fn scatter_op(word: &str) -> Option<ReduceOp> {
    ReduceOp::ALL.iter().copied().find(|op| op.name() == word)
}
