use super::float_env::{STANDARD, replace};
use super::ranges::Units;
use super::{Finish, Split, Work, run};
use std::cell::Cell;
use std::hint::black_box;
use std::ops::ControlFlow::{Break, Continue};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Tests that need helpers take turns: while one has the pool, others would run alone.
fn serial() -> MutexGuard<'static, ()> {
    static SERIAL: Mutex<()> = Mutex::new(());
    SERIAL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn split(total: u64, grain: u64, threads: usize) -> Split {
    Split { total, grain, threads }
}

fn go(split: Split, work: &Work<'_>) -> Finish {
    run(split, work, &mut || false)
}

/// Waits for another thread, for so long that only a hang takes longer.
fn until(mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing happened");
        thread::sleep(Duration::from_micros(50));
    }
}

/// Plain memory, so that a race detector sees a chunk run twice or not waited for.
struct Cells(*mut u32);

// SAFETY: each cell is touched by one worker, and read when all have left.
unsafe impl Sync for Cells {}

impl Cells {
    fn count(&self, index: u64) {
        // SAFETY: as above; the index is below the job's total.
        unsafe { *self.0.add(index as usize) += 1 };
    }
}

fn each_index_once(cut: Split) {
    let mut seen = vec![0; cut.total as usize];
    let cells = Cells(seen.as_mut_ptr());
    let finish = go(cut, &|worker, range| {
        assert!(worker.number < cut.threads.max(1));
        assert!(!range.is_empty() && range.end - range.start <= cut.grain.max(1));
        range.for_each(|index| cells.count(index));
        Continue(())
    });
    assert_eq!(finish, Finish::Done);
    assert!(seen.iter().all(|&times| times == 1), "{cut:?}");
}

#[test]
fn every_index_is_run_once() {
    let _serial = serial();
    for total in [0, 1, 2, 3, 7, 64, 1000] {
        for grain in [0, 1, 3, 64, 5000] {
            (0..=6).for_each(|threads| each_index_once(split(total, grain, threads)));
        }
    }
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for _ in 0..3000 {
        each_index_once(split(random(3000), 1 + random(20), 1 + random(9) as usize));
    }
}

#[test]
fn any_total_fits_the_unit_numbers() {
    for (total, grain) in [(u64::MAX, 1), (u64::MAX, u64::MAX), (1 << 32, 1), (1 << 40, 3)] {
        let units = Units::new(total, grain);
        let last = units.indices(units.count - 1);
        assert!(last.start < last.end && last.end == total);
    }
}

#[test]
fn a_break_stops_all_workers_before_run_returns() {
    let _serial = serial();
    for at in [0, 17, 500_000, 999_999] {
        let over = AtomicBool::new(false);
        let finish = go(split(1_000_000, 7, 4), &|_, range| {
            assert!(!over.load(SeqCst));
            if range.contains(&at) { Break(()) } else { Continue(()) }
        });
        over.store(true, SeqCst);
        assert_eq!(finish, Finish::Stopped);
    }
}

#[test]
fn a_panic_of_any_worker_reaches_the_caller() {
    let _serial = serial();
    for culprit in [0, 1, 2] {
        let inside = AtomicU32::new(0);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            go(split(3, 1, 3), &|worker, _| {
                inside.fetch_add(1, SeqCst);
                until(|| inside.load(SeqCst) == 3);
                assert_ne!(worker.number, culprit, "as planned");
                Continue(())
            })
        }));
        let payload = panicked.unwrap_err();
        assert!(payload.downcast_ref::<String>().unwrap().contains("as planned"));
    }
    each_index_once(split(1000, 1, 3));
}

#[test]
fn jobs_inside_jobs_and_of_many_callers_all_finish() {
    let _serial = serial();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| each_index_once(split(300, 2, 3))));
        }
    });
    let finish = go(split(20, 1, 3), &|_, _| {
        each_index_once(split(50, 3, 4));
        Continue(())
    });
    assert_eq!(finish, Finish::Done);
}

#[test]
fn an_interrupt_ends_the_job_between_chunks_and_while_waiting() {
    let _serial = serial();
    for (threads, wait_for_helper) in [(1, false), (3, false), (3, true)] {
        let helped = AtomicBool::new(false);
        let caller = thread::current().id();
        let mut poll = || thread::current().id() == caller;
        let work: &Work<'_> = &|worker, _| {
            if wait_for_helper && worker.number != 0 {
                helped.store(true, SeqCst);
                until(|| worker.stop.load(SeqCst));
            } else {
                until(|| !wait_for_helper || helped.load(SeqCst));
            }
            Continue(())
        };
        let total = if wait_for_helper { 2 } else { 1 << 60 };
        assert_eq!(run(split(total, 1, threads), work, &mut poll), Finish::Interrupted);
    }
}

