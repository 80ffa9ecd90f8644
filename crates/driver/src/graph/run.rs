//! Running a plan on arrays in host memory.

use super::arena::Block;
use super::program::GraphProgram;
use crate::profile::{self, Span};
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_cost::Work;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::GraphModule;
use tessera_interp::{HostArray, KernelCall, Kernels, NoKernels, run_graph};
use tessera_ir::{Attrs, Privilege};
use tessera_numerics::DType;
use tessera_plan::{Array, Origin, Step};
use tessera_target::{ArgValue, BufferArg, LaunchArgs, Queue};
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

/// What one run at a time needs: scratch memory, and launches whose addresses are to be filled in.
pub struct Recorded {
    block: Block,
    constants: Vec<Option<Block>>,
    steps: Vec<Ready>,
}

enum Ready {
    Launch { kernel: usize, args: Box<LaunchArgs>, arrays: Vec<Array>, label: String, loc: Loc },
    Host { module: GraphModule, inputs: Vec<Array>, outputs: Vec<Array> },
    Call { kernel: String, config: Option<Attrs>, args: Vec<(Array, Privilege)>, loc: Loc },
    Copy { from: Array, to: Array },
    Cond { pred: Array, then: Vec<Ready>, otherwise: Vec<Ready> },
    While { test: Vec<Ready>, pred: Array, body: Vec<Ready> },
    Loop { id: usize, trip: i64, reverse: bool, position: Array, body: Vec<Ready> },
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

fn ready(steps: &[Step]) -> Vec<Ready> {
    let one = |step: &Step| match step {
        Step::Launch { kernel, args, grid, domain, lanes, label, loc } => Ready::Launch {
            kernel: *kernel,
            args: Box::new(LaunchArgs {
                params: args.iter().map(|a| ArgValue::Buffer(buffer_arg(a))).collect(),
                dims: BTreeMap::new(),
                grid: *grid,
                domain: *domain,
                lanes: *lanes,
            }),
            arrays: args.clone(),
            label: label.clone(),
            loc: loc.clone(),
        },
        Step::Host { op, inputs, outputs, .. } => {
            let mut module = GraphModule::new("op");
            module.funcs.push(op.clone());
            Ready::Host { module, inputs: inputs.clone(), outputs: outputs.clone() }
        }
        Step::Call { kernel, config, args, loc } => Ready::Call {
            kernel: kernel.clone(),
            config: config.clone(),
            args: args.clone(),
            loc: loc.clone(),
        },
        Step::Copy { from, to } => Ready::Copy { from: from.clone(), to: to.clone() },
        Step::Cond { pred, then, otherwise, .. } => {
            Ready::Cond { pred: pred.clone(), then: ready(then), otherwise: ready(otherwise) }
        }
        Step::While { test, pred, body, .. } => {
            Ready::While { test: ready(test), pred: pred.clone(), body: ready(body) }
        }
        Step::Loop { id, trip, reverse, position, body } => Ready::Loop {
            id: *id,
            trip: *trip,
            reverse: *reverse,
            position: position.clone(),
            body: ready(body),
        },
    };
    steps.iter().map(one).collect()
}

/// Called with the index of a step and its time in seconds.
type Clock<'a> = &'a mut dyn FnMut(usize, f64);

fn label(step: &Step, kernels: &[TileFunc]) -> String {
    match step {
        Step::Launch { label, kernel, args, .. } => {
            let shapes: Vec<String> = args.iter().map(|a| format!("{:?}", a.dims)).collect();
            format!("{} @{} {}", label, kernels[*kernel].name, shapes.join(" "))
        }
        Step::Host { label, .. } => format!("host {label}"),
        Step::Call { kernel, .. } => format!("call @{kernel}"),
        Step::Copy { to, .. } => format!("copy {:?}", to.dims),
        Step::Cond { .. } => "cond".into(),
        Step::While { .. } => "while".into(),
        Step::Loop { trip, .. } => format!("loop {trip}"),
    }
}

/// Where buffers are in this run, and which iteration each loop is in.
struct World<'a> {
    program: &'a GraphProgram,
    bases: Vec<*mut u8>,
    iterations: Vec<i64>,
    kernels: &'a mut dyn GraphKernels,
}

