//! Calls of traced functions: a recording is the compiled function with the memory of its arguments and
//! results left open. Its arrays are all in host memory, or all on one device.

use super::around;
use super::form::Form;
use super::on_device::{Makes, There};
use super::walk::{Walk, view};
use crate::aligned::empty;
use crate::arrays::{NdHead, descr_dtype, head, is_ndarray};
use crate::graph::Executable;
use crate::kernel::BACKENDS;
use crate::watch::Watch;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_driver::replay::{Free, Mark, Numbers, Table, guards};
use tessera_driver::{BufferArg, Number};
use tessera_numerics::{DType, Profile};

/// A function called with more forms than this is looked up by Python.
const KEPT: usize = 64;

/// The calls of one function.
#[pyclass(frozen, module = "tessera._core")]
pub struct Calls {
    kept: Table<Recording>,
    /// Whether all numbers and texts are static, or which arguments are, by position and by name.
    fixed: bool,
    places: Vec<isize>,
    names: Vec<String>,
    /// How many calls were recorded, and how many were replayed.
    counts: [AtomicUsize; 2],
}

/// A function whose calls are replayed: the class that `ts.jit` gives extends it. A call like an earlier one runs without a
/// frame of Python; every other one is a call of the method `_call_whole`.
#[pyclass(subclass, frozen, module = "tessera._core")]
pub struct Replayed {
    calls: Py<Calls>,
    /// The number of the profile that was set for the function.
    profile: Option<usize>,
}

#[tessera_entry::entry]
#[pymethods]
impl Replayed {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.calls)
    }

    #[new]
    fn new(calls: Py<Calls>, profile: Option<usize>) -> Self {
        Self { calls, profile }
    }

    #[getter(_calls)]
    fn calls(&self, py: Python<'_>) -> Py<Calls> {
        self.calls.clone_ref(py)
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        if let Some(profile) = around::plain()
            && let Some(done) =
                this.calls.get().replay(args, kwargs, this.profile.unwrap_or(profile))?
        {
            return Ok(done);
        }
        slf.getattr(intern!(slf.py(), "_call_whole"))?.call(args, kwargs)
    }
}

enum Recording {
    /// Calls like this one take the full path.
    Whole,
    Run(Box<Run>),
}

struct Run {
    /// What the kernels and functions that the trace called have captured.
    watch: Option<Py<Watch>>,
    place: Place,
}

enum Place {
    Host(Here),
    Device(There),
}

/// A run in host memory.
struct Here {
    run: Py<Executable>,
    kernels: Option<Py<PyAny>>,
    /// The arguments, with addresses to be filled in; at the end those that the trace holds.
    inputs: Vec<BufferArg>,
    held: Vec<Py<PyAny>>,
    outputs: Vec<BufferArg>,
    /// The class of each result, what it is called with for a new array, and how many bytes that has.
    empty: Vec<(Py<PyType>, Py<PyTuple>, usize)>,
    result: Form,
}

