//! Interference among the tasks of one launch, which have no order.

use crate::use_::Use;
use std::collections::BTreeMap;

/// Two uses that interfere: the number of the task, and of the use in it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    pub first: (usize, usize),
    pub second: (usize, usize),
}

/// The first two uses of tasks that interfere, in order of the later one. Uses of one task count too: a kernel has no order inside.
pub fn conflict(tasks: &[Vec<Use>]) -> Option<Conflict> {
    let mut seen: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
    for (task, uses) in tasks.iter().enumerate() {
        for (at, u) in uses.iter().enumerate() {
            let earlier = seen.entry(u.storage).or_default();
            if let Some(first) = earlier.iter().find(|(t, i)| tasks[*t][*i].interferes(u)) {
                return Some(Conflict { first: *first, second: (task, at) });
            }
            earlier.push((task, at));
        }
    }
    None
}
