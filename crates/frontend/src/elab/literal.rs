//! Weak types of literals (LANGUAGE 20): a literal takes the type of the other operand. An integer
//! literal takes the other operand's integer type if it fits, else the first of i64 and u64 that
//! holds both. Values chosen between literals at run time stay weak too.

use super::Elab;
use super::val::{Const, OpenKind, Val};
use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic};
use tessera_ir::{Attr, Type, Value};
use tessera_numerics::{DType, FnClass, ScalarFn};

/// An operand's weight in promotion: strong operands decide the dtype, weak ones adapt.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Weight {
    Strong(DType),
    WeakBool,
    /// An integer somewhere in this range.
    WeakInt(i128, i128),
    WeakFloat,
}

/// A run-time value that was chosen between literals, or is begun with one.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Weak {
    Int(i128, i128),
    /// Held in f64, which keeps every digit of the literals.
    Float,
}

/// Whether an integer dtype holds every number of the range.
pub fn holds(dtype: DType, lo: i128, hi: i128) -> bool {
    let bits = dtype.bits();
    let (least, most) = if dtype.is_unsigned_int() {
        (0, (1i128 << bits) - 1)
    } else {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    };
    least <= lo && hi <= most
}

fn range_of(dtype: DType) -> (i128, i128) {
    let bits = dtype.bits();
    if dtype.is_unsigned_int() {
        (0, (1i128 << bits) - 1)
    } else {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    }
}

/// The integer type for a literal beside a value of an integer dtype (or bool).
fn beside(dtype: DType, lo: i128, hi: i128) -> Option<DType> {
    let own = dtype.compute();
    let (least, most) = range_of(own);
    [own, DType::I64, DType::U64]
        .into_iter()
        .find(|&d| holds(d, lo.min(least), hi.max(most)) || (d == own && holds(d, lo, hi)))
}

/// The weight of two operands together; `None` where no type holds both.
pub fn join(a: Weight, b: Weight) -> Option<Weight> {
    use Weight::*;
    Some(match (a, b) {
        (Strong(x), Strong(y)) => Strong(DType::join(x, y)?),
        (Strong(d), WeakBool) | (WeakBool, Strong(d)) => Strong(d),
        (Strong(d), WeakInt(..)) | (WeakInt(..), Strong(d)) if d.is_float() => Strong(d),
        (Strong(d), WeakInt(lo, hi)) | (WeakInt(lo, hi), Strong(d)) => Strong(beside(d, lo, hi)?),
        (Strong(d), WeakFloat) | (WeakFloat, Strong(d)) => {
            Strong(if d.is_float() { d } else { DType::F32 })
        }
        (WeakFloat, _) | (_, WeakFloat) => WeakFloat,
        (WeakInt(a, b), WeakInt(c, d)) => WeakInt(a.min(c), b.max(d)),
        (WeakInt(a, b), WeakBool) | (WeakBool, WeakInt(a, b)) => WeakInt(a.min(0), b.max(1)),
        (WeakBool, WeakBool) => WeakBool,
    })
}

/// The default dtype of an integer in the range, where no typed operand decides it.
pub fn default_int(lo: i128, hi: i128) -> Option<DType> {
    [DType::I64, DType::U64].into_iter().find(|&d| holds(d, lo, hi))
}

impl Weight {
    /// The dtype that the operands are brought to.
    pub fn dtype(self) -> Option<DType> {
        match self {
            Weight::Strong(d) => Some(d.carrier()),
            Weight::WeakBool => Some(DType::Bool),
            Weight::WeakInt(lo, hi) => default_int(lo, hi),
            Weight::WeakFloat => Some(DType::F32),
        }
    }
}

