//! Running a plan on arrays in host memory.

use super::arena::Block;
use super::device::addresses;
use super::list::{Addresses, Command, Executor, Launch, List, alignment, execute, one};
use super::program::GraphProgram;
use super::rank_run::WithRanks;
use crate::profile::{self, Span};
use tessera_cost::Work;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::GraphModule;
use tessera_interp::{HostArray, KernelCall, Kernels, NoKernels, run_graph};
use tessera_ir::{Attrs, OpId, Opcode, Privilege};
use tessera_numerics::DType;
use tessera_plan::{Array, Origin};
use tessera_schedule::SchedOp;
use tessera_target::{BufferArg, Queue};
use tessera_tile::TileFunc;

/// Runs the kernels that a function calls: writes into the arrays it is handed, or puts that on a queue
/// of the device that they are on.
pub trait GraphKernels {
    fn call(
        &mut self,
        kernel: &str,
        config: Option<&Attrs>,
        privileges: &[Privilege],
        args: &[BufferArg],
        queue: Option<Queue>,
        loc: &Loc,
    ) -> Result<(), Diagnostics>;
}

/// Kernels that take arrays of the interpreter.
pub struct HostKernels<'a>(pub &'a mut dyn Kernels);

impl GraphKernels for HostKernels<'_> {
    fn call(
        &mut self,
        kernel: &str,
        config: Option<&Attrs>,
        privileges: &[Privilege],
        args: &[BufferArg],
        _queue: Option<Queue>,
        loc: &Loc,
    ) -> Result<(), Diagnostics> {
        let mut arrays: Vec<HostArray> = args
            .iter()
            .map(|a| {
                let bytes = bytes_of(&a.dims, a.dtype);
                // SAFETY: the run's arrays are whole and alive.
                let bytes = unsafe { std::slice::from_raw_parts(a.data, bytes) }.to_vec();
                HostArray { dims: a.dims.clone(), dtype: a.dtype, bytes }
            })
            .collect();
        self.0.call(&KernelCall { kernel, config, privileges, loc }, &mut arrays)?;
        for ((array, arg), privilege) in arrays.iter().zip(args).zip(privileges) {
            if privilege.writes() {
                // SAFETY: as above; nobody else holds what this step writes.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        array.bytes.as_ptr(),
                        arg.data,
                        array.bytes.len(),
                    );
                }
            }
        }
        Ok(())
    }
}

pub(super) fn bytes_of(dims: &[i64], dtype: DType) -> usize {
    dims.iter().map(|&d| d.max(0) as usize).fold(dtype.bytes(), usize::saturating_mul)
}

/// What one run at a time needs: scratch memory, and commands whose addresses are to be filled in.
pub struct Recorded {
    block: Block,
    constants: Vec<Option<Block>>,
    list: List,
    /// How the addresses of the caller's arrays were aligned that launches were settled for.
    aligned: Option<Vec<u8>>,
}

pub(super) fn buffer_arg(array: &Array) -> BufferArg {
    BufferArg {
        data: std::ptr::null_mut(),
        dims: array.dims.clone(),
        strides: array.strides.clone(),
        dtype: array.dtype,
        writable: array.writes,
    }
}

/// Called with the index of a step and its time in seconds.
type Clock<'a> = &'a mut dyn FnMut(usize, f64);

fn label(step: &Command, kernels: &[TileFunc]) -> String {
    match step {
        Command::Launch { launch, .. } => {
            let shapes: Vec<String> =
                launch.arrays.iter().map(|a| format!("{:?}", a.dims)).collect();
            format!("{} @{} {}", launch.label, kernels[launch.kernel].name, shapes.join(" "))
        }
        Command::Host { module, .. } => format!("host {}", host_name(module)),
        Command::Call { kernel, .. } => format!("call @{kernel}"),
        Command::Copy { to, .. } => format!("copy {:?}", to.dims),
        Command::Collective { how, .. } => how.loc.to_string(),
        Command::Record { event, .. } => format!("record {event}"),
        Command::Wait { event, .. } => format!("wait {event}"),
        Command::If { .. } => "cond".into(),
        Command::While { .. } => "while".into(),
        Command::Loop { trip, .. } => format!("loop {trip}"),
    }
}

/// The name of the op that a step of the host evaluates.
fn host_name(module: &GraphModule) -> &'static str {
    let func = &module.funcs[0];
    func.walk().first().map_or("op", |&id| func.ops[id].code.mnemonic())
}

