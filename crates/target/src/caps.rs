//! What a target has, as data. There is one description of a machine: passes, instruction selection, the cost model,
//! autotuning and reports read it, and none of them asks for an architecture by its name.

use crate::speed::Speed;
use std::collections::BTreeMap;
use tessera_numerics::{DType, ReduceOp};

/// A backend as users query it (`ts.runtime.capabilities()`).
#[derive(Clone, Debug, PartialEq)]
pub struct Caps {
    pub backend: &'static str,
    pub arch: String,
    /// Dtypes that tensor cores, or other MMA units, take natively.
    pub mma_dtypes: Vec<DType>,
    pub device_count: u32,
    pub memory_bytes: u64,
    pub machine: MachineCaps,
    /// Features that are emulated, with a word on how.
    pub emulated: BTreeMap<&'static str, &'static str>,
}

/// The machine that a backend makes code for.
#[derive(Clone, Debug, PartialEq)]
pub enum MachineCaps {
    Gpu(Box<GpuCaps>),
    Cpu(CpuCaps),
}

/// A processor with vectors, also as the interpreter of the tile language emulates one: lanes are elements of vectors.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct CpuCaps {
    /// Lanes that functions of warps act on.
    pub warp_size: u32,
    /// Lanes of a group.
    pub max_lanes: u32,
    /// Bytes of shared buffers that a group may have. As much as the largest GPU block has, so that what runs here can
    /// run there.
    pub shared_bytes: u32,
}

/// Bytes of shared buffers of a group where nothing else limits them.
pub const HOST_SHARED_BYTES: u32 = 228 << 10;

/// One kind of MMA instruction.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct MatrixRow {
    pub a: DType,
    pub b: DType,
    pub acc: DType,
    /// Elements along k of one instruction.
    pub k: u32,
}

/// One GPU architecture, or one device of it.
#[derive(Clone, PartialEq, Debug)]
pub struct GpuCaps {
    /// Lanes that run in lock step.
    pub warp_size: u32,
    pub max_threads_per_block: u32,
    /// Registers of 32 bits that a thread may have.
    pub registers_per_thread: u32,
    /// Of a multiprocessor. One block may have all of its registers.
    pub registers_per_sm: u32,
    pub threads_per_sm: u32,
    pub blocks_per_sm: u32,
    /// Shared memory bytes that a block may request, and those of a multiprocessor; each block costs `shared_reserved`
    /// more than it requests.
    pub shared_per_block: u32,
    pub shared_per_sm: u32,
    pub shared_reserved: u32,
    /// Multiprocessors of the device, or of a usual chip where there is no device.
    pub multiprocessors: u32,
    /// Blocks of the largest cluster that every chip can launch; 1 where there are no clusters.
    pub max_cluster: u32,
    pub l2_bytes: u64,
    /// Asynchronous copies to shared memory.
    pub async_copy: bool,
    /// MMA instructions of a warp.
    pub matrix: Vec<MatrixRow>,
    /// Asynchronous MMA instructions of a warpgroup, which read shared memory (WGMMA). Targets that have them also have
    /// TMA.
    pub async_mma: Vec<MatrixRow>,
    /// TMA reductions that give the bits that threads would give.
    pub folds: Vec<(ReduceOp, DType)>,
    /// Warps of a block may take registers from others (`setmaxnreg`).
    pub register_pools: bool,
    /// How fast it is, to choose between schedules.
    pub speed: Speed,
}

/// The part of the L2 cache that stays while other data is read.
const RETAINED: (u64, u64) = (32, 50);

impl GpuCaps {
    /// Bytes of the L2 cache that stay while other data is read: somewhat less than its size.
    pub fn retained_l2_bytes(&self) -> u64 {
        self.l2_bytes * RETAINED.0 / RETAINED.1
    }

    /// The same architecture with the number of multiprocessors of a device.
    pub fn on_device(&self, multiprocessors: u32) -> GpuCaps {
        let speed = self.speed.of_part(multiprocessors);
        GpuCaps { multiprocessors, speed, ..self.clone() }
    }
}

impl Caps {
    pub fn gpu(&self) -> Option<&GpuCaps> {
        match &self.machine {
            MachineCaps::Gpu(gpu) => Some(gpu),
            MachineCaps::Cpu(_) => None,
        }
    }

    /// Figures for the cost model, where the target has its own.
    pub fn speed(&self) -> Option<Speed> {
        self.gpu().map(|gpu| gpu.speed)
    }

    pub fn warp_size(&self) -> u32 {
        match &self.machine {
            MachineCaps::Gpu(gpu) => gpu.warp_size,
            MachineCaps::Cpu(cpu) => cpu.warp_size,
        }
    }
}