impl Elab<'_> {
    /// What a value adds to the choice of a dtype; `None` for what is no number.
    pub fn weight_of(&self, v: &Val) -> Option<Weight> {
        Some(match v {
            Val::Const(Const::Bool(_)) | Val::Open(OpenKind::Bool) => Weight::WeakBool,
            Val::Const(Const::Int(v)) => Weight::WeakInt(*v, *v),
            Val::Open(OpenKind::Int | OpenKind::Other) => Weight::WeakInt(0, 0),
            Val::Const(Const::Float(_)) | Val::Open(OpenKind::Float) => Weight::WeakFloat,
            Val::Dim(_) => Weight::Strong(DType::I64),
            Val::Rt(value) => match self.weak.get(value) {
                Some(Weak::Int(lo, hi)) => Weight::WeakInt(*lo, *hi),
                Some(Weak::Float) => Weight::WeakFloat,
                None => Weight::Strong(self.ty(*value).dtype()),
            },
            Val::Buf { buf, .. } => Weight::Strong(self.ty(*buf).dtype()),
            _ => return None,
        })
    }

    /// What is known of a value that is one of two literals or weak values.
    pub fn weak_join(&self, a: &Val, b: &Val) -> Option<Weak> {
        let (x, y) = (self.weight_of(a)?, self.weight_of(b)?);
        let open = |v: &Val| matches!(v, Val::Open(_));
        if open(a) || open(b) {
            return None;
        }
        match join(x, y)? {
            Weight::WeakInt(lo, hi) => default_int(lo, hi).map(|_| Weak::Int(lo, hi)),
            Weight::WeakFloat => Some(Weak::Float),
            Weight::Strong(_) | Weight::WeakBool => None,
        }
    }

    /// The dtype a weak value is held in.
    pub fn weak_dtype(weak: Weak) -> DType {
        match weak {
            Weak::Int(lo, hi) => default_int(lo, hi).unwrap_or(DType::I64),
            Weak::Float => DType::F64,
        }
    }

    /// Remembers that a value is weakly typed, as literals are, and what it was computed from.
    pub fn note_weak(&mut self, value: Value, weak: Weak, from: &[Val]) {
        self.weak.insert(value, weak);
        let mut roots = BTreeSet::new();
        for v in from {
            if let Val::Rt(v) = v {
                roots.extend(self.weak_roots.get(v).into_iter().flatten().copied());
            }
        }
        self.weak_roots.insert(value, roots);
    }

    /// A weak float is an f32 where no typed operand decides it.
    pub fn settled(&mut self, value: Value) -> Value {
        if self.weak.get(&value) != Some(&Weak::Float) {
            return value;
        }
        use tessera_tile::TileBuild;
        self.b().cast(value, DType::F32)
    }

    /// What is known of `f(a, b)` where both are weak integers.
    pub fn weak_result(&self, f: ScalarFn, operands: &[Val]) -> Option<Weak> {
        let range = |v: &Val| match self.weight_of(v)? {
            Weight::WeakInt(lo, hi) => Some((lo, hi)),
            _ => None,
        };
        if !operands.iter().any(|v| matches!(v, Val::Rt(_))) {
            return None;
        }
        let out = match (f, operands) {
            (ScalarFn::Neg, [x]) => {
                let (lo, hi) = range(x)?;
                (hi.checked_neg()?, lo.checked_neg()?)
            }
            (ScalarFn::Add, [x, y]) => {
                let (x, y) = (range(x)?, range(y)?);
                (x.0.checked_add(y.0)?, x.1.checked_add(y.1)?)
            }
            (ScalarFn::Sub, [x, y]) => {
                let (x, y) = (range(x)?, range(y)?);
                (x.0.checked_sub(y.1)?, x.1.checked_sub(y.0)?)
            }
            (ScalarFn::Mul, [x, y]) => {
                let (x, y) = (range(x)?, range(y)?);
                let ends = [
                    x.0.checked_mul(y.0)?,
                    x.0.checked_mul(y.1)?,
                    x.1.checked_mul(y.0)?,
                    x.1.checked_mul(y.1)?,
                ];
                (*ends.iter().min()?, *ends.iter().max()?)
            }
            _ => return None,
        };
        holds(DType::I64, out.0, out.1).then_some(Weak::Int(out.0, out.1))
    }

    /// A compile-time number as an attribute of a dtype. What the dtype cannot hold is reported.
    pub fn literal(&mut self, c: &Const, dtype: DType) -> Option<Attr> {
        let attr = match c {
            Const::Bool(v) if dtype == DType::Bool => Attr::Bool(*v),
            Const::Bool(v) if dtype.is_float() => Attr::Float(f64::from(u8::from(*v))),
            Const::Bool(v) => Attr::Int(i64::from(*v)),
            Const::Int(v) if dtype == DType::Bool => Attr::Bool(*v != 0),
            Const::Int(v) if dtype.is_float() => {
                // Rounded once: an f64 between would be a second time.
                let near = if dtype == DType::F32 { f64::from(*v as f32) } else { *v as f64 };
                let near = if near.is_finite() { near } else { *v as f64 };
                return self.float_literal(near, &v.to_string(), dtype);
            }
            // Values from 2^63 on are written as the i64 with the same bits.
            Const::Int(v) if holds(dtype, *v, *v) => Attr::Int(*v as i64),
            Const::Int(v) => {
                let (least, most) = range_of(dtype);
                self.error_help(
                    Code::E_OVERFLOW,
                    format!("expected a number that {dtype} holds, {least} to {most}, got {v}"),
                    format!("cast it where it should wrap: ts.tile.cast({v}, ts.{dtype})"),
                );
                return None;
            }
            Const::Float(v) if dtype.is_float() => {
                return self.float_literal(*v, &format!("{v:?}"), dtype);
            }
            Const::Float(v) => {
                self.error_help(
                    Code::E_TYPE,
                    format!("expected a value of dtype {dtype}, got the number {v:?}"),
                    format!("cast it: ts.tile.cast({v:?}, ts.{dtype})"),
                );
                return None;
            }
            Const::Str(_) | Const::DType(_) => {
                let what = self.describe(&Val::Const(c.clone()));
                self.error_help(
                    Code::E_TYPE,
                    format!("expected a value of dtype {dtype}, got {what}"),
                    "ts.tile.cast(x, dtype) converts between dtypes",
                );
                return None;
            }
        };
        Some(attr)
    }

    fn float_literal(&mut self, v: f64, text: &str, dtype: DType) -> Option<Attr> {
        if v.is_finite() && becomes_infinite(v, dtype) {
            self.error_help(
                Code::E_OVERFLOW,
                format!("expected a number that {dtype} holds, got {text}, which would be inf"),
                "write math.inf if infinity is meant, or compute in a wider dtype",
            );
            return None;
        }
        Some(Attr::Float(v))
    }

    /// Zero of a dtype.
    pub fn zero(dtype: DType) -> Attr {
        match dtype {
            DType::Bool => Attr::Bool(false),
            d if d.is_float() => Attr::Float(0.0),
            _ => Attr::Int(0),
        }
    }

    /// Remembers that literals made the type of a value wider than that of the typed operands, and
    /// whatever is computed from it.
    pub fn note_widening(&mut self, f: ScalarFn, operands: &[Val], result: Value) {
        let dtype = self.ty(result).dtype();
        if !dtype.is_int() || matches!(f.class(), FnClass::Compare | FnClass::Predicate) {
            return;
        }
        let inherits = operands.iter().any(|v| matches!(v, Val::Rt(x) if self.widened.contains(x)));
        let strong = operands
            .iter()
            .filter_map(|v| match self.weight_of(v) {
                Some(Weight::Strong(d)) => Some(d),
                _ => None,
            })
            .reduce(|a, b| DType::join(a, b).unwrap_or(a));
        let widens = strong.is_some_and(|d| d.compute() != dtype);
        if inherits || widens {
            self.widened.insert(result);
        }
    }

    /// Refuses to store what a literal made wider into a narrower integer.
    pub fn check_widened(&mut self, value: Value, target: DType) {
        let dtype = self.ty(value).dtype();
        let narrower = target.is_int() && {
            let (lo, hi) = range_of(dtype);
            !holds(target, lo, hi)
        };
        if self.widened.contains(&value) && narrower {
            self.report(
                Diagnostic::new(
                    Code::E_OVERFLOW,
                    format!(
                        "expected a value that {target} holds, got one that a literal made {dtype}"
                    ),
                )
                .help(format!("cast it where it should wrap: ts.tile.cast(…, ts.{target})")),
            );
        }
    }

    /// What an explicit conversion begins with: literals keep all their digits, and wrap.
    pub fn cast_source(&mut self, v: &Val, dtype: DType) -> Option<Value> {
        use tessera_tile::TileBuild;
        match v {
            Val::Rt(value) => Some(*value),
            Val::Const(Const::Float(x)) => {
                Some(self.b().constant(Type::Scalar(DType::F64), Attr::Float(*x)))
            }
            Val::Const(Const::Int(i)) if default_int(*i, *i).is_none() => {
                Some(if dtype.is_float() {
                    self.b().constant(Type::Scalar(DType::F64), Attr::Float(*i as f64))
                } else {
                    self.b().constant(Type::INDEX, Attr::Int(*i as i64))
                })
            }
            other => self.runtime(other),
        }
    }

    /// A scalar constant of a dtype.
    pub fn scalar(&mut self, c: &Const, dtype: DType) -> Option<Value> {
        use tessera_tile::TileBuild;
        let attr = self.literal(c, dtype)?;
        Some(self.b().constant(Type::Scalar(dtype), attr))
    }
}

fn becomes_infinite(v: f64, dtype: DType) -> bool {
    match dtype {
        DType::F64 => false,
        DType::F32 | DType::Tf32 => (v as f32).is_infinite(),
        // Above the largest number by half of its last digit, which rounds away from it.
        DType::F16 => v.abs() >= 65520.0,
        DType::BF16 => v.abs() >= f64::from(f32::from_bits(0x7F7F_8000)),
        // These saturate.
        _ => false,
    }
}
