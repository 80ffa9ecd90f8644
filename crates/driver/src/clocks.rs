//! Cycle counts that kernels record, where they were compiled to (without the pass `bare`).

use crate::platforms;

/// One execution of a loop by the threads of one role: the role, which of its replicas, the loop's
/// line, the least cycles of its MMAs in an iteration, the block, the iterations, and the clock at
/// begin and end.
pub type Visit = (String, u32, u32, u64, u32, u32, u64, u64);

/// Begins to collect the counts of launches of this thread.
pub fn begin() {
    platforms::clocks_begin();
}

/// Ends it: what came, and for how many visits there was no room.
pub fn end() -> (Vec<Visit>, u64) {
    platforms::clocks_end()
}
