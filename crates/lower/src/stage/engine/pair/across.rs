//! One group after another, with nothing between that waits for the engine.
//!
//! Before: a persistent loop over groups, whose body has a chain of loops of two products (or one such
//! loop) and ends with what is done with their sums. After: the last second product of a group is begun
//! with the first product of the next one, and what needs its sums is done in the next group's first
//! turn, while the engine has work of the other warpgroups. The persistent loop hands on what that
//! product takes, and the few values that the end of a group takes beside its sums:
//!
//! ```text
//! for each group {
//!   if a group is open { its second product with this one's first turn   its end }
//!   else { this one's first turn }
//!   later turns, loop after loop
//!   what the end needs of this group; slots are given back }
//! if a group is open { its second product   its end }
//! ```
//!
//! Which loop has the first turn is known only when the kernel runs; a group without any turn is ended
//! at once. Groups are in no order, so that nobody can tell that one's results are stored during the
//! next.
//!
//! Not where the end of a group takes more than rows of numbers beside its sums, or reads memory after it
//! has written some: that would have to be kept, or could be seen.

use super::chain::{Chain, nothing};
use super::{Look, Plan, Rw, copy, first_turn, later_turns, one_turn};
use crate::stage::engine::flow::{Users, contains, yielded};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::Loc;
use tessera_ir::{Attr, BlockId, Effects, OpId, OpSpec, Opcode, Type, Value, ValueDef};
use tessera_numerics::ScalarFn;
use tessera_staged::{StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// How many times fewer elements than the sums have may be handed on as they are.
const SMALL: i64 = 8;

/// A persistent loop whose groups are made one sequence of turns.
pub struct Across {
    pub tiles: OpId,
    loops: Vec<OpId>,
    /// Ops between the loops, which need none of them.
    between: BTreeSet<OpId>,
    /// For each loop the place, among what the first one carries, of each value it carries.
    places: Vec<Vec<usize>>,
    /// Ops behind the loops that wait for the sums, and cheap ones that are done again for them.
    late: Vec<OpId>,
    again: Vec<OpId>,
    /// All others behind the loops.
    now: Vec<OpId>,
    /// What the late ones take of their group.
    taken: Vec<Value>,
    /// Places of the counters of the second product's ring among what the persistent loop carries.
    counters: Vec<usize>,
}

type Plans = BTreeMap<OpId, Plan>;

impl Across {
    pub fn of(func: &StagedFunc, users: &Users, plans: &Plans, chains: &[Chain]) -> Option<Self> {
        let body = &func.blocks[func.body].ops;
        let tiles = body.iter().copied().find(|&id| func.ops[id].code == StagedOp::Tiles)?;
        let block = func.ops[tiles].regions[0];
        let (loops, between) = match (chains, plans.len()) {
            ([chain], n) if chain.loops.len() == n => (chain.loops.clone(), chain.between.clone()),
            ([], 1) => (plans.keys().copied().collect(), BTreeSet::new()),
            _ => return None,
        };
        // All products are theirs.
        let alone = func.walk().iter().all(|&id| {
            func.ops[id].code != StagedOp::MmaIssue
                || loops.iter().any(|&l| contains(func, l, func.ops[id].block))
        });
        if !alone || loops.iter().any(|&id| func.ops[id].block != block) {
            return None;
        }
        let places = places(func, &loops)?;
        let (head, last) = (loops[0], loops[loops.len() - 1]);
        let look = Look { func, users, body: block };
        // Counters of the second product's ring go from group to group, and are taken by nothing else.
        let end = func.terminator(block)?;
        let mut counters = Vec::new();
        for (&from, &to) in plans[&head].counters.iter().zip(&plans[&last].counters) {
            let lead = func.ops[tiles].group("grid").len();
            let init = func.ops[head].group("init")[from];
            let ValueDef::Arg(of, i) = func.values[init].def else { return None };
            let i = i.checked_sub(lead).filter(|_| of == block)?;
            let left = func.ops[last].results[to];
            let handed = look.only_user(left) == Some(end)
                && yielded(func, block).get(i) == Some(&left)
                && look.only_user(init) == Some(head);
            if !handed {
                return None;
            }
            counters.push(i);
        }
        // The second product takes nothing of its group but what it is handed.
        let apart = plans[&head].tail.iter().all(|&id| {
            let here = |v: Value| look.inner(v).is_some() || of_block(func, v, block);
            func.ops[id].operands.iter().all(|&v| !here(v))
        });
        if !apart {
            return None;
        }
        let sums = func.ops[last].results[plans[&last].sums];
        let mut this = Self {
            tiles,
            loops,
            between,
            places,
            late: Vec::new(),
            again: Vec::new(),
            now: Vec::new(),
            taken: Vec::new(),
            counters,
        };
        this.cut(func, &look, (last, sums))?;
        this.holds(func, block).then_some(this)
    }

    /// Says of the ops behind the loops which wait for the sums.
    fn cut(&mut self, func: &StagedFunc, look: &Look<'_>, (last, sums): (OpId, Value)) -> Option<()> {
        let ops = &func.blocks[look.body].ops;
        let at = ops.iter().position(|&id| id == last)?;
        let end = func.terminator(look.body)?;
        let mut waits = BTreeSet::from([sums]);
        let mut written = false;
        for &id in ops[at + 1..].iter().filter(|&&id| id != end) {
            let op = &func.ops[id];
            let depends = look.takes(id).iter().any(|v| waits.contains(v));
            let effects = effects_of(func, id);
            let stores = effects.iter().any(|&e| writes(e));
            if handles_rings(func, id) {
                // Slots are given back when their last reader is done, which is now.
                if depends || !op.regions.is_empty() {
                    return None;
                }
            } else if depends || stores {
                waits.extend(&op.results);
                written |= stores;
                self.late.push(id);
                continue;
            } else if written && effects.contains(&Effects::Read) {
                return None;
            }
            self.now.push(id);
        }
        if func.ops[end].operands.iter().any(|v| waits.contains(v)) {
            return None;
        }
        let mut again = BTreeSet::new();
        for &id in &self.late.clone() {
            for v in look.takes(id) {
                self.take(func, look, &waits, &mut again, v, id)?;
            }
        }
        self.again = ops.iter().copied().filter(|id| again.contains(id)).collect();
        // What is done only for them is not done twice.
        let mut wanted: BTreeSet<Value> = self.taken.iter().copied().collect();
        wanted.extend(&func.ops[end].operands);
        let mut now = Vec::new();
        for &id in self.now.iter().rev() {
            let op = &func.ops[id];
            let pure = effects_of(func, id).iter().all(|&e| e == Effects::Pure);
            if !pure || op.results.iter().any(|r| wanted.contains(r)) {
                wanted.extend(look.takes(id));
                now.push(id);
            }
        }
        now.reverse();
        self.now = now;
        let elements = |v: Value| func.ty(v).static_shape().map(|s| s.iter().product::<i64>());
        let most = elements(sums)? / SMALL;
        let fits = |&v: &Value| match func.ty(v) {
            Type::Scalar(_) => true,
            ty => ty.layout().is_some() && elements(v).is_some_and(|n| n <= most),
        };
        self.taken.iter().all(fits).then_some(())
    }

    /// A value that a late op takes: it is handed on, or what gives it is done again.
    fn take(
        &mut self,
        func: &StagedFunc,
        look: &Look<'_>,
        waits: &BTreeSet<Value>,
        again: &mut BTreeSet<OpId>,
        v: Value,
        by: OpId,
    ) -> Option<()> {
        let inside = |block: BlockId| contains(func, by, block);
        let own = match func.values[v].def {
            ValueDef::Result(id, _) => inside(func.ops[id].block),
            ValueDef::Arg(block, _) => inside(block),
        };
        let here = of_block(func, v, look.body);
        if own || waits.contains(&v) || !here || self.taken.contains(&v) {
            return Some(());
        }
        let cheap = func.def_id(v).filter(|&id| {
            let elementwise = matches!(
                func.ops[id].code,
                StagedOp::Tile(
                    TileOp::Const
                        | TileOp::Iota
                        | TileOp::Broadcast
                        | TileOp::Expand
                        | TileOp::Reshape
                        | TileOp::Ew(_)
                        | TileOp::Select
                        | TileOp::Cast
                )
            );
            let is_const = func.ops[id].code == StagedOp::Tile(TileOp::Const);
            elementwise && (is_const || func.ty(v).is_tile())
        });
        match cheap {
            Some(id) => {
                if again.insert(id) {
                    for &o in &func.ops[id].operands {
                        self.take(func, look, waits, again, o, by)?;
                    }
                }
            }
            None => self.taken.push(v),
        }
        Some(())
    }

    /// Whether nothing else of the persistent loop meets the late ops in shared memory, or at barriers.
    fn holds(&self, func: &StagedFunc, block: BlockId) -> bool {
        let mut late = BTreeSet::new();
        for &id in &self.late {
            late.insert(id);
            let regions = func.ops[id].regions.iter();
            regions.for_each(|&r| func.walk_block(r, &mut |o| _ = late.insert(o)));
        }
        let memory = |v: &&Value| matches!(func.ty(**v), Type::Smem { .. });
        let theirs: BTreeSet<Value> = late
            .iter()
            .flat_map(|&id| func.ops[id].operands.iter().filter(memory).map(|&v| root(func, v)))
            .collect();
        let mut apart = true;
        func.walk_block(block, &mut |id| {
            let op = &func.ops[id];
            let meets = Opcode::info(op.code).effects == Effects::Sync
                && !is_of_ring(op.code)
                && !matches!(op.code, StagedOp::MmaIssue | StagedOp::MmaRetire | StagedOp::MmaOpen);
            let touches =
                op.operands.iter().filter(memory).any(|&v| theirs.contains(&root(func, v)));
            apart &= late.contains(&id) || !meets && !touches;
        });
        apart
    }
}

/// Where what each loop carries stands among what the first one does, if each takes all of the one
/// before.
fn places(func: &StagedFunc, loops: &[OpId]) -> Option<Vec<Vec<usize>>> {
    let count = func.ops[loops[0]].results.len();
    let mut all: Vec<Vec<usize>> = vec![(0..count).collect()];
    for pair in loops.windows(2) {
        let before = &all[all.len() - 1];
        let next: Option<Vec<usize>> = func.ops[pair[1]]
            .group("init")
            .iter()
            .map(|&v| match func.values[v].def {
                ValueDef::Result(id, i) if id == pair[0] => Some(before[i]),
                _ => None,
            })
            .collect();
        let next = next?;
        let distinct: BTreeSet<usize> = next.iter().copied().collect();
        if distinct.len() != count || next.len() != count {
            return None;
        }
        all.push(next);
    }
    Some(all)
}

/// The allocation, or whatever else, that some memory is of.
fn root(func: &StagedFunc, v: Value) -> Value {
    match func.def(v) {
        Some(op) if op.code == StagedOp::SmemView => root(func, op.operands[0]),
        _ => v,
    }
}

fn of_block(func: &StagedFunc, v: Value, block: BlockId) -> bool {
    match func.values[v].def {
        ValueDef::Result(id, _) => func.ops[id].block == block,
        ValueDef::Arg(of, _) => of == block,
    }
}

/// What an op, and what is in its regions, does.
fn effects_of(func: &StagedFunc, id: OpId) -> Vec<Effects> {
    let mut all = vec![Opcode::info(func.ops[id].code).effects];
    for &region in &func.ops[id].regions {
        func.walk_block(region, &mut |o| all.push(Opcode::info(func.ops[o].code).effects));
    }
    all
}

fn writes(effects: Effects) -> bool {
    match effects {
        Effects::Write | Effects::ReadWrite | Effects::Sync | Effects::Host => true,
        Effects::Pure | Effects::Read | Effects::Control | Effects::Terminator => false,
    }
}

fn is_of_ring(code: StagedOp) -> bool {
    use StagedOp::{Acquire, Fill, Publish, Release, Wait};
    matches!(code, Acquire | Fill | Publish | Release | Wait)
}

fn handles_rings(func: &StagedFunc, id: OpId) -> bool {
    let mut any = is_of_ring(func.ops[id].code);
    for &region in &func.ops[id].regions {
        func.walk_block(region, &mut |o| any |= is_of_ring(func.ops[o].code));
    }
    any
}

/// What is known in a turn of the persistent loop, of the new function.
struct Turn<'p> {
    across: &'p Across,
    plans: &'p Plans,
    /// Whether each loop has any turn, and where it begins.
    any: Vec<Value>,
    from: Vec<Value>,
    /// What the first loop begins with.
    inits: Vec<Value>,
    /// What the second product of the group before takes.
    cross: Vec<Value>,
    loc: Loc,
}

