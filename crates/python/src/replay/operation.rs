//! Calls of operations: what they decide rests on the layouts of their arrays and on their other
//! arguments, not on elements. The first call of a kind is recorded: the arrays that it allocates, the
//! kernels that it launches, and each argument of theirs as a place in an array of the caller or in
//! an allocated one. A later call allocates those arrays and launches those kernels, and does nothing
//! else.

use super::form::Form;
use super::notes::{self, Allocation, Launch, Notes};
use super::walk::{Walk, view};
use crate::enter::enter;
use crate::kernel::BACKENDS;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_driver::device;
use tessera_driver::replay::{Numbers, Table, View, guards};
use tessera_numerics::Profile;

/// More recordings are not kept of one operation: shapes change all the time then.
const KEPT: usize = 1024;

/// The calls of one operation.
#[pyclass(frozen, module = "tessera._core")]
pub struct Operation {
    work: Py<PyAny>,
    kept: Table<Recording>,
    /// How many calls were recorded, and how many of the recordings can be replayed.
    recorded: [AtomicUsize; 2],
}

enum Recording {
    /// Calls like this one do what cannot be repeated.
    Whole,
    Launches(Sequence),
}

struct Sequence {
    made: Vec<(Allocation, u64)>,
    /// Arrays that no launch reads or writes, by address: every call has the same ones.
    fixed: Vec<(Py<PyAny>, u64)>,
    /// By array of a launch, the array of the call that it is in and how many bytes from its address.
    launches: Vec<(Launch, Vec<(usize, i64)>)>,
    result: Form,
}

/// Addresses are kept modulo this, as in the tokens of arrays.
const ALIGNMENT: u64 = 16;

#[tessera_entry::entry]
#[pymethods]
impl Operation {
    #[new]
    fn new(work: Py<PyAny>) -> Self {
        Self { work, kept: Table::new(KEPT), recorded: [AtomicUsize::new(0), AtomicUsize::new(0)] }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.work)?;
        self.kept.visit(|recording| match &**recording {
            // A thread that runs a call at this moment holds it too: its contents are in use.
            Recording::Launches(sequence) if Arc::strong_count(recording) == 1 => {
                sequence.fixed.iter().try_for_each(|(array, _)| visit.call(array))?;
                sequence.launches.iter().try_for_each(|(one, _)| visit.call(&one.watch))
            }
            Recording::Launches(_) | Recording::Whole => Ok(()),
        })
    }

    fn __clear__(&self) {
        drop(self.kept.take());
    }

    /// How many calls were recorded, and how many of the recordings can be replayed.
    fn recordings(&self) -> (usize, usize) {
        let [all, replayed] = &self.recorded;
        (all.load(Ordering::Relaxed), replayed.load(Ordering::Relaxed))
    }

    fn run<'py>(
        &self,
        args: &Bound<'py, PyTuple>,
        kwargs: &Bound<'py, PyDict>,
        profile: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = args.py();
        let whole = || self.work.bind(py).call(args, Some(kwargs));
        // Inside another operation the calls are its own; a recording of the device has its order.
        let walked = (!notes::noting() && !device::is_recording())
            .then(|| walked(args, kwargs, profile))
            .flatten();
        let Some((walk, stream)) = walked else { return whole() };
        match self.kept.find(&walk.tokens).as_deref() {
            Some(Recording::Whole) => return whole(),
            Some(Recording::Launches(sequence)) => {
                if let Some(done) = sequence.run(py, &walk, stream)? {
                    return Ok(done);
                }
            }
            None => {}
        }
        let (result, notes) = notes::noted(whole)?;
        let recording = match Sequence::of(py, &walk, notes, &result) {
            Some(sequence) => Recording::Launches(sequence),
            None => Recording::Whole,
        };
        let [all, replayed] = &self.recorded;
        all.fetch_add(1, Ordering::Relaxed);
        if matches!(recording, Recording::Launches(_)) {
            replayed.fetch_add(1, Ordering::Relaxed);
        }
        drop(self.kept.keep(walk.key(), Arc::new(recording)));
        Ok(result)
    }
}

fn walked<'py>(
    args: &Bound<'py, PyTuple>,
    kwargs: &Bound<'py, PyDict>,
    profile: usize,
) -> Option<(Walk<'py>, u64)> {
    let profile = Profile::ALL.get(profile).copied().unwrap_or_default();
    let mut walk = Walk::new(guards(&BACKENDS, profile)?, true);
    walk.value(args, Numbers::Fixed)?;
    walk.dict(kwargs, &|_| Numbers::Fixed)?;
    let stream = walk.stream(args.py())?;
    (!walk.arrays.is_empty()).then_some((walk, stream))
}

