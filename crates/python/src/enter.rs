//! The only entry from Python into the compiler: the GIL is released, panics are caught, and every
//! failure becomes the exception class that belongs to it.

use crate::report;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use tessera_diag::{Diagnostic, Diagnostics, Loc};

thread_local! {
    /// What a signal handler raised while the compiler ran on this thread.
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

pub fn enter<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Diagnostics> + Send,
) -> PyResult<T> {
    match py.detach(|| catch_unwind(AssertUnwindSafe(work))) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(found)) => Err(raised(py, &found)),
        Err(panic) => Err(report::internal(py, &*panic)),
    }
}

/// As `enter`, for work of a kernel call: an error names the caller's line too, which may be in
/// another file or far from the kernel.
pub fn enter_call<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Diagnostics> + Send,
) -> PyResult<T> {
    let mut failed = None;
    let done = enter(py, || work().inspect_err(|found| failed = Some(found.clone())));
    match failed {
        Some(found) if done.is_err() && !tessera_driver::is_interrupt(&found) => {
            let caller = caller(py).unwrap_or_default();
            Err(exception(py, &called_from(found, caller)))
        }
        _ => done,
    }
}

/// The expression of the user's code that is being evaluated.
fn caller(py: Python<'_>) -> PyResult<Loc> {
    let here = py.import("tessera.base.caller")?.call_method0("here")?;
    let place: Option<PyRef<'_, crate::graph::Place>> = here.extract()?;
    Ok(place.map_or(Loc::unknown(), |p| p.0.clone()))
}

fn called_from(found: Diagnostics, caller: Loc) -> Diagnostics {
    found.with_first(|d| {
        if !caller.is_known() {
            d
        } else if !d.loc.is_known() {
            d.at(caller)
        } else {
            d.label(caller, "called here")
        }
    })
}

fn raised(py: Python<'_>, found: &Diagnostics) -> PyErr {
    if tessera_driver::is_interrupt(found)
        && let Some(error) = INTERRUPT.take()
    {
        return error;
    }
    exception(py, found)
}

/// Polled by a running launch: whether a signal handler raised an exception.
pub fn interrupted() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            hold(error);
            true
        }
    })
}

/// A line that a kernel prints, to where Python prints. A notebook or a test may have put something
/// else in its place; what fails there is no reason to end the launch.
pub fn print(line: &str) {
    Python::attach(|py| {
        let written = py
            .import("builtins")
            .and_then(|m| m.getattr("print"))
            .and_then(|print| print.call1((line,)));
        if let Err(error) = written {
            error.write_unraisable(py, None);
        }
    });
}

/// Keeps what a callback raised; the launch that it ends then raises it.
pub fn hold(error: PyErr) {
    INTERRUPT.set(Some(error));
}

/// What was kept so on this thread.
pub fn held() -> Option<PyErr> {
    INTERRUPT.take()
}

/// The exception for what was found: its class is that of the first error, its text all errors.
pub fn exception(py: Python<'_>, found: &Diagnostics) -> PyErr {
    build(py, found).unwrap_or_else(|e| e)
}

fn build(py: Python<'_>, found: &Diagnostics) -> PyResult<PyErr> {
    let module = py.import("tessera.base.errors")?;
    let Some(first) = found.errors().next().or(found.iter().next()) else {
        return Ok(PyRuntimeError::new_err("a failure without a diagnostic"));
    };
    let rows: Vec<_> = found.iter().map(|d| row(py, d)).collect::<PyResult<_>>()?;
    let errors: Vec<String> = found.errors().map(Diagnostic::render).collect();
    let text = if errors.is_empty() { found.render() } else { errors.join("\n") };
    let kind = found.kind().unwrap_or(first.code.kind());
    let class = module.getattr(kind.class_name())?;
    Ok(PyErr::from_value(class.call1((text, PyTuple::new(py, rows)?))?))
}

/// A diagnostic as Python sees it.
pub fn row<'py>(py: Python<'py>, d: &Diagnostic) -> PyResult<Bound<'py, PyAny>> {
    py.import("tessera.base.errors")?.getattr("Diagnostic")?.call1(fields(py, d)?)
}

fn fields<'py>(py: Python<'py>, d: &Diagnostic) -> PyResult<Bound<'py, PyTuple>> {
    let place = d.loc.file().map(|f| (f.name.clone(), d.loc.line(), d.loc.column()));
    let (file, line, column) = match place {
        Some((f, l, c)) => (Some(f), Some(l), Some(c)),
        None => (None, None, None),
    };
    let notes = PyTuple::new(py, &d.notes)?;
    (d.code.name(), &d.message, file, line, column, notes, d.fix(), d.render()).into_pyobject(py)
}
