//! Schedules as text.

use crate::enter::enter;
use crate::values::show;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// The kernel of a plan as text, and what the plan pins, by the compiler's names.
#[tessera_entry::entry]
#[pyfunction]
pub fn schedule_fields<'py>(py: Python<'py>, text: &str) -> PyResult<(String, Bound<'py, PyDict>)> {
    let (kernel, fields) = enter(py, || tessera_driver::schedule_fields(text))?;
    let out = PyDict::new(py);
    for (name, value) in fields {
        out.set_item(name, show(py, &value)?)?;
    }
    Ok((kernel, out))
}

/// The passes that can be left out.
#[tessera_entry::entry]
#[pyfunction]
pub fn pass_names() -> Vec<&'static str> {
    tessera_driver::pass_names()
}
