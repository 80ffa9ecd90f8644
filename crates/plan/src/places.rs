//! Lifetimes of the buffers of a plan, and their places in one block of memory: buffers that are never
//! in use together share bytes.
//!
//! A buffer belongs to a list of steps: the innermost one that holds all of its uses, where branches
//! count and loops do not, because a later iteration may read what an earlier one wrote. It is in use
//! from the first step of that list which uses it to the last, with all that is in these steps. Where
//! steps are on several queues, it is in use to the first step behind which all of its uses are over,
//! and shares bytes with another buffer only where every use of the one is over before each of the
//! other begins (`order`).

use crate::forward::visit;
use crate::order::{Order, is_plain};
use crate::planner::{BufferId, Origin, Plan, Step};
use std::collections::{BTreeMap, BTreeSet};

/// Where each scratch buffer begins in one block of memory, and how large that is. Results have
/// memory of their own.
#[derive(Clone, Debug)]
pub struct Places {
    pub offsets: Vec<Option<usize>>,
    pub bytes: usize,
    /// Bytes of all scratch buffers if none shared memory.
    pub unshared: usize,
}

/// Cache lines, and the widest vectors.
pub const ALIGN: usize = 64;

/// The buffers of a list of steps.
#[derive(Default)]
pub struct Own {
    /// Those that belong to it, with the step that uses each last.
    pub here: BTreeMap<BufferId, usize>,
    /// Those that belong to the branches of a step.
    pub branches: BTreeMap<usize, [BTreeSet<BufferId>; 2]>,
}

fn used(steps: &[Step]) -> BTreeSet<BufferId> {
    let mut out = BTreeSet::new();
    for step in steps {
        visit(step, &mut |a, _| {
            out.insert(a.buffer);
        });
    }
    out
}

/// Where the buffers of a list of steps belong, of those that nothing outside uses.
pub fn own(steps: &[Step], candidates: &BTreeSet<BufferId>) -> Own {
    let mut by: BTreeMap<BufferId, Vec<usize>> = BTreeMap::new();
    for (place, step) in steps.iter().enumerate() {
        visit(step, &mut |a, _| {
            if candidates.contains(&a.buffer) {
                let places = by.entry(a.buffer).or_default();
                if places.last() != Some(&place) {
                    places.push(place);
                }
            }
        });
    }
    let mut out = Own::default();
    let mut inside: BTreeMap<usize, [BTreeSet<BufferId>; 2]> = BTreeMap::new();
    for (buffer, places) in by {
        let (first, last) = (places[0], places[places.len() - 1]);
        if first == last
            && let Step::Cond { pred, then, otherwise, .. } = &steps[first]
            && pred.buffer != buffer
        {
            let [a, b] = inside.entry(first).or_insert_with(|| [used(then), used(otherwise)]);
            let branch = match (a.contains(&buffer), b.contains(&buffer)) {
                (true, false) => Some(0),
                (false, true) => Some(1),
                _ => None,
            };
            if let Some(branch) = branch {
                out.branches.entry(first).or_default()[branch].insert(buffer);
                continue;
            }
        }
        out.here.insert(buffer, last);
    }
    out
}

/// The buffers that the plan has for itself.
pub fn scratch(plan: &Plan) -> BTreeSet<BufferId> {
    let is_result = |b: BufferId| plan.results.iter().any(|(r, _)| *r == b);
    let own = |b: &BufferId| plan.buffers[*b].origin == Origin::Scratch && !is_result(*b);
    (0..plan.buffers.len()).filter(own).collect()
}

/// When a buffer is in use.
struct Life {
    /// From the first step to the last, counted through the whole plan.
    from: usize,
    to: usize,
    /// The list that it belongs to, with the steps of it that use it, and the one behind which it
    /// is free; none where that is only at the end of the list.
    list: usize,
    uses: Vec<usize>,
    free: Option<usize>,
}

/// A list of steps.
struct List {
    /// None where all of its steps are on queue 0.
    order: Option<Order>,
    /// The list and the step of it that this list is a branch of.
    of: Option<(usize, usize)>,
}

#[derive(Default)]
struct Lives {
    all: BTreeMap<BufferId, Life>,
    lists: Vec<List>,
    /// Whether any of them has steps on several queues.
    queued: bool,
    clock: usize,
}

