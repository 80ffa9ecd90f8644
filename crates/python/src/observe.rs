//! Checked and watched runs.

use crate::call::{Given, warn};
use crate::enter::{enter, enter_call, hold, row};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use std::collections::BTreeMap;
use tessera_driver::{Backends, Lines, Moment, Watch};
use tessera_numerics::NumType;

/// The findings, their text, and how many places are not among them.
pub type Report<'py> = (Vec<Bound<'py, PyAny>>, String, usize);

pub fn check<'py>(given: Given<'_, 'py>, backends: &Backends) -> PyResult<Report<'py>> {
    let (py, kernel) = (given.args.py(), given.kernel);
    let mut converted = given.convert()?;
    let (call, ask) = converted.take();
    let mut prepared = enter_call(py, || kernel.prepare(backends, call, ask))?;
    converted.fill(&mut prepared, given.allocate)?;
    let report = enter(py, || kernel.check(prepared))?;
    warn(py, kernel, 2)?;
    let rows = report.findings.iter().map(|d| row(py, d)).collect::<PyResult<_>>()?;
    Ok((rows, report.findings.render(), report.omitted))
}

/// Lines of statements as `(file, first, last)`, and the names to report or `None` to stop.
type Plan = (Vec<(String, u32, u32)>, Option<Vec<String>>);

/// Runs a call line by line. `plan` is called with the lines that can be watched and what is known
/// before the launch, `tell` at each step.
pub fn watch<'py>(
    given: Given<'_, 'py>,
    backends: &Backends,
    plan: &Bound<'py, PyAny>,
    tell: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, kernel) = (given.args.py(), given.kernel);
    let mut converted = given.convert()?;
    let (call, ask) = converted.take();
    let mut prepared = enter_call(py, || kernel.prepare(backends, call, ask))?;
    converted.fill(&mut prepared, given.allocate)?;
    let known = PyDict::new(py);
    for (name, size) in prepared.sizes() {
        known.set_item(name, size)?;
    }
    for (name, object) in kernel.param_names().zip(converted.objects()) {
        if let Some(object) = object {
            known.set_item(name, object)?;
        }
    }
    let lines: BTreeMap<String, Vec<u32>> = prepared.lines();
    let (places, names): Plan = plan.call1((lines, known))?.extract()?;
    let mut places: Vec<Lines> =
        places.into_iter().map(|(file, first, last)| Lines { file, first, last }).collect();
    let wanted = match (names, places.pop()) {
        (Some(names), Some(lines)) => Watch::Assigned(lines, names),
        (_, last) => {
            places.extend(last);
            Watch::Before(places)
        }
    };
    let returns = prepared.returns();
    let tell = tell.clone().unbind();
    let mut sink = |moment: Moment| {
        Python::attach(|py| match moment_args(py, moment).and_then(|args| tell.call1(py, args)) {
            Ok(_) => true,
            Err(error) => {
                hold(error);
                false
            }
        })
    };
    enter(py, || kernel.watch(prepared, &wanted, &mut sink))?;
    warn(py, kernel, 2)?;
    converted.results(py, &returns)
}

/// `(file, line, group, [(name, dtype, shape, bytes)], active)`.
fn moment_args(py: Python<'_>, moment: Moment) -> PyResult<Bound<'_, PyTuple>> {
    let values = PyList::empty(py);
    for (name, value) in moment.values {
        let dtype = crate::dtype::DType(NumType::plain(value.dtype));
        let shape = PyTuple::new(py, value.shape)?;
        values.append((name, dtype, shape, PyBytes::new(py, &value.bytes)))?;
    }
    let active = match moment.active {
        Some(lanes) => PyTuple::new(py, lanes)?.into_any(),
        None => py.None().into_bound(py),
    };
    let group = PyTuple::new(py, moment.group)?;
    (moment.file, moment.line, group, values, active)
        .into_bound_py_any(py)?
        .cast_into::<PyTuple>()
        .map_err(PyErr::from)
}
