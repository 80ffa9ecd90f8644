//! The speed of a machine: the parameters of the cost model. Mostly ratios matter, so approximate
//! figures still lead to the right choice.

/// Bytes of an L2 cache line, the unit of requests to it.
pub const LINE: u64 = 128;

#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Speed {
    /// Units that run groups: multiprocessors, or threads.
    pub processors: u64,
    /// Clocks per second, in launches that keep the units busy.
    pub clock: f64,
    /// Multiply-adds of a processor per clock: of 16-bit elements on tensor cores (0 where there
    /// are none), and of f32 on its other units.
    pub matrix: f64,
    pub scalar: f64,
    /// The warps of a processor with which the other units reach 0.7 of that; 0 where one thread reaches all of it.
    pub warps: f64,
    /// Bytes that a processor holds in registers or its nearest cache: larger tiles go to memory
    /// and back.
    pub local_bytes: u64,
    /// Bytes of shared memory of a processor, for pipelines.
    pub shared_bytes: u64,
    /// Lines of [`LINE`] bytes that the L2 cache delivers per second, to all processors together.
    pub l2_lines_per_s: f64,
    /// Memory bandwidth in bytes per second.
    pub memory: f64,
    /// Memory latency in clocks, which loads in flight must cover.
    pub memory_latency: f64,
    /// Seconds of a group before it does anything, and resident groups without MMAs of a processor.
    pub group: f64,
    pub max_resident_blocks: u64,
    /// Seconds to fetch an instruction of a thread that none has executed before.
    pub fetch: f64,
    /// Seconds that a group waits for its loads from memory.
    pub wait: f64,
    /// The overhead of an output tile beside its MMAs (its first loads, its epilogue), as
    /// multiply-adds of each element.
    pub epilogue_overhead: f64,
    /// Seconds of one more launch.
    pub launch: f64,
}

impl Speed {
    /// A processor's multiply-adds per second on its tensor cores.
    pub fn matrix_rate(&self) -> f64 {
        (if self.matrix > 0.0 { self.matrix } else { self.scalar }) * self.clock
    }

    /// The same machine with another number of processors; memory and cache do not get faster with more.
    pub fn of_part(&self, processors: u32) -> Speed {
        let processors = u64::from(processors.max(1));
        let part = (processors as f64 / self.processors as f64).min(1.0);
        let (l2_lines_per_s, memory) = (self.l2_lines_per_s * part, self.memory * part);
        Speed { processors, l2_lines_per_s, memory, ..*self }
    }
}
