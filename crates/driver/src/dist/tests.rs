//! Random programs of tasks against their sequential execution.

use super::{Failure, Queue, Row, Runners, Until, Waited};
use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;
use tessera_region::{Privilege, Use};

#[derive(Clone, PartialEq, Debug)]
enum Wrong {
    Task(usize),
    Interrupt,
    Panic,
    GivenUp,
}

impl Failure for Wrong {
    fn interrupts(&self) -> bool {
        *self == Wrong::Interrupt
    }

    fn of_panic(_: Box<dyn Any + Send>) -> Self {
        Wrong::Panic
    }

    fn given_up() -> Self {
        Wrong::GivenUp
    }
}

fn seed() -> u64 {
    let given = std::env::var("TESSERA_FUZZ_SEED").ok().and_then(|s| s.parse().ok());
    let seed =
        given.unwrap_or_else(|| std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs() / 86400));
    println!("TESSERA_FUZZ_SEED={seed}");
    seed
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn uses(&mut self) -> Vec<Use> {
        let one = |r: &mut Random| {
            let privilege = ["read", "read", "write", "read_write", "reduce_sum"];
            let (storage, from) = (r.below(2), r.below(CELLS as u64));
            let (count, step) = (r.below(4), 1 + r.below(2));
            let to = (from + count * step).min(CELLS as u64);
            let name = privilege[r.below(5) as usize];
            Use::parse(&format!("{name} {storage}[{from}:{to}:{step}]")).expect("a use")
        };
        (0..1 + self.below(3)).map(|_| one(self)).collect()
    }
}

const CELLS: usize = 6;

type Cells = Arc<Vec<Mutex<i64>>>;

fn cells() -> Cells {
    Arc::new((0..2 * CELLS).map(|i| Mutex::new(i as i64)).collect())
}

fn places(u: &Use) -> Vec<usize> {
    u.index[0].iter().map(|i| u.storage as usize * CELLS + i as usize).collect()
}

/// What a task does: it reads all first and writes all last, with time between them.
fn act(number: usize, uses: &[Use], cells: &Cells) {
    let mut seen = 0_i64;
    for u in uses.iter().filter(|u| matches!(u.privilege, Privilege::Read | Privilege::ReadWrite)) {
        for at in places(u) {
            seen = seen.wrapping_mul(31).wrapping_add(*cells[at].lock().expect("no task panics"));
        }
    }
    std::thread::yield_now();
    for u in uses {
        for at in places(u) {
            let mut cell = cells[at].lock().expect("no task panics");
            match u.privilege {
                Privilege::Read => {}
                Privilege::Write => *cell = seen ^ number as i64,
                Privilege::ReadWrite => {
                    *cell = cell.wrapping_mul(7).wrapping_add(seen ^ number as i64);
                }
                Privilege::Reduce(_) => *cell = cell.wrapping_add(number as i64),
            }
        }
    }
}

/// A program: launches of tasks, some of which fail.
struct Program {
    launches: Vec<Vec<Vec<Use>>>,
    failing: Vec<usize>,
}

impl Program {
    fn new(random: &mut Random, fails: bool) -> Program {
        let launches: Vec<Vec<Vec<Use>>> = (0..1 + random.below(6))
            .map(|_| (0..1 + random.below(4)).map(|_| random.uses()).collect())
            .collect();
        let count = launches.iter().flatten().count() as u64;
        let failing = if fails {
            (0..1 + random.below(2)).map(|_| random.below(count) as usize).collect()
        } else {
            Vec::new()
        };
        Program { launches, failing }
    }

    /// What it means: one task after the other. One that fails, or interferes with an earlier one that was not run, is not run.
    fn sequential(&self) -> (Vec<i64>, Vec<usize>) {
        let (cells, mut left_out) = (cells(), Vec::<(usize, &Vec<Use>)>::new());
        for (number, uses) in self.launches.iter().flatten().enumerate() {
            let depends = left_out
                .iter()
                .any(|(_, other)| other.iter().any(|a| uses.iter().any(|b| a.interferes(b))));
            if depends || self.failing.contains(&number) {
                left_out.push((number, uses));
            } else {
                act(number, uses, &cells);
            }
        }
        (values(&cells), left_out.into_iter().map(|(number, _)| number).collect())
    }

    /// The tasks of each launch, which act on cells, and count as they run.
    fn rows(&self, cells: &Cells, ran: &Arc<AtomicUsize>) -> Vec<Vec<Row<Wrong>>> {
        let mut number = 0;
        let mut row = |uses: &Vec<Use>| -> Row<Wrong> {
            let (me, fails) = (number, self.failing.contains(&number));
            number += 1;
            let (cells, ran, mine) = (cells.clone(), ran.clone(), uses.clone());
            let work = move || {
                if fails {
                    return Err(Wrong::Task(me));
                }
                act(me, &mine, &cells);
                ran.fetch_add(1, Ordering::Relaxed);
                Ok(())
            };
            (Box::new(work), uses.clone())
        };
        self.launches.iter().map(|launch| launch.iter().map(&mut row).collect()).collect()
    }
}

