//! One launch: arguments become words, groups are divided among the threads.

use crate::alone::Admission;
use crate::backend::Kernel;
use crate::build::{Atomics, Variant};
use crate::code::{Context, Shared};
use crate::frame;
use crate::pool::{self, Finish, FloatEnv, Split, Worker};
use crate::room::with_room;
use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_numerics::Scalar;
use tessera_support::ForkLock;
use tessera_target::frame::{Param, ParamKind};
use tessera_target::{ArgValue, LaunchArgs, Poll, Settled, interruption, most_threads};
use tessera_tile::KernelKind;

/// Lanes of one group.
const MAX_LANES: i64 = 1 << 16;

/// What all launches of a kernel share.
pub struct About {
    pub name: String,
    pub kind: KernelKind,
    /// Groups run in order on one thread.
    pub serial: bool,
    /// Threads of every launch; 0 for what `set_threads` says.
    pub threads: usize,
    pub atomics: Atomics,
    /// Subnormal results of f32 arithmetic become zero.
    pub flush: bool,
    /// What the latest launch ran, and on how many threads at most.
    pub last: ForkLock<Option<(Arc<Variant>, usize)>>,
}

impl About {
    /// How many threads a launch may use.
    pub fn threads(&self) -> usize {
        match (self.serial, self.threads) {
            (true, _) => 1,
            (false, 0) => crate::threads().min(most_threads()),
            (false, n) => n.min(most_threads()),
        }
    }
}

/// A launch but for its words.
struct Shape {
    grid: [i64; 3],
    lanes: i64,
    groups: i64,
    /// Of all arrays.
    bytes: i64,
}

pub fn launch(kernel: &Kernel, args: &LaunchArgs) -> Result<(), Diagnostics> {
    let Some(mut fit) = fit(kernel, args)? else { return Ok(()) };
    run(&kernel.about, &fit.variant, &fit.shape, &mut fit.words)
}

/// The code for the arguments of a launch, and their words.
struct Fit {
    variant: Arc<Variant>,
    shape: Shape,
    words: Vec<u64>,
}

/// Nothing for a launch without groups.
fn fit(kernel: &Kernel, args: &LaunchArgs) -> Result<Option<Fit>, Diagnostics> {
    let func = &kernel.func;
    if kernel.about.kind == KernelKind::Lane && !(1..=MAX_LANES).contains(&args.lanes) {
        let why = format!("expected 1 to {MAX_LANES} lanes in a group, got {}", args.lanes);
        return Err(Diagnostic::new(Code::E_ARGUMENT, why).at(func.loc.clone()).into());
    }
    let (mut words, mut layouts) = (Vec::new(), Vec::new());
    frame::fill(&kernel.frame, func, args, kernel.matmul, (&mut words, &mut layouts))?;
    let groups =
        args.grid.iter().try_fold(1i64, |n, &g| n.checked_mul(g.max(0))).unwrap_or(i64::MAX);
    if groups == 0 {
        return Ok(None);
    }
    let (grid, lanes, bytes) = (args.grid, args.lanes, array_bytes(args));
    let (variant, shape) = (kernel.variant(&layouts)?, Shape { grid, lanes, groups, bytes });
    Ok(Some(Fit { variant, shape, words }))
}

/// The most groups between two polls of the host. A launch may have any number of groups, and even
/// an empty group takes time.
const MAX_GRAIN: u64 = 1 << 20;

fn run(
    about: &About,
    variant: &Arc<Variant>,
    shape: &Shape,
    words: &mut [u64],
) -> Result<(), Diagnostics> {
    let shared =
        Shared { name: &about.name, kind: about.kind, grid: shape.grid, prints: &variant.prints };
    // A group is one thread's: a single one that changes elements for all is alone with them.
    let most = if variant.parts { usize::MAX } else { shape.groups.max(1) as usize };
    let threads = if shape.bytes < WORTH_SHARING { 1 } else { about.threads().min(most) };
    *about.last.lock() = Some((variant.clone(), threads));
    // More parts than threads, so that one that is held up does not keep the others waiting.
    // On one thread the host is polled between parts, each of which takes a moment.
    let parts = match threads as u64 {
        1 => 1 + shape.bytes as u64 / PART_BYTES,
        threads => 4 * threads,
    };
    words[frame::PARTS] = parts;
    let admission = match about.atomics {
        Atomics::None => None,
        found => Some(Admission::begin(threads == 1 && found == Atomics::Bounded)?),
    };
    let run = Run {
        variant,
        words,
        shared: &shared,
        lanes: shape.lanes,
        alone: admission.as_ref().is_some_and(Admission::is_alone),
        flush: about.flush,
        failure: Mutex::new(None),
    };
    let total = if variant.parts { parts } else { shape.groups as u64 };
    // Chunks small enough that the last ones end together, and that the host is polled in time.
    let grain = (total / (threads as u64 * 16)).clamp(1, MAX_GRAIN);
    let finish = pool::run(
        Split { total, grain, threads },
        &|worker, range| run.chunk(worker, range.start as i64, range.end as i64),
        &mut { || Poll::start().ask() },
    );
    match (finish, run.failure.into_inner().unwrap_or_default()) {
        // The host holds an exception of its own then, which must be raised.
        (Finish::Interrupted, _) => Err(interruption().into()),
        (Finish::Done | Finish::Stopped, Some(failure)) => Err(failure.into()),
        (Finish::Done | Finish::Stopped, None) => Ok(()),
    }
}

