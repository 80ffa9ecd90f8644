//! The threads: how they are hired, handed a job, and waited for.
//!
//! A job is on its caller's stack. A worker gets at it through a ticket, the pointer in its
//! seat. Worker and caller both take a ticket out by an atomic swap, so exactly one of them gets
//! it: either the worker goes in, and counts itself out when it has left, or the caller has taken
//! the ticket back and the worker never sees the job. A worker that wakes late is not waited for.

use super::POLL_EVERY;
use super::float_env::FloatEnv;
use super::job::Job;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

const STACK_BYTES: usize = 2 << 20;

/// How many threads one wakes before it gets to its own work: a system call each.
const WAKES: usize = 8;

/// How long to look out for a job, or for the last worker, before going to sleep: about as long as
/// it takes to be woken, so no more is lost than could have been won.
const LOOK_OUT: Duration = Duration::from_micros(20);

/// Set in `Team::out` by a caller that sleeps.
const ASLEEP: u32 = 1 << 31;

/// The team of this process; none before the first job and in a child just forked. It is never
/// freed: its threads sleep in it until the process ends.
static TEAM: AtomicPtr<Team> = AtomicPtr::new(ptr::null_mut());

#[derive(Default)]
pub(super) struct Team {
    /// Locked by the caller whose job it is, for as long as the job lasts.
    members: Mutex<Vec<Member>>,
    /// Tickets given out and not come back. It is not in the job: the last worker to leave may have
    /// to wake the caller after it has counted itself out, when the job may be gone.
    out: AtomicU32,
    bed: Mutex<()>,
    all_back: Condvar,
}

pub(super) struct Member {
    seat: &'static Seat,
    thread: Thread,
}

#[derive(Default)]
#[repr(align(128))]
struct Seat {
    ticket: AtomicPtr<Job<'static>>,
}

impl Team {
    /// None where forks could not be noticed.
    pub fn get() -> Option<&'static Self> {
        let team = TEAM.load(Acquire);
        if !team.is_null() {
            // SAFETY: a team is never freed once it is there.
            return Some(unsafe { &*team });
        }
        if !fork::is_noticed() {
            return None;
        }
        let new = Box::into_raw(Box::<Self>::default());
        let there = match TEAM.compare_exchange(ptr::null_mut(), new, AcqRel, Acquire) {
            Ok(_) => new,
            Err(other) => {
                // SAFETY: another thread was quicker; nobody has seen `new`.
                drop(unsafe { Box::from_raw(new) });
                other
            }
        };
        // SAFETY: as above.
        Some(unsafe { &*there })
    }

    /// False in a child forked since: the threads of this team are not in it.
    pub fn is_current(&self) -> bool {
        ptr::eq(TEAM.load(Relaxed), self)
    }

    /// Makes the team the caller's, with `helpers` members if the system has as many threads. None
    /// while another job, or one around this, has it: it must not be waited for.
    pub fn engage(&'static self, helpers: usize) -> Option<MutexGuard<'static, Vec<Member>>> {
        let mut members = match self.members.try_lock() {
            Ok(members) => members,
            // A work function panicked; the list is whole.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        while members.len() < helpers {
            let number = members.len() + 1;
            let seat: &Seat = Box::leak(Box::default());
            let thread = thread::Builder::new()
                .name(format!("tessera-{number}"))
                .stack_size(STACK_BYTES)
                .spawn(move || self.serve(seat, number));
            let Ok(thread) = thread else { break };
            members.push(Member { seat, thread: thread.thread().clone() });
        }
        Some(members)
    }

    /// The life of a worker.
    fn serve(&self, seat: &Seat, number: usize) {
        loop {
            let job = seat.wait();
            // SAFETY: the ticket was in the seat, so `Posted` has not seen this worker leave, and
            // the job outlives `Posted`. It is not touched after `leave`.
            attend(unsafe { &*job }, number);
            self.leave();
        }
    }

    fn leave(&self) {
        // Release: the caller sees what this worker wrote. Later counts of others are part of the
        // release sequence, so it sees it whichever worker is last.
        if self.out.fetch_sub(1, Release) == ASLEEP | 1 {
            // The caller set the bit under the lock, and has it until it sleeps.
            drop(self.bed.lock());
            self.all_back.notify_one();
        }
    }
}

