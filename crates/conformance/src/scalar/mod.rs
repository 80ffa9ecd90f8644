//! Scalar functions against `tessera_numerics`.

pub mod functions;