fn memory(bytes: usize) -> Result<Block, Diagnostics> {
    Block::new(bytes).ok_or_else(|| {
        let why = format!("{bytes} bytes of memory could not be had");
        Diagnostic::new(Code::E_OOM, why).into()
    })
}

/// Runs every step when it is given: the host is one queue.
pub(super) struct OnHost<'a> {
    pub program: &'a GraphProgram,
    pub kernels: &'a mut dyn GraphKernels,
    /// Launches may be repeated as they were settled.
    pub alike: bool,
    /// Steps are reported to the profile.
    pub watched: bool,
}

impl GraphProgram {
    /// Memory with the plan's constants, by buffer.
    pub(super) fn constants(&self) -> Result<Vec<Option<Block>>, Diagnostics> {
        let mut constants = Vec::new();
        for buffer in &self.plan.buffers {
            constants.push(match &buffer.origin {
                Origin::Constant(bytes) => {
                    let block = memory(bytes.len())?;
                    // SAFETY: as many bytes were had.
                    unsafe {
                        std::ptr::copy_nonoverlapping(bytes.as_ptr(), block.address(), bytes.len());
                    }
                    Some(block)
                }
                Origin::Argument(_) | Origin::Scratch => None,
            });
        }
        Ok(constants)
    }

    fn record(&self) -> Result<Recorded, Diagnostics> {
        Ok(Recorded {
            block: memory(self.written.places.bytes)?,
            constants: self.constants()?,
            list: List::new(&self.written)?,
            aligned: None,
        })
    }

    /// Where buffers are whose memory is the plan's own.
    pub(super) fn bases(&self, constants: &[Option<Block>], base: *mut u8) -> Vec<u64> {
        let places = &self.written.places;
        let each = constants.iter().zip(&places.offsets).map(|(constant, offset)| {
            match (constant, offset) {
                (Some(block), _) => block.address() as u64,
                (None, Some(offset)) => base.wrapping_add(*offset) as u64,
                (None, None) => 0,
            }
        });
        each.collect()
    }

    /// Sets where the arguments and the results are.
    pub(super) fn bind(&self, bases: &mut [u64], inputs: &[*mut u8], outputs: &[*mut u8]) {
        for (base, buffer) in bases.iter_mut().zip(&self.plan.buffers) {
            if let Origin::Argument(place) = buffer.origin {
                *base = inputs[place] as u64;
            }
        }
        for ((buffer, _), output) in self.plan.results.iter().zip(outputs) {
            bases[*buffer] = *output as u64;
        }
    }

    /// How many loops of several kernels the plan has.
    pub(super) fn loops(&self) -> usize {
        let ops = self.written.func.walk();
        let is_loop = |id: &&OpId| self.written.func.ops[**id].code == SchedOp::Loop;
        ops.iter().filter(is_loop).count()
    }

    /// Runs the function; arguments and results are row by row in host memory. Functions that call
    /// kernels need [`Self::run_with`].
    pub fn run(&self, inputs: &[HostArray]) -> Result<Vec<HostArray>, Diagnostics> {
        self.run_with(inputs, &mut HostKernels(&mut NoKernels))
    }

    pub fn run_with(
        &self,
        inputs: &[HostArray],
        kernels: &mut dyn GraphKernels,
    ) -> Result<Vec<HostArray>, Diagnostics> {
        self.run_timed(inputs, kernels, None)
    }

    fn run_timed(
        &self,
        inputs: &[HostArray],
        kernels: &mut dyn GraphKernels,
        clock: Option<Clock<'_>>,
    ) -> Result<Vec<HostArray>, Diagnostics> {
        let mut outputs: Vec<HostArray> = self
            .results()
            .iter()
            .map(|ty| HostArray::zeros(&ty.static_shape().unwrap_or_default(), ty.dtype()))
            .collect();
        let strides = |a: &HostArray| a.strides();
        let ins: Vec<BufferArg> = inputs
            .iter()
            .map(|a| BufferArg {
                data: a.bytes.as_ptr().cast_mut(),
                dims: a.dims.clone(),
                strides: strides(a),
                dtype: a.dtype,
                writable: false,
            })
            .collect();
        let outs: Vec<BufferArg> = outputs
            .iter_mut()
            .map(|a| BufferArg {
                data: a.bytes.as_mut_ptr(),
                dims: a.dims.clone(),
                strides: a.strides(),
                dtype: a.dtype,
                writable: true,
            })
            .collect();
        self.go(&ins, &outs, kernels, clock)?;
        Ok(outputs)
    }

