//! Backends, knobs and the API table.

use crate::enter::{enter, exception};
use crate::kernel::BACKENDS;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tessera_diag::{Code, Diagnostic, Loc, SourceFile};
use tessera_driver::{Location, MachineCaps, deep, frontend, knobs};
use tessera_numerics::{DType, Profile, Real, ScalarFn};

#[tessera_entry::entry]
#[pyfunction]
pub fn backends(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    let rows: Vec<_> = enter(py, || Ok(BACKENDS.list().collect()))?;
    for (name, missing) in rows {
        out.set_item(name, missing.as_deref().unwrap_or("available"))?;
    }
    Ok(out)
}

#[tessera_entry::entry]
#[pyfunction]
pub fn select_backend(py: Python<'_>, name: Option<&str>) -> PyResult<()> {
    enter(py, || BACKENDS.select(name))
}

/// A number for the selected backend and the passes that are left out: what was compiled under another
/// does not hold.
#[tessera_entry::entry]
#[pyfunction]
pub fn settings() -> u64 {
    // Python's lock is kept: the environment is read under it.
    BACKENDS.settings()
}

#[tessera_entry::entry]
#[pyfunction]
pub fn capabilities<'py>(py: Python<'py>, backend: Option<&str>) -> PyResult<Bound<'py, PyDict>> {
    let caps = enter(py, || match backend {
        // A named backend need not be available: its capabilities are known.
        Some(_) => BACKENDS.to_compile(backend)?.caps(),
        None => BACKENDS.to_launch(None, Location::Host)?.caps(),
    })?;
    let out = PyDict::new(py);
    let units = PyDict::new(py);
    for dtype in DType::ALL.iter().filter(|d| d.is_float() || **d == DType::I8 || **d == DType::I4)
    {
        units.set_item(dtype.name(), caps.mma_dtypes.contains(dtype))?;
    }
    out.set_item("backend", caps.backend)?;
    out.set_item("arch", &caps.arch)?;
    out.set_item("tensorcore", units)?;
    out.set_item("warp_size", caps.warp_size())?;
    match &caps.machine {
        MachineCaps::Gpu(gpu) => {
            out.set_item("processors", gpu.multiprocessors)?;
            out.set_item("cp_async", gpu.async_copy)?;
            out.set_item("shared_bytes_per_block", gpu.shared_per_block)?;
            out.set_item("shared_bytes_per_processor", gpu.shared_per_sm)?;
            out.set_item("max_threads_per_block", gpu.max_threads_per_block)?;
            out.set_item("threads_per_processor", gpu.threads_per_sm)?;
            out.set_item("blocks_per_processor", gpu.blocks_per_sm)?;
            out.set_item("regs_per_thread", gpu.registers_per_thread)?;
            out.set_item("regs_per_processor", gpu.registers_per_sm)?;
            out.set_item("max_cluster", gpu.max_cluster)?;
            out.set_item("l2_bytes", gpu.l2_bytes)?;
        }
        MachineCaps::Cpu(cpu) => {
            out.set_item("cp_async", false)?;
            out.set_item("shared_bytes_per_block", cpu.shared_bytes)?;
            out.set_item("max_threads_per_block", cpu.max_lanes)?;
            out.set_item("regs_per_thread", 0)?;
        }
    }
    out.set_item("device_count", caps.device_count)?;
    out.set_item("memory_bytes", caps.memory_bytes)?;
    out.set_item("emulated", caps.emulated)?;
    for (name, has) in tessera_driver::features(&caps.arch) {
        out.set_item(name, has)?;
    }
    Ok(out)
}

#[tessera_entry::entry]
#[pyfunction]
pub fn threads(py: Python<'_>) -> PyResult<usize> {
    enter(py, tessera_driver::threads)
}

#[tessera_entry::entry]
#[pyfunction]
pub fn set_threads(py: Python<'_>, number: Option<i64>) -> PyResult<()> {
    enter(py, || tessera_driver::set_threads(number))
}

