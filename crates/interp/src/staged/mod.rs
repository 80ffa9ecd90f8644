//! The interpreter of Staged IR. Values are whole tiles, so where elements are does not matter to
//! them; what matters is who may touch shared memory when. Each replica of a role is an agent that
//! runs until it has to wait; async_units do their work as early or as late as the waits allow. Results
//! are those of the Tile IR the function came from.
//!
//! Blocks of a cluster that fill each other's pipelines run together; all others one after another.
//!
//! Vector clocks say what each agent knows to be done. A read of what may not be there yet, a write
//! over what may still be read, a missing fence or barrier, and agents that all wait for each other
//! are errors at the op, also where the values happen to be right.

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

use tessera_diag::Diagnostics;
use tessera_staged::StagedFunc;
use tessera_target::LaunchArgs;

/// When async_units do what was begun, and who of the agents goes on.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Timing {
    /// At once; the first agent that can.
    Early,
    /// When it is waited for; the last agent that can.
    Late,
    /// Some time between, and anybody, by this seed.
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