impl Sequence {
    /// `None` for a call that cannot be repeated: it did something else than launch kernels on its
    /// arrays, or an array of the caller's is in no launch, so that the host may have read it.
    fn of(
        py: Python<'_>,
        walk: &Walk<'_>,
        notes: Notes,
        result: &Bound<'_, PyAny>,
    ) -> Option<Self> {
        let Notes { made, fixed, launches, .. } = &notes;
        if notes.spoilt {
            return None;
        }
        let given = walk.arrays.iter().cloned();
        let all = given
            .chain(made.iter().map(|(_, array)| array.bind(py).clone()))
            .chain(fixed.iter().map(|array| array.bind(py).clone()));
        let known = all.map(|array| view(&array).map(|view| (array, view)));
        let known = known.collect::<Option<Vec<_>>>()?;
        let count = walk.arrays.len();
        let mut seen = vec![false; count];
        let mut steps = Vec::new();
        for (launch, addresses) in launches {
            let mut places = Vec::new();
            for (&at, ((low, high), writes)) in addresses.iter().zip(launch.recipe.accesses()) {
                let (low, high) = (at.wrapping_add_signed(low), at.wrapping_add_signed(high));
                let of = found(&known, (low, high))?;
                if writes && of < count {
                    return None;
                }
                if of < count {
                    seen[of] = true;
                }
                places.push((of, at.wrapping_sub(known[of].1.address) as i64));
            }
            steps.push(places);
        }
        let result = Form::of(result, &known)?;
        // What the host reads is often a view of an array that is launched: only the same array again is sure to be in its launch.
        let again = |i: usize| {
            let first = known.iter().position(|(_, v)| v.address == known[i].1.address);
            first.is_some_and(|first| {
                first < i && seen[first] && known[i].1 == known[first].1 && known[i].1.rank > 0
            })
        };
        let used = (0..count).all(|i| seen[i] || again(i));
        if !used {
            return None;
        }
        let (views, after) = known.split_at(count + made.len());
        let at: Vec<u64> = after.iter().map(|(_, view)| view.address).collect();
        let low: Vec<u64> = views[count..].iter().map(|(_, v)| v.address % ALIGNMENT).collect();
        let Notes { made, fixed, launches, .. } = notes;
        Some(Self {
            made: made.into_iter().map(|(one, _)| one).zip(low).collect(),
            fixed: fixed.into_iter().zip(at).collect(),
            launches: launches.into_iter().map(|(one, _)| one).zip(steps).collect(),
            result,
        })
    }

    /// `None` where what the kernels captured has changed, or memory is aligned otherwise.
    fn run<'py>(
        &self,
        py: Python<'py>,
        walk: &Walk<'py>,
        stream: u64,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        for (launch, _) in &self.launches {
            if launch.table.emptied() != launch.emptied || !launch.watch.get().same(py)? {
                return Ok(None);
            }
        }
        let mut known = walk.arrays.clone();
        let mut addresses = walk.tokens.addresses().to_vec();
        for (one, low) in &self.made {
            let array = one.again(py)?;
            let Some(view) = view(&array).filter(|view| view.address % ALIGNMENT == *low) else {
                return Ok(None);
            };
            addresses.push(view.address);
            known.push(array);
        }
        for (array, address) in &self.fixed {
            addresses.push(*address);
            known.push(array.bind(py).clone());
        }
        enter(py, || {
            for (Launch { kernel, recipe, scalars, .. }, places) in &self.launches {
                let at: Vec<u64> =
                    places.iter().map(|&(of, by)| addresses[of].wrapping_add_signed(by)).collect();
                kernel.launch_again(recipe, &at, scalars.as_deref(), stream)?;
            }
            Ok(())
        })?;
        self.result.build(py, &known).map(Some)
    }
}

/// The one array of the call that has this range of memory; of those that begin at one address the
/// first: that they do is part of the tokens.
fn found(known: &[(Bound<'_, PyAny>, View)], (low, high): (u64, u64)) -> Option<usize> {
    let holds = |view: &View| {
        let (begin, end) = view.span();
        begin <= low && high <= end
    };
    let mut around = (0..known.len()).filter(|&i| holds(&known[i].1));
    let first = around.next()?;
    around.all(|other| known[other].1.address == known[first].1.address).then_some(first)
}
