//! The table of scalar functions: one row each, and everything said of a function without
//! evaluating it comes from its row. The meaning of basic functions is in `kernel`, that of real
//! functions in `float_math`.

use crate::dtype::DType;
use crate::float_math;
use crate::kernel::Kernel;
use std::fmt;

/// Which types a function takes and what it gives.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FnClass {
    /// Any number, giving the same type.
    Arith,
    /// f32 and f64, giving the same type.
    Float,
    /// Any number or bool, giving bool.
    Compare,
    /// f32 and f64, giving bool.
    Predicate,
    /// Integers and bool, giving the same type.
    Bits,
    /// Integers, giving the same type; the second operand is the count.
    Shift,
    /// Integers, giving the same type: functions of their bits.
    Word,
}

/// The error bounds of basic functions in the default profile (LANGUAGE 13).
#[derive(Copy, Clone, PartialEq)]
enum Bound {
    Exact,
    /// IEEE, correctly rounded.
    Ieee,
}

/// Where a real function is defined and differentiable.
#[derive(Copy, Clone, PartialEq)]
enum Domain {
    /// It and its derivative are finite at every finite number.
    Entire,
    /// It or its derivative has a pole, or no value beyond some number.
    Singular,
}

/// How strict and the interpreter compute a real function of f32.
#[derive(Copy, Clone, PartialEq)]
enum Single {
    /// By its expansion in [`crate::strict`].
    Expanded,
    /// In f64, rounded once.
    Widened,
}

/// A function with its kind, for tables with one arm for each function of a kind.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FnKind {
    Basic(Basic),
    Real(Real),
}

