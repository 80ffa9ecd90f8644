//! Interleaved MMAs, the intra-warpgroup overlap of FlashAttention-3 (section 3.2): the second MMA
//! of an iteration is issued together with the first MMA of the next one, so that the tensor cores
//! work during the softmax.
//!
//! Input: a valid function. Output: applies to a loop with two MMAs (`S = Q K^T`, `O += P V`) of
//! which the second takes what is computed from the first and adds to an accumulator that the loop
//! carries. The loop becomes a two-stage software pipeline. Each iteration waits for its first MMA
//! alone, and for the second only where its accumulator is needed.
//!
//! ```text
//!     for j { s = first(j)  p = f(s)  acc = g(acc, s)  acc = second(j, p, acc) }
//!     if any iteration {
//!         s = first(0)  p = f(s)  acc = g(acc, s)
//!         for j from 1 { issue first(j)  issue second(j - 1, p, acc)
//!                        s = first's  p = f(s)  acc = second's  acc = g(acc, s) }
//!         acc = second(last, p, acc) }
//! ```
//!
//! Other loads of an iteration to registers are issued before its MMAs, as far as registers allow.
//!
//! The pipeline of the second MMA's operand needs at least two stages, because a stage is filled in
//! its own iteration and read in the next. Consecutive loops become one sequence of iterations
//! (`cross_loop_pipelining`).

mod cross_loop_pipelining;

use super::super::{Off, Step};
use super::uses::{Users, users, yielded};
use cross_loop_pipelining::{JoinedLoops, find_joinable, join};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, BlockId, Effects, OpId, OpSpec, Opcode, Rewriter, Type, Value, ValueDef};
use tessera_numerics::ScalarFn;
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp, registers};
use tessera_tile::TileOp;

/// The least depth of a pipeline that is read an iteration later.
const LEAST: u32 = 2;
/// Registers of a thread for tiles that are loaded before the first MMA is issued. They fit beside
/// both accumulators and the weights until scores become weights.
const EARLY_WORDS: u64 = 36;

pub fn interleave(func: &StagedFunc, off: Off) -> StagedFunc {
    let users = users(func);
    let mut plans = BTreeMap::new();
    for id in func.walk() {
        if let Some(plan) = InterleavePlan::of(func, &users, id) {
            plans.insert(id, plan);
        }
    }
    if plans.is_empty() {
        return func.clone();
    }
    let fused = if off.has(Step::CrossLoopPipelining) {
        Vec::new()
    } else {
        find_joinable(func, &users, &plans)
    };
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    for &id in &func.blocks[func.body].ops {
        emit(&mut rw, &plans, &fused, id, body);
    }
    rw.new
}

type Ops = BTreeSet<OpId>;
type Rw<'f> = Rewriter<'f, Staged>;

/// A loop, and the part that each op of its body belongs to.
struct InterleavePlan {
    body: BlockId,
    /// Which of the carried values is the second MMA's accumulator.
    sums: usize,
    first: OpId,
    first_done: OpId,
    second: OpId,
    second_done: OpId,
    /// The first MMA and what it reads, up to the release of its stages.
    front: Ops,
    /// The second MMA, likewise, and the layout conversion of its left operand.
    tail: Ops,
    /// The ops that fill the pipeline that the second MMA reads.
    feed: Ops,
    /// Everything else: loads before the MMAs are issued, ops that do not need the second MMA's
    /// accumulator, and ops that do.
    early: Ops,
    /// The ops of the front that those need.
    before: Ops,
    middle: Ops,
    late: Ops,
    /// Counters of the pipeline that the second MMA reads, among the carried values.
    counters: BTreeSet<usize>,
    /// Values that the tail takes from the rest of the iteration.
    cross: Vec<Value>,
}

/// Analysis of one loop.
struct Look<'f> {
    func: &'f StagedFunc,
    users: &'f Users,
    body: BlockId,
}

