//! The tests of the driver without Python. They are one binary, which is linked once.

mod devices;
mod graph;
mod launch;
