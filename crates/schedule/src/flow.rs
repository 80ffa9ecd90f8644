//! The rules of a whole plan: memory is written before it is read, used from its first step to its
//! `sched.free`, and steps of different queues that access the same bytes are ordered.
//!
//! One walk in program order, in which each branch is taken and the body of a loop runs twice, so
//! that an iteration is compared with the accesses of the one before. More iterations show nothing new: the
//! steps and events are the same, and each queue keeps its own order. A loop inside runs twice only
//! when it is first met.
//!
//! - *Written before read*: on every path. Which bytes were written is not looked at.
//! - *Order*: of two accesses of the same bytes, one of them a write, on different queues, the later
//!   must be behind the earlier (`ordered`). Bytes are from the first to the last of a part, in all
//!   iterations of the loops that move it.
//! - *Queues*: arguments and memory are ready on the main queue, queue 0 of device 0; every other
//!   queue begins behind an event of it, and the main queue ends behind all of them.
//! - *Lifetimes*: memory that a step has accessed is returned, or freed in the block of its store,
//!   once, behind all of its uses. Memory with overlapping places is not in use together.

use crate::ordered::Order;
use crate::parts::{Access, accesses, bytes, part, place, shown, space, whole};
use crate::{Place, SchedOp, Schedule, Space};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, BlockId, Func, OpErrors, OpId, Value};
use tessera_support::Entity;

/// What comes before the plan, as a step: one more than there are ops.
const BEGIN: usize = 0;

fn number(id: OpId) -> usize {
    id.index() + 1
}

#[derive(Clone)]
struct Use {
    op: OpId,
    on: Place,
    writes: bool,
    bytes: (i64, i64),
}

/// The state of one piece of memory.
#[derive(Clone, Default)]
struct Memory {
    /// Written on every path.
    written: bool,
    /// Since its `sched.store`, on some path.
    in_use: bool,
    /// The queues that have used it since, on every path.
    begun: BTreeSet<Place>,
    /// Since its `sched.store` there was a `sched.free`.
    ended: bool,
    /// The `sched.free` that ended the last use.
    freed: Option<(OpId, Place)>,
    uses: Vec<Use>,
}

#[derive(Clone)]
struct State {
    order: Order,
    memory: BTreeMap<Value, Memory>,
}

/// Memory by its block.
type Placed = BTreeMap<(Space, i64), Vec<(Value, i64, i64)>>;

struct Flow<'f, 'e> {
    func: &'f Func<Schedule>,
    errors: &'e mut OpErrors,
    /// Each fault once, however often the walk comes by.
    seen: BTreeSet<(OpId, String)>,
    /// Memory with a place in a block, by the block: the first byte, and that behind the last.
    placed: Placed,
    state: State,
}

pub(crate) fn verify_flow(func: &Func<Schedule>, errors: &mut OpErrors) {
    let mut placed = Placed::new();
    for id in func.walk() {
        let op = &func.ops[id];
        if op.code != SchedOp::Store {
            continue;
        }
        let Some(at) = op.attr("at").and_then(Attr::as_int) else { continue };
        let size = bytes(func.ty(op.result())).unwrap_or(0);
        placed.entry(space(func, op.result())).or_default().push((op.result(), at, at + size));
    }
    let state = State { order: Order::begin(BEGIN), memory: BTreeMap::new() };
    let mut flow = Flow { func, errors, seen: BTreeSet::new(), placed, state };
    flow.block(func.body, true);
    flow.errors.at_func(func);
}

/// The line of an op, for messages.
fn line(func: &Func<Schedule>, id: OpId) -> String {
    match func.ops[id].loc.line() {
        0 => String::new(),
        line => format!(" at line {line}"),
    }
}

fn queue(at: Place) -> String {
    match at.device {
        0 => format!("queue {}", at.queue),
        device => format!("queue {} of device {device}", at.queue),
    }
}

impl Flow<'_, '_> {
    fn fault(&mut self, id: OpId, message: String) {
        if self.seen.insert((id, message.clone())) {
            self.errors.at_op(self.func, id);
            self.errors.structure(message);
        }
    }

    /// The steps of a block. `twice`: loops in it run two iterations.
    fn block(&mut self, block: BlockId, twice: bool) {
        let func = self.func;
        let ops = &func.blocks[block].ops;
        for &id in ops {
            self.step(id, twice);
        }
        for &id in ops {
            let op = &func.ops[id];
            if op.code != SchedOp::Store {
                continue;
            }
            let memory = op.result();
            let returned = func.terminator(block).is_some_and(|end| {
                func.ops[end].code == SchedOp::Return && func.ops[end].operands.contains(&memory)
            });
            if !returned && self.state.memory.get(&memory).is_some_and(|m| m.in_use) {
                let name = shown(func, memory);
                self.fault(id, format!("expected {name} to be freed in this block, or returned"));
            }
        }
    }

