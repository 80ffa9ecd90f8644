//! Tasks in program order, and the threads that run them.

use std::any::Any;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tessera_region::{TaskId, Tasks, Use};
use tessera_support::ForkLock;

/// What went wrong in a task.
pub trait Failure: Clone + Send + Sync + 'static {
    /// Whether the thread that ran the task is to stop what it does: its user has interrupted it.
    fn interrupts(&self) -> bool;
    fn of_panic(panic: Box<dyn Any + Send>) -> Self;
    /// Of tasks that were given up before they began.
    fn given_up() -> Self;
}

/// What a task does.
pub type Work<F> = Box<dyn FnOnce() -> Result<(), F> + Send>;

/// A task with the elements that it uses.
pub type Row<F> = (Work<F>, Vec<Use>);

/// The stack of a worker: as much as a program's first thread mostly has.
const STACK: usize = 8 << 20;

thread_local! {
    /// The task that this thread runs.
    static CURRENT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The tasks of one launch.
pub struct Submitted<F> {
    left: AtomicUsize,
    /// Whether a failure of it was reported; others of it are not.
    reported: AtomicBool,
    /// Of its first task that failed, or was cancelled: the task where it began.
    failure: Mutex<Option<(u64, u64, F)>>,
}

impl<F: Failure> Submitted<F> {
    pub fn is_done(&self) -> bool {
        self.left.load(Ordering::Acquire) == 0
    }

    /// The task that failed, and how.
    pub fn failure(&self) -> Option<(u64, F)> {
        let found = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        found.as_ref().map(|(_, began, failure)| (*began, failure.clone()))
    }

    fn ended(&self, task: u64, failure: Option<&(u64, F)>) -> bool {
        if let Some((began, failure)) = failure {
            let mut found = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            if found.as_ref().is_none_or(|(first, ..)| task < *first) {
                *found = Some((task, *began, failure.clone()));
            }
        }
        self.left.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

struct Task<F> {
    /// Taken when it begins.
    work: Option<Work<F>>,
    /// How many tasks it waits for.
    missing: usize,
    /// Those that wait for it.
    next: Vec<u64>,
    /// Whether some thread waits for this task.
    awaited: bool,
    launch: Arc<Submitted<F>>,
}

struct Unseen<F> {
    task: u64,
    launch: Arc<Submitted<F>>,
    failure: F,
}

struct State<F> {
    order: Tasks,
    /// Tasks that have not ended.
    live: BTreeMap<u64, Task<F>>,
    ready: VecDeque<u64>,
    /// Behind the last task.
    end: u64,
    threads: usize,
    most: usize,
    idle: usize,
    /// Whether a worker was woken that has not come yet.
    called: bool,
    /// Threads that wait and have nothing to help with.
    waiting: usize,
    unseen: Vec<Unseen<F>>,
    closed: bool,
}

impl<F> Default for State<F> {
    fn default() -> Self {
        Self {
            order: Tasks::default(),
            live: BTreeMap::new(),
            ready: VecDeque::new(),
            end: 0,
            threads: 0,
            most: 0,
            idle: 0,
            called: false,
            waiting: 0,
            unseen: Vec::new(),
            closed: false,
        }
    }
}

/// The tasks of a process.
pub struct Queue<F> {
    state: ForkLock<State<F>>,
    /// For idle workers.
    work: Condvar,
    /// For threads that wait.
    ended: Condvar,
}

impl<F> Default for Queue<F> {
    fn default() -> Self {
        Self { state: ForkLock::new(State::default()), work: Condvar::new(), ended: Condvar::new() }
    }
}

/// What a thread waits for.
pub enum Until<'a, F> {
    /// The tasks of a launch.
    Done(&'a Submitted<F>),
    /// Tasks, by [`Queue::before`].
    Tasks(Vec<u64>),
    /// All tasks below a number.
    Below(u64),
}

#[must_use]
#[derive(Debug, PartialEq)]
pub enum Waited<F> {
    Done,
    /// It takes longer than the caller's patience.
    Later,
    /// A task that this thread helped with was interrupted.
    Interrupted(F),
}

type Guard<'a, F> = MutexGuard<'a, State<F>>;

/// Whether this thread is in a task.
pub fn in_task() -> bool {
    CURRENT.get().is_some()
}

impl<F: Failure> Queue<F> {
    /// Takes up the tasks of a launch, in this order, behind all others. At most `most` workers run tasks. Where a failure of earlier
    /// tasks is not reported yet, this reports it and takes up nothing.
    pub fn submit(
        self: &Arc<Self>,
        rows: Vec<Row<F>>,
        most: usize,
    ) -> Result<Arc<Submitted<F>>, F> {
        let launch = Arc::new(Submitted {
            left: AtomicUsize::new(rows.len()),
            reported: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let mut state = self.state.lock();
        if let Some(failure) = state.report() {
            drop(state);
            return Err(failure);
        }
        state.most = most;
        for (work, uses) in rows {
            let (TaskId(number), before) = state.order.add(uses);
            let missing = before.len();
            for TaskId(other) in before {
                if let Some(other) = state.live.get_mut(&other) {
                    other.next.push(number);
                }
            }
            let launch = launch.clone();
            let task = Task { work: Some(work), missing, next: Vec::new(), awaited: false, launch };
            state.live.insert(number, task);
            state.end = number + 1;
            if missing == 0 {
                state.ready.push_back(number);
            }
        }
        self.call(&mut state);
        Ok(launch)
    }

    /// Wakes one worker if there is something to run, or begins one. A worker that begins a task while others are ready does the same, so
    /// that as many run as there is work for, and the caller wakes one.
    fn call(self: &Arc<Self>, state: &mut State<F>) {
        if state.ready.is_empty() || state.called {
            return;
        }
        if state.idle > 0 {
            state.called = true;
            self.work.notify_one();
        } else if state.threads < state.most {
            let queue = self.clone();
            let thread = std::thread::Builder::new().name("tessera task".into()).stack_size(STACK);
            // Without a thread the tasks run when someone waits for them.
            if thread.spawn(move || queue.serve()).is_ok() {
                state.threads += 1;
                state.called = true;
            }
        } else if state.waiting > 0 {
            self.ended.notify_one();
        }
    }

    /// The life of a worker.
    fn serve(self: &Arc<Self>) {
        let mut state = self.state.lock();
        state.called = false;
        loop {
            let Some(number) = state.ready.pop_front() else {
                if state.closed {
                    state.threads -= 1;
                    return;
                }
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                state.called = false;
                continue;
            };
            // Interrupts are of the thread that has the user's program.
            (state, _) = self.run(state, number);
        }
    }

    /// Runs a task that was ready, and ends it. Gives its failure.
    fn run<'a>(
        self: &'a Arc<Self>,
        mut state: Guard<'a, F>,
        number: u64,
    ) -> (Guard<'a, F>, Option<F>) {
        let work = state.live.get_mut(&number).and_then(|task| task.work.take());
        self.call(&mut state);
        drop(state);
        let before = CURRENT.replace(Some(number));
        let done = work.map_or(Ok(()), |work| {
            catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(F::of_panic(panic)))
        });
        CURRENT.set(before);
        let mut state = self.state.lock();
        let failure = done.err();
        let dropped = self.end(&mut state, number, failure.clone());
        if dropped.is_empty() {
            return (state, failure);
        }
        drop(state);
        drop(dropped);
        (self.state.lock(), failure)
    }

    /// Ends a task and, where it failed, all that depend on it. Gives the work of those, to be dropped without the lock.
    fn end(&self, state: &mut State<F>, number: u64, failure: Option<F>) -> Vec<Work<F>> {
        let failure = failure.map(|failure| (number, failure));
        let (mut stack, mut dropped, mut wake) = (vec![number], Vec::new(), false);
        while let Some(ended) = stack.pop() {
            let Some(task) = state.live.remove(&ended) else { continue };
            state.order.done(TaskId(ended));
            dropped.extend(task.work);
            wake |= task.launch.ended(ended, failure.as_ref()) || task.awaited;
            if let Some((_, failure)) = failure.as_ref().filter(|_| ended == number)
                && !task.launch.reported.load(Ordering::Relaxed)
            {
                let (launch, failure) = (task.launch.clone(), failure.clone());
                state.unseen.push(Unseen { task: number, launch, failure });
            }
            if failure.is_some() {
                stack.extend(task.next);
                continue;
            }
            for next in task.next {
                let Some(other) = state.live.get_mut(&next) else { continue };
                other.missing -= 1;
                if other.missing == 0 {
                    state.ready.push_back(next);
                }
            }
        }
        if wake && state.waiting > 0 {
            self.ended.notify_all();
        }
        dropped
    }

    /// The tasks that must end before elements can be used, to be waited for.
    pub fn before(&self, wanted: &Use) -> Vec<u64> {
        let state = self.state.lock();
        if state.live.is_empty() {
            return Vec::new();
        }
        let first = CURRENT.get().unwrap_or(u64::MAX);
        state.order.waits(wanted).into_iter().map(|t| t.0).filter(|n| *n < first).collect()
    }

    /// The number behind the last task.
    pub fn end_of_all(&self) -> u64 {
        self.state.lock().end
    }

    /// Whether no task is in flight, and no failure is unreported.
    pub fn is_quiet(&self) -> bool {
        let state = self.state.lock();
        state.live.is_empty() && state.unseen.is_empty()
    }

    /// How many tasks have not ended.
    pub fn len(&self) -> usize {
        self.state.lock().live.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Runs the ready task at a place among them; says whether there was one. For tests, which choose the order.
    pub fn step(self: &Arc<Self>, choose: impl FnOnce(usize) -> usize) -> bool {
        let mut state = self.state.lock();
        let count = state.ready.len();
        if count == 0 {
            return false;
        }
        let Some(number) = state.ready.remove(choose(count)) else { return false };
        drop(self.run(state, number));
        true
    }

    /// Waits, for as long as the patience lasts, and runs ready tasks meanwhile.
    pub fn wait(self: &Arc<Self>, until: &Until<'_, F>, patience: Duration) -> Waited<F> {
        let first = CURRENT.get();
        let earlier;
        let until = match (until, first) {
            (Until::Below(end), Some(first)) => {
                earlier = Until::Below(first.min(*end));
                &earlier
            }
            (until, _) => until,
        };
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        if let Until::Tasks(tasks) = until {
            for number in tasks {
                if let Some(task) = state.live.get_mut(number) {
                    task.awaited = true;
                }
            }
        }
        loop {
            let done = match until {
                Until::Done(launch) => launch.is_done(),
                Until::Tasks(tasks) => !tasks.iter().any(|n| state.live.contains_key(n)),
                Until::Below(end) => state.live.keys().next().is_none_or(|n| n >= end),
            };
            if done {
                return Waited::Done;
            }
            let next = match first {
                None => state.ready.pop_front(),
                Some(first) => {
                    let place = state.ready.iter().position(|n| *n < first);
                    place.and_then(|place| state.ready.remove(place))
                }
            };
            if let Some(number) = next {
                let failure;
                (state, failure) = self.run(state, number);
                if let Some(failure) = failure.filter(F::interrupts) {
                    state.saw(number);
                    return Waited::Interrupted(failure);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::Later;
            }
            if next.is_none() {
                state.waiting += 1;
                let waited = self.ended.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.waiting -= 1;
            }
        }
    }

    /// A failure that began in a task is reported.
    pub fn saw(&self, task: u64) {
        self.state.lock().saw(task);
    }

    /// Reports the first failure that was not reported.
    pub fn report(&self) -> Option<F> {
        self.state.lock().report()
    }

    /// The failures that were not reported, one for each launch, in program order.
    pub fn report_all(&self) -> Vec<F> {
        std::iter::from_fn(|| self.report()).collect()
    }

    /// Ends all tasks that have not begun. Those that run go on.
    pub fn give_up(&self) {
        let mut state = self.state.lock();
        let waiting: Vec<u64> = state.live.keys().copied().collect();
        let mut dropped = Vec::new();
        for number in waiting {
            if state.live.get(&number).is_some_and(|task| task.work.is_some()) {
                dropped.extend(self.end(&mut state, number, Some(F::given_up())));
            }
        }
        state.ready.clear();
        drop(state);
        drop(dropped);
    }

    /// To be called in a child: threads are not there, and neither is what they ran.
    pub fn forked(&self) {
        let mut state = self.state.lock();
        let State { unseen, live, .. } = std::mem::take(&mut *state);
        state.unseen = unseen;
        drop(state);
        for (number, task) in live {
            task.launch.ended(number, Some(&(number, F::given_up())));
        }
    }

    /// Lets workers end when there is nothing to run.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.work.notify_all();
    }
}

impl<F: Failure> State<F> {
    /// Failures of a launch of which one was reported are not reported again.
    fn saw(&mut self, task: u64) {
        for unseen in &self.unseen {
            if unseen.task == task {
                unseen.launch.reported.store(true, Ordering::Relaxed);
            }
        }
        self.unseen.retain(|u| !u.launch.reported.load(Ordering::Relaxed));
    }

    fn report(&mut self) -> Option<F> {
        let first = self.unseen.iter().min_by_key(|u| u.task)?;
        let (task, failure) = (first.task, first.failure.clone());
        self.saw(task);
        Some(failure)
    }
}
