//! Runs a plan on arrays of a device: everything is enqueued on the caller's stream. The host waits
//! only for values that decide control flow.

use super::captured::Captured;
use super::list::{Addresses, Command, Executor, Launch, List, WIDEST, alignment, execute};
use super::program::GraphProgram;
use super::run::{GraphKernels, buffer_arg, call_arguments};
use crate::device::{self, About, Memory, Stream, UsedByGraph};
use crate::launch::Streams;
use crate::pack::row_major;
use crate::profile::Span;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_numerics::DType;
use tessera_plan::{Array, Origin};
use tessera_support::ForkLock;
use tessera_target::device::{DeviceId, Event, Held};
use tessera_target::{ArgValue, BufferArg, LaunchArgs, Packed, Queue};

/// What a program keeps on its device for all runs: constants, and for each loop the numbers of its
/// iterations, one after another.
pub struct Kept {
    constants: Vec<Option<Memory>>,
    iterations: Vec<Memory>,
}

impl Kept {
    fn memory(&self) -> impl Iterator<Item = &Memory> {
        self.constants.iter().flatten().chain(&self.iterations)
    }
}

impl UsedByGraph for Kept {
    fn used_on(&self, stream: u64) {
        self.memory().for_each(|memory| memory.used_on(stream));
    }
}

/// All that a program has on one device.
#[derive(Default)]
pub struct There {
    idle: ForkLock<Vec<DeviceRun>>,
    kept: ForkLock<Option<Arc<Kept>>>,
    pub(super) captured: ForkLock<Captured>,
}

/// What one run at a time needs: scratch memory, commands whose addresses are to be filled in, and
/// the streams and events of the queues beside the main one.
pub struct DeviceRun {
    pub(super) arena: Memory,
    pub(super) kept: Arc<Kept>,
    list: List,
    streams: Vec<Stream>,
    events: Vec<Box<dyn Event>>,
    /// Where buffers are: the caller's arrays in the latest run, all else in every run.
    at: Addresses,
    /// How the addresses of the caller's arrays were aligned that launches were settled for.
    aligned: Vec<u8>,
    loaded: bool,
    /// What errors of the device name, by kernel.
    about: Vec<Option<Arc<About>>>,
}

impl DeviceRun {
    /// Makes a stream wait for all work on its memory, and says that the stream uses it.
    pub(super) fn begin(&self, queue: Queue) -> Result<(), Diagnostics> {
        let memory = || self.kept.memory().chain([&self.arena]);
        if memory().any(|m| m.last() != queue.stream) {
            let mut before: Vec<u64> = memory().map(Memory::last).collect();
            before.sort_unstable();
            before.dedup();
            device::wait_for(queue, &before)?;
        }
        if !device::is_recording() {
            memory().for_each(|m| m.used_on(queue.stream));
        }
        Ok(())
    }

    /// Whether addresses are aligned as those that launches were settled for, which are the first.
    fn is_alike(&mut self, at: &[u64]) -> bool {
        if self.aligned.is_empty() {
            self.aligned = alignment(at);
        }
        self.aligned.len() == at.len()
            && self.aligned.iter().zip(at).all(|(low, at)| u64::from(*low) == at % WIDEST)
    }
}

/// What a graph of the caller's keeps of a run: its streams take part until the recording ends.
struct Shared {
    arena: Memory,
    _streams: Vec<Stream>,
    _events: Vec<Box<dyn Event>>,
}

impl UsedByGraph for Shared {
    fn used_on(&self, stream: u64) {
        self.arena.used_on(stream);
    }
}

/// Bytes on the device, in the order of the queue.
fn upload(bytes: &[u8], queue: Queue) -> Result<Memory, Diagnostics> {
    let memory = Memory::new(queue, bytes.len().max(1) as u64)?;
    let dims = vec![bytes.len() as i64];
    let view = BufferArg {
        data: memory.address() as *mut u8,
        strides: row_major(&dims, DType::U8),
        dims,
        dtype: DType::U8,
        writable: true,
    };
    device::write(&view, queue, bytes)?;
    Ok(memory)
}

/// Gives steps to streams: the main queue is the caller's, each other one a stream of the run's own. A
/// recording of the main one takes the others in, by the plan's events: its graph has their order.
struct OnDevice<'a> {
    program: &'a GraphProgram,
    kept: &'a Kept,
    queue: Queue,
    /// Nothing runs now: no value can be read.
    recording: bool,
    streams: &'a [Stream],
    events: &'a [Box<dyn Event>],
    /// Launches may be repeated as they were settled.
    alike: bool,
    kernels: &'a mut dyn GraphKernels,
    /// Packed launches so far, and the kernel of the last.
    launched: u64,
    last: Option<usize>,
    /// The stream that memory of launches was looked up for last, how many bytes, and where.
    workspace: Option<(u64, u64, u64)>,
    /// While launches follow one another.
    held: Option<Box<dyn Held>>,
}

