//! How many blocks of how many threads a launch has.

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks along each axis. With a zero among them nothing is launched.
    pub grid: [u32; 3],
    /// Threads of a block, along one axis.
    pub block: u32,
    /// Blocks of a cluster along each axis; each divides the grid's.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// All blocks are resident together and may wait for each other.
    pub cooperative: bool,
    /// The kernel may begin before the one in front of it has ended, up to where it waits for it.
    pub programmatic: bool,
}

impl LaunchShape {
    pub const fn new(grid: [u32; 3], block: u32) -> Self {
        Self { grid, block, cluster: None, shared: 0, cooperative: false, programmatic: false }
    }

    /// Whether grid, block and shared memory are all there is to it.
    pub const fn is_plain(&self) -> bool {
        self.cluster.is_none() && !self.cooperative && !self.programmatic
    }
}
