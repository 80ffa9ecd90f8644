//! The meaning of every scalar function on every carrier type, as plain function pointers: a loop
//! over a tile picks its pointer once and then only calls it.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::dtype::DType;
use crate::float_math as fm;
use crate::scalar_fn::{Basic, FnKind, ScalarFn};

macro_rules! kernels {
    ($($(#[$doc:meta])* $variant:ident($($arg:ty),+) -> $out:ty;)*) => {
        /// A scalar function on one carrier type. The letter says the shape: unary, binary,
        /// ternary, predicate (unary to bool), comparison (binary to bool).
        #[derive(Copy, Clone, Debug)]
        pub enum Kernel { $($(#[$doc])* $variant(fn($($arg),+) -> $out),)* }
    };
}

kernels! {
    F32U(f32) -> f32;
    F32B(f32, f32) -> f32;
    F32T(f32, f32, f32) -> f32;
    F32P(f32) -> bool;
    F32C(f32, f32) -> bool;
    F64U(f64) -> f64;
    F64B(f64, f64) -> f64;
    F64T(f64, f64, f64) -> f64;
    F64P(f64) -> bool;
    F64C(f64, f64) -> bool;
    I32U(i32) -> i32;
    I32B(i32, i32) -> i32;
    I32T(i32, i32, i32) -> i32;
    I32C(i32, i32) -> bool;
    I64U(i64) -> i64;
    I64B(i64, i64) -> i64;
    I64T(i64, i64, i64) -> i64;
    I64C(i64, i64) -> bool;
    U32U(u32) -> u32;
    U32B(u32, u32) -> u32;
    U32T(u32, u32, u32) -> u32;
    U32C(u32, u32) -> bool;
    U64U(u64) -> u64;
    U64B(u64, u64) -> u64;
    U64T(u64, u64, u64) -> u64;
    U64C(u64, u64) -> bool;
    BoolU(bool) -> bool;
    /// Binary functions and comparisons alike.
    BoolB(bool, bool) -> bool;
}

impl ScalarFn {
    /// The function on operands of the carrier type `dt`; `None` exactly where [`ScalarFn::accepts`]
    /// says no.
    pub fn kernel(self, dt: DType) -> Option<Kernel> {
        if !self.accepts(dt) {
            return None;
        }
        let f = match (self.kind(), dt) {
            (FnKind::Real(f), DType::F32) => return Some(f.kernel_f32()),
            (FnKind::Real(f), DType::F64) => return Some(f.kernel_f64()),
            (FnKind::Real(_), _) => return None,
            (FnKind::Basic(f), _) => f,
        };
        match dt {
            DType::F32 => f32_kernel(f),
            DType::F64 => f64_kernel(f),
            DType::I32 => i32_kernel(f),
            DType::I64 => i64_kernel(f),
            DType::U32 => u32_kernel(f),
            DType::U64 => u64_kernel(f),
            DType::Bool => bool_kernel(f),
            DType::I4 | DType::I8 | DType::I16 | DType::U8 | DType::U16 | DType::Tf32 => None,
            DType::F16 | DType::BF16 | DType::Fp8E4M3 | DType::Fp8E5M2 | DType::Fp6E3M2 => None,
            DType::Fp6E2M3 | DType::Fp4E2M1 | DType::E8M0 => None,
        }
    }
}

macro_rules! float_kernel {
    ($fn:ident, $t:ident, $u:ident, $b:ident, $tern:ident, $p:ident, $c:ident) => {
        fn $fn(f: Basic) -> Option<Kernel> {
            use Kernel::{$b as B, $c as C, $p as P, $tern as T, $u as U};
            Some(match f {
                Basic::Add => B(|a, b| a + b),
                Basic::Sub => B(|a, b| a - b),
                Basic::Mul => B(|a, b| a * b),
                Basic::Div => B(|a, b| a / b),
                Basic::FloorDiv => B(fm::$t::floordiv),
                Basic::Mod => B(fm::$t::modulo),
                Basic::Neg => U(|a| -a),
                Basic::Abs => U($t::abs),
                Basic::Fma => T($t::mul_add),
                Basic::Sqrt => U($t::sqrt),
                Basic::Recip => U($t::recip),
                Basic::Floor => U($t::floor),
                Basic::Ceil => U($t::ceil),
                Basic::Round => U($t::round_ties_even),
                Basic::Trunc => U($t::trunc),
                Basic::Sign => U(fm::$t::sign),
                Basic::Maximum => B(fm::$t::maximum),
                Basic::Minimum => B(fm::$t::minimum),
                Basic::Clamp => T(|x, lo, hi| fm::$t::minimum(fm::$t::maximum(x, lo), hi)),
                Basic::Eq => C(|a, b| a == b),
                Basic::Ne => C(|a, b| a != b),
                Basic::Lt => C(|a, b| a < b),
                Basic::Le => C(|a, b| a <= b),
                Basic::Gt => C(|a, b| a > b),
                Basic::Ge => C(|a, b| a >= b),
                Basic::IsNan => P($t::is_nan),
                Basic::IsInf => P($t::is_infinite),
                Basic::IsFinite => P($t::is_finite),
                Basic::And | Basic::Or | Basic::Xor | Basic::Not => return None,
                Basic::Shl | Basic::Shr => return None,
                Basic::Popcount | Basic::Clz | Basic::Ctz | Basic::Brev => return None,
                Basic::MulHi | Basic::FunnelShift => return None,
            })
        }
    };
}

float_kernel!(f32_kernel, f32, F32U, F32B, F32T, F32P, F32C);
float_kernel!(f64_kernel, f64, F64U, F64B, F64T, F64P, F64C);

macro_rules! int_kernel {
    ($fn:ident, $t:ident, $u:ident, $b:ident, $tern:ident, $c:ident) => {
        fn $fn(f: Basic) -> Option<Kernel> {
            use crate::int_math::$t as im;
            use Kernel::{$b as B, $c as C, $tern as T, $u as U};
            Some(match f {
                Basic::Add => B($t::wrapping_add),
                Basic::Sub => B($t::wrapping_sub),
                Basic::Mul => B($t::wrapping_mul),
                Basic::FloorDiv => B(im::floordiv),
                Basic::Mod => B(im::modulo),
                Basic::Neg => U($t::wrapping_neg),
                Basic::Abs => U(im::abs),
                Basic::Fma => T(|a, b, c| a.wrapping_mul(b).wrapping_add(c)),
                Basic::Sign => U(im::sign),
                Basic::Maximum => B(|a, b| a.max(b)),
                Basic::Minimum => B(|a, b| a.min(b)),
                // Not `clamp`, which panics when the bounds cross.
                Basic::Clamp => T(|x, lo, hi| x.max(lo).min(hi)),
                Basic::And => B(|a, b| a & b),
                Basic::Or => B(|a, b| a | b),
                Basic::Xor => B(|a, b| a ^ b),
                Basic::Not => U(|a| !a),
                Basic::Shl => B(im::shl),
                Basic::Shr => B(im::shr),
                Basic::Popcount => U(|a| a.count_ones() as $t),
                Basic::Clz => U(|a| a.leading_zeros() as $t),
                Basic::Ctz => U(|a| a.trailing_zeros() as $t),
                Basic::Brev => U($t::reverse_bits),
                Basic::MulHi => B(im::mulhi),
                Basic::FunnelShift => T(im::funnel_shift),
                Basic::Eq => C(|a, b| a == b),
                Basic::Ne => C(|a, b| a != b),
                Basic::Lt => C(|a, b| a < b),
                Basic::Le => C(|a, b| a <= b),
                Basic::Gt => C(|a, b| a > b),
                Basic::Ge => C(|a, b| a >= b),
                Basic::Div | Basic::Sqrt | Basic::Recip => return None,
                Basic::Floor => return None,
                Basic::Ceil | Basic::Round | Basic::Trunc => return None,
                Basic::IsNan | Basic::IsInf | Basic::IsFinite => return None,
            })
        }
    };
}

int_kernel!(i32_kernel, i32, I32U, I32B, I32T, I32C);
int_kernel!(i64_kernel, i64, I64U, I64B, I64T, I64C);
int_kernel!(u32_kernel, u32, U32U, U32B, U32T, U32C);
int_kernel!(u64_kernel, u64, U64U, U64B, U64T, U64C);

/// Bits and comparisons; arithmetic on bools is done in i32.
fn bool_kernel(f: Basic) -> Option<Kernel> {
    use Kernel::{BoolB as B, BoolU as U};
    Some(match f {
        Basic::And => B(|a, b| a & b),
        Basic::Or => B(|a, b| a | b),
        Basic::Xor | Basic::Ne => B(|a, b| a ^ b),
        Basic::Not => U(|a| !a),
        Basic::Eq => B(|a, b| a == b),
        Basic::Lt => B(|a, b| !a & b),
        Basic::Le => B(|a, b| a <= b),
        Basic::Gt => B(|a, b| a & !b),
        Basic::Ge => B(|a, b| a >= b),
        Basic::Add | Basic::Sub | Basic::Mul | Basic::Div => return None,
        Basic::FloorDiv | Basic::Mod | Basic::Neg | Basic::Abs => return None,
        Basic::Fma | Basic::Sqrt | Basic::Recip => return None,
        Basic::Floor => return None,
        Basic::Ceil | Basic::Round | Basic::Trunc | Basic::Sign => return None,
        Basic::Maximum | Basic::Minimum | Basic::Clamp | Basic::Shl => return None,
        Basic::Shr | Basic::IsNan | Basic::IsInf | Basic::IsFinite => return None,
        Basic::Popcount | Basic::Clz | Basic::Ctz | Basic::Brev => return None,
        Basic::MulHi | Basic::FunnelShift => return None,
    })
}
