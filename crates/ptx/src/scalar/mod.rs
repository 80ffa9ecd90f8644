//! Scalar functions, casts and storage codes as PTX, for one element in registers.
//!
//! The meaning is that of `tessera_numerics`: under `strict` bit by bit, in the other profiles within
//! the bounds of LANGUAGE 13. A value is computed in its carrier: a predicate for bool, 32 bits for
//! integers up to that width and for every float up to f32, 64 bits for the rest.
//!
//! The bits of a NaN are settled only where it leaves the carrier: a bitcast writes the canonical
//! one, [`Scalars::encode`] under `strict` too. Decoding, casts and arithmetic give some NaN.
//!
//! Code is straight, but for [`Scalars::branches`].

mod cast;
mod decode;
mod divide;
mod double;
mod emit;
mod encode;
mod expand;
mod float;
mod int;
mod narrow;
mod packed;
mod pair;
mod philox;
mod power;
mod quick;
mod remainder;
mod val;

use crate::asm::Asm;
use crate::caps::{Feature, PtxCaps};
use crate::inst::{Class, Opnd, Reg, Ty};
use emit::Emit;
use std::fmt;
use tessera_numerics::{DType, FloatFormat, FnKind, Profile, ReduceOp, Rounding, Scalar, ScalarFn};
use val::Val;

/// Target features that decide between instruction sequences.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Features {
    /// f32 to bf16, and pairs of f32 to f16 and bf16.
    pub pairs: bool,
    /// Maximum and minimum of f32 that propagate NaN.
    pub nan_wins: bool,
    /// fp8 from and to other floats.
    pub fp8: bool,
    /// fp6 too.
    pub fp6: bool,
}

impl Features {
    /// The type name of two short floats, one per byte, in conversions.
    pub fn byte_pair(self, dtype: DType) -> Option<Ty> {
        match dtype {
            DType::Fp8E4M3 if self.fp8 => Some(Ty::E4M3x2),
            DType::Fp8E5M2 if self.fp8 => Some(Ty::E5M2x2),
            DType::Fp6E3M2 if self.fp6 => Some(Ty::E3M2x2),
            DType::Fp6E2M3 if self.fp6 => Some(Ty::E2M3x2),
            _ => None,
        }
    }

    fn of(caps: &PtxCaps) -> Self {
        Self {
            pairs: caps.has(Feature::PackedCvt) && caps.has(Feature::Bf16),
            nan_wins: caps.has(Feature::MinMaxNan),
            fp8: caps.has(Feature::Fp8Cvt),
            fp6: caps.has(Feature::Fp4Cvt),
        }
    }
}

/// A function or conversion that is not supported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsupported {
    /// What it is and why it is not supported, as a sentence for users.
    pub reason: String,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Unsupported {}

/// The registers that hold a value of this dtype during computation.
pub fn carrier(dtype: DType) -> Class {
    carrier_type(dtype).class()
}

/// How they are read.
fn carrier_type(dtype: DType) -> Ty {
    match dtype.carrier() {
        DType::Bool => Ty::Pred,
        DType::F32 => Ty::F32,
        DType::F64 => Ty::F64,
        DType::I64 => Ty::S64,
        DType::U64 => Ty::U64,
        DType::U32 => Ty::U32,
        _ => Ty::S32,
    }
}

/// The registers that hold the bits of an element as stored in memory.
pub fn stored(dtype: DType) -> Class {
    match dtype.bytes() {
        1 | 2 => Class::B16,
        4 => Class::B32,
        _ => Class::B64,
    }
}

/// A constant in the carrier of `dtype` as an operand.
pub fn operand(dtype: DType, value: Scalar) -> Opnd {
    let bits = value.bits();
    match carrier_type(dtype) {
        Ty::F32 => Opnd::F32(bits as u32),
        Ty::F64 => Opnd::F64(bits),
        // Words are printed as signed numbers: every assembler reads those alike.
        Ty::S32 | Ty::U32 => Opnd::Int(i64::from(bits as i32)),
        _ => Opnd::Int(bits as i64),
    }
}

