//! The tests of the front end. They are one binary, which is linked once.

mod common;
mod error_help;
mod execute;
mod inner;
mod programs;
mod refusals;
