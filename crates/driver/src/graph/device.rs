//! Runs a plan on arrays of a device: everything is enqueued on the caller's stream. The host waits
//! only for values that decide control flow.

use super::captured::Captured;
use super::program::GraphProgram;
use super::run::{GraphKernels, buffer_arg, bytes_of};
use crate::device::{self, Memory, UsedByGraph};
use crate::launch::Streams;
use crate::pack::row_major;
use crate::profile::Span;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_ir::{Attrs, Privilege};
use tessera_numerics::DType;
use tessera_plan::{Array, BufferId, Origin, Step};
use tessera_support::ForkLock;
use tessera_target::device::DeviceId;
use tessera_target::{ArgValue, BufferArg, LaunchArgs, Queue, Settled};

/// What a program keeps on its device for all runs: constants, and for each loop the numbers of its
/// iterations, one after another.
pub struct Kept {
    constants: Vec<Option<Memory>>,
    iterations: Vec<Option<Memory>>,
}

impl Kept {
    fn memory(&self) -> impl Iterator<Item = &Memory> {
        self.constants.iter().chain(&self.iterations).flatten()
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

/// What one run at a time needs: scratch memory, and launches whose addresses are to be filled in.
pub struct DeviceRun {
    pub(super) arena: Memory,
    tasks: Vec<Task>,
    /// How the addresses were aligned that launches were settled for.
    pub(super) aligned: Vec<u8>,
    loaded: bool,
}

enum Task {
    Launch {
        kernel: usize,
        args: Box<LaunchArgs>,
        arrays: Vec<Array>,
        settled: Option<Arc<dyn Settled>>,
        /// Iterations of loops do not change how its addresses are aligned.
        steady: bool,
        label: String,
        loc: Loc,
    },
    Call {
        kernel: String,
        config: Option<Attrs>,
        args: Vec<(Array, Privilege)>,
        loc: Loc,
    },
    Copy {
        from: Array,
        to: Array,
    },
    Cond {
        pred: Array,
        then: Vec<Task>,
        otherwise: Vec<Task>,
        loc: Loc,
    },
    While {
        test: Vec<Task>,
        pred: Array,
        body: Vec<Task>,
        loc: Loc,
    },
    Loop {
        id: usize,
        trip: i64,
        reverse: bool,
        position: BufferId,
        body: Vec<Task>,
    },
}

/// The widest access: what code is made for beyond it is the same.
const WIDEST: u64 = 16;

fn tasks(steps: &[Step]) -> Vec<Task> {
    steps.iter().filter_map(task).collect()
}

fn task(step: &Step) -> Option<Task> {
    Some(match step {
        Step::Launch { kernel, args, grid, domain, lanes, label, loc } => Task::Launch {
            label: label.clone(),
            loc: loc.clone(),
            kernel: *kernel,
            args: Box::new(LaunchArgs {
                params: args.iter().map(|a| ArgValue::Buffer(buffer_arg(a))).collect(),
                dims: Default::default(),
                grid: *grid,
                domain: *domain,
                lanes: *lanes,
            }),
            steady: args.iter().flat_map(|a| &a.iterations).all(|(_, by)| by % WIDEST as i64 == 0),
            arrays: args.clone(),
            settled: None,
        },
        // A program with one is not made for a device.
        Step::Host { .. } => return None,
        Step::Call { kernel, config, args, loc } => Task::Call {
            kernel: kernel.clone(),
            config: config.clone(),
            args: args.clone(),
            loc: loc.clone(),
        },
        Step::Copy { from, to } => Task::Copy { from: from.clone(), to: to.clone() },
        Step::Cond { pred, then, otherwise, loc } => Task::Cond {
            pred: pred.clone(),
            then: tasks(then),
            otherwise: tasks(otherwise),
            loc: loc.clone(),
        },
        Step::While { test, pred, body, loc } => Task::While {
            test: tasks(test),
            pred: pred.clone(),
            body: tasks(body),
            loc: loc.clone(),
        },
        Step::Loop { id, trip, reverse, position, body } => Task::Loop {
            id: *id,
            trip: *trip,
            reverse: *reverse,
            position: position.buffer,
            body: tasks(body),
        },
    })
}

/// The trips of all loops, by their numbers.
fn trips(steps: &[Step], out: &mut Vec<(usize, i64)>) {
    for step in steps {
        match step {
            Step::Loop { id, trip, body, .. } => {
                out.push((*id, *trip));
                trips(body, out);
            }
            Step::Cond { then, otherwise, .. } => {
                trips(then, out);
                trips(otherwise, out);
            }
            Step::While { test, body, .. } => {
                trips(test, out);
                trips(body, out);
            }
            Step::Launch { .. } | Step::Host { .. } | Step::Call { .. } | Step::Copy { .. } => {}
        }
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

/// How addresses are aligned, as far as code is made for it.
pub fn alignment(inputs: &[BufferArg], outputs: &[BufferArg]) -> Vec<u8> {
    inputs.iter().chain(outputs).map(|b| (b.data as u64 % WIDEST) as u8).collect()
}

/// Where buffers are in this run, which iteration each loop is in, and where launches are put.
struct World<'a> {
    program: &'a GraphProgram,
    kept: &'a Kept,
    bases: Vec<u64>,
    iterations: Vec<i64>,
    queue: Queue,
    /// Launches may be repeated as they were settled.
    alike: bool,
    kernels: &'a mut dyn GraphKernels,
}

impl GraphProgram {
    pub(super) fn kept(&self, queue: Queue) -> Result<Arc<Kept>, Diagnostics> {
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
        let mut all = Vec::new();
        trips(&self.plan.steps, &mut all);
        let mut iterations: Vec<Option<Memory>> = Vec::new();
        for (id, trip) in all {
            let numbers: Vec<u8> = (0..trip).flat_map(i64::to_le_bytes).collect();
            iterations.resize_with(iterations.len().max(id + 1), || None);
            iterations[id] = Some(upload(&numbers, queue)?);
        }
        let made = Arc::new(Kept { constants, iterations });
        *kept = Some(made.clone());
        Ok(made)
    }

    pub(super) fn device_run(&self, queue: Queue) -> Result<DeviceRun, Diagnostics> {
        let arena = Memory::new(queue, self.places.bytes.max(1) as u64)?;
        Ok(DeviceRun { arena, tasks: tasks(&self.plan.steps), aligned: Vec::new(), loaded: false })
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
        let (queue, there) = (Queue { device, stream: streams.on }, self.on(device));
        if device::is_recording() {
            return self.put_recorded(inputs, outputs, queue, kernels);
        }
        let idle = there.idle.lock().pop();
        let mut run = match idle {
            Some(run) => run,
            None => self.device_run(queue)?,
        };
        device::wait_for(queue, &streams.after)?;
        let done = self.put(&mut run, inputs, outputs, queue, kernels);
        there.idle.lock().push(run);
        let done = done.and_then(|()| device::hold_back(queue, &streams.then));
        device::or_wait(queue, done)
    }

    /// Puts a run into the recording of the caller. The graph has the run's memory for itself: it may be done again while
    /// another run is in flight, and when the program is gone.
    fn put_recorded(
        &self,
        inputs: &[BufferArg],
        outputs: &[BufferArg],
        queue: Queue,
        kernels: &mut dyn GraphKernels,
    ) -> Result<(), Diagnostics> {
        let kept = self.kept(queue)?;
        // The pool has no order of work on a stream that is recorded.
        let home = Queue { stream: 0, ..queue };
        let mut run = self.device_run(home)?;
        run.loaded = true;
        self.put(&mut run, inputs, outputs, queue, kernels)?;
        device::share(kept);
        device::share(Arc::new(run.arena));
        Ok(())
    }

    /// Puts a run on a queue, behind the earlier work on its memory.
    pub(super) fn put(
        &self,
        run: &mut DeviceRun,
        inputs: &[BufferArg],
        outputs: &[BufferArg],
        queue: Queue,
        kernels: &mut dyn GraphKernels,
    ) -> Result<(), Diagnostics> {
        let kept = self.kept(queue)?;
        let mut before: Vec<u64> = kept.memory().map(Memory::last).collect();
        before.push(run.arena.last());
        before.sort_unstable();
        before.dedup();
        device::wait_for(queue, &before)?;
        if !device::is_recording() {
            run.arena.used_on(queue.stream);
            kept.used_on(queue.stream);
        }
        let mut bases = Vec::with_capacity(self.plan.buffers.len());
        for (i, buffer) in self.plan.buffers.iter().enumerate() {
            bases.push(match (&buffer.origin, self.places.offsets[i], &kept.constants[i]) {
                (Origin::Argument(place), _, _) => inputs[*place].data as u64,
                (_, _, Some(memory)) => memory.address(),
                (_, Some(offset), _) => run.arena.address() + offset as u64,
                _ => 0,
            });
        }
        for ((buffer, _), output) in self.plan.results.iter().zip(outputs) {
            bases[*buffer] = output.data as u64;
        }
        let aligned = alignment(inputs, outputs);
        if run.aligned.is_empty() {
            run.aligned.clone_from(&aligned);
        }
        let alike = run.aligned == aligned;
        if !run.loaded && !device::is_recording() {
            self.load(&run.tasks, &bases, queue);
            run.loaded = true;
        }
        let mut world = World {
            program: self,
            kept: &kept,
            bases,
            iterations: Vec::new(),
            queue,
            alike,
            kernels,
        };
        world.all(&mut run.tasks)
    }
}

/// The launches of tasks, each kernel once.
fn launches<'a>(tasks: &'a [Task], out: &mut BTreeMap<usize, (&'a LaunchArgs, &'a [Array])>) {
    for task in tasks {
        match task {
            Task::Launch { kernel, args, arrays, .. } => {
                out.entry(*kernel).or_insert((args, arrays));
            }
            Task::Cond { then, otherwise, .. } => {
                launches(then, out);
                launches(otherwise, out);
            }
            Task::While { test, body, .. } => {
                launches(test, out);
                launches(body, out);
            }
            Task::Loop { body, .. } => launches(body, out),
            Task::Call { .. } | Task::Copy { .. } => {}
        }
    }
}

/// More threads than this gain nothing: the driver assembles code one kernel a thread.
const LOADERS: usize = 16;

impl GraphProgram {
    /// Assembles and loads the code of all launches in parallel, before the first launch. Code that
    /// cannot be loaded is reported when it is launched.
    fn load(&self, tasks: &[Task], bases: &[u64], queue: Queue) {
        let mut all = BTreeMap::new();
        launches(tasks, &mut all);
        let all: Vec<_> = all.into_iter().collect();
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some((kernel, (args, arrays))) = all.get(next.fetch_add(1, Ordering::Relaxed))
            {
                let mut args = LaunchArgs::clone(args);
                for (param, array) in args.params.iter_mut().zip(arrays.iter()) {
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

impl World<'_> {
    fn at(&self, array: &Array) -> u64 {
        let turned: i64 = array
            .iterations
            .iter()
            .map(|&(id, by)| self.iterations.get(id).copied().unwrap_or(0) * by)
            .sum();
        self.bases[array.buffer].wrapping_add_signed(array.offset + turned)
    }

    fn all(&mut self, tasks: &mut [Task]) -> Result<(), Diagnostics> {
        tasks.iter_mut().try_for_each(|task| self.one(task))
    }

    fn one(&mut self, task: &mut Task) -> Result<(), Diagnostics> {
        let span = match task {
            Task::Launch { .. } => Span::open(Some(self.queue)),
            _ => None,
        };
        self.put(task)?;
        if let (Some(span), Task::Launch { kernel, args, label, loc, .. }) = (span, task) {
            let work = self.program.work(*kernel, args.grid);
            span.step(("group", label), self.program.backend(), loc, work, None);
        }
        Ok(())
    }

    fn put(&mut self, task: &mut Task) -> Result<(), Diagnostics> {
        match task {
            Task::Launch { kernel, args, arrays, settled, steady, .. } => {
                if let Some(settled) = settled.as_ref().filter(|_| self.alike && *steady) {
                    let addresses: Vec<u64> = arrays.iter().map(|a| self.at(a)).collect();
                    return settled.launch(&addresses, &[], self.queue.stream);
                }
                for (param, array) in args.params.iter_mut().zip(arrays.iter()) {
                    if let ArgValue::Buffer(b) = param {
                        b.data = self.at(array) as *mut u8;
                    }
                }
                let artifact = &self.program.kernels[*kernel];
                artifact.enqueue(args, self.queue)?;
                if self.alike && *steady {
                    *settled = artifact.settle(args, self.queue);
                }
                Ok(())
            }
            Task::Call { kernel, config, args, loc } => {
                let privileges: Vec<Privilege> = args.iter().map(|(_, p)| *p).collect();
                let arrays: Vec<BufferArg> = args
                    .iter()
                    .map(|(a, p)| BufferArg {
                        data: self.at(a) as *mut u8,
                        writable: p.writes(),
                        ..buffer_arg(a)
                    })
                    .collect();
                let queue = Some(self.queue);
                self.kernels.call(kernel, config.as_ref(), &privileges, &arrays, queue, loc)
            }
            Task::Copy { from, to } => {
                let bytes = bytes_of(&to.dims, to.dtype);
                let (from, to) = (self.at(from), self.at(to));
                if bytes == 0 || from == to {
                    return Ok(());
                }
                device::copy_on_device(to, from, bytes as u64, self.queue)
            }
            Task::Cond { pred, then, otherwise, loc } => match self.truth(pred, "cond", loc)? {
                true => self.all(then),
                false => self.all(otherwise),
            },
            Task::While { test, pred, body, loc } => loop {
                self.all(test)?;
                if !self.truth(pred, "while", loc)? {
                    return Ok(());
                }
                self.all(body)?;
            },
            Task::Loop { id, trip, reverse, position, body } => {
                if self.iterations.len() <= *id {
                    self.iterations.resize(*id + 1, 0);
                }
                let numbers = self.kept.iterations.get(*id).and_then(Option::as_ref);
                let numbers = numbers.map_or(0, Memory::address);
                for iteration in 0..*trip {
                    let i = if *reverse { *trip - 1 - iteration } else { iteration };
                    self.iterations[*id] = i;
                    self.bases[*position] = numbers + 8 * i as u64;
                    self.all(body)?;
                }
                Ok(())
            }
        }
    }

    /// Reads one value, after the work so far.
    fn truth(&self, pred: &Array, what: &str, loc: &Loc) -> Result<bool, Diagnostics> {
        if device::is_recording() {
            return Err(undecided(what, loc));
        }
        let view = BufferArg { data: self.at(pred) as *mut u8, ..buffer_arg(pred) };
        let mut room = [0];
        device::read(&view, self.queue, &mut room)?;
        Ok(room[0] != 0)
    }
}