#[tessera_entry::entry]
#[pymethods]
impl Calls {
    /// What it holds may hold the function that it belongs to: the collector must see through.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.kept.visit(|recording| match &**recording {
            // A thread that runs a call at this moment holds it too: its contents are in use.
            Recording::Run(one) if Arc::strong_count(recording) == 1 => {
                visit.call(&one.watch)?;
                match &one.place {
                    Place::Host(here) => {
                        visit.call(&here.run)?;
                        visit.call(&here.kernels)?;
                        here.held.iter().try_for_each(|array| visit.call(array))
                    }
                    Place::Device(there) => there.traverse(&visit),
                }
            }
            Recording::Run(_) | Recording::Whole => Ok(()),
        })
    }

    fn __clear__(&self) {
        drop(self.kept.take());
    }

    #[new]
    #[pyo3(signature = (fixed=false, places=Vec::new(), names=Vec::new()))]
    fn new(fixed: bool, places: Vec<isize>, names: Vec<String>) -> Self {
        let counts = [AtomicUsize::new(0), AtomicUsize::new(0)];
        Self { kept: Table::new(KEPT), fixed, places, names, counts }
    }

    /// Keeps what a call ran, for calls like it: the code, the arrays that the trace holds, and
    /// results with their leaves in order. Of a function on a device `made` says how each leaf came about, see
    /// [`Makes`], and whether its launches are captured. False where such calls take the full path.
    #[pyo3(signature = (args, kwargs, profile, watch, run, kernels, held, result, leaves, made=None))]
    #[allow(clippy::too_many_arguments)]
    fn remember(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        profile: usize,
        watch: Option<Py<Watch>>,
        run: Py<Executable>,
        kernels: Option<Py<PyAny>>,
        held: Vec<Bound<'_, PyAny>>,
        result: &Bound<'_, PyAny>,
        leaves: Vec<Bound<'_, PyAny>>,
        made: Option<Makes<'_>>,
    ) -> PyResult<bool> {
        let Some(walk) = self.walked(args, Some(kwargs), profile) else { return Ok(false) };
        if matches!(self.kept.find(&walk.tokens).as_deref(), Some(Recording::Whole)) {
            return Ok(false);
        }
        let place = match made {
            None if walk.is_on_host() => {
                Here::new(&walk, run, kernels, held, result, &leaves)?.map(Place::Host)
            }
            None => None,
            Some(made) => {
                There::new(&walk, run, kernels, held, (result, &leaves), made)?.map(Place::Device)
            }
        };
        let known = place.is_some();
        let run = |place| Recording::Run(Box::new(Run { watch, place }));
        let recording = place.map_or(Recording::Whole, run);
        drop(self.kept.keep(walk.key(), Arc::new(recording)));
        self.counts[0].fetch_add(usize::from(known), Ordering::Relaxed);
        Ok(known)
    }

    /// Runs a call that is like a known one; `None` where there is none.
    fn run<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
        profile: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.replay(args, Some(kwargs), profile)
    }

    /// Whether a call that took the full path may be recorded, and is not.
    fn wants(
        &self,
        args: &Bound<'_, PyTuple>,
        kwargs: &Bound<'_, PyDict>,
        profile: usize,
    ) -> PyResult<bool> {
        let Some(walk) = self.walked(args, Some(kwargs), profile) else { return Ok(false) };
        match self.kept.find(&walk.tokens).as_deref() {
            None => Ok(true),
            Some(Recording::Whole) => Ok(false),
            Some(Recording::Run(one)) => Ok(!one.holds(args.py())?),
        }
    }

    /// How many calls were recorded, and how many were replayed.
    fn counts(&self) -> (usize, usize) {
        let [recorded, replayed] = &self.counts;
        (recorded.load(Ordering::Relaxed), replayed.load(Ordering::Relaxed))
    }

    fn clear(&self) {
        drop(self.kept.take());
    }
}

impl Calls {
    fn replay<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        profile: usize,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = args.py();
        let Some(walk) = self.walked(args, kwargs, profile) else { return Ok(None) };
        let done = match self.kept.find(&walk.tokens).as_deref() {
            Some(Recording::Run(one)) if one.holds(py)? => match &one.place {
                Place::Host(here) => here.run(py, &walk)?,
                Place::Device(there) => there.run(py, &walk)?,
            },
            _ => None,
        };
        self.counts[1].fetch_add(usize::from(done.is_some()), Ordering::Relaxed);
        Ok(done)
    }

    fn walked<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
        profile: usize,
    ) -> Option<Walk<'py>> {
        let profile = Profile::ALL.get(profile).copied().unwrap_or_default();
        let mut walk = Walk::new(guards(&BACKENDS, profile)?, false);
        let count = args.len() as isize;
        let numbers = |is_static: bool| match self.fixed || is_static {
            true => Numbers::Fixed,
            false => Numbers::Free,
        };
        walk.tokens.mark(Mark::Tuple, args.len());
        for (at, value) in args.iter_borrowed().enumerate() {
            let at = at as isize;
            walk.value(&value, numbers(self.places.iter().any(|&p| p == at || p + count == at)))?;
        }
        match kwargs {
            Some(kwargs) => {
                walk.dict(kwargs, &|name| numbers(self.names.iter().any(|n| n == name)))?;
            }
            None => walk.tokens.mark(Mark::Dict, 0),
        }
        Some(walk)
    }
}

/// The dtype of a free number as an argument of the function.
pub fn dtype_of(free: &Free) -> DType {
    free.dtype.unwrap_or(match free.value {
        Number::Float(_) => DType::F64,
        Number::Bool(_) => DType::Bool,
        Number::Int(_) | Number::Huge(_) => DType::I64,
    })
}