impl Look<'_> {
    fn only_user(&self, v: Value) -> Option<OpId> {
        match self.users.get(&v).map(Vec::as_slice) {
            Some([(user, _)]) => Some(*user),
            _ => None,
        }
    }

    /// The op of the loop's own body that defines a value.
    fn inner(&self, v: Value) -> Option<OpId> {
        self.func.def_id(v).filter(|&id| self.func.ops[id].block == self.body)
    }

    /// The index of a carried value.
    fn carried(&self, v: Value) -> Option<usize> {
        match self.func.values[v].def {
            ValueDef::Arg(block, i) if block == self.body => i.checked_sub(1),
            _ => None,
        }
    }

    fn is_iteration(&self, v: Value) -> bool {
        matches!(self.func.values[v].def, ValueDef::Arg(block, 0) if block == self.body)
    }

    fn waits_to_end(&self, product: OpId) -> Option<OpId> {
        let done = self.only_user(self.func.ops[product].result())?;
        let op = &self.func.ops[done];
        let keep = op.attr("keep").and_then(Attr::as_int);
        let ends = op.code == StagedOp::MmaRetire && op.block == self.body && keep == Some(0);
        ends.then_some(done)
    }

    /// The pipeline that an MMA reads in this loop, if there is exactly one.
    fn pipeline(&self, product: OpId) -> Option<Value> {
        let mut pipelines = BTreeSet::new();
        for &v in &self.func.ops[product].operands[..2] {
            let mut v = v;
            while let Some(id) = self.inner(v) {
                let op = &self.func.ops[id];
                match op.code {
                    StagedOp::SmemView | StagedOp::Field => v = op.operands[0],
                    StagedOp::Wait => {
                        pipelines.insert(op.operands[0]);
                        break;
                    }
                    _ => break,
                }
            }
        }
        let enough = |pipeline: &Value| matches!(self.func.ty(*pipeline), Type::Pipeline { stages, .. } if *stages >= LEAST);
        let mut pipelines = pipelines.into_iter().filter(enough);
        pipelines.next().filter(|_| pipelines.next().is_none())
    }

    /// Ops of the body on a pipeline, of these kinds.
    fn handling(&self, pipeline: Value, codes: &[StagedOp]) -> Ops {
        let ops = self.func.blocks[self.body].ops.iter().copied();
        ops.filter(|&id| {
            let op = &self.func.ops[id];
            codes.contains(&op.code) && op.operands[0] == pipeline
        })
        .collect()
    }

    /// The counters that ops on a pipeline take, and the ops that advance them.
    fn counters(&self, ops: &Ops) -> (BTreeSet<usize>, Ops) {
        let mut counters = BTreeSet::new();
        let mut adds = Ops::new();
        let next = yielded(self.func, self.body);
        for &id in ops {
            let op = &self.func.ops[id];
            let counts = matches!(
                op.code,
                StagedOp::Wait | StagedOp::Release | StagedOp::Acquire | StagedOp::Publish
            );
            if let Some(i) = op.operands.get(1).and_then(|&v| self.carried(v)).filter(|_| counts) {
                counters.insert(i);
                adds.extend(next.get(i).and_then(|&v| self.inner(v)));
            }
        }
        (counters, adds)
    }

    /// The operands of an op and of the ops in its regions.
    fn takes(&self, id: OpId) -> Vec<Value> {
        let mut all = self.func.ops[id].operands.clone();
        for &region in &self.func.ops[id].regions {
            self.func.walk_block(region, &mut |o| all.extend(&self.func.ops[o].operands));
        }
        all
    }

    /// The op of the loop's own body that an op is, or is in a region of.
    fn outer(&self, id: OpId) -> Option<OpId> {
        let mut id = id;
        while self.func.ops[id].block != self.body {
            id = self.func.blocks[self.func.ops[id].block].parent?;
        }
        Some(id)
    }

    /// The ops, and the ops of the body that define their operands, as far as `follow` says.
    fn closed(&self, mut ops: Ops, follow: impl Fn(OpId, OpId) -> bool) -> Ops {
        let mut work: Vec<OpId> = ops.iter().copied().collect();
        while let Some(id) = work.pop() {
            for v in self.takes(id) {
                if let Some(def) = self.inner(v)
                    && follow(id, def)
                    && ops.insert(def)
                {
                    work.push(def);
                }
            }
        }
        ops
    }
}

