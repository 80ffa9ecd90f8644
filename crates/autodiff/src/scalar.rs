//! Derivatives of the scalar functions, one row each: the partial derivative by every operand, as a
//! factor. Forward mode multiplies tangents by the factors and adds; reverse mode multiplies the
//! cotangent by each.

#![deny(clippy::wildcard_enum_match_arm)]

use crate::emit::{Out, Outs1};
use std::f64::consts::{LN_2, LOG2_E, LOG10_E};
use tessera_diag::Diagnostic;
use tessera_ir::Value;
use tessera_numerics::{Basic, FnKind, Real, ScalarFn};

/// The derivative of a function by one operand.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Factor {
    /// Zero everywhere it is defined.
    Zero,
    One,
    MinusOne,
    /// This value.
    Times(Value),
    /// One over this value: the product is one division.
    Over(Value),
}

/// Whether a function has a derivative; the others are piecewise constant, comparisons or integer.
pub fn moves(f: ScalarFn) -> bool {
    use Basic::*;
    let f = match f.kind() {
        FnKind::Real(_) => return true,
        FnKind::Basic(f) => f,
    };
    match f {
        Add | Sub | Mul | Div | Mod | Neg | Abs | Fma | Sqrt | Recip => true,
        Maximum | Minimum | Clamp => true,
        FloorDiv | Floor | Ceil | Round | Trunc | Sign => false,
        And | Or | Xor | Not | Shl | Shr => false,
        Popcount | Clz | Ctz | Brev | MulHi | FunnelShift => false,
        Eq | Ne | Lt | Le | Gt | Ge | IsNan | IsInf | IsFinite => false,
    }
}

/// Functions with a pole, or without a value on a side of it.
pub fn is_singular(f: ScalarFn) -> bool {
    use Basic::*;
    let f = match f.kind() {
        FnKind::Real(f) => return f.is_singular(),
        FnKind::Basic(f) => f,
    };
    match f {
        Div | Mod | FloorDiv | Sqrt | Recip => true,
        Add | Sub | Mul | Neg | Abs | Fma | Floor | Ceil | Round | Trunc | Sign => false,
        Maximum | Minimum | Clamp => false,
        And | Or | Xor | Not | Shl | Shr => false,
        Popcount | Clz | Ctz | Brev | MulHi | FunnelShift => false,
        Eq | Ne | Lt | Le | Gt | Ge | IsNan | IsInf | IsFinite => false,
    }
}

/// What the rows need of an emitter: Graph IR and Tile IR have the same scalar functions.
pub trait Scalars {
    fn ew(&mut self, f: ScalarFn, args: &[Value]) -> Out;
    /// A constant of the type of `v`.
    fn like(&mut self, value: f64, v: Value) -> Out;
    fn select(&mut self, c: Value, a: Value, b: Value) -> Out;
    /// The number that every element of a constant is.
    fn splat_of(&self, v: Value) -> Option<f64>;

    fn add(&mut self, a: Value, b: Value) -> Out {
        self.ew(ScalarFn::Add, &[a, b])
    }

    fn sub(&mut self, a: Value, b: Value) -> Out {
        self.ew(ScalarFn::Sub, &[a, b])
    }

    fn mul(&mut self, a: Value, b: Value) -> Out {
        match (self.splat_of(a), self.splat_of(b)) {
            (Some(1.0), _) => Ok(b),
            (_, Some(1.0)) => Ok(a),
            _ => self.ew(ScalarFn::Mul, &[a, b]),
        }
    }

    fn neg(&mut self, a: Value) -> Out {
        if let Some(value) = self.splat_of(a) {
            return self.like(-value, a);
        }
        self.ew(ScalarFn::Neg, &[a])
    }

    fn scale(&mut self, by: f64, v: Value) -> Out {
        let by = self.like(by, v)?;
        self.mul(by, v)
    }

    fn sum_of(&mut self, a: Option<Value>, b: Option<Value>) -> Outs1 {
        Ok(match (a, b) {
            (Some(a), Some(b)) => Some(self.add(a, b)?),
            (a, b) => a.or(b),
        })
    }

    /// The derivative of `r = f(x)` by operand `by`.
    fn factor(
        &mut self,
        f: ScalarFn,
        x: &[Value],
        r: Value,
        by: usize,
    ) -> Result<Factor, Diagnostic> {
        match f.kind() {
            FnKind::Basic(f) => self.basic_factor(f, x, r, by),
            FnKind::Real(f) => self.real_factor(f, x, r, by),
        }
    }