/// The memory of such an argument, little end first; `None` where it does not fit.
pub fn word(free: &Free) -> Option<u64> {
    let dtype = dtype_of(free);
    match &free.value {
        Number::Bool(v) => (dtype == DType::Bool).then_some(u64::from(*v)),
        Number::Int(v) if dtype.is_signed_int() => i64::try_from(*v).ok().map(|v| v as u64),
        Number::Int(v) if dtype.is_int() => u64::try_from(*v).ok(),
        Number::Float(v) if dtype == DType::F64 => Some(v.to_bits()),
        Number::Float(v) if dtype == DType::F32 => Some((*v as f32).to_bits().into()),
        Number::Int(_) | Number::Float(_) | Number::Huge(_) => None,
    }
}

impl Run {
    fn holds(&self, py: Python<'_>) -> PyResult<bool> {
        self.watch.as_ref().map_or(Ok(true), |watch| watch.get().same(py))
    }
}

impl Here {
    fn new(
        walk: &Walk<'_>,
        run: Py<Executable>,
        kernels: Option<Py<PyAny>>,
        held: Vec<Bound<'_, PyAny>>,
        result: &Bound<'_, PyAny>,
        leaves: &[Bound<'_, PyAny>],
    ) -> PyResult<Option<Self>> {
        let py = result.py();
        let (mut inputs, mut outputs) = run.get().templates();
        let mut given = Vec::new();
        for leaf in walk.leaves() {
            match leaf {
                Ok(array) => {
                    if !is_ndarray(array)? || !head(array).row_major {
                        return Ok(None);
                    }
                    let Ok(dtype) = descr_dtype(&head(array).dtype)? else { return Ok(None) };
                    given.push(dtype);
                }
                Err(free) if word(free).is_some() => given.push(dtype_of(free)),
                Err(_) => return Ok(None),
            }
        }
        let fits = given.len() + held.len() == inputs.len()
            && leaves.len() == outputs.len()
            && inputs.iter().zip(&given).all(|(a, dtype)| a.dtype == *dtype);
        if !fits {
            return Ok(None);
        }
        for (array, input) in held.iter().zip(&mut inputs[given.len()..]) {
            let ready = is_ndarray(array)?
                && head(array).row_major
                && descr_dtype(&head(array).dtype)?.is_ok_and(|dtype| dtype == input.dtype);
            if !ready {
                return Ok(None);
            }
            input.data = head(array).data;
        }
        let (mut empty, mut known) = (Vec::new(), Vec::new());
        for leaf in leaves {
            let Some(seen) = view(leaf).filter(|_| is_ndarray(leaf).unwrap_or(false)) else {
                return Ok(None);
            };
            known.push((leaf.clone(), seen));
            let NdHead { dims, dtype, .. } = head(leaf);
            let form = PyTuple::new(py, [PyTuple::new(py, dims)?.into_any(), dtype])?;
            let bytes = leaf.getattr(intern!(py, "nbytes"))?.extract()?;
            empty.push((leaf.get_type().unbind(), form.unbind(), bytes));
        }
        let Some(result) = Form::of(result, &known).filter(Form::is_of_whole) else {
            return Ok(None);
        };
        outputs.iter_mut().for_each(|b| b.writable = true);
        let held = held.into_iter().map(Bound::unbind).collect();
        Ok(Some(Self { run, kernels, inputs, held, outputs, empty, result }))
    }

    /// `None` where a number does not fit.
    fn run<'py>(&self, py: Python<'py>, walk: &Walk<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let numbers: Option<Vec<u64>> = walk.tokens.free().iter().map(word).collect();
        let Some(numbers) = numbers else { return Ok(None) };
        let (mut inputs, mut next) = (self.inputs.clone(), numbers.iter());
        for (input, leaf) in inputs.iter_mut().zip(walk.leaves()) {
            input.data = match leaf {
                Ok(array) => head(array).data,
                Err(_) => next.next().map_or(input.data, |n| n as *const u64 as *mut u8),
            };
        }
        let (mut outputs, mut made) = (self.outputs.clone(), Vec::with_capacity(self.empty.len()));
        for (output, (class, form, bytes)) in outputs.iter_mut().zip(&self.empty) {
            let array = empty(class.bind(py), form.bind(py), *bytes)?;
            output.data = head(&array).data;
            made.push(array);
        }
        let kernels = self.kernels.as_ref().map(|k| k.clone_ref(py));
        self.run.get().run_on_host(py, &inputs, &outputs, kernels)?;
        self.result.build(py, &made).map(Some)
    }
}
