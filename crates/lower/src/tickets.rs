//! What in a kernel follows from the order in which groups take tickets.
//!
//! A **ticket** is the old value of an atomic that adds one constant to a counter. Every run hands out
//! the same tickets; the order of groups decides who gets which. A write is the same in every run if
//! its position, value and condition follow from one ticket and from nothing that tells who took it:
//! not from `program_id`, another ticket, or earlier iterations of a loop that takes tickets. What
//! other atomics find depends on the order itself, and so does memory that such writes change, but
//! for what the group owns.

use crate::facts::{is_view, read, written, yielded};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, BlockId, Op, OpId, Value};
use tessera_tile::{KernelKind, Linear, Tile, TileFunc, TileOp, kind_of, linear_of, ops};

/// What a value depends on.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// Which group it is, or which of the group's iterations.
    Group,
    /// Which lane of its group.
    Lane,
    /// A ticket, by the value that holds it. `whole` is one that all lanes of the group share.
    Ticket { held: Value, whole: bool },
    /// The order of groups.
    Order,
}

pub type Sources = BTreeSet<Source>;

/// Why what is made of some sources differs from run to run.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Differs {
    /// The order of groups decides it.
    Order,
    /// A ticket comes together with what tells who took it.
    Who,
    /// Two tickets come together.
    Tickets,
}

pub struct Flow<'f> {
    func: &'f TileFunc,
    values: BTreeMap<Value, Sources>,
    /// Of buffers and parameters that the kernel writes.
    memory: BTreeMap<Value, Sources>,
    /// Loops that take tickets.
    taking: BTreeSet<OpId>,
    /// Loop variables that hold the ticket of their iteration.
    held: BTreeSet<Value>,
    changed: bool,
}

/// Whether what is made of these differs from run to run.
pub fn differs(sources: &Sources) -> Option<Differs> {
    let mut tickets = sources.iter().filter_map(|s| match s {
        Source::Ticket { whole, .. } => Some(*whole),
        Source::Group | Source::Lane | Source::Order => None,
    });
    if sources.contains(&Source::Order) {
        return Some(Differs::Order);
    }
    let whole = tickets.next()?;
    if tickets.next().is_some() {
        return Some(Differs::Tickets);
    }
    let who = sources.contains(&Source::Group) || (!whole && sources.contains(&Source::Lane));
    who.then_some(Differs::Who)
}

fn follows(sources: &Sources) -> bool {
    sources.iter().any(|s| matches!(s, Source::Ticket { .. } | Source::Order))
}

impl<'f> Flow<'f> {
    pub fn of(func: &'f TileFunc) -> Self {
        let loops = |id: &OpId| matches!(func.ops[*id].code, TileOp::For | TileOp::While);
        let takes = |id: &OpId| {
            let within = crate::facts::subtree(func, *id).into_iter();
            within
                .filter(|&o| func.ops[o].code == TileOp::Atomic)
                .any(|o| is_view(func, func.ops[o].operands[0]) && ops::atomic::is_used(func, o))
        };
        let taking = func.walk().into_iter().filter(loops).filter(takes).collect();
        let mut flow = Self {
            func,
            values: BTreeMap::new(),
            memory: BTreeMap::new(),
            taking,
            held: BTreeSet::new(),
            changed: true,
        };
        flow.held = flow.loop_tickets();
        // Sets only ever grow, so this ends.
        while flow.changed {
            flow.changed = false;
            flow.block(func.body, &Sources::new());
        }
        flow
    }

    pub fn value(&self, value: Value) -> Sources {
        self.values.get(&value).cloned().unwrap_or_default()
    }

    /// What decides whether, and how often, a loop or branch runs.
    pub fn decides(&self, id: OpId) -> Sources {
        let op = &self.func.ops[id];
        match op.code {
            TileOp::If => self.value(op.operands[0]),
            TileOp::For => self.all(op.positional()),
            TileOp::While => match yielded(self.func, op.regions[0]).first() {
                Some(&again) => self.value(again),
                None => Sources::new(),
            },
            _ => Sources::new(),
        }
    }

