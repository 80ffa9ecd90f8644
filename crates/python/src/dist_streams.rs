//! Streams of ranks: the tasks of an index launch on one device run beside each other, each behind what its caller's stream had been
//! given when the launch began, and before what that stream is given afterwards.

use crate::enter::enter;
use crate::streams;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tessera_diag::Diagnostics;
use tessera_driver::device::{self, Stream};
use tessera_driver::{DeviceId, Queue, Streams};

/// Ranks with the same number modulo this share a stream: a device has a bounded number of queues for work.
const MOST: u64 = 32;

static OF_RANKS: Mutex<BTreeMap<(u64, u64), Stream>> = Mutex::new(BTreeMap::new());

fn of_rank(at: DeviceId, rank: u64) -> Result<u64, Diagnostics> {
    let mut known = OF_RANKS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (at.bits(), rank % MOST);
    if let Some(stream) = known.get(&key) {
        return Ok(stream.handle());
    }
    let stream = Stream::new(at)?;
    let handle = stream.handle();
    known.insert(key, stream);
    Ok(handle)
}

/// The stream of one task, and those of its caller.
#[derive(Clone)]
pub struct Branch {
    on: Queue,
    caller: Vec<u64>,
}

impl Branch {
    /// `None` where calls are being recorded: a recording is of one stream.
    pub fn new(
        py: Python<'_>,
        at: DeviceId,
        rank: u64,
        caller: &Streams,
    ) -> PyResult<Option<Branch>> {
        if device::is_recording() {
            return Ok(None);
        }
        let stream = enter(py, || of_rank(at, rank))?;
        let caller = std::iter::once(caller.on).chain(caller.then.iter().copied()).collect();
        Ok(Some(Branch { on: Queue { device: at, stream }, caller }))
    }

    /// Does work whose calls run on this stream.
    pub fn run<T>(&self, py: Python<'_>, work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
        enter(py, || device::wait_for(self.on, &self.caller))?;
        let before = streams::name(Some(self.on.stream));
        let done = work();
        streams::name(before);
        done
    }

    /// Makes the caller's streams wait for it.
    pub fn join(&self, py: Python<'_>) -> PyResult<()> {
        enter(py, || device::hold_back(self.on, &self.caller))
    }

    /// The stream of what the caller does next.
    pub fn after(&self) -> u64 {
        self.caller[0]
    }
}
