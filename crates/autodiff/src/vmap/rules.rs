//! The batching rule of each op: one more axis in front.

use super::Batched;
use crate::context::Context;
use crate::emit::{Emit, View, expr, ints};
use crate::scalar::Scalars;
use tessera_diag::Diagnostic;
use tessera_graph::{Graph, GraphOp, tensor};
use tessera_ir::{Attr, Dim, DimExpr, OpId, OpSpec, Value};
use tessera_numerics::{DType, NumType};

/// Axes one further on.
pub fn shifted(axes: &[i64]) -> Attr {
    ints(axes.iter().map(|a| a + 1))
}

fn led(first: i64, rest: &[i64]) -> Attr {
    ints(std::iter::once(first).chain(rest.iter().copied()))
}

fn led_exprs(first: DimExpr, rest: &[Dim], em: &Emit) -> Result<Attr, Diagnostic> {
    let mut all = vec![first];
    all.extend(em.exprs(rest)?);
    Ok(Attr::exprs(all))
}

impl Context<'_> {
    #[deny(clippy::wildcard_enum_match_arm)]
    pub fn batch_op(&mut self, b: &mut Batched<'_>, id: OpId) -> Result<(), Diagnostic> {
        use GraphOp::*;
        let op = &b.source.ops[id];
        let region = op
            .regions
            .iter()
            .any(|&r| tessera_graph::walk::captures(b.source, r).iter().any(|&v| b.on(v)));
        if let Some(mesh) = self.ranks.clone()
            && tessera_graph::states::is_of_a_rank(op.code)
        {
            return self.synchronise(b, id, &mesh);
        }
        // What differs between ranks may come from inside a region or a function.
        let inside = self.ranks.is_some() && (!op.regions.is_empty() || op.code == Call);
        if !b.any(&op.operands) && !region && !inside {
            b.copy(id);
            return Ok(());
        }
        match op.code {
            Cond => self.cond_vmap(b, id),
            While => self.while_vmap(b, id),
            Loop => self.loop_vmap(b, id),
            Call | Composite => self.call_vmap(b, id),
            Manual => self.manual_vmap(b, id),
            KernelCall | Return | Yield | Const | Iota | Select | Cast | Bitcast | Dim
            | StopGradient | OptBarrier | Shard | Broadcast | Reshape | Transpose | Slice | Pad
            | Concat | Reverse | DynamicSlice | DynamicUpdateSlice | Gather | Scatter | Reduce
            | ArgReduce | Scan | Sort | Dot | Conv | WindowReduce | WindowArgReduce | Philox
            | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
            | FromRank | AxisIndex | Ew(_) => rule(b, id),
        }
    }
}