    /// What a write follows from: its operands, and the conditions under which the ticket is taken
    /// already.
    pub fn write(&self, id: OpId) -> Sources {
        let mut all = self.all(&self.func.ops[id].operands);
        let anchors: Vec<Value> = all.iter().chain(&self.around(id)).filter_map(held).collect();
        let common = |around: OpId| {
            !anchors.is_empty() && anchors.iter().all(|&v| self.is_within(v, around))
        };
        for around in self.func.ancestors(self.func.ops[id].block) {
            let decides = self.decides(around);
            if follows(&decides) || !common(around) {
                all.extend(decides);
            }
        }
        all
    }

    /// Whether an atomic hands out tickets.
    pub fn is_ticket(&self, id: OpId) -> bool {
        let op = &self.func.ops[id];
        let Some(step) = self.step_of(op) else { return false };
        let memory = op.operands[0];
        let alike = |other: &Op<Tile>| {
            other.code == TileOp::Atomic && self.step_of(other).as_ref() == Some(&step)
        };
        let all = self.func.walk();
        all.iter().map(|&o| &self.func.ops[o]).all(|o| written(o) != Some(memory) || alike(o))
    }

    /// Whether an atomic leaves the same in memory in whatever order groups come, and gives nothing.
    pub fn commutes(&self, id: OpId) -> bool {
        let op = &self.func.ops[id];
        let kind = commutative(op);
        let alike = |o: &Op<Tile>| o.code == TileOp::Atomic && commutative(o) == kind;
        let memory = op.operands[0];
        op.code == TileOp::Atomic
            && kind.is_some()
            && self.func.ty(op.operands[1]).dtype().is_int()
            && !ops::atomic::is_used(self.func, id)
            && self
                .func
                .walk()
                .iter()
                .all(|&o| written(&self.func.ops[o]) != Some(memory) || alike(&self.func.ops[o]))
    }

    /// What an atomic adds to an integer in global memory, the same in every group.
    fn step_of(&self, op: &Op<Tile>) -> Option<(String, Linear)> {
        let func = self.func;
        let name = op.attr("op").and_then(Attr::as_word)?;
        let wide = !matches!(
            op.attr("scope").and_then(Attr::as_word),
            Some("thread" | "warp" | "block" | "cluster")
        );
        let value = *op.operands.get(1)?;
        let adds = matches!(name, "add" | "sub") && wide && is_view(func, op.operands[0]);
        let scalar = func.ty(value).rank() == 0 && func.ty(value).dtype().is_int();
        let fixed = adds && scalar && is_fixed(func, value);
        let is_zero = crate::facts::int_const(func, value) == Some(0);
        (fixed && !is_zero).then(|| match crate::facts::int_const(func, value) {
            Some(by) => (name.to_string(), Linear::constant(by)),
            None => (name.to_string(), linear_of(func, value)),
        })
    }

    /// Loop variables that begin with a ticket and take another in each iteration.
    fn loop_tickets(&self) -> BTreeSet<Value> {
        let func = self.func;
        let mut out = BTreeSet::new();
        for &id in &self.taking {
            let op = &func.ops[id];
            let body = *op.regions.last().expect("a loop has a body");
            let skip = usize::from(op.code == TileOp::For);
            let firsts = op.group("init").iter();
            for (place, (&init, &next)) in firsts.zip(yielded(func, body)).enumerate() {
                let own = |v: Value| self.is_within(v, id);
                let (Some(a), Some(b)) = (self.fresh(init), self.fresh(next)) else { continue };
                if own(b) && !own(a) {
                    for &region in &op.regions {
                        out.extend(func.blocks[region].args.get(skip + place));
                    }
                }
            }
        }
        out
    }

    /// The ticket that a value is computed from, and nothing else but constants.
    fn fresh(&self, value: Value) -> Option<Value> {
        let op = self.func.def(value)?;
        match op.code {
            TileOp::Atomic => {
                let id = self.id_of(value)?;
                self.is_ticket(id).then_some(value)
            }
            TileOp::Ew(_) | TileOp::Cast => {
                let mut open = op.operands.iter().filter(|&&v| !is_fixed(self.func, v));
                let one = self.fresh(*open.next()?)?;
                open.all(|&v| self.fresh(v) == Some(one)).then_some(one)
            }
            TileOp::GroupBroadcast => self.fresh(op.operands[0]),
            // `p = 0`, and one lane takes a ticket for the group.
            TileOp::If if kind_of(self.func) == Some(KernelKind::Lane) => {
                let place = op.results.iter().position(|&r| r == value)?;
                let sides = op.regions.iter().map(|&r| yielded(self.func, r)[place]);
                let mut open = sides.filter(|&v| !is_fixed(self.func, v));
                let one = self.fresh(open.next()?)?;
                open.next().is_none().then_some(one)
            }
            _ => None,
        }
    }

