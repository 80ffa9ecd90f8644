//! CUDA behind the traits of [`tessera_target::device`]: conversions of handles and errors, and nothing else.

use super::device::Device;
use super::driver;
use super::error::CudaError;
use super::event::Event;
use super::function::Function;
use super::graph::{Capture, GraphExec};
use super::jit::LoadOptions;
use super::launch::Prepared;
use super::module::Module;
use super::pointer::pointer_device;
use super::pool::DeviceBuffer;
use super::stream::{Stream, StreamRef};
use super::workspace::WORKSPACE_BYTES;
use std::any::Any;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic};
use tessera_target::ObjectStore;
use tessera_target::device::{
    self as hal, DeviceError, DeviceId, DeviceInfo, DeviceKind, FunctionFacts, Kept, LaunchShape,
    MemoryInfo, PoolStats, Result,
};

/// The devices of NVIDIA's driver.
#[derive(Copy, Clone, Debug, Default)]
pub struct Cuda;

impl hal::Platform for Cuda {
    fn kind(&self) -> DeviceKind {
        DeviceKind::CUDA
    }

    fn aliases(&self) -> &'static [&'static str] {
        &["gpu"]
    }

    fn missing(&self) -> Option<Diagnostic> {
        let absent = driver::present().err()?;
        Some(CudaError::from(absent).diagnostic().clone())
    }

    fn count(&self) -> u32 {
        driver::present().map_or(0, |present| present.devices)
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn hal::Device>> {
        Ok(Device::get(ordinal)?)
    }

    fn device_of(&self, address: u64) -> Option<u32> {
        pointer_device(address)
    }
}

fn stream(raw: u64) -> StreamRef {
    // SAFETY: handles come from the libraries that own the streams, which keep them for as long as their users do; a
    // stream of another device is refused by the driver.
    unsafe { StreamRef::from_raw(raw) }
}

impl hal::Device for Device {
    fn id(&self) -> DeviceId {
        DeviceId::new(DeviceKind::CUDA, self.ordinal())
    }

    fn info(&self) -> &DeviceInfo {
        &self.facts
    }

    fn memory(&self) -> Result<MemoryInfo> {
        Ok(Device::memory(self)?)
    }

    fn any(&self) -> &dyn Any {
        self
    }

    fn hold(&self) -> Result<Box<dyn hal::Held>> {
        Ok(Box::new(self.context.hold()?))
    }

    fn alloc(self: Arc<Self>, bytes: u64, on: u64) -> Result<Box<dyn hal::Memory>> {
        Ok(Box::new(Device::pool(&self).alloc(bytes, stream(on))?))
    }

    fn pool(&self) -> PoolStats {
        self.blocks.stats()
    }

    fn trim(&self) -> Result<u64> {
        Ok(self.blocks.trim()?)
    }

    unsafe fn copy_in(&self, to: u64, from: &[u8], on: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        Ok(unsafe { Device::copy_in(self, to, from, stream(on)) }?)
    }

    unsafe fn copy_out(&self, to: &mut [u8], from: u64, on: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        Ok(unsafe { Device::copy_out(self, to, from, stream(on)) }?)
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, on: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.copy_on_device(to, from, bytes, stream(on)) }?)
    }

    unsafe fn fill(&self, to: u64, value: u8, bytes: u64, on: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        Ok(unsafe { Device::fill(self, to, value, bytes, stream(on)) }?)
    }

    fn stream(self: Arc<Self>) -> Result<Box<dyn hal::Stream>> {
        Ok(Box::new(Stream::new(&self)?))
    }

    unsafe fn check_stream(&self, on: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.expect_stream(on) }?)
    }

    fn synchronize(&self, on: u64) -> Result<()> {
        Ok(Device::synchronize(self, stream(on))?)
    }

    fn synchronize_all(&self) -> Result<()> {
        Ok(Device::synchronize_all(self)?)
    }

    fn is_idle(&self, on: u64) -> Result<bool> {
        Ok(self.is_stream_idle(stream(on))?)
    }

    fn is_capturing(&self, on: u64) -> Result<bool> {
        Ok(stream(on).is_capturing(self.context.api)?)
    }

    fn event(&self, timed: bool) -> Result<Box<dyn hal::Event>> {
        Ok(Box::new(if timed { Event::timed(self) } else { Event::new(self) }?))
    }

    fn load(
        self: Arc<Self>,
        image: &[u8],
        store: &dyn ObjectStore,
        about: &str,
    ) -> Result<Arc<dyn hal::Module>> {
        Ok(Module::load_cached(&self, image, &LoadOptions::default(), store, about)?)
    }

    fn workspace(self: Arc<Self>, on: u64, bytes: u64) -> Result<Option<u64>> {
        if bytes > WORKSPACE_BYTES {
            return Ok(None);
        }
        Ok(Device::workspace(&self, stream(on))?)
    }

    fn record(self: Arc<Self>) -> Result<Box<dyn hal::Recording>> {
        let stream = Box::new(Stream::new(&self)?);
        // SAFETY: the box keeps the stream in its place, and outlives the capture: see `Recorded`.
        let fixed: &'static Stream = unsafe { &*std::ptr::from_ref(&*stream) };
        let capture = fixed.begin_capture()?;
        Ok(Box::new(Recorded { capture, stream }))
    }
}