/// The layout of a float type.
fn format(dtype: DType) -> FloatFormat {
    dtype.float_format().unwrap_or(FloatFormat::F32)
}

/// Writes at the end of `asm`.
pub struct Scalars<'a> {
    pub asm: &'a mut Asm,
    pub caps: &'a PtxCaps,
    pub profile: Profile,
}

impl Scalars<'_> {
    fn emit<T>(&mut self, write: impl FnOnce(&Emit) -> T) -> T {
        let strict = self.profile == Profile::Strict;
        let e = Emit::new(self.asm, Features::of(self.caps), strict);
        let out = write(&e);
        e.finish(self.asm);
        out
    }

    /// `f` on operands of the carrier type `dtype`, one that it accepts; the result is in the
    /// carrier of `f.result(dtype)`. An operand may be a constant ([`operand`]) or a register from
    /// [`Scalars::constant`], which makes some code shorter: the assembler does not optimise
    /// division by a constant.
    pub fn apply<A: Into<Opnd> + Copy>(
        &mut self,
        f: ScalarFn,
        dtype: DType,
        args: &[A],
    ) -> Result<Reg, Unsupported> {
        let ty = carrier_type(dtype);
        let args: Vec<Opnd> = args.iter().map(|&a| self.known(ty, a.into())).collect();
        self.emit(|e| {
            let args: Vec<Val<'_>> = args.into_iter().map(|a| Val::new(e, a, ty)).collect();
            e.apply(f, dtype, &args).map(Val::reg)
        })
    }

    /// Replaces a register that holds a constant; predicates have no constant operands.
    fn known(&mut self, ty: Ty, a: Opnd) -> Opnd {
        match (ty, a) {
            (Ty::Pred, Opnd::Int(_)) => Opnd::Reg(self.asm.mov(ty, a)),
            (Ty::Pred, a) => a,
            (_, Opnd::Reg(r)) => self.asm.known(r).unwrap_or(a),
            (_, a) => a,
        }
    }

    /// Whether the code of a function has branches, so that it must not be guarded.
    pub fn branches(&self, f: ScalarFn, dtype: DType) -> bool {
        let is_float = matches!(dtype.carrier(), DType::F32 | DType::F64);
        let reduces = matches!(f, ScalarFn::Sin | ScalarFn::Cos | ScalarFn::Tan);
        match f {
            ScalarFn::FloorDiv | ScalarFn::Mod => is_float,
            _ => reduces && self.profile != Profile::Strict,
        }
    }

    /// A number in the carrier of `dtype`. The register must not be written again.
    pub fn constant(&mut self, dtype: DType, value: Scalar) -> Reg {
        self.asm.constant(carrier_type(dtype), operand(dtype, value))
    }

    /// From the carrier of one type to that of another, by the rules of `numerics::cast_with`: the
    /// result is a value that `to` has.
    pub fn cast(
        &mut self,
        from: DType,
        to: DType,
        round: Rounding,
        saturate: bool,
        x: Reg,
    ) -> Result<Reg, Unsupported> {
        if round == Rounding::Stochastic {
            let why = "stochastic rounding is not supported yet: the op has no seed to draw from";
            return Err(Unsupported { reason: why.into() });
        }
        let x = |e: &Emit| e.cast(e.val(x, carrier_type(from)), from, to, round, saturate).reg();
        Ok(self.emit(x))
    }

    /// From the bits in memory, in a register of [`stored`], to the carrier.
    pub fn decode(&mut self, dtype: DType, code: Reg) -> Reg {
        self.emit(|e| e.decode(dtype, code).reg())
    }

    /// From the carrier to the bits in memory, as a store without a policy writes them.
    pub fn encode(&mut self, dtype: DType, x: Reg) -> Reg {
        self.emit(|e| {
            let x = e.val(x, carrier_type(dtype));
            e.encode(dtype, x, Rounding::Rne, dtype.saturates_by_default()).reg()
        })
    }

    /// The same by the rounding and saturation of a policy.
    pub fn encode_with(
        &mut self,
        dtype: DType,
        round: Rounding,
        saturate: bool,
        x: Reg,
    ) -> Result<Reg, Unsupported> {
        if round == Rounding::Stochastic {
            let why = "stochastic rounding is not supported yet: a store has no seed to draw from";
            return Err(Unsupported { reason: why.into() });
        }
        let code = |e: &Emit| e.encode(dtype, e.val(x, carrier_type(dtype)), round, saturate).reg();
        Ok(self.emit(code))
    }

    /// The four one-byte or two two-byte elements of a word, the lowest first.
    pub fn decode_packed(&mut self, dtype: DType, word: Reg) -> Vec<Reg> {
        self.emit(|e| {
            let parts = e.decode_packed(dtype, e.val(word, Ty::B32));
            parts.into_iter().map(Val::reg).collect()
        })
    }

    /// The word that holds four one-byte or two two-byte elements, the first lowest.
    pub fn encode_packed(&mut self, dtype: DType, xs: &[Reg]) -> Reg {
        self.emit(|e| {
            let xs: Vec<Val<'_>> = xs.iter().map(|&x| e.val(x, carrier_type(dtype))).collect();
            e.encode_packed(dtype, &xs).reg()
        })
    }

    /// The same code read as another type of its width; a NaN is made canonical first.
    pub fn bitcast(&mut self, from: DType, to: DType, x: Reg) -> Reg {
        self.emit(|e| {
            let x = e.val(x, carrier_type(from));
            let code = e.code(from, x, Rounding::Rne, from.saturates_by_default(), true);
            e.decode_val(to, code).reg()
        })
    }

    /// `a` where `p` holds, else `b`.
    pub fn select(&mut self, dtype: DType, p: Reg, a: Reg, b: Reg) -> Reg {
        let ty = carrier_type(dtype);
        self.emit(|e| e.val(p, Ty::Pred).pick(e.val(a, ty), e.val(b, ty)).reg())
    }

    /// One of the four random words of a counter. Seed and counter have 32 or 64 bits, the narrow
    /// ones signed.
    pub fn philox(&mut self, seed: Reg, counter: Reg, word: u32) -> Reg {
        self.emit(|e| e.philox4(seed, counter)[word as usize].reg())
    }

    /// Combines two values of a reduction.
    pub fn combine(
        &mut self,
        op: ReduceOp,
        dtype: DType,
        a: Reg,
        b: Reg,
    ) -> Result<Reg, Unsupported> {
        self.apply(op.combine(), dtype.carrier(), &[a, b])
    }

    /// The identity of a reduction, in a register that may be written again.
    pub fn identity(&mut self, op: ReduceOp, dtype: DType) -> Reg {
        let carrier = dtype.carrier();
        let value = op.identity(carrier).unwrap_or(Scalar::zero(carrier));
        self.asm.mov(carrier_type(carrier), operand(carrier, value))
    }
}

impl Emit {
    pub fn apply<'e>(
        &'e self,
        f: ScalarFn,
        dtype: DType,
        args: &[Val<'e>],
    ) -> Result<Val<'e>, Unsupported> {
        match (dtype.carrier(), f.kind()) {
            (DType::Bool, FnKind::Basic(f)) => Ok(self.apply_bool(f, args)),
            (carrier @ (DType::F32 | DType::F64), _) => self.apply_float(f, carrier, args),
            (carrier, FnKind::Basic(f)) => Ok(self.apply_int(f, carrier, args)),
            // Of floats only; `accepts` has said no.
            (_, FnKind::Real(_)) => Ok(args[0]),
        }
    }

    pub fn constant(&self, dtype: DType, value: Scalar) -> Val<'_> {
        Val::new(self, operand(dtype, value), carrier_type(dtype))
    }
}
