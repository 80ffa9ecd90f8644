//! The tests of the driver without Python. They are one binary, which is linked once.

mod graph;
mod launch;
