//! Sums of zero-padded parts that do not overlap become concats.
//!
//! The derivative of slices of an array is a sum of arrays that are zero except in one part. Where
//! the parts are adjacent along an axis and fill it, the sum is their concat: nothing is filled
//! with zeros and nothing is added.

use crate::index::dims_of;
use tessera_graph::{GraphFunc, GraphOp, walk};
use tessera_ir::{Attr, Attrs, OpId, Value};
use tessera_numerics::ScalarFn;

/// A part of the sum: its axis, where it begins, and the array.
struct Part {
    axis: usize,
    start: i64,
    value: Value,
}

pub fn join(func: &mut GraphFunc) {
    let uses = walk::uses(func);
    let add = GraphOp::Ew(ScalarFn::Add);
    for id in func.walk() {
        if func.ops[id].code != add {
            continue;
        }
        // Only sums that are no summands themselves.
        let v = func.ops[id].results[0];
        let summand = |u: &(OpId, usize)| func.ops[u.0].code == add;
        if uses[v].len() == 1 && uses[v].iter().all(summand) {
            continue;
        }
        let Some(parts) = parts(func, id, &|v| uses[v].len()) else { continue };
        let values: Vec<Value> = parts.iter().map(|p| p.value).collect();
        let op = &mut func.ops[id];
        op.code = GraphOp::Concat;
        op.group_lens = vec![values.len()];
        op.operands = values;
        op.attrs = Attrs::new().with("axis", Attr::Int(parts[0].axis as i64));
    }
}

/// The summands in order, where they are padded with zeros and fill an axis.
fn parts(func: &GraphFunc, id: OpId, users: &dyn Fn(Value) -> usize) -> Option<Vec<Part>> {
    let total = dims_of(func, func.ops[id].results[0]);
    let block = func.ops[id].block;
    let mut list = func.ops[id].operands.clone();
    let mut out = Vec::new();
    while let Some(v) = list.pop() {
        let inner = func.def_id(v).filter(|&i| func.ops[i].block == block && users(v) == 1)?;
        match func.ops[inner].code {
            GraphOp::Ew(ScalarFn::Add) => list.extend(&func.ops[inner].operands),
            GraphOp::Pad => out.push(part(func, inner, &total)?),
            _ => return None,
        }
    }
    out.sort_by_key(|p| p.start);
    let axis = out.first()?.axis;
    let mut end = 0;
    for p in &out {
        if p.axis != axis || p.start != end {
            return None;
        }
        end += dims_of(func, p.value)[axis];
    }
    (end == total[axis] && out.len() > 1).then_some(out)
}

fn part(func: &GraphFunc, id: OpId, total: &[i64]) -> Option<Part> {
    let op = &func.ops[id];
    let fill = func.def(op.operands[1]).filter(|c| c.code == GraphOp::Const)?;
    let zero = match fill.attr("value")? {
        Attr::Float(v) => *v == 0.0,
        Attr::Int(v) => *v == 0,
        _ => false,
    };
    let ints = |name: &str| op.attr(name).and_then(Attr::as_ints).unwrap_or_default();
    let (lo, hi) = (ints("lo"), ints("hi"));
    let from = dims_of(func, op.operands[0]);
    let longer: Vec<usize> = (0..from.len()).filter(|&i| from[i] != total[i]).collect();
    let plain = zero && ints("interior").iter().all(|&i| i == 0);
    let [axis] = longer[..] else { return None };
    let aligned = (0..from.len()).all(|i| i == axis || (lo[i] == 0 && hi[i] == 0));
    let inside = lo[axis] >= 0 && hi[axis] >= 0;
    (plain && aligned && inside).then(|| Part { axis, start: lo[axis], value: op.operands[0] })
}
