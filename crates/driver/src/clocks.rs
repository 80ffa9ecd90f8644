//! Cycle counts that kernels record, where they were compiled to (without the pass `bare`).

/// One execution of a loop by the threads of one role: the role, which of its replicas, the loop's
/// line, the least cycles of its MMAs in an iteration, the block, the iterations, and the clock at
/// begin and end.
pub type Visit = (String, u32, u32, u64, u32, u32, u64, u64);

/// Begins to collect the counts of launches of this thread.
pub fn begin() {
    #[cfg(feature = "cuda")]
    tessera_ptx::stamps::begin();
}

/// Ends it: what came, and for how many visits there was no room.
pub fn end() -> (Vec<Visit>, u64) {
    #[cfg(feature = "cuda")]
    {
        let stamps = tessera_ptx::stamps::end();
        let visit = |s: tessera_ptx::stamps::Stamped| {
            (s.role, s.replica, s.line, s.least, s.block, s.iterations, s.begin, s.end)
        };
        (stamps.list.into_iter().map(visit).collect(), stamps.left_out)
    }
    #[cfg(not(feature = "cuda"))]
    (Vec::new(), 0)
}
