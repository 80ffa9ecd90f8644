//! Recordings by the tokens of their calls.

use super::tokens::{Key, Tokens, hash};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_support::ForkLock;

/// A bounded table: where it is full, the recording that was used least recently goes.
pub struct Table<R> {
    kept: ForkLock<Kept<R>>,
    most: usize,
}

struct Kept<R> {
    /// By hash. Of two calls with one hash the later stays.
    rows: BTreeMap<u64, Row<R>>,
    /// Counts uses.
    clock: u64,
    /// Counts how often it was emptied.
    emptied: u64,
}

impl<R> Default for Kept<R> {
    fn default() -> Self {
        Self { rows: BTreeMap::new(), clock: 0, emptied: 0 }
    }
}

struct Row<R> {
    key: Key,
    recording: Arc<R>,
    used: u64,
}

impl<R> Row<R> {
    fn parts(self) -> (Key, Arc<R>) {
        (self.key, self.recording)
    }
}

impl<R> Table<R> {
    pub fn new(most: usize) -> Self {
        Self { kept: ForkLock::new(Kept::default()), most }
    }

    /// The recording of a call with these tokens.
    pub fn find(&self, tokens: &Tokens) -> Option<Arc<R>> {
        let words = tokens.words();
        let mut kept = self.kept.lock();
        if kept.rows.is_empty() {
            return None;
        }
        kept.clock += 1;
        let clock = kept.clock;
        let row = kept.rows.get_mut(&hash(words)).filter(|row| *row.key.words == *words)?;
        row.used = clock;
        Some(row.recording.clone())
    }

    /// Keeps a recording. What goes for it is returned, to be dropped when the lock is free: to drop
    /// what is Python's may call back.
    #[must_use]
    pub fn keep(&self, key: Key, recording: Arc<R>) -> Option<(Key, Arc<R>)> {
        let mut kept = self.kept.lock();
        kept.clock += 1;
        let used = kept.clock;
        let before = kept.rows.insert(key.hash, Row { key, recording, used });
        if before.is_none() && kept.rows.len() > self.most {
            let oldest = kept.rows.iter().min_by_key(|(_, row)| row.used).map(|(&hash, _)| hash);
            return oldest.and_then(|hash| kept.rows.remove(&hash)).map(Row::parts);
        }
        before.map(Row::parts)
    }

    /// Empties the table; gives what was in it, as [`Self::keep`] does.
    #[must_use]
    pub fn take(&self) -> Vec<(Key, Arc<R>)> {
        let mut kept = self.kept.lock();
        kept.emptied += 1;
        let rows = std::mem::take(&mut kept.rows);
        drop(kept);
        rows.into_values().map(Row::parts).collect()
    }

    /// Looks at all recordings. The table must not be used meanwhile.
    pub fn visit<E>(&self, mut look: impl FnMut(&Arc<R>) -> Result<(), E>) -> Result<(), E> {
        self.kept.lock().rows.values().try_for_each(|row| look(&row.recording))
    }

    /// How often it was emptied: recordings from before are not to be used after.
    pub fn emptied(&self) -> u64 {
        self.kept.lock().emptied
    }

    pub fn len(&self) -> usize {
        self.kept.lock().rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Number;
    use crate::replay::Numbers;

    fn call(number: i128) -> Tokens {
        let mut tokens = Tokens::new([0; 3]);
        _ = tokens.number(Number::Int(number), None, Numbers::Fixed);
        tokens
    }

    #[test]
    fn the_least_recently_used_goes() {
        let table = Table::new(2);
        assert!(table.keep(call(1).key([]), Arc::new(1)).is_none());
        assert!(table.keep(call(2).key([]), Arc::new(2)).is_none());
        assert_eq!(table.find(&call(1)).as_deref(), Some(&1));
        assert_eq!(table.keep(call(3).key([]), Arc::new(3)).map(|(_, gone)| *gone), Some(2));
        assert_eq!(table.find(&call(2)), None);
        assert_eq!(table.find(&call(1)).as_deref(), Some(&1));
        assert_eq!(table.find(&call(3)).as_deref(), Some(&3));
    }

    #[test]
    fn a_call_that_is_kept_again_replaces_the_first() {
        let table = Table::new(2);
        assert!(table.keep(call(1).key([]), Arc::new(1)).is_none());
        assert_eq!(table.keep(call(1).key([]), Arc::new(2)).map(|(_, gone)| *gone), Some(1));
        assert_eq!((table.len(), table.find(&call(1)).as_deref()), (1, Some(&2)));
    }
}