impl GraphProgram {
    pub(super) fn kept(&self, queue: Queue, trips: &[i64]) -> Result<Arc<Kept>, Diagnostics> {
        let there = self.on(queue.device);
        let mut kept = there.kept.lock();
        if let Some(kept) = &*kept {
            return Ok(kept.clone());
        }
        if device::is_recording() {
            return Err(not_yet());
        }
        let mut constants = Vec::new();
        for buffer in &self.plan.buffers {
            constants.push(match &buffer.origin {
                Origin::Constant(bytes) => Some(upload(bytes, queue)?),
                Origin::Argument(_) | Origin::Scratch => None,
            });
        }
        let mut iterations = Vec::new();
        for trip in trips {
            let numbers: Vec<u8> = (0..*trip).flat_map(i64::to_le_bytes).collect();
            iterations.push(upload(&numbers, queue)?);
        }
        let made = Arc::new(Kept { constants, iterations });
        *kept = Some(made.clone());
        Ok(made)
    }

    /// Memory for the work of the queue `home`; what all runs share is made in the order of `queue`.
    pub(super) fn device_run(&self, home: Queue, queue: Queue) -> Result<DeviceRun, Diagnostics> {
        let arena = Memory::new(home, self.written.places.bytes.max(1) as u64)?;
        let list = List::new(&self.written)?;
        let kept = self.kept(queue, &list.trips)?;
        let (mut streams, mut events) = (Vec::new(), Vec::new());
        let device = device::open(queue.device)?;
        for _ in 1..list.queues {
            streams.push(Stream::new(queue.device)?);
        }
        for _ in 0..list.events {
            events.push(device.event(false)?);
        }
        let offsets = self.written.places.offsets.iter();
        let place = |(offset, constant): (&Option<usize>, &Option<Memory>)| match (constant, offset)
        {
            (Some(memory), _) => memory.address(),
            (None, Some(offset)) => arena.address() + *offset as u64,
            (None, None) => 0,
        };
        let bases = offsets.zip(&kept.constants).map(place).collect();
        let (at, about) = (Addresses::new(bases, &list), vec![None; self.kernels.len()]);
        let (aligned, loaded) = (Vec::new(), false);
        Ok(DeviceRun { arena, kept, list, streams, events, at, aligned, loaded, about })
    }

    /// Runs the function on arrays of a device, each row by row: puts everything on the stream and
    /// comes back.
    pub fn run_on(
        &self,
        inputs: &[BufferArg],
        outputs: &[BufferArg],
        device: DeviceId,
        streams: &Streams,
        kernels: &mut dyn GraphKernels,
    ) -> Result<(), Diagnostics> {
        self.check_arrays(inputs, outputs)?;
        self.check_device(device)?;
        self.run_again(&addresses(inputs, outputs), device, streams, kernels, false)
    }

    /// [`Self::run_on`], or [`Self::replay_on`] where it is `captured`, without its checks: for arguments and results that
    /// differ from those of an earlier run only in addresses, which are given one after another.
    pub fn run_again(
        &self,
        at: &[u64],
        device: DeviceId,
        streams: &Streams,
        kernels: &mut dyn GraphKernels,
        captured: bool,
    ) -> Result<(), Diagnostics> {
        let (queue, there) = (Queue { device, stream: streams.on }, self.on(device));
        if device::is_recording() {
            return self.put_recorded(at, queue, kernels);
        }
        let done = if captured {
            device::wait_for(queue, &streams.after)?;
            self.replay(&mut there.captured.lock(), at, queue, kernels)
        } else {
            let idle = there.idle.lock().pop();
            let mut run = match idle {
                Some(run) => run,
                None => self.device_run(queue, queue)?,
            };
            device::wait_for(queue, &streams.after)?;
            let done = self.put(&mut run, at, queue, kernels);
            there.idle.lock().push(run);
            done
        };
        let done = done.and_then(|()| device::hold_back(queue, &streams.then));
        device::or_wait(queue, done)
    }

    /// Puts a run into the recording of the caller. The graph has the run's memory for itself: it may be done again while
    /// another run is in flight, and when the program is gone.
    fn put_recorded(
        &self,
        at: &[u64],
        queue: Queue,
        kernels: &mut dyn GraphKernels,
    ) -> Result<(), Diagnostics> {
        // The pool has no order of work on a stream that is recorded.
        let home = Queue { stream: 0, ..queue };
        let mut run = self.device_run(home, queue)?;
        run.loaded = true;
        let done = self.put(&mut run, at, queue, kernels);
        let DeviceRun { arena, streams, events, kept, .. } = run;
        device::share(kept);
        device::share(Arc::new(Shared { arena, _streams: streams, _events: events }));
        done
    }