    /// Runs the function on the caller's memory: each array is row-major, and no result overlaps
    /// another array.
    pub fn run_into(
        &self,
        inputs: &[BufferArg],
        outputs: &[BufferArg],
        kernels: &mut dyn GraphKernels,
    ) -> Result<(), Diagnostics> {
        self.go(inputs, outputs, kernels, None)
    }

    fn go(
        &self,
        inputs: &[BufferArg],
        outputs: &[BufferArg],
        kernels: &mut dyn GraphKernels,
        clock: Option<Clock<'_>>,
    ) -> Result<(), Diagnostics> {
        self.check_arrays(inputs, outputs)?;
        let mut recorded = match self.idle.lock().pop() {
            Some(recorded) => recorded,
            None => self.record()?,
        };
        let mut bases = self.bases(&recorded.constants, recorded.block.address());
        let data = |arrays: &[BufferArg]| arrays.iter().map(|a| a.data).collect::<Vec<_>>();
        self.bind(&mut bases, &data(inputs), &data(outputs));
        let mut at = Addresses::new(bases, &recorded.list);
        let aligned = alignment(&addresses(inputs, outputs));
        let alike = *recorded.aligned.get_or_insert_with(|| aligned.clone()) == aligned;
        let mut kernels = WithRanks { ranks: &self.ranks, kernels };
        let watched = profile::is_on();
        let mut host = OnHost { program: self, kernels: &mut kernels, alike, watched };
        let done = match clock {
            None => execute(&mut recorded.list.commands, &mut host, &mut at),
            Some(clock) => timed(&mut recorded.list.commands, &mut host, &mut at, clock),
        };
        self.idle.lock().push(recorded);
        done
    }

    /// How long each top-level step takes, in order: its label and the least of `iteration_bytes` times in
    /// seconds.
    pub fn times(
        &self,
        inputs: &[HostArray],
        iterations: usize,
    ) -> Result<Vec<(String, f64)>, Diagnostics> {
        let list = List::new(&self.written)?;
        let mut out: Vec<(String, f64)> =
            list.commands.iter().map(|s| (label(s, &self.plan.kernels), f64::MAX)).collect();
        for _ in 0..iterations {
            let mut clock = |place: usize, seconds: f64| {
                if let Some(one) = out.get_mut(place) {
                    one.1 = one.1.min(seconds);
                }
            };
            self.run_timed(inputs, &mut HostKernels(&mut NoKernels), Some(&mut clock))?;
        }
        Ok(out)
    }

    pub(super) fn check_arrays(
        &self,
        inputs: &[BufferArg],
        outputs: &[BufferArg],
    ) -> Result<(), Diagnostics> {
        self.check(inputs, &self.arguments(), "argument")?;
        self.check(outputs, &self.results(), "result")
    }

    fn check(
        &self,
        arrays: &[BufferArg],
        types: &[tessera_ir::Type],
        what: &str,
    ) -> Result<(), Diagnostics> {
        let error = |code, why: String| Err(Diagnostic::new(code, why).into());
        if arrays.len() != types.len() {
            let why = format!("expected {} {what}s, got {}", types.len(), arrays.len());
            return error(Code::E_ARGUMENT, why);
        }
        for (i, (array, ty)) in arrays.iter().zip(types).enumerate() {
            if ty.static_shape().as_deref() != Some(&array.dims[..]) || ty.dtype() != array.dtype {
                let why = format!(
                    "expected {what} {i} to be {ty}, got {} of shape {:?}",
                    array.dtype, array.dims
                );
                return error(Code::E_LAUNCH_INVALID_SHAPE, why);
            }
            if array.dims.iter().all(|&d| d > 0) && !dense(array) {
                let why = format!("expected {what} {i} to lie row by row in memory");
                return error(Code::E_LAUNCH_BAD_LAYOUT, why);
            }
        }
        Ok(())
    }
}

/// Whether an array is row-major contiguous, apart from axes of extent 1.
pub(super) fn dense(array: &BufferArg) -> bool {
    let mut stride = array.dtype.bytes() as i64;
    for (&d, &s) in array.dims.iter().zip(&array.strides).rev() {
        if d > 1 && s != stride {
            return false;
        }
        stride = stride.saturating_mul(d);
    }
    true
}

fn timed(
    steps: &mut [Command],
    host: &mut OnHost<'_>,
    at: &mut Addresses,
    clock: Clock<'_>,
) -> Result<(), Diagnostics> {
    for (place, step) in steps.iter_mut().enumerate() {
        let start = std::time::Instant::now();
        one(step, host, at)?;
        clock(place, start.elapsed().as_secs_f64());
    }
    Ok(())
}