impl InterleavePlan {
    fn of(func: &StagedFunc, users: &Users, id: OpId) -> Option<Self> {
        let op = &func.ops[id];
        if op.code != StagedOp::Tile(TileOp::For) {
            return None;
        }
        let body = op.regions[0];
        let look = Look { func, users, body };
        let mut products = Vec::new();
        func.walk_block(body, &mut |o| {
            if func.ops[o].code == StagedOp::MmaIssue {
                products.push(o);
            }
        });
        let [first, second] = products[..] else { return None };
        if [first, second].iter().any(|&p| func.ops[p].block != body) {
            return None;
        }
        let (first_done, second_done) = (look.waits_to_end(first)?, look.waits_to_end(second)?);
        let end = func.terminator(body)?;
        let next = yielded(func, body);
        let result = func.ops[second_done].result();
        let sums = next.iter().position(|&v| v == result)?;
        if look.only_user(result) != Some(end) {
            return None;
        }
        let (ours, theirs) = (look.pipeline(first)?, look.pipeline(second)?);
        if ours == theirs {
            return None;
        }
        use StagedOp::{Acquire, Fill, Publish, Release, Wait};

        // The first MMA needs nothing that the loop computes.
        let mut front = look.handling(ours, &[Acquire, Publish, Release, Wait]);
        front.extend(fills(&look, &front));
        front.extend([first, first_done]);
        let (own, adds) = look.counters(&front);
        front.extend(adds);
        let front = look.closed(front, |_, _| true);

        let left = func.ops[second].operands[0];
        let mut forms = Ops::new();
        // A cast to fewer bits moves to where the second MMA is waited for. The value that is
        // carried to the next iteration then takes fewer registers, those that the tensor cores
        // have just read.
        let mut narrowed = None;
        let mut v = left;
        while let Some(id) = look.inner(v).filter(|_| look.only_user(v).is_some()) {
            let op = &func.ops[id];
            let bits = |v: Value| func.ty(v).dtype().bits();
            match op.code {
                StagedOp::ConvertLayout => {}
                StagedOp::Tile(TileOp::Cast) if bits(op.result()) < bits(op.operands[0]) => {
                    narrowed = Some(id);
                    break;
                }
                StagedOp::Tile(TileOp::Cast) => {}
                _ => break,
            }
            forms.insert(id);
            v = op.operands[0];
        }
        let mut tail = look.handling(theirs, &[Release, Wait]);
        tail.extend([second, second_done]);
        let (counters, adds) = look.counters(&tail);
        tail.extend(adds);
        tail.extend(forms.iter().copied());
        let is_tile = |id: OpId| func.ops[id].results.iter().any(|&v| func.ty(v).is_tile());
        let tail = look.closed(tail, |_, def| !is_tile(def));

        let mut feed = look.handling(theirs, &[Acquire, Publish]);
        feed.extend(fills(&look, &feed));
        assert!(feed.iter().all(|&f| matches!(func.ops[f].code, Acquire | Publish | Fill)));
        let feed = look.closed(feed, |_, def| !front.contains(&def));

        let all: Ops = func.blocks[body].ops.iter().copied().filter(|&o| o != end).collect();
        let taken: Ops = front.iter().chain(&tail).chain(&feed).copied().collect();
        if taken.len() != front.len() + tail.len() + feed.len() {
            return None;
        }
        let rest: Ops = all.difference(&taken).copied().collect();
        let mut late = after(&look, &rest, func.blocks[body].args[sums + 1]);
        late.extend(narrowed);
        let middle: Ops = rest.difference(&late).copied().collect();
        let early = early(&look, &middle, [first, first_done]);
        let middle: Ops = middle.difference(&early).copied().collect();
        let mut before = look.closed(early.clone(), |_, def| front.contains(&def));
        before.retain(|id| front.contains(id));
        let mut cross = Vec::new();
        for &id in &tail {
            for &v in &func.ops[id].operands {
                let given = look.inner(v).is_some_and(|def| !tail.contains(&def));
                if (given || look.carried(v) == Some(sums)) && !cross.contains(&v) {
                    cross.push(v);
                }
            }
        }
        let plan = Self {
            body,
            sums,
            first,
            first_done,
            second,
            second_done,
            front,
            tail,
            feed,
            early,
            before,
            middle,
            late,
            counters,
            cross,
        };
        plan.holds(&look, &own).then_some(plan)
    }

    /// The carried values except the accumulator, which is in flight between iterations.
    fn carried(&self, func: &StagedFunc) -> Vec<usize> {
        (0..yielded(func, self.body).len()).filter(|&i| i != self.sums).collect()
    }

    /// The values that are carried between iterations: those, and what the tail takes.
    fn state(&self, func: &StagedFunc) -> Vec<Value> {
        let args = &func.blocks[self.body].args;
        let carried = self.carried(func).into_iter().map(|i| args[i + 1]);
        carried.chain(self.cross.iter().copied()).collect()
    }

