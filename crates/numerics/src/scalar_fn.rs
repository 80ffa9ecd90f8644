//! The table of scalar functions: one row each, and everything said of a function without
//! evaluating it comes from its row. The meaning of each row is in `kernel`.

use crate::dtype::DType;
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
}

/// The error bounds of the default profile (LANGUAGE 13).
enum Bound {
    Exact,
    /// IEEE, correctly rounded.
    Ieee,
    Math,
}

macro_rules! scalar_fns {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $arity:literal, $class:ident, $bound:ident $(, $comm:ident)?;)*) => {
        /// A function of one to three scalars. Names equal the Python and IR names.
        #[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum ScalarFn { $($(#[doc = $doc])+ $variant,)* }

        impl ScalarFn {
            pub const ALL: &'static [ScalarFn] = &[$(ScalarFn::$variant,)*];

            pub const fn name(self) -> &'static str {
                match self { $(ScalarFn::$variant => $name,)* }
            }

            pub fn from_name(s: &str) -> Option<ScalarFn> {
                match s { $($name => Some(ScalarFn::$variant),)* _ => None }
            }

            /// Number of operands, 1 to 3.
            pub const fn arity(self) -> usize {
                match self { $(ScalarFn::$variant => $arity,)* }
            }

            pub const fn class(self) -> FnClass {
                match self { $(ScalarFn::$variant => FnClass::$class,)* }
            }

            /// One or more sentences for the op reference.
            pub const fn doc(self) -> &'static str {
                match self { $(ScalarFn::$variant => concat!($($doc),+).trim_ascii(),)* }
            }

            /// Whether the first two operands may change places without changing the value.
            pub const fn commutative(self) -> bool {
                match self { $(ScalarFn::$variant => scalar_fns!(@comm $($comm)?),)* }
            }

            const fn bound_kind(self) -> Bound {
                match self { $(ScalarFn::$variant => Bound::$bound,)* }
            }
        }
    };
    (@comm) => { false };
    (@comm commutes) => { true };
}

scalar_fns! {
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
    /// Reciprocal of the square root.
    Rsqrt = "rsqrt", 1, Float, Math;
    /// IEEE reciprocal `1 / x`.
    Recip = "recip", 1, Float, Ieee;
    /// e to the power x.
    Exp = "exp", 1, Float, Math;
    /// 2 to the power x.
    Exp2 = "exp2", 1, Float, Math;
    /// Natural logarithm.
    Log = "log", 1, Float, Math;
    /// Logarithm to base 2.
    Log2 = "log2", 1, Float, Math;
    /// Natural logarithm of `1 + x`, accurate near zero.
    Log1p = "log1p", 1, Float, Math;
    /// `exp(x) - 1`, accurate near zero.
    Expm1 = "expm1", 1, Float, Math;
    /// Sine of an angle in radians.
    Sin = "sin", 1, Float, Math;
    /// Cosine of an angle in radians.
    Cos = "cos", 1, Float, Math;
    /// Tangent of an angle in radians.
    Tan = "tan", 1, Float, Math;
    /// Inverse sine, in radians.
    Asin = "asin", 1, Float, Math;
    /// Inverse cosine, in radians.
    Acos = "acos", 1, Float, Math;
    /// Inverse tangent, in radians.
    Atan = "atan", 1, Float, Math;
    /// Angle of the point `(x, y)`; the operands come in the order y, x.
    Atan2 = "atan2", 2, Float, Math;
    /// Hyperbolic sine.
    Sinh = "sinh", 1, Float, Math;
    /// Hyperbolic cosine.
    Cosh = "cosh", 1, Float, Math;
    /// Hyperbolic tangent.
    Tanh = "tanh", 1, Float, Math;
    /// Logistic function `1 / (1 + exp(-x))`.
    Sigmoid = "sigmoid", 1, Float, Math;
    /// Error function.
    Erf = "erf", 1, Float, Math;
    /// First operand to the power of the second, with C's special cases.
    Pow = "pow", 2, Float, Math;
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

impl ScalarFn {
    /// The bound the default profile promises, as the op reference prints it, and how strict gets
    /// its value: by a published expansion, or by `libm` where there is none yet and in f64.
    pub const fn bound(self) -> &'static str {
        match (self.bound_kind(), self.class()) {
            (Bound::Exact, _) => "exact",
            (Bound::Ieee, FnClass::Arith) => "0.5 ulp; exact modulo 2^n on integers",
            (Bound::Ieee, _) => "0.5 ulp",
            (Bound::Math, _) => match self {
                ScalarFn::Asin | ScalarFn::Acos | ScalarFn::Sinh | ScalarFn::Cosh => {
                    "2 ulp; GPU approximations 4 ulp or 2^-21 absolute, and may flush denormals; \
                     strict f32 and f64 by libm"
                }
                _ => {
                    "2 ulp; GPU approximations 4 ulp or 2^-21 absolute, and may flush denormals; \
                     strict f32 1 ulp by its expansion; f64 by libm"
                }
            },
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
            FnClass::Shift => int,
        }
    }

    /// Type of the result for operands of the carrier type `dt`.
    pub const fn result(self, dt: DType) -> DType {
        match self.class() {
            FnClass::Compare | FnClass::Predicate => DType::Bool,
            FnClass::Arith | FnClass::Float | FnClass::Bits | FnClass::Shift => dt,
        }
    }
}

impl fmt::Display for ScalarFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
