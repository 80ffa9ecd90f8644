//! The resources of a kernel's block, estimated before code is generated, to compare candidate
//! schedules.

use tessera_diag::Loc;

#[derive(Clone, Debug, PartialEq)]
pub struct Footprint {
    /// Threads of a block.
    pub threads: u32,
    /// The 32-bit registers of a thread for tiles, at the role where they take the largest share of
    /// its registers.
    pub tiles: u32,
    /// The registers that this thread may have.
    pub registers: u32,
    /// Where tiles take the most, in the user's source.
    pub widest: Loc,
    /// Whether all MMAs are asynchronous; none where there are no MMAs, or no asynchronous ones on
    /// the target.
    pub async_mma: Option<bool>,
    /// The fewest stages of the pipelines that loops of MMAs read; 1 where such a loop waits for
    /// loads of its own iteration. None where no MMA reads what its loop loads.
    pub stages: Option<u32>,
    /// Blocks that a multiprocessor holds, by threads, by registers and by the shared memory of
    /// pipelines and buffers.
    pub resident: u32,
}

/// Registers that code needs beside tiles: addresses, counters, masks. Among the kernels of
/// docs/perf/untuned.md, those with this many left had at most a few bytes of spills.
pub const BESIDE_TILES: u32 = 16;

impl Footprint {
    /// The registers of a thread that do not fit and are spilled.
    pub fn spilled(&self) -> u32 {
        (self.tiles + BESIDE_TILES).saturating_sub(self.registers)
    }
}
