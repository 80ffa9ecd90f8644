//! The rules of each op family: result types and what must hold.

pub mod collective;
pub mod control_ops;
pub mod dot;
pub mod elementwise;
pub mod index;
pub mod kernel;
pub mod random;
pub mod reduce;
pub mod shape;
pub mod value;
pub mod window;
