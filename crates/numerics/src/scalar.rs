//! One value with its type, held in the type that arithmetic uses.

use crate::dtype::DType;
use crate::kernel::Kernel;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// A value in a compute type. Small floats are held as their exact f32 value and small integers as
/// their i32 value, so nothing is lost on the way in.
///
/// Equality, order and hash are by variant and bits, as constants in IR need: `-0.0` differs from
/// `0.0`, and a NaN equals itself.
#[derive(Copy, Clone, Debug)]
pub enum Scalar {
    Bool(bool),
    I32(i32),
    I64(i64),
    U32(u32),
    U64(u64),
    F32(f32),
    F64(f64),
}

impl Scalar {
    /// The carrier type: one of `bool i32 i64 u32 u64 f32 f64`.
    pub const fn dtype(self) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::I32(_) => DType::I32,
            Scalar::I64(_) => DType::I64,
            Scalar::U32(_) => DType::U32,
            Scalar::U64(_) => DType::U64,
            Scalar::F32(_) => DType::F32,
            Scalar::F64(_) => DType::F64,
        }
    }

    /// The bits of the carrier in the low end of a word.
    pub const fn bits(self) -> u64 {
        match self {
            Scalar::Bool(v) => v as u64,
            Scalar::I32(v) => v as u32 as u64,
            Scalar::I64(v) => v as u64,
            Scalar::U32(v) => v as u64,
            Scalar::U64(v) => v,
            Scalar::F32(v) => v.to_bits() as u64,
            Scalar::F64(v) => v.to_bits(),
        }
    }

    /// Zero in the carrier of `dt`. e8m0 has none: its code 0, which stands for it, is 2^-127.
    pub const fn zero(dt: DType) -> Scalar {
        if matches!(dt, DType::E8M0) {
            return Scalar::F32(f32::from_bits(1 << 22));
        }
        match dt.carrier() {
            DType::Bool => Scalar::Bool(false),
            DType::I64 => Scalar::I64(0),
            DType::U32 => Scalar::U32(0),
            DType::U64 => Scalar::U64(0),
            DType::F32 => Scalar::F32(0.0),
            DType::F64 => Scalar::F64(0.0),
            _ => Scalar::I32(0),
        }
    }

    /// The value as f64: exact except for 64-bit integers beyond 2^53.
    pub const fn as_f64(self) -> f64 {
        match self {
            Scalar::Bool(v) => v as u8 as f64,
            Scalar::I32(v) => v as f64,
            Scalar::I64(v) => v as f64,
            Scalar::U32(v) => v as f64,
            Scalar::U64(v) => v as f64,
            Scalar::F32(v) => v as f64,
            Scalar::F64(v) => v,
        }
    }

    /// The value of an integer or bool; `None` for floats.
    pub const fn as_int(self) -> Option<i128> {
        match self {
            Scalar::Bool(v) => Some(v as i128),
            Scalar::I32(v) => Some(v as i128),
            Scalar::I64(v) => Some(v as i128),
            Scalar::U32(v) => Some(v as i128),
            Scalar::U64(v) => Some(v as i128),
            Scalar::F32(_) | Scalar::F64(_) => None,
        }
    }

    /// Whether the value is other than zero; NaN is.
    pub fn truth(self) -> bool {
        match self.as_int() {
            Some(v) => v != 0,
            None => self.as_f64() != 0.0,
        }
    }

    fn key(self) -> (DType, u64) {
        (self.dtype(), self.bits())
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Scalar {}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// An order for sorted containers, not of the numbers.
impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// A Rust type that is one of the carriers, for loops written once over all of them.
pub trait Carrier: Copy + private::Sealed + 'static {
    const DTYPE: DType;
    fn into_scalar(self) -> Scalar;
    /// `None` when the scalar holds another type.
    fn from_scalar(s: Scalar) -> Option<Self>;
    /// The function of a kernel that takes two of this type and gives one; `None` for any other.
    fn binary(k: Kernel) -> Option<fn(Self, Self) -> Self>;
}

mod private {
    pub trait Sealed {}
}

macro_rules! carriers {
    ($($t:ty => $v:ident, $b:ident;)*) => {$(
        impl private::Sealed for $t {}
        impl Carrier for $t {
            const DTYPE: DType = DType::$v;
            fn into_scalar(self) -> Scalar {
                Scalar::$v(self)
            }
            fn from_scalar(s: Scalar) -> Option<Self> {
                match s {
                    Scalar::$v(x) => Some(x),
                    _ => None,
                }
            }
            fn binary(k: Kernel) -> Option<fn(Self, Self) -> Self> {
                match k {
                    Kernel::$b(f) => Some(f),
                    _ => None,
                }
            }
        }
        impl From<$t> for Scalar {
            fn from(x: $t) -> Scalar {
                Scalar::$v(x)
            }
        }
    )*};
}

carriers! {
    bool => Bool, BoolB;
    i32 => I32, I32B;
    i64 => I64, I64B;
    u32 => U32, U32B;
    u64 => U64, U64B;
    f32 => F32, F32B;
    f64 => F64, F64B;
}
