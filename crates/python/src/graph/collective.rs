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

    /// The bytes that a rank sends each time, by the algorithms that send least.
    #[getter]
    fn sent(&self) -> i64 {
        self.found.sent()
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

    /// The file and the line of the op that requested it.
    #[getter]
    fn place(&self) -> Option<(String, u32)> {
        let loc = &self.found.loc;
        loc.file().map(|file| (file.name.clone(), loc.line()))
    }

    /// Whether the function says it, as a collective or as a placement; otherwise an op needs it.
    #[getter]
    fn is_written(&self) -> bool {
        self.found.is_written
    }

    /// The number of the collective that it is a part of, where several of small arrays run as one; else None.
    #[getter]
    fn bucket(&self) -> Option<usize> {
        self.found.bucket
    }

    /// The algorithm that the mapper chose.
    #[getter]
    fn algorithm(&self) -> String {
        self.algorithm.clone()
    }

    fn __repr__(&self) -> String {
        self.text()
    }
}

impl Collective {
    /// What all collectives of a program cost.
    pub fn report(all: &[Self]) -> String {
        let total: i64 = all.iter().map(|c| c.found.sent().saturating_mul(c.found.times)).sum();
        let lines = all.iter().map(|c| format!("  {}\n", c.explained()));
        let lines: String = lines.collect();
        let many = if all.len() == 1 { "" } else { "s" };
        format!("{} collective{many}, a rank sends {total} bytes\n{lines}", all.len())
    }

    /// A line of a report: what it costs, and the line of the program that requested it.
    pub fn explained(&self) -> String {
        let (text, loc) = (self.text(), &self.found.loc);
        let each = if self.found.times == 1 { "" } else { " each time" };
        let sent = format!("{text}: a rank sends {} bytes{each}", self.found.sent());
        let line = loc.file().and_then(|file| file.line(loc.line()));
        match line {
            Some(line) => format!("{sent}, for `{}` ({loc})", line.trim()),
            None => sent,
        }
    }

    fn text(&self) -> String {
        let f = &self.found;
        let times = if f.times == 1 { String::new() } else { format!(", {} times", f.times) };
        let bucket = f.bucket.map_or(String::new(), |n| format!(", bucket {n}"));
        let axes = f.axes.join(", ");
        format!("{}({axes}, {} bytes, {}{times}{bucket})", f.kind, f.nbytes, self.algorithm)
    }
}
