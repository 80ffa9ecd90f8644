//! The tests of Graph IR. They are one binary, which is linked once.

mod build;
mod dims;
mod examples;
mod factors;
mod mutations;
