//! List scheduling: independent steps of a plan run on several queues of its device.
//!
//! - *Before*: all steps are on queue 0.
//! - *After*: each list of steps is in an order that keeps all dependences, and its launches and copies
//!   are on queues below [`Queues::most`]. Branches, loops, calls of kernels and steps of the host
//!   stay on queue 0; what is inside them is scheduled for itself. Which events that needs follows from
//!   the queues (`order`), and the verifier of Schedule IR checks the whole.
//! - *Not changed*: what is computed, to the bit. Steps that run together access no common bytes.
//!
//! The order is that of critical-path scheduling (HLFET: T. L. Adam, K. M. Chandy, J. R. Dickson, "A
//! comparison of list schedules for parallel processing systems"): of the steps that may begin first,
//! the one with the longest path behind it. A launch occupies the fraction of the processors that its
//! groups fill, and launches run together only as far as there is room: what fills the machine gains
//! nothing beside others. The host needs time for each launch and each event, so that short launches
//! stay on one queue. A list is changed only where the result is predicted to be shorter by
//! [`GAIN`].

use crate::forward::{inner_lists, visit};
use crate::order::{dependences, is_plain};
use crate::overlap::has_collectives;
use crate::planner::{Plan, Step};
use crate::text::check;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tessera_cost::{Counts, Launch, Requested, estimate};
use tessera_diag::Diagnostics;
use tessera_target::speed::Speed;

/// What decides about queues.
#[derive(Copy, Clone, Debug)]
pub struct Queues<'a> {
    /// How many there are.
    pub most: usize,
    /// The machine that it is to pay on; without one, independent steps are on different queues
    /// wherever they are.
    pub speed: Option<&'a Speed>,
}

/// Of the steps that may begin, as many are compared: those with the longest paths behind them.
const WINDOW: usize = 32;
/// Launches of at most this fraction of the machine leave room for another.
const SMALL: f64 = 0.5;
/// The predicted gain that events, memory and streams of a further queue are worth.
const GAIN: f64 = 0.1;
/// Seconds of the host for a launch, and for recording or waiting for an event (docs/perf/nvidia.md,
/// here and below).
const ISSUE: f64 = 3.1e-6;
const EVENT: f64 = 0.8e-6;
/// Seconds from the end of a step to the begin of the next of its queue, and how much more to that of
/// one on another queue that waits for it.
const NEXT: f64 = 0.7e-6;
const HANDOVER: f64 = 0.1e-6;

/// Puts steps on queues; a plan that results is checked.
pub fn queues(plan: &mut Plan, how: &Queues<'_>) -> Result<(), Diagnostics> {
    // A rank's program has a queue for its collectives, and its order is that of `overlap`.
    if how.most < 2 || plan.steps.iter().any(has_collectives) {
        return Ok(());
    }
    let steps = std::mem::take(&mut plan.steps);
    let mut spread = Spread { plan, how, known: BTreeMap::new(), changed: false };
    let steps = spread.list(steps);
    let changed = spread.changed;
    plan.steps = steps;
    if changed { check(plan) } else { Ok(()) }
}

/// What a step takes.
#[derive(Copy, Clone)]
struct Cost {
    seconds: f64,
    /// The fraction of the machine that it occupies.
    share: f64,
    /// It stays on queue 0.
    fixed: bool,
}

struct Spread<'a> {
    plan: &'a Plan,
    how: &'a Queues<'a>,
    /// The seconds of launches, by kernel and grid.
    known: BTreeMap<(usize, [i64; 3]), f64>,
    changed: bool,
}

