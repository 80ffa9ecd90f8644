//! Interference among the tasks of one launch, which have no order.

use crate::use_::{Privilege, Use};
use std::collections::BTreeMap;

/// Two uses that interfere: the number of the task, and of the use in it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Conflict {
    pub first: (usize, usize),
    pub second: (usize, usize),
}

/// The first two uses of tasks that interfere, in order of the later one. Uses of one task count too: a kernel has no order inside.
pub fn conflict(tasks: &[Vec<Use>]) -> Option<Conflict> {
    if apart(tasks) {
        return None;
    }
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

/// Whether it is plain that nothing interferes, as in most launches: each storage is only read, or along one of its dims each use ends
/// before the next begins.
fn apart(tasks: &[Vec<Use>]) -> bool {
    let mut storages: BTreeMap<u64, Vec<&Use>> = BTreeMap::new();
    for u in tasks.iter().flatten() {
        storages.entry(u.storage).or_default().push(u);
    }
    storages.values().all(|uses| {
        let dims = uses.iter().map(|u| u.index.len()).min().unwrap_or(0);
        let along = |dim: usize| {
            let mut spans: Vec<(u64, u64)> =
                uses.iter().filter_map(|u| u.index[dim].span()).collect();
            spans.sort_unstable();
            spans.windows(2).all(|pair| pair[0].1 < pair[1].0)
        };
        uses.iter().all(|u| u.privilege == Privilege::Read)
            || uses.iter().all(|u| u.index.len() == dims) && (0..dims).any(along)
    })
}
