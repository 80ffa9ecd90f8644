//! The tests of the number formats and of what operations on them mean. They are one binary, which is linked once.

mod block_formats;
mod codec_codes;
mod codec_rounding;
mod philox;
mod reduction;
mod rounding_modes;
mod scalar_fns;
mod strict_math;
mod types_and_policies;
