//! How each op can be executed, and how the index maps of its operands follow from that of its
//! result.

use crate::index::{Axis, Line, Map, dims_of};
use crate::scatter::in_place;
use tessera_graph::{GraphFunc, GraphOp, elem};
use tessera_ir::{Attr, OpId, Value};
use tessera_numerics::{DType, ReduceOp, ScalarFn, expansion};

/// How an op can be executed.
pub enum Class {
    Source,
    View,
    Pointwise,
    Combine,
    Product,
    Gather,
    DynamicSlice,
    /// Parts of the result are written one after another.
    Parts,
    Own,
    End,
}

pub fn is_empty(func: &GraphFunc, v: Value) -> bool {
    dims_of(func, v).contains(&0)
}

#[deny(clippy::wildcard_enum_match_arm)]
pub fn class(func: &GraphFunc, id: OpId) -> Class {
    let op = &func.ops[id];
    let empty = |vs: &[Value]| vs.iter().any(|&v| is_empty(func, v));
    let odd = |v: &Value| elem(func.ty(*v)).packed;
    if !matches!(op.code, GraphOp::Return | GraphOp::Yield)
        && op.regions.is_empty()
        && (empty(&op.operands)
            || empty(&op.results)
            || op.operands.iter().chain(&op.results).any(odd))
        && op.code != GraphOp::KernelCall
    {
        return Class::Own;
    }
    match op.code {
        GraphOp::Return | GraphOp::Yield => Class::End,
        GraphOp::Const | GraphOp::Iota | GraphOp::Dim => Class::Source,
        GraphOp::Broadcast
        | GraphOp::Reshape
        | GraphOp::Transpose
        | GraphOp::Slice
        | GraphOp::Reverse
        | GraphOp::StopGradient
            | GraphOp::Shard
        | GraphOp::OptBarrier => Class::View,
        GraphOp::Ew(_) | GraphOp::Select | GraphOp::Cast | GraphOp::Bitcast => Class::Pointwise,
        GraphOp::Philox if func.ty(op.operands[0]).rank() == 0 => Class::Pointwise,
        GraphOp::Philox => Class::Own,
        GraphOp::Reduce | GraphOp::Scan => match accumulator(func, id) {
            Some(accum) if accum == accum.carrier() => Class::Combine,
            _ => Class::Own,
        },
        GraphOp::ArgReduce => Class::Combine,
        GraphOp::Dot => match sums_in(func, id) {
            Some(accum) if accum == accum.carrier() => Class::Product,
            _ => Class::Own,
        },
        GraphOp::Gather => Class::Gather,
        GraphOp::DynamicSlice => Class::DynamicSlice,
        GraphOp::Concat | GraphOp::Pad | GraphOp::DynamicUpdateSlice => Class::Parts,
        GraphOp::Scatter if in_place(func, id) => Class::Parts,
        GraphOp::Scatter
        | GraphOp::Sort
        | GraphOp::Conv
        | GraphOp::WindowReduce
        | GraphOp::WindowArgReduce
        | GraphOp::KernelCall
        | GraphOp::Cond
        | GraphOp::While
        | GraphOp::Loop
        | GraphOp::Call
        | GraphOp::Composite
        // `autodiff::expand_ranks` has replaced programs of ranks.
        | GraphOp::Manual | GraphOp::Vary | GraphOp::Own | GraphOp::AllReduce | GraphOp::AllGather | GraphOp::ReduceScatter | GraphOp::AllToAll | GraphOp::Permute | GraphOp::FromRank | GraphOp::AxisIndex => Class::Own,
    }
}

pub fn operator(func: &GraphFunc, id: OpId) -> Option<ReduceOp> {
    func.ops[id].attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name)
}

/// The accumulator dtype of a reduction.
pub fn accumulator(func: &GraphFunc, id: OpId) -> Option<DType> {
    let x = elem(func.ty(func.ops[id].operands[0]));
    Some(match operator(func, id)? {
        ReduceOp::Sum | ReduceOp::Prod => x.accumulator().dtype(),
        ReduceOp::Max | ReduceOp::Min | ReduceOp::And | ReduceOp::Or | ReduceOp::Xor => {
            x.storage.carrier()
        }
    })
}

/// The accumulator dtype of a matmul.
pub fn sums_in(func: &GraphFunc, id: OpId) -> Option<DType> {
    let op = &func.ops[id];
    let said = op.attr("accum").and_then(Attr::as_word).and_then(DType::parse);
    let (a, b) = (func.ty(op.operands[0]), func.ty(op.operands[1]));
    tessera_graph::ops::dot::dtypes(a, b, said, None).ok().map(|(accum, _)| accum)
}

/// Whether MMAs take the operands as they are.
pub fn is_matrix(func: &GraphFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    let (a, b) = (func.ty(op.operands[0]).dtype(), func.ty(op.operands[1]).dtype());
    tessera_tile::ops::mma::accumulator(a, b).is_some_and(|acc| Some(acc) == sums_in(func, id))
}

pub fn axes_of(func: &GraphFunc, id: OpId, name: &str) -> Vec<usize> {
    let list = func.ops[id].attr(name).and_then(Attr::as_ints).unwrap_or_default();
    list.into_iter().map(|a| a.max(0) as usize).collect()
}

