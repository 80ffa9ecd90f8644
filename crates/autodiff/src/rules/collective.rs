//! Collectives. A value that is same along an axis has one cotangent, a varying one has a cotangent on
//! each rank: `vary` and `all_reduce` are each other's transposes, as are `own` and `all_gather`.

use crate::emit::{Emit, Out, Outs, View};
use crate::rules::one;
use crate::scalar::Scalars;
use tessera_graph::GraphOp;
use tessera_graph::ops::collective::MeshAxes;
use tessera_ir::{Attr, Attrs, OpSpec, Value};
use tessera_numerics::{ReduceOp, ScalarFn};

/// The axes of an op, as attributes of another one.
fn along(v: &View<'_>) -> Attrs {
    let pick = |name: &str| v.op.attr(name).cloned().unwrap_or(Attr::List(Vec::new()));
    Attrs::new().with("axes", pick("axes")).with("sizes", pick("sizes"))
}

fn over(em: &mut Emit, code: GraphOp, x: Value, attrs: Attrs) -> Out {
    let mut spec = OpSpec::new(code, &[x]);
    spec.attrs = attrs;
    em.op(spec)
}

fn vary(em: &mut Emit, v: &View<'_>, x: Value) -> Out {
    over(em, GraphOp::Vary, x, along(v))
}

fn all_reduce(em: &mut Emit, v: &View<'_>, x: Value, op: ReduceOp) -> Out {
    over(em, GraphOp::AllReduce, x, along(v).with("op", Attr::word(op.name())))
}

/// The rank's position, where `like` has elements.
fn position(em: &mut Emit, v: &View<'_>, like: Value) -> Out {
    let mut spec = OpSpec::new(GraphOp::AxisIndex, &[]);
    spec.attrs = along(v);
    let index = em.op(spec)?;
    let dims = em.shape(like);
    em.broadcast(index, &dims, &[])
}

/// Where this rank has the largest or smallest element, the lowest rank of equals. A NaN is taken
/// before numbers, as the reduction takes it.
fn holder(em: &mut Emit, v: &View<'_>, x: Value, best: Value) -> Out {
    let best = vary(em, v, best)?;
    let (equal, nan) = (em.ew(ScalarFn::Eq, &[x, best])?, em.ew(ScalarFn::Ne, &[x, x])?);
    let has = em.ew(ScalarFn::Or, &[equal, nan])?;
    let own = position(em, v, x)?;
    let ty = em.ty(own);
    let ranks = MeshAxes::of(&v.op.attrs).map_or(0, |a| a.count());
    let nobody = em.splat(ranks as f64, &ty)?;
    let candidate = em.select(has, own, nobody)?;
    let first = all_reduce(em, v, candidate, ReduceOp::Min)?;
    let first = vary(em, v, first)?;
    em.ew(ScalarFn::Eq, &[own, first])
}

/// What a reduction combines with.
enum Combine {
    Sum,
    Extreme(ReduceOp),
}

fn combine(em: &Emit, v: &View<'_>) -> Result<Combine, tessera_diag::Diagnostic> {
    let name = super::name_of(v);
    match v.reduce_op() {
        ReduceOp::Sum => Ok(Combine::Sum),
        op @ (ReduceOp::Max | ReduceOp::Min) => Ok(Combine::Extreme(op)),
        op @ (ReduceOp::Prod | ReduceOp::And | ReduceOp::Or | ReduceOp::Xor) => em.refuse(
            format!("`{name}` with `{}` has no derivative", op.name()),
            "gather the values with `all_gather` and combine them there",
        ),
    }
}