pub fn tiles(rw: &mut Rw<'_>, plans: &Plans, across: &Across, into: BlockId) {
    let old = rw.old;
    let op = &old.ops[across.tiles];
    let loc = op.loc.clone();
    let head = &plans[&across.loops[0]];
    let grid: Vec<Value> = op.group("grid").iter().map(|&v| rw.get(v)).collect();
    let mut inits: Vec<Value> = op.group("init").iter().map(|&v| rw.get(v)).collect();
    let own = inits.len();
    let mut build = rw.builder(into, loc.clone());
    inits.push(build.constant(Type::BOOL, Attr::Bool(false)));
    let handed: Vec<Value> = head.cross.iter().chain(&across.taken).copied().collect();
    inits.extend(handed.iter().map(|&v| nothing(&mut build, old.ty(v))));
    let types: Vec<Type> = inits.iter().map(|&v| rw.new.ty(v).clone()).collect();
    let mut spec = OpSpec::new(StagedOp::Tiles, &[]).group("grid", &grid).group("init", &inits);
    spec = spec.results(types.clone());
    spec.attrs = op.attrs.clone();
    let new = rw.builder(into, loc.clone()).op(spec).expect("result types are given");
    let (from, to) = (op.regions[0], rw.new.ops[new].regions[0]);
    rw.copy_args(from, to);
    let open = rw.new.add_arg(to, Type::BOOL, Some("open"));
    let before: Vec<Value> =
        types[own + 1..].iter().map(|ty| rw.new.add_arg(to, ty.clone(), Some("before"))).collect();
    let (cross, taken) = before.split_at(head.cross.len());

    let ops = &old.blocks[from].ops;
    let first = ops.iter().position(|&id| id == across.loops[0]).expect("it is of the body");
    let between = ops[first..].iter().filter(|id| across.between.contains(id));
    for &id in ops[..first].iter().chain(between) {
        rw.copy_op(id, to);
    }
    let turn = Turn::of(rw, plans, across, cross.to_vec(), to);

    // The first turn, with what the group before has left.
    let types = turn.types(rw);
    let state = branch(
        rw,
        (open, &types, &loc),
        to,
        |rw, some| {
            turn.first(rw, 0, some, Some(taken))
        },
        |rw, none| turn.first(rw, 0, none, None),
    );
    let state: Vec<Value> = state.into_iter().map(|v| settled(&rw.new, v)).collect();
    let (state, begun) = turn.later(rw, to, state);
    for &id in &across.now {
        rw.copy_op(id, to);
    }
    // A group without any turn has its sums already.
    let taken: Vec<Value> = across.taken.iter().map(|&v| rw.get(v)).collect();
    let zero = turn.inits[head.sums];
    let nothing_left = |_: &mut Rw<'_>, _: BlockId| Vec::new();
    branch(rw, (begun, &[], &loc), to, nothing_left, |rw, none| {
        turn.end(rw, none, zero, &taken);
        Vec::new()
    });
    let mut values: Vec<Value> = yielded(old, from).iter().map(|&v| rw.get(v)).collect();
    values.push(begun);
    values.extend(&state[state.len() - head.cross.len()..]);
    values.extend(taken);
    rw.builder(to, loc.clone()).yield_(&values);

    let results = rw.new.ops[new].results.clone();
    for (&v, &r) in op.results.iter().zip(&results) {
        rw.set(v, r);
        rw.new.values[r].name = old.values[v].name.clone();
    }
    let (cross, taken) = results[own + 1..].split_at(head.cross.len());
    let counts: Vec<Value> = across.counters.iter().map(|&i| results[i]).collect();
    let some = |rw: &mut Rw<'_>, some: BlockId| {
        let (sums, _) = tail(rw, head, some, cross, &counts);
        turn.end(rw, some, sums, taken);
        Vec::new()
    };
    branch(rw, (results[own], &[], &loc), into, some, nothing_left);
}

