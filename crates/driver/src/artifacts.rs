//! Compiled kernels that the process keeps, by a key of what they were compiled from and for.

use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_support::ForkLock;
use tessera_target::Artifact;

/// How many kernels stay that nobody holds any more, for a caller that asks again. Each has memory of the process mapped for
/// its code, and the number of mappings has a limit.
const IDLE: usize = 512;

pub struct Artifacts(ForkLock<BTreeMap<String, Arc<dyn Artifact>>>);

impl Artifacts {
    pub const fn new() -> Self {
        Self(ForkLock::new(BTreeMap::new()))
    }

    pub fn get(&self, key: &str) -> Option<Arc<dyn Artifact>> {
        self.0.lock().get(key).cloned()
    }

    /// Those of several keys, at one moment: none of them is let go before all are held.
    pub fn get_all(&self, keys: &[String]) -> Vec<Option<Arc<dyn Artifact>>> {
        let there = self.0.lock();
        keys.iter().map(|key| there.get(key).cloned()).collect()
    }

    /// Keeps a kernel. Where more than `IDLE` are here that nobody holds, those go.
    pub fn insert(&self, key: String, artifact: Arc<dyn Artifact>) {
        let mut there = self.0.lock();
        there.insert(key, artifact);
        if there.len() > IDLE {
            let idle = there.values().filter(|a| Arc::strong_count(a) == 1).count();
            if idle > IDLE {
                there.retain(|_, a| Arc::strong_count(a) > 1);
            }
        }
    }
}
