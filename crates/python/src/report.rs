//! Faults of Tessera itself: a panic becomes `ts.InternalError`, with a file that says what to send.

use crate::arrays::argument;
use crate::enter::exception;
use crate::streams::Found;
use pyo3::prelude::*;
use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::{Mutex, PoisonError};
use tessera_diag::{Code, Diagnostic};
use tessera_driver::Arg;

thread_local! {
    /// What Python has called on this thread.
    static ENTRY: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// What panics said that were not reported yet; they may have been on other threads.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// One fault may end many threads, and what the first said is what matters.
const SEEN_LIMIT: usize = 4;

/// Runs what Python calls. A panic in it is raised.
#[inline]
pub fn guarded<T>(entry: &'static str, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    let before = ENTRY.replace(Some(entry));
    let done = catch_unwind(AssertUnwindSafe(work));
    let done = done.unwrap_or_else(|panic| Err(Python::attach(|py| internal(py, &*panic))));
    ENTRY.set(before);
    done
}

/// The exception of a panic.
#[cold]
pub fn internal(py: Python<'_>, panic: &(dyn Any + Send)) -> PyErr {
    let seen = std::mem::take(&mut *SEEN.lock().unwrap_or_else(PoisonError::into_inner));
    let error = Diagnostic::new(Code::E_UNKNOWN, "the compiler failed").note(text(panic));
    let error = match write(py, &seen.join("\n")) {
        Ok(Some(path)) => error
            .note(format!("the report {path} has what is needed to find out why"))
            .help("this is a fault of Tessera: please report it with that file and the kernel"),
        // Where nothing can be written there is still the error.
        Ok(None) | Err(_) => {
            error.help("this is a fault of Tessera: please report it with the kernel")
        }
    };
    exception(py, &error.into())
}

/// Writes the report, and says where.
fn write(py: Python<'_>, seen: &str) -> PyResult<Option<String>> {
    let entry = ENTRY.get().unwrap_or("unknown");
    let build = tessera_driver::cache::COMPILER;
    py.import("tessera.base.crash_report")?.call_method1("write", (entry, build, seen))?.extract()
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// Called where a panic begins, while its stack is there.
pub fn hook(info: &PanicHookInfo<'_>) {
    let place = info.location().map_or(String::new(), |at| format!(" at {at}"));
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("without a name");
    let stack = Backtrace::force_capture();
    let reported = format!("thread {name}: {}{place}\n{stack}", text(info.payload()));
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() < SEEN_LIMIT {
        seen.push(reported);
    }
}

/// For tests of Tessera itself: fails as a fault of its own would.
#[tessera_entry::entry]
#[pyfunction]
pub fn debug_panic(text: &str) -> PyResult<()> {
    panic!("{text}")
}

/// For tests of Tessera itself: what an array says of itself, as far as it can be believed.
#[tessera_entry::entry]
#[pyfunction]
pub fn debug_describe(value: &Bound<'_, PyAny>) -> PyResult<String> {
    match argument(value, &mut Vec::new(), &mut Found::default())? {
        Arg::Unusable(why) => Err(exception(
            value.py(),
            &Diagnostic::new(Code::E_LAUNCH_BAD_LAYOUT, why).help("pass another array").into(),
        )),
        other => Ok(other.describe()),
    }
}
