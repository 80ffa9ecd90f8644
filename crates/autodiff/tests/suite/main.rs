//! Derivatives and batching, checked with the interpreter.

mod calls;
mod common;
mod composites;
mod control_flow;
mod elementwise;
mod kernel_cases;
mod kernels;
mod programs;
mod ranks;
mod rules;
mod text;
mod vmap;
