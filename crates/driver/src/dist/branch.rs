//! Streams of ranks: the tasks of an index launch on one device run beside each other, each behind what its caller's stream had been
//! given when the launch began, and before what that stream is given afterwards.

use crate::device::{self, Stream};
use crate::launch::Streams;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tessera_diag::Diagnostics;
use tessera_target::Queue;
use tessera_target::device::DeviceId;

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
#[derive(Clone, Debug)]
pub struct Branch {
    on: Queue,
    caller: Vec<u64>,
}

impl Branch {
    /// `None` where calls are being recorded: a recording is of one stream.
    pub fn new(at: DeviceId, rank: u64, caller: &Streams) -> Result<Option<Branch>, Diagnostics> {
        if device::is_recording() {
            return Ok(None);
        }
        let stream = of_rank(at, rank)?;
        let caller = std::iter::once(caller.on).chain(caller.then.iter().copied()).collect();
        Ok(Some(Branch { on: Queue { device: at, stream }, caller }))
    }

    /// What is put on the branch from here on comes behind what the caller's streams have.
    pub fn begin(&self) -> Result<(), Diagnostics> {
        device::wait_for(self.on, &self.caller)
    }

    /// Where its task's calls go.
    pub fn queue(&self) -> Queue {
        self.on
    }

    /// Makes the caller's streams wait for it.
    pub fn join(&self) -> Result<(), Diagnostics> {
        device::hold_back(self.on, &self.caller)
    }

    /// The stream of what the caller does next.
    pub fn after(&self) -> u64 {
        self.caller[0]
    }
}
