//! What compilation gives.

use crate::module::Module;
use crate::told::{self, Printing};
use tessera_diag::Loc;
use tessera_target::LaunchArgs;

pub use tessera_target::arrays::{ArrayClass, Classes, WIDEST, usual_classes};

/// Memory beside the arguments that some code asks for: the word `frame::CONTEXT` is its address. It is
/// zero before a launch.
pub mod context {
    /// The number of the site that found fault.
    pub const STATUS: i64 = 0;
    /// How many groups have begun, where they take turns.
    pub const TICKET: i64 = 4;
    /// The number of the group whose turn it is.
    pub const TURN: i64 = 8;
    /// How many bytes were printed, or tried to be. Records lie behind these words; see `told`.
    pub const PRINTED: i64 = 12;
    pub const BYTES: u32 = 16;
    /// Bytes of records that are kept.
    pub const ROOM: u32 = 1 << 20;
}

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
    /// Where the code can stop a launch, and says so in the status word of its context.
    pub sites: Vec<Site>,
    /// What its `print` ops show, by their numbers in the records.
    pub prints: Vec<Printing>,
    /// Bytes of [`context`] that a launch needs; none for most.
    pub context: u32,
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
    /// Whether a launch must be waited for, for what its context says then.
    pub fn speaks(&self) -> bool {
        !self.sites.is_empty() || !self.prints.is_empty()
    }

    /// Tells what a launch printed. `read` gives so many of the first bytes of its context.
    pub fn tell<E>(
        &self,
        name: &str,
        grid: [i64; 3],
        mut read: impl FnMut(u32) -> Result<Vec<u8>, E>,
    ) -> Result<(), E> {
        if self.prints.is_empty() {
            return Ok(());
        }
        let printed = told::printed(&read(context::BYTES)?);
        let all = read(context::BYTES + printed.min(context::ROOM))?;
        let records = all.get(context::BYTES as usize..).unwrap_or_default();
        for line in told::lines(name, grid, &self.prints, records, printed) {
            tessera_target::tell(&line);
        }
        Ok(())
    }

    pub fn kernel(&self) -> &crate::module::Kernel {
        &self.module.kernels[0]
    }

    /// Blocks of a launch, all along the first axis; code finds its coordinates itself.
    pub fn blocks(&self, args: &LaunchArgs, multiprocessors: u32) -> u64 {
        let kernel = self.kernel();
        match self.shape {
            Shape::Persistent { per_multiprocessor } => {
                self.blocks_of_workers(args, multiprocessors * per_multiprocessor / kernel.cluster)
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

    /// The same where so many blocks, or clusters of them, run at once and take all groups.
    pub fn blocks_of_workers(&self, args: &LaunchArgs, workers: u32) -> u64 {
        let groups = args.grid.iter().map(|&g| g as u64).product::<u64>();
        groups.min(workers.max(1).into()) * u64::from(self.kernel().cluster)
    }
}
