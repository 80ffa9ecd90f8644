//! This process among others, for `dist` and for the launcher.

use crate::enter::{enter, enter_call};
use pyo3::prelude::*;
use std::time::Duration;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_driver::dist::processes;

/// The longest time that a caller may give.
const YEAR: f64 = 3e7;

fn seconds(of: f64) -> Result<Duration, Diagnostics> {
    let most = of.is_finite().then(|| of.clamp(0.0, YEAR));
    most.map(Duration::from_secs_f64).ok_or_else(|| {
        let text = format!("expected `timeout` in seconds, got {of}");
        Diagnostic::new(Code::E_COMM_INIT, text).help("write such as `timeout=30`").into()
    })
}

#[cfg(target_os = "linux")]
fn join(limit: Duration) -> Result<processes::Number, Diagnostics> {
    processes::join(limit)
}

#[cfg(not(target_os = "linux"))]
fn join(_: Duration) -> Result<processes::Number, Diagnostics> {
    Ok(processes::Number::ALONE)
}

/// Joins the processes that a launcher started: the number of this one, and how many there are.
#[tessera_entry::entry]
#[pyfunction]
pub fn processes_join(py: Python<'_>, timeout: f64) -> PyResult<(usize, usize)> {
    enter_call(py, || join(seconds(timeout)?).map(|n| (n.rank, n.world)))
}

/// Ends the part of this process.
#[tessera_entry::entry]
#[pyfunction]
pub fn processes_leave(py: Python<'_>) -> PyResult<()> {
    enter(py, || {
        #[cfg(target_os = "linux")]
        processes::leave();
        Ok(())
    })
}

/// Waits until all processes have come here.
#[tessera_entry::entry]
#[pyfunction]
pub fn processes_barrier(py: Python<'_>) -> PyResult<()> {
    enter_call(py, || {
        #[cfg(target_os = "linux")]
        processes::barrier()?;
        Ok(())
    })
}

/// Where processes that start find each other, for as long as this lives.
#[pyclass(frozen, module = "tessera._core")]
pub struct Coordinator {
    #[cfg(target_os = "linux")]
    inner: std::sync::Mutex<Option<processes::Coordinator>>,
    port: u16,
}

#[tessera_entry::entry]
#[pymethods]
impl Coordinator {
    /// Listens on the loopback interface for `world` processes, which all know `token` and are there within `timeout`.
    #[new]
    fn new(py: Python<'_>, world: usize, token: String, timeout: f64) -> PyResult<Coordinator> {
        enter(py, || {
            let limit = seconds(timeout)?;
            #[cfg(target_os = "linux")]
            {
                let inner = processes::host(("127.0.0.1", 0), world, &token, limit)?;
                let port = inner.port();
                Ok(Coordinator { inner: std::sync::Mutex::new(Some(inner)), port })
            }
            #[cfg(not(target_os = "linux"))]
            {
                let _ = (world, token, limit);
                let text =
                    "expected Linux, got another system: processes share memory as Linux does it";
                Err(Diagnostic::new(Code::E_COMM_INIT, text)
                    .help("run the program in one process")
                    .into())
            }
        })
    }

    #[getter]
    fn port(&self) -> u16 {
        self.port
    }

    /// Ends it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, || {
            #[cfg(target_os = "linux")]
            drop(self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take());
            Ok(())
        })
    }
}