fn attend(job: &Job<'_>, number: usize) {
    wake_below(job, number);
    let part = || {
        let _environment = FloatEnv::standard();
        job.take_part(number, || ());
    };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(part)) {
        job.fail(payload);
    }
}

/// The caller wakes the first few workers, and each of them a few more.
fn wake_below(job: &Job<'_>, number: usize) {
    for member in job.members.iter().skip(WAKES * number).take(WAKES) {
        member.thread.unpark();
    }
}

impl Seat {
    fn wait(&self) -> *const Job<'static> {
        let begun = Instant::now();
        loop {
            if !self.ticket.load(Relaxed).is_null() {
                // Acquire: the job is seen as it was posted.
                let job = self.ticket.swap(ptr::null_mut(), Acquire);
                if !job.is_null() {
                    return job;
                }
            }
            if begun.elapsed() < LOOK_OUT {
                // Not a bare spin: another runnable thread gets this core.
                thread::yield_now();
            } else {
                // A wake-up after the check above is kept, and makes this return immediately.
                thread::park();
            }
        }
    }
}

/// A job that workers may be in. Dropping it stops the job and waits until all have left.
pub(super) struct Posted<'a> {
    team: &'static Team,
    job: &'a Job<'a>,
}

impl<'a> Posted<'a> {
    /// `team` is engaged by this caller, and the job's members are its first ones.
    pub fn new(team: &'static Team, job: &'a Job<'a>) -> Self {
        team.out.store(job.members.len() as u32, Relaxed);
        let ticket = ptr::from_ref(job).cast_mut().cast();
        for member in job.members {
            // Release: with the job come the count above and all that the caller wrote before.
            member.seat.ticket.store(ticket, Release);
        }
        wake_below(job, 0);
        Self { team, job }
    }

    /// Takes back the tickets still in their seats and waits for the workers that are in the job.
    /// Asleep, it calls `meanwhile` now and then.
    pub fn wait(&self, mut meanwhile: impl FnMut()) {
        for member in self.job.members {
            if !member.seat.ticket.swap(ptr::null_mut(), Relaxed).is_null() {
                self.team.out.fetch_sub(1, Relaxed);
            }
        }
        let begun = Instant::now();
        while !self.all_back() {
            if begun.elapsed() < LOOK_OUT {
                thread::yield_now();
                continue;
            }
            let bed = self.team.bed.lock().unwrap_or_else(PoisonError::into_inner);
            // A worker counts itself out either before this, and is seen here, or after, and then
            // sees the bit and wakes.
            if self.team.out.fetch_or(ASLEEP, Acquire) & !ASLEEP != 0 {
                drop(self.team.all_back.wait_timeout(bed, POLL_EVERY));
            }
            meanwhile();
        }
    }

    fn all_back(&self) -> bool {
        // Acquire: see `Team::leave`.
        self.team.out.load(Acquire) & !ASLEEP == 0
    }
}

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        // In a forked child nobody is there to wait for, and the locks may be held for ever.
        if self.team.is_current() && !self.all_back() {
            self.job.stop();
            self.wait(|| ());
        }
    }
}

/// A child has none of its parent's threads, and locks that those held stay locked: it forgets the
/// parent's team and makes its own.
#[cfg(unix)]
mod fork {
    use super::TEAM;
    use std::ptr;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

    pub fn is_noticed() -> bool {
        static REQUESTED: AtomicBool = AtomicBool::new(false);
        extern "C" fn forget() {
            TEAM.store(ptr::null_mut(), Relaxed);
        }
        // Two threads may both get here and ask twice, which does no harm. A `Once` could: a fork
        // in the middle of it would leave it locked in the child.
        // SAFETY: the handler only stores to an atomic, which is allowed there.
        if !REQUESTED.load(Acquire)
            && unsafe { libc::pthread_atfork(None, None, Some(forget)) } == 0
        {
            REQUESTED.store(true, Release);
        }
        REQUESTED.load(Acquire)
    }
}

#[cfg(not(unix))]
mod fork {
    pub fn is_noticed() -> bool {
        true
    }
}
