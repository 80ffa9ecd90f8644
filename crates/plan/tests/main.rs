//! The tests of the planner. They are one binary, which is linked once.

mod composites;
mod gate;
mod machine;
mod queues;
mod strided;
mod unwritten;
