//! What a block of a kernel takes of a processor, found before there is code for it: candidates are distinguished by it.

use tessera_diag::Loc;

#[derive(Clone, Debug, PartialEq)]
pub struct Footprint {
    /// Threads of a block.
    pub threads: u32,
    /// The 32-bit registers that tiles take in a thread, where they take the most of what it may have.
    pub tiles: u32,
    /// What that thread may have.
    pub registers: u32,
    /// Where tiles take the most, in the user's source.
    pub widest: Loc,
    /// Whether products run on the tensor cores beside the threads; none where there are no products, or no async_mma.
    pub async_mma: Option<bool>,
}

/// What code needs at least beside tiles: addresses, counters, masks. Among the kernels of docs/perf/untuned.md those with
/// so many left had at most a few bytes of spills.
pub const BESIDE_TILES: u32 = 16;

impl Footprint {
    /// The registers of a thread that do not fit: they go to memory and back.
    pub fn spilled(&self) -> u32 {
        (self.tiles + BESIDE_TILES).saturating_sub(self.registers)
    }
}