    /// Whether every part uses only values that are defined when it runs.
    fn holds(&self, look: &Look<'_>, own: &BTreeSet<usize>) -> bool {
        let func = look.func;
        let takes =
            |id: &OpId, given: &dyn Fn(Value) -> bool| look.takes(*id).into_iter().all(given);
        let outside = |v: Value| {
            look.inner(v).is_none() && look.carried(v).is_none() && !look.is_iteration(v)
        };
        let part = |v: Value, ops: &Ops| look.inner(v).is_some_and(|def| ops.contains(&def));
        let counts =
            |v: Value, of: &BTreeSet<usize>| look.carried(v).is_some_and(|i| of.contains(&i));
        let front = self.front.iter().all(|id| {
            takes(id, &|v| {
                outside(v) || look.is_iteration(v) || part(v, &self.front) || counts(v, own)
            })
        });
        let feed = self.feed.iter().all(|id| {
            takes(id, &|v| {
                outside(v)
                    || look.is_iteration(v)
                    || part(v, &self.front)
                    || part(v, &self.feed)
                    || counts(v, &self.counters)
            })
        });
        let tail = self.tail.iter().all(|id| {
            takes(id, &|v| {
                outside(v)
                    || part(v, &self.tail)
                    || self.cross.contains(&v)
                    || counts(v, &self.counters)
            })
        });
        let pure = self.early.iter().chain(&self.middle).chain(&self.late).all(|&id| {
            let op = &func.ops[id];
            let effects = Opcode::info(op.code).effects;
            let slow_paths = op.code == StagedOp::Tile(TileOp::SlowPath);
            (slow_paths
                || op.regions.is_empty() && matches!(effects, Effects::Pure | Effects::Read))
                && takes(&id, &|v| {
                    !part(v, &self.tail) && !part(v, &self.feed) && !counts(v, &self.counters)
                })
        });
        // Of the tail's results, the loop yields its accumulator and counters only.
        let next = yielded(func, self.body);
        let handed = next.iter().enumerate().all(|(i, &v)| {
            !part(v, &self.feed)
                && (i == self.sums || self.counters.contains(&i) == part(v, &self.tail))
        });
        let tiles = self.cross.iter().all(|&v| func.ty(v).is_tile());
        let once = self.cross.iter().all(|&v| look.carried(v).is_none_or(|i| i == self.sums));
        front && feed && tail && pure && handed && tiles && once
    }
}

/// TMA loads into the stages that some ops acquire.
fn fills(look: &Look<'_>, ops: &Ops) -> Ops {
    let func = look.func;
    let acquired = ops.iter().filter(|&&id| func.ops[id].code == StagedOp::Acquire);
    let users =
        acquired.flat_map(|&id| look.users.get(&func.ops[id].result()).into_iter().flatten());
    users.map(|u| u.0).filter(|&id| func.ops[id].code == StagedOp::Fill).collect()
}

/// The ops of a set that depend on a value.
fn after(look: &Look<'_>, ops: &Ops, v: Value) -> Ops {
    let mut reached = Ops::new();
    let mut work = vec![v];
    while let Some(v) = work.pop() {
        for &(user, _) in look.users.get(&v).map_or(&[][..], |u| u) {
            let user = look.outer(user).filter(|user| ops.contains(user));
            if let Some(user) = user.filter(|&user| reached.insert(user)) {
                work.extend(&look.func.ops[user].results);
            }
        }
    }
    reached
}

/// The loads of an iteration that do not depend on its first MMA, in program order as many as there
/// is room for, and what they need.
fn early(look: &Look<'_>, ops: &Ops, [first, first_done]: [OpId; 2]) -> Ops {
    let func = look.func;
    let all = &func.blocks[look.body].ops;
    let waits = after(look, ops, func.ops[first_done].result());
    // Of the other parts, only ops before the first MMA have run.
    let before: Ops = all.iter().copied().take_while(|&id| id != first).collect();
    let mut room = EARLY_WORDS;
    let mut out = Ops::new();
    for &id in all.iter().filter(|&id| ops.contains(id)) {
        let op = &func.ops[id];
        if op.code != StagedOp::Tile(TileOp::Load) {
            continue;
        }
        let words = registers(func.ty(op.result())).max(1);
        let needs = look.closed(Ops::from([id]), |_, def| ops.contains(&def));
        let mut takes = needs.iter().flat_map(|&id| look.takes(id)).filter_map(|v| look.inner(v));
        let given = takes.all(|def| ops.contains(&def) || before.contains(&def));
        if words <= room && given && waits.is_disjoint(&needs) {
            room -= words;
            out.extend(needs);
        }
    }
    out
}

