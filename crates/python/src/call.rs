//! Calls: Python's arguments in, the returned parameters out.

use crate::arrays::argument;
use crate::enter::enter;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::ffi::CString;
use tessera_diag::Diagnostics;
use tessera_driver::{Arg, Call, KernelHandle, Prepared, grid_of};

/// Runs one call. `allocate` makes the arrays that the caller left out.
pub fn call<'py>(
    kernel: &KernelHandle,
    prepare: impl FnOnce(Call) -> Result<Prepared, Diagnostics> + Send,
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
    grid: Option<&Bound<'py, PyAny>>,
    allocate: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = args.py();
    let mut keep = Vec::new();
    let mut objects: Vec<Option<Bound<'py, PyAny>>> = args.iter().map(Some).collect();
    objects.resize(kernel.param_names().count().max(objects.len()), None);
    let mut given = Call::default();
    for value in args {
        given.positional.push(argument(&value, &mut keep)?);
    }
    for (name, value) in kwargs {
        let name: String = name.extract()?;
        given.keyword.push((name.clone(), argument(&value, &mut keep)?));
        if let Some(place) = kernel.param_names().position(|p| p == name) {
            objects[place] = Some(value);
        }
    }
    let grid = grid.map(|g| extents(g, &mut keep)).transpose()?;
    let (grid, mut prepared) = enter(py, || {
        let grid = grid.map(|g| grid_of(&g)).transpose()?;
        Ok((grid, prepare(given)?))
    })?;
    for (place, dims, elem) in prepared.missing() {
        let made = allocate.call1((PyTuple::new(py, dims)?, crate::dtype::DType(elem)))?;
        if let Arg::Array(array) = argument(&made, &mut keep)? {
            prepared.fill(place, array);
        }
        objects[place] = Some(made);
    }
    let returns = prepared.returns().to_vec();
    enter(py, || kernel.launch(prepared, grid.as_deref()))?;
    warn(py, kernel, 2)?;
    let mut results = returns
        .into_iter()
        .map(|place| objects[place].take().unwrap_or_else(|| py.None().into_bound(py)));
    match results.len() {
        0 => Ok(py.None().into_bound(py)),
        1 => Ok(results.next().unwrap_or_else(|| py.None().into_bound(py))),
        _ => Ok(PyTuple::new(py, results.collect::<Vec<_>>())?.into_any()),
    }
}

/// One extent, or several in a tuple or list.
fn extents<'py>(grid: &Bound<'py, PyAny>, keep: &mut Vec<Bound<'py, PyAny>>) -> PyResult<Vec<Arg>> {
    if grid.is_instance_of::<PyTuple>() || grid.is_instance_of::<PyList>() {
        return grid.try_iter()?.map(|e| argument(&e?, keep)).collect();
    }
    Ok(vec![argument(grid, keep)?])
}

/// Hands new warnings of the kernel to Python.
pub fn warn(py: Python<'_>, kernel: &KernelHandle, stack_level: i32) -> PyResult<()> {
    for text in kernel.take_warnings() {
        let class = py.import("tessera._errors")?.getattr("TesseraWarning")?;
        PyErr::warn(py, &class, &CString::new(text)?, stack_level)?;
    }
    Ok(())
}