    fn step(&mut self, id: OpId, twice: bool) {
        let func = self.func;
        let op = &func.ops[id];
        let on = place(op);
        match op.code {
            SchedOp::Store => self.store(op.result()),
            SchedOp::Fused | SchedOp::Constant | SchedOp::View | SchedOp::Yield => {}
            SchedOp::Launch
            | SchedOp::Host
            | SchedOp::Call
            | SchedOp::Copy
            | SchedOp::Collective => self.work(id, on),
            SchedOp::Free => self.free(id, on),
            SchedOp::Record => {
                self.started(id, on);
                self.state.order.record(number(id), on);
            }
            SchedOp::Wait => {
                if let Some(event) = func.def_id(op.operands[0]) {
                    self.state.order.wait(number(event), on);
                }
            }
            SchedOp::If => {
                self.decide(id, &accesses(func, id), on);
                let before = self.state.clone();
                self.block(op.regions[0], twice);
                let then = std::mem::replace(&mut self.state, before.clone());
                self.block(op.regions[1], twice);
                self.merge(then, &before);
            }
            SchedOp::While => {
                self.test(id, twice, on);
                let before = self.state.clone();
                self.block(op.regions[1], twice);
                self.test(id, twice, on);
                if twice {
                    self.block(op.regions[1], false);
                    self.test(id, false, on);
                }
                self.merge(before.clone(), &before);
            }
            SchedOp::Loop => {
                let trip = op.attr("trip").and_then(Attr::as_int).unwrap_or(0);
                let iterations = if twice { 2 } else { 1 };
                for iteration in 0..trip.min(iterations) {
                    self.work(id, on);
                    self.block(op.regions[0], twice && iteration == 0);
                }
            }
            SchedOp::Return => {
                for access in accesses(func, id) {
                    self.access(id, &access, Place::MAIN, false);
                }
                let open: Vec<Place> = self
                    .state
                    .order
                    .queues()
                    .filter(|&q| !self.state.order.is_joined(q, Place::MAIN))
                    .collect();
                for place in open {
                    let message = format!(
                        "expected queue 0 to wait for {} before the plan ends",
                        queue(place)
                    );
                    self.fault(id, message);
                }
            }
        }
    }

    /// The memory is new: what it held before is gone.
    fn store(&mut self, memory: Value) {
        let state = self.state.memory.entry(memory).or_default();
        *state = Memory { freed: state.freed, ..Memory::default() };
    }

    /// A queue begins behind the main one.
    fn started(&mut self, id: OpId, on: Place) {
        if !self.state.order.is_before(BEGIN, Place::MAIN, on) {
            let message = format!(
                "expected {} to wait for an event of queue 0, behind which arguments and memory are ready",
                queue(on)
            );
            self.fault(id, message);
        }
    }

    fn work(&mut self, id: OpId, on: Place) {
        self.started(id, on);
        for access in accesses(self.func, id) {
            self.access(id, &access, on, true);
        }
        self.state.order.step(number(id), on);
    }

    /// The host reads values behind the work of a queue, and waits for that.
    fn decide(&mut self, id: OpId, read: &[Access], on: Place) {
        for access in read {
            self.access(id, access, on, false);
        }
        self.state.order.wait_on_host(on);
    }

    fn test(&mut self, id: OpId, twice: bool, on: Place) {
        let func = self.func;
        let region = func.ops[id].regions[0];
        self.block(region, twice);
        if let Some(end) = func.terminator(region) {
            self.decide(end, &accesses(func, end), on);
        }
    }

