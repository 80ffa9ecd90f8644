//! The tests of the passes. They are one binary, which is linked once.

mod ahead;
mod cases;
mod engine;
mod footprint;
mod free;
mod hoist;
mod rings;
mod split;
