//! The rules of each op family: result types and what must hold.

pub mod asm;
pub mod atomic;
pub mod combine;
pub mod control_ops;
pub mod elementwise;
pub mod group;
pub mod host;
pub mod ids;
pub mod memory;
pub mod mma;
pub mod parts;
pub mod reduce;
pub mod shape;
pub mod sort;
pub mod value;
