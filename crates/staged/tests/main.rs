//! The tests of Staged IR. They are one binary, which is linked once.

mod pressure;
mod table;
mod team;
mod tiles;
