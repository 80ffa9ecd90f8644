//! The async_mma is never idle between iterations.
//!
//! Before: a valid function in which each iteration of a loop waits for its product. After: in a loop whose
//! only product adds to a tile that the loop carries and nothing else looks at, the tile is carried
//! pending. An iteration begins its product, waits for that of the iteration before and then gives back the stage
//! which that one read; the last is waited for behind the loop. A loop may have no iterations: then there
//! is nothing to give back. Where several warpgroups multiply, and stages are few or the products of an iteration
//! long enough, these keep the tensor cores busy for each other: an iteration then waits for its own product and gives its
//! stage back at once, so that the pipeline has one more on its way. Products
//! whose sums are added apart are done when they return, and are left as they are.

use super::uses::{Users, users};
use super::{GROUP, budget};
use std::collections::BTreeMap;
use std::ops::Range;
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Type, Value, ValueDef};
use tessera_numerics::ScalarFn;
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;
use tessera_tile::ops::mma::is_promoted;

/// Stages below which a stage that is given back an iteration later would be missed: by one warpgroup, whose
/// async_mma would be idle otherwise, and by several.
const LEAST: [u32; 2] = [3, 4];
/// Clocks of other warpgroups' products that cover the way of one from the end of its product to the next. With 256, iterations that
/// wait for their own product were 4 to 6% quicker; with 128, 5% slower; with 512 there was no difference, and longer ones are left
/// as they are (docs/perf/untuned.md).
const COVER: Range<u64> = 256..384;

pub fn rotate(func: &StagedFunc, warps: u32) -> StagedFunc {
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

/// A loop whose sums are carried pending.
struct InFlightPlan {
    /// Which of the carried values.
    sums: usize,
    open: OpId,
    retire: OpId,
    /// Releases of what the product reads, each with the carried value that is its counter.
    releases: Vec<(OpId, usize)>,
    /// Each iteration waits for its own product.
    at_once: bool,
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
    // What a product reads in registers must not change before it is done.
    if !alone || !matches!(func.ty(a), Type::Smem { .. }) {
        return None;
    }
    let mut releases = Vec::new();
    let others = budget::product_clocks(func, issue) * (groups - 1) / groups;
    let mut at_once = several && COVER.contains(&others);
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
            at_once = true;
        }
        let iteration = carried(func.ops[release].operands[1])?;
        if !releases.contains(&(release, iteration)) {
            releases.push((release, iteration));
        }
    }
    Some(InFlightPlan { sums, open, retire, releases, at_once })
}

/// The pipeline whose stage some memory is of, and the op that waited for it.
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
        Some(plan) => rotated(rw, plan, id, into),
        None => {
            rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, plans, inner, block));
        }
    }
}

fn rotated(rw: &mut Rw<'_>, plan: &InFlightPlan, id: OpId, into: BlockId) {
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
            let kept = match plan.at_once {
                false => build.mma_retire(pending, 1, true),
                true => {
                    let tile = build.mma_retire(pending, 0, false);
                    build.mma_open(tile)
                }
            };
            rw.set(inner_op.result(), kept);
        } else if !plan.at_once && plan.releases.iter().any(|r| r.0 == inner) {
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
    for &(release, iteration) in plan.releases.iter().filter(|_| !plan.at_once) {
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
