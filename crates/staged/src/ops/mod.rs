//! The rules of each op: result types and what must hold of the op alone.

pub mod bulk;
pub mod family;
pub mod mma;
pub mod order_barrier;
pub mod pipeline;
pub mod roles;
pub mod smem;
pub mod team;
pub mod tiles;