    fn id_of(&self, value: Value) -> Option<OpId> {
        match self.func.values[value].def {
            tessera_ir::ValueDef::Result(id, _) => Some(id),
            tessera_ir::ValueDef::Arg(..) => None,
        }
    }

    /// Whether a value is made inside a loop or branch.
    fn is_within(&self, value: Value, around: OpId) -> bool {
        let block = match self.func.values[value].def {
            tessera_ir::ValueDef::Result(id, _) => self.func.ops[id].block,
            tessera_ir::ValueDef::Arg(block, _) => block,
        };
        self.func.ancestors(block).contains(&around)
            || self.func.ops[around].regions.contains(&block)
    }

    fn all(&self, values: &[Value]) -> Sources {
        values.iter().flat_map(|&v| self.value(v)).collect()
    }

    fn around(&self, id: OpId) -> Sources {
        let around = self.func.ancestors(self.func.ops[id].block);
        around.into_iter().flat_map(|o| self.decides(o)).collect()
    }

    fn add(&mut self, value: Value, sources: Sources) {
        let known = self.values.entry(value).or_default();
        let before = known.len();
        known.extend(sources);
        self.changed |= known.len() != before;
    }

    fn block(&mut self, block: BlockId, under: &Sources) {
        for &id in &self.func.blocks[block].ops {
            self.op(id, under);
        }
    }

    fn op(&mut self, id: OpId, under: &Sources) {
        let func = self.func;
        let op = &func.ops[id];
        match op.code {
            TileOp::For | TileOp::While => self.looped(id, under),
            TileOp::If => {
                let choice = self.value(op.operands[0]);
                let inner: Sources = under.union(&choice).copied().collect();
                for &region in &op.regions {
                    self.block(region, &inner);
                    for (&from, &to) in yielded(func, region).iter().zip(&op.results) {
                        let both = self.value(from).union(&choice).copied().collect();
                        self.add(to, both);
                    }
                }
            }
            _ => self.plain(id, under),
        }
    }

    fn plain(&mut self, id: OpId, under: &Sources) {
        let func = self.func;
        let op = &func.ops[id];
        let by_lane = kind_of(func) == Some(KernelKind::Lane);
        let mut all = self.all(&op.operands);
        match op.code {
            TileOp::ProgramId => _ = all.insert(Source::Group),
            TileOp::LocalId => _ = all.insert(Source::Lane),
            TileOp::LinearId => all.extend([Source::Group, Source::Lane]),
            TileOp::Atomic if is_view(func, op.operands[0]) => {
                let mut taken: Sources =
                    op.group("at").iter().flat_map(|&v| self.value(v)).collect();
                let clean = differs(&self.around(id)).is_none();
                if self.is_ticket(id) && clean {
                    taken.insert(Source::Ticket { held: op.result(), whole: !by_lane });
                } else {
                    taken.insert(Source::Order);
                }
                self.add(op.result(), taken);
            }
            TileOp::GroupBroadcast => {
                all = self.value(op.operands[0]);
                all.remove(&Source::Lane);
                if all.iter().any(|s| matches!(s, Source::Ticket { whole: false, .. })) {
                    all.retain(|s| !matches!(s, Source::Ticket { whole: false, .. }));
                    all.insert(Source::Ticket { held: op.result(), whole: true });
                }
                all.extend(self.value(op.operands[1]));
            }
            TileOp::GroupReduce | TileOp::GroupScan | TileOp::GroupShuffle
                if all.iter().any(|s| matches!(s, Source::Ticket { whole: false, .. })) =>
            {
                all.insert(Source::Order);
            }
            _ => {}
        }
        if let Some(memory) = written(op) {
            let contents = self.written(id, memory, under);
            let known = self.memory.entry(memory).or_default();
            let before = known.len();
            known.extend(contents);
            self.changed |= known.len() != before;
        }
        if let Some(memory) = read(op) {
            all.extend(self.contents(op, memory));
        }
        if op.code != TileOp::Atomic || !is_view(func, op.operands[0]) {
            op.results.iter().for_each(|&r| self.add(r, all.clone()));
        }
    }

