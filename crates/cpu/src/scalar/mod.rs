//! Scalar functions, casts and storage codes as LLVM instructions, on vectors of any number of
//! lanes; one lane is a plain scalar.
//!
//! The meaning is that of `tessera_numerics`, bit by bit. A value is computed in its carrier: f32,
//! f64, i32, i64 (unsigned integers in the type of the same width) or i1. What has no short vector
//! code calls the function of `tessera_numerics` itself ([`fallback`]), so nothing is missing.
//!
//! The bits of a NaN are settled only where it leaves the carrier: [`Scalars::encode`], a cast and
//! a bitcast write the canonical one. Decoding and arithmetic give some NaN.

mod convert;
mod decode;
mod encode;
mod expand;
mod fallback;
mod float;
mod int;
mod philox;
mod shorten;
#[cfg(test)]
mod tests;

pub use fallback::symbols;

use crate::isa::Isa;
use crate::llvm::{Ir, Ty, Val};
use tessera_numerics::{DType, FloatFormat, FnKind, ReduceOp, Scalar, ScalarFn};

/// Emits at the place where the builder of `ir` stands.
#[derive(Copy, Clone)]
pub struct Scalars<'a> {
    pub ir: &'a Ir,
    pub isa: Isa,
    /// Functions of f32 may be those of the default profile, within 2 ulp.
    pub quick: bool,
}

impl Scalars<'_> {
    /// The type in which a value of this dtype is computed.
    pub fn carrier(&self, dtype: DType, lanes: u32) -> Ty {
        let elem = match dtype.carrier() {
            DType::Bool => self.ir.i1(),
            DType::F32 => self.ir.f32(),
            DType::F64 => self.ir.f64(),
            other => self.ir.int(other.bits()),
        };
        self.ir.vec(elem, lanes)
    }

    /// The integer type of its code in memory, one element in whole bytes.
    pub fn stored(&self, dtype: DType, lanes: u32) -> Ty {
        self.ir.vec(self.ir.int(dtype.bytes() as u32 * 8), lanes)
    }

    /// The value in every lane of its carrier.
    pub fn constant(&self, value: Scalar, lanes: u32) -> Val {
        self.ir.const_bits(self.carrier(value.dtype(), lanes), value.bits())
    }

    /// The identity of the reduction.
    pub fn identity(&self, op: ReduceOp, dtype: DType, lanes: u32) -> Val {
        let carrier = dtype.carrier();
        let value = op.identity(carrier).unwrap_or(Scalar::zero(carrier));
        self.constant(value, lanes)
    }

    /// `f` on operands of the carrier type `dtype`, one that it accepts. Comparisons and predicates
    /// give i1 lanes.
    pub fn apply(&self, f: ScalarFn, dtype: DType, args: &[Val]) -> Val {
        match (dtype.carrier(), f.kind()) {
            (DType::Bool, FnKind::Basic(f)) => self.apply_bool(f, args),
            (carrier @ (DType::F32 | DType::F64), _) => self.apply_float(f, carrier, args),
            (carrier, FnKind::Basic(f)) => self.apply_int(f, carrier, args),
            // Of floats only; `accepts` has said no.
            (_, FnKind::Real(_)) => args[0],
        }
    }

    /// The same code read as another type of its width; a NaN is made canonical first.
    pub fn bitcast(&self, x: Val, from: DType, to: DType) -> Val {
        self.decode(self.encode(x, from), to)
    }

    fn lanes(&self, v: Val) -> u32 {
        self.ir.lanes(self.ir.ty(v))
    }
}

/// The layout of a float type.
fn format(dtype: DType) -> FloatFormat {
    dtype.float_format().unwrap_or(FloatFormat::F32)
}
