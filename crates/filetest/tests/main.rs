//! The tests of whole pipelines: files, random kernels, PTX. They are one binary, which is linked once.

mod budget;
#[path = "../../frontend/tests/common/mod.rs"]
mod common;
mod coverage;
mod elementwise;
mod expand_math;
mod filetests;
mod fuzz;
mod fuzz_kernels;
mod generator;
mod ptx_kernels;
mod ptx_rows;
mod random;
