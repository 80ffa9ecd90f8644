//! What compilation gives.

use crate::module::{Kernel, Module};
use tessera_diag::Loc;
use tessera_support::{Hash128, StableHasher};
use tessera_target::LaunchArgs;

pub use crate::maps::{MAP_ALIGN, MAP_BYTES, MapRecipe, Placed, map_word, push_map};
pub use tessera_target::arrays::{ArrayClass, Classes, WIDEST, usual_classes};

/// A place where running code can find fault: number `i` is `i + 1` in the status word.
#[derive(Clone, Debug)]
pub struct Site {
    pub message: String,
    pub loc: Loc,
}

/// A kernel as PTX, with all that its launch must know.
#[derive(Clone, Debug)]
pub struct Code {
    /// One kernel. Its first parameter is the block of argument words of `Frame`.
    pub module: Module,
    pub shape: Shape,
    /// Where the code can stop a launch. If there are any, the word `frame::CONTEXT` is the address
    /// of a 32-bit status word, zero before the launch.
    pub sites: Vec<Site>,
    /// How each tensor map is made at a launch. They are the kernel's parameters behind the first,
    /// in this order, each [`MAP_BYTES`] long at a multiple of [`MAP_ALIGN`].
    pub maps: Vec<MapRecipe>,
    /// The Staged IR it was selected from; none for lane kernels.
    pub staged: Option<String>,
    /// Figures for `.explain()`.
    pub notes: Vec<(&'static str, String)>,
}

/// How many blocks a launch has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A block, or a cluster of them, for each group.
    Groups,
    /// So many blocks as a multiprocessor holds at once, which take one group after another.
    Persistent { per_multiprocessor: u32 },
    /// Threads that take several lanes each, and a block for each group; where groups do not matter
    /// (`flat`), a block for as many lanes as its threads take.
    Lanes { per_thread: u32, flat: bool },
}

impl Code {
    pub fn kernel(&self) -> &Kernel {
        &self.module.kernels[0]
    }

    /// Names the code with what a launch makes for it: equal PTX can take other boxes.
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

    /// Blocks of a launch, all along the first axis; code finds its coordinates itself.
    pub fn blocks(&self, args: &LaunchArgs, multiprocessors: u32) -> u64 {
        self.blocks_where(args, multiprocessors, u64::MAX)
    }

    /// The same on a device that is known to hold at most so many clusters of them at once, or blocks
    /// where there are no clusters.
    pub fn blocks_where(&self, args: &LaunchArgs, multiprocessors: u32, most: u64) -> u64 {
        let kernel = self.kernel();
        match self.shape {
            Shape::Persistent { per_multiprocessor } => {
                let groups = args.grid.iter().map(|&g| g as u64).product::<u64>();
                let cluster = u64::from(kernel.cluster);
                let at_once = (u64::from(multiprocessors * per_multiprocessor) / cluster).min(most);
                // As few as take no more turns than all would, so that none has a turn to spare.
                let turns = groups.div_ceil(at_once.max(1)).max(1);
                groups.div_ceil(turns) * cluster
            }
            Shape::Groups => {
                args.grid.iter().map(|&g| g as u64).product::<u64>() * u64::from(kernel.cluster)
            }
            Shape::Lanes { flat: false, .. } => args.grid.iter().map(|&g| g as u64).product(),
            Shape::Lanes { flat: true, per_thread } => {
                (args.domain.max(0) as u64).div_ceil(u64::from(kernel.threads * per_thread))
            }
        }
    }
}
