//! The interpreter of Staged IR, a race detector for warp-specialized kernels. Values are whole
//! tiles, so layouts do not affect them; what is checked is the synchronisation of shared memory.
//! Each replica of a role is an agent that runs until it has to wait; asynchronous operations
//! complete as early or as late as the waits allow. Results are those of the Tile IR that the
//! function came from.
//!
//! CTAs of a cluster that multicast to each other run together; all others one after another.
//!
//! Vector clocks record what each agent knows to be complete. A read of data that may not have
//! arrived, a write over data that may still be read, a missing fence or barrier, and a deadlock
//! are errors at the op, even where the values happen to be right.

mod agent;
mod async_units;
mod buffer;
mod clock;
mod cluster;
mod ops;
mod pipeline;
mod prepare;
mod run;
mod staged_control;
mod world;

pub(crate) mod inner {
    pub use super::clock::Clock;
}

use tessera_diag::Diagnostics;
use tessera_staged::StagedFunc;
use tessera_target::LaunchArgs;

/// When asynchronous operations complete, and which agent runs next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Timing {
    /// Immediately; the first agent that can run.
    Early,
    /// When they are waited for; the last agent that can run.
    Late,
    /// Some time between, and any agent, by this seed.
    Random(u64),
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct StagedOptions {
    pub timing: Timing,
    /// Whether the function must pass the verifier first.
    pub verify: bool,
}

impl Default for StagedOptions {
    fn default() -> Self {
        Self { timing: Timing::Late, verify: true }
    }
}

/// Runs a function of Staged IR once, on the caller's arrays.
pub fn run_staged(
    func: &StagedFunc,
    args: &LaunchArgs,
    options: StagedOptions,
) -> Result<(), Diagnostics> {
    if options.verify {
        tessera_ir::verify(func)?;
    }
    let prepared = prepare::prepare(func).map_err(|e| Diagnostics::from(*e))?;
    run::launch(&prepared, args, options).map_err(|e| Diagnostics::from(*e))
}
