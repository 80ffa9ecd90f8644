//! The constant difference of two integers, where it is known for all their values: `s + 32` and
//! `s`.

use crate::analysis::{dim_expr_of, keeps};
use crate::{Tile, TileOp};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, DimExpr, DimOp, Func, Value};
use tessera_numerics::{DType, ScalarFn};

/// How many ops and products of terms one query may visit.
const FUEL: usize = 2000;

/// What a product is made of.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Factor {
    Dim(DimExpr),
    Program(i64),
    Value(Value),
}

/// A sum of products with coefficients; none of these is zero.
#[derive(Clone, Default)]
struct Polynomial(BTreeMap<Vec<Factor>, i64>);

impl Polynomial {
    fn constant(v: i64) -> Self {
        let mut out = Self::default();
        out.add(Vec::new(), v);
        out
    }

    fn factor(f: Factor) -> Self {
        Self([(vec![f], 1)].into())
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

    fn plus(mut self, other: &Self, by: i64) -> Option<Self> {
        for (term, c) in &other.0 {
            self.add(term.clone(), c.checked_mul(by)?)?;
        }
        Some(self)
    }

    fn times(&self, other: &Self, fuel: &mut usize) -> Option<Self> {
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

/// `to - from` as an expression over dimension symbols and integer parameters, where it is one. The
/// integers are taken as numbers without end: positions are widened before they are computed. Of the
/// values in `unknown` nothing is known.
pub fn distance(
    func: &Func<Tile>,
    from: Value,
    to: Value,
    unknown: &BTreeSet<Value>,
) -> Option<DimExpr> {
    let mut fuel = FUEL;
    let to = polynomial(func, to, unknown, &mut fuel)?;
    let difference = to.plus(&polynomial(func, from, unknown, &mut fuel)?, -1)?;
    let mut out = DimExpr::Const(0);
    for (term, by) in difference.0 {
        let mut product = DimExpr::Const(by);
        for factor in term {
            let Factor::Dim(e) = factor else { return None };
            product = DimExpr::bin(DimOp::Mul, e, product);
        }
        out = DimExpr::bin(DimOp::Add, out, product);
    }
    Some(out)
}

fn polynomial(
    func: &Func<Tile>,
    value: Value,
    unknown: &BTreeSet<Value>,
    fuel: &mut usize,
) -> Option<Polynomial> {
    *fuel = fuel.checked_sub(1)?;
    if unknown.contains(&value) {
        return Some(Polynomial::factor(Factor::Value(value)));
    }
    let other = |func: &Func<Tile>| {
        Polynomial::factor(match dim_expr_of(func, value) {
            Some(e) => Factor::Dim(e),
            None => Factor::Value(value),
        })
    };
    let Some(op) = func.def(value) else { return Some(other(func)) };
    Some(match op.code {
        TileOp::Const => match op.attr("value").and_then(Attr::as_int) {
            Some(v) => Polynomial::constant(v),
            None => other(func),
        },
        TileOp::ProgramId => {
            let axis = op.attr("axis").and_then(Attr::as_int)?;
            Polynomial::factor(Factor::Program(axis))
        }
        // A position beyond the 63rd bit is outside whatever it is taken for.
        TileOp::Cast if widens(func.ty(op.operands[0]).dtype(), func.ty(value).dtype()) => {
            polynomial(func, op.operands[0], unknown, fuel)?
        }
        TileOp::Ew(f) if func.ty(value).rank() == 0 && func.ty(value).dtype().is_int() => {
            let x = |i: usize, fuel: &mut usize| polynomial(func, op.operands[i], unknown, fuel);
            match f {
                ScalarFn::Add => x(0, fuel)?.plus(&x(1, fuel)?, 1)?,
                ScalarFn::Sub => x(0, fuel)?.plus(&x(1, fuel)?, -1)?,
                ScalarFn::Neg => Polynomial::default().plus(&x(0, fuel)?, -1)?,
                ScalarFn::Mul => x(0, fuel)?.times(&x(1, fuel)?, fuel)?,
                _ => other(func),
            }
        }
        _ => other(func),
    })
}

fn widens(from: DType, to: DType) -> bool {
    keeps(from, to) || (from.is_int() && to == DType::I64)
}