fn values(cells: &Cells) -> Vec<i64> {
    cells.iter().map(|c| *c.lock().expect("no task panics")).collect()
}

fn workers(workers: usize) -> Runners {
    Runners { workers, caller: false }
}

const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn random_programs_equal_their_sequential_execution_in_any_order_of_ready_tasks() {
    let mut random = Random(seed());
    for case in 0..2000 {
        let fails = case % 2 == 1;
        let program = Program::new(&mut random, fails);
        let (expected, left_out) = program.sequential();
        let (cells, ran) = (cells(), Arc::new(AtomicUsize::new(0)));
        let queue: Arc<Queue<Wrong>> = Arc::default();
        let mut launches = Vec::new();
        for rows in program.rows(&cells, &ran) {
            launches.push(queue.submit(rows, workers(0)).expect("nothing has run"));
            // Where nothing fails, tasks run while others are submitted.
            while !fails && random.below(2) == 0 && queue.step(|n| random.below(n as u64) as usize)
            {
            }
        }
        while queue.step(|n| random.below(n as u64) as usize) {}
        assert!(queue.is_empty(), "case {case}");
        assert_eq!(values(&cells), expected, "case {case}");
        let count = program.launches.iter().flatten().count();
        assert_eq!(ran.load(Ordering::Relaxed), count - left_out.len(), "case {case}");
        let mut number = 0;
        for (launch, tasks) in launches.iter().zip(&program.launches) {
            let own = number..number + tasks.len();
            number = own.end;
            assert!(launch.is_done());
            let fails = left_out.iter().any(|n| own.contains(n));
            assert_eq!(launch.failure().is_some(), fails, "case {case}");
        }
        // Each failure is reported, once for a launch.
        let mut reported = 0;
        while let Some(Wrong::Task(task)) = queue.report() {
            assert!(program.failing.contains(&task));
            reported += 1;
        }
        assert_eq!(reported > 0, fails, "case {case}");
        assert!(queue.is_quiet());
    }
}

#[test]
fn random_programs_equal_their_sequential_execution_on_threads() {
    let mut random = Random(seed() ^ 1);
    for case in 0..300 {
        let program = Program::new(&mut random, case % 2 == 1);
        // A task that uses no cell waits for nothing: its failure may be reported to a later launch.
        let tasks: Vec<&Vec<Use>> = program.launches.iter().flatten().collect();
        if program.failing.iter().any(|&task| tasks[task].iter().all(|u| places(u).is_empty())) {
            continue;
        }
        let (expected, left_out) = program.sequential();
        let (cells, ran) = (cells(), Arc::new(AtomicUsize::new(0)));
        let queue: Arc<Queue<Wrong>> = Arc::default();
        // Nothing begins before all is submitted, so that what depends on a failure is known.
        let gate = Arc::new(Barrier::new(2));
        let held = gate.clone();
        let hold = move || {
            held.wait();
            Ok(())
        };
        let all = (0..2).map(|s| Use::parse(&format!("write {s}[0:{CELLS}]")).expect("a use"));
        let rows: Vec<Row<Wrong>> = vec![(Box::new(hold), all.collect())];
        let _ = queue.submit(rows, workers(4)).expect("nothing has run");
        for rows in program.rows(&cells, &ran) {
            let _ = queue.submit(rows, workers(4)).expect("nothing has failed");
        }
        gate.wait();
        assert_eq!(queue.wait(&Until::Below(queue.end_of_all()), PATIENCE), Waited::Done);
        assert_eq!(values(&cells), expected, "case {case}");
        let count = program.launches.iter().flatten().count();
        assert_eq!(ran.load(Ordering::Relaxed), count - left_out.len(), "case {case}");
        assert_eq!(queue.report_all().is_empty(), left_out.is_empty(), "case {case}");
        queue.close();
    }
}

fn uses(text: &str) -> Vec<Use> {
    vec![Use::parse(text).expect("a use")]
}

fn row(text: &str, work: impl FnOnce() -> Result<(), Wrong> + Send + 'static) -> Row<Wrong> {
    (Box::new(work), uses(text))
}

#[test]
fn tasks_that_do_not_interfere_run_together() {
    let queue: Arc<Queue<Wrong>> = Arc::default();
    let both = Arc::new(Barrier::new(3));
    let rows = (0..3).map(|i| {
        let both = both.clone();
        row(&format!("write 0[{i}:{}]", i + 1), move || {
            both.wait();
            Ok(())
        })
    });
    // Each waits for the two others: this thread and two workers.
    let launch = queue.submit(rows.collect(), workers(2)).expect("nothing failed");
    assert_eq!(queue.wait(&Until::Done(&launch), PATIENCE), Waited::Done);
    queue.close();
}