impl hal::Memory for DeviceBuffer {
    fn address(&self) -> u64 {
        DeviceBuffer::address(self)
    }

    fn bytes(&self) -> u64 {
        self.len()
    }

    fn device(&self) -> DeviceId {
        hal::Device::id(&**DeviceBuffer::device(self))
    }

    fn used_on(&self, on: u64) {
        DeviceBuffer::used_on(self, stream(on));
    }
}

impl hal::Stream for Stream {
    fn handle(&self) -> u64 {
        Stream::handle(self).raw()
    }

    fn device(&self) -> DeviceId {
        hal::Device::id(&**Stream::device(self))
    }
}

impl hal::Event for Event {
    fn record(&self, on: u64) -> Result<()> {
        Ok(Event::record(self, stream(on))?)
    }

    fn block(&self, on: u64) -> Result<()> {
        Ok(Event::block(self, stream(on))?)
    }

    fn is_past(&self) -> Result<bool> {
        Ok(Event::is_past(self)?)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(Event::synchronize(self)?)
    }

    fn seconds_since(&self, earlier: &dyn hal::Event) -> Result<f64> {
        let Some(earlier) = earlier.any().downcast_ref::<Event>() else {
            let message = "expected two events of one platform, got those of two";
            let error = Diagnostic::new(Code::E_LAUNCH_DEVICE_MISMATCH, message);
            return Err(error.help("measure between two events of one device").into());
        };
        Ok(f64::from(self.elapsed_since(earlier)?) * 1e-3)
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

impl hal::Module for Module {
    fn function(self: Arc<Self>, name: &str) -> Result<Arc<dyn hal::Function>> {
        Ok(Arc::new(Module::function(&self, name)?))
    }
}

impl hal::Function for Function {
    fn name(&self) -> &str {
        Function::name(self)
    }

    fn facts(&self) -> FunctionFacts {
        let made = self.attributes();
        FunctionFacts {
            registers: made.registers,
            local_bytes: made.local_bytes,
            static_shared_bytes: made.static_shared_bytes,
            max_threads: made.max_threads,
        }
    }

    fn resident_blocks(&self, threads: u32, shared: u32) -> Result<u32> {
        Ok(self.occupancy(threads, shared)?)
    }

    fn resident_clusters(&self, shape: &LaunchShape) -> Result<u32> {
        Ok(self.max_clusters(shape)?)
    }

    #[inline]
    unsafe fn launch(
        &self,
        shape: &LaunchShape,
        params: &[u8],
        starts: &[usize],
        on: u64,
    ) -> Result<()> {
        // SAFETY: the caller's promise.
        Ok(unsafe { Function::launch(self, shape, params, starts, stream(on)) }?)
    }

    fn prepared(
        self: Arc<Self>,
        shape: &LaunchShape,
        bytes: usize,
    ) -> Result<Option<Box<dyn hal::Prepared>>> {
        let made = Prepared::new(self, shape, bytes)?;
        Ok(made.map(|made| Box::new(made) as Box<dyn hal::Prepared>))
    }
}

impl hal::Prepared for Prepared {
    #[inline]
    unsafe fn launch(&self, params: &[u8], on: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        Ok(unsafe { Prepared::launch(self, params, stream(on)) }?)
    }
}

/// An open recording. The order of the fields matters: the capture is dropped before its stream.
struct Recorded {
    capture: Capture<'static>,
    stream: Box<Stream>,
}

impl hal::Recording for Recorded {
    fn stream(&self) -> u64 {
        self.stream.handle().raw()
    }

    fn end(self: Box<Self>, kept: Kept) -> Result<Box<dyn hal::Graph>> {
        let Recorded { capture, stream } = *self;
        let graph = capture.end()?;
        let (nodes, mut exec) = (graph.nodes()?, graph.instantiate()?);
        drop(stream);
        exec.keep(kept.functions);
        kept.memory.into_iter().for_each(|memory| exec.keep_buffer(memory));
        Ok(Box::new(Ready { exec, nodes }))
    }
}

struct Ready {
    exec: GraphExec,
    nodes: usize,
}

impl hal::Graph for Ready {
    fn nodes(&self) -> usize {
        self.nodes
    }

    unsafe fn launch(&self, on: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        Ok(unsafe { self.exec.launch(stream(on)) }?)
    }
}

impl From<CudaError> for DeviceError {
    fn from(error: CudaError) -> Self {
        let lost = error.sticky;
        DeviceError::boxed(error.into_diagnostic(), lost)
    }
}
