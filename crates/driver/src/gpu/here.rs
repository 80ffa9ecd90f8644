//! The devices that are there.

use super::{DeviceRow, MemoryStats};
use crate::knobs;
use crate::pack::{gather, is_packed, packed_bytes, reach, scatter};
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_runtime::cuda;
use tessera_support::ForkLock;
use tessera_target::{BufferArg, Queue};

/// What is missing for code to run on a device, if something is.
pub fn missing() -> Option<String> {
    cuda::present().err().map(|absent| absent.to_string())
}

pub(crate) fn device(ordinal: u32) -> Result<Arc<cuda::Device>, Diagnostics> {
    Ok(cuda::Device::get(ordinal)?)
}

pub(crate) fn stream(raw: u64) -> cuda::StreamRef {
    // SAFETY: handles come from the libraries that own the streams, which keep them for as long as
    // their users do; a stream of another device is refused by the driver.
    unsafe { cuda::StreamRef::from_raw(raw) }
}

/// All devices. Opens each of them.
pub fn devices() -> Result<Vec<DeviceRow>, Diagnostics> {
    let present = cuda::present().map_err(cuda::CudaError::from)?;
    (0..present.devices).map(row).collect()
}

fn row(ordinal: u32) -> Result<DeviceRow, Diagnostics> {
    let device = device(ordinal)?;
    let info = device.info();
    let memory = device.memory()?;
    let (major, minor) = info.capability;
    let caps = tessera_ptx::PtxCaps::for_device(major, minor);
    Ok(DeviceRow {
        ordinal,
        name: info.name.clone(),
        arch: caps.map_or_else(|| info.arch(), |caps| caps.target.to_string()),
        capability: info.capability,
        multiprocessors: info.multiprocessors,
        memory_bytes: memory.total,
        free_bytes: memory.free,
        l2_bytes: info.l2_bytes,
        shared_bytes_per_block: info.shared_per_block_opt_in,
        driver_version: info.driver_version,
        ptx: info.ptx_isa,
    })
}

/// The device that an address belongs to; device 0 where the driver does not know.
pub fn device_of(address: u64) -> u32 {
    cuda::pointer_device(address).unwrap_or(0)
}

/// Waits for the work of one stream, or for all work of the device.
pub fn synchronize(ordinal: u32, on: Option<u64>) -> Result<(), Diagnostics> {
    let device = device(ordinal)?;
    match on {
        Some(raw) => device.synchronize(stream(raw)),
        None => device.synchronize_all(),
    }
    .map_err(of_launch)
}

pub fn memory_stats(ordinal: u32) -> Result<MemoryStats, Diagnostics> {
    let device = device(ordinal)?;
    let (pool, memory) = (device.pool().stats(), device.memory()?);
    Ok(MemoryStats {
        held: pool.held,
        in_use: pool.in_use,
        peak: pool.peak,
        free_blocks: pool.free_blocks,
        reused: pool.reused,
        allocated: pool.allocated,
        device_free: memory.free,
        device_total: memory.total,
    })
}

/// Gives memory that is kept and not used back to the device; says how much.
pub fn trim(ordinal: u32) -> Result<u64, Diagnostics> {
    Ok(device(ordinal)?.pool().trim()?)
}

/// The assembler beside the driver's own, for people: where it is and its version. It is looked for
/// in folders of Python packages too.
pub fn ptxas(packages: &[PathBuf]) -> Result<String, Diagnostics> {
    let named = knobs::PTXAS.path();
    let found = cuda::ptxas::Ptxas::find(named.as_deref(), packages)?;
    Ok(format!("{}, {}", found.path.display(), found.build))
}

/// Memory of a device's pool, or memory lent by another owner.
pub struct Memory {
    held: Held,
    /// The stream of the last work on it.
    last: AtomicU64,
}

enum Held {
    Own(cuda::DeviceBuffer),
    Lent { address: u64, device: u32, bytes: u64 },
}

impl Memory {
    pub fn new(queue: Queue, bytes: u64) -> Result<Self, Diagnostics> {
        let buffer = device(queue.device)?.pool().alloc(bytes, stream(queue.stream))?;
        Ok(Self { held: Held::Own(buffer), last: AtomicU64::new(queue.stream) })
    }

