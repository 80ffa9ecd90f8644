//! Ops that rearrange elements: forward mode applies them to tangents; reverse mode applies the
//! inverse to cotangents and adds those of repeated elements.

use crate::emit::{Emit, Outs, View};
use crate::rules::one;
use crate::scalar::Scalars;
use tessera_graph::GraphOp;
use tessera_graph::dims::{compute, same};
use tessera_graph::ops::shape::spread;
use tessera_ir::{Dim, DimOp, Value};

pub fn jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    if t.iter().all(Option::is_none) {
        return Ok(vec![None]);
    }
    let mut operands = Vec::with_capacity(t.len());
    for (&t, &x) in t.iter().zip(&v.operands) {
        operands.push(match t {
            Some(t) => t,
            None => em.like(0.0, x)?,
        });
    }
    let ty = em.ty(v.result());
    Ok(one(em.op(v.spec_on(&operands).result(ty))?))
}

fn minus(d: &Dim) -> Dim {
    compute(DimOp::Sub, &Dim::Static(0), d)
}

#[deny(clippy::wildcard_enum_match_arm)]
pub fn vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>], wanted: &[bool]) -> Outs {
    use GraphOp::*;
    let Some(ct) = ct[0] else { return Ok(vec![None; v.operands.len()]) };
    let x = v.operands[0];
    let dims = em.shape(x);
    Ok(match v.op.code {
        Broadcast => {
            let to = em.shape(ct);
            let at = v.ints("dims");
            let stretched = |axis: i64| match at.iter().position(|&d| d == axis) {
                None => true,
                Some(i) => dims[i].is_one() && !same(&dims[i], &to[axis as usize]),
            };
            let axes: Vec<i64> = (0..to.len() as i64).filter(|&a| stretched(a)).collect();
            let sum = em.sum(ct, &axes)?;
            one(em.reshape(sum, &dims)?)
        }
        Reshape => one(em.reshape(ct, &dims)?),
        Transpose => {
            let perm = v.ints("perm");
            let mut back = vec![0; perm.len()];
            for (i, &p) in perm.iter().enumerate() {
                back[p as usize] = i as i64;
            }
            one(em.transpose(ct, &back)?)
        }
        Slice => {
            let n = dims.len();
            let (start, stride) = (v.exprs("start", n), v.ints_or("stride", n, 1));
            let have = em.shape(ct);
            let hi: Vec<_> = (0..n)
                .map(|i| {
                    let end = compute(DimOp::Add, &start[i], &spread(&have[i], stride[i]));
                    compute(DimOp::Sub, &dims[i], &end)
                })
                .collect();
            let between: Vec<_> = stride.iter().map(|s| s - 1).collect();
            one(em.pad_zeros(ct, &start, &hi, &between)?)
        }
        Pad => {
            let n = dims.len();
            let (lo, hi) = (v.exprs("lo", n), v.exprs("hi", n));
            let interior = v.ints_or("interior", n, 0);
            let mut out = vec![None, None];
            if wanted[0] {
                let (lo, hi): (Vec<_>, Vec<_>) =
                    lo.iter().zip(&hi).map(|(l, h)| (minus(l), minus(h))).unzip();
                let inner = em.pad_zeros(ct, &lo, &hi, &vec![0; n])?;
                out[0] = Some(if interior.iter().all(|&i| i == 0) {
                    inner
                } else {
                    let limit = em.shape(inner);
                    let stride: Vec<_> = interior.iter().map(|i| i + 1).collect();
                    em.slice(inner, &vec![tessera_ir::Dim::Static(0); n], &limit, &stride)?
                });
            }
            if wanted[1] {
                // What lies on padding, and nothing else.
                let (zeros, fill) = (em.like(0.0, x)?, em.like(1.0, v.operands[1])?);
                let outside = em.pad(zeros, fill, &lo, &hi, &interior)?;
                let there = em.mul(ct, outside)?;
                out[1] = Some(em.sum_whole(there)?);
            }
            out
        }
        Concat => {
            let axis = v.int("axis", 0) as usize;
            let n = dims.len();
            let mut start = vec![tessera_ir::Dim::Static(0); n];
            let mut limit = em.shape(ct);
            let mut out = Vec::new();
            for (&x, &wanted) in v.operands.iter().zip(wanted) {
                limit[axis] = compute(DimOp::Add, &start[axis], &em.shape(x)[axis]);
                out.push(match wanted {
                    true => Some(em.slice(ct, &start, &limit, &vec![1; n])?),
                    false => None,
                });
                start[axis] = limit[axis].clone();
            }
            out
        }
        Reverse => one(em.reverse(ct, &v.ints("axes"))?),
        other @ (KernelCall | Return | Yield | Cond | While | Loop | Call | Composite | Const
        | Iota | Select | Cast | Bitcast | Dim | StopGradient | OptBarrier | Shard
        | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce | ArgReduce
        | Scan | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox | Manual
        | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
        | FromRank | AxisIndex | Ew(_)) => {
            unreachable!("`{other:?}` moves no elements")
        }
    })
}
