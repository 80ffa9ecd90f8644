//! Work on several threads while the calling one listens for an interrupt.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use tessera_diag::Code;
use tessera_diag::{Diagnostic, Diagnostics};
use tessera_target::{Poll, interruption};

/// The most threads that compile concurrently: the machine may have other work.
const MOST: usize = 8;
const LISTEN: Duration = Duration::from_millis(20);

/// Does `work` for each item, in any order, and hands each result to `done` on the calling thread
/// as it comes. Items that `go_on` refuses, and those after an interrupt, are left out.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    go_on: impl Fn() -> bool + Sync,
    work: impl Fn(&T) -> Result<R, Diagnostics> + Sync,
    mut done: impl FnMut(usize, Result<R, Diagnostics>),
) -> Result<(), Diagnostics> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (next, stop, go_on, work) = (&next, &stop, &go_on, &work);
    let (send, receive) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..cores.min(MOST).min(items.len()) {
            let send = send.clone();
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) && go_on() {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(place) else { return };
                    let result = catch_unwind(AssertUnwindSafe(|| work(item)));
                    if send.send((place, result.unwrap_or_else(|_| Err(fault())))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let poll = Poll::start();
        let mut interrupted = false;
        loop {
            match receive.recv_timeout(LISTEN) {
                Ok((place, result)) => done(place, result),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {}
            }
            if !interrupted && poll.ask() {
                interrupted = true;
                stop.store(true, Ordering::Relaxed);
            }
        }
        if interrupted { Err(interruption().into()) } else { Ok(()) }
    })
}

fn fault() -> Diagnostics {
    Diagnostic::new(Code::E_UNKNOWN, "the compiler failed").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_done_once_and_a_panic_is_a_failure() {
        let items: Vec<usize> = (0..50).collect();
        let mut found = vec![None; 50];
        let work = |&item: &usize| {
            assert_ne!(item, 7, "seven");
            Ok(item * item)
        };
        each(&items, || true, work, |place, result| found[place] = Some(result.ok())).unwrap();
        assert!(found.iter().enumerate().all(|(i, r)| *r == Some((i != 7).then_some(i * i))));
    }

    #[test]
    fn nothing_begins_where_it_may_not() {
        let mut count = 0;
        each(&[1, 2, 3], || false, |_| Ok(()), |_, _| count += 1).unwrap();
        assert_eq!(count, 0);
    }
}
