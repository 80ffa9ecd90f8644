//! What numbers a value can be where it is made of padding and constants alone: an interval that is
//! carried through the scalar functions, and folded where it is one number.

use tessera_numerics::{DType, Scalar, ScalarFn, cast, eval};

#[derive(Copy, Clone, PartialEq, Debug)]
pub(super) enum Held {
    /// Finite, at least the first and at most the second.
    Between(f64, f64),
    /// Infinity or NaN, known to be so.
    Never(NotFinite),
    /// Another operand enters: anything.
    Unknown,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum NotFinite {
    NaN,
    Inf,
    MinusInf,
}

impl NotFinite {
    pub fn text(self) -> &'static str {
        match self {
            NotFinite::NaN => "NaN",
            NotFinite::Inf => "inf",
            NotFinite::MinusInf => "-inf",
        }
    }

    fn value(self) -> f64 {
        match self {
            NotFinite::NaN => f64::NAN,
            NotFinite::Inf => f64::INFINITY,
            NotFinite::MinusInf => f64::NEG_INFINITY,
        }
    }
}

impl Held {
    pub const ZERO: Held = Held::Between(0.0, 0.0);

    pub fn number(x: f64) -> Held {
        match x {
            x if x.is_finite() => Held::Between(x, x),
            x if x.is_nan() => Held::Never(NotFinite::NaN),
            x if x > 0.0 => Held::Never(NotFinite::Inf),
            _ => Held::Never(NotFinite::MinusInf),
        }
    }

    /// All that is known of any value of a dtype: integers are finite.
    pub fn of(dtype: DType) -> Held {
        match dtype {
            DType::Bool => Held::Between(0.0, 1.0),
            d if d.is_int() => Held::Between(-(2f64.powi(63)), 2f64.powi(64)),
            _ => Held::Unknown,
        }
    }

    pub fn is_zero(self) -> bool {
        self == Held::ZERO
    }

    pub fn is_finite(self) -> bool {
        matches!(self, Held::Between(..))
    }

    /// One of two, it is not known which.
    pub fn or(self, other: Held) -> Held {
        match (self, other) {
            (a, b) if a == b => a,
            (Held::Between(a, b), Held::Between(c, d)) => Held::Between(a.min(c), b.max(d)),
            _ => Held::Unknown,
        }
    }

    /// The one number, infinities and NaN included.
    fn single(self) -> Option<f64> {
        match self {
            Held::Between(a, b) if a == b => Some(a),
            Held::Never(x) => Some(x.value()),
            Held::Between(..) | Held::Unknown => None,
        }
    }

    /// What is left where a dtype cannot hold all of it.
    fn within(self, dtype: DType) -> Held {
        let most = match dtype {
            d if !d.is_float() => {
                return if self == Held::Unknown { Held::of(dtype) } else { self };
            }
            DType::F64 => f64::MAX,
            DType::F32 | DType::Tf32 | DType::BF16 => f64::from(f32::MAX) / 2.0,
            // Narrower formats saturate or overflow, each in its own way.
            _ => 64.0,
        };
        match self {
            Held::Between(a, b) if a < b && (a < -most || b > most) => Held::Unknown,
            held => held,
        }
    }

    /// A conversion to another dtype.
    pub fn converted(self, from: DType, to: DType) -> Held {
        if let Some(x) = self.single() {
            let given = cast(Scalar::F64(x), DType::F64, from);
            return Held::number(cast(given, from, to).as_f64());
        }
        match (self, to) {
            (_, DType::Bool) => Held::of(to),
            (Held::Between(a, b), to) if to.is_int() => {
                Held::Between(a.min(0.0).floor(), b.max(0.0).ceil())
            }
            (held, to) => held.within(to),
        }
    }
}

/// The result of a function. `own` says of an operand that nothing along the axis is padding: it is
/// the user's own number, and zero times it is taken as zero unless it is known to be otherwise.
pub(super) fn apply(f: ScalarFn, args: &[(Held, bool)], from: DType, to: DType) -> Held {
    use ScalarFn as F;
    let held: Vec<Held> = args.iter().map(|a| a.0).collect();
    if let Some(numbers) = held.iter().map(|h| h.single()).collect::<Option<Vec<_>>>() {
        let given = |x: f64| cast(Scalar::F64(x), DType::F64, from);
        let scalars: Vec<Scalar> = numbers.into_iter().map(given).collect();
        return eval(f, &scalars).map_or(Held::Unknown, |x| Held::number(x.as_f64()));
    }
    let clears = |(h, own): (Held, bool)| h.is_finite() || own && h == Held::Unknown;
    let product = |a: (Held, bool), b: (Held, bool)| match (a.0, b.0) {
        _ if a.0.is_zero() && clears(b) || b.0.is_zero() && clears(a) => Held::ZERO,
        (Held::Between(a, b), Held::Between(c, d)) => hull(&[a * c, a * d, b * c, b * d]),
        _ => Held::Unknown,
    };
    let sum = |a: Held, b: Held| match (a, b) {
        (Held::Between(a, b), Held::Between(c, d)) => hull(&[a + c, b + d]),
        _ => Held::Unknown,
    };
    let negative = |a: Held| match a {
        Held::Between(a, b) => Held::Between(-b, -a),
        other => other,
    };
    let each = |g: &dyn Fn(f64, f64) -> f64| match (held[0], held[1]) {
        (Held::Between(a, b), Held::Between(c, d)) => Held::Between(g(a, c), g(b, d)),
        _ => Held::Unknown,
    };
    let kept = |g: &dyn Fn(f64) -> f64| match held[0] {
        Held::Between(a, b) => Held::Between(g(a), g(b)),
        other => other,
    };
    let out = match f {
        F::Mul => product(args[0], args[1]),
        F::Fma => sum(product(args[0], args[1]), held[2]),
        F::Add => sum(held[0], held[1]),
        F::Sub => sum(held[0], negative(held[1])),
        F::Neg => negative(held[0]),
        F::Abs => match held[0] {
            Held::Between(a, b) => Held::Between(0.0, b.max(-a)),
            other => other,
        },
        F::Maximum => each(&f64::max),
        F::Minimum => each(&f64::min),
        F::Floor => kept(&f64::floor),
        F::Ceil => kept(&f64::ceil),
        F::Trunc => kept(&f64::trunc),
        F::Round => kept(&f64::round),
        F::Exp => kept(&f64::exp),
        F::Exp2 => kept(&f64::exp2),
        // Finite whatever finite number they are given.
        F::Sin | F::Cos | F::Tanh | F::Erf | F::Sign if held[0].is_finite() => {
            Held::Between(-1.0, 1.0)
        }
        F::Sigmoid if held[0].is_finite() => Held::Between(0.0, 1.0),
        // False, or no bits, with anything is that again; so is zero shifted or divided as integers.
        F::And if held.iter().any(|h| h.is_zero()) => Held::ZERO,
        F::Shl | F::Shr if held[0].is_zero() => Held::ZERO,
        F::FloorDiv | F::Mod if held[0].is_zero() && !from.is_float() => Held::ZERO,
        F::Div if held[0].is_zero() => match held[1] {
            Held::Between(a, b) if a > 0.0 || b < 0.0 => Held::ZERO,
            _ => Held::Unknown,
        },
        _ => Held::Unknown,
    };
    out.within(to)
}

fn hull(xs: &[f64]) -> Held {
    let low = xs.iter().copied().fold(f64::INFINITY, f64::min);
    let high = xs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if low.is_finite() && high.is_finite() { Held::Between(low, high) } else { Held::Unknown }
}
