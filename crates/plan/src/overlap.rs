//! Overlap: the order of the collectives of a rank's plan, so that they run beside computation.
//!
//! - *Before*: steps in program order, collectives on their own queue (`collective::QUEUE`).
//! - *After*: each collective stands behind the last step that it depends on. What reads its result waits for an event
//!   behind it (`order`), so that all that stands between runs beside it. Collectives that depend on no step, as of
//!   parameters that are gathered, start ahead of their use only as far as [`AHEAD`] bytes, or the two largest of them, are
//!   in flight or wait for their use: the memory of a rank is bounded.
//! - *Not changed*: the order of all other steps, and what is computed.

use crate::forward::inner_lists;
use crate::order::dependences;
use crate::planner::{Array, Plan, Step};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of collectives that start ahead of their use.
const AHEAD: i64 = 32 << 20;

/// Whether a step is a collective, or has one inside.
pub fn has_collectives(step: &Step) -> bool {
    let any = |steps: &[Step]| steps.iter().any(has_collectives);
    match step {
        Step::Collective { .. } => true,
        Step::Launch { .. } | Step::Host { .. } | Step::Call { .. } | Step::Copy { .. } => false,
        Step::Cond { then, otherwise, .. } => any(then) || any(otherwise),
        Step::While { test, body, .. } => any(test) || any(body),
        Step::Loop { body, .. } => any(body),
    }
}

pub fn overlap(plan: &mut Plan) {
    if plan.steps.iter().any(has_collectives) {
        let steps = std::mem::take(&mut plan.steps);
        plan.steps = list(plan, steps);
    }
}

fn list(plan: &Plan, mut steps: Vec<Step>) -> Vec<Step> {
    for inner in steps.iter_mut().flat_map(inner_lists) {
        *inner = list(plan, std::mem::take(inner));
    }
    if !steps.iter().any(|step| matches!(step, Step::Collective { .. })) {
        return steps;
    }
    let order = Early::of(plan, &steps).order(&steps);
    let mut left: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
    order.into_iter().filter_map(|place| left[place].take()).collect()
}

fn bytes(a: &Array) -> i64 {
    a.dims.iter().product::<i64>() * a.dtype.bytes() as i64
}

struct Early {
    /// How many steps each waits for that are not in the new order.
    left: Vec<usize>,
    users: Vec<Vec<usize>>,
    /// Collectives that wait for nothing, in program order: not started ones.
    free: BTreeSet<usize>,
    /// The bytes of those that started and that nothing has used.
    ahead: BTreeMap<usize, i64>,
    out: Vec<usize>,
    is_out: Vec<bool>,
}

impl Early {
    fn of(plan: &Plan, steps: &[Step]) -> Self {
        let needs = dependences(plan, steps);
        let mut users = vec![Vec::new(); steps.len()];
        for (place, list) in needs.iter().enumerate() {
            list.iter().for_each(|&need| users[need].push(place));
        }
        Self {
            left: needs.iter().map(BTreeSet::len).collect(),
            users,
            free: BTreeSet::new(),
            ahead: BTreeMap::new(),
            out: Vec::with_capacity(steps.len()),
            is_out: vec![false; steps.len()],
        }
    }

    fn order(mut self, steps: &[Step]) -> Vec<usize> {
        let size = |place: usize| match &steps[place] {
            Step::Collective { from, to, .. } => Some(bytes(from).max(bytes(to))),
            _ => None,
        };
        let begin = (0..steps.len()).filter(|&p| self.left[p] == 0);
        let mut sizes: Vec<i64> = begin.clone().filter_map(size).collect();
        self.free = begin.filter(|&p| size(p).is_some()).collect();
        sizes.sort_unstable();
        let most = AHEAD.max(sizes.iter().rev().take(2).sum());
        for place in 0..steps.len() {
            while let Some(&next) = self.free.first() {
                let flying: i64 = self.ahead.values().sum();
                let more = size(next).unwrap_or(0);
                if flying + more > most {
                    break;
                }
                self.ahead.insert(next, more);
                self.put(next, &size);
            }
            if !self.is_out[place] {
                self.put(place, &size);
            }
        }
        self.out
    }

    /// Puts a step behind those that are in the new order, and the collectives that waited for it alone.
    fn put(&mut self, place: usize, size: &dyn Fn(usize) -> Option<i64>) {
        let mut open = vec![place];
        while let Some(place) = open.pop() {
            if std::mem::replace(&mut self.is_out[place], true) {
                continue;
            }
            self.free.remove(&place);
            self.out.push(place);
            for at in 0..self.users[place].len() {
                let user = self.users[place][at];
                self.left[user] -= 1;
                if self.left[user] == 0 && size(user).is_some() {
                    open.push(user);
                }
            }
        }
        let (users, is_out) = (&self.users, &self.is_out);
        self.ahead.retain(|&at, _| !users[at].iter().any(|&user| is_out[user]));
    }
}
