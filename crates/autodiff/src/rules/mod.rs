//! The rules of every op, forward and reverse, one file for each family. An op either has a rule,
//! has no derivative by its nature (its results are integers, or steps), or is refused with the
//! reason.

mod collective;
mod dot;
mod index;
mod reduce;
mod scatter;
mod shape;
mod value;
mod window;

use crate::emit::{Emit, Outs, View};
use crate::scalar::moves;
use tessera_diag::Diagnostic;
use tessera_graph::GraphOp;
use tessera_ir::Value;

/// Whether the results of an op are active where its operands are, if both are floats. Ops that run
/// regions, functions or kernels are handled elsewhere.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn differentiable(code: GraphOp) -> bool {
    match code {
        GraphOp::Ew(f) => moves(f),
        GraphOp::Const
        | GraphOp::Iota
        | GraphOp::Dim
        | GraphOp::StopGradient
        | GraphOp::ArgReduce
        | GraphOp::WindowArgReduce
        | GraphOp::Philox
        | GraphOp::AxisIndex
        | GraphOp::Return
        | GraphOp::Yield => false,
        GraphOp::KernelCall
        | GraphOp::Cond
        | GraphOp::While
        | GraphOp::Loop
        | GraphOp::Call
        | GraphOp::Composite
        | GraphOp::Select
        | GraphOp::Cast
        | GraphOp::Bitcast
        | GraphOp::OptBarrier
        | GraphOp::Shard
        | GraphOp::Broadcast
        | GraphOp::Reshape
        | GraphOp::Transpose
        | GraphOp::Slice
        | GraphOp::Pad
        | GraphOp::Concat
        | GraphOp::Reverse
        | GraphOp::DynamicSlice
        | GraphOp::DynamicUpdateSlice
        | GraphOp::Gather
        | GraphOp::Scatter
        | GraphOp::Reduce
        | GraphOp::Scan
        | GraphOp::Sort
        | GraphOp::Dot
        | GraphOp::Conv
        | GraphOp::WindowReduce
        | GraphOp::Manual
        | GraphOp::Vary
        | GraphOp::Own
        | GraphOp::AllReduce
        | GraphOp::AllGather
        | GraphOp::ReduceScatter
        | GraphOp::AllToAll
        | GraphOp::Permute
        | GraphOp::FromRank => true,
    }
}

/// Emits an op of the source on its new operands in a form that keeps what its rules need; `None`
/// where a copy will do.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn primal(em: &mut Emit, v: &View<'_>) -> Result<Option<Kept>, Diagnostic> {
    use GraphOp::*;
    match v.op.code {
        Sort => reduce::sort_primal(em, v).map(Some),
        KernelCall => crate::kernel::primal_call(em, v).map(Some),
        Return | Yield | Cond | While | Loop | Call | Composite | Const | Iota | Select | Cast
        | Bitcast | Dim | StopGradient | OptBarrier | Shard | Broadcast | Reshape | Transpose
        | Slice | Pad | Concat | Reverse | DynamicSlice | DynamicUpdateSlice | Gather | Scatter
        | Reduce | ArgReduce | Scan | Dot | Conv | WindowReduce | WindowArgReduce | Philox
        | Manual | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
        | FromRank | AxisIndex | Ew(_) => Ok(None),
    }
}

/// The results of an op, and values only its rules see.
pub struct Kept {
    pub results: Vec<Value>,
    pub extra: Vec<Value>,
}

