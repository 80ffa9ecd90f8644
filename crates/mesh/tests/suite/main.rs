//! Tests of meshes and placements: text forms, and properties against brute force over elements.

mod brute;
mod exchange;
mod intervals;
mod mesh;
mod placement;
mod spec;
