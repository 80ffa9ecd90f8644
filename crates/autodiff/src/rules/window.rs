//! Reductions over moving windows. The cotangent of a sum is a sum over windows of the cotangent;
//! that of a maximum goes to the element that was chosen; a product is that along an axis of window
//! elements.

use crate::emit::{Emit, Out, Outs, View, ints};
use crate::rules::one;
use crate::scalar::Scalars;
use tessera_graph::dims::compute;
use tessera_graph::ops::shape::spread;
use tessera_graph::{GraphOp, Windows};
use tessera_ir::{Attr, Dim, DimOp, OpSpec, Value};
use tessera_numerics::ReduceOp;

fn windows(em: &Emit, v: &View<'_>) -> Result<Windows, tessera_diag::Diagnostic> {
    let n = em.rank(v.operands[0]);
    Ok(Windows {
        window: v.ints("window"),
        strides: v.ints_or("strides", n, 1),
        dilate: v.ints_or("dilate", n, 1),
        lo: em.exprs(&v.exprs("lo", n))?,
    })
}

pub fn jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    let Some(t) = t[0] else { return Ok(vec![None]) };
    if em.rank(t) == 0 {
        return Ok(one(t));
    }
    Ok(match v.reduce_op() {
        ReduceOp::Sum => one(em.op(v.spec_on(&[t]))?),
        ReduceOp::Max | ReduceOp::Min => {
            let at = found(em, v)?;
            let axes = ints(0..em.rank(t) as i64);
            let spec = OpSpec::new(GraphOp::Gather, &[t, at]).attr("axes", axes);
            one(em.op(spec.attr("oob", Attr::word("fill")))?)
        }
        ReduceOp::Prod => {
            let (parts, others) = products(em, v)?;
            let mut sum = None;
            for (part, other) in parts.iter().zip(others) {
                let there = part.read(em, t, 0.0)?;
                let term = em.mul(there, other)?;
                sum = em.sum_of(sum, Some(term))?;
            }
            vec![sum]
        }
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => vec![None],
    })
}

pub fn vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>]) -> Outs {
    let Some(ct) = ct[0] else { return Ok(vec![None]) };
    let x = v.operands[0];
    let dims = em.shape(x);
    if dims.is_empty() {
        return Ok(one(ct));
    }
    Ok(match v.reduce_op() {
        ReduceOp::Sum => one(sum_vjp(em, v, ct)?),
        ReduceOp::Max | ReduceOp::Min => {
            let at = found(em, v)?;
            let zeros = em.like(0.0, x)?;
            let spec = OpSpec::new(GraphOp::Scatter, &[zeros, at, ct])
                .attr("op", Attr::word("sum"))
                .attr("axes", ints(0..dims.len() as i64));
            one(em.op(spec.attr("oob", Attr::word("drop")))?)
        }
        ReduceOp::Prod => {
            let (parts, others) = products(em, v)?;
            let mut terms = Vec::new();
            for (part, other) in parts.iter().zip(others) {
                let term = em.mul(ct, other)?;
                terms.push(part.write_back(em, term, &dims)?);
            }
            match terms.is_empty() {
                true => vec![None],
                false => one(em.add_all(&terms)?),
            }
        }
        ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => vec![None],
    })
}

/// Where the chosen element of each window is.
fn found(em: &mut Emit, v: &View<'_>) -> Out {
    let mut spec = v.spec_on(&v.operands);
    spec.code = GraphOp::WindowArgReduce;
    let chosen = em.op(spec)?;
    let windows = windows(em, v)?;
    let loc = em.loc.clone();
    em.b.window_indices(chosen, &windows, &loc)
}

fn sum_vjp(em: &mut Emit, v: &View<'_>, ct: Value) -> Out {
    let dims = em.shape(v.operands[0]);
    let w = windows(em, v)?;
    let have = em.shape(ct);
    let (mut lo, mut hi) = (Vec::new(), Vec::new());
    for i in 0..dims.len() {
        let reach = Dim::Static((w.window[i] - 1) * w.dilate[i]);
        let before = compute(DimOp::Sub, &reach, &Dim::from(w.lo[i].clone()));
        let whole = compute(DimOp::Add, &dims[i], &reach);
        let after = compute(DimOp::Sub, &whole, &spread(&have[i], w.strides[i]));
        hi.push(compute(DimOp::Sub, &after, &before));
        lo.push(before);
    }
    let between: Vec<_> = w.strides.iter().map(|s| s - 1).collect();
    let apart = em.pad_zeros(ct, &lo, &hi, &between)?;
    let spec = OpSpec::new(GraphOp::WindowReduce, &[apart])
        .attr("op", Attr::word("sum"))
        .attr("window", ints(w.window.iter().copied()))
        .attr("dilate", ints(w.dilate.iter().copied()));
    let sums = em.op(spec)?;
    em.reshape(sums, &dims)
}

