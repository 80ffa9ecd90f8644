//! The order of the steps of a list that are on several queues: which events each step waits for,
//! and from where on memory may be used again.
//!
//! Steps of one queue run one after another. A step waits for an event behind each step of another
//! queue that it depends on, unless what it has waited for says that already. A queue begins behind
//! the head of its list, which is on queue 0, and queue 0 ends behind all others: what is inside a step
//! (a branch, the body of a loop) begins and ends with that step, which is on queue 0.

use crate::collective::QUEUE;
use crate::forward::visit;
use crate::planner::{Array, BufferId, Origin, Plan, Step};
use std::collections::{BTreeMap, BTreeSet};

/// A point of a list: 0 is its head, on queue 0; `i + 1` is behind step `i`, on its queue.
pub type Point = usize;

pub struct Order {
    /// The queue of each step.
    queues: Vec<usize>,
    /// Before each step: on each queue, the last point that is over.
    before: Vec<Vec<Point>>,
    /// The same behind each step.
    behind: Vec<Vec<Point>>,
    /// The points that each step waits for.
    pub waits: Vec<Vec<Point>>,
    /// The points that queue 0 waits for at the end of the list.
    pub end: Vec<Point>,
    /// All points that something waits for.
    pub recorded: BTreeSet<Point>,
}

/// The queue of a step: what is not a launch, a copy or a collective is on queue 0.
pub fn queue(step: &Step) -> usize {
    match step {
        Step::Launch { queue, .. } | Step::Copy { queue, .. } => *queue,
        Step::Collective { .. } => QUEUE,
        Step::Host { .. }
        | Step::Call { .. }
        | Step::Cond { .. }
        | Step::While { .. }
        | Step::Loop { .. } => 0,
    }
}

/// Whether all steps of a list are on queue 0.
pub fn is_plain(steps: &[Step]) -> bool {
    steps.iter().all(|step| queue(step) == 0)
}

/// The first byte of an array, and that behind its last; loops may move it anywhere.
fn range(a: &Array) -> (i64, i64) {
    if !a.iterations.is_empty() {
        return (i64::MIN, i64::MAX);
    }
    let mut out = (a.offset, a.offset.saturating_add(a.dtype.bytes() as i64));
    for (&extent, &stride) in a.dims.iter().zip(&a.strides) {
        let far = (extent - 1).max(0).saturating_mul(stride);
        out = (out.0.saturating_add(far.min(0)), out.1.saturating_add(far.max(0)));
    }
    out
}

struct Use {
    step: usize,
    writes: bool,
    bytes: (i64, i64),
}

/// Whether a step is there for more than what it writes: a call of a kernel, which Python may launch,
/// and a launch that writes nothing.
fn has_effects(step: &Step) -> bool {
    let any = |steps: &[Step]| steps.iter().any(has_effects);
    match step {
        Step::Call { .. } => true,
        Step::Launch { args, .. } => args.iter().all(|a| !a.writes),
        // All ranks run one plan, so they come to their collectives in one order, whichever that is.
        Step::Host { .. } | Step::Copy { .. } | Step::Collective { .. } => false,
        Step::Cond { then, otherwise, .. } => any(then) || any(otherwise),
        Step::While { test, body, .. } => any(test) || any(body),
        Step::Loop { body, .. } => any(body),
    }
}

/// For each step the earlier ones that it depends on: both access the same bytes, and one writes; or
/// both have effects beside. Those that a dependence on a later step implies may be left out.
pub fn dependences(plan: &Plan, steps: &[Step]) -> Vec<BTreeSet<usize>> {
    let mut uses: BTreeMap<BufferId, Vec<Use>> = BTreeMap::new();
    let mut out = Vec::new();
    let mut effect = None;
    for (place, step) in steps.iter().enumerate() {
        let mut needs = BTreeSet::new();
        if has_effects(step) {
            needs.extend(effect.replace(place));
        }
        visit(step, &mut |a, writes| {
            // Nothing writes the others.
            if plan.buffers[a.buffer].origin != Origin::Scratch || a.dims.contains(&0) {
                return;
            }
            let bytes = range(a);
            let all = uses.entry(a.buffer).or_default();
            let clash = |u: &&Use| {
                (u.writes || writes) && u.bytes.0 < bytes.1 && bytes.0 < u.bytes.1 && u.step < place
            };
            needs.extend(all.iter().filter(clash).map(|u| u.step));
            if writes {
                // Who depends on one of these depends on this step.
                all.retain(|u| u.step == place || u.bytes.0 < bytes.0 || bytes.1 < u.bytes.1);
            }
            all.push(Use { step: place, writes, bytes });
        });
        out.push(needs);
    }
    out
}

fn join(into: &mut [Point], other: &[Point]) {
    into.iter_mut().zip(other).for_each(|(a, b)| *a = (*a).max(*b));
}

impl Order {
    /// `decided`: the host has waited for queue 0 before it gives out the list, as for a branch. Then all
    /// queues are behind its head.
    pub fn of(plan: &Plan, steps: &[Step], decided: bool) -> Order {
        let queues: Vec<usize> = steps.iter().map(queue).collect();
        let count = queues.iter().max().map_or(1, |most| most + 1);
        let mut out = Order {
            queues,
            before: Vec::new(),
            behind: Vec::new(),
            waits: Vec::new(),
            end: Vec::new(),
            recorded: BTreeSet::new(),
        };
        // What is over before the next step of each queue, and whether it has begun.
        let mut over = vec![vec![0; count]; count];
        let mut begun = vec![decided; count];
        begun[0] = true;
        for (place, needs) in dependences(plan, steps).into_iter().enumerate() {
            let on = out.queues[place];
            let mut waits = Vec::new();
            // Later points first: they may say what earlier ones do.
            for need in needs.into_iter().rev() {
                let of = out.queues[need];
                if of != on && over[on][of] <= need {
                    waits.push(need + 1);
                    join(&mut over[on], &out.behind[need]);
                    begun[on] = true;
                }
            }
            if !begun[on] {
                waits.push(0);
                begun[on] = true;
            }
            out.before.push(over[on].clone());
            if matches!(steps[place], Step::Cond { .. } | Step::While { .. }) {
                // The host waits for queue 0 before it gives out what is decided, and all later steps.
                let known = over[on].clone();
                over.iter_mut().for_each(|other| join(other, &known));
                begun.fill(true);
            }
            over[on][on] = place + 1;
            out.behind.push(over[on].clone());
            out.recorded.extend(&waits);
            out.waits.push(waits);
        }
        for place in (0..out.queues.len()).rev() {
            let of = out.queues[place];
            if of != 0 && over[0][of] <= place {
                out.end.push(place + 1);
                join(&mut over[0], &out.behind[place]);
            }
        }
        out.recorded.extend(&out.end);
        out
    }

    /// Whether a step is over before another begins.
    pub fn is_before(&self, step: usize, next: usize) -> bool {
        self.before[next][self.queues[step]] > step
    }

    /// The first step behind which, on its queue, all of these are over; none where that is only at
    /// the end of the list.
    pub fn all_over(&self, steps: &[usize]) -> Option<usize> {
        let last = *steps.iter().max()?;
        let is_over = |at: usize| steps.iter().all(|&s| self.behind[at][self.queues[s]] > s);
        (last..self.queues.len()).find(|&at| is_over(at))
    }
}
