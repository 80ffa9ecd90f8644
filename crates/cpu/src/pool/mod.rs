//! The pool of threads that run the groups of a launch. There is one in a process.
//!
//! A job is the indices 0..total; each is run exactly once, in chunks, by whichever worker comes to
//! it. The calling thread is worker 0 and begins immediately: waking a thread takes longer than
//! many a kernel, so the others come when they come, and a job too small to share never wakes them.
//! Where the pool has a job already, from another thread or from a work function that calls [`run`]
//! itself, the caller does its job alone.

mod float_env;
mod job;
mod ranges;
mod team;
#[cfg(test)]
mod tests;

pub use float_env::FloatEnv;
use job::Job;
use ranges::Units;
use std::ops::{ControlFlow, Range};
use std::panic::resume_unwind;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use team::{Posted, Team};

/// Does the indices of one chunk; `Break` ends the whole job early.
pub type Work<'a> = dyn Fn(Worker<'_>, Range<u64>) -> ControlFlow<()> + Sync + 'a;

/// How a job is cut up. Results must not depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Split {
    pub total: u64,
    /// Indices in a chunk (the last may have fewer).
    pub grain: u64,
    /// The most workers, the caller among them.
    pub threads: usize,
}

/// Who runs a chunk.
#[derive(Clone, Copy)]
pub struct Worker<'a> {
    /// Below `Split::threads`, and of no other chunk that runs at the same time: it may index
    /// scratch memory. Number 0 is the thread that called [`run`].
    pub number: usize,
    /// Set once the job is to end early, for chunks that are long enough to look.
    pub stop: &'a AtomicBool,
}

#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Done,
    /// A chunk said `Break`. Other chunks may have run or not.
    Stopped,
    /// `poll` said so. Other chunks may have run or not.
    Interrupted,
}

const POLL_EVERY: Duration = Duration::from_millis(20);

/// Runs a job and returns when no worker is in it any more. `poll` is called about every 20 ms, on
/// this thread only, between its chunks and while it waits; `true` ends the job early. A panic in
/// `work` ends the job and goes on in the caller.
///
/// Chunks run in the default floating point environment.
pub fn run(split: Split, work: &Work<'_>, poll: &mut dyn FnMut() -> bool) -> Finish {
    let _environment = FloatEnv::standard();
    let units = Units::new(split.total, split.grain);
    let helpers = split.threads.min(units.count as usize).saturating_sub(1);
    if helpers > 0
        && let Some(team) = Team::get()
        && let Some(members) = team.engage(helpers)
    {
        let members = &members[..helpers.min(members.len())];
        together(team, &Job::new(work, units, members), Clock::start(poll))
    } else {
        alone(work, units, poll)
    }
}

fn alone(work: &Work<'_>, units: Units, poll: &mut dyn FnMut() -> bool) -> Finish {
    let stop = AtomicBool::new(false);
    let chunk = |unit| work(Worker { number: 0, stop: &stop }, units.indices(unit));
    if units.count == 1 {
        return if chunk(0).is_break() { Finish::Stopped } else { Finish::Done };
    }
    let mut clock = Clock::start(poll);
    for unit in 0..units.count {
        if clock.says_stop() {
            return Finish::Interrupted;
        }
        if chunk(unit).is_break() {
            return Finish::Stopped;
        }
    }
    Finish::Done
}

fn together(team: &'static Team, job: &Job<'_>, mut clock: Clock<'_>) -> Finish {
    let mut poll = || {
        if clock.says_stop() {
            job.stop();
        }
        assert!(team.is_current(), "the process was forked in the middle of a launch");
    };
    let posted = Posted::new(team, job);
    job.take_part(0, &mut poll);
    posted.wait(&mut poll);
    drop(posted);
    if let Some(payload) = job.panic() {
        resume_unwind(payload);
    }
    if clock.stopped {
        Finish::Interrupted
    } else if job.is_stopped() {
        Finish::Stopped
    } else {
        Finish::Done
    }
}

/// Calls `poll` at most every 20 ms: it may be expensive.
struct Clock<'a> {
    poll: &'a mut dyn FnMut() -> bool,
    next: Instant,
    stopped: bool,
}

impl<'a> Clock<'a> {
    fn start(poll: &'a mut dyn FnMut() -> bool) -> Self {
        Self { poll, next: Instant::now() + POLL_EVERY, stopped: false }
    }

    /// Whether the job is to end; after that the host is not polled again.
    fn says_stop(&mut self) -> bool {
        if !self.stopped && Instant::now() >= self.next {
            self.stopped = (self.poll)();
            self.next = Instant::now() + POLL_EVERY;
        }
        self.stopped
    }
}