    /// Puts a run on a queue, behind the earlier work on its memory. `at` are the addresses of arguments and results.
    pub(super) fn put(
        &self,
        run: &mut DeviceRun,
        at: &[u64],
        queue: Queue,
        kernels: &mut dyn GraphKernels,
    ) -> Result<(), Diagnostics> {
        run.begin(queue)?;
        let (arguments, results) = at.split_at(self.plan.params.len());
        for (&buffer, &address) in self.plan.params.iter().zip(arguments) {
            run.at.bases[buffer] = address;
        }
        for ((buffer, _), &address) in self.plan.results.iter().zip(results) {
            run.at.bases[*buffer] = address;
        }
        let (alike, recording) = (run.is_alike(at), device::is_recording());
        if !run.loaded && !recording {
            self.load(&run.list.commands, &run.at.bases, queue);
            run.loaded = true;
        }
        let mut to = OnDevice {
            program: self,
            kept: &run.kept,
            queue,
            recording,
            streams: &run.streams,
            events: &run.events,
            alike,
            kernels,
            launched: 0,
            last: None,
            workspace: None,
            held: None,
        };
        let done = execute(&mut run.list.commands, &mut to, &mut run.at);
        if let OnDevice { launched, last: Some(kernel), .. } = to {
            let about = run.about[kernel].get_or_insert_with(|| {
                let func = &self.plan.kernels[kernel];
                Arc::new(About { name: func.name.clone(), loc: func.loc.clone() })
            });
            device::launched_all(launched, about, queue);
        }
        if done.is_err() && !recording {
            // The caller waits for the main queue alone. The first error is the one to report.
            for stream in &run.streams {
                let _ = device::synchronize(queue.device, Some(stream.handle()));
            }
        }
        done
    }
}

/// The addresses of arguments and results, one after another.
pub(super) fn addresses(inputs: &[BufferArg], outputs: &[BufferArg]) -> Vec<u64> {
    inputs.iter().chain(outputs).map(|b| b.data as u64).collect()
}

/// The launches of a list, each kernel once.
fn launches<'a>(steps: &'a [Command], out: &mut BTreeMap<usize, &'a Launch>) {
    for step in steps {
        match step {
            Command::Launch { launch, .. } => {
                out.entry(launch.kernel).or_insert(launch);
            }
            Command::If { branches, .. } => branches.iter().for_each(|b| launches(b, out)),
            Command::While { test, body, .. } => {
                launches(test, out);
                launches(body, out);
            }
            Command::Loop { body, .. } => launches(body, out),
            Command::Host { .. }
            | Command::Call { .. }
            | Command::Copy { .. }
            | Command::Collective { .. }
            | Command::Record { .. }
            | Command::Wait { .. } => {}
        }
    }
}

/// More threads than this gain nothing: the driver assembles code one kernel a thread.
const LOADERS: usize = 16;

impl GraphProgram {
    /// Assembles and loads the code of all launches in parallel, before the first launch. Code that
    /// cannot be loaded is reported when it is launched.
    fn load(&self, steps: &[Command], bases: &[u64], queue: Queue) {
        let mut all = BTreeMap::new();
        launches(steps, &mut all);
        let all: Vec<_> = all.into_iter().collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((kernel, launch)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut args = LaunchArgs::clone(&launch.args);
                for (param, array) in args.params.iter_mut().zip(&launch.arrays) {
                    if let ArgValue::Buffer(b) = param {
                        b.data = bases[array.buffer].wrapping_add_signed(array.offset) as *mut u8;
                    }
                }
                let _ = self.kernels[*kernel].settle(&args, queue);
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(LOADERS);
        std::thread::scope(|scope| {
            for _ in 1..threads.min(all.len()) {
                scope.spawn(work);
            }
            work();
        });
    }
}

/// What has to be on the device before launches are recorded.
fn not_yet() -> Diagnostics {
    let message = "a compiled function has no memory on the device yet, and can take none while a graph is recorded";
    let help =
        "call the function once, with arrays that lie as these do, before the recording begins";
    Diagnostic::new(Code::E_CAPTURE, message).help(help).into()
}

/// A value that decides cannot be known while launches are recorded.
fn undecided(what: &str, loc: &Loc) -> Diagnostics {
    let message = format!(
        "expected launches that are known when a graph is recorded, got `{what}`, which reads a value of the device to say what runs"
    );
    let help = "leave `capture_graph` out, or choose by `ts.where`, or make it a loop of a known number of iterations";
    Diagnostic::new(Code::E_CAPTURE, message).at(loc.clone()).help(help).into()
}

impl OnDevice<'_> {
    fn queue(&self, on: usize) -> Queue {
        match self.streams.get(on.wrapping_sub(1)) {
            Some(stream) => Queue { stream: stream.handle(), ..self.queue },
            None => self.queue,
        }
    }

