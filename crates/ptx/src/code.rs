//! The result of compilation.

use crate::module::{Kernel, Module};
use crate::reports::{self, Printing};
use crate::stamps::{self, Stamp};
use tessera_diag::{Diagnostics, Loc};
use tessera_ir::Attrs;
use tessera_support::{Hash128, StableHasher};
use tessera_target::LaunchArgs;

pub use crate::maps::{MAP_ALIGN, MAP_BYTES, MapRecipe, Placed, map_word, push_map};
pub use tessera_target::arrays::{ArrayClass, Classes, WIDEST, classes_said, usual_classes};

/// The context: memory beside the arguments that some code needs; the word `frame::CONTEXT` is its
/// address. It is zero before a launch.
pub mod context {
    /// The number of the fault site.
    pub const STATUS: i64 = 0;
    /// How many groups have started, where groups fold in order; how many tiles were taken, with a
    /// dynamic tile scheduler.
    pub const TICKET: i64 = 4;
    /// The number of the group that may fold next.
    pub const SEMAPHORE: i64 = 8;
    /// Bytes of print records, including those that did not fit. Records follow these words; see
    /// `reports`.
    pub const PRINTED: i64 = 12;
    pub const BYTES: u32 = 16;
    /// Bytes of records that are kept.
    pub const ROOM: u32 = 1 << 20;
}

/// A place where running code can report a fault: number `i` is `i + 1` in the status word.
#[derive(Clone, Debug)]
pub struct Site {
    pub message: String,
    pub loc: Loc,
}

/// A kernel as PTX, with everything its launch needs.
#[derive(Clone, Debug)]
pub struct Code {
    /// One kernel. Its first parameter is the block of argument words of `Frame`.
    pub module: Module,
    pub shape: Shape,
    /// Where the code can stop a launch; the status word of its context says which.
    pub sites: Vec<Site>,
    /// How each tensor map is made at a launch. They are the kernel's parameters after the first,
    /// in this order, each [`MAP_BYTES`] long at a multiple of [`MAP_ALIGN`].
    pub maps: Vec<MapRecipe>,
    /// What its `print` ops print, by their numbers in the records.
    pub prints: Vec<Printing>,
    /// Loops whose clocks it records, by their numbers.
    pub stamps: Vec<Stamp>,
    /// Bytes of [`context`] that a launch needs; none for most.
    pub context: u32,
    /// Whether a dynamic tile scheduler hands out tiles, by a counter in the context.
    pub counts: bool,
    /// The Staged IR it was selected from; none for lane kernels.
    pub staged: Option<String>,
    /// What was chosen of its schedule, by the names that `config` pins it with.
    pub chosen: Attrs,
    /// Warnings for the user.
    pub warnings: Diagnostics,
    /// Figures for `.explain()`.
    pub notes: Vec<(&'static str, String)>,
}

/// The shape of a launch.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One block, or one cluster, for each group.
    Groups,
    /// One block for each group, and clusters of `team` neighbouring groups along each axis of the
    /// grid.
    Once { team: [u32; 3] },
    /// A persistent kernel: as many blocks as a multiprocessor holds, each of which loops over
    /// groups. In phases (`phased`) each block takes a share of the groups, and as many further
    /// blocks wait for the rest: see [`Code::phases`]. Clusters take `team` neighbouring groups
    /// along each axis of the grid.
    Persistent { per_multiprocessor: u32, phased: bool, team: [u32; 3] },
    /// Threads that take several lanes each, and a block for each group; where groups do not matter
    /// (`flat`), a block for as many lanes as its threads take.
    Lanes { per_thread: u32, flat: bool },
}

impl Code {
    /// Whether a launch must be waited for, to read its context.
    pub fn speaks(&self) -> bool {
        !self.sites.is_empty() || !self.prints.is_empty() || !self.stamps.is_empty()
    }

    /// Whether the context is zero again when a launch has ended: successive launches on a stream
    /// can then share one without resetting it.
    pub fn leaves_zero(&self) -> bool {
        self.counts && !self.speaks()
    }

