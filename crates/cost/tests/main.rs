//! The tests of the cost model. They are one binary, which is linked once.

mod counts;
mod estimate;
mod matmuls;