/// The elements at one position of every window.
struct Part {
    /// How far the array is padded before and after.
    lo: Vec<Dim>,
    hi: Vec<Dim>,
    start: Vec<Dim>,
    limit: Vec<Dim>,
    strides: Vec<i64>,
}

impl Part {
    fn read(&self, em: &mut Emit, x: Value, outside: f64) -> Out {
        let fill = tessera_graph::scalar(em.dtype(x));
        let fill = em.splat(outside, &fill)?;
        let wide = em.pad(x, fill, &self.lo, &self.hi, &vec![0; self.lo.len()])?;
        em.slice(wide, &self.start, &self.limit, &self.strides)
    }

    /// The reverse of reading zeros outside.
    fn write_back(&self, em: &mut Emit, part: Value, dims: &[Dim]) -> Out {
        let have = em.shape(part);
        let hi: Vec<_> = (0..dims.len())
            .map(|i| {
                let padded =
                    compute(DimOp::Add, &compute(DimOp::Add, &dims[i], &self.lo[i]), &self.hi[i]);
                let end = compute(DimOp::Add, &self.start[i], &spread(&have[i], self.strides[i]));
                compute(DimOp::Sub, &padded, &end)
            })
            .collect();
        let between: Vec<_> = self.strides.iter().map(|s| s - 1).collect();
        let wide = em.pad_zeros(part, &self.start, &hi, &between)?;
        let minus = |d: &Dim| compute(DimOp::Sub, &Dim::Static(0), d);
        let (lo, hi): (Vec<_>, Vec<_>) =
            self.lo.iter().zip(&self.hi).map(|(l, h)| (minus(l), minus(h))).unzip();
        em.pad_zeros(wide, &lo, &hi, &vec![0; dims.len()])
    }
}

/// The positions of a window, and for each the product of the elements at the others.
fn products(
    em: &mut Emit,
    v: &View<'_>,
) -> Result<(Vec<Part>, Vec<Value>), tessera_diag::Diagnostic> {
    let w = windows(em, v)?;
    let n = w.window.len();
    let out = em.shape(v.result());
    let lo = v.exprs("lo", n);
    let hi = v.exprs("hi", n);
    // Nothing is read of an array that no window fits into.
    if out.iter().any(|d| d.as_static() == Some(0)) {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut parts = Vec::new();
    for place in 0..w.window.iter().product::<i64>() {
        let (mut at, mut rest) = (vec![0; n], place);
        for i in (0..n).rev() {
            at[i] = rest % w.window[i] * w.dilate[i];
            rest /= w.window[i];
        }
        let start: Vec<_> = at.iter().map(|&a| Dim::Static(a)).collect();
        let limit: Vec<_> = (0..n)
            .map(|i| compute(DimOp::Add, &start[i], &spread(&out[i], w.strides[i])))
            .collect();
        parts.push(Part {
            lo: lo.clone(),
            hi: hi.clone(),
            start,
            limit,
            strides: w.strides.clone(),
        });
    }
    let mut values = Vec::new();
    for part in &parts {
        values.push(part.read(em, v.operands[0], 1.0)?);
    }
    // At each position: the product of prefix and suffix products.
    let ends = |em: &mut Emit, values: &[Value]| -> Result<Vec<Value>, tessera_diag::Diagnostic> {
        let mut out = vec![em.like(1.0, values[0])?];
        for &value in &values[..values.len() - 1] {
            let last = out[out.len() - 1];
            out.push(em.mul(last, value)?);
        }
        Ok(out)
    };
    let before = ends(em, &values)?;
    values.reverse();
    let mut after = ends(em, &values)?;
    after.reverse();
    let mut others = Vec::new();
    for (a, b) in before.into_iter().zip(after) {
        others.push(em.mul(a, b)?);
    }
    Ok((parts, others))
}
