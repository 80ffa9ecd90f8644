//! Locks that do not hang in a forked child. A thread of the parent that held a lock at the fork
//! does not exist in the child, and would never let go of it there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// How many forks lie between this process and the one that was started.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// To be called in a child, before anything else of Tessera is.
pub fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// A mutex whose contents are used on in a child where no thread held it at the fork, and begin
/// anew where one did: what that thread was doing to them may be half done.
#[derive(Default)]
pub struct ForkLock<T> {
    first: Node<T>,
}

#[derive(Default)]
struct Node<T> {
    generation: AtomicU64,
    lock: Mutex<T>,
    /// What takes its place in a child.
    next: OnceLock<Box<Node<T>>>,
}

impl<T: Default> ForkLock<T> {
    pub const fn new(value: T) -> Self {
        let generation = AtomicU64::new(0);
        Self { first: Node { generation, lock: Mutex::new(value), next: OnceLock::new() } }
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        let now = GENERATION.load(Ordering::Relaxed);
        let mut node = &self.first;
        loop {
            if node.generation.load(Ordering::Relaxed) == now {
                // A panic leaves nothing half done: entries are added whole.
                return node.lock.lock().unwrap_or_else(PoisonError::into_inner);
            }
            let free = match node.lock.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
                Err(TryLockError::WouldBlock) => None,
            };
            if let Some(guard) = free {
                node.generation.store(now, Ordering::Relaxed);
                return guard;
            }
            let fresh = || Box::new(Node { generation: AtomicU64::new(now), ..Node::default() });
            node = node.next.get_or_init(fresh);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_held_at_the_fork_begins_anew_and_a_free_one_goes_on() {
        let (held, free) = (ForkLock::new(7), ForkLock::new(7));
        let guard = held.lock();
        forked();
        assert_eq!((*held.lock(), *free.lock()), (0, 7));
        drop(guard);
        *held.lock() = 3;
        assert_eq!(*held.lock(), 3);
    }
}
