//! Figures of devices, their memory and their functions.

/// The properties of a device that do not change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceInfo {
    /// As its maker calls it.
    pub name: String,
    /// The architecture as the platform names it.
    pub arch: String,
    /// The version of the architecture: (9, 0).
    pub capability: (u32, u32),
    /// Units that run blocks.
    pub processors: u32,
    /// Lanes that run in lock step; 1 where there are no warps.
    pub lanes: u32,
    pub memory_bytes: u64,
    pub l2_bytes: u64,
    /// What a block may have, requested by attribute where the platform wants that.
    pub shared_bytes_per_block: u32,
    /// The driver, for records of measurements.
    pub driver: String,
    /// Versions for people, by the names that `ts.runtime.devices()` has for them.
    pub versions: Vec<(&'static str, String)>,
}

/// Bytes of a device, of all processes together.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryInfo {
    pub free: u64,
    pub total: u64,
}

/// Bytes and counts of one pool.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes taken from the device, used or kept for use.
    pub held: u64,
    pub in_use: u64,
    /// The most that was ever in use.
    pub peak: u64,
    pub free_blocks: u64,
    /// Requests that were served from kept blocks, and those that went to the driver.
    pub reused: u64,
    pub allocated: u64,
}

/// What the assembler made of a kernel.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionFacts {
    pub registers: u32,
    /// Local memory of each thread, in bytes: spills and arrays.
    pub local_bytes: u32,
    pub static_shared_bytes: u32,
    pub max_threads: u32,
}
