//! Calls: Python's arguments in, the returned parameters out.

use crate::arrays::argument;
use crate::enter::enter;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::ffi::CString;
use tessera_diag::Diagnostics;
use tessera_driver::{Arg, Ask, Call, KernelHandle, Prepared, Purpose, grid_of};
use tessera_numerics::Profile;

/// What Python gives for one call.
pub struct Given<'a, 'py> {
    pub kernel: &'a KernelHandle,
    pub args: &'a Bound<'py, PyTuple>,
    pub kwargs: &'a Bound<'py, PyDict>,
    pub grid: Option<&'a Bound<'py, PyAny>>,
    /// Its place among the profiles.
    pub profile: usize,
    pub purpose: Purpose,
    /// Makes the arrays that the caller left out.
    pub allocate: &'a Bound<'py, PyAny>,
}

/// The arguments converted, with what they borrow from.
pub struct Converted<'py> {
    pub call: Call,
    pub ask: Ask,
    /// What stands for each parameter, where something was given.
    objects: Vec<Option<Bound<'py, PyAny>>>,
    keep: Vec<Bound<'py, PyAny>>,
}

impl<'py> Given<'_, 'py> {
    /// Runs the call and gives back what it returns. `prepare` finds the code.
    pub fn launch(
        self,
        prepare: impl FnOnce(Call, Ask) -> Result<Prepared, Diagnostics> + Send,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, kernel) = (self.args.py(), self.kernel);
        let mut given = self.convert()?;
        let (call, ask) = given.take();
        // One way in and out where nothing has to be allocated in between.
        let first = enter(py, || {
            let prepared = prepare(call, ask)?;
            let returns = prepared.returns();
            if prepared.missing().is_empty() {
                kernel.launch(prepared).map(|()| (returns, None))
            } else {
                Ok((returns, Some(prepared)))
            }
        })?;
        let (returns, left) = first;
        if let Some(mut prepared) = left {
            given.fill(&mut prepared, self.allocate)?;
            enter(py, || kernel.launch(prepared))?;
        }
        warn(py, kernel, 2)?;
        given.results(py, &returns)
    }

    pub fn convert(&self) -> PyResult<Converted<'py>> {
        let py = self.args.py();
        let mut keep = Vec::new();
        let mut objects: Vec<Option<Bound<'py, PyAny>>> = self.args.iter().map(Some).collect();
        objects.resize(self.kernel.param_count().max(objects.len()), None);
        let mut call = Call::default();
        call.positional.reserve_exact(self.args.len());
        for value in self.args {
            call.positional.push(argument(&value, &mut keep)?);
        }
        for (name, value) in self.kwargs {
            let name: String = name.extract()?;
            if let Some(place) = self.kernel.param_names().position(|p| p == name) {
                objects[place] = Some(value.clone());
            }
            call.keyword.push((name, argument(&value, &mut keep)?));
        }
        let grid = self.grid.map(|g| extents(g, &mut keep)).transpose()?;
        let grid = grid.map(|g| enter(py, || grid_of(&g))).transpose()?;
        let profile = Profile::ALL.get(self.profile).copied().unwrap_or_default();
        let ask = Ask { grid, profile, purpose: self.purpose };
        Ok(Converted { call, ask, objects, keep })
    }
}

impl<'py> Converted<'py> {
    pub fn take(&mut self) -> (Call, Ask) {
        (std::mem::take(&mut self.call), std::mem::take(&mut self.ask))
    }

    /// Puts in the arrays that the caller left out.
    pub fn fill(&mut self, prepared: &mut Prepared, allocate: &Bound<'py, PyAny>) -> PyResult<()> {
        for (place, dims, elem, privilege) in prepared.missing() {
            let dims = PyTuple::new(allocate.py(), dims)?;
            let made = allocate.call1((dims, crate::dtype::DType(elem), privilege.name()))?;
            if let Arg::Array(array) = argument(&made, &mut self.keep)? {
                prepared.fill(place, array);
            }
            self.objects[place] = Some(made);
        }
        Ok(())
    }

    /// The objects given for the parameters that the kernel returns.
    pub fn results(mut self, py: Python<'py>, returns: &[usize]) -> PyResult<Bound<'py, PyAny>> {
        let none = || py.None().into_bound(py);
        let mut results =
            returns.iter().map(|&place| self.objects[place].take().unwrap_or_else(none));
        match results.len() {
            0 => Ok(none()),
            1 => Ok(results.next().unwrap_or_else(none)),
            _ => Ok(PyTuple::new(py, results.collect::<Vec<_>>())?.into_any()),
        }
    }

    /// By parameter, for a host to look at.
    pub fn objects(&self) -> impl Iterator<Item = Option<&Bound<'py, PyAny>>> {
        self.objects.iter().map(Option::as_ref)
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
