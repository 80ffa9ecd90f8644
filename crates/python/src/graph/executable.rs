//! A function that was compiled for arguments of given types.

use super::collective::Collective;
use super::on_device::OnDevice;
use super::run::Called;
use crate::arrays::argument;
use crate::device_array::DeviceArray;
use crate::enter::{enter, exception};
use crate::holding;
use crate::kernel::BACKENDS;
use crate::replay::notes;
use crate::streams::Found;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_driver::graph::{
    Boundary, Chosen, Given, GraphOptions, GraphProgram, HostKernels, MadeKernels, OnMesh,
    PlanOptions, compile_graph_for, machine_text,
};
use tessera_driver::{
    Arg, BufferArg, DeviceId, Flights, ForkLock, NoKernels, Place, Queue, Streams, beside, device,
};
use tessera_graph::GraphModule;
use tessera_graph::ops::collective::Split;
use tessera_ir::Type;
use tessera_numerics::Profile;

#[pyclass(frozen, weakref, module = "tessera._core")]
pub struct Executable {
    program: Arc<GraphProgram>,
    /// The algorithms of its collectives, in order, where they were chosen.
    algorithms: Mutex<Vec<String>>,
}

/// How a function is compiled, as Python says it.
#[derive(Debug)]
pub struct Requested {
    pub backend: Option<String>,
    pub separate: bool,
    pub profile: usize,
    pub device: Option<DeviceId>,
    /// The text of a plan, as printed or changed.
    pub plan: Option<String>,
    /// The types of the arguments where the function's own have symbols.
    pub args: Option<Vec<Type>>,
    pub kernels: MadeKernels,
    /// The functions that stand for composites.
    pub chosen: Chosen,
    /// The program of a rank, where it was made to choose them.
    pub on_mesh: Option<Arc<OnMesh>>,
}

impl Requested {
    /// What distinguishes it from other requests for the same function, but for the machine.
    fn text(&self, func: &str) -> String {
        let Self { separate, profile, device, plan, args, chosen, .. } = self;
        format!("{:?}", (func, separate, profile, device.map(|d| d.kind), plan, args, chosen))
    }

    fn options(self) -> Result<GraphOptions, Diagnostics> {
        let Requested {
            backend,
            separate,
            profile,
            device,
            plan,
            args: _,
            kernels,
            chosen,
            on_mesh,
        } = self;
        let plan = match plan {
            Some(text) => PlanOptions { chosen, ..PlanOptions::from_text(&text)? },
            None => PlanOptions { separate, chosen, ..PlanOptions::default() },
        };
        let profile = Profile::ALL.get(profile).copied().unwrap_or_default();
        Ok(GraphOptions { backend, device, profile, plan, kernels, on_mesh })
    }
}

/// The programs of a module that are in use, by what was requested: another device of a kind takes them too.
#[derive(Default)]
pub struct Compiled {
    known: ForkLock<BTreeMap<String, Weak<GraphProgram>>>,
    /// Those that were compiled and not handed over: the caller was interrupted, and asks again.
    finished: ForkLock<BTreeMap<String, Arc<GraphProgram>>>,
    compiling: Flights<String>,
}

impl Compiled {
    fn find(&self, key: &str) -> Option<Arc<GraphProgram>> {
        self.known.lock().get(key)?.upgrade()
    }

    fn keep(&self, key: &str, made: &Arc<GraphProgram>) {
        let mut known = self.known.lock();
        known.retain(|_, program| program.strong_count() > 0);
        known.insert(key.to_string(), Arc::downgrade(made));
        drop(known);
        self.finished.lock().insert(key.to_string(), made.clone());
    }
}

pub fn compile(
    py: Python<'_>,
    module: GraphModule,
    func: &str,
    requested: Requested,
    compiled: &Arc<Compiled>,
) -> PyResult<Executable> {
    let (name, all) = (func.to_string(), compiled.clone());
    let (made, key) = enter(py, || {
        beside(move || {
            let text = requested.text(&name);
            let types = match (requested.args.clone(), module.func(&name)) {
                (Some(types), _) => types,
                (None, Some(f)) => f.params().iter().map(|&p| f.ty(p).clone()).collect::<Vec<_>>(),
                (None, None) => Vec::new(),
            };
            let options = requested.options()?;
            let choice = options.choose(&BACKENDS)?;
            // Of the device only what code depends on: devices of one kind have one program.
            let key = format!("{text} on {}", machine_text(&choice)?);
            let make = || {
                let made = compile_graph_for(&module, &name, &types, choice, &options)?;
                let made = Arc::new(made);
                all.keep(&key, &made);
                Ok::<_, Diagnostics>(made)
            };
            let (made, _) = all.compiling.once(&key, || all.find(&key), make)?;
            Ok((made, key))
        })
    })?;
    compiled.finished.lock().remove(&key);
    crate::cache::warn(py)?;
    Ok(Executable { program: made, algorithms: Mutex::default() })
}

