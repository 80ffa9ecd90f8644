//! What an operation does while it is recorded: arrays that it makes, launches, and what it does that
//! cannot be repeated.

use crate::call::Given;
use crate::watch::Watch;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use tessera_driver::KernelHandle;
use tessera_driver::replay::{Launches, Recipe};
use tessera_numerics::Scalar;

/// How to allocate an array.
pub struct Allocation {
    make: Py<PyAny>,
    args: Py<PyTuple>,
    kwargs: Option<Py<PyDict>>,
}

impl Allocation {
    pub fn new(make: Py<PyAny>, args: Py<PyTuple>, kwargs: Option<Py<PyDict>>) -> Self {
        Self { make, args, kwargs }
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.make)?;
        visit.call(&self.args)?;
        visit.call(&self.kwargs)
    }

    pub fn again<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.make.bind(py).call(self.args.bind(py), self.kwargs.as_ref().map(|k| k.bind(py)))
    }
}

/// What a launch runs, beside the addresses of its arrays.
pub struct Launch {
    pub kernel: Arc<KernelHandle>,
    pub recipe: Arc<Recipe>,
    /// Where the recipe is kept, and how often that was emptied before.
    pub table: Arc<Launches>,
    pub emptied: u64,
    pub scalars: Option<Vec<Scalar>>,
    pub watch: Py<Watch>,
}

/// The recording of one call, while it runs.
#[derive(Default)]
pub struct Notes {
    /// Each with the array that it gave.
    pub made: Vec<(Allocation, Py<PyAny>)>,
    /// Arrays that no launch reads or writes: every call uses the same ones.
    pub fixed: Vec<Py<PyAny>>,
    /// Each with the addresses of its arrays.
    pub launches: Vec<(Launch, Vec<u64>)>,
    /// The arguments of launches: their memory is not used for others meanwhile.
    held: Vec<Py<PyTuple>>,
    pub spoilt: bool,
}

thread_local! {
    static NOTING: Cell<bool> = const { Cell::new(false) };
    static NOTES: RefCell<Notes> = const { RefCell::new(Notes::new()) };
}

impl Notes {
    const fn new() -> Self {
        Self {
            made: Vec::new(),
            fixed: Vec::new(),
            launches: Vec::new(),
            held: Vec::new(),
            spoilt: false,
        }
    }
}

/// Whether a call of this thread is being recorded.
#[inline]
pub fn noting() -> bool {
    NOTING.get()
}

/// Records what `work` does. Nothing else is recorded on this thread.
pub fn noted<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<(T, Notes)> {
    NOTING.set(true);
    let done = work();
    NOTING.set(false);
    // Dropped outside: what it holds may call back.
    let notes = NOTES.take();
    done.map(|done| (done, notes))
}

fn note(add: impl FnOnce(&mut Notes)) {
    if noting() {
        NOTES.with_borrow_mut(add);
    }
}

/// The call did something that cannot be repeated.
pub fn spoil() {
    note(|notes| notes.spoilt = true);
}

/// `repeatable` is false where arrays were made for the launch.
pub fn launched(
    given: &Given<'_, '_>,
    recipe: &Arc<Recipe>,
    addresses: Vec<u64>,
    scalars: Option<Vec<Scalar>>,
    repeatable: bool,
) {
    let Some(watch) = given.watch.filter(|_| repeatable && given.kwargs.is_empty()) else {
        return spoil();
    };
    let py = given.args.py();
    let (kernel, table) = (given.kernel.clone(), given.replays.clone());
    let (watch, args) = (watch.clone_ref(py), given.args.clone().unbind());
    let (recipe, emptied) = (recipe.clone(), table.emptied());
    let launch = Launch { kernel, recipe, table, emptied, scalars, watch };
    note(|notes| {
        notes.launches.push((launch, addresses));
        notes.held.push(args);
    });
}

/// Makes an array by a call, and records that.
#[tessera_entry::entry]
#[pyfunction]
#[pyo3(signature = (make, *args, **kwargs))]
pub fn note_made<'py>(
    make: &Bound<'py, PyAny>,
    args: &Bound<'py, PyTuple>,
    kwargs: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let array = make.call(args, kwargs)?;
    note(|notes| {
        let (array, make) = (array.clone().unbind(), make.clone().unbind());
        let (args, kwargs) = (args.clone().unbind(), kwargs.map(|k| k.clone().unbind()));
        notes.made.push((Allocation::new(make, args, kwargs), array));
    });
    Ok(array)
}

/// Records an array that no launch reads or writes.
#[tessera_entry::entry]
#[pyfunction]
pub fn note_fixed<'py>(array: Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    note(|notes| notes.fixed.push(array.clone().unbind()));
    array
}
