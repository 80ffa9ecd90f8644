//! Streams of our own, points in a stream's work, and the order between streams.

use super::{is_recording, of_launch, open};
use tessera_diag::Diagnostics;
use tessera_target::Queue;
use tessera_target::device::{self as hal, DeviceId, Event};

/// A stream of our own.
pub struct Stream(Box<dyn hal::Stream>);

impl Stream {
    pub fn new(device: DeviceId) -> Result<Self, Diagnostics> {
        Ok(Self(open(device)?.stream()?))
    }

    pub fn handle(&self) -> u64 {
        self.0.handle()
    }

    pub fn device(&self) -> DeviceId {
        self.0.device()
    }
}

/// A point in a stream's work.
pub struct Mark(Box<dyn Event>);

impl Mark {
    /// Records an event after the stream's work so far; `timed` ones record the time.
    pub fn new(queue: Queue, timed: bool) -> Result<Self, Diagnostics> {
        let event = open(queue.device)?.event(timed)?;
        event.record(queue.stream)?;
        Ok(Self(event))
    }

    pub fn is_past(&self) -> Result<bool, Diagnostics> {
        Ok(self.0.is_past()?)
    }

    pub fn synchronize(&self) -> Result<(), Diagnostics> {
        self.0.synchronize().map_err(of_launch)
    }

    /// Seconds between two timed ones that are past.
    pub fn seconds_since(&self, earlier: &Mark) -> Result<f64, Diagnostics> {
        Ok(self.0.seconds_since(&*earlier.0)?)
    }
}

/// Makes the stream wait for what others have been given so far. The host does not wait. A
/// recording has nothing to wait for: all was done when it began.
pub fn wait_for(queue: Queue, others: &[u64]) -> Result<(), Diagnostics> {
    if is_recording() || others.iter().all(|&other| other == queue.stream) {
        return Ok(());
    }
    let device = open(queue.device)?;
    // SAFETY: the library that owns the stream keeps it for the call.
    unsafe { device.check_stream(queue.stream) }?;
    for &other in others.iter().filter(|&&other| other != queue.stream) {
        let event = device.event(false)?;
        event.record(other)?;
        event.block(queue.stream)?;
    }
    Ok(())
}

/// What was put on a stream is in flight where a later part of it failed, and the caller, who gets the error, keeps
/// nothing for it: it is waited for.
pub(crate) fn or_wait<T>(queue: Queue, done: Result<T, Diagnostics>) -> Result<T, Diagnostics> {
    if done.is_err() && !is_recording() {
        // The first error is the one to report.
        let _ = super::synchronize(queue.device, Some(queue.stream));
    }
    done
}

/// Makes others wait for what the stream has been given so far.
pub fn hold_back(queue: Queue, others: &[u64]) -> Result<(), Diagnostics> {
    others.iter().try_for_each(|&other| {
        wait_for(Queue { stream: other, ..queue }, std::slice::from_ref(&queue.stream))
    })
}