/// Arrays in host memory alone.
pub fn buffers(
    py: Python<'_>,
    arrays: &[Bound<'_, PyAny>],
    what: &str,
) -> PyResult<Vec<BufferArg>> {
    let mut keep = Vec::new();
    let mut found = Found::default();
    arrays
        .iter()
        .map(|array| match argument(array, &mut keep, &mut found)? {
            Arg::Array(a) if matches!(a.place, Place::Host) => Ok(a.buffer),
            _ => {
                let got = array.get_type().name()?;
                let why = format!("expected {what} to be arrays in host memory, got {got}");
                Err(exception(py, &Diagnostic::new(Code::E_ARGUMENT, why).into()))
            }
        })
        .collect()
}

/// The arrays of a run: where they are, and what of them must be kept.
struct Arrays<'py> {
    buffers: Vec<BufferArg>,
    place: Option<Place>,
    keep: Vec<Bound<'py, PyAny>>,
    found: Found,
}

impl<'py> Arrays<'py> {
    fn new() -> Self {
        Self { buffers: Vec::new(), place: None, keep: Vec::new(), found: Found::default() }
    }

    fn add(&mut self, array: &Bound<'py, PyAny>) -> PyResult<()> {
        let got = match argument(array, &mut self.keep, &mut self.found)? {
            Arg::Array(a) => {
                let place = self.place.get_or_insert_with(|| a.place.clone());
                if *place == a.place {
                    self.buffers.push(a.buffer);
                    return Ok(());
                }
                format!("arrays {place} and {}", a.place)
            }
            _ => array.get_type().name()?.to_string(),
        };
        let why = format!("expected arrays in one place, got {got}");
        let error = Diagnostic::new(Code::E_LAUNCH_DEVICE_MISMATCH, why);
        Err(exception(array.py(), &error.into()))
    }
}

impl Executable {
    /// Runs on arrays of the host; whatever is wrong with them is reported.
    pub fn run_on_host(
        &self,
        py: Python<'_>,
        inputs: &[BufferArg],
        outputs: &[BufferArg],
        kernels: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        notes::spoil();
        let called = kernels.map(Called::new);
        let answer = enter(py, || match &called {
            Some(called) => self.program.run_into(inputs, outputs, &mut HostKernels(&mut &*called)),
            None => self.program.run_into(inputs, outputs, &mut HostKernels(&mut NoKernels)),
        });
        if let Some(error) = called.and_then(Called::raised) {
            return Err(error);
        }
        answer
    }

    /// Runs on arrays of a device that are as those of an earlier run, but for their addresses: those of arguments, then those of
    /// results. The stream waits for the work on `after` first.
    pub fn run_again(
        &self,
        py: Python<'_>,
        at: &[u64],
        Queue { device, stream }: Queue,
        after: Vec<u64>,
        kernels: Option<Py<PyAny>>,
        captured: bool,
    ) -> PyResult<()> {
        notes::spoil();
        let mut called = OnDevice::new(kernels);
        let streams = Streams { on: stream, after, then: Vec::new() };
        let program = &self.program;
        let done = enter(py, || program.run_again(at, device, &streams, &mut called, captured));
        called.raised().map_or(done, Err)
    }

    /// Row-major arguments and results, without addresses yet.
    pub fn templates(&self) -> (Vec<BufferArg>, Vec<BufferArg>) {
        let one = |ty: &Type| {
            let dims = ty.static_shape().unwrap_or_default();
            let mut strides = vec![ty.dtype().bytes() as i64; dims.len()];
            for axis in (1..dims.len()).rev() {
                strides[axis - 1] = strides[axis].saturating_mul(dims[axis]);
            }
            let data = std::ptr::null_mut();
            BufferArg { data, dims, strides, dtype: ty.dtype(), writable: false }
        };
        (
            self.program.arguments().iter().map(one).collect(),
            self.program.results().iter().map(one).collect(),
        )
    }
}

