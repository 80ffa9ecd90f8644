//! Locks that do not hang in a forked child. A thread of the parent that held a lock at the fork
//! does not exist in the child, and would never release it there.
//!
//! Global state of other libraries cannot be reset in a child: while one of them changes it, forks
//! wait ([`unforked`]).

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

/// Read while a fork must wait, written by the thread that forks.
static BUSY: RwLock<()> = RwLock::new(());

/// Threads that are about to fork: nobody begins what they would have to wait for.
static FORKING: AtomicUsize = AtomicUsize::new(0);

/// The longest wait: a fork in the middle of a compilation is better than none.
const PATIENCE: Duration = Duration::from_secs(20);

thread_local! {
    static HELD: RefCell<Option<RwLockWriteGuard<'static, ()>>> = const { RefCell::new(None) };
}

fn wait_for<T>(mut found: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        let found = found();
        if found.is_some() || start.elapsed() > PATIENCE {
            return found;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// While this lives, no thread forks that said so ([`before_fork`]). A thread has one at a time.
pub fn unforked() -> RwLockReadGuard<'static, ()> {
    wait_for(|| (FORKING.load(Ordering::Acquire) == 0).then_some(()));
    BUSY.read().unwrap_or_else(PoisonError::into_inner)
}

/// To be called before a fork, by the thread that forks.
pub fn before_fork() {
    FORKING.fetch_add(1, Ordering::AcqRel);
    let held = wait_for(|| match BUSY.try_write() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    });
    HELD.with(|cell| *cell.borrow_mut() = held);
}

/// To be called after it by the same thread, in the parent.
pub fn after_fork() {
    HELD.with(|cell| cell.borrow_mut().take());
    let one_less = |n: usize| Some(n.saturating_sub(1));
    FORKING.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).ok();
}

static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The number of forks from the process that was started to this one.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// To be called in a child, before anything else of Tessera is.
pub fn forked() {
    // Other threads that were about to fork are not here.
    FORKING.store(0, Ordering::Release);
    HELD.with(|cell| cell.borrow_mut().take());
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
        let now = generation();
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

    /// Tests that say they fork do so one after another.
    static ONE: Mutex<()> = Mutex::new(());

    #[test]
    fn a_fork_waits_for_running_work_and_keeps_more_from_beginning() {
        let _one = ONE.lock();
        let running = unforked();
        let forking = std::thread::spawn(|| {
            before_fork();
            let late = std::thread::spawn(|| drop(unforked()));
            std::thread::sleep(Duration::from_millis(20));
            let waited = !late.is_finished();
            after_fork();
            late.join().expect("the thread ends");
            waited
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!forking.is_finished());
        drop(running);
        assert!(forking.join().expect("the thread ends"));
    }

    #[test]
    fn a_lock_held_at_the_fork_begins_anew_and_a_free_one_goes_on() {
        let _one = ONE.lock();
        let (held, free) = (ForkLock::new(7), ForkLock::new(7));
        let guard = held.lock();
        forked();
        assert_eq!((*held.lock(), *free.lock()), (0, 7));
        drop(guard);
        *held.lock() = 3;
        assert_eq!(*held.lock(), 3);
    }
}