    /// What memory holds after a write.
    fn written(&self, id: OpId, memory: Value, under: &Sources) -> Sources {
        let op = &self.func.ops[id];
        let mut all: Sources = self.all(&op.operands).union(under).copied().collect();
        if op.code == TileOp::Atomic && (is_view(self.func, memory) || self.by_lane()) {
            all.insert(Source::Order);
        }
        // What an earlier iteration left is of another ticket.
        let crosses =
            |around: &OpId| self.taking.contains(around) && !self.is_within(memory, *around);
        let mut around = self.func.ancestors(op.block).into_iter();
        if !is_view(self.func, memory) && follows(&all) && around.any(|o| crosses(&o)) {
            all.insert(Source::Order);
        }
        all
    }

    /// What a read finds beside what its position decides.
    fn contents(&self, op: &Op<Tile>, memory: Value) -> Sources {
        let held = self.memory.get(&memory).cloned().unwrap_or_default();
        if !is_view(self.func, memory) {
            return held;
        }
        let owned = op.attr("owned").and_then(Attr::as_bool) == Some(true);
        match follows(&held) && !owned {
            true => [Source::Order].into(),
            false => Sources::new(),
        }
    }

    fn by_lane(&self) -> bool {
        kind_of(self.func) == Some(KernelKind::Lane)
    }

    fn looped(&mut self, id: OpId, under: &Sources) {
        let func = self.func;
        let op = &func.ops[id];
        let taking = self.taking.contains(&id);
        let rounds = self.decides(id);
        let inner: Sources = under.union(&rounds).copied().collect();
        let body = *op.regions.last().expect("a loop has a body");
        let skip = usize::from(op.code == TileOp::For);
        if skip == 1 {
            let mut counted = rounds.clone();
            counted.extend(taking.then_some(Source::Group));
            self.add(func.blocks[body].args[0], counted);
        }
        for &region in &op.regions {
            self.block(region, &inner);
        }
        let rounds = self.decides(id);
        let inits = op.group("init").to_vec();
        let nexts = yielded(func, body).to_vec();
        for (place, (&init, &next)) in inits.iter().zip(&nexts).enumerate() {
            let args: Vec<Value> =
                op.regions.iter().map(|&r| func.blocks[r].args[skip + place]).collect();
            let same = args.contains(&next);
            let mut carried = self.value(init);
            if self.held.contains(&args[0]) {
                carried = [Source::Ticket { held: args[0], whole: !self.by_lane() }].into();
            } else if !same {
                carried.extend(self.value(next));
                carried.extend(rounds.iter().copied().filter(|_| !taking));
                if taking {
                    let order = follows(&carried);
                    carried.insert(Source::Group);
                    carried.extend(order.then_some(Source::Order));
                }
            }
            for &arg in &args {
                self.add(arg, carried.clone());
            }
            let Some(&result) = op.results.get(place) else { continue };
            let mut left = carried;
            if !same {
                left.extend(rounds.iter().copied());
                // The last of several tickets.
                let order = taking && follows(&left);
                left.extend(order.then_some(Source::Order));
            }
            self.add(result, left);
        }
    }
}

/// The operation of an atomic whose order cannot be seen in what it leaves.
fn commutative(op: &Op<Tile>) -> Option<&str> {
    match op.attr("op").and_then(Attr::as_word)? {
        "add" | "sub" => Some("add"),
        name @ ("and" | "or" | "xor" | "max" | "min") => Some(name),
        _ => None,
    }
}

fn held(source: &Source) -> Option<Value> {
    match source {
        Source::Ticket { held, .. } => Some(*held),
        Source::Group | Source::Lane | Source::Order => None,
    }
}

/// Whether a scalar is one number for the whole launch: of constants, extents and parameters.
fn is_fixed(func: &TileFunc, value: Value) -> bool {
    let Some(op) = func.def(value) else { return func.params().contains(&value) };
    match op.code {
        TileOp::Const | TileOp::Dim | TileOp::NumPrograms | TileOp::GroupSize => true,
        TileOp::Ew(_) | TileOp::Cast => op.operands.iter().all(|&v| is_fixed(func, v)),
        _ => false,
    }
}
