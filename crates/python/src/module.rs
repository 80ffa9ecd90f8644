//! IR text.

use crate::enter::enter;
use pyo3::prelude::*;
use tessera_driver::deep;
use tessera_driver::module::{AnyModule, parse};

/// A module of any IR level.
#[pyclass(frozen, module = "tessera._core")]
pub struct Module(AnyModule);

#[tessera_entry::entry]
#[pymethods]
impl Module {
    /// `graph`, `schedule`, `tile` or `target.interp`.
    #[getter]
    fn level(&self) -> &'static str {
        self.0.level()
    }

    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// A hash of what the module says: names of values and places are not in it.
    fn hash(&self) -> String {
        self.0.hash().to_string()
    }

    /// Raises if a rule of the level is broken.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, || deep(|| self.0.verify()))
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<tessera {} module {}>", self.0.level(), self.0.name())
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.py().import("tessera._core")?.getattr("ir_parse")?, (slf.get().0.to_string(),)))
    }
}

#[tessera_entry::entry]
#[pyfunction]
pub fn ir_parse(py: Python<'_>, text: &str) -> PyResult<Module> {
    enter(py, || deep(|| parse(text))).map(Module)
}
