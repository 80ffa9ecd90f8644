//! The expansions as plain Rust functions on `f32`.

use super::real::{Cond, Int, Real, Word};

impl Real for f32 {
    type Int = i32;
    type Cond = bool;

    #[inline(always)]
    fn c(x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn fma(self, b: f32, c: f32) -> f32 {
        self.mul_add(b, c)
    }
    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }
    #[inline(always)]
    fn abs(self) -> f32 {
        f32::abs(self)
    }
    #[inline(always)]
    fn lt(self, other: f32) -> bool {
        self < other
    }
    #[inline(always)]
    fn eq(self, other: f32) -> bool {
        self == other
    }
    #[inline(always)]
    fn ne(self, other: f32) -> bool {
        self != other
    }
    #[inline(always)]
    fn pick(cond: bool, then: f32, other: f32) -> f32 {
        if cond { then } else { other }
    }
    #[inline(always)]
    fn bits(self) -> i32 {
        self.to_bits() as i32
    }
    #[inline(always)]
    fn to_int(self) -> i32 {
        self as i32
    }
}

impl Int for i32 {
    type Real = f32;
    type Word = u64;

    #[inline(always)]
    fn c(x: i32) -> i32 {
        x
    }
    #[inline(always)]
    fn add(self, b: i32) -> i32 {
        self.wrapping_add(b)
    }
    #[inline(always)]
    fn sub(self, b: i32) -> i32 {
        self.wrapping_sub(b)
    }
    #[inline(always)]
    fn and(self, b: i32) -> i32 {
        self & b
    }
    #[inline(always)]
    fn or(self, b: i32) -> i32 {
        self | b
    }
    #[inline(always)]
    fn xor(self, b: i32) -> i32 {
        self ^ b
    }
    #[inline(always)]
    fn shl(self, count: i32) -> i32 {
        self << count
    }
    #[inline(always)]
    fn shr(self, count: i32) -> i32 {
        self >> count
    }
    #[inline(always)]
    fn lt(self, b: i32) -> bool {
        self < b
    }
    #[inline(always)]
    fn eq(self, b: i32) -> bool {
        self == b
    }
    #[inline(always)]
    fn pick(cond: bool, then: i32, other: i32) -> i32 {
        if cond { then } else { other }
    }
    #[inline(always)]
    fn float(self) -> f32 {
        f32::from_bits(self as u32)
    }
    #[inline(always)]
    fn to_real(self) -> f32 {
        self as f32
    }
    #[inline(always)]
    fn to_word(self) -> u64 {
        self as i64 as u64
    }
}

impl Word for u64 {
    type Real = f32;

    #[inline(always)]
    fn c(x: u64) -> u64 {
        x
    }
    #[inline(always)]
    fn add(self, b: u64) -> u64 {
        self.wrapping_add(b)
    }
    #[inline(always)]
    fn sub(self, b: u64) -> u64 {
        self.wrapping_sub(b)
    }
    #[inline(always)]
    fn mul(self, b: u64) -> u64 {
        self.wrapping_mul(b)
    }
    #[inline(always)]
    fn or(self, b: u64) -> u64 {
        self | b
    }
    #[inline(always)]
    fn shl(self, count: u64) -> u64 {
        self << count
    }
    #[inline(always)]
    fn shr(self, count: u64) -> u64 {
        self >> count
    }
    #[inline(always)]
    fn pick(cond: bool, then: u64, other: u64) -> u64 {
        if cond { then } else { other }
    }
    #[inline(always)]
    fn to_int(self) -> i32 {
        self as i32
    }
    #[inline(always)]
    fn signed_to_real(self) -> f32 {
        self as i64 as f32
    }
    #[inline(always)]
    fn from_whole(x: f32) -> u64 {
        x as i64 as u64
    }
}

impl Cond for bool {
    #[inline(always)]
    fn and(self, b: bool) -> bool {
        self & b
    }
    #[inline(always)]
    fn or(self, b: bool) -> bool {
        self | b
    }
    #[inline(always)]
    fn xor(self, b: bool) -> bool {
        self ^ b
    }
    #[inline(always)]
    fn not(self) -> bool {
        !self
    }
}
