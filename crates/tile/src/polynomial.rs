//! Sums of products of integers: what the front end's slices and the lifting of staged buffers compare
//! positions by.

use crate::analysis::{dim_expr_of, keeps};
use crate::interval::{interval_of, is_exact};
use crate::numbering::Numbering;
use crate::{Tile, TileOp};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, DimExpr, DimOp, Func, Value};
use tessera_numerics::{DType, ScalarFn};

/// How many ops and products of terms one query may visit.
const FUEL: usize = 2000;

/// What a product is made of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Factor {
    Dim(DimExpr),
    /// A group's coordinate: two ops with one axis are one number.
    Program(i64),
    /// A value of which nothing else is known, or the first of equal ones.
    Value(Value),
}

/// A sum of products with coefficients, none of them zero: equal sums are equal numbers, and the
/// numbers have no end.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Polynomial(BTreeMap<Vec<Factor>, i64>);

impl Polynomial {
    /// The polynomial of an integer scalar. Values in `unknown` are factors, whatever defines them,
    /// and so are numbers that may have wrapped: the polynomial is the number that the kernel computes.
    pub fn of(func: &Func<Tile>, value: Value, unknown: &BTreeSet<Value>) -> Option<Self> {
        let mut factors = unknown.clone();
        wrapping(func, value, &mut factors, &mut { FUEL })?;
        polynomial(func, value, &factors, &mut |v| v, &mut { FUEL })
    }

    /// The polynomials of several integers as they are written: numbers have no end, so that
    /// `start + 64` is 64 beyond `start` whatever its type is. Equal values are one factor: the
    /// first of them, whatever computes it.
    pub fn of_all<const N: usize>(
        func: &Func<Tile>,
        values: [Value; N],
        unknown: &BTreeSet<Value>,
    ) -> Option<[Self; N]> {
        let mut numbering = Numbering::new(func, unknown);
        let mut out = [const { Self(BTreeMap::new()) }; N];
        for (p, value) in out.iter_mut().zip(values) {
            *p = polynomial(func, value, unknown, &mut |v| numbering.first(v), &mut { FUEL })?;
        }
        Some(out)
    }

    /// Sums and products of an expression are taken apart.
    pub fn of_dim(e: &DimExpr) -> Option<Self> {
        let DimExpr::Bin(op, a, b) = e else {
            return Some(match e {
                DimExpr::Const(v) => Self::constant(*v),
                other => Self::factor(Factor::Dim(in_order(other))),
            });
        };
        match op {
            DimOp::Add => Self::of_dim(a)?.plus(&Self::of_dim(b)?),
            DimOp::Sub => Self::of_dim(a)?.minus(&Self::of_dim(b)?),
            DimOp::Mul => Self::of_dim(a)?.times(&Self::of_dim(b)?),
            DimOp::FloorDiv | DimOp::CeilDiv | DimOp::Mod | DimOp::Min | DimOp::Max => {
                Some(Self::factor(Factor::Dim(in_order(e))))
            }
        }
    }

    pub fn constant(v: i64) -> Self {
        let mut out = Self::default();
        if v != 0 {
            out.0.insert(Vec::new(), v);
        }
        out
    }

    pub fn factor(f: Factor) -> Self {
        Self([(vec![f], 1)].into())
    }

    /// The number, if it is known.
    pub fn as_constant(&self) -> Option<i64> {
        match self.0.first_key_value() {
            None => Some(0),
            Some((term, &v)) if term.is_empty() && self.0.len() == 1 => Some(v),
            Some(_) => None,
        }
    }

    /// Products and their coefficients.
    pub fn terms(&self) -> impl Iterator<Item = (&[Factor], i64)> {
        self.0.iter().map(|(term, &by)| (term.as_slice(), by))
    }

    pub fn plus(&self, other: &Self) -> Option<Self> {
        self.clone().add_scaled(other, 1)
    }

    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.clone().add_scaled(other, -1)
    }

    pub fn times(&self, other: &Self) -> Option<Self> {
        self.product(other, &mut { FUEL })
    }

    /// Every coefficient divided, if all are multiples.
    pub fn divided(&self, by: i64) -> Option<Self> {
        let mut out = Self::default();
        for (term, c) in &self.0 {
            let (quotient, rest) = (c.checked_div(by)?, c.checked_rem(by)?);
            if rest != 0 {
                return None;
            }
            out.0.insert(term.clone(), quotient);
        }
        Some(out)
    }

    /// With another polynomial in the place of a value.
    pub fn with(&self, value: Value, by: &Self) -> Option<Self> {
        let mut out = Self::default();
        for (term, &c) in &self.0 {
            let mut product = Self::constant(c);
            for factor in term {
                product = match factor {
                    Factor::Value(v) if *v == value => product.times(by)?,
                    other => product.times(&Self::factor(other.clone()))?,
                };
            }
            out = out.add_scaled(&product, 1)?;
        }
        Some(out)
    }

    fn add(&mut self, term: Vec<Factor>, by: i64) -> Option<()> {
        let sum = self.0.get(&term).copied().unwrap_or(0).checked_add(by)?;
        if sum == 0 {
            self.0.remove(&term);
        } else {
            self.0.insert(term, sum);
        }
        Some(())
    }

    fn add_scaled(mut self, other: &Self, by: i64) -> Option<Self> {
        for (term, c) in &other.0 {
            self.add(term.clone(), c.checked_mul(by)?)?;
        }
        Some(self)
    }

    fn product(&self, other: &Self, fuel: &mut usize) -> Option<Self> {
        let mut out = Self::default();
        for (a, x) in &self.0 {
            for (b, y) in &other.0 {
                *fuel = fuel.checked_sub(1)?;
                let mut term: Vec<Factor> = a.iter().chain(b).cloned().collect();
                term.sort();
                out.add(term, x.checked_mul(*y)?)?;
            }
        }
        Some(out)
    }
}

