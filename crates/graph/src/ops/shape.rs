//! Ops that only rearrange, repeat, leave out or join elements.

use crate::dims::{compute, count, same, same_shape, show};
use crate::rule::{Refusal, Rule, Ruled, Site, axis, distinct, elem, expect_scalar, joint, tensor};
use tessera_ir::{Dim, DimOp, Type};

fn same_dtype(from: &Type, to: &Type) -> Result<(), Refusal> {
    if from.dtype() == to.dtype() {
        return Ok(());
    }
    Err(Refusal::ty(format!(
        "expected a result of the operand's dtype, got {} and {}",
        from.dtype(),
        to.dtype()
    )))
}

pub struct Broadcast;

impl Rule for Broadcast {
    fn types(s: &Site<'_>) -> Ruled {
        let (from, to) = (s.operand(0)?, s.written()?);
        same_dtype(from, to)?;
        let dims = s.ints("dims");
        let placed = dims.len() == from.rank()
            && dims.is_sorted_by(|a, b| a < b)
            && dims.iter().all(|&d| d >= 0 && (d as usize) < to.rank());
        if !placed {
            return Err(Refusal::shape(format!(
                "expected `dims` to give each axis of {} its axis of {}, ascending, got {dims:?}",
                show(from.shape()),
                show(to.shape())
            )));
        }
        let stretches = from
            .shape()
            .iter()
            .zip(&dims)
            .all(|(have, &at)| have.is_one() || same(have, &to.shape()[at as usize]));
        if !stretches {
            return Err(Refusal::shape(format!(
                "expected extents of 1 or the result's, got {} and {}",
                show(from.shape()),
                show(to.shape())
            )));
        }
        Ok(vec![to.clone()])
    }
}

pub struct Reshape;

impl Rule for Reshape {
    fn types(s: &Site<'_>) -> Ruled {
        let (from, to) = (s.operand(0)?, s.written()?);
        same_dtype(from, to)?;
        let (a, b) = (count(from.shape()), count(to.shape()));
        if !same(&a, &b) {
            return Err(Refusal::shape(format!(
                "expected as many elements, got {} and {} ({a} and {b} elements)",
                show(from.shape()),
                show(to.shape())
            )));
        }
        Ok(vec![to.clone()])
    }
}

pub struct Transpose;

impl Rule for Transpose {
    fn types(s: &Site<'_>) -> Ruled {
        let x = s.operand(0)?;
        let perm = s.ints("perm");
        if perm.len() != x.rank() {
            return Err(Refusal::shape(format!(
                "expected `perm` to name each axis of {}, got {perm:?}",
                show(x.shape())
            )));
        }
        let dims = distinct("perm", &perm, x)?.iter().map(|&p| x.shape()[p].clone()).collect();
        Ok(vec![tensor(dims, elem(x))])
    }
}

pub struct Slice;

impl Rule for Slice {
    fn types(s: &Site<'_>) -> Ruled {
        let x = s.operand(0)?;
        let (start, limit) = (s.exprs("start", x.rank())?, s.exprs("limit", x.rank())?);
        let stride = s.ints_or("stride", x.rank(), 1)?;
        let mut dims = Vec::with_capacity(x.rank());
        for (i, extent) in x.shape().iter().enumerate() {
            if stride[i] < 1 {
                return Err(Refusal::structure(format!(
                    "expected strides of 1 or more, got {stride:?}"
                )));
            }
            let inside = |a: &Dim, b: &Dim| match (a.as_static(), b.as_static()) {
                (Some(a), Some(b)) => a <= b,
                _ => true,
            };
            let good = inside(&Dim::Static(0), &start[i])
                && inside(&start[i], &limit[i])
                && inside(&limit[i], extent);
            if !good {
                return Err(Refusal::shape(format!(
                    "expected a range inside axis {i} of {}, got {} to {}",
                    show(x.shape()),
                    start[i],
                    limit[i]
                )));
            }
            let len = compute(DimOp::Sub, &limit[i], &start[i]);
            dims.push(compute(DimOp::CeilDiv, &len, &Dim::Static(stride[i])));
        }
        Ok(vec![tensor(dims, elem(x))])
    }
}

pub struct Pad;

impl Rule for Pad {
    fn types(s: &Site<'_>) -> Ruled {
        let (x, value) = (s.operand(0)?, s.operand(1)?);
        expect_scalar("value", value, x.dtype())?;
        let (lo, hi) = (s.exprs("lo", x.rank())?, s.exprs("hi", x.rank())?);
        let interior = s.ints_or("interior", x.rank(), 0)?;
        let mut dims = Vec::with_capacity(x.rank());
        for (i, extent) in x.shape().iter().enumerate() {
            if interior[i] < 0 {
                return Err(Refusal::structure(format!(
                    "expected interior padding of 0 or more, got {interior:?}"
                )));
            }
            let spread = spread(extent, interior[i].saturating_add(1));
            let dim = compute(DimOp::Add, &compute(DimOp::Add, &spread, &lo[i]), &hi[i]);
            if dim.as_static().is_some_and(|d| d < 0) {
                return Err(Refusal::shape(format!(
                    "expected axis {i} of {} to be left with 0 elements or more, got {dim}",
                    show(x.shape())
                )));
            }
            dims.push(dim);
        }
        Ok(vec![tensor(dims, elem(x))])
    }
}

/// The extent with `step - 1` places between any two elements.
pub fn spread(extent: &Dim, step: i64) -> Dim {
    if step == 1 {
        return extent.clone();
    }
    let gaps = compute(DimOp::Max, &compute(DimOp::Sub, extent, &1.into()), &0.into());
    compute(DimOp::Add, extent, &compute(DimOp::Mul, &gaps, &(step - 1).into()))
}

pub struct Concat;

impl Rule for Concat {
    fn types(s: &Site<'_>) -> Ruled {
        let all = s.group("values");
        let Some(first) = all.first() else {
            return Err(Refusal::structure("expected at least one operand, got 0"));
        };
        let axis = axis("axis", s.int("axis", -1), first)?;
        let mut dims = first.shape().to_vec();
        for other in &all[1..] {
            let mut aligned = other.shape().to_vec();
            if aligned.len() == dims.len() {
                aligned[axis] = dims[axis].clone();
            }
            if !same_shape(&dims, &aligned) {
                return Err(Refusal::shape(format!(
                    "expected shapes that differ along axis {axis} only, got {} and {}",
                    show(first.shape()),
                    show(other.shape())
                )));
            }
            if other.dtype() != first.dtype() {
                return Err(Refusal::ty(format!(
                    "expected operands of one dtype, got {} and {}",
                    first.dtype(),
                    other.dtype()
                )));
            }
            dims[axis] = compute(DimOp::Add, &dims[axis], &other.shape()[axis]);
        }
        Ok(vec![tensor(dims, joint(&all.iter().collect::<Vec<_>>()))])
    }
}

pub struct Reverse;

impl Rule for Reverse {
    fn types(s: &Site<'_>) -> Ruled {
        let x = s.operand(0)?;
        distinct("axes", &s.ints("axes"), x)?;
        Ok(vec![x.clone()])
    }
}
