//! Keeps objects alive that a launch still uses when its call has returned. Their libraries do not
//! know our streams and would otherwise reuse the memory before the device is done with it.

use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};
use tessera_driver::Queue;
use tessera_driver::device::Mark;

static HELD: Mutex<Vec<(Mark, Vec<Py<PyAny>>)>> = Mutex::new(Vec::new());

/// Keeps the objects until the stream has done what it was given so far.
pub fn hold(py: Python<'_>, objects: Vec<Bound<'_, PyAny>>, queue: Queue) {
    if objects.is_empty() {
        return;
    }
    // Where there can be no mark the launch has failed, or is being recorded.
    let Ok(mark) = Mark::new(queue, false) else { return };
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let (past, mut left): (Vec<_>, Vec<_>) =
        held.drain(..).partition(|(mark, _)| mark.is_past().unwrap_or(true));
    left.push((mark, objects.into_iter().map(Bound::unbind).collect()));
    *held = left;
    drop(held);
    // Not while the lock is held: letting go of an object may run anything.
    for (_, objects) in past {
        objects.into_iter().for_each(|object| drop(object.into_bound(py)));
    }
}
