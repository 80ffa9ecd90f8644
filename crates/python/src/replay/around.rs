//! What says how a traced function runs beside its arguments: open traces, numeric profiles, modes and meshes of `with`
//! statements. Python keeps them in context variables, thread locals and lists. What is here lets a call find out, without a
//! look at any of these, that none of them was ever set; else Python looks.

use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

thread_local! {
    /// How many traces are open on this thread.
    static TRACES: Cell<usize> = const { Cell::new(0) };
}

/// The numeric profile of the process, by its number.
static PROFILE: AtomicUsize = AtomicUsize::new(0);
/// Whether anything was set for a part of the program. It stays: a task may keep the context of a block that is left.
static SCOPED: AtomicBool = AtomicBool::new(false);

/// The profile of calls where nothing else is set; `None` where Python must decide.
#[inline]
pub fn plain() -> Option<usize> {
    let is_plain = TRACES.get() == 0 && !SCOPED.load(Ordering::Relaxed);
    is_plain.then(|| PROFILE.load(Ordering::Relaxed))
}

/// A trace begins on this thread, or the innermost one ends.
#[tessera_entry::entry]
#[pyfunction]
pub fn trace_opened() {
    TRACES.set(TRACES.get() + 1);
}

#[tessera_entry::entry]
#[pyfunction]
pub fn trace_closed() {
    TRACES.set(TRACES.get().saturating_sub(1));
}

/// Sets the profile of the process.
#[tessera_entry::entry]
#[pyfunction]
pub fn process_profile(number: usize) {
    PROFILE.store(number, Ordering::Relaxed);
}

/// Something is set for a part of the program: a profile, a mode, a mesh, an observer, the tree form of a class of Python's.
/// Calls ask Python from now on.
#[tessera_entry::entry]
#[pyfunction]
pub fn scoped_settings() {
    SCOPED.store(true, Ordering::Relaxed);
}
