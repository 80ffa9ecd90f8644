//! The tests of the passes. They are one binary, which is linked once.

mod async_mma;
mod cases;
mod footprint;
mod free;
mod golden;
mod hoist;
mod inner;
#[path = "../../filetest/src/ir_diff.rs"]
mod ir_diff;
mod outline;
mod pipelines;
mod register_prefetch;
mod split;
mod split_k;
