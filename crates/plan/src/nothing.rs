//! Ops with operands of no elements, expressed without them.

use crate::class::is_empty;
use crate::expand::Site;
use crate::large::shaped;
use tessera_graph::{GraphOp, elem};
use tessera_ir::{Attr, Attrs, OpSpec, Type, Value};
use tessera_numerics::{ReduceOp, Scalar, cast};

type Made = Result<Value, String>;

/// The result without them; `None` where there is nothing else to write, or where the result has no
/// elements itself and nothing has to be done.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn nothing(
    site: &mut Site<'_>,
    code: GraphOp,
    operands: &[Value],
    attrs: &Attrs,
    types: &[Type],
) -> Option<Made> {
    use GraphOp::*;
    let [ty] = types else { return None };
    let shape = ty.static_shape()?;
    if shape.contains(&0) || !operands.iter().any(|&v| is_empty(site.func, v)) {
        return None;
    }
    let dtype = ty.dtype();
    let fill = |site: &mut Site<'_>, x: Value| {
        let spec =
            OpSpec::new(Broadcast, &[x]).attr("dims", Attr::ints([])).result(shaped(ty, &shape));
        site.op(spec)
    };
    match code {
        Reduce | WindowReduce => {
            let op = attrs.get("op").and_then(Attr::as_word).and_then(ReduceOp::from_name)?;
            let from = elem(site.func.ty(operands[0])).storage.carrier();
            let start = match op {
                // A sum of nothing is stored as a plain zero.
                ReduceOp::Sum => Scalar::zero(from),
                ReduceOp::Max
                | ReduceOp::Min
                | ReduceOp::Prod
                | ReduceOp::And
                | ReduceOp::Or
                | ReduceOp::Xor => op.identity(from)?,
            };
            Some(site.splat(cast(start, from, dtype), &shape, dtype))
        }
        Dot | Conv => Some(site.splat(Scalar::zero(dtype.carrier()), &shape, dtype)),
        Concat => {
            let left: Vec<Value> =
                operands.iter().copied().filter(|&v| !is_empty(site.func, v)).collect();
            Some(match left[..] {
                [one] => Ok(one),
                _ => {
                    let spec = OpSpec::new(Concat, &[]).group("values", &left);
                    let axis = attrs.get("axis").cloned().unwrap_or(Attr::Int(0));
                    site.op(spec.attr("axis", axis))
                }
            })
        }
        Pad => Some(fill(site, operands[1])),
        Scatter | DynamicUpdateSlice => Some(Ok(operands[0])),
        Gather => match operands.get(2) {
            Some(&other) => Some(fill(site, other)),
            None => Some(site.splat(Scalar::zero(dtype.carrier()), &shape, dtype)),
        },
        Manual | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
        | FromRank | AxisIndex | KernelCall | Return | Yield | Cond | While | Loop | Call
        | Composite | Const | Iota | Select | Cast | Bitcast | Dim | StopGradient | OptBarrier
        | Shard | Broadcast | Reshape | Transpose | Slice | Reverse | DynamicSlice | ArgReduce
        | Scan | Sort | WindowArgReduce | Philox | Ew(_) => None,
    }
}
