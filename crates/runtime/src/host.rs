//! Host memory as a device: the reference of what the others promise. Its streams run their work when it is given, so
//! that every event is past and nothing waits.
//!
//! ```
//! use tessera_runtime::host::Host;
//! use tessera_target::device::Platform;
//! let host = Host.open(0)?;
//! let memory = host.clone().alloc(4, 0)?;
//! let mut back = [0; 4];
//! // SAFETY: the memory has four bytes.
//! unsafe {
//!     host.copy_in(memory.address(), &[1, 2, 3, 4], 0)?;
//!     host.copy_out(&mut back, memory.address(), 0)?;
//! }
//! assert_eq!(back, [1, 2, 3, 4]);
//! # Ok::<(), tessera_target::device::DeviceError>(())
//! ```

use std::alloc::{Layout, alloc, dealloc};
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tessera_diag::{Code, Diagnostic};
use tessera_support::ForkLock;
use tessera_target::ObjectStore;
use tessera_target::device::{
    Device, DeviceError, DeviceId, DeviceInfo, DeviceKind, Event, Memory, MemoryInfo, Module,
    Platform, PoolStats, Recording, Result, Stream,
};

/// The platform of the host: one device.
#[derive(Copy, Clone, Debug, Default)]
pub struct Host;

struct HostDevice {
    info: DeviceInfo,
    in_use: AtomicU64,
    peak: AtomicU64,
    allocated: AtomicU64,
    streams: AtomicU64,
}

/// What every array's memory is aligned to.
const ALIGN: usize = 256;

impl Platform for Host {
    fn kind(&self) -> DeviceKind {
        DeviceKind::CPU
    }

    fn missing(&self) -> Option<Diagnostic> {
        None
    }

    fn count(&self) -> u32 {
        1
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>> {
        static HOST: OnceLock<Arc<HostDevice>> = OnceLock::new();
        if ordinal != 0 {
            let message = format!("expected the host, which is one device, got cpu:{ordinal}");
            let error = Diagnostic::new(Code::E_DRIVER, message);
            return Err(error.help("write \"cpu\"").into());
        }
        Ok(HOST.get_or_init(|| Arc::new(HostDevice::new())).clone())
    }

    /// Any address may be the host's: nobody knows.
    fn device_of(&self, _: u64) -> Option<u32> {
        None
    }
}

impl HostDevice {
    fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        let arch = std::env::consts::ARCH.to_string();
        let info = DeviceInfo {
            name: "host".into(),
            arch,
            processors,
            lanes: 1,
            driver: "host".into(),
            ..DeviceInfo::default()
        };
        let zero = || AtomicU64::new(0);
        Self { info, in_use: zero(), peak: zero(), allocated: zero(), streams: AtomicU64::new(1) }
    }

    fn known(&self, stream: u64) -> Result<()> {
        if stream < self.streams.load(Relaxed) {
            return Ok(());
        }
        let message = format!("expected a stream of the host, got {stream:#x}");
        let error = Diagnostic::new(Code::E_LAUNCH_DEVICE_MISMATCH, message);
        Err(error.help("pass a stream of the device that the arrays are on").into())
    }
}

fn none_here(what: &str) -> DeviceError {
    let message = format!("expected a device with streams, got the host, which {what}");
    let help = "move the arrays to such a device: `ts.runtime.devices()` lists them";
    Diagnostic::new(Code::E_UNSUPPORTED, message).help(help).into()
}

