//! Calls that are checked when they are made, and run later by any thread: the tasks of index launches.

use crate::call::{Converted, Given};
use crate::dist_streams::Branch;
use crate::dist_tasks::{Failed, leave};
use crate::enter::enter_call;
use crate::kernel::BACKENDS;
use crate::replay::kernel::{self, Launch, Tried};
use crate::replay::notes;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tessera_driver::dist::Work;
use tessera_driver::{KernelHandle, Location, Prepared, Purpose};
use tessera_ir::Privilege;

/// How it runs.
enum Way {
    /// As a recorded call.
    Again(Launch),
    First(Box<Prepared>),
    /// With arrays of a device, whose streams are known only when what goes before has been put on them.
    Later(Later),
}

/// What a call gives back, where that is known only when it has run.
pub type Made = Arc<Mutex<Option<Py<PyAny>>>>;

struct Later {
    allocate: Py<PyAny>,
    grid: Option<Py<PyAny>>,
    profile: usize,
    made: Made,
    branch: Option<Branch>,
}

/// What a call gives back.
pub enum Gives {
    Known(Py<PyAny>),
    Later(Made, Option<Branch>),
}

impl Gives {
    pub fn known<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let found = match self {
            Gives::Known(value) => Some(value.clone_ref(py)),
            Gives::Later(made, _) => {
                let made = made.lock().unwrap_or_else(PoisonError::into_inner);
                made.as_ref().map(|value| value.clone_ref(py))
            }
        };
        found.map(|value| value.into_bound(py))
    }
}

pub struct PreparedCall {
    kernel: Arc<KernelHandle>,
    args: Py<PyTuple>,
    kwargs: Py<PyDict>,
    way: Way,
    /// What the arguments borrow from, and what the call gives back.
    keep: Vec<Py<PyAny>>,
    /// What it uses each parameter of the kernel for.
    pub privileges: Vec<Option<Privilege>>,
}

impl PreparedCall {
    /// Checks all that a call would, allocates the arrays that it leaves out, and writes nothing. `rank` says whose call it is.
    pub fn new(
        given: Given<'_, '_>,
        rank: impl FnOnce() -> PyResult<u64>,
    ) -> PyResult<(Self, Gives)> {
        let py = given.args.py();
        let made = |way: Way, keep: Vec<Py<PyAny>>, privileges| Self {
            kernel: given.kernel.clone(),
            args: given.args.clone().unbind(),
            kwargs: given.kwargs.clone().unbind(),
            way,
            keep,
            privileges,
        };
        let kernel = given.kernel;
        notes::spoil();
        let key = match kernel::find(&given) {
            Tried::Found(again) if again.on_host => {
                let result = again.results(&given)?.unbind();
                let (keep, uses) = (vec![result.clone_ref(py)], again.launch.privileges().to_vec());
                return Ok((made(Way::Again(again.launch), keep, uses), Gives::Known(result)));
            }
            Tried::Found(_) => None,
            Tried::Not(key) => key,
        };
        let mut converted = given.convert()?;
        let (call, mut ask) = converted.take();
        ask.key = key;
        let streams = ask.streams.clone();
        let mut prepared = enter_call(py, || kernel.prepare(&BACKENDS, call, ask))?;
        let uses = prepared.privileges();
        if let Location::Device(device) = prepared.location() {
            enter_call(py, || kernel.check_launch(&prepared))?;
            let branch = Branch::new(py, device, rank()?, &streams)?;
            let result = Made::default();
            let later = Later {
                allocate: given.allocate.clone().unbind(),
                grid: given.grid.map(|g| g.clone().unbind()),
                profile: given.profile,
                made: result.clone(),
                branch: branch.clone(),
            };
            return Ok((made(Way::Later(later), Vec::new(), uses), Gives::Later(result, branch)));
        }
        let returns = prepared.returns();
        if !prepared.missing().is_empty() {
            converted.fill(&mut prepared, given.allocate)?;
        }
        enter_call(py, || kernel.check_launch(&prepared))?;
        let mut keep = converted.kept();
        let result = converted.results(py, &returns)?.unbind();
        keep.push(result.clone_ref(py));
        Ok((made(Way::First(Box::new(prepared)), keep, uses), Gives::Known(result)))
    }

    /// About how long it takes, where that is known.
    pub fn takes(&self) -> Option<Duration> {
        match &self.way {
            Way::Again(launch) => launch.takes(),
            Way::First(_) | Way::Later(_) => None,
        }
    }

    /// The call as a task, with what names it in errors and its number there.
    pub fn work(self, named: Arc<Py<PyAny>>, task: usize) -> Work<Failed> {
        Box::new(move || {
            let Self { kernel, args, kwargs, way, keep, privileges: _ } = self;
            let done = match way {
                Way::Again(launch) => launch.run(&kernel, 0),
                Way::First(prepared) => kernel.launch(*prepared),
                Way::Later(later) => {
                    let done = later.run(&kernel, &args, &kwargs, &named, task);
                    leave((args, kwargs, keep, named));
                    return done;
                }
            };
            let done = done.map_err(|found| Failed::of_call(found, &named, task));
            leave((args, kwargs, keep, named));
            done
        })
    }
}

impl Later {
    fn run(
        self,
        kernel: &Arc<KernelHandle>,
        args: &Py<PyTuple>,
        kwargs: &Py<PyDict>,
        named: &Py<PyAny>,
        task: usize,
    ) -> Result<(), Failed> {
        Python::attach(move |py| {
            let given = Given {
                kernel,
                replays: kernel.replays(),
                watch: None,
                args: args.bind(py),
                kwargs: kwargs.bind(py),
                grid: self.grid.as_ref().map(|g| g.bind(py)),
                profile: self.profile,
                purpose: Purpose::Run,
                allocate: self.allocate.bind(py),
            };
            let launch = || given.launch(|call, ask| kernel.prepare(&BACKENDS, call, ask));
            let done = match &self.branch {
                Some(branch) => branch.run(py, launch),
                None => launch(),
            };
            let made = done.map_err(|error| Failed::raised_by(py, error, named, task))?;
            *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(made.unbind());
            Ok(())
        })
    }
}

impl Converted<'_> {
    /// What the arguments borrow from, to be kept as long as they are used.
    fn kept(&mut self) -> Vec<Py<PyAny>> {
        std::mem::take(self.keep_mut()).into_iter().map(Bound::unbind).collect()
    }
}
