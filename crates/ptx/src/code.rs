//! What compilation gives.

use crate::module::Module;
use tessera_diag::Loc;
use tessera_target::LaunchArgs;

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
    pub fn kernel(&self) -> &crate::module::Kernel {
        &self.module.kernels[0]
    }

    /// Blocks of a launch, all along the first axis; code finds its coordinates itself.
    pub fn blocks(&self, args: &LaunchArgs, multiprocessors: u32) -> u64 {
        let kernel = self.kernel();
        match self.shape {
            Shape::Persistent { per_multiprocessor } => {
                let groups = args.grid.iter().map(|&g| g as u64).product::<u64>();
                let cluster = u64::from(kernel.cluster);
                let at_once = u64::from(multiprocessors * per_multiprocessor) / cluster;
                groups.min(at_once.max(1)) * cluster
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