impl Spread<'_> {
    fn list(&mut self, steps: Vec<Step>) -> Vec<Step> {
        let mut steps = steps;
        for inner in steps.iter_mut().flat_map(inner_lists) {
            *inner = self.list(std::mem::take(inner));
        }
        let Some(found) = self.schedule(&steps) else { return steps };
        let mut left: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
        let mut out = Vec::new();
        for (place, on) in found {
            let Some(mut step) = left[place].take() else { continue };
            if let Step::Launch { queue, .. } | Step::Copy { queue, .. } = &mut step {
                *queue = on;
            }
            out.push(step);
        }
        self.changed |= !is_plain(&out);
        out
    }

    /// The steps of a list in their new order, with their queues; none where the list stays.
    fn schedule(&mut self, steps: &[Step]) -> Option<Vec<(usize, usize)>> {
        // Before anything is counted: are there two launches that have room beside each other?
        let is_small: Vec<bool> = steps.iter().map(|s| self.share(s) <= SMALL).collect();
        if is_small.iter().filter(|small| **small).count() < 2 {
            return None;
        }
        let needs = dependences(self.plan, steps);
        let mut depth: Vec<usize> = Vec::new();
        for list in &needs {
            depth.push(list.iter().map(|&n| depth[n] + 1).max().unwrap_or(0));
        }
        if depth.iter().max().is_some_and(|&most| most + 1 == steps.len()) {
            return None;
        }
        let costs: Vec<Cost> = steps.iter().map(|step| self.cost(step)).collect();
        // At best these take no time.
        let all: f64 = costs.iter().map(|cost| cost.seconds).sum();
        let beside = costs.iter().zip(&is_small).filter(|(_, small)| **small);
        if beside.map(|(cost, _)| cost.seconds).sum::<f64>() < GAIN * all {
            return None;
        }
        let events = match self.how.speed {
            Some(_) => Times { issue: ISSUE, event: EVENT, handover: HANDOVER },
            None => Times { issue: 0.0, event: 0.0, handover: 0.0 },
        };
        let (found, seconds) = assign(&needs, &costs, self.how.most, events);
        let serial = costs.iter().fold((0.0, 0.0), |(issued, over): (f64, f64), cost| {
            let issued = issued + events.issue;
            (issued, over.max(issued) + cost.seconds)
        });
        let pays = self.how.speed.is_none() || seconds < (1.0 - GAIN) * serial.1;
        (pays && found.iter().any(|(_, on)| *on != 0)).then_some(found)
    }

    /// The fraction of the machine that a step occupies.
    fn share(&self, step: &Step) -> f64 {
        let Some(speed) = self.how.speed else { return 0.0 };
        match step {
            Step::Launch { grid, .. } => {
                let groups = grid.iter().map(|&n| n.max(0) as f64).product::<f64>();
                (groups / speed.processors.max(1) as f64).min(1.0)
            }
            // The part of its time in which it moves something.
            Step::Copy { to, .. } => {
                let seconds = bytes(to) / speed.memory;
                seconds / (seconds + speed.launch)
            }
            Step::Host { .. }
            | Step::Call { .. }
            | Step::Collective { .. }
            | Step::Cond { .. }
            | Step::While { .. }
            | Step::Loop { .. } => 1.0,
        }
    }

    fn cost(&mut self, step: &Step) -> Cost {
        let fixed = !matches!(step, Step::Launch { .. } | Step::Copy { .. });
        let Some(speed) = self.how.speed else { return Cost { seconds: 1.0, share: 0.0, fixed } };
        let seconds = match step {
            Step::Launch { kernel, grid, domain, lanes, .. } => {
                let launch = (*kernel, *grid, *domain, *lanes);
                match self.known.get(&(*kernel, *grid)) {
                    Some(&seconds) => seconds,
                    None => {
                        let seconds = self.launch(launch, step, speed);
                        self.known.insert((*kernel, *grid), seconds);
                        seconds
                    }
                }
            }
            Step::Copy { to, .. } => NEXT + 2.0 * bytes(to) / speed.memory,
            Step::Host { .. } | Step::Call { .. } | Step::Collective { .. } => speed.launch,
            Step::Cond { then, otherwise, .. } => self.all(then).max(self.all(otherwise)),
            Step::While { test, body, .. } => self.all(test) + self.all(body),
            Step::Loop { trip, body, .. } => *trip as f64 * self.all(body),
        };
        Cost { seconds, share: self.share(step), fixed }
    }

    fn all(&mut self, steps: &[Step]) -> f64 {
        steps.iter().map(|step| self.cost(step).seconds).sum()
    }

    /// By the cost model; by the bytes that a kernel accesses where that cannot count it, and for
    /// launches that are alone in any case: counting many groups takes a while.
    fn launch(
        &self,
        (kernel, grid, domain, lanes): (usize, [i64; 3], [i64; 3], i64),
        step: &Step,
        speed: &Speed,
    ) -> f64 {
        let dims = BTreeMap::new();
        let launch = Launch { dims: &dims, grid, domain, lanes };
        let counts = match self.share(step) <= SMALL {
            true => Counts::of(&self.plan.kernels[kernel], &launch),
            false => Err(String::new()),
        };
        match counts {
            // A launch by itself takes the host too, which is counted apart.
            Ok(counts) => {
                NEXT + estimate(&counts, Requested::default(), speed).seconds - speed.launch
            }
            Err(_) => {
                let mut moved = 0.0;
                visit(step, &mut |a, _| moved += bytes(a));
                NEXT + moved / (speed.memory * self.share(step).max(0.01))
            }
        }
    }
}