    /// Memory whose owner keeps it, and what is done with it in the order of the queue.
    pub fn lent(address: u64, bytes: u64, queue: Queue) -> Self {
        let held = Held::Lent { address, device: queue.device, bytes };
        Self { held, last: AtomicU64::new(queue.stream) }
    }

    pub fn address(&self) -> u64 {
        match &self.held {
            Held::Own(buffer) => buffer.address(),
            Held::Lent { address, .. } => *address,
        }
    }

    pub fn device(&self) -> u32 {
        match &self.held {
            Held::Own(buffer) => buffer.device().ordinal(),
            Held::Lent { device, .. } => *device,
        }
    }

    /// The stream whose work so far must be over before another uses it.
    pub fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Says that work on this stream uses it.
    pub fn used_on(&self, on: u64) {
        if self.last.swap(on, Ordering::AcqRel) != on
            && let Held::Own(buffer) = &self.held
        {
            buffer.used_on(stream(on));
        }
    }

    /// Sets every byte.
    pub fn fill(&self, value: u8, on: u64) -> Result<(), Diagnostics> {
        self.used_on(on);
        match &self.held {
            Held::Own(buffer) => Ok(buffer.set(0, buffer.len(), value, stream(on))?),
            Held::Lent { address, device: ordinal, bytes } => {
                let all = vec![value; *bytes as usize];
                // SAFETY: the owner lends these bytes.
                Ok(unsafe { device(*ordinal)?.copy_in(*address, &all, stream(on)) }?)
            }
        }
    }
}

/// Launches with memory for this one launch, whose address `launch` gets. It is zero when the launch
/// begins, also each time that a recorded one is done again.
pub(crate) fn with_context(
    queue: Queue,
    bytes: u64,
    launch: impl FnOnce(u64) -> Result<(), Diagnostics>,
) -> Result<(), Diagnostics> {
    let device = device(queue.device)?;
    let on = stream(queue.stream);
    // SAFETY: as in `stream`.
    let captured = unsafe { cuda::Stream::borrow(&device, queue.stream) }?.is_capturing()?;
    // The pool has no order of work on a stream that is recorded.
    let home = if captured { cuda::StreamRef::LEGACY } else { on };
    let buffer = device.pool().alloc(bytes, home)?;
    buffer.set(0, bytes, 0, on)?;
    launch(buffer.address())?;
    if captured {
        RECORDING.with_borrow_mut(|now| match now {
            Some(recording) => recording.buffers.push(buffer),
            // Another library's capture: there is no notice when its graph is destroyed.
            None => std::mem::forget(buffer),
        });
    }
    Ok(())
}

/// The same for launches that leave the memory zero (`Code::leaves_zero`): those of a stream share it.
pub(crate) fn with_workspace(
    queue: Queue,
    bytes: u64,
    launch: impl FnOnce(u64) -> Result<(), Diagnostics>,
) -> Result<(), Diagnostics> {
    let own = match bytes <= cuda::WORKSPACE_BYTES {
        true => device(queue.device)?.workspace(stream(queue.stream))?,
        false => None,
    };
    match own {
        Some(address) => launch(address),
        None => with_context(queue, bytes, launch),
    }
}

/// Reads the elements of an array on a device, packed, after the stream's work so far.
pub fn read(view: &BufferArg, queue: Queue, to: &mut [u8]) -> Result<(), Diagnostics> {
    let device = device(queue.device)?;
    let on = stream(queue.stream);
    if packed_bytes(view) == 0 {
        return Ok(());
    }
    if is_packed(view) {
        // SAFETY: the view is memory of the device, as its owner says.
        return unsafe { device.copy_out(to, view.data as u64, on) }.map_err(of_launch);
    }
    let (low, span) = fetch_span(&device, view, on)?;
    // SAFETY: the span covers all positions of the view, and `to` is for all elements.
    unsafe {
        let first = span.as_ptr().offset(-low as isize);
        gather(first, &view.dims, &view.strides, view.dtype.bytes(), to.as_mut_ptr());
    }
    Ok(())
}

