//! Lane kernels on the interpreter of PTX against the interpreter of Tile IR, bit by bit.

mod control;
mod groups;
mod harness;
mod memory;
mod random;
mod text;
