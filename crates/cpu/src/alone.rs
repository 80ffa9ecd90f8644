//! Which launches may replace atomic instructions by plain loads and stores.
//!
//! An atomic instruction costs about twenty cycles, even without contention. A launch on one thread
//! is alone with its arrays as long as no other launch of the process that has atomics runs
//! concurrently: no write comes between its load and its store. A launch that begins meanwhile
//! waits for its end.

use std::cell::Cell;
use std::time::Duration;
use tessera_diag::Diagnostics;
use tessera_support::ForkLock;
use tessera_target::{Poll, interruption};

/// The launches with atomics that run now.
#[derive(Default)]
struct Running {
    /// A child of a fork has none of its parent's.
    process: u32,
    alone: bool,
    together: usize,
}

static RUNNING: ForkLock<Running> =
    ForkLock::new(Running { process: 0, alone: false, together: 0 });

thread_local! {
    /// This thread's launch is the one that is alone: what the host runs in the middle of it may
    /// launch something too.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

/// A launch with atomics, while it runs.
pub struct Admission(Kind);

enum Kind {
    Alone,
    Together,
    /// Nested in a launch that is alone, on its thread.
    Within,
}

impl Admission {
    /// `may_be_alone`: the launch runs on one thread and waits for nobody. The host may end the wait.
    pub fn begin(may_be_alone: bool) -> Result<Self, Diagnostics> {
        if HERE.get() {
            return Ok(Self(Kind::Within));
        }
        let mut poll = Poll::start();
        loop {
            if let Some(kind) = join(may_be_alone) {
                HERE.set(matches!(kind, Kind::Alone));
                return Ok(Self(kind));
            }
            if poll.is_interrupted() {
                return Err(interruption().into());
            }
            std::thread::sleep(Duration::from_micros(20));
        }
    }

    pub fn is_alone(&self) -> bool {
        !matches!(self.0, Kind::Together)
    }
}

/// `None` where another one is alone.
fn join(may_be_alone: bool) -> Option<Kind> {
    let mut running = RUNNING.lock();
    let process = std::process::id();
    if running.process != process {
        *running = Running { process, ..Running::default() };
    }
    if running.alone {
        return None;
    }
    if may_be_alone && running.together == 0 {
        running.alone = true;
        return Some(Kind::Alone);
    }
    running.together += 1;
    Some(Kind::Together)
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut running = RUNNING.lock();
        match self.0 {
            Kind::Alone => {
                running.alone = false;
                HERE.set(false);
            }
            Kind::Together => running.together = running.together.saturating_sub(1),
            Kind::Within => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_is_alone_keeps_others_waiting_and_many_run_together() {
        let begin = |may| Admission::begin(may).unwrap_or_else(|_| panic!("nobody ends the wait"));
        let first = begin(true);
        assert!(first.is_alone());
        assert!(begin(true).is_alone(), "what the host runs in the middle of it is part of it");
        let other = std::thread::spawn(move || begin(true).is_alone());
        std::thread::sleep(Duration::from_millis(5));
        assert!(!other.is_finished());
        drop(first);
        assert!(other.join().unwrap_or(false));
        let many = begin(false);
        assert!(!many.is_alone());
        assert!(!std::thread::spawn(move || begin(true).is_alone()).join().unwrap_or(true));
        drop(many);
        assert!(begin(true).is_alone());
    }
}