    fn basic_factor(
        &mut self,
        f: Basic,
        x: &[Value],
        r: Value,
        by: usize,
    ) -> Result<Factor, Diagnostic> {
        use Basic::*;
        use Factor::{MinusOne, One, Over, Times, Zero};
        let arg = |i: usize| x[i];
        let first = by == 0;
        Ok(match f {
            Add => One,
            Sub if first => One,
            Sub => MinusOne,
            Mul => Times(arg(1 - by)),
            Div if first => Over(arg(1)),
            Div => {
                let q = self.ew(ScalarFn::Div, &[r, arg(1)])?;
                Times(self.neg(q)?)
            }
            // Where the quotient does not jump.
            Mod if first => One,
            Mod => {
                let q = self.ew(ScalarFn::FloorDiv, &[arg(0), arg(1)])?;
                Times(self.neg(q)?)
            }
            Neg => MinusOne,
            Abs => Times(self.ew(ScalarFn::Sign, &[arg(0)])?),
            Fma if by == 2 => One,
            Fma => Times(arg(1 - by)),
            Sqrt => {
                let half = self.like(0.5, r)?;
                Times(self.ew(ScalarFn::Div, &[half, r])?)
            }
            Recip => {
                let square = self.mul(r, r)?;
                Times(self.neg(square)?)
            }
            Maximum => Times(self.wins(ScalarFn::Gt, arg(by), arg(1 - by))?),
            Minimum => Times(self.wins(ScalarFn::Lt, arg(by), arg(1 - by))?),
            Clamp => {
                let (v, lo, hi) = (arg(0), arg(1), arg(2));
                let holds = match by {
                    0 => self.both((ScalarFn::Gt, v, lo), (ScalarFn::Lt, v, hi))?,
                    1 => self.both((ScalarFn::Gt, lo, v), (ScalarFn::Lt, lo, hi))?,
                    _ => {
                        let raised = self.ew(ScalarFn::Maximum, &[v, lo])?;
                        self.ew(ScalarFn::Gt, &[raised, hi])?
                    }
                };
                let (one, zero) = (self.like(1.0, r)?, self.like(0.0, r)?);
                Times(self.select(holds, one, zero)?)
            }
            FloorDiv | Floor | Ceil | Round | Trunc | Sign => Zero,
            And | Or | Xor | Not | Shl | Shr => Zero,
            Popcount | Clz | Ctz | Brev | MulHi | FunnelShift => Zero,
            Eq | Ne | Lt | Le | Gt | Ge | IsNan | IsInf | IsFinite => Zero,
        })
    }

    fn real_factor(
        &mut self,
        f: Real,
        x: &[Value],
        r: Value,
        by: usize,
    ) -> Result<Factor, Diagnostic> {
        use Factor::{Over, Times};
        use Real::*;
        let arg = |i: usize| x[i];
        let first = by == 0;
        Ok(match f {
            Rsqrt => {
                let q = self.ew(ScalarFn::Div, &[r, arg(0)])?;
                Times(self.scale(-0.5, q)?)
            }
            Exp => Times(r),
            Exp2 => Times(self.scale(LN_2, r)?),
            Log => Over(arg(0)),
            Log2 => {
                let scale = self.like(LOG2_E, r)?;
                Times(self.ew(ScalarFn::Div, &[scale, arg(0)])?)
            }
            Log10 => {
                let scale = self.like(LOG10_E, r)?;
                Times(self.ew(ScalarFn::Div, &[scale, arg(0)])?)
            }
            Log1p => {
                let one = self.like(1.0, r)?;
                Over(self.add(one, arg(0))?)
            }
            Expm1 => {
                let one = self.like(1.0, r)?;
                Times(self.add(r, one)?)
            }
            Sin => Times(self.ew(ScalarFn::Cos, &[arg(0)])?),
            Cos => {
                let sin = self.ew(ScalarFn::Sin, &[arg(0)])?;
                Times(self.neg(sin)?)
            }
            Tan => {
                let one = self.like(1.0, r)?;
                Times(self.ew(ScalarFn::Fma, &[r, r, one])?)
            }
            Asin => Times(self.arc(arg(0))?),
            Acos => {
                let arc = self.arc(arg(0))?;
                Times(self.neg(arc)?)
            }
            Atan => {
                let one = self.like(1.0, r)?;
                Over(self.ew(ScalarFn::Fma, &[arg(0), arg(0), one])?)
            }
            // The operands are y, x.
            Atan2 => {
                let square = self.mul(arg(0), arg(0))?;
                let length = self.ew(ScalarFn::Fma, &[arg(1), arg(1), square])?;
                let q = self.ew(ScalarFn::Div, &[arg(1 - by), length])?;
                Times(if first { q } else { self.neg(q)? })
            }
            Sinh => Times(self.ew(ScalarFn::Cosh, &[arg(0)])?),
            Cosh => Times(self.ew(ScalarFn::Sinh, &[arg(0)])?),
            Tanh => {
                let (one, square) = (self.like(1.0, r)?, self.mul(r, r)?);
                Times(self.sub(one, square)?)
            }
            Sigmoid => {
                let one = self.like(1.0, r)?;
                let rest = self.sub(one, r)?;
                Times(self.mul(r, rest)?)
            }
            Erf => {
                let square = self.mul(arg(0), arg(0))?;
                let minus = self.neg(square)?;
                let bell = self.ew(ScalarFn::Exp, &[minus])?;
                Times(self.scale(std::f64::consts::FRAC_2_SQRT_PI, bell)?)
            }
            Pow if first => Times(self.power(arg(0), arg(1))?),
            Pow => {
                // The derivative of x^y by y is 0 at x = 0.
                let (zero, one) = (self.like(0.0, r)?, self.like(1.0, r)?);
                let none = self.ew(ScalarFn::Eq, &[arg(0), zero])?;
                let base = self.select(none, one, arg(0))?;
                let log = self.ew(ScalarFn::Log, &[base])?;
                Times(self.mul(r, log)?)
            }
        })
    }

