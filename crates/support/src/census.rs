//! Counts the values of a kind in the process and their bytes, to find caches that grow.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The values of one kind that are alive.
#[derive(Debug, Default)]
pub struct Census {
    entries: AtomicUsize,
    bytes: AtomicUsize,
}

/// One of them: it is counted until it is dropped.
#[derive(Debug)]
pub struct Counted {
    among: &'static Census,
    bytes: usize,
}

impl Census {
    pub const fn new() -> Self {
        Self { entries: AtomicUsize::new(0), bytes: AtomicUsize::new(0) }
    }

    /// Counts a value that takes `bytes` bytes beside its own.
    pub fn count(&'static self, bytes: usize) -> Counted {
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Counted { among: self, bytes }
    }

    /// How many there are, and their bytes.
    pub fn now(&self) -> (usize, usize) {
        (self.entries.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.among.entries.fetch_sub(1, Ordering::Relaxed);
        self.among.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_not_counted() {
        static ALL: Census = Census::new();
        let one = ALL.count(10);
        let other = ALL.count(5);
        assert_eq!(ALL.now(), (2, 15));
        drop(one);
        assert_eq!(ALL.now(), (1, 5));
        drop(other);
        assert_eq!(ALL.now(), (0, 0));
    }
}
