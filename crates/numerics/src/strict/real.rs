//! The operations an expansion is written in.
//!
//! A formula is written once, generic over [`Real`]. With `f32` in its place it is the fast
//! function that kernels call; with the recorder's symbols it writes itself down as an
//! [`Expansion`](super::Expansion). The two therefore cannot drift apart, and every operation here
//! is one that all backends round alike.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// A 32-bit float: IEEE operations only, each rounded once.
pub trait Real:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    type Int: Int<Real = Self>;
    type Cond: Cond;

    fn c(x: f32) -> Self;
    /// `self * b + c` with one rounding.
    fn fma(self, b: Self, c: Self) -> Self;
    fn sqrt(self) -> Self;
    fn abs(self) -> Self;
    fn lt(self, other: Self) -> Self::Cond;
    fn eq(self, other: Self) -> Self::Cond;
    fn ne(self, other: Self) -> Self::Cond;
    fn pick(cond: Self::Cond, then: Self, other: Self) -> Self;
    /// The bits, as a signed integer.
    fn bits(self) -> Self::Int;
    /// The whole part, clamped to i32.
    fn to_int(self) -> Self::Int;
}

/// A 32-bit two's complement integer. Everything wraps; shift counts are below 32.
pub trait Int: Copy {
    type Real: Real<Int = Self>;
    type Word: Word<Real = Self::Real>;

    fn c(x: i32) -> Self;
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn and(self, b: Self) -> Self;
    fn or(self, b: Self) -> Self;
    fn xor(self, b: Self) -> Self;
    fn shl(self, count: i32) -> Self;
    /// Keeps the sign.
    fn shr(self, count: i32) -> Self;
    fn lt(self, b: Self) -> <Self::Real as Real>::Cond;
    fn eq(self, b: Self) -> <Self::Real as Real>::Cond;
    fn pick(cond: <Self::Real as Real>::Cond, then: Self, other: Self) -> Self;
    /// The float with these bits.
    fn float(self) -> Self::Real;
    /// The nearest float.
    fn to_real(self) -> Self::Real;
    /// Sign-extended to 64 bits.
    fn to_word(self) -> Self::Word;
}

/// A 64-bit unsigned integer, which only the reduction of angles needs.
pub trait Word: Copy {
    type Real: Real;

    fn c(x: u64) -> Self;
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn or(self, b: Self) -> Self;
    fn shl(self, count: Self) -> Self;
    /// Brings in zeros.
    fn shr(self, count: Self) -> Self;
    fn pick(cond: <Self::Real as Real>::Cond, then: Self, other: Self) -> Self;
    /// The low half.
    fn to_int(self) -> <Self::Real as Real>::Int;
    /// The nearest float of the value read as two's complement.
    fn signed_to_real(self) -> Self::Real;
    /// Two's complement of a float that is a whole number below 2^63 in magnitude.
    fn from_whole(x: Self::Real) -> Self;
}

/// A truth value.
pub trait Cond: Copy {
    fn and(self, b: Self) -> Self;
    fn or(self, b: Self) -> Self;
    fn xor(self, b: Self) -> Self;
    fn not(self) -> Self;
}

/// The value of `c[0] + c[1] x + …`, by fma from the highest degree down.
#[inline(always)]
pub fn horner<T: Real>(x: T, c: &[f32]) -> T {
    let (last, rest) = c.split_last().expect("a polynomial has a coefficient");
    rest.iter().rev().fold(T::c(*last), |sum, &c| sum.fma(x, T::c(c)))
}

/// `2^n` for -126 <= n <= 127.
#[inline(always)]
pub fn pow2<T: Real>(n: T::Int) -> T {
    n.add(T::Int::c(127)).shl(23).float()
}

/// The magnitude of `x` with the sign of `sign`. `x` itself must not be negative.
#[inline(always)]
pub fn with_sign<T: Real>(x: T, sign: T) -> T {
    x.bits().or(sign.bits().and(T::Int::c(i32::MIN))).float()
}
