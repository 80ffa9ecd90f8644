//! The values of SSA names: flat row-major arrays in the carrier type of their dtype. Small floats
//! are held exactly as f32, small integers as i32.
//!
//! In a lane kernel a scalar has one element for each lane of the group.

use std::borrow::Cow;
use std::sync::Arc;
use tessera_numerics::{
    CANONICAL_NAN_F64, Carrier, DType, Scalar, decode_slice_f32, decode_slice_i32,
    encode_slice_f32, encode_slice_i32,
};

/// A value as the environment holds it: shared until someone writes.
pub type Tile = Arc<Data>;

#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    Bool(Vec<bool>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// Runs `$body` with `$xs` bound to the vector inside, whatever its element type.
macro_rules! each_data {
    ($data:expr, $xs:ident => $body:expr) => {
        match $data {
            $crate::value::Data::Bool($xs) => $body,
            $crate::value::Data::I32($xs) => $body,
            $crate::value::Data::I64($xs) => $body,
            $crate::value::Data::U32($xs) => $body,
            $crate::value::Data::U64($xs) => $body,
            $crate::value::Data::F32($xs) => $body,
            $crate::value::Data::F64($xs) => $body,
        }
    };
}
pub(crate) use each_data;

impl Data {
    #[allow(clippy::len_without_is_empty)] // Data has at least one element.
    pub fn len(&self) -> usize {
        each_data!(self, xs => xs.len())
    }

    /// `n` elements that all are `s`.
    pub fn fill(s: Scalar, n: usize) -> Data {
        match s {
            Scalar::Bool(x) => Data::Bool(vec![x; n]),
            Scalar::I32(x) => Data::I32(vec![x; n]),
            Scalar::I64(x) => Data::I64(vec![x; n]),
            Scalar::U32(x) => Data::U32(vec![x; n]),
            Scalar::U64(x) => Data::U64(vec![x; n]),
            Scalar::F32(x) => Data::F32(vec![x; n]),
            Scalar::F64(x) => Data::F64(vec![x; n]),
        }
    }

    pub fn at(&self, i: usize) -> Option<Scalar> {
        each_data!(self, xs => xs.get(i).map(|x| x.into_scalar()))
    }

    pub fn bools(&self) -> Option<&[bool]> {
        bool::of(self)
    }

    /// Integers as positions. A number that does not fit 64 bits signed is outside any memory, and
    /// so is the position it is clamped to.
    pub fn positions(&self) -> Option<Cow<'_, [i64]>> {
        Some(match self {
            Data::I64(xs) => Cow::Borrowed(xs),
            Data::I32(xs) => xs.iter().map(|&x| x.into()).collect(),
            Data::U32(xs) => xs.iter().map(|&x| x.into()).collect(),
            Data::U64(xs) => xs.iter().map(|&x| i64::try_from(x).unwrap_or(i64::MAX)).collect(),
            Data::Bool(_) | Data::F32(_) | Data::F64(_) => return None,
        })
    }

    /// The elements in row-major order, little-endian and unpacked; NaN canonical.
    pub fn encode(&self, dtype: DType) -> Vec<u8> {
        let mut bytes = vec![0; self.len() * dtype.bytes()];
        each_data!(self, xs => Elem::encode(dtype, xs, &mut bytes));
        bytes
    }

    /// The values of elements in memory, in the carrier of `dtype`.
    pub fn decode(dtype: DType, bytes: &[u8]) -> Data {
        let mut data = Data::fill(Scalar::zero(dtype), bytes.len() / dtype.bytes());
        each_data!(&mut data, xs => Elem::decode(dtype, bytes, xs));
        data
    }
}

/// A carrier type that a [`Data`] holds, with its codec for whole rows. `dtype` is always one with
/// this carrier.
pub trait Elem: Carrier + PartialEq {
    fn of(data: &Data) -> Option<&[Self]>;
    fn of_mut(data: &mut Data) -> Option<&mut [Self]>;
    fn wrap(xs: Vec<Self>) -> Data;
    fn decode(dtype: DType, bytes: &[u8], out: &mut [Self]);
    fn encode(dtype: DType, xs: &[Self], out: &mut [u8]);
}

macro_rules! elem {
    ($($t:ty => $v:ident, $dec:expr, $enc:expr;)*) => {$(
        impl Elem for $t {
            fn of(data: &Data) -> Option<&[Self]> {
                if let Data::$v(xs) = data { Some(xs) } else { None }
            }
            fn of_mut(data: &mut Data) -> Option<&mut [Self]> {
                if let Data::$v(xs) = data { Some(xs) } else { None }
            }
            fn wrap(xs: Vec<Self>) -> Data {
                Data::$v(xs)
            }
            fn decode(dtype: DType, bytes: &[u8], out: &mut [Self]) {
                $dec(dtype, bytes, out);
            }
            fn encode(dtype: DType, xs: &[Self], out: &mut [u8]) {
                $enc(dtype, xs, out);
            }
        }
    )*};
}

elem! {
    f32 => F32, decode_slice_f32, encode_slice_f32;
    i32 => I32, decode_slice_i32, encode_slice_i32;
    bool => Bool, |_, b: &[u8], o: &mut [bool]| read(b, o, |[x]: [u8; 1]| x & 1 != 0),
        |_, x: &[bool], o: &mut [u8]| write(x, o, |x| [x as u8]);
    i64 => I64, |_, b: &[u8], o: &mut [i64]| read(b, o, i64::from_le_bytes),
        |_, x: &[i64], o: &mut [u8]| write(x, o, i64::to_le_bytes);
    u32 => U32, |_, b: &[u8], o: &mut [u32]| read(b, o, u32::from_le_bytes),
        |_, x: &[u32], o: &mut [u8]| write(x, o, u32::to_le_bytes);
    u64 => U64, |_, b: &[u8], o: &mut [u64]| read(b, o, u64::from_le_bytes),
        |_, x: &[u64], o: &mut [u8]| write(x, o, u64::to_le_bytes);
    f64 => F64, |_, b: &[u8], o: &mut [f64]| read(b, o, f64::from_le_bytes),
        |_, x: &[f64], o: &mut [u8]| write(x, o, |x| {
            (if x.is_nan() { CANONICAL_NAN_F64 } else { x.to_bits() }).to_le_bytes()
        });
}

#[inline(always)]
fn read<const W: usize, T>(bytes: &[u8], out: &mut [T], f: impl Fn([u8; W]) -> T) {
    bytes.as_chunks::<W>().0.iter().zip(out).for_each(|(b, o)| *o = f(*b));
}

#[inline(always)]
fn write<const W: usize, T: Copy>(xs: &[T], out: &mut [u8], f: impl Fn(T) -> [u8; W]) {
    xs.iter().zip(out.as_chunks_mut::<W>().0).for_each(|(x, o)| *o = f(*x));
}
