//! `stage-pipelines`, software pipelining with `cp.async` (multistage buffering): MMA operands are
//! copied to shared memory several iterations before their use.
//!
//! Input: a valid Staged function without pipelines. Output: in each `for` loop, the loads that are
//! used by MMAs only are fields of one pipeline. The prologue fills the first stages before the
//! loop. Each iteration waits for its own stage, starts to fill the stage that the previous
//! iteration has read, and takes its operands from shared memory. The function computes the same,
//! whatever the sizes.
//!
//! Loads for later iterations reach beyond the end of the loop. There positions may be anywhere, so
//! those that depend on the loop are checked against the extents: nothing outside is read, and the
//! stage is not used. Nothing is copied early from a parameter that the function writes.
//!
//! A loop whose loads cannot be pipelined is left alone, and `N_NOT_PIPELINED` says why.

mod pipeline_plan;

pub(crate) mod inner {
    pub use super::pipeline_plan::layout as stage_layout;
}

use super::Staging;
use pipeline_plan::{PipelinePlan, Plans, Use};
pub use pipeline_plan::{chunk_bytes, neighbour_axis};
pub(super) use pipeline_plan::{depends, writes};
use std::collections::BTreeMap;
use tessera_diag::{Diagnostics, Loc};
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Type, Value};
use tessera_numerics::ScalarFn;
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// `stages` limits the pipeline depth: fewer than 2 leave every loop as it is.
pub fn pipelines(
    func: &StagedFunc,
    staging: &Staging<'_>,
    stages: u32,
    notes: &mut Diagnostics,
) -> StagedFunc {
    let plans = pipeline_plan::plan(func, staging, stages, notes);
    if plans.pipelines.is_empty() {
        return func.clone();
    }
    let mut rw = Rewriter::new(func);
    let (body, loc) = (rw.new.body, func.loc.clone());
    let mut state = PipelineRewrite::default();
    for plan in &plans.pipelines {
        let pipeline = rw.builder(body, loc.clone()).pipeline_create(plan.ty());
        let zero = rw.builder(body, loc.clone()).index(0);
        state.pipelines.push(pipeline);
        state.counters.push(zero);
    }
    for &id in &func.blocks[func.body].ops {
        emit(&mut rw, &plans, &mut state, id, body);
    }
    rw.new
}

#[derive(Default)]
struct PipelineRewrite {
    /// The pipelines of the plans, and their current counters.
    pipelines: Vec<Value>,
    counters: Vec<Value>,
}

type Rw<'f> = Rewriter<'f, Staged>;

fn emit(rw: &mut Rw<'_>, plans: &Plans, state: &mut PipelineRewrite, id: OpId, into: BlockId) {
    if plans.gone.contains(&id) {
        return;
    }
    if let Some(pipeline) = plans.pipelines.iter().position(|p| p.loop_op == id) {
        pipelined(rw, plans, state, pipeline, into);
        return;
    }
    let inside = plans.inside(rw.old, id);
    if inside.is_empty() {
        rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, plans, state, inner, block));
        return;
    }
    // A loop around pipelined loops carries their counters.
    carrying(rw, state, &inside, id, into, &mut |rw, state, _, block| {
        let old = rw.old;
        for &inner in &old.blocks[old.ops[id].regions[0]].ops {
            emit(rw, plans, state, inner, block);
        }
    });
}