impl Executable {
    fn listed(&self) -> Vec<Collective> {
        let chosen = self.algorithms.lock().unwrap_or_else(PoisonError::into_inner);
        let algorithm = |at| chosen.get(at).cloned().unwrap_or_else(|| "auto".to_string());
        let all = self.program.collectives().iter().enumerate();
        all.map(|(at, found)| Collective::new(found.clone(), algorithm(at))).collect()
    }
}

/// The axes of the program's mesh and their extents. For each argument how its dims are split, None where it is taken whole; for each result that, the extents of a block, and which of its
/// blocks each rank has.
type InBlocks = (Vec<String>, Vec<i64>, Vec<Option<Split>>, Vec<(Split, Vec<usize>, Vec<usize>)>);

#[tessera_entry::entry]
#[pymethods]
impl Executable {
    /// How arguments and results of a program of ranks may be given in blocks; None where whole arrays are taken.
    #[getter]
    fn boundary(&self) -> Option<InBlocks> {
        let Boundary { mesh, arguments, results } = self.program.boundary()?;
        let types = self.program.results();
        let result = |(split, ty): (Split, &Type)| {
            let dims = ty.static_shape().unwrap_or_default();
            let dims: Vec<usize> = dims.iter().map(|&d| d.max(0) as usize).collect();
            let (_, extents) = mesh.block(&split, &dims, 0);
            let mut starts = Vec::new();
            let of_rank = (0..mesh.count() as usize).map(|rank| {
                let (start, _) = mesh.block(&split, &dims, rank);
                starts.iter().position(|s| *s == start).unwrap_or_else(|| {
                    starts.push(start);
                    starts.len() - 1
                })
            });
            let of_rank = of_rank.collect();
            (split, extents, of_rank)
        };
        let results = results.into_iter().zip(&types).map(result).collect();
        Some((mesh.names, mesh.sizes, arguments, results))
    }