#[test]
fn a_caller_runs_what_is_ready_of_its_tasks() {
    let queue: Arc<Queue<Wrong>> = Arc::default();
    let order = Arc::new(Mutex::new(Vec::new()));
    let task = |number: usize, uses: &str| {
        let order = order.clone();
        row(uses, move || {
            order.lock().expect("no task panics").push(number);
            Ok(())
        })
    };
    let before = queue.submit(vec![task(0, "write 0[0:1]")], workers(0)).expect("nothing failed");
    // The second waits for a task of another launch, and the third for the first of this one.
    let rows = vec![task(1, "write 0[1:2]"), task(2, "read 0[0:1]"), task(3, "read 0[1:2]")];
    let caller = Runners { workers: 0, caller: true };
    let launch = queue.submit(rows, caller).expect("nothing failed");
    assert_eq!(*order.lock().expect("no task panics"), [1, 3]);
    assert_eq!((before.is_done(), launch.is_done(), queue.len()), (false, false, 2));
    while queue.step(|_| 0) {}
    assert_eq!(*order.lock().expect("no task panics"), [1, 3, 0, 2]);
    let failing = vec![row("write 0[0:1]", || Err(Wrong::Interrupt))];
    assert_eq!(queue.submit(failing, caller).err(), Some(Wrong::Interrupt));
    assert!(queue.is_quiet());
}

#[test]
fn nothing_is_submitted_while_a_failure_is_unreported() {
    let queue: Arc<Queue<Wrong>> = Arc::default();
    let failing = || vec![row("write 0[0:1]", || Err(Wrong::Task(7)))];
    let launch = queue.submit(failing(), workers(0)).expect("nothing failed");
    assert!(queue.step(|_| 0));
    let next = queue.submit(vec![row("read 0[0:1]", || panic!("it must not run"))], workers(0));
    assert_eq!(next.err(), Some(Wrong::Task(7)));
    assert!(queue.is_quiet() && launch.failure() == Some((0, Wrong::Task(7))));
    // Reported by a wait for the launch, it is not reported again.
    let launch = queue.submit(failing(), workers(0)).expect("it was reported");
    assert_eq!(queue.wait(&Until::Done(&launch), PATIENCE), Waited::Done);
    queue.saw(launch.failure().expect("it failed").0);
    assert!(queue.is_quiet());
}

#[test]
fn a_wait_ends_with_an_interrupt_of_what_it_helped_with() {
    let queue: Arc<Queue<Wrong>> = Arc::default();
    let rows = vec![row("write 0[0:1]", || Err(Wrong::Interrupt)), row("read 0[0:1]", || Ok(()))];
    let launch = queue.submit(rows, workers(0)).expect("nothing failed");
    let waited = queue.wait(&Until::Done(&launch), PATIENCE);
    assert_eq!(waited, Waited::Interrupted(Wrong::Interrupt));
    assert!(launch.is_done() && queue.is_quiet());
}

#[test]
fn panics_are_failures() {
    let queue: Arc<Queue<Wrong>> = Arc::default();
    let rows = vec![row("write 0[0:1]", || panic!("in a task"))];
    let launch = queue.submit(rows, workers(0)).expect("nothing failed");
    assert!(queue.step(|_| 0));
    assert_eq!(launch.failure(), Some((0, Wrong::Panic)));
}

#[test]
fn a_wait_inside_a_task_is_for_earlier_ones() {
    let queue: Arc<Queue<Wrong>> = Arc::default();
    let inner = queue.clone();
    let wait = move || {
        let before = inner.before(&uses("write 0[0:4]")[0]);
        assert_eq!(before, [0]);
        // Helps with the earlier one, and with neither itself nor the later one.
        assert_eq!(inner.wait(&Until::Tasks(before), PATIENCE), Waited::Done);
        assert_eq!(inner.wait(&Until::Below(u64::MAX), PATIENCE), Waited::Done);
        Ok(())
    };
    let rows = vec![
        row("write 0[0:1]", || Ok(())),
        row("write 0[1:2]", wait),
        row("write 0[2:3]", || Ok(())),
    ];
    let launch = queue.submit(rows, workers(0)).expect("nothing failed");
    assert!(queue.step(|_| 1));
    assert_eq!((queue.len(), launch.is_done()), (1, false));
    assert!(queue.step(|_| 0) && launch.is_done() && launch.failure().is_none());
}

#[test]
fn tasks_are_given_up_and_lost() {
    let queue: Arc<Queue<Wrong>> = Arc::default();
    let kept = Arc::new(());
    let held = kept.clone();
    let rows = vec![
        row("write 0[0:1]", || Ok(())),
        row("read 0[0:1]", move || {
            drop(held);
            Ok(())
        }),
    ];
    let launch = queue.submit(rows, workers(0)).expect("nothing failed");
    queue.give_up();
    assert!(launch.is_done() && queue.is_empty() && Arc::strong_count(&kept) == 1);
    assert_eq!(launch.failure().map(|f| f.1), Some(Wrong::GivenUp));
    let queue: Arc<Queue<Wrong>> = Arc::default();
    let launch =
        queue.submit(vec![row("write 0[0:1]", || Ok(()))], workers(0)).expect("nothing failed");
    queue.forked();
    assert!(launch.is_done() && queue.is_empty() && launch.failure().is_some());
}
