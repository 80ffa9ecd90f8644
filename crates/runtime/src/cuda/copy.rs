//! Copies of packed bytes between host and device, and on the device.

use super::device::Device;
use super::error::CudaError;
use super::pool::DeviceBuffer;
use super::staging::Staging;
use super::stream::StreamRef;
use tessera_diag::{Code, Diagnostic};

impl Device {
    fn staged(
        &self,
        stream: StreamRef,
        what: &str,
        f: impl FnOnce(&mut Staging) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let _current = self.make_current()?;
        // A captured copy would read the staging memory when its graph is launched.
        stream.not_capturing(self.context.api, what)?;
        let mut staging = self.staging.lock();
        let staging = match &mut *staging {
            Some(staging) => staging,
            none => none.insert(Staging::new(self.context)?),
        };
        f(staging)
    }

    /// Bytes to the device, in the stream's order. `from` may change when this returns.
    ///
    /// # Safety
    /// `to` is memory of this device for all bytes of `from` until the stream has run the copy.
    pub unsafe fn copy_in(&self, to: u64, from: &[u8], stream: StreamRef) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        let copy = |staging: &mut Staging| unsafe { staging.copy_in(to, from, stream) };
        self.staged(stream, "a copy from the host", copy)
    }

    /// Bytes to the host, after the stream's work so far. They are there when this returns.
    ///
    /// # Safety
    /// `from` is memory of this device for all bytes of `to`.
    pub unsafe fn copy_out(
        &self,
        to: &mut [u8],
        from: u64,
        stream: StreamRef,
    ) -> Result<(), CudaError> {
        // SAFETY: the caller's promise.
        let copy = |staging: &mut Staging| unsafe { staging.copy_out(to, from, stream) };
        self.staged(stream, "a copy to the host", copy)
    }

    /// Bytes from one place of the device to another, or to or from another device that this one
    /// reaches, in the stream's order.
    ///
    /// # Safety
    /// Both are memory of `bytes` bytes until the stream has run the copy, and do not overlap.
    pub unsafe fn copy_on_device(
        &self,
        to: u64,
        from: u64,
        bytes: u64,
        stream: StreamRef,
    ) -> Result<(), CudaError> {
        let _current = self.make_current()?;
        let api = self.context.api;
        // SAFETY: the caller's promise.
        unsafe { api.cuMemcpyDtoDAsync_v2(to, from, bytes as usize, stream.handle()) }?;
        Ok(())
    }

    /// Sets every byte to `value`, in the stream's order.
    ///
    /// # Safety
    /// `to` is memory of this device for `bytes` bytes until the stream has run this.
    pub unsafe fn fill(
        &self,
        to: u64,
        value: u8,
        bytes: u64,
        stream: StreamRef,
    ) -> Result<(), CudaError> {
        let _current = self.make_current()?;
        // SAFETY: the caller's promise.
        unsafe { self.context.api.cuMemsetD8Async(to, value, bytes as usize, stream.handle()) }?;
        Ok(())
    }
}

/// The same on memory of the pool, which keeps it until the stream is done with it.
impl DeviceBuffer {
    fn part(&self, offset: u64, bytes: u64, stream: StreamRef) -> Result<u64, CudaError> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.len()) {
            let message = format!(
                "expected a part of {} bytes of device memory, got {bytes} bytes from {offset} on",
                self.len()
            );
            return Err(CudaError::refused(Diagnostic::new(Code::E_ARGUMENT, message)));
        }
        self.used_on(stream);
        Ok(self.address() + offset)
    }

    pub fn write(&self, offset: u64, from: &[u8], stream: StreamRef) -> Result<(), CudaError> {
        let to = self.part(offset, from.len() as u64, stream)?;
        // SAFETY: `part` has checked the range, and the pool keeps it for the stream.
        unsafe { self.device().copy_in(to, from, stream) }
    }

    pub fn read(&self, offset: u64, to: &mut [u8], stream: StreamRef) -> Result<(), CudaError> {
        let from = self.part(offset, to.len() as u64, stream)?;
        // SAFETY: as above.
        unsafe { self.device().copy_out(to, from, stream) }
    }

    pub fn set(
        &self,
        offset: u64,
        bytes: u64,
        value: u8,
        stream: StreamRef,
    ) -> Result<(), CudaError> {
        let to = self.part(offset, bytes, stream)?;
        // SAFETY: as above.
        unsafe { self.device().fill(to, value, bytes, stream) }
    }

    /// All of `from` to the beginning of this one.
    pub fn copy_from(&self, from: &DeviceBuffer, stream: StreamRef) -> Result<(), CudaError> {
        let bytes = from.len();
        let to = self.part(0, bytes, stream)?;
        let from = from.part(0, bytes, stream)?;
        // SAFETY: as above, and two buffers do not overlap. A buffer onto itself is left alone.
        if to == from {
            Ok(())
        } else {
            unsafe { self.device().copy_on_device(to, from, bytes, stream) }
        }
    }
}