/// Writes the elements of an array on a device; `from` has them packed. Bytes between the elements
/// keep their values, unless another stream writes them meanwhile.
pub fn write(view: &BufferArg, queue: Queue, from: &[u8]) -> Result<(), Diagnostics> {
    let device = device(queue.device)?;
    let on = stream(queue.stream);
    if packed_bytes(view) == 0 {
        return Ok(());
    }
    if is_packed(view) {
        // SAFETY: the view is memory of the device, as its owner says.
        return unsafe { device.copy_in(view.data as u64, from, on) }.map_err(of_launch);
    }
    let (low, mut span) = fetch_span(&device, view, on)?;
    // SAFETY: as in `read`.
    unsafe {
        let first = span.as_mut_ptr().offset(-low as isize);
        scatter(first, &view.dims, &view.strides, view.dtype.bytes(), from.as_ptr());
        device.copy_in((view.data as u64).wrapping_add_signed(low), &span, on)?;
    }
    Ok(())
}

/// The span of bytes of a view, and the distance from its begin to the first element.
fn fetch_span(
    device: &cuda::Device,
    view: &BufferArg,
    on: cuda::StreamRef,
) -> Result<(i64, Vec<u8>), Diagnostics> {
    let (low, high) = reach(view);
    let mut span = vec![0; (high - low) as usize];
    // SAFETY: the view is memory of the device, as its owner says.
    unsafe { device.copy_out(&mut span, (view.data as u64).wrapping_add_signed(low), on) }
        .map_err(of_launch)?;
    Ok((low, span))
}

/// Copies bytes from one place of a device to another.
pub fn copy_on_device(to: u64, from: u64, bytes: u64, queue: Queue) -> Result<(), Diagnostics> {
    // SAFETY: both are memory that their owners keep; the binding has checked the sizes.
    Ok(unsafe { device(queue.device)?.copy_on_device(to, from, bytes, stream(queue.stream)) }?)
}

/// A stream of our own.
pub struct Stream(cuda::Stream);

impl Stream {
    pub fn new(ordinal: u32) -> Result<Self, Diagnostics> {
        Ok(Self(cuda::Stream::new(&device(ordinal)?)?))
    }

    pub fn handle(&self) -> u64 {
        self.0.handle().raw()
    }

    pub fn device(&self) -> u32 {
        self.0.device().ordinal()
    }
}

/// A point in a stream's work.
pub struct Mark(cuda::Event);

impl Mark {
    /// Records an event after the stream's work so far; `timed` ones record the time.
    pub fn new(queue: Queue, timed: bool) -> Result<Self, Diagnostics> {
        let device = device(queue.device)?;
        let event = if timed { cuda::Event::timed(&device) } else { cuda::Event::new(&device) }?;
        event.record(stream(queue.stream))?;
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
        Ok(f64::from(self.0.elapsed_since(&earlier.0)?) * 1e-3)
    }
}

/// Makes the stream wait for what others have been given so far. The host does not wait. A
/// recording has nothing to wait for: all was done when it began.
pub fn wait_for(queue: Queue, others: &[u64]) -> Result<(), Diagnostics> {
    if is_recording() {
        return Ok(());
    }
    for &other in others.iter().filter(|&&other| other != queue.stream) {
        let mark = Mark::new(Queue { stream: other, ..queue }, false)?;
        let device = device(queue.device)?;
        // SAFETY: as in `stream`.
        unsafe { cuda::Stream::borrow(&device, queue.stream) }?.wait_event(&mark.0)?;
    }
    Ok(())
}

/// Makes others wait for what the stream has been given so far.
pub fn hold_back(queue: Queue, others: &[u64]) -> Result<(), Diagnostics> {
    others.iter().try_for_each(|&other| {
        wait_for(Queue { stream: other, ..queue }, std::slice::from_ref(&queue.stream))
    })
}

/// Launches recorded once, to be done again as one.
pub struct Graph {
    exec: cuda::GraphExec,
    nodes: usize,
    device: u32,
}

impl Graph {
    /// How many launches and copies it holds.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    pub fn device(&self) -> u32 {
        self.device
    }

    pub fn replay(&self, on: u64) -> Result<(), Diagnostics> {
        // SAFETY: the binding keeps all arrays that were used in the recording.
        unsafe { self.exec.launch(stream(on)) }?;
        queued(Queue { device: self.device, stream: on });
        Ok(())
    }
}

