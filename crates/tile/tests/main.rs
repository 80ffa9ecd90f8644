//! The tests of Tile IR. They are one binary, which is linked once.

mod examples;
mod hash;
mod lanes;
mod properties;
mod structure;
