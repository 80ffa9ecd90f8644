//! The meaning of every scalar function on every carrier type, as plain function pointers: a loop
//! over a tile picks its pointer once and then only calls it.

use crate::dtype::DType;
use crate::float_math as fm;
use crate::scalar_fn::ScalarFn;

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
        match dt {
            DType::F32 => f32_kernel(self),
            DType::F64 => f64_kernel(self),
            DType::I32 => i32_kernel(self),
            DType::I64 => i64_kernel(self),
            DType::U32 => u32_kernel(self),
            DType::U64 => u64_kernel(self),
            DType::Bool => bool_kernel(self),
            DType::I4 | DType::I8 | DType::I16 | DType::U8 | DType::U16 | DType::Tf32 => None,
            DType::F16 | DType::BF16 | DType::Fp8E4M3 | DType::Fp8E5M2 | DType::Fp6E3M2 => None,
            DType::Fp6E2M3 | DType::Fp4E2M1 | DType::E8M0 => None,
        }
    }
}

macro_rules! float_kernel {
    ($fn:ident, $t:ident, $u:ident, $b:ident, $tern:ident, $p:ident, $c:ident) => {
        fn $fn(f: ScalarFn) -> Option<Kernel> {
            use Kernel::{$b as B, $c as C, $p as P, $tern as T, $u as U};
            Some(match f {
                ScalarFn::Add => B(|a, b| a + b),
                ScalarFn::Sub => B(|a, b| a - b),
                ScalarFn::Mul => B(|a, b| a * b),
                ScalarFn::Div => B(|a, b| a / b),
                ScalarFn::FloorDiv => B(fm::$t::floordiv),
                ScalarFn::Mod => B(fm::$t::modulo),
                ScalarFn::Neg => U(|a| -a),
                ScalarFn::Abs => U($t::abs),
                ScalarFn::Fma => T($t::mul_add),
                ScalarFn::Sqrt => U($t::sqrt),
                ScalarFn::Rsqrt => U(fm::$t::rsqrt),
                ScalarFn::Recip => U($t::recip),
                ScalarFn::Exp => U(fm::$t::exp),
                ScalarFn::Exp2 => U(fm::$t::exp2),
                ScalarFn::Log => U(fm::$t::log),
                ScalarFn::Log2 => U(fm::$t::log2),
                ScalarFn::Log1p => U(fm::$t::log1p),
                ScalarFn::Expm1 => U(fm::$t::expm1),
                ScalarFn::Sin => U(fm::$t::sin),
                ScalarFn::Cos => U(fm::$t::cos),
                ScalarFn::Tan => U(fm::$t::tan),
                ScalarFn::Asin => U(fm::$t::asin),
                ScalarFn::Acos => U(fm::$t::acos),
                ScalarFn::Atan => U(fm::$t::atan),
                ScalarFn::Atan2 => B(fm::$t::atan2),
                ScalarFn::Sinh => U(fm::$t::sinh),
                ScalarFn::Cosh => U(fm::$t::cosh),
                ScalarFn::Tanh => U(fm::$t::tanh),
                ScalarFn::Sigmoid => U(fm::$t::sigmoid),
                ScalarFn::Erf => U(fm::$t::erf),
                ScalarFn::Pow => B(fm::$t::pow),
                ScalarFn::Floor => U($t::floor),
                ScalarFn::Ceil => U($t::ceil),
                ScalarFn::Round => U($t::round_ties_even),
                ScalarFn::Trunc => U($t::trunc),
                ScalarFn::Sign => U(fm::$t::sign),
                ScalarFn::Maximum => B(fm::$t::maximum),
                ScalarFn::Minimum => B(fm::$t::minimum),
                ScalarFn::Clamp => T(|x, lo, hi| fm::$t::minimum(fm::$t::maximum(x, lo), hi)),
                ScalarFn::Eq => C(|a, b| a == b),
                ScalarFn::Ne => C(|a, b| a != b),
                ScalarFn::Lt => C(|a, b| a < b),
                ScalarFn::Le => C(|a, b| a <= b),
                ScalarFn::Gt => C(|a, b| a > b),
                ScalarFn::Ge => C(|a, b| a >= b),
                ScalarFn::IsNan => P($t::is_nan),
                ScalarFn::IsInf => P($t::is_infinite),
                ScalarFn::IsFinite => P($t::is_finite),
                ScalarFn::And | ScalarFn::Or | ScalarFn::Xor | ScalarFn::Not => return None,
                ScalarFn::Shl | ScalarFn::Shr => return None,
            })
        }
    };
}

float_kernel!(f32_kernel, f32, F32U, F32B, F32T, F32P, F32C);
float_kernel!(f64_kernel, f64, F64U, F64B, F64T, F64P, F64C);

