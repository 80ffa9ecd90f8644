//! How many threads a launch may use, where several threads of the host launch kernels concurrently.

use std::cell::Cell;

thread_local! {
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The most threads of a launch from this thread. Results do not depend on it.
pub fn most_threads() -> usize {
    MOST.get()
}

/// Puts back what was there before.
struct Before(usize);

impl Drop for Before {
    fn drop(&mut self) {
        MOST.set(self.0);
    }
}

/// Calls a function whose launches use at most this many threads.
pub fn with_threads<R>(most: usize, work: impl FnOnce() -> R) -> R {
    let _before = Before(MOST.replace(most.max(1)));
    work()
}
