//! Calls: Python's arguments in, the returned parameters out.

use crate::arrays::{self, argument, passed};
use crate::device_array::DeviceArray;
use crate::enter::enter_call;
use crate::streams::Found;
use crate::{holding, quick, record};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::ffi::CString;
use tessera_diag::Diagnostics;
use tessera_driver::{
    Arg, Ask, Call, KernelHandle, Location, Missing, Prepared, Purpose, Queue, Replays, device,
    grid_of,
};
use tessera_numerics::Profile;

/// What Python gives for one call.
pub struct Given<'a, 'py> {
    pub kernel: &'a KernelHandle,
    /// Earlier calls that this one may be like.
    pub replays: &'a Replays,
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
        if let Some(done) = quick::launch(&self) {
            return done;
        }
        let (py, kernel) = (self.args.py(), self.kernel);
        let mut given = self.convert()?;
        let (call, ask) = given.take();
        let stream = ask.streams.on;
        // One entry into the compiler where no array has to be allocated.
        let first = enter_call(py, || {
            let prepared = prepare(call, ask)?;
            let (returns, location) = (prepared.returns(), prepared.location());
            if prepared.missing().is_empty() {
                kernel.launch(prepared).map(|()| (returns, location, None))
            } else {
                Ok((returns, location, Some(prepared)))
            }
        })?;
        let (returns, location, left) = first;
        if let Some(mut prepared) = left {
            given.fill(&mut prepared, self.allocate)?;
            enter_call(py, || kernel.launch(prepared))?;
        }
        if let Location::Device(device) = location {
            given.used(py, Queue { device, stream });
        }
        warn(py, kernel, 2)?;
        given.results(py, &returns)
    }

    pub fn convert(&self) -> PyResult<Converted<'py>> {
        let py = self.args.py();
        let (mut keep, mut found) = (Vec::new(), Found::default());
        let mut objects: Vec<Option<Bound<'py, PyAny>>> = self.args.iter().map(Some).collect();
        objects.resize(self.kernel.param_count().max(objects.len()), None);
        let mut call = Call::default();
        call.positional.reserve_exact(self.args.len());
        for value in self.args {
            call.positional.push(passed(&value, &mut keep, &mut found)?);
        }
        for (name, value) in self.kwargs {
            let name: String = name.extract()?;
            if let Some(place) = self.kernel.param_names().position(|p| p == name) {
                objects[place] = Some(value.clone());
            }
            call.keyword.push((name, passed(&value, &mut keep, &mut found)?));
        }
        let grid = self.grid.map(extents).transpose()?;
        let grid = grid.map(|g| enter_call(py, || grid_of(&g))).transpose()?;
        let profile = Profile::ALL.get(self.profile).copied().unwrap_or_default();
        let ask = Ask { grid, profile, purpose: self.purpose, streams: found.settle() };
        record::keep(self.args);
        Ok(Converted { call, ask, objects, keep })
    }
}

impl<'py> Converted<'py> {
    pub fn take(&mut self) -> (Call, Ask) {
        (std::mem::take(&mut self.call), std::mem::take(&mut self.ask))
    }

    /// Puts in the arrays that the caller left out.
    pub fn fill(&mut self, prepared: &mut Prepared, allocate: &Bound<'py, PyAny>) -> PyResult<()> {
        let py = allocate.py();
        let device = match prepared.location() {
            Location::Device(device) => Some(device.to_string()),
            Location::Host => None,
        };
        let like = self.objects.iter().flatten().find(|o| arrays::is_array(o)).cloned();
        for Missing { param, dims, elem, privilege, clear } in prepared.missing() {
            let dims = PyTuple::new(py, dims)?;
            let elem = crate::dtype::DType(elem);
            let what = (dims, elem, privilege.name(), like.as_ref(), device.as_deref(), clear);
            let made = allocate.call1(what)?;
            let mut found = Found::default();
            if let Arg::Array(array) = argument(&made, &mut self.keep, &mut found)? {
                prepared.fill(param, array, &found.all());
            }
            record::keep(&PyTuple::new(py, [&made])?);
            self.objects[param] = Some(made);
        }
        Ok(())
    }

    /// Says that work on the stream uses the arrays.
    pub fn used(&mut self, py: Python<'py>, queue: Queue) {
        for object in self.objects.iter().flatten() {
            if let Ok(array) = object.cast::<DeviceArray>() {
                array.get().memory.used_on(queue.stream);
            }
        }
        let keep = std::mem::take(&mut self.keep);
        if !device::is_recording() {
            holding::hold(py, keep, queue);
        }
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

    /// What the arguments borrow from.
    pub fn keep_mut(&mut self) -> &mut Vec<Bound<'py, PyAny>> {
        &mut self.keep
    }

    /// By parameter, for inspection.
    pub fn objects(&self) -> impl Iterator<Item = Option<&Bound<'py, PyAny>>> {
        self.objects.iter().map(Option::as_ref)
    }
}

/// One extent, or several in a tuple or list.
fn extents(grid: &Bound<'_, PyAny>) -> PyResult<Vec<Arg>> {
    let one = |e: &Bound<'_, PyAny>| argument(e, &mut Vec::new(), &mut Found::default());
    if grid.is_instance_of::<PyTuple>() || grid.is_instance_of::<PyList>() {
        return grid.try_iter()?.map(|e| one(&e?)).collect();
    }
    Ok(vec![one(grid)?])
}

/// Hands new warnings of the kernel to Python.
pub fn warn(py: Python<'_>, kernel: &KernelHandle, stack_level: i32) -> PyResult<()> {
    tell(py, kernel.take_warnings(), stack_level)
}

/// Warnings as Python has them.
pub fn tell(py: Python<'_>, texts: Vec<String>, stack_level: i32) -> PyResult<()> {
    for text in texts {
        let class = py.import("tessera.base.errors")?.getattr("TesseraWarning")?;
        PyErr::warn(py, &class, &CString::new(text)?, stack_level)?;
    }
    Ok(())
}