#[deny(clippy::wildcard_enum_match_arm)]
fn rule(b: &mut Batched<'_>, id: OpId) -> Result<(), Diagnostic> {
    let op = &b.source.ops[id];
    let view = View { op, operands: Vec::new(), results: Vec::new(), extra: Vec::new() };
    let first = op.operands.first().copied();
    let rank = first.map_or(0, |x| b.source.ty(x).rank());
    let zero = DimExpr::Const(0);
    // Most ops take all operands with the axis; the others were handled before.
    let spec: OpSpec<Graph> = match op.code {
        GraphOp::Ew(_) => same(b, &view)?,
        GraphOp::Select => {
            let operands = select(b, op.positional())?;
            OpSpec::new(op.code, &operands)
        }
        GraphOp::Cast | GraphOp::Bitcast => same(b, &view)?.result(b.wide(op.result())),
        GraphOp::StopGradient => same(b, &view)?,
        // All elements of the batch are placed alike; the new dim is not split.
        GraphOp::Shard => {
            let split = op.attr("split").and_then(Attr::as_list).unwrap_or_default();
            let split = [&[Attr::List(Vec::new())], split].concat();
            let spec = same(b, &view)?.attr("split", Attr::List(split));
            match op.attr("open") {
                Some(_) => spec.attr("open", shifted(&view.ints("open"))),
                None => spec,
            }
        }
        GraphOp::OptBarrier => {
            let spec = view.spec_on(&b.new_values(&op.operands));
            let results = b.em.ops(spec)?;
            for ((&old, new), &from) in op.results.iter().zip(results).zip(&op.operands) {
                let on = b.on(from);
                b.set(old, new, on);
            }
            return Ok(());
        }
        GraphOp::Broadcast => {
            let dims = view.ints("dims").iter().map(|d| d + 1).collect::<Vec<_>>();
            same(b, &view)?.attr("dims", led(0, &dims)).result(b.wide(op.result()))
        }
        GraphOp::Reshape => same(b, &view)?.result(b.wide(op.result())),
        GraphOp::Transpose => {
            let perm = view.ints("perm").iter().map(|p| p + 1).collect::<Vec<_>>();
            same(b, &view)?.attr("perm", led(0, &perm))
        }
        GraphOp::Slice => {
            let size = expr(&b.size, &b.em.loc)?;
            same(b, &view)?
                .attr("start", led_exprs(zero, &view.exprs("start", rank), &b.em)?)
                .attr("limit", led_exprs(size, &view.exprs("limit", rank), &b.em)?)
                .attr("stride", led(1, &view.ints_or("stride", rank, 1)))
        }
        GraphOp::Pad => return pad(b, id, &view, rank),
        GraphOp::Concat => same(b, &view)?.attr("axis", Attr::Int(view.int("axis", 0) + 1)),
        GraphOp::Reverse => same(b, &view)?.attr("axes", shifted(&view.ints("axes"))),
        GraphOp::DynamicSlice => return super::index::dynamic_slice(b, id, &view),
        GraphOp::DynamicUpdateSlice => return super::index::dynamic_update(b, id, &view),
        GraphOp::Gather => return super::index::gather(b, id, &view),
        GraphOp::Scatter => same(b, &view)?
            .attr("axes", shifted(&view.ints("axes")))
            .attr("batch", Attr::Int(view.int("batch", 0) + 1)),
        GraphOp::Reduce => same(b, &view)?.attr("axes", shifted(&view.ints("axes"))),
        GraphOp::ArgReduce | GraphOp::Scan | GraphOp::Sort => {
            same(b, &view)?.attr("axis", Attr::Int(view.int("axis", 0) + 1))
        }
        GraphOp::Vary | GraphOp::AllReduce | GraphOp::Permute | GraphOp::FromRank => {
            same(b, &view)?
        }
        GraphOp::Own | GraphOp::AllGather | GraphOp::ReduceScatter => {
            same(b, &view)?.attr("dim", Attr::Int(view.int("dim", 0) + 1))
        }
        GraphOp::AllToAll => same(b, &view)?
            .attr("split", Attr::Int(view.int("split", 0) + 1))
            .attr("concat", Attr::Int(view.int("concat", 0) + 1)),
        GraphOp::Dot => return super::products::dot(b, id, &view),
        GraphOp::Conv => return super::products::conv(b, id, &view),
        GraphOp::WindowReduce | GraphOp::WindowArgReduce => same(b, &view)?
            .attr("window", led(1, &view.ints("window")))
            .attr("strides", led(1, &view.ints_or("strides", rank, 1)))
            .attr("dilate", led(1, &view.ints_or("dilate", rank, 1)))
            .attr("lo", led_exprs(zero.clone(), &view.exprs("lo", rank), &b.em)?)
            .attr("hi", led_exprs(zero, &view.exprs("hi", rank), &b.em)?),
        GraphOp::Philox => {
            // A key for each counter, where there is more than one key.
            let (key, counter) = (op.operands[0], op.operands[1]);
            let counters = b.full(counter)?;
            let dims = b.em.shape(counters);
            let keys = match (b.on(key), b.source.ty(key).rank()) {
                (false, 0) => b.new_value(key),
                (true, 0) => {
                    let keys = b.new_value(key);
                    b.em.broadcast(keys, &dims, &[0])?
                }
                _ => b.full(key)?,
            };
            let mut spec = OpSpec::new(op.code, &[keys, counters]);
            spec.attrs = op.attrs.clone();
            spec
        }
        GraphOp::KernelCall => return each(b, id),
        // Ops without operands, or ops that the caller has handled.
        GraphOp::Const
        | GraphOp::Iota
        | GraphOp::Dim
        | GraphOp::Cond
        | GraphOp::While
        | GraphOp::Loop
        | GraphOp::Call
        | GraphOp::Composite
        | GraphOp::Manual
        | GraphOp::AxisIndex
        | GraphOp::Return
        | GraphOp::Yield => {
            b.copy(id);
            return Ok(());
        }
    };
    let results = b.em.ops(spec)?;
    b.set_all(id, &results);
    Ok(())
}

