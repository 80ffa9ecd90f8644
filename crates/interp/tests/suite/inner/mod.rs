//! Parts of the interpreter, each by itself.

mod arith;
mod clock;
mod convert;
mod findings;
mod group_shadow;
mod host;
mod lane_shadow;
mod memory;
mod mma;
mod order;
mod order_shadow;
mod origins;
mod reduce;
mod room;
mod shape;
mod value;
