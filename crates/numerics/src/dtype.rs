//! The closed set of element types and what can be said of each without a value at hand.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::format::FloatFormat;
use crate::suggest::{UnknownDType, unknown_dtype_suggestions};
use std::fmt;
use std::str::FromStr;

/// An element type. The order of the variants is the order of printed lists.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DType {
    Bool,
    I4,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F64,
    F32,
    /// f32 in memory; tensor cores use 10 fraction bits of it (SPEC 4.1).
    Tf32,
    F16,
    BF16,
    Fp8E4M3,
    Fp8E5M2,
    Fp6E3M2,
    Fp6E2M3,
    Fp4E2M1,
    /// A power-of-two scale, as block formats use.
    E8M0,
}

/// Every accepted spelling that is not canonical.
pub(crate) const ALIASES: &[(&str, DType)] = &[
    ("i1", DType::Bool),
    ("int4", DType::I4),
    ("int8", DType::I8),
    ("int16", DType::I16),
    ("int32", DType::I32),
    ("int64", DType::I64),
    ("uint8", DType::U8),
    ("uint16", DType::U16),
    ("uint32", DType::U32),
    ("uint64", DType::U64),
    ("fp64", DType::F64),
    ("float64", DType::F64),
    ("fp32", DType::F32),
    ("float32", DType::F32),
    ("fp16", DType::F16),
    ("float16", DType::F16),
    ("bfloat16", DType::BF16),
    ("f8_e4m3", DType::Fp8E4M3),
    ("float8_e4m3", DType::Fp8E4M3),
    ("float8_e4m3fn", DType::Fp8E4M3),
    ("f8_e5m2", DType::Fp8E5M2),
    ("float8_e5m2", DType::Fp8E5M2),
    ("fp6", DType::Fp6E3M2),
    ("float6_e3m2fn", DType::Fp6E3M2),
    ("float6_e2m3fn", DType::Fp6E2M3),
    ("fp4", DType::Fp4E2M1),
    ("float4_e2m1fn", DType::Fp4E2M1),
    ("float8_e8m0fnu", DType::E8M0),
];

