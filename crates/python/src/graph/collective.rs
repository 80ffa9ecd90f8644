//! The collectives of a compiled function, as Python sees them.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A collective of a compiled function.
#[pyclass(frozen, module = "tessera._core")]
pub struct Collective {
    found: tessera_driver::graph::Collective,
    algorithm: String,
}

impl Collective {
    pub fn new(found: tessera_driver::graph::Collective, algorithm: String) -> Self {
        Self { found, algorithm }
    }
}

#[tessera_entry::entry]
#[pymethods]
impl Collective {
    /// Such as `all_reduce`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.found.kind
    }

    /// The axis of the mesh that it goes along, or several as a tuple.
    #[getter]
    fn axis<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match &self.found.axes[..] {
            [one] => Ok(one.into_pyobject(py)?.into_any()),
            several => Ok(PyTuple::new(py, several)?.into_any()),
        }
    }

    /// The axes that it goes along.
    #[getter]
    fn axes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.found.axes)
    }

    /// The bytes on one rank of the value that is combined, sent or gathered.
    #[getter]
    fn nbytes(&self) -> i64 {
        self.found.nbytes
    }

    /// How many ranks take part.
    #[getter]
    fn size(&self) -> i64 {
        self.found.ranks
    }

    /// How often it runs: in a loop once for each trip.
    #[getter]
    fn times(&self) -> i64 {
        self.found.times
    }

    /// The algorithm that the mapper chose.
    #[getter]
    fn algorithm(&self) -> String {
        self.algorithm.clone()
    }

    fn __repr__(&self) -> String {
        let f = &self.found;
        let times = if f.times == 1 { String::new() } else { format!(", {} times", f.times) };
        format!("{}({}, {} bytes, {}{times})", f.kind, f.axes.join(", "), f.nbytes, self.algorithm)
    }
}
