//! The backend interface: traits and plain data. The driver picks a backend, gives it Tile IR, and
//! launches the artifact it returns. [`device`] has the interface of devices. Services of the host for every launch, whatever the backend,
//! are here too: printing, and interruption.

pub mod arrays;
mod caps;
pub mod device;
mod footprint;
pub mod frame;
mod interrupt;
mod launch;
mod print;
mod share;
pub mod speed;
mod store;
mod worker;

pub use caps::{Caps, CpuCaps, GpuCaps, HOST_SHARED_BYTES, MachineCaps, MatrixRow};
pub use footprint::{BESIDE_TILES, Footprint};
pub use interrupt::{Poll, interruption, is_interrupt, set_interrupt_check};
pub use launch::{ArgValue, BufferArg, LaunchArgs, Packed, Queue, Settled};
pub use print::{set_print, show, show_elements, show_tile, tell};
pub use share::{most_threads, with_threads};
pub use store::{NoStore, ObjectStore};
pub use worker::{beside, deep, helper, is_helper};

use std::fmt;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::Attrs;
use tessera_numerics::Profile;
use tessera_support::Hash128;
use tessera_tile::TileFunc;

#[derive(Clone)]
pub struct CompileOptions {
    pub profile: Profile,
    /// Looked up before code is generated, and given what was; changes no result.
    pub store: Arc<dyn ObjectStore>,
    /// The stated layouts of arrays. Targets with code specialised for layouts compile for other
    /// arrays on demand.
    pub arrays: arrays::Said,
    /// The arrays of the call that it is compiled for, one for each parameter of the function that has one; empty where it is
    /// compiled without data. Only where and how they lie counts: code for them is what is compiled first.
    pub call: Vec<Option<BufferArg>>,
}

impl CompileOptions {
    /// Without a store: everything is compiled, for arrays of the usual layouts.
    pub fn new(profile: Profile) -> Self {
        Self { profile, store: Arc::new(NoStore), arrays: arrays::Said::new(), call: Vec::new() }
    }
}

impl fmt::Debug for CompileOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompileOptions").field("profile", &self.profile).finish_non_exhaustive()
    }
}

/// A kernel compiled for one target.
pub trait Artifact: Send + Sync {
    /// What the target's assembler gets, or what the target executes.
    fn target_text(&self) -> String;
    fn hash(&self) -> Hash128;
    /// The kernel after the target's own passes; none where there are no such passes.
    fn staged_text(&self) -> Option<String> {
        None
    }
    /// What it chose where the schedule leaves it open, by the config keys.
    fn chosen(&self) -> Attrs {
        Attrs::new()
    }
    /// Runs the kernel to its end and writes into the buffers of `args`, which are in host memory. A target with devices
    /// runs it on its first.
    fn launch(&self, args: &LaunchArgs) -> Result<(), Diagnostics>;
    /// The same on a given device: one of the architecture that the kernel is compiled for, which works on copies of the
    /// buffers. Targets that work in host memory have but one.
    fn launch_on(&self, args: &LaunchArgs, _device: device::DeviceId) -> Result<(), Diagnostics> {
        self.launch(args)
    }
    /// Enqueues the launch on the device that holds the buffers of `args`, and returns before it is
    /// complete where it can. Targets that work in host memory have no queues.
    fn enqueue(&self, args: &LaunchArgs, _queue: Queue) -> Result<(), Diagnostics> {
        self.launch(args)
    }
    /// The launch with everything prepared but addresses and scalars, to be replayed cheaply; none
    /// where there is nothing to gain, or where a launch is more than one enqueue.
    fn settle(&self, _args: &LaunchArgs, _queue: Queue) -> Option<Arc<dyn Settled>> {
        None
    }
    /// The same for launches that are run to their end in host memory.
    fn settle_here(&self, _args: &LaunchArgs) -> Option<Arc<dyn Settled>> {
        None
    }
    /// Notes on the code for the user, once.
    fn warnings(&self) -> Diagnostics {
        Diagnostics::new()
    }
    /// Figures of the compiled code, for `.explain()`: name and value.
    fn resources(&self) -> Vec<(&'static str, String)>;
    /// How much code it has in memory.
    fn code_bytes(&self) -> usize {
        0
    }
}

pub trait Backend: Send + Sync {
    fn name(&self) -> &'static str;
    /// The kind of devices in whose memory its launches work.
    fn memory(&self) -> device::DeviceKind {
        device::DeviceKind::CPU
    }
    /// Which of its targets this one compiles for, where a backend has several: the architecture with all that code
    /// depends on, and no device. With the name it is what generated code is kept by, so that devices of one architecture
    /// share it.
    fn target(&self) -> &str {
        ""
    }
    /// The device that launches on arrays in host memory run on, by copies where it has memory of its own.
    fn device(&self) -> device::DeviceId {
        device::DeviceId::new(self.memory(), 0)
    }
    fn caps(&self) -> Caps;
    /// The resources of a block of the function, for arrays of the stated layouts; none where they
    /// are not known before there is code.
    fn footprint(&self, _: &TileFunc, _: Profile, _: &arrays::Said) -> Option<Footprint> {
        None
    }
    /// `func` has been through the tile passes and is valid.
    fn compile(
        &self,
        func: &TileFunc,
        options: &CompileOptions,
    ) -> Result<Box<dyn Artifact>, Diagnostics>;
}