impl<'p> Turn<'p> {
    fn of(
        rw: &mut Rw<'_>,
        plans: &'p Plans,
        across: &'p Across,
        cross: Vec<Value>,
        to: BlockId,
    ) -> Self {
        let old = rw.old;
        let loc = old.ops[across.tiles].loc.clone();
        let (mut any, mut from) = (Vec::new(), Vec::new());
        for &id in &across.loops {
            let [lo, hi] = [0, 1].map(|i| rw.get(old.ops[id].operands[i]));
            any.push(rw.builder(to, loc.clone()).ew(ScalarFn::Lt, &[lo, hi]));
            from.push(lo);
        }
        let head = &old.ops[across.loops[0]];
        let inits = head.group("init").iter().map(|&v| rw.get(v)).collect();
        Self { across, plans, any, from, inits, cross, loc }
    }

    fn head(&self) -> &Plan {
        &self.plans[&self.across.loops[0]]
    }

    /// The types of what goes from turn to turn, in the order of the first loop.
    fn types(&self, rw: &Rw<'_>) -> Vec<Type> {
        self.head().state(rw.old).iter().map(|&v| rw.old.ty(v).clone()).collect()
    }

    /// What goes from turn to turn in the order of a loop, from that of the first, or back.
    fn ordered(&self, rw: &Rw<'_>, n: usize, state: &[Value], back: bool) -> Vec<Value> {
        let own = self.plans[&self.across.loops[n]].carried(rw.old);
        let all = self.head().carried(rw.old);
        let places = &self.across.places[n];
        let (kept, cross) = state.split_at(all.len());
        let at = |i: usize| all.iter().position(|&h| h == places[i]).expect("all have a place");
        let mut out: Vec<Value> = kept.to_vec();
        for (p, &i) in own.iter().enumerate() {
            match back {
                true => out[at(i)] = kept[p],
                false => out[p] = kept[at(i)],
            }
        }
        out.extend(cross);
        out
    }

