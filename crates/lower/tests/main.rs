//! The tests of the passes. They are one binary, which is linked once.

mod ahead;
mod async_mma;
mod cases;
mod footprint;
mod free;
mod hoist;
#[path = "../../filetest/src/ir_diff.rs"]
mod ir_diff;
mod outline;
mod pipelines;
mod split;
