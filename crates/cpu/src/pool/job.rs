//! One job: what its workers share.

use super::ranges::{Ranges, Units};
use super::team::Member;
use super::{Work, Worker};
use std::any::Any;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

type Payload = Box<dyn Any + Send>;

pub(super) struct Job<'a> {
    work: &'a Work<'a>,
    units: Units,
    ranges: Ranges,
    /// The threads that may come to help: worker `n` is the member at `n - 1`.
    pub members: &'a [Member],
    /// Carries no data, so it is relaxed: what workers wrote is seen once they have left.
    stop: AtomicBool,
    panic: Mutex<Option<Payload>>,
}

impl<'a> Job<'a> {
    pub fn new(work: &'a Work<'a>, units: Units, members: &'a [Member]) -> Self {
        let ranges = Ranges::new(units.count, members.len() + 1);
        let (stop, panic) = (AtomicBool::new(false), Mutex::new(None));
        Self { work, units, ranges, members, stop, panic }
    }

    /// Runs units until none is left or the job is stopped.
    pub fn take_part(&self, number: usize, mut after_each: impl FnMut()) {
        let worker = Worker { number, stop: &self.stop };
        while !self.is_stopped()
            && let Some(unit) = self.ranges.next(number)
        {
            if (self.work)(worker, self.units.indices(unit)).is_break() {
                self.stop();
            }
            after_each();
        }
    }

    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Stops the job and keeps the first panic of a worker for the caller.
    pub fn fail(&self, payload: Payload) {
        self.stop();
        let mut first = self.panic.lock().unwrap_or_else(PoisonError::into_inner);
        if first.is_none() {
            *first = Some(payload);
        } else {
            // Dropping it could panic once more, where nothing catches it.
            mem::forget(payload);
        }
    }

    pub fn panic(&self) -> Option<Payload> {
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
