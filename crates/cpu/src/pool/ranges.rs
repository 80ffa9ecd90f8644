//! Who runs what: each worker owns a contiguous range of units, takes from its front, and when it
//! has none left steals the back half of the largest other.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// 0..total cut into pieces of equal size. They are numbered in 32 bits, so that a range of them
/// fits one atomic word.
#[derive(Clone, Copy)]
pub(super) struct Units {
    total: u64,
    size: u64,
    pub count: u32,
}

impl Units {
    pub fn new(total: u64, grain: u64) -> Self {
        let size = grain.max(1).max(total.div_ceil(u32::MAX.into()));
        let count = u32::try_from(total.div_ceil(size)).expect("the size is large enough");
        Self { total, size, count }
    }

    pub fn indices(&self, unit: u32) -> Range<u64> {
        let begin = u64::from(unit) * self.size;
        begin..begin.saturating_add(self.size).min(self.total)
    }
}

/// The range of each worker as `begin << 32 | end`, each on cache lines of its own (processors
/// fetch lines in pairs).
///
/// Every unit is handed out once. A unit leaves a slot only through a compare-and-swap of the whole
/// word, and enters one only through the store of the worker that took it out of another, into its
/// own slot while that is empty, when nobody else writes it. So in the order of writes to one slot,
/// each entry of a unit is followed by at most one leaving, and a unit's entries and leavings form
/// one chain that ends where it is run. That an old range may come back to a slot does no harm: a
/// word says which units are there now, whatever was there between.
///
/// None is left over. A worker sees what it put into its own slot, and goes only when that is empty.
/// The slot of a worker that never comes is as the caller filled it, less what was stolen: the
/// caller sees it empty only when it is.
///
/// Both arguments need only the order of writes to single words, and no data hangs on a unit beyond
/// its number: everything here is relaxed.
pub(super) struct Ranges(Box<[Slot]>);

#[repr(align(128))]
struct Slot(AtomicU64);

impl Ranges {
    pub fn new(count: u32, workers: usize) -> Self {
        let bound = |w: usize| (u64::from(count) * w as u64 / workers as u64) as u32;
        Self((0..workers).map(|w| Slot(AtomicU64::new(pack(bound(w), bound(w + 1))))).collect())
    }

    /// The next unit for `worker`, or none where every range is empty. A range that a thief has
    /// taken and not yet put into its slot is not seen: the thief runs it.
    pub fn next(&self, worker: usize) -> Option<u32> {
        self.take(worker).or_else(|| self.steal(worker))
    }

    fn take(&self, worker: usize) -> Option<u32> {
        let slot = &self.0[worker].0;
        let without_first = |word| {
            let (begin, end) = unpack(word);
            (begin < end).then(|| pack(begin + 1, end))
        };
        slot.fetch_update(Relaxed, Relaxed, without_first).ok().map(|word| unpack(word).0)
    }

    fn steal(&self, thief: usize) -> Option<u32> {
        loop {
            let words = self.0.iter().map(|slot| (slot, slot.0.load(Relaxed)));
            let (victim, word) = words.max_by_key(|&(_, word)| len(word))?;
            if len(word) == 0 {
                return None;
            }
            let (begin, end) = unpack(word);
            let middle = begin + len(word) / 2;
            let rest = pack(begin, middle);
            if victim.0.compare_exchange(word, rest, Relaxed, Relaxed).is_ok() {
                // The first is run immediately and not published: two thieves cannot pass one
                // unit back and forth without running it.
                self.0[thief].0.store(pack(middle + 1, end), Relaxed);
                return Some(middle);
            }
        }
    }
}

fn pack(begin: u32, end: u32) -> u64 {
    u64::from(begin) << 32 | u64::from(end)
}

fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

fn len(word: u64) -> u32 {
    let (begin, end) = unpack(word);
    end - begin
}
