//! Calls of kernels.

use super::notes;
use super::walk::{Walk, view};
use crate::arrays::{Class, class, zeros};
use crate::call::Given;
use crate::enter::enter;
use crate::kernel::BACKENDS;
use crate::record;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};
use std::sync::Arc;
use std::time::Duration;
use tessera_diag::Diagnostics;
use tessera_driver::replay::{Key, Mark, Numbers, Recipe, Return, guards};
use tessera_driver::{KernelHandle, Purpose};
use tessera_ir::Privilege;
use tessera_numerics::{Profile, Scalar};

/// A recorded call that this one is like, or the key under which the full path is to keep this one.
pub enum Tried<'py> {
    Found(Box<Again<'py>>),
    Not(Option<Key>),
}

/// A recording with the arrays and numbers of a call.
pub struct Again<'py> {
    pub launch: Launch,
    pub stream: u64,
    pub on_host: bool,
    made: Vec<Bound<'py, PyAny>>,
}

/// What runs, without Python's objects.
pub struct Launch {
    recipe: Arc<Recipe>,
    addresses: Vec<u64>,
    scalars: Option<Vec<Scalar>>,
}

impl Launch {
    pub fn run(&self, kernel: &KernelHandle, stream: u64) -> Result<(), Diagnostics> {
        kernel.launch_again(&self.recipe, &self.addresses, self.scalars.as_deref(), stream)
    }

    /// What it uses each parameter of the kernel for.
    pub fn privileges(&self) -> &[Option<Privilege>] {
        self.recipe.privileges()
    }

    /// About how long it takes, where it was run before.
    pub fn takes(&self) -> Option<Duration> {
        self.recipe.takes()
    }
}

impl<'py> Again<'py> {
    /// Launches it; gives what the call gives back.
    pub fn run(self, given: &Given<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        record::keep(given.args, given.kwargs);
        let (kernel, launch, stream) = (given.kernel, &self.launch, self.stream);
        enter(given.args.py(), || launch.run(kernel, stream))?;
        if notes::noting() {
            let Launch { recipe, addresses, scalars } = &self.launch;
            let repeatable = self.made.is_empty();
            notes::launched(given, recipe, addresses.clone(), scalars.clone(), repeatable);
        }
        self.results(given)
    }

    /// What the call gives back.
    pub fn results(&self, given: &Given<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
        results(given, &self.made, self.launch.recipe.returns())
    }
}

pub fn find<'py>(given: &Given<'_, 'py>) -> Tried<'py> {
    let Some((walk, stream)) = walked(given) else { return Tried::Not(None) };
    let Some(recipe) = given.replays.find(&walk.tokens) else {
        return Tried::Not(Some(walk.key()));
    };
    match again(given.args.py(), &walk, recipe, stream) {
        Some(again) => Tried::Found(Box::new(again)),
        // Arrays that overlap, or a number out of range: what is recorded holds for others.
        None => Tried::Not(None),
    }
}

/// The tokens of the call and its stream.
fn walked<'py>(given: &Given<'_, 'py>) -> Option<(Walk<'py>, u64)> {
    if given.purpose != Purpose::Run {
        return None;
    }
    let profile = Profile::ALL.get(given.profile).copied().unwrap_or_default();
    let mut walk = Walk::new(guards(&BACKENDS, profile)?, false);
    for (place, value) in given.args.iter_borrowed().enumerate() {
        argument(&mut walk, &value, given.kernel.numbers(place))?;
    }
    if !given.kwargs.is_empty() {
        let names: Vec<&str> = given.kernel.param_names().collect();
        for (name, value) in given.kwargs {
            let name = name.cast_into_exact::<pyo3::types::PyString>().ok()?;
            let name = name.to_str().ok()?;
            walk.tokens.text(Mark::Dict, name);
            let place = names.iter().position(|known| *known == name)?;
            argument(&mut walk, &value, given.kernel.numbers(place))?;
        }
    }
    if let Some(grid) = given.grid {
        walk.tokens.mark(Mark::List, 0);
        if !grid.is_exact_instance_of::<PyTuple>() && !grid.is_exact_instance_of::<PyInt>() {
            return None;
        }
        walk.value(grid, Numbers::Fixed)?;
    }
    let stream = walk.stream(given.args.py())?;
    Some((walk, stream))
}

/// An element of one of our arrays is an array without axes, and a number to a kernel.
fn argument<'py>(walk: &mut Walk<'py>, value: &Bound<'py, PyAny>, numbers: Numbers) -> Option<()> {
    let ours = matches!(class(value).ok()?, Some(Class::Host | Class::Weak));
    if ours && view(value)?.rank == 0 {
        return None;
    }
    walk.value(value, numbers)
}

fn again<'py>(
    py: Python<'py>,
    walk: &Walk<'py>,
    recipe: Arc<Recipe>,
    stream: u64,
) -> Option<Again<'py>> {
    let mut made = Vec::with_capacity(recipe.made().len());
    let mut places = Vec::with_capacity(recipe.made().len());
    if !recipe.made().is_empty() {
        let first = walk.arrays.iter().find_map(|array| class(array).ok()?)?;
        for one in recipe.made() {
            let array = zeros(py, &one.dims, one.dtype, first != Class::NumPy)?;
            let at = view(&array)?.address;
            if !one.fits(at) {
                return None;
            }
            places.push(at);
            made.push(array);
        }
    }
    let addresses = recipe.addresses(walk.tokens.addresses(), &places)?;
    let scalars = recipe.scalars(walk.tokens.free())?;
    let launch = Launch { recipe, addresses, scalars };
    Some(Again { launch, stream, on_host: walk.is_on_host(), made })
}

/// Notes a call that took the full path, which has recorded it if it can be repeated.
pub fn note(given: &Given<'_, '_>) {
    let found = walked(given).and_then(|(walk, _)| {
        let recipe = given.replays.find(&walk.tokens).filter(|recipe| recipe.made().is_empty())?;
        let addresses = recipe.addresses(walk.tokens.addresses(), &[])?;
        Some((recipe.scalars(walk.tokens.free())?, addresses, recipe))
    });
    match found {
        Some((scalars, addresses, recipe)) => {
            notes::launched(given, &recipe, addresses, scalars, true);
        }
        None => notes::spoil(),
    }
}

fn results<'py>(
    given: &Given<'_, 'py>,
    made: &[Bound<'py, PyAny>],
    returns: &[Return],
) -> PyResult<Bound<'py, PyAny>> {
    let py = given.args.py();
    let of = |one: &Return| match *one {
        Return::Made(place) => Ok(made[place].clone()),
        Return::Given(place) if place < given.args.len() => given.args.get_item(place),
        Return::Given(place) => given.kwargs.values().get_item(place - given.args.len()),
        Return::Nothing => Ok(py.None().into_bound(py)),
    };
    match returns {
        [] => Ok(py.None().into_bound(py)),
        [one] => of(one),
        several => {
            let all = several.iter().map(of);
            Ok(PyTuple::new(py, all.collect::<PyResult<Vec<_>>>()?)?.into_any())
        }
    }
}
