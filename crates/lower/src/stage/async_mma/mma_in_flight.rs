//! MMA in flight across iterations: iteration *i* issues its WGMMA, then waits for that of *i - 1*
//! and releases the pipeline stage that it read. So the tensor cores are not idle between
//! iterations.
//!
//! Input: a valid function in which each iteration waits for its MMA. Output: applies to a loop
//! whose only MMA adds to an accumulator that the loop carries and nothing else in the loop uses.
//! The loop carries the accumulator as pending; the last MMA is waited for after the loop. A loop
//! may have no iterations, and then no stage is released after it.
//!
//! Several consumer warpgroups can keep the tensor cores busy for each other. Where stages are few,
//! or the MMAs of an iteration are long enough, each iteration waits for its own MMA and releases
//! its stage immediately, which leaves one more stage for loads in flight. MMAs with promotion of
//! fp8 sums are complete when they return, and are left alone.

use super::uses::{Users, users};
use super::{GROUP, budget};
use std::collections::BTreeMap;
use std::ops::Range;
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Type, Value, ValueDef};
use tessera_numerics::ScalarFn;
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;
use tessera_tile::ops::mma::is_promoted;

/// The least pipeline depth for a release that is one iteration late: with one warpgroup, whose
/// tensor cores would be idle otherwise, and with several.
const LEAST: [u32; 2] = [3, 4];
/// Clocks of other warpgroups' MMAs that cover the time from the end of an MMA to the issue of the
/// next. With 256 clocks, iterations that wait for their own MMA were 4 to 6% faster; with 128, 5%
/// slower; with 512 there was no difference, and longer ones are left alone (docs/perf/untuned.md).
const COVER: Range<u64> = 256..384;

pub fn keep_in_flight(func: &StagedFunc, warps: u32) -> StagedFunc {
    let groups = u64::from(warps.div_ceil(GROUP));
    let users = users(func);
    let mut plans = BTreeMap::new();
    for id in func.walk() {
        if let Some(plan) = plan(func, &users, id, groups) {
            plans.insert(id, plan);
        }
    }
    if plans.is_empty() {
        return func.clone();
    }
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    for &id in &func.blocks[func.body].ops {
        emit(&mut rw, &plans, id, body);
    }
    rw.new
}

/// A loop whose accumulator is carried in flight.
struct InFlightPlan {
    /// Which of the carried values.
    sums: usize,
    open: OpId,
    retire: OpId,
    /// Releases of what the MMA reads, each with the carried value that is its counter.
    releases: Vec<(OpId, usize)>,
    /// Each iteration waits for its own MMA.
    own_wait: bool,
}

fn plan(func: &StagedFunc, users: &Users, id: OpId, groups: u64) -> Option<InFlightPlan> {
    let several = groups > 1;
    let op = &func.ops[id];
    if op.code != StagedOp::Tile(TileOp::For) {
        return None;
    }
    let body = op.regions[0];
    let mut issues = Vec::new();
    func.walk_block(body, &mut |o| {
        if func.ops[o].code == StagedOp::MmaIssue {
            issues.push(o);
        }
    });
    let [issue] = issues[..] else { return None };
    let only_user = |v: Value| match users.get(&v).map(Vec::as_slice) {
        Some([(user, _)]) => Some(*user),
        _ => None,
    };
    let carried = |v: Value| match func.values[v].def {
        ValueDef::Arg(block, i) if block == body => i.checked_sub(1),
        _ => None,
    };
    let product = &func.ops[issue];
    let [a, b, acc] = [0, 1, 2].map(|i| product.operands[i]);
    if is_promoted(func.ty(a).dtype(), product.attr("class").and_then(Attr::as_word)) {
        return None;
    }
    let open = func.def_id(acc).filter(|&o| func.ops[o].code == StagedOp::MmaOpen)?;
    let sums = carried(func.ops[open].operands[0])?;
    let retire = only_user(product.result())?;
    let keeps = func.ops[retire].attr("keep").and_then(Attr::as_int);
    let end = func.terminator(body)?;
    let alone = product.block == body
        && func.ops[retire].code == StagedOp::MmaRetire
        && keeps == Some(0)
        && only_user(func.ops[open].operands[0]) == Some(open)
        && only_user(func.ops[retire].result()) == Some(end)
        && func.ops[end].group("values").get(sums) == Some(&func.ops[retire].result());
    // A register operand must not change before the MMA is complete.
    if !alone || !matches!(func.ty(a), Type::Smem { .. }) {
        return None;
    }
    let mut releases = Vec::new();
    let others = budget::mma_clocks(func, issue) * (groups - 1) / groups;
    let mut own_wait = several && COVER.contains(&others);
    for mem in [a, b] {
        let (pipeline, wait) = pipeline_of(func, mem)?;
        if func.ops[wait].block != body {
            continue;
        }
        let release = func.blocks[body].ops.iter().copied().find(|&o| {
            func.ops[o].code == StagedOp::Release && func.ops[o].operands[0] == pipeline
        })?;
        let Type::Pipeline { stages, .. } = func.ty(pipeline) else { return None };
        if *stages < LEAST[usize::from(several)] {
            if !several {
                return None;
            }
            own_wait = true;
        }
        let iteration = carried(func.ops[release].operands[1])?;
        if !releases.contains(&(release, iteration)) {
            releases.push((release, iteration));
        }
    }
    Some(InFlightPlan { sums, open, retire, releases, own_wait })
}

