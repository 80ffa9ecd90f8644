//! Cross-loop pipelining: consecutive loops with interleaved MMAs are one pipeline, for example the unmasked and the masked
//! part of causal attention.
//!
//! Input: consecutive loops that `interleave` accepts, with nothing between them that depends on
//! the first. Output: one sequence of iterations. The second MMA of one loop's last iteration is
//! issued together with the first MMA of the next loop, so the tensor cores do not drain between
//! the loops. Which loop runs the first iteration is known only at run time, so each may begin the
//! sequence:
//!
//! ```text
//!     state = inits
//!     for each loop {
//!         if any iteration { if begun by a loop before { } else { its first iteration }  its later iterations } }
//!     if begun { the second MMA of the last iteration }
//! ```

use super::{InterleavePlan, Look, Rw, copy, first_iteration, later_iterations};
use crate::stage::async_mma::uses::{Users, yielded};
use crate::stage::hoist::is_only_read;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, BlockId, Effects, OpId, OpSpec, Opcode, Type, Value, ValueDef};
use tessera_numerics::ScalarFn;
use tessera_staged::{StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// Loops that share a pipeline, in their order, and the ops between them.
pub struct JoinedLoops {
    pub loops: Vec<OpId>,
    pub between: BTreeSet<OpId>,
}

/// Operands of a loop before its carried values.
const BOUNDS: usize = 3;

pub fn find_joinable(
    func: &StagedFunc,
    users: &Users,
    plans: &BTreeMap<OpId, InterleavePlan>,
) -> Vec<JoinedLoops> {
    let mut out: Vec<JoinedLoops> = Vec::new();
    let blocks: BTreeSet<BlockId> = plans.keys().map(|&id| func.ops[id].block).collect();
    for block in blocks {
        let mut open: Option<JoinedLoops> = None;
        let mut since = Vec::new();
        for &id in &func.blocks[block].ops {
            let Some(plan) = plans.get(&id) else {
                since.push(id);
                continue;
            };
            let joined = open.as_mut().is_some_and(|fused| {
                let before = fused.loops[fused.loops.len() - 1];
                let follows = follows(func, users, (before, &plans[&before]), (id, plan))
                    && since.iter().all(|&o| is_free(func, &fused.loops, o));
                if follows {
                    fused.loops.push(id);
                    fused.between.extend(&since);
                }
                follows
            });
            if !joined {
                let next = JoinedLoops { loops: vec![id], between: BTreeSet::new() };
                out.extend(open.replace(next));
            }
            since.clear();
        }
        out.extend(open);
    }
    out.retain(|fused| fused.loops.len() > 1);
    out
}

/// Whether an op between loops can move before all of them, provided its operands can.
fn is_free(func: &StagedFunc, loops: &[OpId], id: OpId) -> bool {
    let op = &func.ops[id];
    let early = |&v: &Value| func.def_id(v).is_none_or(|def| !loops.contains(&def));
    // Loops of MMAs write no memory that others read.
    let reads = || op.code == StagedOp::Tile(TileOp::Load) && is_only_read(func, op.operands[0]);
    op.regions.is_empty()
        && (Opcode::info(op.code).effects == Effects::Pure || reads())
        && op.operands.iter().all(early)
}

/// Whether the values that a loop leaves for its last second MMA are those that the next loop
/// begins with.
fn follows(
    func: &StagedFunc,
    users: &Users,
    a: (OpId, &InterleavePlan),
    b: (OpId, &InterleavePlan),
) -> bool {
    let (first, second) = (&func.ops[a.0], &func.ops[b.0]);
    // The accumulator and counters are not defined before that MMA.
    let handed =
        |v: Value, to: usize| users.get(&v).map(Vec::as_slice) == Some(&[(b.0, BOUNDS + to)][..]);
    let counters: Vec<(usize, usize)> =
        a.1.counters.iter().copied().zip(b.1.counters.iter().copied()).collect();
    let carried = a.1.counters.len() == b.1.counters.len()
        && handed(first.results[a.1.sums], b.1.sums)
        && counters.iter().all(|&(x, y)| handed(first.results[x], y));
    if !carried || a.1.cross.len() != b.1.cross.len() {
        return false;
    }
    // The second MMAs are the same op, except for their operands.
    let mut same = BTreeMap::new();
    let (from, to) = (&func.blocks[a.1.body].args, &func.blocks[b.1.body].args);
    same.extend(counters.iter().map(|&(x, y)| (from[x + 1], to[y + 1])));
    same.extend(a.1.cross.iter().copied().zip(b.1.cross.iter().copied()));
    if same.iter().any(|(&x, &y)| func.ty(x) != func.ty(y)) {
        return false;
    }
    let tail = |plan: &InterleavePlan| -> Vec<OpId> {
        let ops = func.blocks[plan.body].ops.iter().copied();
        ops.filter(|o| plan.tail.contains(o)).collect()
    };
    let (ours, theirs) = (tail(a.1), tail(b.1));
    let outside = |v: Value| {
        let look = |body| Look { func, users, body };
        let inside = |body| look(body).inner(v).is_some() || look(body).carried(v).is_some();
        !inside(a.1.body) && !inside(b.1.body)
    };
    ours.len() == theirs.len()
        && second.group("init").len() == second.results.len()
        && ours.iter().zip(&theirs).all(|(&x, &y)| {
            let (x, y) = (&func.ops[x], &func.ops[y]);
            let taken = x.operands.iter().zip(&y.operands).all(|(&v, &w)| match same.get(&v) {
                Some(&other) => other == w,
                None => v == w && outside(v),
            });
            let given = x.results.iter().zip(&y.results).all(|(&v, &w)| func.ty(v) == func.ty(w));
            same.extend(x.results.iter().copied().zip(y.results.iter().copied()));
            x.code == y.code
                && x.attrs == y.attrs
                && x.group_lens == y.group_lens
                && x.operands.len() == y.operands.len()
                && x.results.len() == y.results.len()
                && x.regions.is_empty()
                && taken
                && given
        })
}

pub fn join(
    rw: &mut Rw<'_>,
    plans: &BTreeMap<OpId, InterleavePlan>,
    fused: &JoinedLoops,
    into: BlockId,
) {
    let old = rw.old;
    let head = fused.loops[0];
    let ops = old.blocks[old.ops[head].block].ops.iter();
    for &id in ops.filter(|id| fused.between.contains(id)) {
        rw.copy_op(id, into);
    }
    let sums = rw.get(old.ops[head].group("init")[plans[&head].sums]);
    let mut begun: Option<Value> = None;
    let mut cross: Vec<Value> = Vec::new();
    for &id in &fused.loops {
        let plan = &plans[&id];
        let op = &old.ops[id];
        let loc = op.loc.clone();
        let [lo, hi, step] = [0, 1, 2].map(|i| rw.get(op.operands[i]));
        let mut inits: Vec<Value> = op.group("init").iter().map(|&v| rw.get(v)).collect();
        inits[plan.sums] = sums;
        let kept: Vec<usize> = (0..inits.len()).filter(|&i| i != plan.sums).collect();
        let mut state: Vec<Value> = kept.iter().map(|&i| inits[i]).collect();
        // Where this loop runs the first iteration, no earlier loop had one.
        for (init, &v) in inits.iter_mut().zip(op.group("init")) {
            *init = rw.get(origin(old, &fused.loops, v));
        }
        let mut types: Vec<Type> = state.iter().map(|&v| rw.new.ty(v).clone()).collect();
        types.extend(plan.cross.iter().map(|&v| old.ty(v).clone()));
        let mut build = rw.builder(into, loc.clone());
        if cross.is_empty() {
            cross = plan.cross.iter().map(|&v| nothing(&mut build, old.ty(v))).collect();
        }
        state.extend(&cross);
        let any = build.ew(ScalarFn::Lt, &[lo, hi]);
        let spec = OpSpec::new(StagedOp::Tile(TileOp::If), &[any]).results(types.clone());
        let branch = build.op(spec).expect("result types are given");
        let [some, none] = [0, 1].map(|i| rw.new.ops[branch].regions[i]);
        let (start, begin) = match begun {
            None => {
                let begin = first_iteration(rw, plan, some, lo, &inits);
                (rw.builder(some, loc.clone()).ew(ScalarFn::Add, &[lo, step]), begin)
            }
            Some(begun) => {
                let all: Vec<Type> = [Type::INDEX].into_iter().chain(types).collect();
                let spec = OpSpec::new(StagedOp::Tile(TileOp::If), &[begun]).results(all);
                let goes_on =
                    rw.builder(some, loc.clone()).op(spec).expect("result types are given");
                let [before, alone] = [0, 1].map(|i| rw.new.ops[goes_on].regions[i]);
                let mut values = vec![lo];
                values.extend(&state);
                rw.builder(before, loc.clone()).yield_(&values);
                let begin = first_iteration(rw, plan, alone, lo, &inits);
                let start = rw.builder(alone, loc.clone()).ew(ScalarFn::Add, &[lo, step]);
                let mut values = vec![start];
                values.extend(begin);
                rw.builder(alone, loc.clone()).yield_(&values);
                let results = rw.new.ops[goes_on].results.clone();
                (results[0], results[1..].to_vec())
            }
        };
        let results = later_iterations(rw, plan, id, some, [start, hi, step], &begin);
        rw.builder(some, loc.clone()).yield_(&results);
        rw.builder(none, loc.clone()).yield_(&state);
        let results = rw.new.ops[branch].results.clone();
        for (&i, &r) in kept.iter().zip(&results) {
            rw.set(op.results[i], r);
            rw.new.values[r].name = old.values[op.results[i]].name.clone();
        }
        cross = results[kept.len()..].to_vec();
        begun = Some(match begun {
            None => any,
            Some(begun) => rw.builder(into, loc).ew(ScalarFn::Or, &[begun, any]),
        });
    }
    let (Some(&last), Some(begun)) = (fused.loops.last(), begun) else { return };
    finish(rw, &plans[&last], last, into, (begun, sums), &cross);
}

/// The value where none of the loops had an iteration.
fn origin(func: &StagedFunc, loops: &[OpId], v: Value) -> Value {
    match func.values[v].def {
        ValueDef::Result(id, i) if loops.contains(&id) => {
            origin(func, loops, func.ops[id].group("init")[i])
        }
        _ => v,
    }
}

/// The second MMA of the last iteration, if there was any.
fn finish(
    rw: &mut Rw<'_>,
    plan: &InterleavePlan,
    id: OpId,
    into: BlockId,
    (begun, sums): (Value, Value),
    cross: &[Value],
) {
    let old = rw.old;
    let op = &old.ops[id];
    let loc = op.loc.clone();
    let left: Vec<usize> = [plan.sums].into_iter().chain(plan.counters.iter().copied()).collect();
    let types: Vec<Type> = left.iter().map(|&i| old.ty(op.results[i]).clone()).collect();
    let spec = OpSpec::new(StagedOp::Tile(TileOp::If), &[begun]).results(types);
    let branch = rw.builder(into, loc.clone()).op(spec).expect("result types are given");
    let [some, none] = [0, 1].map(|i| rw.new.ops[branch].regions[i]);
    let mut unchanged = vec![sums];
    for &i in &plan.counters {
        let count = rw.get(op.results[i]);
        rw.set(old.blocks[plan.body].args[i + 1], count);
        unchanged.push(count);
    }
    for (&v, &r) in plan.cross.iter().zip(cross) {
        rw.set(v, r);
    }
    copy(rw, plan, some, |id| plan.tail.contains(&id));
    let next = yielded(old, plan.body);
    let ends: Vec<Value> = left.iter().map(|&i| rw.get(next[i])).collect();
    rw.builder(some, loc.clone()).yield_(&ends);
    rw.builder(none, loc).yield_(&unchanged);
    for (&i, r) in left.iter().zip(rw.new.ops[branch].results.clone()) {
        rw.set(op.results[i], r);
        rw.new.values[r].name = old.values[op.results[i]].name.clone();
    }
}

/// A tile that is never read.
fn nothing(build: &mut tessera_ir::Builder<'_, tessera_staged::Staged>, ty: &Type) -> Value {
    let zero = if ty.dtype().is_float() { Attr::Float(0.0) } else { Attr::Int(0) };
    build.constant(ty.clone(), zero)
}
