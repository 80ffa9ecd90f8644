//! Index launches: the queue of their tasks.
//!
//! A launch submits its tasks together ([`Queue::submit`]), each with the elements that it uses. `region` says which earlier tasks it
//! must wait for; what waits for nothing is *ready*. Workers take ready tasks, and so do threads that wait for something: a short task
//! then runs without a change of threads. Work is a closure that needs no interpreter, so that workers never wait for one.
//!
//! On a device each rank has a stream ([`Branch`]).
//!
//! What holds:
//! 1. A task runs after all earlier tasks that interfere with it have ended, and two tasks that interfere never run together.
//! 2. A task that fails ends all that depend on it with its failure, and none of these run. A failure is reported once for a launch: to a
//!    wait for what it touches, else to the next submission or wait. Nothing is submitted while a failure is unreported, so no task begins
//!    with elements that another has left unfinished.
//! 3. Inside a task, waits are for earlier tasks only, and help with those only. So the tasks on the stack of a thread are in falling
//!    order, each waits for lower numbers than its own, and no cycle of waits can arise.
//! 4. The lock is never held while a closure runs, or while a closure or a failure is dropped by a thread that has the interpreter:
//!    either may call back.

mod branch;
pub mod processes;
mod queue;
#[cfg(test)]
mod tests;

use tessera_diag::Diagnostics;
use tessera_mesh::Placed;

pub use branch::Branch;
pub use queue::{Failure, Queue, Row, Runners, Submitted, Until, Waited, Work, in_task};
pub use tessera_comm::{BlockMemory, Exchanged};

/// Fills the blocks of `to` from those of `from`, by as many threads as launches may use.
pub fn exchange(
    from: &Placed,
    to: &Placed,
    sources: &[BlockMemory],
    targets: &[BlockMemory],
) -> Result<Exchanged, Diagnostics> {
    tessera_comm::exchange(from, to, sources, targets, crate::threads()?)
}

/// The same where other processes have some of the blocks: of those only the extents count. With `everyone` each process has all blocks of
/// `to`. A collective of all processes.
pub fn exchange_between(
    (from, to, everyone): (&Placed, &Placed, bool),
    sources: Vec<BlockMemory>,
    targets: &[BlockMemory],
) -> Result<Exchanged, Diagnostics> {
    #[cfg(target_os = "linux")]
    if let Some(joined) = processes::current() {
        let _one = joined.alone();
        let threads = crate::threads()?;
        return tessera_comm::deal(
            &joined.session,
            (from, to, everyone),
            sources,
            targets,
            threads,
        );
    }
    let _ = everyone;
    exchange(from, to, &sources, targets)
}