    /// The first turn of the first loop from the `n`th on that has any; together with the second
    /// product of the group before and its end, where that has left something.
    fn first(
        &self,
        rw: &mut Rw<'_>,
        n: usize,
        into: BlockId,
        left: Option<&[Value]>,
    ) -> Vec<Value> {
        let old = rw.old;
        let Some(&id) = self.across.loops.get(n) else { return self.none(rw, into, left) };
        let types = self.types(rw);
        let turn = |rw: &mut Rw<'_>, block: BlockId| {
            let plan = &self.plans[&id];
            let inits: Vec<Value> = self.across.places[n].iter().map(|&i| self.inits[i]).collect();
            let Some(left) = left else {
                let begin = first_turn(rw, plan, block, self.from[n], &inits);
                return self.ordered(rw, n, &begin, true);
            };
            let args = &old.blocks[plan.body].args;
            rw.set(args[0], self.from[n]);
            for (&arg, &init) in args[1..].iter().zip(&inits) {
                rw.set(arg, init);
            }
            let sums = one_turn(rw, plan, block, &self.cross, Some(inits[plan.sums]));
            let next = yielded(old, plan.body);
            let mut begin: Vec<Value> =
                plan.carried(old).iter().map(|&i| rw.get(next[i])).collect();
            begin.extend(plan.cross.iter().map(|&v| rw.get(v)));
            // Here, and not where the branches meet: sums stay where they are.
            self.end(rw, block, sums, left);
            self.ordered(rw, n, &begin, true)
        };
        let other = |rw: &mut Rw<'_>, block: BlockId| self.first(rw, n + 1, block, left);
        branch(rw, (self.any[n], &types, &self.loc), into, turn, other)
    }

    /// No turn at all: the group before is still ended.
    fn none(&self, rw: &mut Rw<'_>, into: BlockId, left: Option<&[Value]>) -> Vec<Value> {
        let head = self.head();
        let kept = head.carried(rw.old);
        let mut state: Vec<Value> = kept.iter().map(|&i| self.inits[i]).collect();
        // Nobody reads what these would be.
        let sums = rw.old.blocks[head.body].args[head.sums + 1];
        let ty = rw.old.ty(sums);
        let same = |v: Value| rw.old.ty(v) == ty;
        let cross = head.cross.iter().zip(&self.cross);
        state.extend(cross.map(|(&v, &c)| if same(v) { self.inits[head.sums] } else { c }));
        if let Some(left) = left {
            let counts: Vec<Value> = head.counters.iter().map(|&i| self.inits[i]).collect();
            let (sums, counts) = tail(rw, head, into, &self.cross, &counts);
            for (i, count) in head.counters.iter().zip(counts) {
                let at = kept.iter().position(|k| k == i).expect("counters are carried");
                state[at] = count;
            }
            self.end(rw, into, sums, left);
        }
        state
    }

    /// The later turns of all loops. What they leave, and whether there was any turn.
    fn later(&self, rw: &mut Rw<'_>, to: BlockId, state: Vec<Value>) -> (Vec<Value>, Value) {
        let old = rw.old;
        let mut state = state;
        let mut begun: Option<Value> = None;
        for (n, &id) in self.across.loops.iter().enumerate() {
            let op = &old.ops[id];
            let [lo, hi, step] = [0, 1, 2].map(|i| rw.get(op.operands[i]));
            let mut build = rw.builder(to, self.loc.clone());
            // A loop that has no turn has none from its second on either.
            let mut start = build.ew(ScalarFn::Add, &[lo, step]);
            if let Some(begun) = begun {
                start = build.select(begun, lo, start);
            }
            begun = Some(match begun {
                None => self.any[n],
                Some(begun) => build.ew(ScalarFn::Or, &[begun, self.any[n]]),
            });
            let begin = self.ordered(rw, n, &state, false);
            let plan = &self.plans[&id];
            let results = later_turns(rw, plan, id, to, [start, hi, step], &begin);
            for (&i, &r) in plan.carried(old).iter().zip(&results) {
                rw.set(op.results[i], r);
                rw.new.values[r].name = old.values[op.results[i]].name.clone();
            }
            state = self.ordered(rw, n, &results, true);
        }
        (state, begun.unwrap_or(self.any[0]))
    }

    /// What is done with the sums of a group, and with what else was kept of it.
    fn end(&self, rw: &mut Rw<'_>, into: BlockId, sums: Value, taken: &[Value]) {
        let old = rw.old;
        let across = self.across;
        let last = across.loops[across.loops.len() - 1];
        let result = old.ops[last].results[self.plans[&last].sums];
        let again = across.again.iter().flat_map(|&id| old.ops[id].results.iter());
        let names: Vec<Value> = across.taken.iter().chain(again).copied().collect();
        // The names stand for the group that is ended; the turn has its own.
        let own: Vec<(Value, Value)> =
            names.into_iter().filter(|&v| rw.is_mapped(v)).map(|v| (v, rw.get(v))).collect();
        rw.set(result, sums);
        for (&v, &value) in across.taken.iter().zip(taken) {
            rw.set(v, value);
        }
        for &id in across.again.iter().chain(&across.late) {
            rw.copy_op(id, into);
        }
        own.into_iter().for_each(|(v, value)| rw.set(v, value));
    }
}

