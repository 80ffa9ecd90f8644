//! The tests of the PTX compiler. They are one binary, which is linked once.

mod asm_text;
mod assembler;
mod clusters;
mod gemm;
mod inner;
mod judge;
mod lane;
mod memory;
mod passes;
mod roles;
mod scalar;
mod text;
mod verify;
mod wgmma;