impl Device for HostDevice {
    fn id(&self) -> DeviceId {
        DeviceId::HOST
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The system knows; it is not queried here, and both are zero.
    fn memory(&self) -> Result<MemoryInfo> {
        Ok(MemoryInfo::default())
    }

    fn any(&self) -> &dyn Any {
        self
    }

    fn alloc(self: Arc<Self>, bytes: u64, stream: u64) -> Result<Box<dyn Memory>> {
        self.known(stream)?;
        let layout = usize::try_from(bytes.max(1)).ok();
        let layout = layout.and_then(|bytes| Layout::from_size_align(bytes, ALIGN).ok());
        // SAFETY: the layout is of one byte or more.
        let data = layout.map(|layout| (layout, unsafe { alloc(layout) }));
        let Some((layout, data)) = data.filter(|(_, data)| !data.is_null()) else {
            let message = format!("memory ran out on the host: {bytes} bytes were requested");
            let help = "let go of arrays that are not needed";
            return Err(Diagnostic::new(Code::E_OOM, message).help(help).into());
        };
        let now = self.in_use.fetch_add(layout.size() as u64, Relaxed) + layout.size() as u64;
        self.peak.fetch_max(now, Relaxed);
        self.allocated.fetch_add(1, Relaxed);
        Ok(Box::new(HostMemory { device: self, address: data as u64, bytes, layout }))
    }

    fn pool(&self) -> PoolStats {
        let in_use = self.in_use.load(Relaxed);
        PoolStats {
            held: in_use,
            in_use,
            peak: self.peak.load(Relaxed),
            allocated: self.allocated.load(Relaxed),
            ..PoolStats::default()
        }
    }

    fn trim(&self) -> Result<u64> {
        Ok(0)
    }

    unsafe fn copy_in(&self, to: u64, from: &[u8], stream: u64) -> Result<()> {
        self.known(stream)?;
        // SAFETY: the caller's promise; what a slice borrows is not the memory of another.
        unsafe { (to as *mut u8).copy_from(from.as_ptr(), from.len()) };
        Ok(())
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: u64, stream: u64) -> Result<()> {
        self.known(stream)?;
        // SAFETY: the caller's promise.
        unsafe { to.as_mut_ptr().copy_from(from as *const u8, to.len()) };
        Ok(())
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, stream: u64) -> Result<()> {
        self.known(stream)?;
        // SAFETY: the caller's promise.
        unsafe { (to as *mut u8).copy_from(from as *const u8, bytes as usize) };
        Ok(())
    }

    unsafe fn fill(&self, to: u64, value: u8, bytes: u64, stream: u64) -> Result<()> {
        self.known(stream)?;
        // SAFETY: the caller's promise.
        unsafe { (to as *mut u8).write_bytes(value, bytes as usize) };
        Ok(())
    }

    fn stream(self: Arc<Self>) -> Result<Box<dyn Stream>> {
        Ok(Box::new(HostStream(self.streams.fetch_add(1, Relaxed))))
    }

    unsafe fn check_stream(&self, stream: u64) -> Result<()> {
        self.known(stream)
    }

    fn synchronize(&self, stream: u64) -> Result<()> {
        self.known(stream)
    }

    fn synchronize_all(&self) -> Result<()> {
        Ok(())
    }

    fn is_idle(&self, stream: u64) -> Result<bool> {
        self.known(stream).map(|()| true)
    }

    fn is_capturing(&self, stream: u64) -> Result<bool> {
        self.known(stream).map(|()| false)
    }

    fn event(&self, _timed: bool) -> Result<Box<dyn Event>> {
        Ok(Box::new(HostEvent(ForkLock::new(None))))
    }

    fn load(self: Arc<Self>, _: &[u8], _: &dyn ObjectStore, _: &str) -> Result<Arc<dyn Module>> {
        Err(none_here("runs code of the CPU backend and loads no images"))
    }

    /// Launches here are complete when they return, and have memory of their own.
    fn workspace(self: Arc<Self>, _stream: u64, _bytes: u64) -> Result<Option<u64>> {
        Ok(None)
    }

    fn record(self: Arc<Self>) -> Result<Box<dyn Recording>> {
        Err(none_here("runs work when it is given and records none"))
    }
}

struct HostMemory {
    device: Arc<HostDevice>,
    address: u64,
    bytes: u64,
    layout: Layout,
}

impl Memory for HostMemory {
    fn address(&self) -> u64 {
        self.address
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn device(&self) -> DeviceId {
        DeviceId::HOST
    }

    fn used_on(&self, _stream: u64) {}
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        self.device.in_use.fetch_sub(self.layout.size() as u64, Relaxed);
        // SAFETY: it was allocated with this layout, and nothing is in flight here.
        unsafe { dealloc(self.address as *mut u8, self.layout) };
    }
}

struct HostStream(u64);

impl Stream for HostStream {
    fn handle(&self) -> u64 {
        self.0
    }

    fn device(&self) -> DeviceId {
        DeviceId::HOST
    }
}

/// When it was recorded.
struct HostEvent(ForkLock<Option<Instant>>);

impl Event for HostEvent {
    fn record(&self, _stream: u64) -> Result<()> {
        *self.0.lock() = Some(Instant::now());
        Ok(())
    }

    fn block(&self, _stream: u64) -> Result<()> {
        Ok(())
    }

    fn is_past(&self) -> Result<bool> {
        Ok(true)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    fn seconds_since(&self, earlier: &dyn Event) -> Result<f64> {
        let earlier = earlier.any().downcast_ref::<HostEvent>().and_then(|e| *e.0.lock());
        match (*self.0.lock(), earlier) {
            (Some(now), Some(before)) => Ok(now.saturating_duration_since(before).as_secs_f64()),
            _ => {
                let message = "expected two events of the host that were recorded";
                let error = Diagnostic::new(Code::E_ARGUMENT, message);
                Err(error.help("record both before the time between them is read").into())
            }
        }
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_and_given_back() {
        let host = Host.open(0).unwrap();
        let before = host.pool().in_use;
        let memory = host.clone().alloc(1000, 0).unwrap();
        assert_eq!((memory.address() % 256, memory.bytes()), (0, 1000));
        assert_eq!(host.pool().in_use, before + 1000);
        drop(memory);
        assert_eq!(host.pool().in_use, before);
        let error = host.clone().alloc(u64::MAX, 0).err().unwrap();
        assert_eq!(error.code(), Code::E_OOM);
    }

    #[test]
    fn work_is_done_when_it_is_given() {
        let host = Host.open(0).unwrap();
        let stream = host.clone().stream().unwrap();
        let (a, b) = (host.clone().alloc(8, 0).unwrap(), host.clone().alloc(8, 0).unwrap());
        let (start, end) = (host.event(true).unwrap(), host.event(true).unwrap());
        start.record(stream.handle()).unwrap();
        let mut out = [0; 8];
        // SAFETY: both are memory of eight bytes.
        unsafe {
            host.fill(a.address(), 7, 8, stream.handle()).unwrap();
            host.copy(b.address(), a.address(), 8, 0).unwrap();
            host.copy_out(&mut out, b.address(), 0).unwrap();
        }
        end.record(stream.handle()).unwrap();
        assert_eq!(out, [7; 8]);
        assert!(end.is_past().unwrap() && end.seconds_since(&*start).unwrap() >= 0.0);
    }

    #[test]
    fn what_the_host_has_not_is_a_typed_error() {
        let host = Host.open(0).unwrap();
        let codes = [
            host.clone().record().err().map(|e| e.code()),
            Host.open(1).err().map(|e| e.code()),
            host.synchronize(1 << 40).err().map(|e| e.code()),
        ];
        let wanted = [Code::E_UNSUPPORTED, Code::E_DRIVER, Code::E_LAUNCH_DEVICE_MISMATCH];
        assert_eq!(codes, wanted.map(Some));
    }
}