impl Lives {
    fn list(
        &mut self,
        plan: &Plan,
        steps: &[Step],
        candidates: &BTreeSet<BufferId>,
        of: Option<(usize, usize)>,
    ) {
        let own = own(steps, candidates);
        let list = self.lists.len();
        // A list inside another is a branch.
        let order = (!is_plain(steps)).then(|| Order::of(plan, steps, of.is_some()));
        self.queued |= order.is_some();
        self.lists.push(List { order, of });
        let mut ends = Vec::new();
        let mut here: BTreeMap<BufferId, Life> = BTreeMap::new();
        for (place, step) in steps.iter().enumerate() {
            self.clock += 1;
            let begin = self.clock;
            if let Step::Cond { then, otherwise, .. } = step
                && let Some([a, b]) = own.branches.get(&place)
            {
                self.list(plan, then, a, Some((list, place)));
                self.list(plan, otherwise, b, Some((list, place)));
            }
            let end = self.clock;
            ends.push(end);
            visit(step, &mut |a, _| {
                if own.here.contains_key(&a.buffer) {
                    let new = || Life { from: begin, to: end, list, uses: Vec::new(), free: None };
                    let life = here.entry(a.buffer).or_insert_with(new);
                    if life.uses.last() != Some(&place) {
                        life.uses.push(place);
                    }
                    (life.to, life.free) = (end, Some(place));
                }
            });
        }
        if let Some(order) = &self.lists[list].order {
            for life in here.values_mut() {
                life.free = order.all_over(&life.uses);
                life.to = life.free.map_or(self.clock, |step| ends[step]);
            }
        }
        self.all.append(&mut here);
    }

    /// Whether all uses of a buffer are over before any use of another, whose first step comes later.
    fn is_before(&self, first: &Life, then: &Life) -> bool {
        if !self.queued {
            return true;
        }
        // The innermost list that holds both, and its steps around them.
        let (mut a, mut b) = ((first.list, None), (then.list, None));
        while a.0 != b.0 {
            // A list has a larger number than those around it.
            let inner = if a.0 > b.0 { &mut a } else { &mut b };
            let Some((list, step)) = self.lists[inner.0].of else { return false };
            *inner = (list, Some(step));
        }
        let Some(order) = &self.lists[a.0].order else { return true };
        if a.1.is_some() && a.1 == b.1 {
            // Two branches of one step: one of them runs.
            return true;
        }
        let Some(free) = a.1.or(first.free) else { return false };
        match b.1 {
            Some(step) => order.is_before(free, step),
            None => then.uses.iter().all(|&step| order.is_before(free, step)),
        }
    }

    fn share(&self, a: &Life, b: &Life) -> bool {
        let (first, then) = if a.from <= b.from { (a, b) } else { (b, a) };
        first.to < then.from && self.is_before(first, then)
    }
}

/// Assigns places: large buffers first, each in the lowest gap that is free while it is in use.
pub fn assign(plan: &Plan) -> Places {
    let mut lives = Lives::default();
    lives.list(plan, &plan.steps, &scratch(plan), None);
    let mut order: Vec<BufferId> = lives.all.keys().copied().collect();
    order.sort_by_key(|&b| (std::cmp::Reverse(plan.buffers[b].bytes), b));
    let mut out = Places { offsets: vec![None; plan.buffers.len()], bytes: 0, unshared: 0 };
    let mut placed: Vec<(&Life, usize, usize)> = Vec::new();
    for b in order {
        let life = &lives.all[&b];
        let size = plan.buffers[b].bytes.next_multiple_of(ALIGN).max(ALIGN);
        let busy = placed.iter().filter(|(other, _, _)| !lives.share(life, other));
        let mut busy: Vec<(usize, usize)> = busy.map(|&(_, at, len)| (at, len)).collect();
        busy.sort_unstable();
        let mut at = 0;
        for (start, len) in busy {
            if start >= at + size {
                break;
            }
            at = at.max(start + len);
        }
        placed.push((life, at, size));
        out.offsets[b] = Some(at);
        out.bytes = out.bytes.max(at + size);
        out.unshared += size;
    }
    out
}
