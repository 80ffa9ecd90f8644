//! Autotuning: `k.tune`, reports, progress, and the records on disk.

use crate::call::{Given, warn};
use crate::enter::{enter, hold};
use crate::kernel::BACKENDS;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::time::Duration;
use tessera_driver::KernelHandle;
use tessera_driver::tuning::{self, TuneAsk, TuneMoment, TuneOptions, TuningReport, TuningSource};

/// `(key, budget_ms, metric, directory)`, as the decorator made it.
pub type Row = (Option<Vec<String>>, Option<f64>, String, Option<PathBuf>);

pub fn options(py: Python<'_>, row: Row) -> PyResult<TuneOptions> {
    let (key, budget, metric, dir) = row;
    let metric = enter(py, || metric_of(&metric))?;
    Ok(TuneOptions { key, budget: budget.map(milliseconds), metric, dir })
}

fn metric_of(name: &str) -> Result<tuning::Metric, tessera_diag::Diagnostics> {
    use tessera_diag::{Code, Diagnostic};
    tuning::Metric::parse(name).ok_or_else(|| {
        let known: Vec<_> = tuning::Metric::ALL.iter().map(|m| m.name()).collect();
        let message = format!("expected a metric (one of {}), got {name:?}", known.join(", "));
        Diagnostic::new(Code::E_ARGUMENT, message).into()
    })
}

/// What is no time is none at all: the search still measures one candidate.
fn milliseconds(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms * 1e-3).unwrap_or_default()
}

pub fn tune(given: &Given<'_, '_>, budget: Option<f64>, force: bool) -> PyResult<()> {
    let (py, kernel) = (given.args.py(), given.kernel);
    let mut converted = given.convert()?;
    let (call, ask) = converted.take();
    let mut prepared = enter(py, || kernel.prepare(&BACKENDS, call, ask))?;
    converted.fill(&mut prepared, given.allocate)?;
    let ask = TuneAsk { budget: budget.map(milliseconds), force };
    enter(py, || kernel.tune(&prepared, &ask))?;
    warn(py, kernel, 2)
}

/// Every report, latest last.
pub fn reports<'py>(py: Python<'py>, kernel: &KernelHandle) -> PyResult<Vec<Bound<'py, PyDict>>> {
    kernel.tuning_reports().iter().map(|report| fields(py, report)).collect()
}

fn fields<'py>(py: Python<'py>, report: &TuningReport) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("text", &report.text)?;
    out.set_item("svg", &report.svg)?;
    out.set_item("json", &report.json)?;
    out.set_item("chosen", &report.chosen)?;
    let source = match report.source {
        TuningSource::Nothing => "nothing",
        TuningSource::Stored => "stored",
        TuningSource::Measured => "measured",
    };
    out.set_item("source", source)?;
    let mut rows = Vec::new();
    for row in &report.rows {
        let one = PyDict::new(py);
        one.set_item("config", &row.config)?;
        one.set_item("state", row.state.name())?;
        one.set_item("seconds", row.seconds)?;
        one.set_item("samples", row.samples.clone())?;
        one.set_item("predicted", row.predicted)?;
        one.set_item("reason", &row.reason)?;
        one.set_item("resources", row.resources.clone())?;
        rows.push(one);
    }
    out.set_item("rows", rows)?;
    Ok(out)
}

/// Hands progress to Python, and gives whether to go on. What fails there is no reason to end a
/// search, but a signal's handler may run there, and what it raises is.
pub fn progress(moment: &TuneMoment<'_>) -> bool {
    Python::attach(|py| {
        let progress = py.import("tessera.kernel.autotune").and_then(|m| m.getattr("progress"));
        let reported = progress.and_then(|f| {
            let phase = moment.phase.name();
            f.call1((moment.kernel, phase, moment.part, moment.left, moment.best))
        });
        match reported {
            Ok(_) => true,
            Err(error) if error.is_instance_of::<PyException>(py) => {
                error.write_unraisable(py, None);
                true
            }
            Err(error) => {
                hold(error);
                false
            }
        }
    })
}

/// All records as JSON texts, and what could not be read.
#[tessera_entry::entry]
#[pyfunction]
pub fn tuning_list(py: Python<'_>) -> PyResult<(Vec<String>, Vec<String>)> {
    enter(py, tuning::list)
}

#[tessera_entry::entry]
#[pyfunction]
pub fn tuning_clear(py: Python<'_>) -> PyResult<usize> {
    enter(py, tuning::clear)
}

#[tessera_entry::entry]
#[pyfunction]
pub fn tuning_export(py: Python<'_>, to: PathBuf, kernel: Option<String>) -> PyResult<usize> {
    enter(py, || tuning::export(&to, kernel.as_deref()))
}

#[tessera_entry::entry]
#[pyfunction]
pub fn tuning_import(py: Python<'_>, from: PathBuf) -> PyResult<usize> {
    enter(py, || tuning::import(&from))
}

#[tessera_entry::entry]
#[pyfunction]
pub fn tuning_merge(py: Python<'_>, to: PathBuf, from: Vec<PathBuf>) -> PyResult<usize> {
    enter(py, || tuning::merge(&to, &from))
}
