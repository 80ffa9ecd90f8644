//! The CPU backend: Tile IR to machine code of this host, through LLVM.
//!
//! Group kernels ([`group`]) become loop nests in vectors, lane kernels ([`lane`]) become vectors
//! of lanes under masks, and matmuls ([`contract`]) become packed panels and blocks of registers or
//! AMX tiles. Scalar semantics are in [`scalar`], bit for bit those of the interpreter.

mod alone;
mod amx;
mod asm_text;
mod atomic;
mod backend;
mod build;
mod code;
mod contract;
mod fold;
mod frame;
mod group;
mod isa;
mod lane;
mod launch;
mod llvm;
mod memory;
mod pool;
mod room;
mod scalar;

pub use backend::{Cpu, set_threads, threads};
pub use isa::Isa;
pub use llvm::{census as mapped_code, version as llvm_version};

/// What `warp_size` gives: lanes of a GPU's warp, so that kernels which look at it act alike.
pub const WARP: u32 = 32;