/// The op on operands that all have the axis.
fn same(b: &mut Batched<'_>, view: &View<'_>) -> Result<OpSpec<Graph>, Diagnostic> {
    let operands = b.full_all(&view.op.operands)?;
    Ok(view.spec_on(&operands))
}

fn select(b: &mut Batched<'_>, operands: &[Value]) -> Result<Vec<Value>, Diagnostic> {
    let cond = operands[0];
    let whole = b.with_axis(&b.dims(operands[1]));
    let new = b.new_value(cond);
    let cond = match (b.on(cond), b.source.ty(cond).rank()) {
        (false, 0) => new,
        (true, 0) => b.em.broadcast(new, &whole, &[0])?,
        _ => b.full(cond)?,
    };
    Ok(vec![cond, b.full(operands[1])?, b.full(operands[2])?])
}

fn pad(b: &mut Batched<'_>, id: OpId, view: &View<'_>, rank: usize) -> Result<(), Diagnostic> {
    let op = view.op;
    let (x, value) = (op.operands[0], op.operands[1]);
    let (lo, hi) = (view.exprs("lo", rank), view.exprs("hi", rank));
    let interior = view.ints_or("interior", rank, 0);
    let lead = |dims: &[Dim]| [&[Dim::Static(0)][..], dims].concat();
    let between = [&[0][..], &interior].concat();
    let wide = b.full(x)?;
    let result = if b.on(value) {
        // The padding differs: it is chosen where there is no element.
        let inner = b.em.pad_zeros(wide, &lead(&lo), &lead(&hi), &between)?;
        let truth = |em: &mut Emit, v: f64, dims: Vec<Dim>| {
            em.splat(v, &tensor(dims, NumType::plain(DType::Bool)))
        };
        let dims = b.dims(x);
        let there = truth(&mut b.em, 1.0, dims)?;
        let not = truth(&mut b.em, 0.0, Vec::new())?;
        let there = b.em.pad(there, not, &lo, &hi, &interior)?;
        let there = b.repeat(there)?;
        let dims = b.em.shape(inner);
        let values = b.new_value(value);
        let values = b.em.broadcast(values, &dims, &[0])?;
        b.em.select(there, inner, values)?
    } else {
        let value = b.new_value(value);
        b.em.pad(wide, value, &lead(&lo), &lead(&hi), &between)?
    };
    b.set_all(id, &[result]);
    Ok(())
}

/// The op once for each example, in a loop.
pub fn each(b: &mut Batched<'_>, id: OpId) -> Result<(), Diagnostic> {
    let op = &b.source.ops[id];
    let view = View { op, operands: Vec::new(), results: Vec::new(), extra: Vec::new() };
    // What a kernel writes has to be an array of its own for each example.
    let written = tessera_graph::ops::kernel::privileges(op.attr("privileges"));
    let writes =
        |i: usize| written.get(i).copied().flatten().is_some_and(tessera_ir::Privilege::writes);
    let mut steps = Vec::new();
    for (i, &v) in op.operands.iter().enumerate() {
        if b.on(v) || writes(i) {
            steps.push(b.full(v)?);
        }
    }
    let attrs = tessera_ir::Attrs::new().with("trip", expr(&b.size, &b.em.loc)?.into());
    let loc = b.em.loc.clone();
    let args = b.em.b.open("loop", &[], &[("xs", steps)], attrs, loc)?;
    let mut given = args[1..].iter().copied();
    let mut operands = Vec::new();
    for (i, &v) in op.operands.iter().enumerate() {
        let step = if b.on(v) || writes(i) { given.next() } else { None };
        operands.push(step.unwrap_or_else(|| b.new_value(v)));
    }
    let types = op.results.iter().map(|&v| b.source.ty(v).clone()).collect();
    let out = b.em.ops(view.spec_on(&operands).results(types))?;
    let results = b.em.b.close(&out)?;
    b.set_all(id, &results);
    Ok(())
}