fn emit(
    rw: &mut Rw<'_>,
    plans: &BTreeMap<OpId, InterleavePlan>,
    all: &[JoinedLoops],
    id: OpId,
    into: BlockId,
) {
    let of = all.iter().find(|c| c.loops.contains(&id) || c.between.contains(&id));
    match (of, plans.get(&id)) {
        // The fused loop is placed where its first loop is.
        (Some(fused), _) => {
            if fused.loops[0] == id {
                join(rw, plans, fused, into);
            }
        }
        (None, Some(plan)) => interleaved(rw, plan, id, into),
        (None, None) => {
            rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, plans, all, inner, block));
        }
    }
}

fn interleaved(rw: &mut Rw<'_>, plan: &InterleavePlan, id: OpId, into: BlockId) {
    let old = rw.old;
    let op = &old.ops[id];
    let loc = op.loc.clone();
    let [lo, hi, step] = [0, 1, 2].map(|i| rw.get(op.operands[i]));
    let inits: Vec<Value> = op.group("init").iter().map(|&v| rw.get(v)).collect();
    let mut build = rw.builder(into, loc.clone());
    let any = build.ew(ScalarFn::Lt, &[lo, hi]);
    let types: Vec<Type> = op.results.iter().map(|&v| old.ty(v).clone()).collect();
    let spec = OpSpec::new(StagedOp::Tile(TileOp::If), &[any]).results(types);
    let branch = build.op(spec).expect("result types are given");
    let [some, none] = [0, 1].map(|i| rw.new.ops[branch].regions[i]);
    let begin = first_iteration(rw, plan, some, lo, &inits);
    let second = rw.builder(some, loc.clone()).ew(ScalarFn::Add, &[lo, step]);
    let results = later_iterations(rw, plan, id, some, [second, hi, step], &begin);

    // The second MMA of the last iteration.
    for (v, &r) in plan.state(old).into_iter().zip(&results) {
        rw.set(v, r);
    }
    copy(rw, plan, some, |id| plan.tail.contains(&id));
    let next = yielded(old, plan.body);
    let carried = plan.carried(old);
    let left: Vec<Value> = (0..next.len())
        .map(|i| match carried.iter().position(|&c| c == i) {
            Some(p) if !plan.counters.contains(&i) => results[p],
            _ => rw.get(next[i]),
        })
        .collect();
    rw.builder(some, loc.clone()).yield_(&left);
    rw.builder(none, loc).yield_(&inits);
    for (&v, r) in op.results.iter().zip(rw.new.ops[branch].results.clone()) {
        rw.set(v, r);
        rw.new.values[r].name = old.values[v].name.clone();
    }
}

/// The prologue: the first iteration up to its second MMA. Returns the initial values of the loop:
/// the carried values except the accumulator, and what the tail takes.
fn first_iteration(
    rw: &mut Rw<'_>,
    plan: &InterleavePlan,
    into: BlockId,
    lo: Value,
    inits: &[Value],
) -> Vec<Value> {
    let old = rw.old;
    let args = &old.blocks[plan.body].args;
    rw.set(args[0], lo);
    for (&arg, &init) in args[1..].iter().zip(inits) {
        rw.set(arg, init);
    }
    for &id in &old.blocks[plan.body].ops {
        if id == plan.first_done {
            copy(rw, plan, into, |id| plan.early.contains(&id));
        }
        let later = old.ops[id].is_terminator() || plan.tail.contains(&id);
        if !later && !plan.early.contains(&id) {
            super::first_iteration::copy(rw, id, into);
        }
    }
    let next = yielded(old, plan.body);
    let mut begin: Vec<Value> = plan
        .carried(old)
        .iter()
        .map(|&i| if plan.counters.contains(&i) { inits[i] } else { rw.get(next[i]) })
        .collect();
    begin.extend(plan.cross.iter().map(|&v| rw.get(v)));
    begin
}

