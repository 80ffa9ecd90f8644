//! The order between tasks: a task waits for the earlier ones that interfere with it.

use crate::use_::{Privilege, Use};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(pub u64);

/// Tasks that are not done, by what they use.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    next: u64,
    /// By storage.
    uses: BTreeMap<u64, Vec<(TaskId, Use)>>,
    /// By task, the storages that it uses.
    storages: BTreeMap<TaskId, Vec<u64>>,
}

impl Tasks {
    /// Takes up a task behind all others, and gives those that it must wait for, lowest first. Tasks that it waits for through others
    /// may be left out.
    pub fn add(&mut self, uses: Vec<Use>) -> (TaskId, Vec<TaskId>) {
        let task = TaskId(self.next);
        self.next += 1;
        let mut before = BTreeSet::new();
        for new in &uses {
            let known = self.uses.get(&new.storage).into_iter().flatten();
            before.extend(known.filter(|(_, u)| u.interferes(new)).map(|(t, _)| *t));
        }
        let mut storages: Vec<u64> = uses.iter().map(|u| u.storage).collect();
        storages.sort_unstable();
        storages.dedup();
        self.storages.insert(task, storages);
        for new in uses {
            let known = self.uses.entry(new.storage).or_default();
            // A later task that interferes with a use that is overwritten interferes with this one too, and so waits for it.
            if matches!(new.privilege, Privilege::Write | Privilege::ReadWrite) {
                known.retain(|(t, u)| *t == task || !new.covers(u));
            }
            known.push((task, new));
        }
        (task, before.into_iter().collect())
    }

    /// A task has finished: nobody needs to wait for it.
    pub fn done(&mut self, task: TaskId) {
        for storage in self.storages.remove(&task).into_iter().flatten() {
            let Some(uses) = self.uses.get_mut(&storage) else { continue };
            uses.retain(|(t, _)| *t != task);
            if uses.is_empty() {
                self.uses.remove(&storage);
            }
        }
    }

    /// The tasks that use elements in a way that interferes with this use: it must wait for them.
    pub fn waits(&self, wanted: &Use) -> Vec<TaskId> {
        let known = self.uses.get(&wanted.storage).into_iter().flatten();
        let found: BTreeSet<TaskId> =
            known.filter(|(_, u)| u.interferes(wanted)).map(|(t, _)| *t).collect();
        found.into_iter().collect()
    }

    pub fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }
}