    /// `1 / sqrt(1 - x^2)`.
    fn arc(&mut self, x: Value) -> Out {
        let one = self.like(1.0, x)?;
        let (less, more) = (self.sub(one, x)?, self.add(one, x)?);
        let rest = self.mul(less, more)?;
        self.ew(ScalarFn::Rsqrt, &[rest])
    }

    /// `y x^(y-1)`, and 0 where y is 0 whatever x is.
    fn power(&mut self, x: Value, y: Value) -> Out {
        let one = self.like(1.0, x)?;
        match self.splat_of(y) {
            Some(0.0) => return self.like(0.0, x),
            Some(1.0) => return Ok(one),
            Some(2.0) => return self.scale(2.0, x),
            Some(n) => {
                let less = self.like(n - 1.0, x)?;
                let power = self.ew(ScalarFn::Pow, &[x, less])?;
                return self.mul(y, power);
            }
            None => {}
        }
        let zero = self.like(0.0, x)?;
        let none = self.ew(ScalarFn::Eq, &[y, zero])?;
        let less = self.sub(y, one)?;
        let less = self.select(none, one, less)?;
        let power = self.ew(ScalarFn::Pow, &[x, less])?;
        let product = self.mul(y, power)?;
        self.select(none, zero, product)
    }

    /// 1 where `a` wins over `b`, one half where they are equal, else 0.
    fn wins(&mut self, how: ScalarFn, a: Value, b: Value) -> Out {
        let (one, half, zero) = (self.like(1.0, a)?, self.like(0.5, a)?, self.like(0.0, a)?);
        let (wins, tied) = (self.ew(how, &[a, b])?, self.ew(ScalarFn::Eq, &[a, b])?);
        let rest = self.select(tied, half, zero)?;
        self.select(wins, one, rest)
    }

    fn both(&mut self, one: (ScalarFn, Value, Value), other: (ScalarFn, Value, Value)) -> Out {
        let ((f, a, b), (g, c, d)) = (one, other);
        let (x, y) = (self.ew(f, &[a, b])?, self.ew(g, &[c, d])?);
        self.ew(ScalarFn::And, &[x, y])
    }

    /// The tangent of `r = f(x)`.
    fn moved(&mut self, f: ScalarFn, x: &[Value], r: Value, tangents: &[Option<Value>]) -> Outs1 {
        let mut sum = None;
        for (by, t) in tangents.iter().enumerate() {
            let Some(t) = *t else { continue };
            let factor = self.factor(f, x, r, by)?;
            let part = self.along(t, factor)?;
            sum = self.sum_of(sum, part)?;
        }
        Ok(sum)
    }

    /// What comes along, times the factor; nothing where that is zero.
    fn along(&mut self, what: Value, factor: Factor) -> Outs1 {
        Ok(match factor {
            Factor::Zero => None,
            Factor::One => Some(what),
            Factor::MinusOne => Some(self.neg(what)?),
            Factor::Times(v) => Some(self.mul(what, v)?),
            Factor::Over(v) => Some(self.ew(ScalarFn::Div, &[what, v])?),
        })
    }
}