/// The steady state: the iterations after the first, each with the second MMA of the one before.
/// Returns the results of the loop.
fn later_iterations(
    rw: &mut Rw<'_>,
    plan: &InterleavePlan,
    id: OpId,
    into: BlockId,
    bounds: [Value; 3],
    begin: &[Value],
) -> Vec<Value> {
    let old = rw.old;
    let op = &old.ops[id];
    let loc = op.loc.clone();
    let args = &old.blocks[plan.body].args;
    let types: Vec<Type> = begin.iter().map(|&v| rw.new.ty(v).clone()).collect();
    let mut spec = OpSpec::new(op.code, &bounds).group("init", begin);
    spec = spec.results(types.clone());
    spec.attrs = op.attrs.clone();
    let iterations = rw.builder(into, loc.clone()).op(spec).expect("result types are given");
    let to = rw.new.ops[iterations].regions[0];
    let at = rw.new.add_arg(to, Type::INDEX, old.name_of(args[0]));
    rw.set(args[0], at);
    let here: Vec<Value> = plan
        .state(old)
        .iter()
        .zip(&types)
        .map(|(&v, ty)| rw.new.add_arg(to, ty.clone(), old.name_of(v)))
        .collect();
    let carried = plan.carried(old);
    for (&i, &v) in carried.iter().zip(&here) {
        rw.set(args[i + 1], v);
    }
    one_iteration(rw, plan, to, &here[carried.len()..]);
    let next = yielded(old, plan.body);
    let mut end: Vec<Value> = carried.iter().map(|&i| rw.get(next[i])).collect();
    end.extend(plan.cross.iter().map(|&v| rw.get(v)));
    rw.builder(to, loc).yield_(&end);
    rw.new.ops[iterations].results.clone()
}

/// Copies the requested ops of the loop's body in program order.
fn copy(rw: &mut Rw<'_>, plan: &InterleavePlan, to: BlockId, wanted: impl Fn(OpId) -> bool) {
    let old = rw.old;
    for &id in &old.blocks[plan.body].ops {
        if !old.ops[id].is_terminator() && wanted(id) {
            rw.copy_op(id, to);
        }
    }
}

/// An iteration with the second MMA of the one before.
fn one_iteration(rw: &mut Rw<'_>, plan: &InterleavePlan, to: BlockId, cross: &[Value]) {
    let old = rw.old;
    let args = &old.blocks[plan.body].args;
    let place = |id: OpId| old.blocks[plan.body].ops.iter().position(|&o| o == id);
    let before = |id: OpId, product: OpId| place(id) < place(product);
    // The earliest loads; nothing waits for them yet.
    copy(rw, plan, to, |id| plan.early.contains(&id) || plan.before.contains(&id));
    copy(rw, plan, to, |id| {
        plan.front.contains(&id) && before(id, plan.first) && !plan.before.contains(&id)
    });
    // A stage that is filled now is read an iteration later.
    for &i in &plan.counters {
        let count = rw.get(args[i + 1]);
        let mut build = rw.builder(to, old.ops[plan.second].loc.clone());
        let one = build.index(1);
        let later = build.ew(ScalarFn::Add, &[count, one]);
        rw.set(args[i + 1], later);
    }
    copy(rw, plan, to, |id| plan.feed.contains(&id));
    for &i in &plan.counters {
        let later = rw.get(args[i + 1]);
        let count = rw.new.def(later).expect("it was just counted").operands[0];
        rw.set(args[i + 1], count);
    }
    for (&v, &arg) in plan.cross.iter().zip(cross) {
        rw.set(v, arg);
    }
    copy(rw, plan, to, |id| plan.tail.contains(&id) && before(id, plan.second));
    rw.copy_op(plan.first, to);
    rw.copy_op(plan.second, to);
    let done = &old.ops[plan.first_done];
    let begun = rw.get(done.operands[0]);
    let first = rw.builder(to, done.loc.clone()).mma_retire(begun, 1, false);
    rw.new.values[first].name = old.values[done.result()].name.clone();
    rw.set(done.result(), first);
    let rest =
        |id: OpId, product: OpId, done: OpId| id != product && id != done && !before(id, product);
    copy(rw, plan, to, |id| plan.front.contains(&id) && rest(id, plan.first, plan.first_done));
    copy(rw, plan, to, |id| plan.middle.contains(&id));
    rw.copy_op(plan.second_done, to);
    let sums = rw.get(old.ops[plan.second_done].result());
    copy(rw, plan, to, |id| plan.tail.contains(&id) && rest(id, plan.second, plan.second_done));
    rw.set(args[plan.sums + 1], sums);
    copy(rw, plan, to, |id| plan.late.contains(&id));
}
