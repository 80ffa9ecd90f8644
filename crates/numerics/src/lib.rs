//! Numbers as Tessera sees them: element types, their exact storage codes, the scalar functions and
//! their strict expansions, the canonical reduction, block formats, the counter generator, and
//! numeric policies.
//!
//! Everything here is pure and gives the same bits on every machine, because the interpreter built
//! on it is the reference the backends are judged by. The meaning is that of LANGUAGE 9, 13, 14,
//! 16 and 19.
//!
//! ```
//! use tessera_numerics::{DType, NumType, Rounding, Scalar, ScalarFn, cast, decode, encode, eval};
//!
//! // A policy reads in any order and prints in one.
//! let t: NumType = "fp8_e4m3 @loss_scale(128) @accum(fp32)".parse().unwrap();
//! assert_eq!(t.to_string(), "fp8_e4m3 @accum(f32) @loss_scale(128.0)");
//!
//! // Storing rounds once; fp8 saturates by default.
//! let code = encode(t.storage, Scalar::F32(1000.0), Rounding::Rne, t.saturates());
//! assert_eq!(decode(t.storage, code), Scalar::F32(448.0));
//!
//! // Arithmetic happens in the compute type, here i32, and floors as Python does.
//! let x = cast(Scalar::F32(-7.9), DType::F32, DType::I8);
//! assert_eq!(eval(ScalarFn::FloorDiv, &[x, Scalar::I32(2)]), Some(Scalar::I32(-4)));
//! ```

mod block;
mod canonical;
mod cast;
mod codec;
mod dtype;
mod eval;
mod fast;
mod float_math;
mod format;
mod int_math;
mod kernel;
mod modes;
mod packed;
mod philox;
mod policy;
mod policy_error;
mod policy_parse;
mod reduce;
mod round;
mod scalar;
mod scalar_fn;
mod strict;
mod suggest;
mod together;

pub use block::{BlockFormat, Quantized, dequantize, quantize};
pub use canonical::{
    CHUNK, Canonical, LANES, canonical_reduce, canonical_reduce_scalars, canonical_sum_f32,
};
pub use cast::{cast, cast_with};
pub use codec::{CANONICAL_NAN_F32, CANONICAL_NAN_F64, decode, encode, encode_drawn};
pub use dtype::DType;
pub use eval::eval;
pub use fast::{decode_slice_f32, decode_slice_i32, encode_slice_f32, encode_slice_i32};
pub use format::{FloatFormat, NanConvention};
pub use kernel::Kernel;
pub use modes::{Profile, Rounding, ScaleMode};
pub use packed::{nibble, pack_nibbles, set_nibble, unpack_nibbles};
pub use philox::{Dropout, philox, philox4, philox4x32};
pub use policy::{Accum, NumType, PolicyItem};
pub use policy_error::PolicyError;
pub use reduce::ReduceOp;
pub use round::{round_to, round_to_mode};
pub use scalar::{Carrier, Scalar};
pub use scalar_fn::{Basic, FnClass, FnKind, Real, ScalarFn};
pub use strict::{
    BASIC, ExpOp, Expansion, ExpansionEval, QUICK, STRICT, Slot, eval_expansion, expansion,
    fast as strict_f32, quick_expansion, quick_f32,
};
pub use suggest::{UnknownDType, unknown_dtype_suggestions};
pub use together::combine_arrays;