/// A launch to be repeated with other addresses and numbers.
struct Again {
    about: Arc<About>,
    variant: Arc<Variant>,
    shape: Shape,
    words: Vec<u64>,
    /// The words of arrays' addresses and of numbers.
    arrays: Vec<usize>,
    scalars: Vec<usize>,
}

impl Settled for Again {
    fn launch(&self, addresses: &[u64], scalars: &[Scalar], _: u64) -> Result<(), Diagnostics> {
        let mut words = self.words.clone();
        self.arrays.iter().zip(addresses).for_each(|(&word, &address)| words[word] = address);
        self.scalars.iter().zip(scalars).for_each(|(&word, &x)| words[word] = frame::bits(x));
        run(&self.about, &self.variant, &self.shape, &mut words)
    }
}

/// Nothing for large arrays: which code they get depends on where they begin, and a launch takes so
/// long that the rest is not felt.
pub fn settle(kernel: &Kernel, args: &LaunchArgs) -> Option<Arc<dyn Settled>> {
    if array_bytes(args) >= SETTLED_BYTES {
        return None;
    }
    let Fit { variant, shape, words } = fit(kernel, args).ok()??;
    let places = |array: bool| {
        let wanted = |p: &&Param| matches!(p.kind, ParamKind::Array { .. }) == array;
        kernel.frame.params.iter().filter(wanted).map(|p| p.word).collect()
    };
    let (arrays, scalars) = (places(true), places(false));
    Some(Arc::new(Again { about: kernel.about.clone(), variant, shape, words, arrays, scalars }))
}

/// Below the size from which arrays may be written past the caches.
const SETTLED_BYTES: i64 = 16 << 20;

/// Below this many bytes of arrays a launch is over before another thread has woken.
const WORTH_SHARING: i64 = 128 << 10;

/// Arrays of a matmul that takes long enough to be interrupted.
const PART_BYTES: u64 = 64 << 20;

fn array_bytes(args: &LaunchArgs) -> i64 {
    let one = |arg: &ArgValue| match arg {
        ArgValue::Buffer(b) => {
            b.dims.iter().fold(b.dtype.bytes() as i64, |n, &d| n.saturating_mul(d))
        }
        ArgValue::Scalar(_) => 0,
    };
    args.params.iter().map(one).fold(0, i64::saturating_add)
}

struct Run<'a> {
    variant: &'a Variant,
    words: &'a [u64],
    shared: &'a Shared<'a>,
    lanes: i64,
    alone: bool,
    flush: bool,
    failure: Mutex<Option<Diagnostic>>,
}

impl Run<'_> {
    /// Runs some groups on this thread; `Break` where the kernel stopped.
    fn chunk(&self, worker: Worker<'_>, begin: i64, end: i64) -> ControlFlow<()> {
        let slots = self.variant.slots * (self.lanes.max(64) as u64) * 8;
        let fixed = self.variant.scratch_bytes.next_multiple_of(64);
        let poll = RefCell::new(Poll::start());
        // Only the thread of the launch may poll the host; the others read a flag.
        let stop = || {
            let stopped = worker.stop.load(Ordering::Relaxed);
            stopped || (worker.number == 0 && poll.borrow_mut().is_interrupted())
        };
        let bytes = fixed + slots + 512;
        let done = with_room(bytes, |room| {
            let mut context = Context {
                group: [0; 3],
                lane: 0,
                countdown: 0,
                alone: self.alone.into(),
                stop: Some(&stop),
                shared: self.shared,
            };
            let mut words = self.words.to_vec();
            words[frame::CONTEXT] = &raw mut context as u64;
            words[frame::SLOTS] = room as u64 + fixed;
            // SAFETY: the words are what the code was generated for, checked against the types by
            // `Frame::fill`; arrays are the caller's for the launch; the room is large enough.
            let flush = self.flush.then(FloatEnv::flushing);
            let site = unsafe { (self.variant.entry)(words.as_ptr(), room, begin, end) };
            drop(flush);
            if site == 0 {
                return ControlFlow::Continue(());
            }
            let site = self.variant.sites.get(site as usize - 1);
            // A chunk that stopped because the host requested it has nothing to report.
            let stopped = worker.stop.load(Ordering::Relaxed);
            if let Some(site) = site.filter(|s| !(stopped && s.is_interruption())) {
                let place = self.shared.place(context.group, context.lane);
                let mut failure = self.failure.lock().unwrap_or_else(|e| e.into_inner());
                // An interruption by the host takes precedence over errors of the kernel.
                if site.is_interruption() || failure.is_none() {
                    *failure = Some(site.diagnostic(&place));
                }
            }
            ControlFlow::Break(())
        });
        done.unwrap_or_else(|| {
            let why = format!("{bytes} bytes of scratch memory for tiles could not be had");
            let error = Diagnostic::new(Code::E_OOM, why)
                .help("use smaller tiles, or fewer threads: each has its own");
            let mut failure = self.failure.lock().unwrap_or_else(|e| e.into_inner());
            failure.get_or_insert(error);
            ControlFlow::Break(())
        })
    }
}