/// The second product of the last turn: its sums, and the counters behind it.
fn tail(
    rw: &mut Rw<'_>,
    plan: &Plan,
    into: BlockId,
    cross: &[Value],
    counts: &[Value],
) -> (Value, Vec<Value>) {
    let old = rw.old;
    for (&i, &count) in plan.counters.iter().zip(counts) {
        rw.set(old.blocks[plan.body].args[i + 1], count);
    }
    for (&v, &value) in plan.cross.iter().zip(cross) {
        rw.set(v, value);
    }
    copy(rw, plan, into, |id| plan.tail.contains(&id));
    let next = yielded(old, plan.body);
    let counts = plan.counters.iter().map(|&i| rw.get(next[i])).collect();
    (rw.get(old.ops[plan.second_done].result()), counts)
}

/// What a branch leaves, where all its sides leave the same.
fn settled(func: &StagedFunc, v: Value) -> Value {
    let ValueDef::Result(id, i) = func.values[v].def else { return v };
    let op = &func.ops[id];
    if op.code != StagedOp::Tile(TileOp::If) {
        return v;
    }
    let mut sides = op.regions.iter().map(|&r| settled(func, yielded(func, r)[i]));
    match (sides.next(), sides.next()) {
        (Some(a), Some(b)) if a == b => a,
        _ => v,
    }
}

/// A branch and what its sides leave.
fn branch(
    rw: &mut Rw<'_>,
    (condition, types, loc): (Value, &[Type], &Loc),
    into: BlockId,
    then: impl FnOnce(&mut Rw<'_>, BlockId) -> Vec<Value>,
    otherwise: impl FnOnce(&mut Rw<'_>, BlockId) -> Vec<Value>,
) -> Vec<Value> {
    let spec = OpSpec::new(StagedOp::Tile(TileOp::If), &[condition]).results(types.to_vec());
    let id = rw.builder(into, loc.clone()).op(spec).expect("result types are given");
    let [some, none] = [0, 1].map(|n| rw.new.ops[id].regions[n]);
    let values = then(rw, some);
    rw.builder(some, loc.clone()).yield_(&values);
    let values = otherwise(rw, none);
    rw.builder(none, loc.clone()).yield_(&values);
    rw.new.ops[id].results.clone()
}
