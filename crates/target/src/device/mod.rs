//! Devices: what the driver needs of one, whatever its vendor.
//!
//! A [`Platform`] is a kind of devices and its driver library: host memory, CUDA, and later HIP and Level Zero. A
//! [`Device`] is one of them. The driver crate keeps a registry of platforms and names devices by [`DeviceId`]; only the
//! file that fills the registry, and the module that compiles for a kind, know which kinds there are. `runtime/host` and
//! `runtime/cuda` implement the traits, and the crate `fake-device` does for tests.
//!
//! **Memory** comes from the device's pool in the order of a stream: [`Device::alloc`] gives memory for work on this
//! stream, and dropping it gives it back in the same order. Who uses it on another stream says so
//! ([`Memory::used_on`]), and the pool then reuses it only behind that work. Addresses are numbers. The host must not
//! read or write through them.
//!
//! **Streams** are orders of work, named by a handle of 64 bits, because most handles belong to other libraries. 0 is
//! the default stream, which every device has. Work on one stream runs in order; nothing else orders work of two
//! streams but events: [`Event::record`] marks a point on one, [`Event::block`] lets another wait for it, on this
//! device or on another one of the platform. No method but the `synchronize` family and [`Device::copy_out`] waits for
//! the device. Those poll [`crate::Poll`], so that an interrupt ends the wait; the device goes on.
//!
//! Many ranks in one process are many streams of one device. Each rank has a [`Stream`] of its own, a collective
//! records an event on each, lets the stream that combines wait for them, and lets each wait for the result. A transport
//! between processes needs the same four calls and an address.
//!
//! **Code** belongs to an architecture; a device loads an image of it ([`Device::load`]). What is assembled on the way is
//! kept in an [`ObjectStore`] under a key that names the architecture and no device, and [`LoadedCode`] holds what was loaded
//! where. A [`Function`] is launched with the bytes of its parameters. That call is the hot path: one
//! virtual call, no allocation, and no lock that the platform's own driver does not take.
//!
//! **Recordings** ([`Device::record`]) collect the work of one stream, given by one thread, as a [`Graph`] that runs it
//! as one. A graph keeps the functions and the memory that it uses ([`Kept`]).
//!
//! **Workspaces**: [`Device::workspace`] is a small piece of memory of a stream that kernels find zero and leave zero.
//!
//! **Errors** are [`DeviceError`]: one diagnostic, and whether the device is lost for this process. `?` makes
//! `Diagnostics` of it. A method that fails has changed nothing, except that a lost device does nothing more. Errors
//! of work itself are reported by the next wait.
//!
//! Methods that believe an address or a handle are `unsafe`. Everything else is checked.

mod error;
mod facts;
mod id;
mod loaded;
mod shape;

pub use error::DeviceError;
pub use facts::{DeviceInfo, FunctionFacts, MemoryInfo, PoolStats};
pub use id::{DeviceId, DeviceKind};
pub use loaded::LoadedCode;
pub use shape::LaunchShape;

use crate::ObjectStore;
use std::any::Any;
use std::sync::Arc;
use tessera_diag::Diagnostic;

pub type Result<T> = std::result::Result<T, DeviceError>;

/// A kind of devices, with the library that drives them. Nothing is initialised before a method is called.
pub trait Platform: Send + Sync {
    fn kind(&self) -> DeviceKind;
    /// Names that users may write for the kind, beside its own.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }
    /// Why no device can be used, where none can: a sentence, with the cure as its help.
    fn missing(&self) -> Option<Diagnostic>;
    /// How many devices there are; 0 where something is missing.
    fn count(&self) -> u32;
    /// The device of this number; the same one each time.
    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>>;
    /// The device whose memory an address is.
    fn device_of(&self, address: u64) -> Option<u32>;
}

pub trait Device: Send + Sync {
    fn id(&self) -> DeviceId;
    fn info(&self) -> &DeviceInfo;
    /// Bytes of the device, of all processes together.
    fn memory(&self) -> Result<MemoryInfo>;
    /// The platform's own type, for the module that compiles for the kind.
    fn any(&self) -> &dyn Any;

    /// What platforms do before each call for the device, done once for calls in a row on this thread: while the guard lives, no
    /// code of others runs on it.
    fn hold(&self) -> Result<Box<dyn Held>> {
        Ok(Box::new(()))
    }

    /// At least `bytes` bytes for work on the stream, aligned to 256. The contents are not defined. Refused while the
    /// stream is being recorded: a graph would use what the pool gives to others between its launches.
    fn alloc(self: Arc<Self>, bytes: u64, stream: u64) -> Result<Box<dyn Memory>>;
    fn pool(&self) -> PoolStats;
    /// Gives kept memory that is not in use back to the device, behind the work that may touch it; says how much.
    fn trim(&self) -> Result<u64>;