impl OnHost<'_> {
    fn span(&self) -> Option<Span> {
        if self.watched { Span::open(None) } else { None }
    }

    fn launch(&self, launch: &mut Launch, at: &Addresses) -> Result<(), Diagnostics> {
        let repeats = self.alike && launch.steady;
        if let Some(settled) = launch.settled.clone().filter(|_| repeats) {
            return settled.launch(launch.addresses(at), &[], 0);
        }
        launch.fill(at);
        let artifact = &self.program.kernels[launch.kernel];
        artifact.launch(&launch.args)?;
        if repeats && !launch.is_tried {
            (launch.settled, launch.is_tried) = (artifact.settle_here(&launch.args), true);
        }
        Ok(())
    }

    fn memory(&self) -> Option<u64> {
        Some(self.program.written.places.bytes as u64)
    }
}

/// The bytes of a whole array.
fn host(array: &Array, at: &Addresses) -> HostArray {
    let bytes = match bytes_of(&array.dims, array.dtype) {
        0 => Vec::new(),
        // SAFETY: whole buffers.
        n => unsafe { std::slice::from_raw_parts(at.of(array) as *const u8, n) }.to_vec(),
    };
    HostArray { dims: array.dims.clone(), dtype: array.dtype, bytes }
}

impl Executor for OnHost<'_> {
    fn work(&mut self, step: &mut Command, at: &Addresses) -> Result<(), Diagnostics> {
        let span = self.span();
        let (program, on) = (self.program, self.program.backend());
        match step {
            Command::Launch { launch, .. } => {
                self.launch(launch, at)?;
                if let Some(span) = span {
                    let work = program.work(launch.kernel, launch.args.grid);
                    span.step(("group", &launch.label), on, &launch.loc, work, self.memory());
                }
                Ok(())
            }
            Command::Host { module, inputs, outputs } => {
                let ins: Vec<HostArray> = inputs.iter().map(|a| host(a, at)).collect();
                let outs = run_graph(module, "op", &ins, &mut NoKernels)?;
                for (array, to) in outs.iter().zip(outputs) {
                    // SAFETY: the plan gave the result memory of its size.
                    unsafe {
                        let (from, len) = (array.bytes.as_ptr(), array.bytes.len());
                        std::ptr::copy_nonoverlapping(from, at.of(to) as *mut u8, len);
                    }
                }
                if let Some(span) = span {
                    let loc = &module.funcs[0].loc;
                    span.step(("host", &module.name), "interp", loc, None, self.memory());
                }
                Ok(())
            }
            Command::Call { kernel, config, args, loc, .. } => {
                let (privileges, arrays) = call_arguments(args, at);
                self.kernels.call(kernel, config.as_ref(), &privileges, &arrays, None, loc)
            }
            // Other steps are not work.
            _ => Ok(()),
        }
    }

    fn copy(&mut self, to: u64, from: u64, bytes: usize, _: usize) -> Result<(), Diagnostics> {
        let span = self.span();
        // SAFETY: whole buffers of one size.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) }
        if let Some(span) = span {
            let work = Some(Work::moved(bytes as u64));
            span.step(("copy", "copy"), "host", &Loc::unknown(), work, self.memory());
        }
        Ok(())
    }

    // Each step is over before the next begins.
    fn record(&mut self, _: usize, _: usize) -> Result<(), Diagnostics> {
        Ok(())
    }

    fn wait(&mut self, _: usize, _: usize) -> Result<(), Diagnostics> {
        Ok(())
    }

    fn truth(
        &mut self,
        pred: (&Array, u64),
        _: &str,
        _: &Loc,
        _: usize,
    ) -> Result<bool, Diagnostics> {
        // SAFETY: a bool without axes is one byte.
        Ok(unsafe { (pred.1 as *const u8).read() } != 0)
    }

    fn index_bytes(&self) -> i64 {
        0
    }

    fn index(&mut self, at: &mut Addresses, _: usize, position: &Array, i: i64) {
        // SAFETY: the position is an i64 without axes.
        unsafe { (at.of(position) as *mut i64).write_unaligned(i) }
    }
}

/// The privileges and arrays of a call.
pub(super) fn call_arguments(
    args: &[(Array, Privilege)],
    at: &Addresses,
) -> (Vec<Privilege>, Vec<BufferArg>) {
    let array = |(a, p): &(Array, Privilege)| BufferArg {
        data: at.of(a) as *mut u8,
        writable: p.writes(),
        ..buffer_arg(a)
    };
    (args.iter().map(|(_, p)| *p).collect(), args.iter().map(array).collect())
}
