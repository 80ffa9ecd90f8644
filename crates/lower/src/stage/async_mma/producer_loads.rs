//! Producer loads: MMA operands are loaded with TMA into pipelines (multistage buffering, CUTLASS's
//! `PipelineTmaAsync`).
//!
//! Input: a valid function in which threads load tiles and write them to shared memory for WGMMA.
//! Output: those tiles are fields of pipeline stages. At the load, the next stage is acquired,
//! filled by TMA and published. Before the first op that reads it the stage is waited for, and
//! after the last it is released. Loads that are first needed by the same op share a pipeline. Ops
//! that use the tile itself read it from the stage. Loops and branches carry the pipeline counters.

mod load_plan;

pub use load_plan::{LoadPlan, plan};

use super::super::{Off, Staging, Step};
use super::{Refusal, budget, tile_scheduler, uses};
use load_plan::Pipeline;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Type, Value};
use tessera_numerics::ScalarFn;
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;

pub fn producer_loads(
    func: &StagedFunc,
    staging: &Staging<'_>,
    most: u32,
) -> Result<StagedFunc, Refusal> {
    let mut plan = plan(func, staging)?;
    budget::give_stages(func, staging, &mut plan, most)?;
    let mut rw = Rewriter::new(func);
    let (body, loc) = (rw.new.body, func.loc.clone());
    let mut build = rw.builder(body, loc);
    let own: BTreeMap<usize, Value> =
        plan.own().map(|(i, pipeline)| (i, build.pipeline_create(pipeline.ty()))).collect();
    let first: BTreeMap<usize, Value> = plan.own().map(|(i, _)| (i, build.index(0))).collect();
    // A pipeline that shares memory is represented by the one that owns it.
    let pipelines = plan.pipelines.iter().map(|r| own[&r.of]).collect();
    let counters = plan.pipelines.iter().map(|r| first[&r.of]).collect();
    let mut state = LoadRewrite { plan: &plan, pipelines, counters };
    state.block(&mut rw, func.body, body);
    let mut new = rw.new;
    // Groups that are all resident have no raster order.
    if !tile_scheduler::is_alone(&func.attrs) && !Off::of(func).has(Step::Raster) {
        budget::set_raster(&mut new, staging);
    }
    Ok(new)
}

struct LoadRewrite<'p> {
    plan: &'p LoadPlan,
    /// The pipelines of the plan, and their current counters.
    pipelines: Vec<Value>,
    counters: Vec<Value>,
}

type Rw<'f> = Rewriter<'f, Staged>;

