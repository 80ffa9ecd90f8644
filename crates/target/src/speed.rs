//! How fast a machine is, roughly: the figures that ways to do the same are chosen by. Mostly ratios
//! matter, so that figures may be off by some and the choice still be right.

/// Bytes of a line of the cache that all processors share: what they ask it for at once.
pub const LINE: u64 = 128;

#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Speed {
    /// What runs groups: multiprocessors, or threads.
    pub processors: u64,
    /// Clocks of a second, in launches that keep the units busy.
    pub clock: f64,
    /// Multiply-adds of a processor in a clock: of elements of 16 bits by its matrix units (none: they
    /// are made like all others), and of f32 by its other units.
    pub matrix: f64,
    pub scalar: f64,
    /// Bytes that a processor holds close by: tiles that are larger go to memory and back.
    pub local_bytes: u64,
    /// Bytes of a processor that copies run ahead into.
    pub shared_bytes: u64,
    /// Lines of [`LINE`] bytes that the shared cache answers in a second, for all processors together.
    pub l2_lines_per_s: f64,
    /// Bytes of memory in a second.
    pub memory: f64,
    /// Clocks of the way to memory and back: what reads ahead must cover.
    pub memory_latency: f64,
    /// Seconds of a group before it does anything, and groups without products that a processor runs at once.
    pub group: f64,
    pub max_resident_blocks: u64,
    /// What a tile of sums costs beside its products (its first reads, its way out), as multiply-adds of each sum.
    pub epilogue_overhead: f64,
    /// Seconds of one more launch.
    pub launch: f64,
}

impl Speed {
    /// A processor's multiply-adds in a second, by its matrix units.
    pub fn matrix_rate(&self) -> f64 {
        (if self.matrix > 0.0 { self.matrix } else { self.scalar }) * self.clock
    }
}