/// The open recording of this thread. The order of the fields matters: the recording is dropped
/// before its stream.
struct Recording {
    capture: cuda::Capture<'static>,
    stream: Box<cuda::Stream>,
    /// What is launched: a graph needs it for as long as it is replayed.
    functions: Vec<Arc<cuda::Function>>,
    /// Memory of launches.
    buffers: Vec<cuda::DeviceBuffer>,
}

thread_local! {
    static RECORDING: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// Begins to record what this thread gives to a stream of its own, whose handle it gives. What was
/// given to the device before is waited for: a recording cannot wait for it.
pub fn begin_recording(ordinal: u32) -> Result<u64, Diagnostics> {
    RECORDING.with_borrow_mut(|now| {
        if now.is_some() {
            let message = "expected no recording inside another, got one";
            return Err(Diagnostic::new(Code::E_CAPTURE, message).into());
        }
        let device = device(ordinal)?;
        device.synchronize_all()?;
        let stream = Box::new(cuda::Stream::new(&device)?);
        // SAFETY: the box keeps the stream in its place, and outlives the recording: see above.
        let fixed: &'static cuda::Stream = unsafe { &*std::ptr::from_ref(&*stream) };
        let capture = fixed.begin_capture()?;
        let handle = fixed.handle().raw();
        *now = Some(Recording { capture, stream, functions: Vec::new(), buffers: Vec::new() });
        Ok(handle)
    })
}

/// Ends the recording of this thread.
pub fn end_recording() -> Result<Graph, Diagnostics> {
    let Some(Recording { capture, stream, functions, buffers }) = RECORDING.take() else {
        let message = "expected a recording on this thread, got none";
        return Err(Diagnostic::new(Code::E_CAPTURE, message).into());
    };
    let device = stream.device().ordinal();
    let graph = capture.end()?;
    let (nodes, mut exec) = (graph.nodes()?, graph.instantiate()?);
    exec.keep(functions);
    buffers.into_iter().for_each(|buffer| exec.keep_buffer(buffer));
    Ok(Graph { exec, nodes, device })
}

/// Whether this thread records.
pub fn is_recording() -> bool {
    RECORDING.with_borrow(Option::is_some)
}

/// Gives up the recording of this thread, if there is one.
pub fn drop_recording() {
    RECORDING.take();
}

/// An error that a wait brought up: of a kernel that was launched before, most likely the last.
fn of_launch(error: cuda::CudaError) -> Diagnostics {
    let last = LAST.lock().clone().filter(|_| error.sticky);
    let Some(about) = last else { return error.into() };
    let mut found = Diagnostic::from(error);
    found.notes.push(format!("the last launch before was of `{}`", about.name));
    if !found.loc.is_known() {
        found.loc = about.loc.clone();
    }
    found.into()
}

static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static LAST_STREAM: AtomicU64 = AtomicU64::new(0);
static LAST_DEVICE: AtomicU32 = AtomicU32::new(0);

/// A kernel as errors name it.
pub(crate) struct About {
    pub name: String,
    pub loc: Loc,
}

/// What was launched last: a device that fails later does not say what made it.
static LAST: ForkLock<Option<Arc<About>>> = ForkLock::new(None);

/// A launch was put on a stream: it is counted for `ts.bench`, and kept if it was recorded.
#[inline]
pub(crate) fn launched(function: &Arc<cuda::Function>, about: &Arc<About>, queue: Queue) {
    let mut last = LAST.lock();
    if !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, about)) {
        *last = Some(about.clone());
    }
    drop(last);
    RECORDING.with_borrow_mut(|now| {
        if let Some(recording) = now {
            recording.functions.push(function.clone());
        }
    });
    queued(queue);
}

fn queued(queue: Queue) {
    LAST_STREAM.store(queue.stream, Ordering::Relaxed);
    LAST_DEVICE.store(queue.device, Ordering::Relaxed);
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
}

/// How many launches were put on streams so far, and where the last one went.
pub fn launches() -> (u64, Queue) {
    let device = LAST_DEVICE.load(Ordering::Relaxed);
    let stream = LAST_STREAM.load(Ordering::Relaxed);
    (LAUNCHES.load(Ordering::Relaxed), Queue { device, stream })
}