/// The pipeline that a stage's memory belongs to, and the op that waited for the stage.
fn pipeline_of(func: &StagedFunc, mem: Value) -> Option<(Value, OpId)> {
    let id = func.def_id(mem)?;
    let op = &func.ops[id];
    match op.code {
        StagedOp::SmemView | StagedOp::Field => pipeline_of(func, op.operands[0]),
        StagedOp::Wait => Some((op.operands[0], id)),
        _ => None,
    }
}

type Rw<'f> = Rewriter<'f, Staged>;

fn emit(rw: &mut Rw<'_>, plans: &BTreeMap<OpId, InFlightPlan>, id: OpId, into: BlockId) {
    match plans.get(&id) {
        Some(plan) => in_flight(rw, plan, id, into),
        None => {
            rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, plans, inner, block));
        }
    }
}

fn in_flight(rw: &mut Rw<'_>, plan: &InFlightPlan, id: OpId, into: BlockId) {
    let old = rw.old;
    let op = &old.ops[id];
    let loc = op.loc.clone();
    let mut inits: Vec<Value> = op.group("init").iter().map(|&v| rw.get(v)).collect();
    inits[plan.sums] = rw.builder(into, loc.clone()).mma_open(inits[plan.sums]);
    let bounds: Vec<Value> = op.positional().iter().map(|&v| rw.get(v)).collect();
    let types: Vec<Type> = inits.iter().map(|&v| rw.new.ty(v).clone()).collect();
    let mut spec = OpSpec::new(op.code, &bounds).group("init", &inits).results(types.clone());
    spec.attrs = op.attrs.clone();
    let new = rw.builder(into, loc.clone()).op(spec).expect("result types are given");
    let (from, to) = (op.regions[0], rw.new.ops[new].regions[0]);
    for (i, &arg) in old.blocks[from].args.iter().enumerate() {
        let ty = i.checked_sub(1).map_or(Type::INDEX, |i| types[i].clone());
        let value = rw.new.add_arg(to, ty, old.name_of(arg));
        rw.set(arg, value);
    }
    for &inner in &old.blocks[from].ops {
        let inner_op = &old.ops[inner];
        if inner == plan.open {
            let sums = rw.get(inner_op.operands[0]);
            rw.set(inner_op.result(), sums);
        } else if inner == plan.retire {
            let pending = rw.get(inner_op.operands[0]);
            let mut build = rw.builder(to, inner_op.loc.clone());
            let kept = match plan.own_wait {
                false => build.mma_retire(pending, 1, true),
                true => {
                    let tile = build.mma_retire(pending, 0, false);
                    build.mma_open(tile)
                }
            };
            rw.set(inner_op.result(), kept);
        } else if !plan.own_wait && plan.releases.iter().any(|r| r.0 == inner) {
            let [pipeline, i] = [0, 1].map(|n| rw.get(inner_op.operands[n]));
            let mut build = rw.builder(to, inner_op.loc.clone());
            let before = one_less(&mut build, i);
            build.release(pipeline, before, true);
        } else {
            rw.copy_op(inner, to);
        }
    }
    let results = rw.new.ops[new].results.clone();
    let mut build = rw.builder(into, loc.clone());
    let tile = build.mma_retire(results[plan.sums], 0, false);
    for (i, (&v, &r)) in op.results.iter().zip(&results).enumerate() {
        let value = if i == plan.sums { tile } else { r };
        rw.set(v, value);
        rw.new.values[value].name = old.values[v].name.clone();
    }
    for &(release, iteration) in plan.releases.iter().filter(|_| !plan.own_wait) {
        let pipeline = rw.get(old.ops[release].operands[0]);
        let mut build = rw.builder(into, loc.clone());
        let any = build.ew(ScalarFn::Lt, &[inits[iteration], results[iteration]]);
        let spec = OpSpec::new(StagedOp::Tile(TileOp::If), &[any]).results(Vec::new());
        let branch = build.op(spec).expect("it has no results");
        let [then, otherwise] = [0, 1].map(|n| rw.new.ops[branch].regions[n]);
        let mut build = rw.builder(then, loc.clone());
        let last = one_less(&mut build, results[iteration]);
        build.release(pipeline, last, false);
        build.yield_(&[]);
        rw.builder(otherwise, loc.clone()).yield_(&[]);
    }
}

fn one_less(build: &mut tessera_ir::Builder<'_, Staged>, i: Value) -> Value {
    let one = build.index(1);
    build.ew(ScalarFn::Sub, &[i, one])
}
