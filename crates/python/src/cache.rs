//! The cache of compiled kernels, for the command line and for tests.

use crate::blocks;
use crate::call::tell;
use crate::enter::enter;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tessera_driver::{cache, memory};

/// Issues warnings of the cache that no kernel has reported: whole functions compile without a
/// kernel.
pub fn warn(py: Python<'_>) -> PyResult<()> {
    tell(py, cache::pending(), 1)
}

/// What is kept in memory: entries and bytes of each kind.
#[tessera_entry::entry]
#[pyfunction]
pub fn kept_in_memory(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    let (entries, bytes) = blocks::held();
    let results = memory::Kept { name: "results", entries, bytes };
    for memory::Kept { name, entries, bytes } in memory::kept().into_iter().chain([results]) {
        let row = PyDict::new(py);
        row.set_item("entries", entries)?;
        row.set_item("bytes", bytes)?;
        out.set_item(name, row)?;
    }
    Ok(out)
}

/// What is kept on disk: `directory`, `limit`, `entries` and `warnings`.
#[tessera_entry::entry]
#[pyfunction]
pub fn cache_entries(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let found = enter(py, cache::entries)?;
    let mut entries = Vec::new();
    for entry in &found.entries {
        let row = PyDict::new(py);
        row.set_item("key", entry.key.to_string())?;
        row.set_item("about", &entry.about)?;
        row.set_item("bytes", entry.bytes)?;
        row.set_item("age_s", entry.age.as_secs_f64())?;
        entries.push(row);
    }
    let out = PyDict::new(py);
    out.set_item("directory", found.dir.map(|dir| dir.display().to_string()))?;
    out.set_item("limit", found.limit)?;
    out.set_item("entries", entries)?;
    out.set_item("warnings", found.warnings)?;
    Ok(out)
}

/// Removes what is kept on disk: `directory`, `entries`, `bytes` and `warnings`.
#[tessera_entry::entry]
#[pyfunction]
pub fn cache_clear(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let done = enter(py, cache::clear)?;
    let out = PyDict::new(py);
    out.set_item("directory", done.dir.map(|dir| dir.display().to_string()))?;
    out.set_item("entries", done.entries)?;
    out.set_item("bytes", done.bytes)?;
    out.set_item("warnings", done.warnings)?;
    Ok(out)
}

/// For tests of Tessera itself: keeps bytes as a backend would.
#[tessera_entry::entry]
#[pyfunction]
pub fn cache_put(py: Python<'_>, name: &str, about: &str, bytes: &[u8]) -> PyResult<()> {
    enter(py, || cache::put(name, about, bytes))
}

/// For tests of Tessera itself: what `cache_put` kept.
#[tessera_entry::entry]
#[pyfunction]
pub fn cache_get<'py>(py: Python<'py>, name: &str) -> PyResult<Option<Bound<'py, PyBytes>>> {
    Ok(enter(py, || cache::get(name))?.map(|bytes| PyBytes::new(py, &bytes)))
}