    /// Copies bytes to the device, in the stream's order. `from` may change when this returns.
    ///
    /// # Safety
    /// `to` is memory of this device for all bytes until the stream has run the copy.
    unsafe fn copy_in(&self, to: u64, from: &[u8], stream: u64) -> Result<()>;
    /// Copies bytes to the host, behind the stream's work so far. They are there when this returns.
    ///
    /// # Safety
    /// `from` is memory of this device for all bytes.
    unsafe fn copy_out(&self, to: &mut [u8], from: u64, stream: u64) -> Result<()>;
    /// Copies bytes between places of this device, or of a peer of its platform, in the stream's order.
    ///
    /// # Safety
    /// Both are memory for all bytes until the stream has run the copy, and do not overlap.
    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, stream: u64) -> Result<()>;
    /// Sets every byte, in the stream's order.
    ///
    /// # Safety
    /// As for [`Self::copy_in`].
    unsafe fn fill(&self, to: u64, value: u8, bytes: u64, stream: u64) -> Result<()>;

    /// A stream beside the default one. It waits for no other.
    fn stream(self: Arc<Self>) -> Result<Box<dyn Stream>>;
    /// Checks that a handle of another library is a stream of this device.
    ///
    /// # Safety
    /// It is the handle of a stream that exists.
    unsafe fn check_stream(&self, stream: u64) -> Result<()>;
    /// Waits for the work of the stream so far.
    fn synchronize(&self, stream: u64) -> Result<()>;
    /// Waits for all work that this process has given the device, on every stream.
    fn synchronize_all(&self) -> Result<()>;
    fn is_idle(&self, stream: u64) -> Result<bool>;
    /// Whether the stream is being recorded, by whatever library.
    fn is_capturing(&self, stream: u64) -> Result<bool>;

    /// An event, not recorded yet; a timed one measures ([`Event::seconds_since`]).
    fn event(&self, timed: bool) -> Result<Box<dyn Event>>;

    /// Loads code. What is assembled for it comes from the store where another device of this architecture put it there;
    /// `about` is the store's line for people.
    fn load(
        self: Arc<Self>,
        image: &[u8],
        store: &dyn ObjectStore,
        about: &str,
    ) -> Result<Arc<dyn Module>>;
    /// The address of the stream's memory for kernels that find it zero and leave it zero; `None` where it is smaller
    /// than `bytes`, or while the stream is being recorded.
    fn workspace(self: Arc<Self>, stream: u64, bytes: u64) -> Result<Option<u64>>;

    /// Begins to record what this thread gives to a stream of the recording's own.
    fn record(self: Arc<Self>) -> Result<Box<dyn Recording>>;
}

/// Memory of a device's pool, which has it back when this is dropped.
pub trait Memory: Send + Sync {
    fn address(&self) -> u64;
    /// As many as were requested.
    fn bytes(&self) -> u64;
    fn device(&self) -> DeviceId;
    /// Says that work on another stream than that of its allocation uses it.
    fn used_on(&self, stream: u64);
}

/// A stream of our own; its work goes on when this is dropped.
pub trait Stream: Send + Sync {
    fn handle(&self) -> u64;
    fn device(&self) -> DeviceId;
}

/// A point in a stream's work.
pub trait Event: Send + Sync {
    /// Marks the point behind the stream's work so far; it may be recorded again.
    fn record(&self, stream: u64) -> Result<()>;
    /// Later work of the stream begins behind the point. The host does not wait.
    fn block(&self, stream: u64) -> Result<()>;
    /// Whether the work before the point is done; yes where it was never recorded.
    fn is_past(&self) -> Result<bool>;
    fn synchronize(&self) -> Result<()>;
    /// Seconds from an earlier event; both are timed, of one device, and past.
    fn seconds_since(&self, earlier: &dyn Event) -> Result<f64>;
    /// The platform's own type, for `seconds_since`.
    fn any(&self) -> &dyn Any;
}

/// Loaded code.
pub trait Module: Send + Sync {
    fn function(self: Arc<Self>, name: &str) -> Result<Arc<dyn Function>>;
}

/// A kernel on a device. It keeps its module.
/// See [`Device::hold`].
pub trait Held {}

impl Held for () {}

pub trait Function: Send + Sync {
    fn name(&self) -> &str;
    fn facts(&self) -> FunctionFacts;
    /// Blocks of this many threads and bytes of dynamic shared memory that are resident on a processor together.
    fn resident_blocks(&self, threads: u32, shared: u32) -> Result<u32>;
    /// Clusters of this shape that are resident on the device together.
    fn resident_clusters(&self, shape: &LaunchShape) -> Result<u32>;
    /// Launches it, in the stream's order. `params` are the bytes of all parameters as in a C structure, `starts` where
    /// each begins; with less than two they are one.
    ///
    /// # Safety
    /// The parameters are what the kernel takes. The memory that it accesses exists, without conflicting accesses,
    /// until the stream is past the launch. The stream is of this device.
    unsafe fn launch(
        &self,
        shape: &LaunchShape,
        params: &[u8],
        starts: &[usize],
        stream: u64,
    ) -> Result<()>;
    /// The launch of one shape with one block of this many bytes of parameters, checked for all times; None where that saves
    /// nothing.
    fn prepared(
        self: Arc<Self>,
        _: &LaunchShape,
        _bytes: usize,
    ) -> Result<Option<Box<dyn Prepared>>> {
        Ok(None)
    }
}

/// See [`Function::prepared`].
pub trait Prepared: Send + Sync {
    /// Launches it, in the stream's order.
    ///
    /// # Safety
    /// As for [`Function::launch`]; there are as many bytes as were said.
    unsafe fn launch(&self, params: &[u8], stream: u64) -> Result<()>;
}

/// What the work of a graph uses, for as long as the graph lives.
#[derive(Default)]
pub struct Kept {
    pub functions: Vec<Arc<dyn Function>>,
    pub memory: Vec<Box<dyn Memory>>,
}

/// An open recording. It ends on the thread it began on; one that is dropped is given up.
pub trait Recording {
    /// The stream whose work is recorded.
    fn stream(&self) -> u64;
    /// Ends it. Fails where something could not be recorded.
    fn end(self: Box<Self>, kept: Kept) -> Result<Box<dyn Graph>>;
}

/// Recorded work, ready to run any number of times.
pub trait Graph: Send + Sync {
    /// How many operations it has.
    fn nodes(&self) -> usize;
    /// Runs all of it, in the stream's order.
    ///
    /// # Safety
    /// What holds for each recorded launch holds now.
    unsafe fn launch(&self, stream: u64) -> Result<()>;
}
