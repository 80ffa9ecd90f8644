//! The CUDA devices of this machine, for the binding: memory, streams, events, recordings. Streams
//! are known by their handles, as the libraries that they come from tell them; 0 is the default
//! one.

#[cfg(not(feature = "cuda"))]
mod absent;
#[cfg(feature = "cuda")]
mod here;

#[cfg(not(feature = "cuda"))]
pub use absent::*;
#[cfg(feature = "cuda")]
pub use here::*;

/// What there is to know of a device.
#[derive(Clone, Debug)]
pub struct DeviceRow {
    pub ordinal: u32,
    pub name: String,
    /// What code is made for: `sm_90a`.
    pub arch: String,
    pub capability: (u32, u32),
    pub multiprocessors: u32,
    pub memory_bytes: u64,
    pub free_bytes: u64,
    pub l2_bytes: u64,
    pub shared_bytes_per_block: u32,
    /// The newest CUDA that the driver serves: 13000 for 13.0.
    pub driver_version: u32,
    /// The newest PTX that it assembles.
    pub ptx: (u32, u32),
}

/// Bytes and counts of a device's pool.
#[derive(Copy, Clone, Debug, Default)]
pub struct MemoryStats {
    pub held: u64,
    pub in_use: u64,
    pub peak: u64,
    pub free_blocks: u64,
    pub reused: u64,
    pub allocated: u64,
    /// Of the whole device, all processes together.
    pub device_free: u64,
    pub device_total: u64,
}
