//! Lane kernels: axes, control flow, memory, group operations, printing, and random kernels.

pub mod axes;
pub mod control;
pub mod groups;
pub mod memory;
pub mod print;
pub mod random;
