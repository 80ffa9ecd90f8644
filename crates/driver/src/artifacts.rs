//! Compiled kernels of the process, by a key of what they were compiled from and for. They live as
//! long as they are referenced; the most recent ones live longer.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use tessera_support::ForkLock;
use tessera_target::Artifact;

/// How many recent kernels are kept alive without a reference: for a function that is traced again
/// in each iteration of a loop, or one whose caller was interrupted. Each has memory mapped for its
/// code.
const RECENT: usize = 32;

#[derive(Default)]
struct Known {
    all: BTreeMap<String, Weak<dyn Artifact>>,
    /// The latest at the end.
    recent: VecDeque<Arc<dyn Artifact>>,
    /// At this many entries the dead ones are removed.
    full: usize,
}

pub struct Artifacts(ForkLock<Known>);

impl Artifacts {
    pub const fn new() -> Self {
        let recent = VecDeque::new();
        Self(ForkLock::new(Known { all: BTreeMap::new(), recent, full: 0 }))
    }

    pub fn get(&self, key: &str) -> Option<Arc<dyn Artifact>> {
        self.0.lock().get(key)
    }

    /// Those of several keys, at one moment.
    pub fn get_all(&self, keys: &[String]) -> Vec<Option<Arc<dyn Artifact>>> {
        let mut there = self.0.lock();
        keys.iter().map(|key| there.get(key)).collect()
    }

    pub fn insert(&self, key: String, artifact: &Arc<dyn Artifact>) {
        let mut there = self.0.lock();
        there.all.insert(key, Arc::downgrade(artifact));
        let gone = there.touch(artifact);
        if there.all.len() > there.full {
            there.all.retain(|_, a| a.strong_count() > 0);
            there.full = 2 * there.all.len() + RECENT;
        }
        drop(there);
        // Unmapping its code takes a while: the lock is released before.
        drop(gone);
    }

    /// How many are alive, and the bytes of their code.
    pub fn census(&self) -> (usize, usize) {
        let alive: Vec<_> = self.0.lock().all.values().filter_map(Weak::upgrade).collect();
        (alive.len(), alive.iter().map(|a| a.code_bytes()).sum())
    }
}

impl Known {
    fn get(&mut self, key: &str) -> Option<Arc<dyn Artifact>> {
        self.all.get(key)?.upgrade()
    }

    /// Keeps one for a while; gives the one that goes for it.
    fn touch(&mut self, artifact: &Arc<dyn Artifact>) -> Option<Arc<dyn Artifact>> {
        self.recent.push_back(artifact.clone());
        (self.recent.len() > RECENT).then(|| self.recent.pop_front()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_diag::Diagnostics;
    use tessera_support::Hash128;
    use tessera_target::LaunchArgs;

    struct Nothing;

    impl Artifact for Nothing {
        fn target_text(&self) -> String {
            String::new()
        }
        fn hash(&self) -> Hash128 {
            Hash128([0; 16])
        }
        fn launch(&self, _: &LaunchArgs) -> Result<(), Diagnostics> {
            Ok(())
        }
        fn resources(&self) -> Vec<(&'static str, String)> {
            Vec::new()
        }
        fn code_bytes(&self) -> usize {
            3
        }
    }

    #[test]
    fn those_that_are_held_stay_and_of_others_the_latest() {
        let all = Artifacts::new();
        let held: Arc<dyn Artifact> = Arc::new(Nothing);
        all.insert("held".into(), &held);
        for n in 0..10 * RECENT {
            let one: Arc<dyn Artifact> = Arc::new(Nothing);
            all.insert(n.to_string(), &one);
        }
        assert!(all.get("held").is_some_and(|a| Arc::ptr_eq(&a, &held)));
        assert!(all.get(&(10 * RECENT - 1).to_string()).is_some() && all.get("0").is_none());
        assert_eq!(all.census(), (RECENT + 1, 3 * (RECENT + 1)));
        assert!(all.0.lock().all.len() < 4 * RECENT);
    }
}