    /// Runs a program of ranks: each argument is an array or a list with the block of each rank, each result such a list. With `is_joined`
    /// other processes play the ranks for whose blocks None stands, and all call it together.
    fn run_blocks(
        &self,
        py: Python<'_>,
        inputs: Vec<Bound<'_, PyAny>>,
        outputs: Vec<Vec<Bound<'_, PyAny>>>,
        is_joined: bool,
    ) -> PyResult<()> {
        notes::spoil();
        let blocks = |all: &[Bound<'_, PyAny>]| -> PyResult<Given> {
            let here: Vec<Bound<'_, PyAny>> =
                all.iter().filter(|b| !is_joined || !b.is_none()).cloned().collect();
            let found = buffers(py, &here, "blocks")?;
            if here.len() == all.len() {
                return Ok(Given::Blocks(found));
            }
            let Some(like) = found.first().cloned() else {
                let text = "expected a process that plays a rank, got one without";
                return Err(exception(py, &Diagnostic::new(Code::E_ARGUMENT, text).into()));
            };
            let elsewhere = BufferArg { data: std::ptr::null_mut(), ..like };
            let mut found = found.into_iter();
            let each = all.iter().map(|b| {
                let known = if b.is_none() { None } else { found.next() };
                known.unwrap_or_else(|| elsewhere.clone())
            });
            Ok(Given::Blocks(each.collect()))
        };
        let one = |array: &Bound<'_, PyAny>| match array.cast::<PyList>() {
            Ok(list) => blocks(&list.iter().collect::<Vec<_>>()),
            Err(_) => {
                let mut whole = buffers(py, std::slice::from_ref(array), "arguments")?;
                Ok(Given::Whole(whole.remove(0)))
            }
        };
        let ins = inputs.iter().map(one).collect::<PyResult<Vec<_>>>()?;
        let outs = outputs.iter().map(|b| blocks(b)).collect::<PyResult<Vec<_>>>()?;
        enter(py, move || self.program.run_blocks(ins, outs, is_joined))
    }

    /// Runs on row-major arrays, all of them on the host or all on the device that it was
    /// compiled for; results are written into `outputs`. On a device everything is put on the
    /// libraries' current stream; `capture` records it and does it again as one.
    #[pyo3(signature = (inputs, outputs, kernels=None, capture=false))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        inputs: Vec<Bound<'py, PyAny>>,
        outputs: Vec<Bound<'py, PyAny>>,
        kernels: Option<Py<PyAny>>,
        capture: bool,
    ) -> PyResult<()> {
        notes::spoil();
        let mut arrays = Arrays::new();
        inputs.iter().chain(&outputs).try_for_each(|a| arrays.add(a))?;
        let Arrays { buffers, place, keep, found } = arrays;
        let (ins, outs) = buffers.split_at(inputs.len());
        match (&place, self.program.is_on_device()) {
            (Some(Place::Device(id)), true) => {
                let (id, streams) = (*id, found.settle());
                let queue = Queue { device: id, stream: streams.on };
                let mut called = OnDevice::new(kernels);
                let answer = enter(py, || match capture {
                    true => self.program.replay_on(ins, outs, id, &streams, &mut called),
                    false => self.program.run_on(ins, outs, id, &streams, &mut called),
                });
                if let Some(error) = called.raised() {
                    return Err(error);
                }
                answer?;
                for array in inputs.iter().chain(&outputs) {
                    if let Ok(array) = array.cast::<DeviceArray>() {
                        array.get().memory.used_on(queue.stream);
                    }
                }
                if !device::is_recording() {
                    holding::hold(py, keep, queue);
                }
                Ok(())
            }
            (Some(Place::Host) | None, false) => self.run_on_host(py, ins, outs, kernels),
            (place, _) => {
                let got = place.as_ref().map_or("none".into(), ToString::to_string);
                let why = format!(
                    "expected arrays where the function was compiled for, with `{}`, got arrays {got}",
                    self.program.backend()
                );
                let error = Diagnostic::new(Code::E_LAUNCH_DEVICE_MISMATCH, why);
                Err(exception(py, &error.into()))
            }
        }
    }

    /// Whether its arrays are on a device.
    #[getter]
    fn on_device(&self) -> bool {
        self.program.is_on_device()
    }

    /// How many graphs of the device were recorded.
    #[getter]
    fn graphs(&self) -> usize {
        self.program.graphs()
    }

    /// Results that may be written over arguments: pairs of a result's and an argument's position.
    #[getter]
    fn donations(&self) -> Vec<(usize, usize)> {
        self.program.donations()
    }

    /// What has memory, and which kernels run on what.
    #[getter]
    fn plan(&self) -> String {
        self.program.plan_text()
    }

    /// The program of a rank in Graph IR; None of a function without a mesh.
    #[getter]
    fn spmd(&self) -> Option<String> {
        self.program.rank_text()
    }

    /// The plan of a rank in Schedule IR; None of a function without a mesh, and where the ranks are rows of one function.
    #[getter]
    fn rank_plan(&self) -> Option<String> {
        let plans = self.program.rank_plans();
        (!plans.is_empty()).then(|| plans.join("\n"))
    }

    /// The collectives that it runs, in order.
    #[getter]
    fn collectives(&self) -> Vec<Collective> {
        self.listed()
    }

    /// Why each value is where it is on a mesh, and what each collective costs and is for, as text.
    fn explain(&self) -> String {
        match self.program.explained() {
            Some(values) => format!("{values}{}", Collective::report(&self.listed())),
            None => "no array is on a mesh\n".to_string(),
        }
    }

    /// Says which algorithms its collectives have.
    fn choose(&self, algorithms: Vec<String>) {
        *self.algorithms.lock().unwrap_or_else(PoisonError::into_inner) = algorithms;
    }

    #[getter]
    fn backend(&self) -> &'static str {
        self.program.backend()
    }

    /// Ops that the host evaluates by their definition.
    #[getter]
    fn host_ops(&self) -> Vec<String> {
        self.program.host_ops()
    }

    #[getter]
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (out, found) = (PyDict::new(py), self.program.stats());
        out.set_item("partition_s", found.partition.as_secs_f64())?;
        out.set_item("plan_s", found.plan.as_secs_f64())?;
        out.set_item("compile_s", found.compile.as_secs_f64())?;
        out.set_item("launches", found.launches)?;
        out.set_item("kernels", found.kernels)?;
        out.set_item("compiled", found.compiled)?;
        out.set_item("host_ops", found.host_ops)?;
        out.set_item("scratch_bytes", found.scratch_bytes)?;
        out.set_item("unshared_bytes", found.unshared_bytes)?;
        Ok(out)
    }
}
