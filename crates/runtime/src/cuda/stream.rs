//! Streams: work on a device that runs in order.

use super::api::Api;
use super::device::Device;
use super::error::CudaError;
use super::event::Event;
use super::wait;
use cudarc::driver::sys::{CUstream, CUstream_flags::CU_STREAM_NON_BLOCKING};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_diag::{Code, Diagnostic};

/// A stream by its handle, without its device. 0 and 1 are the legacy default stream, 2 is the
/// default stream of each thread.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamRef(u64);

impl StreamRef {
    pub const LEGACY: Self = Self(0);
    pub const PER_THREAD: Self = Self(2);

    /// A stream of another library.
    ///
    /// # Safety
    /// `raw` is 0, 1, 2, or a stream of the primary context of the device that it is used with,
    /// and exists as long as this value and all that is allocated or freed on it.
    pub const unsafe fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    pub const fn raw(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn handle(self) -> CUstream {
        self.0 as CUstream
    }

    /// Equal for two streams exactly where they are one order of work, as seen from this thread.
    pub(crate) fn key(self) -> StreamKey {
        match self.0 {
            0 | 1 => StreamKey { raw: 0, thread: 0 },
            2 => StreamKey { raw: 2, thread: thread() },
            raw => StreamKey { raw, thread: 0 },
        }
    }

    pub(crate) fn is_capturing(self, api: &Api) -> Result<bool, CudaError> {
        // The legacy stream cannot be recorded, and asking for it while another is spoils that.
        if self.key().raw == 0 {
            return Ok(false);
        }
        let mut status = 0;
        // SAFETY: `status` is a place for one number; the stream exists.
        unsafe { api.cuStreamIsCapturing(self.handle(), &mut status) }?;
        Ok(status != 0)
    }

    /// An error where the stream is being recorded, which `what` cannot be.
    pub(crate) fn not_capturing(self, api: &Api, what: &str) -> Result<(), CudaError> {
        if !self.is_capturing(api)? {
            return Ok(());
        }
        let message = format!("{what} cannot be recorded into a graph");
        let help = "do it before the recording begins, or on another stream";
        Err(CudaError::refused(Diagnostic::new(Code::E_CAPTURE, message).help(help)))
    }

    pub(crate) fn is_idle(self, api: &Api) -> Result<bool, CudaError> {
        // SAFETY: the stream exists, and the caller has made its context current.
        wait::answer(unsafe { api.cuStreamQuery(self.handle()) })
    }
}

/// See [`StreamRef::key`].
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamKey {
    raw: u64,
    thread: u64,
}

/// A number of this thread that no other has or had.
fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static MINE: Cell<u64> = const { Cell::new(0) });
    MINE.with(|mine| {
        if mine.get() == 0 {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        mine.get()
    })
}

impl Device {
    /// Checks that a stream of another library belongs to this device.
    ///
    /// # Safety
    /// As for [`StreamRef::from_raw`], apart from the device.
    pub(crate) unsafe fn expect_stream(&self, raw: u64) -> Result<(), CudaError> {
        if raw <= StreamRef::PER_THREAD.0 {
            return Ok(());
        }
        let mut context = null_mut();
        // SAFETY: the caller says that it is a stream; `context` is a place for one.
        unsafe { self.context.api.cuStreamGetCtx(StreamRef(raw).handle(), &mut context) }?;
        if context == self.context.raw.0 {
            return Ok(());
        }
        let message = format!("expected a stream of cuda:{}, got another's", self.ordinal());
        let help = "pass a stream of the device that the arrays are on";
        let diagnostic = Diagnostic::new(Code::E_LAUNCH_DEVICE_MISMATCH, message).help(help);
        Err(CudaError::refused(diagnostic))
    }
}

/// A stream with its device: its own, or another library's.
pub struct Stream {
    device: Arc<Device>,
    stream: StreamRef,
    own: bool,
}

impl Stream {
    /// A stream that does not wait for the legacy default stream.
    pub fn new(device: &Arc<Device>) -> Result<Stream, CudaError> {
        let idle = device.idle_streams.lock().pop();
        let raw = match idle {
            Some(raw) => raw,
            None => {
                let _current = device.make_current()?;
                let mut stream = null_mut();
                // SAFETY: `stream` is a place for one.
                unsafe {
                    device.context.api.cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING as u32)
                }?;
                stream as u64
            }
        };
        Ok(Self { device: device.clone(), stream: StreamRef(raw), own: true })
    }

    /// Another library's stream. Checks that it belongs to this device.
    ///
    /// # Safety
    /// As for [`StreamRef::from_raw`], apart from the device.
    pub unsafe fn borrow(device: &Arc<Device>, raw: u64) -> Result<Stream, CudaError> {
        // SAFETY: the caller's promise.
        unsafe { device.expect_stream(raw) }?;
        Ok(Self { device: device.clone(), stream: StreamRef(raw), own: false })
    }

    #[inline]
    pub fn handle(&self) -> StreamRef {
        self.stream
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Waits until all its work is done, or the host asks to stop.
    pub fn synchronize(&self) -> Result<(), CudaError> {
        self.device.synchronize(self.stream)
    }

    /// Whether all its work is done.
    pub fn is_idle(&self) -> Result<bool, CudaError> {
        self.device.is_stream_idle(self.stream)
    }

    pub fn is_capturing(&self) -> Result<bool, CudaError> {
        self.stream.is_capturing(self.device.context.api)
    }

    /// Later work of this stream begins after the work before `event`. The host does not wait.
    pub fn wait_event(&self, event: &Event) -> Result<(), CudaError> {
        event.block(self.stream)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.own {
            return;
        }
        let stream = self.stream;
        self.device.context.finally(|api| match stream.is_capturing(api) {
            Ok(false) => {
                self.device.idle_streams.lock().push(stream.0);
                Ok(())
            }
            // SAFETY: it is this one's own. Its recording ends with it.
            _ => unsafe { api.cuStreamDestroy_v2(stream.handle()) },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_order_of_work_has_one_key() {
        let of = |raw| StreamRef(raw).key();
        assert_eq!(of(0), of(1));
        assert_ne!(of(0), of(2));
        assert_eq!(of(2), of(2));
        assert_eq!(of(4096), of(4096));
        let other = std::thread::spawn(move || of(2)).join().unwrap();
        assert_ne!(of(2), other);
    }
}