#[deny(clippy::wildcard_enum_match_arm)]
pub fn jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    use GraphOp::*;
    let Some(t) = t[0] else { return Ok(vec![None]) };
    match v.op.code {
        Vary | Own | AllGather | AllToAll | Permute | FromRank => Ok(one(em.op(v.spec_on(&[t]))?)),
        AllReduce => match combine(em, v)? {
            Combine::Sum => Ok(one(em.op(v.spec_on(&[t]))?)),
            Combine::Extreme(_) => {
                let mine = holder(em, v, v.operands[0], v.result())?;
                Ok(one(from_holder(em, v, mine, t)?))
            }
        },
        ReduceScatter => match combine(em, v)? {
            Combine::Sum => Ok(one(em.op(v.spec_on(&[t]))?)),
            Combine::Extreme(op) => {
                let best = all_reduce(em, v, v.operands[0], op)?;
                let mine = holder(em, v, v.operands[0], best)?;
                let whole = from_holder(em, v, mine, t)?;
                let dim = along(v).with("dim", Attr::Int(v.int("dim", 0)));
                Ok(one(over(em, GraphOp::Own, whole, dim)?))
            }
        },
        AxisIndex | Manual | KernelCall | Return | Yield | Cond | While | Loop | Call
        | Composite | Const | Iota | Select | Cast | Bitcast | Dim | StopGradient | OptBarrier
        | Shard | Broadcast | Reshape | Transpose | Slice | Pad | Concat | Reverse
        | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce | ArgReduce | Scan
        | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox | Ew(_) => Ok(vec![None]),
    }
}

/// The value of the rank that `mine` names, for all.
fn from_holder(em: &mut Emit, v: &View<'_>, mine: Value, t: Value) -> Out {
    let zero = em.like(0.0, t)?;
    let only = em.select(mine, t, zero)?;
    all_reduce(em, v, only, ReduceOp::Sum)
}

#[deny(clippy::wildcard_enum_match_arm)]
pub fn vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>]) -> Outs {
    use GraphOp::*;
    let Some(ct) = ct[0] else { return Ok(vec![None; v.operands.len()]) };
    let dim = |name: &str| Attr::Int(v.int(name, 0));
    match v.op.code {
        Vary => Ok(one(all_reduce(em, v, ct, ReduceOp::Sum)?)),
        Own => Ok(one(over(em, AllGather, ct, along(v).with("dim", dim("dim")))?)),
        AllGather => Ok(one(over(em, Own, ct, along(v).with("dim", dim("dim")))?)),
        AllReduce => match combine(em, v)? {
            Combine::Sum => Ok(one(vary(em, v, ct)?)),
            Combine::Extreme(_) => {
                let mine = holder(em, v, v.operands[0], v.result())?;
                Ok(one(to_holder(em, v, mine, ct)?))
            }
        },
        ReduceScatter => {
            let whole = over(em, AllGather, ct, along(v).with("dim", dim("dim")))?;
            match combine(em, v)? {
                Combine::Sum => Ok(one(vary(em, v, whole)?)),
                Combine::Extreme(op) => {
                    let best = all_reduce(em, v, v.operands[0], op)?;
                    let mine = holder(em, v, v.operands[0], best)?;
                    Ok(one(to_holder(em, v, mine, whole)?))
                }
            }
        }
        AllToAll => {
            let attrs = along(v).with("split", dim("concat")).with("concat", dim("split"));
            Ok(one(over(em, AllToAll, ct, attrs)?))
        }
        Permute => {
            let pairs = v.op.attr("pairs").and_then(Attr::as_list).unwrap_or_default();
            let turned = pairs.iter().map(|p| {
                Attr::ints(p.as_ints().unwrap_or_default().into_iter().rev().collect::<Vec<_>>())
            });
            let attrs = along(v).with("pairs", Attr::List(turned.collect()));
            Ok(one(over(em, Permute, ct, attrs)?))
        }
        FromRank => {
            let own = position(em, v, ct)?;
            let ty = em.ty(own);
            let root = em.splat(v.int("root", 0) as f64, &ty)?;
            let mine = em.ew(ScalarFn::Eq, &[own, root])?;
            Ok(one(to_holder(em, v, mine, ct)?))
        }
        AxisIndex | Manual | KernelCall | Return | Yield | Cond | While | Loop | Call
        | Composite | Const | Iota | Select | Cast | Bitcast | Dim | StopGradient | OptBarrier
        | Shard | Broadcast | Reshape | Transpose | Slice | Pad | Concat | Reverse
        | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce | ArgReduce | Scan
        | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox | Ew(_) => {
            Ok(vec![None; v.operands.len()])
        }
    }
}

/// A same cotangent, for the ranks that `mine` names alone.
fn to_holder(em: &mut Emit, v: &View<'_>, mine: Value, ct: Value) -> Out {
    let own = vary(em, v, ct)?;
    let zero = em.like(0.0, own)?;
    em.select(mine, own, zero)
}