/// Adds the values below a scalar that may not be the number that their operands give.
fn wrapping(
    func: &Func<Tile>,
    value: Value,
    factors: &mut BTreeSet<Value>,
    fuel: &mut usize,
) -> Option<()> {
    *fuel = fuel.checked_sub(1)?;
    let Some(op) = func.def(value).filter(|_| !factors.contains(&value)) else { return Some(()) };
    let stays = match op.code {
        TileOp::Cast => {
            let (from, to) = (func.ty(op.operands[0]).dtype(), func.ty(value).dtype());
            keeps(from, to) || interval_of(func, op.operands[0]).hi.is_some()
        }
        TileOp::Ew(ScalarFn::Add | ScalarFn::Sub | ScalarFn::Neg | ScalarFn::Mul) => {
            func.ty(value).rank() == 0 && is_exact(func, value)
        }
        _ => return Some(()),
    };
    if !stays {
        factors.insert(value);
        return Some(());
    }
    op.operands.iter().try_for_each(|&v| wrapping(func, v, factors, fuel))
}

fn polynomial(
    func: &Func<Tile>,
    value: Value,
    unknown: &BTreeSet<Value>,
    first: &mut dyn FnMut(Value) -> Value,
    fuel: &mut usize,
) -> Option<Polynomial> {
    *fuel = fuel.checked_sub(1)?;
    if unknown.contains(&value) {
        return Some(Polynomial::factor(Factor::Value(value)));
    }
    let other = |first: &mut dyn FnMut(Value) -> Value| {
        Polynomial::factor(match dim_expr_of(func, value) {
            Some(e) => Factor::Dim(in_order(&e)),
            None => Factor::Value(first(value)),
        })
    };
    let Some(op) = func.def(value) else { return Some(other(first)) };
    Some(match op.code {
        TileOp::Const => match op.attr("value").and_then(Attr::as_int) {
            Some(v) => Polynomial::constant(v),
            None => other(first),
        },
        TileOp::ProgramId => {
            let axis = op.attr("axis").and_then(Attr::as_int)?;
            Polynomial::factor(Factor::Program(axis))
        }
        // A position beyond the 63rd bit is outside whatever it is taken for.
        TileOp::Cast if widens(func.ty(op.operands[0]).dtype(), func.ty(value).dtype()) => {
            polynomial(func, op.operands[0], unknown, first, fuel)?
        }
        TileOp::Ew(f) if func.ty(value).rank() == 0 && func.ty(value).dtype().is_int() => {
            let mut x =
                |i: usize, fuel: &mut usize| polynomial(func, op.operands[i], unknown, first, fuel);
            match f {
                ScalarFn::Add => x(0, fuel)?.plus(&x(1, fuel)?)?,
                ScalarFn::Sub => x(0, fuel)?.minus(&x(1, fuel)?)?,
                ScalarFn::Neg => Polynomial::default().minus(&x(0, fuel)?)?,
                ScalarFn::Mul => {
                    let (a, b) = (x(0, fuel)?, x(1, fuel)?);
                    a.product(&b, fuel)?
                }
                _ => other(first),
            }
        }
        _ => other(first),
    })
}

/// The expression with the operands in one order where their order does not matter.
fn in_order(e: &DimExpr) -> DimExpr {
    let DimExpr::Bin(op, a, b) = e else { return e.clone() };
    let (a, b) = (in_order(a), in_order(b));
    let commutes = match op {
        DimOp::Add | DimOp::Mul | DimOp::Min | DimOp::Max => true,
        DimOp::Sub | DimOp::FloorDiv | DimOp::CeilDiv | DimOp::Mod => false,
    };
    let (a, b) = if commutes && b < a { (b, a) } else { (a, b) };
    DimExpr::Bin(*op, a.into(), b.into())
}

fn widens(from: DType, to: DType) -> bool {
    keeps(from, to) || (from.is_int() && to == DType::I64)
}