fn bytes(a: &crate::planner::Array) -> f64 {
    a.dims.iter().map(|&d| d.max(0) as f64).product::<f64>() * a.dtype.bytes() as f64
}

/// Seconds of the host for a launch and an event, and between queues.
#[derive(Copy, Clone)]
struct Times {
    issue: f64,
    event: f64,
    handover: f64,
}

/// A step that was placed.
#[derive(Copy, Clone)]
struct Placed {
    on: usize,
    end: f64,
}

/// Steps in the order in which they begin, with their queues, and the seconds that all take.
fn assign(
    needs: &[BTreeSet<usize>],
    costs: &[Cost],
    most: usize,
    times: Times,
) -> (Vec<(usize, usize)>, f64) {
    let count = costs.len();
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (step, list) in needs.iter().enumerate() {
        list.iter().for_each(|&need| users[need].push(step));
    }
    // The seconds of the longest path from the beginning of each step to the end.
    let mut levels = vec![0.0; count];
    for step in (0..count).rev() {
        let behind = users[step].iter().map(|&user| levels[user]).fold(0.0, f64::max);
        levels[step] = costs[step].seconds + behind;
    }
    let mut waits: Vec<usize> = needs.iter().map(BTreeSet::len).collect();
    // The longest path first: numbers that are not negative are in the order of their bits.
    let key = |step: usize| (Reverse(levels[step].to_bits()), step);
    let mut ready: BTreeSet<_> = (0..count).filter(|&s| waits[s] == 0).map(key).collect();
    let mut placed: Vec<Option<Placed>> = vec![None; count];
    // The last step of each queue: when it ends, and what it occupies. Steps are placed in the order
    // in which they begin, so that no others run.
    let mut last: Vec<(f64, f64)> = vec![(0.0, 0.0)];
    let (mut issued, mut out) = (0.0, Vec::new());
    while !ready.is_empty() {
        let mut best: Option<(f64, usize, usize, usize)> = None;
        for &(_, step) in ready.iter().take(WINDOW) {
            let queues = if costs[step].fixed { 1 } else { most.min(last.len() + 1) };
            for on in 0..queues {
                let mut begin = last.get(on).map_or(times.handover, |(end, _)| *end);
                let mut others = BTreeSet::new();
                for need in needs[step].iter().filter_map(|&need| placed[need]) {
                    let handover = if need.on == on { 0.0 } else { times.handover };
                    begin = begin.max(need.end + handover);
                    if need.on != on {
                        others.insert(need.on);
                    }
                }
                let given = issued + times.issue + 2.0 * times.event * others.len() as f64;
                let begin = room(&last, begin.max(given), costs[step].share);
                if best.is_none_or(|(at, ..)| begin < at) {
                    best = Some((begin, step, on, others.len()));
                }
            }
        }
        let Some((begin, step, on, others)) = best else { break };
        if on == last.len() {
            // A further queue begins behind an event, and queue 0 waits for its end.
            issued += 4.0 * times.event;
            last.push((0.0, 0.0));
        }
        issued += times.issue + 2.0 * times.event * others as f64;
        let end = begin + costs[step].seconds;
        last[on] = (end, costs[step].share);
        placed[step] = Some(Placed { on, end });
        out.push((step, on));
        ready.remove(&key(step));
        for &user in &users[step] {
            waits[user] -= 1;
            if waits[user] == 0 {
                ready.insert(key(user));
            }
        }
    }
    let joined = if last.len() > 1 { times.handover } else { 0.0 };
    let over = last.iter().map(|(end, _)| *end).fold(issued, f64::max);
    (out, over + joined)
}

/// The first time from `at` on at which there is room for a step, beside the last steps of the queues.
fn room(last: &[(f64, f64)], at: f64, share: f64) -> f64 {
    // What occupies nothing has room everywhere.
    if share == 0.0 {
        return at;
    }
    let mut at = at;
    loop {
        let now = last.iter().filter(|(end, _)| *end > at);
        if now.clone().map(|(_, share)| share).sum::<f64>() + share <= 1.0 + 1e-9 {
            return at;
        }
        match now.map(|(end, _)| *end).min_by(f64::total_cmp) {
            Some(next) => at = next,
            None => return at,
        }
    }
}