macro_rules! int_kernel {
    ($fn:ident, $t:ident, $u:ident, $b:ident, $tern:ident, $c:ident) => {
        fn $fn(f: ScalarFn) -> Option<Kernel> {
            use crate::int_math::$t as im;
            use Kernel::{$b as B, $c as C, $tern as T, $u as U};
            Some(match f {
                ScalarFn::Add => B($t::wrapping_add),
                ScalarFn::Sub => B($t::wrapping_sub),
                ScalarFn::Mul => B($t::wrapping_mul),
                ScalarFn::FloorDiv => B(im::floordiv),
                ScalarFn::Mod => B(im::modulo),
                ScalarFn::Neg => U($t::wrapping_neg),
                ScalarFn::Abs => U(im::abs),
                ScalarFn::Fma => T(|a, b, c| a.wrapping_mul(b).wrapping_add(c)),
                ScalarFn::Sign => U(im::sign),
                ScalarFn::Maximum => B(|a, b| a.max(b)),
                ScalarFn::Minimum => B(|a, b| a.min(b)),
                // Not `clamp`, which panics when the bounds cross.
                ScalarFn::Clamp => T(|x, lo, hi| x.max(lo).min(hi)),
                ScalarFn::And => B(|a, b| a & b),
                ScalarFn::Or => B(|a, b| a | b),
                ScalarFn::Xor => B(|a, b| a ^ b),
                ScalarFn::Not => U(|a| !a),
                ScalarFn::Shl => B(im::shl),
                ScalarFn::Shr => B(im::shr),
                ScalarFn::Eq => C(|a, b| a == b),
                ScalarFn::Ne => C(|a, b| a != b),
                ScalarFn::Lt => C(|a, b| a < b),
                ScalarFn::Le => C(|a, b| a <= b),
                ScalarFn::Gt => C(|a, b| a > b),
                ScalarFn::Ge => C(|a, b| a >= b),
                ScalarFn::Div | ScalarFn::Sqrt | ScalarFn::Rsqrt | ScalarFn::Recip => return None,
                ScalarFn::Exp | ScalarFn::Exp2 | ScalarFn::Log | ScalarFn::Log2 => return None,
                ScalarFn::Log1p | ScalarFn::Expm1 | ScalarFn::Sin | ScalarFn::Cos => return None,
                ScalarFn::Tan | ScalarFn::Asin | ScalarFn::Acos | ScalarFn::Atan => return None,
                ScalarFn::Atan2 | ScalarFn::Sinh | ScalarFn::Cosh | ScalarFn::Tanh => return None,
                ScalarFn::Sigmoid | ScalarFn::Erf | ScalarFn::Pow | ScalarFn::Floor => return None,
                ScalarFn::Ceil | ScalarFn::Round | ScalarFn::Trunc => return None,
                ScalarFn::IsNan | ScalarFn::IsInf | ScalarFn::IsFinite => return None,
            })
        }
    };
}

int_kernel!(i32_kernel, i32, I32U, I32B, I32T, I32C);
int_kernel!(i64_kernel, i64, I64U, I64B, I64T, I64C);
int_kernel!(u32_kernel, u32, U32U, U32B, U32T, U32C);
int_kernel!(u64_kernel, u64, U64U, U64B, U64T, U64C);

/// Bits and comparisons; arithmetic on bools is done in i32.
fn bool_kernel(f: ScalarFn) -> Option<Kernel> {
    use Kernel::{BoolB as B, BoolU as U};
    Some(match f {
        ScalarFn::And => B(|a, b| a & b),
        ScalarFn::Or => B(|a, b| a | b),
        ScalarFn::Xor | ScalarFn::Ne => B(|a, b| a ^ b),
        ScalarFn::Not => U(|a| !a),
        ScalarFn::Eq => B(|a, b| a == b),
        ScalarFn::Lt => B(|a, b| !a & b),
        ScalarFn::Le => B(|a, b| a <= b),
        ScalarFn::Gt => B(|a, b| a & !b),
        ScalarFn::Ge => B(|a, b| a >= b),
        ScalarFn::Add | ScalarFn::Sub | ScalarFn::Mul | ScalarFn::Div => return None,
        ScalarFn::FloorDiv | ScalarFn::Mod | ScalarFn::Neg | ScalarFn::Abs => return None,
        ScalarFn::Fma | ScalarFn::Sqrt | ScalarFn::Rsqrt | ScalarFn::Recip => return None,
        ScalarFn::Exp | ScalarFn::Exp2 | ScalarFn::Log | ScalarFn::Log2 => return None,
        ScalarFn::Log1p | ScalarFn::Expm1 | ScalarFn::Sin | ScalarFn::Cos => return None,
        ScalarFn::Tan | ScalarFn::Asin | ScalarFn::Acos | ScalarFn::Atan => return None,
        ScalarFn::Atan2 | ScalarFn::Sinh | ScalarFn::Cosh | ScalarFn::Tanh => return None,
        ScalarFn::Sigmoid | ScalarFn::Erf | ScalarFn::Pow | ScalarFn::Floor => return None,
        ScalarFn::Ceil | ScalarFn::Round | ScalarFn::Trunc | ScalarFn::Sign => return None,
        ScalarFn::Maximum | ScalarFn::Minimum | ScalarFn::Clamp | ScalarFn::Shl => return None,
        ScalarFn::Shr | ScalarFn::IsNan | ScalarFn::IsInf | ScalarFn::IsFinite => return None,
    })
}
