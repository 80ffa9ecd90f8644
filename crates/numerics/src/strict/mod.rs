//! Strict mathematics (LANGUAGE 14): each function one fixed sequence of basic operations, the same
//! on every backend, within 1 ulp, subnormals kept.
//!
//! [`expansion`] gives the sequence as data and [`eval_expansion`] its meaning; the functions in
//! [`fast`] give the same bits quickly. Both come from one formula, generic over [`real::Real`].
//! Only f32 and integers are used: f64 is slow or absent on the machines strict results must be had
//! on. The measured errors are in `docs/numerics/strict.md`.

mod angle;
mod atan;
mod direct;
mod exp;
mod expansion;
mod log;
mod pair;
mod pow;
mod quick;
mod real;
mod record;
mod smooth;

pub use expansion::{BASIC, ExpOp, Expansion, ExpansionEval, Slot, eval_expansion};

use crate::scalar_fn::ScalarFn;
use std::sync::LazyLock;

macro_rules! strict_fns {
    ($($variant:ident = $module:ident::$name:ident($($x:ident),+);)*) => {
        /// The functions that have an expansion.
        pub const STRICT: &[ScalarFn] = &[$(ScalarFn::$variant,)*];

        /// The published expansion of an f32 function; `None` where the function is itself a basic
        /// operation or has none yet.
        pub fn expansion(f: ScalarFn) -> Option<&'static Expansion> {
            match f {
                $(ScalarFn::$variant => {
                    static E: LazyLock<Expansion> = LazyLock::new(|| {
                        record::record(f_arity!($($x),+), |inputs| {
                            let &[$($x),+] = inputs else { unreachable!("arity is given above") };
                            $module::$name($($x),+)
                        })
                    });
                    Some(&E)
                })*
                _ => None,
            }
        }

        /// The expansions as functions, compiled with the machine's fused multiply-add where it has
        /// one and with the exact software one where it does not.
        pub mod fast {
            $(pub fn $name($($x: f32),+) -> f32 {
                #[cfg(target_arch = "x86_64")]
                {
                    #[target_feature(enable = "fma")]
                    fn fused($($x: f32),+) -> f32 {
                        super::$module::$name($($x),+)
                    }
                    if std::arch::is_x86_feature_detected!("fma") {
                        // SAFETY: the processor has the one feature the function is compiled for.
                        return unsafe { fused($($x),+) };
                    }
                }
                super::$module::$name($($x),+)
            })*
        }
    };
}

macro_rules! f_arity {
    ($a:ident) => {
        1
    };
    ($a:ident, $b:ident) => {
        2
    };
}

strict_fns! {
    Rsqrt = smooth::rsqrt(x);
    Exp = exp::exp(x);
    Exp2 = exp::exp2(x);
    Log = log::log(x);
    Log2 = log::log2(x);
    Log10 = log::log10(x);
    Log1p = log::log1p(x);
    Expm1 = exp::expm1(x);
    Sin = angle::sin(x);
    Cos = angle::cos(x);
    Tan = angle::tan(x);
    Atan = atan::atan(x);
    Atan2 = atan::atan2(y, x);
    Tanh = smooth::tanh(x);
    Sigmoid = smooth::sigmoid(x);
    Erf = smooth::erf(x);
    Pow = pow::pow(x, y);
}

macro_rules! quick_fns {
    ($($variant:ident = $name:ident;)*) => {
        /// The functions that have a shorter sequence for the default profile.
        pub const QUICK: &[ScalarFn] = &[$(ScalarFn::$variant,)*];

        /// A sequence within 2 ulp that is shorter than the strict one, for the default profile.
        pub fn quick_expansion(f: ScalarFn) -> Option<&'static Expansion> {
            match f {
                $(ScalarFn::$variant => {
                    static E: LazyLock<Expansion> =
                        LazyLock::new(|| record::record(1, |inputs| quick::$name(inputs[0])));
                    Some(&E)
                })*
                _ => None,
            }
        }

        /// The same as a function, where there is one.
        pub fn quick_f32(f: ScalarFn) -> Option<fn(f32) -> f32> {
            match f {
                $(ScalarFn::$variant => Some(quick::$name::<f32>),)*
                _ => None,
            }
        }
    };
}

quick_fns! {
    Exp = exp;
    Exp2 = exp2;
    Tanh = tanh;
    Sigmoid = sigmoid;
}