/// The processor as the CPU backend uses it; `None` where this build has none.
#[tessera_entry::entry]
#[pyfunction]
pub fn processor(py: Python<'_>) -> PyResult<Option<Bound<'_, PyDict>>> {
    let Some(found) = enter(py, || tessera_driver::processor(&BACKENDS))? else { return Ok(None) };
    let out = PyDict::new(py);
    out.set_item("isa", found.isa)?;
    out.set_item("host", found.host)?;
    out.set_item("vector_bits", found.vector_bits)?;
    out.set_item("threads", found.threads)?;
    out.set_item("llvm", found.llvm)?;
    Ok(Some(out))
}

#[tessera_entry::entry]
#[pyfunction(name = "knobs")]
pub fn knob_table(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let out = PyDict::new(py);
    for knob in knobs::ALL {
        out.set_item(knob.name, knob.doc)?;
    }
    Ok(out)
}

/// Every function of the tile language: name, signature, documentation.
#[tessera_entry::entry]
#[pyfunction]
pub fn api() -> Vec<(&'static str, &'static str, &'static str)> {
    frontend::api().iter().map(|row| (row.name, row.signature, row.doc)).collect()
}

/// The functions of real numbers: name, number of operands, documentation.
#[tessera_entry::entry]
#[pyfunction]
pub fn real_functions() -> Vec<(&'static str, usize, &'static str)> {
    let all = Real::ALL.iter().map(|&f| ScalarFn::from(f));
    all.map(|f| (f.name(), f.arity(), f.doc())).collect()
}

/// What to write for a name of another library that `ts` or `ts.tile` does not have, if it is known.
#[tessera_entry::entry]
#[pyfunction]
pub fn instead_of(name: &str) -> Option<String> {
    frontend::instead_of(name)
}

/// The known name nearest to a misspelt one, if any is near.
#[tessera_entry::entry]
#[pyfunction]
pub fn closest(name: &str, known: Vec<String>) -> Option<String> {
    frontend::closest(name, known.iter().map(String::as_str)).map(str::to_string)
}

#[tessera_entry::entry]
#[pyfunction]
pub fn free_paths(py: Python<'_>, file: &str, text: &str, line: u32) -> PyResult<Vec<String>> {
    enter(py, || deep(|| frontend::free_paths(&SourceFile::new(file, text, line))))
}

/// The exception for a failure that Python found; `called` is the caller's line, where `place` is elsewhere.
#[tessera_entry::entry]
#[pyfunction]
#[pyo3(signature = (code, message, help=None, file=None, line=None, place=None, called=None))]
#[allow(clippy::too_many_arguments)] // Python gives them by name.
pub fn error(
    py: Python<'_>,
    code: &str,
    message: String,
    help: Option<String>,
    file: Option<&str>,
    line: Option<u32>,
    place: Option<&crate::graph::Place>,
    called: Option<&crate::graph::Place>,
) -> PyResult<Py<PyAny>> {
    let code =
        Code::parse(code).ok_or_else(|| PyValueError::new_err(format!("no such code: {code}")))?;
    let mut found = Diagnostic::new(code, message);
    found.help = help;
    if let (Some(file), Some(line)) = (file, line) {
        found = found.at(Loc::span(&SourceFile::new(file, "", line + 1), line, 1, line, 1));
    }
    if let Some(place) = place {
        found = found.at(place.0.clone());
    }
    if let Some(called) = called {
        found = found.label(called.0.clone(), "called here");
    }
    Ok(exception(py, &found.into()).into_value(py).into_any())
}

/// The numeric profiles, in the order of their numbers.
#[tessera_entry::entry]
#[pyfunction]
pub fn profiles() -> Vec<&'static str> {
    Profile::ALL.iter().map(|p| p.name()).collect()
}

/// To be called before a fork: waits for what a child would find half done.
#[tessera_entry::entry]
#[pyfunction]
pub fn before_fork(py: Python<'_>) {
    py.detach(|| {
        crate::dist_tasks::before_fork();
        tessera_driver::before_fork();
    });
}

/// To be called in the parent after a fork.
#[tessera_entry::entry]
#[pyfunction]
pub fn after_fork() {
    tessera_driver::after_fork();
}

/// To be called in a forked child.
#[tessera_entry::entry]
#[pyfunction]
pub fn forked() {
    tessera_driver::forked();
    crate::dist_tasks::forked();
}
