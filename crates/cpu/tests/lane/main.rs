//! Lane kernels against the interpreter, bit by bit, on every set of instructions of this host.

mod control;
mod groups;
mod harness;
mod memory;
mod print;
mod random;
