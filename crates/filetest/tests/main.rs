//! The tests of whole pipelines: files, random kernels, PTX. They are one binary, which is linked once.

mod budget;
mod buffer_programs;
#[path = "../../frontend/tests/common/mod.rs"]
mod common;
mod coverage;
mod elementwise;
mod expand_math;
mod filetests;
mod fuzz;
mod fuzz_buffers;
mod fuzz_kernels;
mod fuzz_parts;
mod generator;
#[allow(dead_code, reason = "the tests of the driver use all of it")]
#[path = "../../driver/tests/graph/check.rs"]
mod graph_check;
mod ptx_kernels;
mod ptx_rows;
mod random;
