//! Layouts, for the command line.

use crate::enter::enter;
use pyo3::prelude::*;
use tessera_driver::layouts::describe;

/// The text, the facts and the picture of the layout that words and options of the command name.
#[tessera_entry::entry]
#[pyfunction]
pub fn layout_text(
    py: Python<'_>,
    words: Vec<String>,
    options: Vec<(String, String)>,
) -> PyResult<String> {
    enter(py, || Ok(describe(&words, &options)?))
}
