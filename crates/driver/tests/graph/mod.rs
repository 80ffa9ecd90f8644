//! Compiled functions of Graph IR against the definition of every op.

mod calls;
mod cases;
pub mod check;
mod device;
mod plans;
mod random;
mod ranks;
mod speed;
