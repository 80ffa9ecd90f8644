//! The branch of a task on a device, with its stream as the one that calls of this thread are on.

use crate::enter::enter;
use crate::streams;
use pyo3::prelude::*;
use tessera_driver::dist::Branch;

/// Does work whose calls run on the stream of a branch.
pub fn run<T>(py: Python<'_>, branch: &Branch, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    enter(py, || branch.begin())?;
    let before = streams::name(Some(branch.queue().stream));
    let done = work();
    streams::name(before);
    done
}