    #[inline]
    fn launch(
        &mut self,
        launch: &mut Launch,
        at: &Addresses,
        queue: Queue,
    ) -> Result<(), Diagnostics> {
        let repeats = self.alike && launch.steady;
        if repeats && !self.recording {
            let kernel = launch.kernel;
            if let Some(packed) = launch.pointed(at) {
                if self.held.is_none() {
                    self.held = Some(device::open(queue.device)?.hold()?);
                }
                match packed.context() {
                    0 => packed.launch(queue.stream, 0)?,
                    bytes => self.with_workspace(packed, bytes, queue)?,
                }
                self.launched += 1;
                self.last = Some(kernel);
                return Ok(());
            }
        }
        self.launch_whole(launch, at, queue, repeats)
    }

    #[cold]
    fn launch_whole(
        &self,
        launch: &mut Launch,
        at: &Addresses,
        queue: Queue,
        repeats: bool,
    ) -> Result<(), Diagnostics> {
        if let Some(settled) = launch.settled.clone().filter(|_| repeats) {
            return settled.launch(launch.addresses(at), &[], queue.stream);
        }
        launch.fill(at);
        let artifact = &self.program.kernels[launch.kernel];
        artifact.enqueue(&launch.args, queue)?;
        if repeats && !launch.is_tried {
            launch.settle(artifact.settle(&launch.args, queue));
        }
        Ok(())
    }

    /// The memory of a stream for launches that leave it zero is looked up once in a row of launches.
    fn with_workspace(
        &mut self,
        packed: &mut dyn Packed,
        bytes: u64,
        queue: Queue,
    ) -> Result<(), Diagnostics> {
        if let Some((stream, room, address)) = self.workspace
            && stream == queue.stream
            && room >= bytes
        {
            return packed.launch(stream, address);
        }
        match device::workspace(queue, bytes)? {
            Some(address) => {
                self.workspace = Some((queue.stream, bytes, address));
                packed.launch(queue.stream, address)
            }
            None => device::with_context(queue, bytes, |at| packed.launch(queue.stream, at)),
        }
    }
}

impl Executor for OnDevice<'_> {
    fn work(&mut self, step: &mut Command, at: &Addresses) -> Result<(), Diagnostics> {
        match step {
            Command::Launch { launch, on } => {
                let queue = self.queue(*on);
                let span = Span::open(Some(queue));
                self.launch(launch, at, queue)?;
                if let Some(span) = span {
                    let work = self.program.work(launch.kernel, launch.args.grid);
                    let label = ("group", &*launch.label);
                    span.step(label, self.program.backend(), &launch.loc, work, None);
                }
                Ok(())
            }
            Command::Call { kernel, config, args, loc, on } => {
                self.held = None;
                let (privileges, arrays) = call_arguments(args, at);
                let queue = Some(self.queue(*on));
                self.kernels.call(kernel, config.as_ref(), &privileges, &arrays, queue, loc)
            }
            // A program with a step of the host is not made for a device; other steps are not work.
            _ => Ok(()),
        }
    }

    fn copy(&mut self, to: u64, from: u64, bytes: usize, on: usize) -> Result<(), Diagnostics> {
        device::copy_on_device(to, from, bytes as u64, self.queue(on))
    }

    fn record(&mut self, event: usize, on: usize) -> Result<(), Diagnostics> {
        Ok(self.events[event].record(self.queue(on).stream)?)
    }

    fn wait(&mut self, event: usize, on: usize) -> Result<(), Diagnostics> {
        Ok(self.events[event].block(self.queue(on).stream)?)
    }

    /// Reads one value, after the work of its queue so far.
    fn truth(
        &mut self,
        (pred, address): (&Array, u64),
        what: &str,
        loc: &Loc,
        on: usize,
    ) -> Result<bool, Diagnostics> {
        if self.recording {
            return Err(undecided(what, loc));
        }
        // Handlers of signals may run while the host waits.
        self.held = None;
        let view = BufferArg { data: address as *mut u8, ..buffer_arg(pred) };
        let mut room = [0];
        device::read(&view, self.queue(on), &mut room)?;
        Ok(room[0] != 0)
    }

    /// The numbers lie one after another.
    fn index_bytes(&self) -> i64 {
        8
    }

    fn index(&mut self, at: &mut Addresses, id: usize, position: &Array, i: i64) {
        at.bases[position.buffer] = self.kept.iterations[id].address() + 8 * i as u64;
    }
}
