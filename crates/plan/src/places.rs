//! Lifetimes of the buffers of a plan, and their places in one block of memory: buffers that are never
//! in use together share bytes.
//!
//! A buffer belongs to a list of steps: the innermost one that holds all of its uses, where branches
//! count and loops do not, because a later iteration may read what an earlier one wrote. It is in use
//! from the first step of that list which uses it to the last, with all that is in these steps.

use crate::forward::visit;
use crate::planner::{BufferId, Origin, Plan, Step};
use std::collections::{BTreeMap, BTreeSet};

/// Where each scratch buffer begins in one block of memory, and how large that is. Results have
/// memory of their own.
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

/// From the first step to the last, counted through the whole plan.
type Lives = BTreeMap<BufferId, (usize, usize)>;

fn lives(steps: &[Step], candidates: &BTreeSet<BufferId>, clock: &mut usize, out: &mut Lives) {
    let own = own(steps, candidates);
    for (place, step) in steps.iter().enumerate() {
        *clock += 1;
        let begin = *clock;
        if let Step::Cond { then, otherwise, .. } = step
            && let Some([a, b]) = own.branches.get(&place)
        {
            lives(then, a, clock, out);
            lives(otherwise, b, clock, out);
        }
        let end = *clock;
        visit(step, &mut |a, _| {
            if own.here.contains_key(&a.buffer) {
                out.entry(a.buffer).or_insert((begin, end)).1 = end;
            }
        });
    }
}

/// Assigns places: large buffers first, each in the lowest gap that is free while it is in use.
pub fn assign(plan: &Plan) -> Places {
    let mut all = Lives::new();
    lives(&plan.steps, &scratch(plan), &mut 0, &mut all);
    let mut order: Vec<BufferId> = all.keys().copied().collect();
    order.sort_by_key(|&b| (std::cmp::Reverse(plan.buffers[b].bytes), b));
    let mut out = Places { offsets: vec![None; plan.buffers.len()], bytes: 0, unshared: 0 };
    let mut placed: Vec<((usize, usize), usize, usize)> = Vec::new();
    for b in order {
        let (first, last) = all[&b];
        let size = plan.buffers[b].bytes.next_multiple_of(ALIGN).max(ALIGN);
        let together = |life: &(usize, usize)| life.0 <= last && first <= life.1;
        let busy = placed.iter().filter(|(life, _, _)| together(life));
        let mut busy: Vec<(usize, usize)> = busy.map(|&(_, at, len)| (at, len)).collect();
        busy.sort_unstable();
        let mut at = 0;
        for (start, len) in busy {
            if start >= at + size {
                break;
            }
            at = at.max(start + len);
        }
        placed.push(((first, last), at, size));
        out.offsets[b] = Some(at);
        out.bytes = out.bytes.max(at + size);
        out.unshared += size;
    }
    out
}