impl GraphProgram {
    fn record(&self) -> Result<Recorded, Diagnostics> {
        let memory = |bytes: usize| {
            Block::new(bytes).ok_or_else(|| {
                let why = format!("{bytes} bytes of memory could not be had");
                Diagnostics::from(Diagnostic::new(Code::E_OOM, why))
            })
        };
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
        Ok(Recorded {
            block: memory(self.places.bytes)?,
            constants,
            steps: ready(&self.plan.steps),
        })
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
        let base = recorded.block.address();
        let mut bases: Vec<*mut u8> = Vec::with_capacity(self.plan.buffers.len());
        for (i, buffer) in self.plan.buffers.iter().enumerate() {
            bases.push(match (&buffer.origin, self.places.offsets[i], &recorded.constants[i]) {
                (Origin::Argument(place), _, _) => inputs[*place].data,
                (_, _, Some(block)) => block.address(),
                (_, Some(offset), _) => base.wrapping_add(offset),
                _ => std::ptr::null_mut(),
            });
        }
        for ((buffer, _), output) in self.plan.results.iter().zip(outputs) {
            bases[*buffer] = output.data;
        }
        let mut world = World { program: self, bases, iterations: Vec::new(), kernels };
        let done = match clock {
            None => world.steps(&mut recorded.steps),
            Some(clock) => world.timed(&mut recorded.steps, clock),
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
        let mut out: Vec<(String, f64)> =
            self.plan.steps.iter().map(|s| (label(s, &self.plan.kernels), f64::MAX)).collect();
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
fn dense(array: &BufferArg) -> bool {
    let mut stride = array.dtype.bytes() as i64;
    for (&d, &s) in array.dims.iter().zip(&array.strides).rev() {
        if d > 1 && s != stride {
            return false;
        }
        stride = stride.saturating_mul(d);
    }
    true
}

impl World<'_> {
    fn at(&self, array: &Array) -> *mut u8 {
        let turned: i64 = array
            .iterations
            .iter()
            .map(|&(id, by)| self.iterations.get(id).copied().unwrap_or(0) * by)
            .sum();
        self.bases[array.buffer].wrapping_offset((array.offset + turned) as isize)
    }

    fn timed(&mut self, steps: &mut [Ready], clock: Clock<'_>) -> Result<(), Diagnostics> {
        for (place, step) in steps.iter_mut().enumerate() {
            let start = std::time::Instant::now();
            self.step(step)?;
            clock(place, start.elapsed().as_secs_f64());
        }
        Ok(())
    }

    fn steps(&mut self, steps: &mut [Ready]) -> Result<(), Diagnostics> {
        let watched = profile::is_on();
        for step in steps {
            if watched {
                self.watched(step)?;
            } else {
                self.step(step)?;
            }
        }
        Ok(())
    }

    /// Runs a step and reports it to the profile; a step that contains others reports those.
    fn watched(&mut self, step: &mut Ready) -> Result<(), Diagnostics> {
        let span = Span::open(None);
        self.step(step)?;
        let Some(span) = span else { return Ok(()) };
        let unknown = Loc::unknown();
        let (program, on) = (self.program, self.program.backend());
        let memory = Some(program.places.bytes as u64);
        match step {
            Ready::Launch { kernel, args, label, loc, .. } => {
                let work = program.work(*kernel, args.grid);
                span.step(("group", label), on, loc, work, memory);
            }
            Ready::Host { module, .. } => {
                let loc = module.funcs.first().map_or(&unknown, |f| &f.loc);
                span.step(("host", &module.name), "interp", loc, None, memory);
            }
            Ready::Copy { to, .. } => {
                let bytes = bytes_of(&to.dims, to.dtype) as u64;
                span.step(("copy", "copy"), "host", &unknown, Some(Work::moved(bytes)), memory);
            }
            // The kernels that are called, and the steps inside, report themselves.
            Ready::Call { .. } | Ready::Cond { .. } | Ready::While { .. } | Ready::Loop { .. } => {}
        }
        Ok(())
    }

    fn step(&mut self, step: &mut Ready) -> Result<(), Diagnostics> {
        match step {
            Ready::Launch { kernel, args, arrays, .. } => {
                for (param, array) in args.params.iter_mut().zip(arrays) {
                    if let ArgValue::Buffer(b) = param {
                        b.data = self.at(array);
                    }
                }
                let kernel: &Arc<_> = &self.program.kernels[*kernel];
                kernel.launch(args)
            }
            Ready::Host { module, inputs, outputs } => {
                let ins: Vec<HostArray> = inputs.iter().map(|a| self.host(a)).collect();
                let outs = run_graph(module, "op", &ins, &mut NoKernels)?;
                for (array, to) in outs.iter().zip(outputs) {
                    // SAFETY: the plan gave the result memory of its size.
                    unsafe {
                        let (from, len) = (array.bytes.as_ptr(), array.bytes.len());
                        std::ptr::copy_nonoverlapping(from, self.at(to), len);
                    }
                }
                Ok(())
            }
            Ready::Call { kernel, config, args, loc } => {
                let privileges: Vec<Privilege> = args.iter().map(|(_, p)| *p).collect();
                let arrays: Vec<BufferArg> = args
                    .iter()
                    .map(|(a, p)| BufferArg {
                        data: self.at(a),
                        writable: p.writes(),
                        ..buffer_arg(a)
                    })
                    .collect();
                self.kernels.call(kernel, config.as_ref(), &privileges, &arrays, None, loc)
            }
            Ready::Copy { from, to } => {
                let bytes = bytes_of(&to.dims, to.dtype);
                let (from, to) = (self.at(from), self.at(to));
                if bytes > 0 && from != to {
                    // SAFETY: whole buffers of one size.
                    unsafe { std::ptr::copy(from, to, bytes) }
                }
                Ok(())
            }
            Ready::Cond { pred, then, otherwise } => {
                if self.truth(pred) {
                    self.steps(then)
                } else {
                    self.steps(otherwise)
                }
            }
            Ready::While { test, pred, body } => loop {
                self.steps(test)?;
                if !self.truth(pred) {
                    return Ok(());
                }
                self.steps(body)?;
            },
            Ready::Loop { id, trip, reverse, position, body } => {
                if self.iterations.len() <= *id {
                    self.iterations.resize(*id + 1, 0);
                }
                for iteration in 0..*trip {
                    let i = if *reverse { *trip - 1 - iteration } else { iteration };
                    self.iterations[*id] = i;
                    // SAFETY: the position is an i64 without axes.
                    unsafe { self.at(position).cast::<i64>().write_unaligned(i) }
                    self.steps(body)?;
                }
                Ok(())
            }
        }
    }

    fn truth(&self, pred: &Array) -> bool {
        // SAFETY: a bool without axes is one byte.
        unsafe { self.at(pred).read() != 0 }
    }

    fn host(&self, array: &Array) -> HostArray {
        let bytes = bytes_of(&array.dims, array.dtype);
        let bytes = match bytes {
            0 => Vec::new(),
            // SAFETY: whole buffers.
            _ => unsafe { std::slice::from_raw_parts(self.at(array), bytes) }.to_vec(),
        };
        HostArray { dims: array.dims.clone(), dtype: array.dtype, bytes }
    }
}
