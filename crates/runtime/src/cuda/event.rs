//! Events: points in a stream's work.

use super::context::{Context, Handle};
use super::device::Device;
use super::error::CudaError;
use super::graph::Relaxed;
use super::stream::StreamRef;
use super::wait;
use cudarc::driver::sys::{CUevent_flags::*, CUevent_st};
use std::ptr::null_mut;

pub struct Event {
    context: Context,
    raw: Handle<CUevent_st>,
}

impl Event {
    /// An event that only orders: the cheap kind.
    pub fn new(device: &Device) -> Result<Event, CudaError> {
        Self::ordering(device.context)
    }

    pub(crate) fn ordering(context: Context) -> Result<Event, CudaError> {
        Self::with(context, CU_EVENT_DISABLE_TIMING as u32)
    }

    /// An event that remembers when it was passed.
    pub fn timed(device: &Device) -> Result<Event, CudaError> {
        Self::with(device.context, CU_EVENT_DEFAULT as u32)
    }

    fn with(context: Context, flags: u32) -> Result<Event, CudaError> {
        let _current = context.make_current()?;
        let mut event = null_mut();
        // SAFETY: `event` is a place for one.
        unsafe { context.api.cuEventCreate(&mut event, flags) }?;
        Ok(Self { context, raw: Handle(event) })
    }

    /// Records it after the stream's work so far.
    pub fn record(&self, stream: StreamRef) -> Result<(), CudaError> {
        let _current = self.context.make_current()?;
        // SAFETY: both exist.
        unsafe { self.context.api.cuEventRecord(self.raw.0, stream.handle()) }?;
        Ok(())
    }

    /// Later work of the stream begins after the work before it. The host does not wait.
    pub fn block(&self, stream: StreamRef) -> Result<(), CudaError> {
        let _current = self.context.make_current()?;
        // SAFETY: both exist.
        unsafe { self.context.api.cuStreamWaitEvent(stream.handle(), self.raw.0, 0) }?;
        Ok(())
    }

    /// Whether the work before it is done. Yes where it was never recorded.
    pub fn is_past(&self) -> Result<bool, CudaError> {
        let _current = self.context.make_current()?;
        let _relaxed = Relaxed::begin(self.context.api);
        // SAFETY: the event exists.
        wait::answer(unsafe { self.context.api.cuEventQuery(self.raw.0) })
    }

    /// Waits until the work before it is done, or the host asks to stop.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        let _current = self.context.make_current()?;
        let _relaxed = Relaxed::begin(self.context.api);
        // SAFETY: the event exists.
        wait::until(|| wait::answer(unsafe { self.context.api.cuEventQuery(self.raw.0) }))
    }

    /// The milliseconds from `earlier` to this one. Both are timed, recorded and past.
    pub fn elapsed_since(&self, earlier: &Event) -> Result<f32, CudaError> {
        let _current = self.context.make_current()?;
        let mut milliseconds = 0.0;
        // SAFETY: both exist; `milliseconds` is a place for one number.
        unsafe {
            self.context.api.cuEventElapsedTime(&mut milliseconds, earlier.raw.0, self.raw.0)
        }?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: it is this one's own.
        self.context.finally(|api| unsafe { api.cuEventDestroy_v2(self.raw.0) });
    }
}
