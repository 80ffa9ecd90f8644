//! Recordings of launches, and the graphs they become.

use crate::device_array::DeviceArray;
use crate::enter::enter;
use crate::streams;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::cell::RefCell;
use tessera_driver::{Queue, device};

thread_local! {
    /// Arguments of the launches in the recording of this thread: its graph keeps them.
    static ARGUMENTS: RefCell<Vec<Py<PyTuple>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps the arguments of a call, if calls are being recorded.
#[inline]
pub fn keep(args: &Bound<'_, PyTuple>, kwargs: &Bound<'_, PyDict>) {
    if device::is_recording() {
        let named = kwargs.values().to_tuple().unbind();
        ARGUMENTS.with_borrow_mut(|all| all.extend([args.clone().unbind(), named]));
    }
}

/// Launches that are done again as one.
#[pyclass(frozen, module = "tessera.runtime")]
pub struct Graph {
    graph: device::Graph,
    arguments: Vec<Py<PyTuple>>,
}

#[tessera_entry::entry]
#[pymethods]
impl Graph {
    /// Does all of it again, on the stream that `ts.runtime.stream` names or the default one.
    fn replay(&self, py: Python<'_>) -> PyResult<()> {
        let stream = streams::own();
        let arrays: Vec<_> = self
            .arguments
            .iter()
            .flat_map(|args| args.bind(py).iter())
            .filter_map(|value| value.cast_into::<DeviceArray>().ok())
            .collect();
        let mut before: Vec<u64> = arrays.iter().map(|a| a.get().memory.last()).collect();
        before.sort_unstable();
        before.dedup();
        enter(py, || {
            device::wait_for(Queue { device: self.graph.device(), stream }, &before)?;
            self.graph.replay(stream)
        })?;
        arrays.iter().for_each(|array| array.get().memory.used_on(stream));
        Ok(())
    }

    /// How many launches and copies it holds.
    #[getter]
    fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    #[getter]
    fn device(&self) -> String {
        self.graph.device().to_string()
    }

    fn __repr__(&self) -> String {
        let (nodes, on) = (self.graph.nodes(), self.graph.device());
        format!("<tessera graph of {nodes} operations on {on}>")
    }
}

/// Begins a recording on this thread; gives the stream that it records.
#[tessera_entry::entry]
#[pyfunction]
pub fn record_begin(py: Python<'_>, device: &str) -> PyResult<u64> {
    let stream = enter(py, || device::begin_recording(device::named(device)?))?;
    ARGUMENTS.take();
    Ok(stream)
}

#[tessera_entry::entry]
#[pyfunction]
pub fn record_end(py: Python<'_>) -> PyResult<Graph> {
    let graph = enter(py, device::end_recording);
    let arguments = ARGUMENTS.take();
    Ok(Graph { graph: graph?, arguments })
}

/// Gives up the recording of this thread.
#[tessera_entry::entry]
#[pyfunction]
pub fn record_drop() {
    device::drop_recording();
    ARGUMENTS.take();
}