/// Copies a `for` loop that also carries the counters of `pipelines`; `body` writes its ops.
fn carrying(
    rw: &mut Rw<'_>,
    state: &mut PipelineRewrite,
    pipelines: &[usize],
    id: OpId,
    into: BlockId,
    body: &mut dyn FnMut(&mut Rw<'_>, &mut PipelineRewrite, Value, BlockId),
) {
    let old = rw.old;
    let op = &old.ops[id];
    let mut inits: Vec<Value> = op.group("init").iter().map(|&v| rw.get(v)).collect();
    inits.extend(pipelines.iter().map(|&r| state.counters[r]));
    let bounds = [0, 1, 2].map(|i| rw.get(op.operands[i]));
    let mut types: Vec<Type> = op.results.iter().map(|&v| old.ty(v).clone()).collect();
    types.extend(pipelines.iter().map(|_| Type::INDEX));
    let mut spec = OpSpec::new(op.code, &bounds).group("init", &inits).results(types);
    spec.attrs = op.attrs.clone();
    let new = rw.builder(into, op.loc.clone()).op(spec).expect("result types are given");
    let block = rw.new.ops[new].regions[0];
    rw.copy_args(op.regions[0], block);
    let position = rw.new.blocks[block].args[0];
    for &r in pipelines {
        state.counters[r] = rw.new.add_arg(block, Type::INDEX, Some("iteration"));
    }
    body(rw, state, position, block);
    if let Some(end) = rw.new.terminator(block) {
        let end = &mut rw.new.ops[end];
        end.operands.extend(pipelines.iter().map(|&r| state.counters[r]));
        end.group_lens[0] += pipelines.len();
    }
    let results = rw.new.ops[new].results.clone();
    for (&v, &r) in op.results.iter().zip(&results) {
        rw.set(v, r);
        rw.new.values[r].name = old.values[v].name.clone();
    }
    for (&r, &v) in pipelines.iter().zip(&results[op.results.len()..]) {
        state.counters[r] = v;
    }
}

fn add(rw: &mut Rw<'_>, block: BlockId, loc: &Loc, a: Value, b: Value) -> Value {
    rw.builder(block, loc.clone()).ew(ScalarFn::Add, &[a, b])
}

fn mul(rw: &mut Rw<'_>, block: BlockId, loc: &Loc, a: Value, b: Value) -> Value {
    rw.builder(block, loc.clone()).ew(ScalarFn::Mul, &[a, b])
}

fn pipelined(
    rw: &mut Rw<'_>,
    plans: &Plans,
    state: &mut PipelineRewrite,
    at: usize,
    into: BlockId,
) {
    let plan = &plans.pipelines[at];
    let old = rw.old;
    let op = &old.ops[plan.loop_op];
    let loc = op.loc.clone();
    let pipeline = state.pipelines[at];
    let first = state.counters[at];
    let [lo, step] = [0, 2].map(|i| rw.get(op.operands[i]));
    let groups = old.def(op.operands[2]).is_some_and(|d| d.code == StagedOp::Workers);
    let end = groups.then(|| rw.get(op.operands[1]));
    let ends = Ends(end.map(|end| (end, rw.builder(into, loc.clone()).index(BEYOND))));
    let ahead = rw.builder(into, loc.clone()).index(i64::from(plan.stages) - 1);
    let [zero, one] = [0, 1].map(|n| rw.builder(into, loc.clone()).index(n));

    iterations(rw, into, &loc, [zero, ahead, one], &mut |rw, iteration, block| {
        let i = add(rw, block, &loc, first, iteration);
        let moved = mul(rw, block, &loc, iteration, step);
        let position = add(rw, block, &loc, lo, moved);
        let position = ends.at(rw, block, &loc, position);
        fill(rw, plan, pipeline, i, position, true, block);
    });
    let reach = mul(rw, into, &loc, ahead, step);
    let mut carried = vec![at];
    carried.extend(plans.inside(old, plan.loop_op));
    carrying(rw, state, &carried, plan.loop_op, into, &mut |rw, state, position, block| {
        let i = state.counters[at];
        let stage = rw.builder(block, loc.clone()).wait(pipeline, i);
        let later = add(rw, block, &loc, i, ahead);
        let position = add(rw, block, &loc, position, reach);
        let position = ends.at(rw, block, &loc, position);
        fill(rw, plan, pipeline, later, position, false, block);
        read(rw, plan, stage, block);
        for &inner in &old.blocks[op.regions[0]].ops {
            if old.ops[inner].is_terminator() {
                rw.builder(block, loc.clone()).release(pipeline, i, false);
                state.counters[at] = add(rw, block, &loc, i, one);
                rw.copy_op(inner, block);
            } else if !plan.replaces(rw, inner) {
                emit(rw, plans, state, inner, block);
            }
        }
    });
    if !plan.again {
        rw.builder(into, loc).drain(pipeline);
        return;
    }
    // The loop runs again: release the stages that were filled ahead, and keep the counters.
    let next = state.counters[at];
    iterations(rw, into, &loc, [zero, ahead, one], &mut |rw, iteration, block| {
        let i = add(rw, block, &loc, next, iteration);
        rw.builder(block, loc.clone()).wait(pipeline, i);
        rw.builder(block, loc.clone()).release(pipeline, i, false);
    });
    state.counters[at] = add(rw, into, &loc, next, ahead);
}

/// More than the groups of any launch, and a number of 32 bits.
const BEYOND: i64 = u32::MAX as i64;

/// Of a loop over groups, its end, and a group that does not exist. After the end are groups of
/// other workers, which must not be loaded twice.
struct Ends(Option<(Value, Value)>);

impl Ends {
    fn at(&self, rw: &mut Rw<'_>, block: BlockId, loc: &Loc, position: Value) -> Value {
        let Some((end, beyond)) = self.0 else { return position };
        let mut build = rw.builder(block, loc.clone());
        let is_iteration = build.ew(ScalarFn::Lt, &[position, end]);
        build.select(is_iteration, position, beyond)
    }
}

/// A loop that carries nothing.
fn iterations(
    rw: &mut Rw<'_>,
    into: BlockId,
    loc: &Loc,
    bounds: [Value; 3],
    body: &mut dyn FnMut(&mut Rw<'_>, Value, BlockId),
) {
    let spec = OpSpec::new(StagedOp::Tile(TileOp::For), &bounds);
    let new = rw.builder(into, loc.clone()).op(spec).expect("it has no results");
    let block = rw.new.ops[new].regions[0];
    let iteration = rw.new.add_arg(block, Type::INDEX, None);
    body(rw, iteration, block);
    rw.builder(block, loc.clone()).yield_(&[]);
}

/// Starts to fill the stage of counter `i` with what the iteration at `position` reads. Before the
/// loop nothing is known to be in bounds: the loop may have no iterations.
fn fill(
    rw: &mut Rw<'_>,
    plan: &PipelinePlan,
    pipeline: Value,
    i: Value,
    position: Value,
    before: bool,
    block: BlockId,
) {
    let old = rw.old;
    let body = old.ops[plan.loop_op].regions[0];
    let stage = rw.builder(block, old.ops[plan.loop_op].loc.clone()).acquire(pipeline, i);
    let mut moved = BTreeMap::from([(old.blocks[body].args[0], position)]);
    for field in &plan.fields {
        let load = &old.ops[field.load];
        let at: Vec<Value> =
            load.group("at").iter().map(|&v| copied(rw, v, body, &mut moved, block)).collect();
        let src = rw.get(load.operands[0]);
        let bounds = field.moving.iter().zip(&field.checked).map(|(&moves, &checked)| {
            if moves || checked || before { "checked" } else { "inside" }
        });
        let bounds = Attr::words(bounds);
        let mut builder = rw.builder(block, load.loc.clone());
        let id = builder.fill(stage, &field.name, src, &at, &field.extent);
        rw.new.ops[id].attrs.set("bounds", bounds);
    }
    rw.builder(block, old.ops[plan.loop_op].loc.clone()).publish(pipeline, i);
}

/// A scalar of the loop's body, computed in another block: before the loop, or for another position of it.
pub(super) fn copied(
    rw: &mut Rw<'_>,
    v: Value,
    body: BlockId,
    moved: &mut BTreeMap<Value, Value>,
    block: BlockId,
) -> Value {
    if let Some(&new) = moved.get(&v) {
        return new;
    }
    let old = rw.old;
    let Some(id) = old.def_id(v).filter(|&id| old.ops[id].block == body) else {
        return rw.get(v);
    };
    let op = &old.ops[id];
    let operands: Vec<Value> =
        op.operands.iter().map(|&o| copied(rw, o, body, moved, block)).collect();
    let mut spec = OpSpec::new(op.code, &operands);
    spec.attrs = op.attrs.clone();
    let new = rw.builder(block, op.loc.clone()).one(spec, old.ty(v).clone());
    moved.insert(v, new);
    new
}

/// Maps the loads' users to fragments read from the stage, or to its memory itself.
fn read(rw: &mut Rw<'_>, plan: &PipelinePlan, stage: Value, block: BlockId) {
    let old = rw.old;
    for field in &plan.fields {
        let loc = &old.ops[field.load].loc;
        let whole = rw.builder(block, loc.clone()).field(stage, &field.name);
        let mut views: BTreeMap<Vec<i64>, Value> = BTreeMap::new();
        for used in &field.uses {
            let perm = used.perm();
            let mem = match views.get(perm) {
                Some(&mem) => mem,
                None if perm.is_sorted() => whole,
                None => turned(rw, whole, perm, block, loc),
            };
            views.insert(perm.to_vec(), mem);
            match used {
                Use::Fragment { value, casts, .. } => {
                    let ty = old.ty(*value);
                    let stored = ty.with_dtype(rw.new.ty(mem).dtype());
                    let mut tile = rw.builder(block, loc.clone()).frag_load(mem, stored);
                    for &cast in casts {
                        let op = &old.ops[cast];
                        let mut spec = OpSpec::new(op.code, &[tile]);
                        spec.attrs = op.attrs.clone();
                        let ty = ty.with_dtype(old.ty(op.result()).dtype());
                        tile = rw.builder(block, op.loc.clone()).one(spec, ty);
                    }
                    rw.new.values[tile].name = old.values[*value].name.clone();
                    rw.set(*value, tile);
                }
                Use::Memory { mem: of, .. } => rw.set(*of, mem),
            }
        }
    }
}

/// All of some memory with its axes permuted.
fn turned(rw: &mut Rw<'_>, mem: Value, perm: &[i64], block: BlockId, loc: &Loc) -> Value {
    let extent: Vec<i64> = rw.new.ty(mem).static_shape().unwrap_or_default();
    let mut builder = rw.builder(block, loc.clone());
    let zero = builder.index(0);
    let spec = OpSpec::new(StagedOp::SmemView, &[mem])
        .group("at", &vec![zero; extent.len()])
        .attr("extent", Attr::ints(extent))
        .attr("perm", Attr::ints(perm.iter().copied()));
    builder.value(spec).expect("a permutation of the axes")
}

impl PipelinePlan {
    /// Whether an op of the loop's body is replaced by the pipeline or not needed with it.
    fn replaces(&self, rw: &Rw<'_>, id: OpId) -> bool {
        let op = &rw.old.ops[id];
        self.fields.iter().any(|f| {
            f.load == id
                || f.through.contains(&id)
                || f.uses.iter().any(|u| matches!(u, Use::Fragment { value, .. } if op.results.first() == Some(value)))
        })
    }
}
