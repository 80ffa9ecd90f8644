//! Sessions of profiling.

use crate::enter::enter;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use tessera_driver::{clocks, profile};

/// Begins a session.
#[tessera_entry::entry]
#[pyfunction]
pub fn profile_begin(py: Python<'_>) -> PyResult<()> {
    enter(py, profile::begin)
}

/// Ends the session: what ran, each as a dict, and the seconds that the session took.
#[tessera_entry::entry]
#[pyfunction]
pub fn profile_end(py: Python<'_>) -> PyResult<(Bound<'_, PyList>, f64)> {
    let (samples, seconds) = enter(py, profile::end)?;
    let out = PyList::empty(py);
    for sample in samples {
        let row = PyDict::new(py);
        row.set_item("name", sample.name)?;
        row.set_item("kind", sample.kind)?;
        row.set_item("backend", sample.on)?;
        row.set_item("place", sample.place)?;
        row.set_item("begin", sample.begin)?;
        row.set_item("seconds", sample.seconds)?;
        row.set_item("thread", sample.thread)?;
        row.set_item("device", sample.device.map(|d| d.to_string()))?;
        row.set_item("stream", sample.stream)?;
        row.set_item("flops", sample.work.map(|w| w.flops))?;
        row.set_item("bytes", sample.work.map(|w| w.bytes()))?;
        row.set_item("exact", sample.work.is_some_and(|w| w.exact))?;
        row.set_item("memory", sample.memory)?;
        out.append(row)?;
    }
    Ok((out, seconds))
}

/// Begins to collect the cycle counts that launches of this thread record.
#[tessera_entry::entry]
#[pyfunction]
pub fn clocks_begin() {
    clocks::begin();
}

/// Ends it: a row for each visit to a loop, and for how many there was no room.
#[tessera_entry::entry]
#[pyfunction]
pub fn clocks_end() -> (Vec<clocks::Visit>, u64) {
    clocks::end()
}