#[test]
fn no_two_chunks_run_concurrently_under_one_number() {
    let _serial = serial();
    let taken = [const { AtomicBool::new(false) }; 4];
    let caller = thread::current().id();
    let finish = go(split(20_000, 1, 4), &|worker, _| {
        assert_eq!(worker.number == 0, thread::current().id() == caller);
        assert!(!taken[worker.number].swap(true, SeqCst));
        thread::yield_now();
        taken[worker.number].store(false, SeqCst);
        Continue(())
    });
    assert_eq!(finish, Finish::Done);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn work_sees_the_default_float_environment_and_the_caller_keeps_its_own() {
    const CONTROL: u64 = 0xFFC0;
    let _serial = serial();
    let read = || {
        let control = replace(STANDARD);
        replace(control);
        control & CONTROL
    };
    // Rounds up and flushes to zero.
    let strange = 0xDF80;
    let ours = replace(strange);
    let inside = AtomicU32::new(0);
    let strange_inside = AtomicU64::new(0);
    let finish = go(split(2, 1, 2), &|_, _| {
        strange_inside.fetch_or(read() ^ STANDARD, SeqCst);
        inside.fetch_add(1, SeqCst);
        until(|| inside.load(SeqCst) == 2);
        Continue(())
    });
    let after = read();
    replace(ours);
    assert_eq!((finish, strange_inside.into_inner(), after), (Finish::Done, 0, strange));
}

#[cfg(unix)]
mod fork {
    use super::*;

    /// A job that cannot finish without a helper.
    fn needs_two() -> Finish {
        let inside = AtomicU32::new(0);
        go(split(2, 1, 2), &|_, _| {
            inside.fetch_add(1, SeqCst);
            until(|| inside.load(SeqCst) == 2);
            Continue(())
        })
    }

    fn exit(good: bool) -> ! {
        // SAFETY: it ends the process and runs nothing of the parent's.
        unsafe { libc::_exit(if good { 0 } else { 1 }) }
    }

    fn assert_succeeds(child: libc::pid_t) {
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: it waits for a child of ours and writes its status.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            until(|| unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } == child)
        }));
        if ended.is_err() {
            // SAFETY: the child has not been waited for, so the number is still its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        assert_eq!(status, 0);
    }

    #[test]
    fn a_child_gets_threads_of_its_own() {
        let _serial = serial();
        assert_eq!(needs_two(), Finish::Done);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            // So that forks happen in every state of the pool.
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    each_index_once(split(20, 1, 3));
                }
            });
            for _ in 0..30 {
                // SAFETY: the child only runs a job and ends.
                let child = unsafe { libc::fork() };
                if child == 0 {
                    exit(matches!(catch_unwind(needs_two), Ok(Finish::Done)));
                }
                assert_succeeds(child);
            }
            over.store(true, SeqCst);
        });
        assert_eq!(needs_two(), Finish::Done);
    }

    #[test]
    fn a_fork_inside_a_job_ends_it_in_the_child_only() {
        let _serial = serial();
        let child = Cell::new(-1);
        let mut poll = || {
            // SAFETY: as above.
            child.set(unsafe { libc::fork() });
            true
        };
        let job = || run(split(1 << 60, 1, 3), &|_, _| Continue(()), &mut poll);
        let finish = catch_unwind(AssertUnwindSafe(job));
        if child.get() == 0 {
            exit(finish.is_err() && catch_unwind(needs_two).is_ok());
        }
        assert!(matches!(finish, Ok(Finish::Interrupted)));
        assert_succeeds(child.get());
    }
}

#[test]
#[ignore = "prints times"]
fn time_of_an_empty_job() {
    let _serial = serial();
    let cases = [("inline", 1, 0), ("2 threads, just used", 2, 0), ("2 threads, asleep", 2, 2000)];
    for (what, threads, pause) in cases {
        let helped = AtomicU32::new(0);
        let job = |_| {
            if pause > 0 {
                thread::sleep(Duration::from_micros(pause));
            }
            let begun = Instant::now();
            let finish = go(split(2, 1, threads), &|worker, range| {
                helped.fetch_add((worker.number != 0).into(), SeqCst);
                black_box(range);
                Continue(())
            });
            assert_eq!(finish, Finish::Done);
            begun.elapsed().as_secs_f64() * 1e6
        };
        let mut micros: Vec<f64> = (0..1000).map(job).collect();
        micros.sort_by(f64::total_cmp);
        let [low, median, high] = [100, 500, 900].map(|at| micros[at]);
        println!("{what:22} {median:.2} us ({low:.2} to {high:.2}), {helped:?} chunks by a helper");
    }
}