impl DType {
    pub const ALL: &'static [DType] = &[
        DType::Bool,
        DType::I4,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::F64,
        DType::F32,
        DType::Tf32,
        DType::F16,
        DType::BF16,
        DType::Fp8E4M3,
        DType::Fp8E5M2,
        DType::Fp6E3M2,
        DType::Fp6E2M3,
        DType::Fp4E2M1,
        DType::E8M0,
    ];

    /// The canonical spelling, the one that is printed.
    pub const fn name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::I4 => "i4",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::Tf32 => "tf32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::Fp8E4M3 => "fp8_e4m3",
            DType::Fp8E5M2 => "fp8_e5m2",
            DType::Fp6E3M2 => "fp6_e3m2",
            DType::Fp6E2M3 => "fp6_e2m3",
            DType::Fp4E2M1 => "fp4_e2m1",
            DType::E8M0 => "e8m0",
        }
    }

    /// A canonical name or an alias.
    pub fn parse(s: &str) -> Option<DType> {
        let canonical = DType::ALL.iter().copied().find(|d| d.name() == s);
        canonical.or_else(|| ALIASES.iter().find(|(n, _)| *n == s).map(|&(_, d)| d))
    }

    /// Every accepted spelling: the canonical names, then the aliases.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DType::ALL.iter().map(|d| d.name()).chain(ALIASES.iter().map(|(n, _)| *n))
    }

    /// Width of one element's code. A bool is one bit, though it takes a byte.
    pub const fn bits(self) -> u32 {
        match self {
            DType::Bool => 1,
            DType::I4 | DType::Fp4E2M1 => 4,
            DType::Fp6E3M2 | DType::Fp6E2M3 => 6,
            DType::I8 | DType::U8 | DType::Fp8E4M3 | DType::Fp8E5M2 | DType::E8M0 => 8,
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 16,
            DType::I32 | DType::U32 | DType::F32 | DType::Tf32 => 32,
            DType::I64 | DType::U64 | DType::F64 => 64,
        }
    }

    /// Bytes one element takes in an unpacked array: sub-byte types take a byte each.
    pub const fn bytes(self) -> usize {
        (self.bits() as usize).div_ceil(8)
    }

    /// Whether values are floating-point numbers; the `e8m0` scale counts as one.
    pub const fn is_float(self) -> bool {
        self.float_format().is_some()
    }

    /// Signed or unsigned integers; bool is not one.
    pub const fn is_int(self) -> bool {
        self.is_signed_int() || self.is_unsigned_int()
    }

    pub const fn is_signed_int(self) -> bool {
        matches!(self, DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    pub const fn is_unsigned_int(self) -> bool {
        matches!(self, DType::U8 | DType::U16 | DType::U32 | DType::U64)
    }

    /// Whether arithmetic happens in another type, [`DType::compute`]. tf32 is not counted: it is
    /// f32 that allows tensor cores a lower precision.
    pub const fn is_storage_only(self) -> bool {
        match self {
            DType::Bool | DType::I4 | DType::I8 | DType::I16 | DType::U8 | DType::U16 => true,
            DType::F16 | DType::BF16 | DType::Fp8E4M3 | DType::Fp8E5M2 => true,
            DType::Fp6E3M2 | DType::Fp6E2M3 | DType::Fp4E2M1 | DType::E8M0 => true,
            DType::I32 | DType::I64 | DType::U32 | DType::U64 => false,
            DType::F64 | DType::F32 | DType::Tf32 => false,
        }
    }

    /// The type arithmetic is done in (LANGUAGE 9).
    pub const fn compute(self) -> DType {
        match self {
            DType::Bool | DType::I4 | DType::I8 | DType::I16 | DType::I32 => DType::I32,
            DType::U8 | DType::U16 => DType::I32,
            DType::I64 => DType::I64,
            DType::U32 => DType::U32,
            DType::U64 => DType::U64,
            DType::F64 => DType::F64,
            DType::F32 | DType::Tf32 | DType::F16 | DType::BF16 => DType::F32,
            DType::Fp8E4M3 | DType::Fp8E5M2 | DType::Fp6E3M2 => DType::F32,
            DType::Fp6E2M3 | DType::Fp4E2M1 | DType::E8M0 => DType::F32,
        }
    }

    /// The type a loaded value is held in: [`DType::compute`], except that a bool stays a bool so
    /// that masks need no conversion until arithmetic is done on them.
    pub const fn carrier(self) -> DType {
        if matches!(self, DType::Bool) { DType::Bool } else { self.compute() }
    }

    /// Whether a store saturates when the policy does not say (SPEC 4.2).
    pub const fn saturates_by_default(self) -> bool {
        matches!(
            self,
            DType::Fp8E4M3
                | DType::Fp8E5M2
                | DType::Fp6E3M2
                | DType::Fp6E2M3
                | DType::Fp4E2M1
                | DType::E8M0
        )
    }

    /// Promotion (LANGUAGE 9): the common type of `a` and `b`, `None` where that is `E_TYPE`.
    ///
    /// Small types are promoted to their compute type. Two bools stay bool, so that masks combine,
    /// and a bool beside a number takes the number's type. Two unsigned types give the wider one; a
    /// signed and an unsigned type give the signed one if it holds all values of the other, so
    /// `u64` and a signed type have no common type.
    pub const fn join(a: DType, b: DType) -> Option<DType> {
        // u8 and u16 are computed in i32, but beside u32 and u64 they are still unsigned.
        let both_unsigned = a.is_unsigned_int() && b.is_unsigned_int();
        if both_unsigned {
            return Some(if a.bits() >= b.bits() { a.carrier() } else { b.carrier() });
        }
        match (a.carrier(), b.carrier()) {
            (DType::Bool, other) | (other, DType::Bool) => Some(other),
            (DType::F64, _) | (_, DType::F64) => Some(DType::F64),
            (DType::F32, _) | (_, DType::F32) => Some(DType::F32),
            (DType::I32, DType::I32) => Some(DType::I32),
            (DType::I32 | DType::I64 | DType::U32, DType::I64) => Some(DType::I64),
            (DType::I64, DType::I32 | DType::U32) => Some(DType::I64),
            // Signed with unsigned where neither holds the other; carriers are no other types.
            _ => None,
        }
    }

    /// Layout of a floating type; `None` for ints and bool. For tf32 this is the precision of its
    /// operands, not of its storage, which is f32.
    pub const fn float_format(self) -> Option<FloatFormat> {
        match self {
            DType::F64 => Some(FloatFormat::F64),
            DType::F32 => Some(FloatFormat::F32),
            DType::Tf32 => Some(FloatFormat::TF32),
            DType::F16 => Some(FloatFormat::F16),
            DType::BF16 => Some(FloatFormat::BF16),
            DType::Fp8E4M3 => Some(FloatFormat::FP8_E4M3),
            DType::Fp8E5M2 => Some(FloatFormat::FP8_E5M2),
            DType::Fp6E3M2 => Some(FloatFormat::FP6_E3M2),
            DType::Fp6E2M3 => Some(FloatFormat::FP6_E2M3),
            DType::Fp4E2M1 => Some(FloatFormat::FP4_E2M1),
            DType::E8M0 => Some(FloatFormat::E8M0),
            DType::Bool | DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => None,
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => None,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(s: &str) -> Result<DType, UnknownDType> {
        DType::parse(s).ok_or_else(|| UnknownDType {
            name: s.to_owned(),
            suggestions: unknown_dtype_suggestions(s),
        })
    }
}
