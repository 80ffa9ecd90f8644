//! The store's cache in memory: what this process stored or found recently.

use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_support::Hash128;

/// The most bytes it keeps, of code that was compiled recently. Live kernels hold their own code,
/// and the files have the code of the others.
pub const LIMIT: usize = 1 << 20;

#[derive(Default)]
pub struct Memory {
    entries: BTreeMap<Hash128, Kept>,
    bytes: usize,
    /// Counts uses, so that the one longest ago is known.
    clock: u64,
}

struct Kept {
    used: u64,
    bytes: Arc<[u8]>,
}

impl Memory {
    pub fn get(&mut self, key: Hash128) -> Option<Arc<[u8]>> {
        let kept = self.entries.get_mut(&key)?;
        self.clock += 1;
        kept.used = self.clock;
        Some(kept.bytes.clone())
    }

    /// Makes room by forgetting what was not used for longest.
    pub fn put(&mut self, key: Hash128, bytes: Arc<[u8]>, limit: usize) {
        self.forget(key);
        if bytes.len() > limit {
            return;
        }
        while self.bytes + bytes.len() > limit {
            let oldest = self.entries.iter().min_by_key(|(_, kept)| kept.used).map(|(&key, _)| key);
            let Some(oldest) = oldest else { break };
            self.forget(oldest);
        }
        self.clock += 1;
        self.bytes += bytes.len();
        self.entries.insert(key, Kept { used: self.clock, bytes });
    }

    /// How many entries there are, and their bytes.
    pub fn census(&self) -> (usize, usize) {
        (self.entries.len(), self.bytes)
    }

    fn forget(&mut self, key: Hash128) {
        if let Some(kept) = self.entries.remove(&key) {
            self.bytes -= kept.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_is_forgotten_first() {
        let key = |n| Hash128([n; 16]);
        let mut memory = Memory::default();
        for n in 0..3 {
            memory.put(key(n), vec![n; 10].into(), 30);
        }
        assert!(memory.get(key(0)).is_some());
        memory.put(key(3), vec![3; 10].into(), 30);
        let found: Vec<bool> = (0..4).map(|n| memory.get(key(n)).is_some()).collect();
        assert_eq!(found, [true, false, true, true]);
        memory.put(key(4), vec![4; 31].into(), 30);
        assert!(memory.get(key(4)).is_none() && memory.get(key(0)).is_some());
        assert_eq!(memory.bytes, 30);
    }
}