/// The axes that a `Combine` op works along.
pub fn along(func: &GraphFunc, id: OpId) -> Vec<usize> {
    let op = &func.ops[id];
    if op.code == GraphOp::Reduce {
        return axes_of(func, id, "axes");
    }
    vec![op.attr("axis").and_then(Attr::as_int).unwrap_or(0).max(0) as usize]
}

/// Ops of an instruction or two.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn is_light(func: &GraphFunc, id: OpId) -> bool {
    use GraphOp::*;
    match func.ops[id].code {
        Cast | Bitcast | Select => true,
        Ew(f) => is_light_fn(f),
        Manual | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
        | FromRank | AxisIndex | KernelCall | Return | Yield | Cond | While | Loop | Call
        | Composite | Const | Iota | Dim | StopGradient | OptBarrier | Shard | Broadcast
        | Reshape | Transpose | Slice | Pad | Concat | Reverse | DynamicSlice
        | DynamicUpdateSlice | Gather | Scatter | Reduce | ArgReduce | Scan | Sort | Dot | Conv
        | WindowReduce | WindowArgReduce | Philox => false,
    }
}

/// About how many operations an op takes for an element.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn weight_of(func: &GraphFunc, id: OpId) -> usize {
    use GraphOp::*;
    match func.ops[id].code {
        Ew(f) => expansion(f).map_or(1, |e| e.ops.len()),
        Philox => PHILOX,
        Manual | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
        | FromRank | AxisIndex | KernelCall | Return | Yield | Cond | While | Loop | Call
        | Composite | Const | Iota | Select | Cast | Bitcast | Dim | StopGradient | OptBarrier
        | Shard | Broadcast | Reshape | Transpose | Slice | Pad | Concat | Reverse
        | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce | ArgReduce | Scan
        | Sort | Dot | Conv | WindowReduce | WindowArgReduce => 1,
    }
}

/// Ten rounds of two products of words.
const PHILOX: usize = 100;

/// Functions of an instruction or two.
pub fn is_light_fn(f: ScalarFn) -> bool {
    matches!(
        f,
        ScalarFn::Neg
            | ScalarFn::Abs
            | ScalarFn::Not
            | ScalarFn::Add
            | ScalarFn::Sub
            | ScalarFn::Mul
            | ScalarFn::Fma
            | ScalarFn::Maximum
            | ScalarFn::Minimum
            | ScalarFn::And
            | ScalarFn::Or
            | ScalarFn::Xor
    ) || f.class() == tessera_numerics::FnClass::Compare
}

/// The axes of a matmul and the extents of its k.
pub struct Sides {
    pub batch: [Vec<usize>; 2],
    pub free: [Vec<usize>; 2],
    pub contract: [Vec<usize>; 2],
    pub depth: Vec<i64>,
}

pub fn sides(func: &GraphFunc, id: OpId) -> Sides {
    let op = &func.ops[id];
    let batch = [axes_of(func, id, "batch_a"), axes_of(func, id, "batch_b")];
    let contract = [axes_of(func, id, "contract_a"), axes_of(func, id, "contract_b")];
    let free = [0, 1].map(|side| {
        let rank = func.ty(op.operands[side]).rank();
        let taken = |a: &usize| batch[side].contains(a) || contract[side].contains(a);
        (0..rank).filter(|a| !taken(a)).collect::<Vec<_>>()
    });
    let dims = dims_of(func, op.operands[0]);
    let depth = contract[0].iter().map(|&a| dims[a]).collect();
    Sides { batch, free, contract, depth }
}

/// The maps of a matmul's operands, given that of its result and the lines of its k.
pub fn operand_maps(func: &GraphFunc, id: OpId, map: &Map, depth: &[Line]) -> [Map; 2] {
    let s = sides(func, id);
    [0, 1].map(|side| {
        let rank = func.ty(func.ops[id].operands[side]).rank();
        let mut out = vec![Line::at(0); rank];
        for (i, &a) in s.batch[side].iter().enumerate() {
            out[a] = map[i].clone();
        }
        let first = s.batch[0].len() + if side == 0 { 0 } else { s.free[0].len() };
        for (i, &a) in s.free[side].iter().enumerate() {
            out[a] = map[first + i].clone();
        }
        for (i, &a) in s.contract[side].iter().enumerate() {
            out[a] = depth[i].clone();
        }
        out
    })
}

/// The map of a reduction's operand.
pub fn combined_map(func: &GraphFunc, id: OpId, map: &Map, axes: &[Axis]) -> Map {
    let gone = along(func, id);
    let dims = dims_of(func, func.ops[id].operands[0]);
    let (mut kept, mut list) = (map.iter(), axes.iter());
    (0..dims.len())
        .map(|i| match (gone.contains(&i), dims[i]) {
            (true, 1) => Line::at(0),
            (true, _) => list.next().map_or(Line::at(0), |&a| Line::along(vec![a])),
            (false, _) => kept.next().cloned().unwrap_or(Line::at(0)),
        })
        .collect()
}

/// For each indexed axis of a gather, the map of the indices that hold its index.
pub fn index_maps(func: &GraphFunc, id: OpId, map: &Map) -> Vec<Map> {
    let lead = func.ty(func.ops[id].operands[1]).rank() - 1;
    let count = axes_of(func, id, "axes").len();
    (0..count)
        .map(|k| {
            let mut out: Map = map[..lead].to_vec();
            out.push(Line::at(k as i64));
            out
        })
        .collect()
}