macro_rules! scalar_fns {
    ($(
        basic {$($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $arity:literal, $class:ident, $bound:ident $(, $comm:ident)?;)*}
        real {$($(#[doc = $rdoc:literal])+ $real:ident = $f:ident($($x:ident),+), $domain:ident, $single:ident;)*}
    )*) => {
        /// A function of one to three scalars. Names equal the Python and IR names.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum ScalarFn { $($($(#[doc = $doc])+ $variant,)* $($(#[doc = $rdoc])+ $real,)*)* }

        /// The functions that are one operation, or a few exact ones, on every machine.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Basic { $($($(#[doc = $doc])+ $variant,)*)* }

        /// The functions of real numbers that are approximated: they have an error bound outside
        /// strict, take floats alone, and every backend has a sequence of operations for each.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Real { $($($(#[doc = $rdoc])+ $real,)*)* }

        impl Real {
            pub const ALL: &'static [Real] = &[$($(Real::$real,)*)*];

            /// Whether it, or its derivative, is infinite or undefined at some finite number.
            pub const fn is_singular(self) -> bool {
                matches!(match self { $($(Real::$real => Domain::$domain,)*)* }, Domain::Singular)
            }

            const fn single(self) -> Single {
                match self { $($(Real::$real => Single::$single,)*)* }
            }

            pub(crate) fn kernel_f64(self) -> Kernel {
                match self { $($(Real::$real => kernel!(F64U, F64B, $($x)+)(float_math::f64::$f),)*)* }
            }

            pub(crate) fn kernel_f32(self) -> Kernel {
                match self { $($(Real::$real => kernel!(F32U, F32B, $($x)+)(single!($single $f($($x),+))),)*)* }
            }
        }

        impl From<Real> for ScalarFn {
            fn from(f: Real) -> Self {
                match f { $($(Real::$real => ScalarFn::$real,)*)* }
            }
        }

        impl ScalarFn {
            pub const ALL: &'static [ScalarFn] =
                &[$($(ScalarFn::$variant,)* $(ScalarFn::$real,)*)*];

            pub const fn name(self) -> &'static str {
                match self {
                    $($(ScalarFn::$variant => $name,)* $(ScalarFn::$real => stringify!($f),)*)*
                }
            }

            /// What [`ScalarFn::class`] and the bound do not say: basic or real.
            pub const fn kind(self) -> FnKind {
                match self {
                    $($(ScalarFn::$variant => FnKind::Basic(Basic::$variant),)*
                    $(ScalarFn::$real => FnKind::Real(Real::$real),)*)*
                }
            }

            /// Number of operands, 1 to 3.
            pub const fn arity(self) -> usize {
                match self {
                    $($(ScalarFn::$variant => $arity,)*
                    $(ScalarFn::$real => [$(stringify!($x)),+].len(),)*)*
                }
            }

            pub const fn class(self) -> FnClass {
                match self {
                    $($(ScalarFn::$variant => FnClass::$class,)*
                    $(ScalarFn::$real => FnClass::Float,)*)*
                }
            }

            /// One or more sentences for the op reference.
            pub const fn doc(self) -> &'static str {
                match self {
                    $($(ScalarFn::$variant => concat!($($doc),+).trim_ascii(),)*
                    $(ScalarFn::$real => concat!($($rdoc),+).trim_ascii(),)*)*
                }
            }

            /// Whether the first two operands may change places without changing the value.
            pub const fn commutative(self) -> bool {
                match self {
                    $($(ScalarFn::$variant => commutes!($($comm)?),)*
                    $(ScalarFn::$real => false,)*)*
                }
            }

            const fn bound_kind(self) -> Option<Bound> {
                match self {
                    $($(ScalarFn::$variant => Some(Bound::$bound),)*
                    $(ScalarFn::$real => None,)*)*
                }
            }
        }
    };
}

macro_rules! commutes {
    () => {
        false
    };
    (commutes) => {
        true
    };
}

macro_rules! kernel {
    ($unary:ident, $binary:ident, $x:ident) => {
        Kernel::$unary
    };
    ($unary:ident, $binary:ident, $x:ident $y:ident) => {
        Kernel::$binary
    };
}

macro_rules! single {
    (Expanded $f:ident($($x:ident),+)) => {
        crate::strict::fast::$f
    };
    (Widened $f:ident($($x:ident),+)) => {
        |$($x: f32),+| float_math::f64::$f($(f64::from($x)),+) as f32
    };
}

scalar_fns! {
    basic {
        /// Sum. Integers wrap.
        Add = "add", 2, Arith, Ieee, commutes;
        /// Difference. Integers wrap.
        Sub = "sub", 2, Arith, Ieee;
        /// Product. Integers wrap.
        Mul = "mul", 2, Arith, Ieee, commutes;
        /// IEEE quotient of floats; integers are converted first, since `/` on them gives a float.
        Div = "div", 2, Float, Ieee;
        /// Quotient rounded down, as Python's `//`. An integer divided by zero gives 0; a float, the
        /// IEEE quotient.
        FloorDiv = "floordiv", 2, Arith, Ieee;
        /// Remainder with the sign of the divisor, as Python's `%`. An integer modulo zero gives 0; a
        /// float, NaN.
        Mod = "mod", 2, Arith, Ieee;
        /// Negation. Integers wrap, so the least one is its own negative.
        Neg = "neg", 1, Arith, Exact;
        /// Magnitude. The least signed integer is its own magnitude.
        Abs = "abs", 1, Arith, Exact;
        /// `a * b + c` with one rounding. Integers wrap.
        Fma = "fma", 3, Arith, Ieee, commutes;
        /// Square root, correctly rounded.
        Sqrt = "sqrt", 1, Float, Ieee;
    }
    real {
        /// Reciprocal of the square root.
        Rsqrt = rsqrt(x), Singular, Expanded;
    }
    basic {
        /// IEEE reciprocal `1 / x`.
        Recip = "recip", 1, Float, Ieee;
    }
    real {
        /// e to the power x.
        Exp = exp(x), Entire, Expanded;
        /// 2 to the power x.
        Exp2 = exp2(x), Entire, Expanded;
        /// Natural logarithm.
        Log = log(x), Singular, Expanded;
        /// Logarithm to base 2.
        Log2 = log2(x), Singular, Expanded;
        /// Logarithm to base 10.
        Log10 = log10(x), Singular, Expanded;
        /// Natural logarithm of `1 + x`, accurate near zero.
        Log1p = log1p(x), Singular, Expanded;
        /// `exp(x) - 1`, accurate near zero.
        Expm1 = expm1(x), Entire, Expanded;
        /// Sine of an angle in radians.
        Sin = sin(x), Entire, Expanded;
        /// Cosine of an angle in radians.
        Cos = cos(x), Entire, Expanded;
        /// Tangent of an angle in radians.
        Tan = tan(x), Singular, Expanded;
        /// Inverse sine, in radians.
        Asin = asin(x), Singular, Widened;
        /// Inverse cosine, in radians.
        Acos = acos(x), Singular, Widened;
        /// Inverse tangent, in radians.
        Atan = atan(x), Entire, Expanded;
        /// Angle of the point `(x, y)`; the operands come in the order y, x.
        Atan2 = atan2(y, x), Singular, Expanded;
        /// Hyperbolic sine.
        Sinh = sinh(x), Entire, Widened;
        /// Hyperbolic cosine.
        Cosh = cosh(x), Entire, Widened;
        /// Hyperbolic tangent.
        Tanh = tanh(x), Entire, Expanded;
        /// Logistic function `1 / (1 + exp(-x))`.
        Sigmoid = sigmoid(x), Entire, Expanded;
        /// Error function.
        Erf = erf(x), Entire, Expanded;
        /// First operand to the power of the second, with C's special cases.
        Pow = pow(x, y), Singular, Expanded;
    }
    basic {
        /// Largest whole number not above x.
        Floor = "floor", 1, Float, Exact;
        /// Smallest whole number not below x.
        Ceil = "ceil", 1, Float, Exact;
        /// Nearest whole number, halves to even.
        Round = "round", 1, Float, Exact;
        /// Whole part of x.
        Trunc = "trunc", 1, Float, Exact;
        /// -1, 0 or 1 by the sign of x; a float zero or NaN gives itself.
        Sign = "sign", 1, Arith, Exact;
        /// The greater operand. NaN wins over any number, and -0 is below +0.
        Maximum = "maximum", 2, Arith, Exact, commutes;
        /// The lesser operand. NaN wins over any number, and -0 is below +0.
        Minimum = "minimum", 2, Arith, Exact, commutes;
        /// `minimum(maximum(x, lo), hi)`; the operands come in the order x, lo, hi.
        Clamp = "clamp", 3, Arith, Exact;
        /// Bitwise and; of bools, logical.
        And = "and", 2, Bits, Exact, commutes;
        /// Bitwise or; of bools, logical.
        Or = "or", 2, Bits, Exact, commutes;
        /// Bitwise exclusive or; of bools, logical.
        Xor = "xor", 2, Bits, Exact, commutes;
        /// Bitwise complement; of a bool, logical.
        Not = "not", 1, Bits, Exact;
        /// Shift left. A count outside the width gives 0.
        Shl = "shl", 2, Shift, Exact;
        /// Shift right, keeping the sign of signed types. A count outside the width gives 0, or the
        /// sign.
        Shr = "shr", 2, Shift, Exact;
        /// How many bits are set.
        Popcount = "popcount", 1, Word, Exact;
        /// How many zero bits are above the highest set bit; of zero, the width.
        Clz = "clz", 1, Word, Exact;
        /// How many zero bits are below the lowest set bit; of zero, the width.
        Ctz = "ctz", 1, Word, Exact;
        /// The bits in reverse order.
        Brev = "brev", 1, Word, Exact;
        /// The high half of the product.
        MulHi = "mulhi", 2, Word, Exact, commutes;
        /// The high word of `hi:lo` shifted left by a count, taken modulo the width; the operands come
        /// in the order hi, lo, count.
        FunnelShift = "funnel_shift", 3, Word, Exact;
        /// Whether the operands are equal. NaN equals nothing.
        Eq = "eq", 2, Compare, Exact, commutes;
        /// Whether the operands differ. NaN differs from everything.
        Ne = "ne", 2, Compare, Exact, commutes;
        /// Whether the first is less than the second.
        Lt = "lt", 2, Compare, Exact;
        /// Whether the first is at most the second.
        Le = "le", 2, Compare, Exact;
        /// Whether the first is greater than the second.
        Gt = "gt", 2, Compare, Exact;
        /// Whether the first is at least the second.
        Ge = "ge", 2, Compare, Exact;
        /// Whether x is NaN.
        IsNan = "isnan", 1, Predicate, Exact;
        /// Whether x is an infinity.
        IsInf = "isinf", 1, Predicate, Exact;
        /// Whether x is neither NaN nor an infinity.
        IsFinite = "isfinite", 1, Predicate, Exact;
    }
    real {}
}

impl ScalarFn {
    pub fn from_name(s: &str) -> Option<ScalarFn> {
        ScalarFn::ALL.iter().copied().find(|f| f.name() == s)
    }

    /// The function as a real one, if it is approximated.
    pub const fn real(self) -> Option<Real> {
        match self.kind() {
            FnKind::Real(f) => Some(f),
            FnKind::Basic(_) => None,
        }
    }

    /// The function as a basic one, if it is exact or correctly rounded.
    pub const fn basic(self) -> Option<Basic> {
        match self.kind() {
            FnKind::Basic(f) => Some(f),
            FnKind::Real(_) => None,
        }
    }

    /// The bound the default profile promises, as the op reference prints it, and how strict gets
    /// its value: by a published expansion, or by `libm` where there is none yet and in f64.
    pub const fn bound(self) -> &'static str {
        match (self.kind(), self.bound_kind(), self.class()) {
            (FnKind::Real(f), ..) => match f.single() {
                Single::Expanded => {
                    "2 ulp; GPU approximations 4 ulp or 2^-21 absolute, and may flush denormals; \
                     strict f32 1 ulp by its expansion; f64 by libm"
                }
                Single::Widened => {
                    "2 ulp; GPU approximations 4 ulp or 2^-21 absolute, and may flush denormals; \
                     strict f32 and f64 by libm"
                }
            },
            (_, Some(Bound::Ieee), FnClass::Arith) => "0.5 ulp; exact modulo 2^n on integers",
            (_, Some(Bound::Ieee), _) => "0.5 ulp",
            (_, Some(Bound::Exact) | None, _) => "exact",
        }
    }

    /// Whether operands of the carrier type `dt` are legal. Storage types never are: they are
    /// brought to their compute type first.
    pub const fn accepts(self, dt: DType) -> bool {
        let float = matches!(dt, DType::F32 | DType::F64);
        let int = matches!(dt, DType::I32 | DType::I64 | DType::U32 | DType::U64);
        let boolean = matches!(dt, DType::Bool);
        match self.class() {
            FnClass::Arith => float || int,
            FnClass::Float | FnClass::Predicate => float,
            FnClass::Compare => float || int || boolean,
            FnClass::Bits => int || boolean,
            FnClass::Shift | FnClass::Word => int,
        }
    }

    /// Type of the result for operands of the carrier type `dt`.
    pub const fn result(self, dt: DType) -> DType {
        match self.class() {
            FnClass::Compare | FnClass::Predicate => DType::Bool,
            FnClass::Arith | FnClass::Float | FnClass::Bits | FnClass::Shift | FnClass::Word => dt,
        }
    }
}

impl fmt::Display for ScalarFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