    /// Prints the output of a launch. `read` returns the given number of first bytes of its
    /// context.
    pub fn tell<E>(
        &self,
        name: &str,
        grid: [i64; 3],
        mut read: impl FnMut(u32) -> Result<Vec<u8>, E>,
    ) -> Result<(), E> {
        if self.prints.is_empty() && self.stamps.is_empty() {
            return Ok(());
        }
        let printed = reports::printed(&read(context::BYTES)?);
        let all = read(context::BYTES + printed.min(context::ROOM))?;
        let records = all.get(context::BYTES as usize..).unwrap_or_default();
        stamps::hand_over(&self.stamps, records, printed);
        if self.prints.is_empty() {
            return Ok(());
        }
        for line in reports::lines(name, grid, &self.prints, records, printed) {
            tessera_target::tell(&line);
        }
        Ok(())
    }

    pub fn kernel(&self) -> &Kernel {
        &self.module.kernels[0]
    }

    /// A hash of the code and its tensor maps: equal PTX can take different boxes.
    pub fn hash(&self) -> Hash128 {
        if self.maps.is_empty() {
            return self.module.hash();
        }
        let mut h = StableHasher::new();
        h.write_str(&self.module.hash().to_string());
        for map in &self.maps {
            h.write_str(&format!("{map:?}"));
        }
        h.finish()
    }

    /// Blocks of a launch, all along the first axis; code computes its coordinates itself.
    pub fn blocks(&self, args: &LaunchArgs, multiprocessors: u32) -> u64 {
        self.blocks_where(args, multiprocessors, u64::MAX)
    }

    /// Phases of a launch of `blocks` blocks: the second axis of its grid. Multiprocessors do not
    /// get equal shares of the memory bandwidth, and those that get more would wait for the others.
    /// The blocks of the first phase take most of the groups; when one ends, a block of the next
    /// phase takes its place, with half of the rest, and so on.
    pub fn phases(&self, args: &LaunchArgs, blocks: u64) -> u32 {
        let Shape::Persistent { phased: true, .. } = self.shape else { return 1 };
        let groups = args.grid.iter().map(|&g| g as u64).product::<u64>();
        phases(groups.div_ceil(blocks.max(1)))
    }

    /// [`Code::blocks`] on a device that holds `most` clusters concurrently, or blocks where there
    /// are no clusters.
    pub fn blocks_where(&self, args: &LaunchArgs, multiprocessors: u32, most: u64) -> u64 {
        let kernel = self.kernel();
        match self.shape {
            Shape::Once { team } => teams(args, team) * u64::from(kernel.cluster),
            Shape::Persistent { per_multiprocessor, phased, team } => {
                let groups = teams(args, team);
                let cluster = u64::from(kernel.cluster);
                // The guess counts only where no device was queried.
                let guess = u64::from(multiprocessors * per_multiprocessor) / cluster;
                let resident = if most == u64::MAX { guess } else { most };
                // The fewest blocks that need no more iterations than all resident ones would.
                let iterations = groups.div_ceil(resident.max(1)).max(1);
                // In phases free blocks take more, and so they do with a dynamic scheduler.
                let even = match (self.counts, phased && phases(iterations) > 1) {
                    (true, _) => resident.min(groups),
                    (false, true) => resident,
                    (false, false) => groups.div_ceil(iterations),
                };
                even * cluster
            }
            Shape::Groups => {
                args.grid.iter().map(|&g| g as u64).product::<u64>() * u64::from(kernel.cluster)
            }
            Shape::Lanes { flat: false, .. } => args.grid.iter().map(|&g| g as u64).product(),
            Shape::Lanes { flat: true, per_thread } => {
                (args.domain[0].max(0) as u64).div_ceil(u64::from(kernel.threads * per_thread))
            }
        }
    }
}

/// The groups of a launch, counted in clusters.
fn teams(args: &LaunchArgs, team: [u32; 3]) -> u64 {
    args.grid.iter().zip(team).map(|(&g, n)| (g as u64).div_ceil(n.into())).product()
}

/// Phases that divide `iterations` iterations: `persistent_blocks` gives phase `i` those up to
/// `t - (t >> (i + 2))`.
fn phases(iterations: u64) -> u32 {
    iterations.max(1).ilog2().clamp(1, MOST_PHASES)
}

/// More would divide work of a few microseconds.
const MOST_PHASES: u32 = 5;
