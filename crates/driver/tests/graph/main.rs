//! Compiled functions of Graph IR against the definition of every op.

mod cases;
mod check;
mod plans;
mod random;
mod speed;