impl LoadRewrite<'_> {
    fn block(&mut self, rw: &mut Rw<'_>, from: BlockId, into: BlockId) {
        let old = rw.old;
        let plan = self.plan;
        let here: Vec<(usize, &Pipeline)> =
            plan.pipelines.iter().filter(|r| r.block == from).map(|r| (r.of, r)).collect();
        for (place, &id) in old.blocks[from].ops.iter().enumerate() {
            for &(at, pipeline) in here.iter().filter(|(_, r)| r.first == place) {
                self.read(rw, at, pipeline, into);
            }
            if plan.is_load(id) {
                for &(at, pipeline) in here.iter().filter(|(_, r)| r.filled == place) {
                    self.fill(rw, at, pipeline, into);
                }
            } else if !plan.gone.contains(&id) {
                self.op(rw, id, into);
            }
            for &(at, pipeline) in here.iter().filter(|(_, r)| r.last == place) {
                let loc = old.ops[pipeline.fields[0].load].loc.clone();
                let mut build = rw.builder(into, loc);
                build.release(self.pipelines[at], self.counters[at], false);
                let one = build.index(1);
                self.counters[at] = build.ew(ScalarFn::Add, &[self.counters[at], one]);
            }
        }
    }

    fn fill(&mut self, rw: &mut Rw<'_>, at: usize, pipeline: &Pipeline, into: BlockId) {
        let old = rw.old;
        let loc = old.ops[pipeline.fields[0].load].loc.clone();
        let (whole, i) = (self.pipelines[at], self.counters[at]);
        let stage = rw.builder(into, loc.clone()).acquire(whole, i);
        for field in &pipeline.fields {
            let load = &old.ops[field.load];
            let positions: Vec<Value> = load.group("at").iter().map(|&v| rw.get(v)).collect();
            let src = rw.get(load.operands[0]);
            let extent = load.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
            let mut build = rw.builder(into, load.loc.clone());
            let id = build.fill(stage, &field.ty.name, src, &positions, &extent);
            if let Some(bounds) = load.attr("bounds") {
                rw.new.ops[id].attrs.set("bounds", bounds.clone());
            }
        }
        rw.builder(into, loc).publish(whole, i);
    }

    fn read(&mut self, rw: &mut Rw<'_>, at: usize, pipeline: &Pipeline, into: BlockId) {
        let old = rw.old;
        let loc = old.ops[pipeline.fields[0].load].loc.clone();
        let stage = rw.builder(into, loc).wait(self.pipelines[at], self.counters[at]);
        for field in &pipeline.fields {
            let load = &old.ops[field.load];
            let whole = rw.builder(into, load.loc.clone()).field(stage, &field.ty.name);
            let mut views = BTreeMap::new();
            for (mem, perm) in &field.memory {
                let view = *views.entry(perm).or_insert_with(|| match perm.is_sorted() {
                    true => whole,
                    false => permuted(rw, whole, perm, into, field.load),
                });
                rw.set(*mem, view);
            }
            if field.is_read {
                let ty = old.ty(load.result()).clone();
                let tile = rw.builder(into, load.loc.clone()).frag_load(whole, ty);
                rw.new.values[tile].name = old.values[load.result()].name.clone();
                rw.set(load.result(), tile);
            }
        }
    }

    fn op(&mut self, rw: &mut Rw<'_>, id: OpId, into: BlockId) {
        let old = rw.old;
        let inside = self.plan.pipelines.iter().filter(|r| uses::contains(old, id, r.block));
        let inside: Vec<usize> =
            inside.map(|r| r.of).collect::<BTreeSet<_>>().into_iter().collect();
        if inside.is_empty() {
            let gone = &self.plan.gone;
            copy_without(rw, gone, id, into);
            return;
        }
        let op = &old.ops[id];
        let positional: Vec<Value> = op.positional().iter().map(|&v| rw.get(v)).collect();
        let mut types: Vec<Type> = op.results.iter().map(|&v| old.ty(v).clone()).collect();
        types.extend(inside.iter().map(|_| Type::INDEX));
        let mut spec = OpSpec::new(op.code, &positional).results(types);
        for name in ["grid", "init"] {
            let has = tessera_ir::Opcode::info(op.code).groups.iter().any(|g| g.name == name);
            let mut values: Vec<Value> = op.group(name).iter().map(|&v| rw.get(v)).collect();
            if name == "init" {
                values.extend(inside.iter().map(|&r| self.counters[r]));
            }
            if has {
                spec = spec.group(name, &values);
            }
        }
        spec.attrs = op.attrs.clone();
        let new = rw.builder(into, op.loc.clone()).op(spec).expect("result types are given");
        let regions = rw.new.ops[new].regions.clone();
        let branches = op.code == StagedOp::Tile(TileOp::If);
        let before = self.counters.clone();
        for (&from, &to) in op.regions.iter().zip(&regions) {
            self.counters.clone_from(&before);
            rw.copy_args(from, to);
            if !branches {
                for &r in &inside {
                    self.counters[r] = rw.new.add_arg(to, Type::INDEX, Some("iteration"));
                }
            }
            self.block(rw, from, to);
            if let Some(end) = rw.new.terminator(to) {
                let end = &mut rw.new.ops[end];
                end.operands.extend(inside.iter().map(|&r| self.counters[r]));
                end.group_lens[0] += inside.len();
            }
        }
        let results = rw.new.ops[new].results.clone();
        for (&v, &r) in op.results.iter().zip(&results) {
            rw.set(v, r);
            rw.new.values[r].name = old.values[v].name.clone();
        }
        self.counters = before;
        for (&r, &v) in inside.iter().zip(&results[op.results.len()..]) {
            self.counters[r] = v;
        }
    }
}

/// Copies an op whose regions may hold ops that are no longer needed.
fn copy_without(rw: &mut Rw<'_>, gone: &std::collections::BTreeSet<OpId>, id: OpId, into: BlockId) {
    rw.copy_op_with(id, into, &mut |rw, inner, block| {
        if !gone.contains(&inner) {
            copy_without(rw, gone, inner, block);
        }
    });
}

/// All of some memory with its axes permuted.
fn permuted(rw: &mut Rw<'_>, mem: Value, perm: &[usize], into: BlockId, load: OpId) -> Value {
    let extent: Vec<i64> = rw.new.ty(mem).static_shape().unwrap_or_default();
    let mut build = rw.builder(into, rw.old.ops[load].loc.clone());
    let zero = build.index(0);
    let spec = OpSpec::new(StagedOp::SmemView, &[mem])
        .group("at", &vec![zero; extent.len()])
        .attr("extent", Attr::ints(extent))
        .attr("perm", Attr::ints(perm.iter().map(|&p| p as i64)));
    build.value(spec).expect("a permutation of the axes")
}