    /// One access of a step that is about to be given to a queue. It is noted for later steps unless
    /// the host has waited for it when they come.
    fn access(&mut self, id: OpId, access: &Access, on: Place, noted: bool) {
        let func = self.func;
        let part = part(func, access.value);
        let size = bytes(func.ty(part.of)).unwrap_or(i64::MAX);
        let range = part.bytes.unwrap_or((0, size));
        let name = shown(func, part.of);
        let made = func.def(part.of).map(|op| op.code);
        if made == Some(SchedOp::Fused) {
            let message = format!(
                "expected memory, got {name}, which is a part of kernels alone: it has none"
            );
            return self.fault(id, message);
        }
        let scratch = made == Some(SchedOp::Store);
        // There is nothing to read where there are no elements.
        if scratch && size > 0 {
            let state = self.state.memory.entry(part.of).or_default();
            if let Some((free, _)) = state.freed.filter(|_| state.ended) {
                let free = line(func, free);
                return self.fault(id, format!("expected memory in use, got {name}, freed{free}"));
            }
            if !access.writes && !state.written {
                self.fault(id, format!("expected {name} to be written before it is read"));
            }
            let state = self.state.memory.entry(part.of).or_default();
            state.in_use = true;
            // Queues that write different parts need not be ordered, but each begins behind what
            // was in the place before.
            if state.begun.insert(on) {
                self.begin(id, part.of, on);
            }
        }
        if range.0 >= range.1 {
            return;
        }
        let state = self.state.memory.entry(part.of).or_default();
        let clash = state.uses.iter().find(|u| {
            (u.writes || access.writes)
                && u.bytes.0 < range.1
                && range.0 < u.bytes.1
                && !self.state.order.is_before(number(u.op), u.on, on)
        });
        let message = clash.map(|u| {
            let does = if u.writes { "writes" } else { "reads" };
            let (queue, other) = (queue(on), queue(u.on));
            format!("expected {queue} to wait for {other}, which {does} {name}{}", line(func, u.op))
        });
        if noted {
            // A later use of the same queue stands for those that it includes.
            state.uses.retain(|u| {
                !(u.on == on
                    && (access.writes || !u.writes)
                    && range.0 <= u.bytes.0
                    && u.bytes.1 <= range.1)
            });
            state.uses.push(Use { op: id, on, writes: access.writes, bytes: range });
        }
        state.written |= access.writes;
        if let Some(message) = message {
            self.fault(id, message);
        }
    }

    /// The first use of memory by a queue: its bytes are free.
    fn begin(&mut self, id: OpId, memory: Value, on: Place) {
        let func = self.func;
        let own = self.placed.get(&space(func, memory));
        let own = own.into_iter().flatten();
        let mut overlap = vec![memory];
        if let Some(&(_, low, high)) = own.clone().find(|(v, _, _)| *v == memory) {
            let others = own.filter(|(v, a, b)| *v != memory && *a < high && low < *b);
            overlap.extend(others.map(|(v, _, _)| *v));
        }
        let mut found = Vec::new();
        for other in overlap {
            let Some(state) = self.state.memory.get(&other) else { continue };
            if other != memory && state.in_use {
                let (name, held) = (shown(func, memory), shown(func, other));
                found.push(format!("expected the place of {name} to be free, got {held} there"));
            } else if let Some((free, of)) = state.freed
                && !self.state.order.is_before(number(free), of, on)
            {
                let name = shown(func, other);
                let (mine, queue) = (queue(on), queue(of));
                found.push(format!(
                    "expected {mine} to wait for {queue}, which frees {name} in the same place{}",
                    line(func, free)
                ));
            }
        }
        found.into_iter().for_each(|message| self.fault(id, message));
    }

    fn free(&mut self, id: OpId, on: Place) {
        let func = self.func;
        self.started(id, on);
        let memory = whole(func, func.ops[id].operands[0]);
        let name = shown(func, memory);
        let state = self.state.memory.entry(memory).or_default();
        let mut found = Vec::new();
        if let Some((free, _)) = state.freed.filter(|_| state.ended) {
            found.push(format!("expected memory in use, got {name}, freed{}", line(func, free)));
        }
        let late =
            state.uses.iter().filter(|u| !self.state.order.is_before(number(u.op), u.on, on));
        for u in late {
            let (mine, other) = (queue(on), queue(u.on));
            found.push(format!(
                "expected {mine} to wait for {other}, which uses {name}{}",
                line(func, u.op)
            ));
        }
        (state.in_use, state.ended, state.freed) = (false, true, Some((id, on)));
        self.state.order.step(number(id), on);
        found.into_iter().for_each(|message| self.fault(id, message));
    }

    /// What holds after this path or another, from the same beginning.
    fn merge(&mut self, other: State, before: &State) {
        self.state.order.merge(other.order, &before.order);
        let values: BTreeSet<Value> =
            self.state.memory.keys().chain(other.memory.keys()).copied().collect();
        let none = Memory::default();
        for v in values {
            let theirs = other.memory.get(&v).unwrap_or(&none);
            let mine = self.state.memory.entry(v).or_default();
            mine.written &= theirs.written;
            mine.in_use |= theirs.in_use;
            mine.begun.retain(|on| theirs.begun.contains(on));
            mine.ended |= theirs.ended;
            mine.freed = mine.freed.or(theirs.freed);
            for u in &theirs.uses {
                let known = |m: &Use| (m.op, m.writes, m.bytes) == (u.op, u.writes, u.bytes);
                if !mine.uses.iter().any(known) {
                    mine.uses.push(u.clone());
                }
            }
        }
    }
}