/// Tangents of the results from tangents of the operands; `None` is zero.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn jvp(em: &mut Emit, v: &View<'_>, t: &[Option<Value>]) -> Outs {
    match v.op.code {
        GraphOp::Ew(f) => value::ew_jvp(em, v, f, t),
        GraphOp::Const
        | GraphOp::Iota
        | GraphOp::Dim
        | GraphOp::StopGradient
        | GraphOp::ArgReduce
        | GraphOp::WindowArgReduce
        | GraphOp::Philox => Ok(vec![None; v.results.len()]),
        GraphOp::Select => value::select_jvp(em, v, t),
        GraphOp::Cast => value::cast_jvp(em, v, t),
        GraphOp::Bitcast => value::bitcast(em, v, t),
        GraphOp::OptBarrier => value::barrier(em, t),
        GraphOp::Shard => value::placed(em, v, t[0]),
        GraphOp::Broadcast
        | GraphOp::Reshape
        | GraphOp::Transpose
        | GraphOp::Slice
        | GraphOp::Pad
        | GraphOp::Concat
        | GraphOp::Reverse => shape::jvp(em, v, t),
        GraphOp::DynamicSlice | GraphOp::DynamicUpdateSlice => index::part_jvp(em, v, t),
        GraphOp::Gather => index::gather_jvp(em, v, t),
        GraphOp::Scatter => scatter::jvp(em, v, t),
        GraphOp::Reduce => reduce::reduce_jvp(em, v, t),
        GraphOp::Scan => reduce::scan_jvp(em, v, t),
        GraphOp::Sort => reduce::sort_jvp(em, v, t),
        GraphOp::Dot | GraphOp::Conv => dot::jvp(em, v, t),
        GraphOp::WindowReduce => window::jvp(em, v, t),
        GraphOp::Vary
        | GraphOp::Own
        | GraphOp::AllReduce
        | GraphOp::AllGather
        | GraphOp::ReduceScatter
        | GraphOp::AllToAll
        | GraphOp::Permute
        | GraphOp::FromRank
        | GraphOp::AxisIndex => collective::jvp(em, v, t),
        GraphOp::KernelCall
        | GraphOp::Cond
        | GraphOp::While
        | GraphOp::Loop
        | GraphOp::Call
        | GraphOp::Composite
        | GraphOp::Manual
        | GraphOp::Return
        | GraphOp::Yield => elsewhere(em, v),
    }
}

/// Cotangents of the operands from cotangents of the results; `None` is zero. `wanted` says which
/// operands need one.
#[deny(clippy::wildcard_enum_match_arm)]
pub fn vjp(em: &mut Emit, v: &View<'_>, ct: &[Option<Value>], wanted: &[bool]) -> Outs {
    match v.op.code {
        GraphOp::Ew(f) => value::ew_vjp(em, v, f, ct, wanted),
        GraphOp::Const
        | GraphOp::Iota
        | GraphOp::Dim
        | GraphOp::StopGradient
        | GraphOp::ArgReduce
        | GraphOp::WindowArgReduce
        | GraphOp::Philox => Ok(vec![None; v.operands.len()]),
        GraphOp::Select => value::select_vjp(em, v, ct, wanted),
        GraphOp::Cast => value::cast_vjp(em, v, ct),
        GraphOp::Bitcast => value::bitcast(em, v, ct),
        GraphOp::OptBarrier => Ok(ct.to_vec()),
        GraphOp::Shard => value::placed(em, v, ct[0]),
        GraphOp::Broadcast
        | GraphOp::Reshape
        | GraphOp::Transpose
        | GraphOp::Slice
        | GraphOp::Pad
        | GraphOp::Concat
        | GraphOp::Reverse => shape::vjp(em, v, ct, wanted),
        GraphOp::DynamicSlice | GraphOp::DynamicUpdateSlice => index::part_vjp(em, v, ct, wanted),
        GraphOp::Gather => index::gather_vjp(em, v, ct, wanted),
        GraphOp::Scatter => scatter::vjp(em, v, ct, wanted),
        GraphOp::Reduce => reduce::reduce_vjp(em, v, ct),
        GraphOp::Scan => reduce::scan_vjp(em, v, ct),
        GraphOp::Sort => reduce::sort_vjp(em, v, ct, wanted),
        GraphOp::Dot => dot::dot_vjp(em, v, ct, wanted),
        GraphOp::Conv => dot::conv_vjp(em, v, ct, wanted),
        GraphOp::WindowReduce => window::vjp(em, v, ct),
        GraphOp::Vary
        | GraphOp::Own
        | GraphOp::AllReduce
        | GraphOp::AllGather
        | GraphOp::ReduceScatter
        | GraphOp::AllToAll
        | GraphOp::Permute
        | GraphOp::FromRank
        | GraphOp::AxisIndex => collective::vjp(em, v, ct),
        GraphOp::KernelCall
        | GraphOp::Cond
        | GraphOp::While
        | GraphOp::Loop
        | GraphOp::Call
        | GraphOp::Composite
        | GraphOp::Manual
        | GraphOp::Return
        | GraphOp::Yield => elsewhere(em, v),
    }
}

/// Callers handle these ops before rules are looked up.
fn elsewhere(em: &mut Emit, v: &View<'_>) -> Outs {
    em.refuse(format!("`{}` stands where no rule is looked up", name_of(v)), "report this")
}

pub fn name_of(v: &View<'_>) -> &'static str {
    tessera_ir::Opcode::<tessera_graph::Graph>::mnemonic(v.op.code)
}

/// One result or operand.
fn one(v: Value) -> Vec<Option<Value>> {
    vec![Some(v)]
}
