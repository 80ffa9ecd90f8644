//! Calls that are checked when they are made, and run later by any thread: the tasks of index launches.

use crate::call::{Converted, Given};
use crate::enter::enter_call;
use crate::kernel::BACKENDS;
use crate::quick;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use tessera_driver::{KernelHandle, Location, Prepared, Purpose, Replay};

/// How it runs.
enum Way {
    /// As a recorded call.
    Again(Replay),
    First(Box<Prepared>),
    /// With arrays of a device, whose streams are known only when what goes before has been put on them.
    Later,
}

#[pyclass(frozen, module = "tessera._core")]
pub struct PreparedCall {
    kernel: Arc<KernelHandle>,
    allocate: Py<PyAny>,
    args: Py<PyTuple>,
    kwargs: Py<PyDict>,
    grid: Option<Py<PyAny>>,
    profile: usize,
    /// Taken by the one run.
    way: Mutex<Option<Way>>,
    result: Option<Py<PyAny>>,
    /// What the arguments borrow from.
    #[allow(dead_code)]
    keep: Vec<Py<PyAny>>,
}

impl PreparedCall {
    /// Checks all that a call would, allocates the arrays that it leaves out, and writes nothing.
    pub fn new(
        given: Given<'_, '_>,
        kernel: &Arc<KernelHandle>,
        allocate: &Py<PyAny>,
    ) -> PyResult<Self> {
        let py = given.args.py();
        let mut made = Self {
            kernel: kernel.clone(),
            allocate: allocate.clone_ref(py),
            args: given.args.clone().unbind(),
            kwargs: given.kwargs.clone().unbind(),
            grid: given.grid.map(|g| g.clone().unbind()),
            profile: given.profile,
            way: Mutex::new(None),
            result: None,
            keep: Vec::new(),
        };
        if let Some(again) = quick::find(&given).filter(|again| again.on_host) {
            made.result = Some(again.results(given.args)?.unbind());
            made.way = Mutex::new(Some(Way::Again(again.replay)));
            return Ok(made);
        }
        let mut converted = given.convert()?;
        let (call, ask) = converted.take();
        let mut prepared = enter_call(py, || kernel.prepare(&BACKENDS, call, ask))?;
        if prepared.location() != Location::Host {
            enter_call(py, || kernel.check_launch(&prepared))?;
            made.way = Mutex::new(Some(Way::Later));
            return Ok(made);
        }
        let returns = prepared.returns();
        if !prepared.missing().is_empty() {
            converted.fill(&mut prepared, given.allocate)?;
        }
        enter_call(py, || kernel.check_launch(&prepared))?;
        made.keep = converted.kept();
        made.result = Some(converted.results(py, &returns)?.unbind());
        made.way = Mutex::new(Some(Way::First(Box::new(prepared))));
        Ok(made)
    }
}

#[tessera_entry::entry]
#[pymethods]
impl PreparedCall {
    /// Whether the result is known before it runs.
    #[getter]
    fn is_known(&self) -> bool {
        self.result.is_some()
    }

    /// What the call gives back, where that is known before it runs.
    #[getter]
    fn result(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.result.as_ref().map(|r| r.clone_ref(py))
    }

    /// Runs it, once. A second run does nothing.
    fn run<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let way = self.way.lock().unwrap_or_else(PoisonError::into_inner).take();
        let kernel = &*self.kernel;
        match way {
            Some(Way::Again(replay)) => enter_call(py, || kernel.launch_again(&replay, 0))?,
            Some(Way::First(prepared)) => enter_call(py, || kernel.launch(*prepared))?,
            Some(Way::Later) => return self.run_now(py),
            None => {}
        }
        let result = self.result.as_ref().map_or_else(|| py.None(), |r| r.clone_ref(py));
        Ok(result.into_bound(py))
    }
}

impl PreparedCall {
    fn run_now<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let given = Given {
            kernel: &self.kernel,
            replays: self.kernel.replays(),
            args: self.args.bind(py),
            kwargs: self.kwargs.bind(py),
            grid: self.grid.as_ref().map(|g| g.bind(py)),
            profile: self.profile,
            purpose: Purpose::Run,
            allocate: self.allocate.bind(py),
        };
        given.launch(|call, ask| self.kernel.prepare(&BACKENDS, call, ask))
    }
}

impl Converted<'_> {
    /// What the arguments borrow from, to be kept as long as they are used.
    fn kept(&mut self) -> Vec<Py<PyAny>> {
        std::mem::take(self.keep_mut()).into_iter().map(Bound::unbind).collect()
    }
}
