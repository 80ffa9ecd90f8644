//! Analysis of integer values: as dimension expressions that the host can evaluate, and as linear
//! forms that can be compared.

use crate::{Tile, TileOp};
use std::collections::BTreeMap;
use tessera_ir::{Attr, DimExpr, DimOp, Func, Type, Value};
use tessera_numerics::{Basic, DType, ScalarFn};

/// How many ops one query may visit. An op that uses a value twice makes the way through it
/// twice as long, so that a short chain of them would otherwise take forever.
const FUEL: usize = 1000;

/// Whether every number of one integer type is one of the other.
pub(crate) fn keeps(from: DType, to: DType) -> bool {
    match (from.is_signed_int(), to.is_signed_int()) {
        (true, true) => from.bits() <= to.bits(),
        (false, true) => from.is_unsigned_int() && from.bits() < to.bits(),
        (false, false) => {
            from.is_unsigned_int() && to.is_unsigned_int() && from.bits() <= to.bits()
        }
        (true, false) => false,
    }
}

/// The value as an expression over dimension symbols and integer parameters, where it is one.
pub fn dim_expr_of(func: &Func<Tile>, value: Value) -> Option<DimExpr> {
    dim_expr(func, value, &mut { FUEL })
}

#[deny(clippy::wildcard_enum_match_arm)]
fn dim_expr(func: &Func<Tile>, value: Value, fuel: &mut usize) -> Option<DimExpr> {
    use Basic::*;
    use TileOp::*;
    *fuel = fuel.checked_sub(1)?;
    let Some(op) = func.def(value) else {
        let is_param = func.params().contains(&value) && func.ty(value).dtype().is_int();
        return func.name_of(value).filter(|_| is_param).map(DimExpr::sym);
    };
    match op.code {
        Const => op.attr("value").and_then(Attr::as_int).map(DimExpr::Const),
        Dim => op.attr("name").and_then(Attr::as_expr),
        Cast if keeps(func.ty(op.operands[0]).dtype(), func.ty(value).dtype()) => {
            dim_expr(func, op.operands[0], fuel)
        }
        Ew(f) => {
            let dim_op = match f.basic()? {
                Add => DimOp::Add,
                Sub => DimOp::Sub,
                Mul => DimOp::Mul,
                FloorDiv => DimOp::FloorDiv,
                Mod => DimOp::Mod,
                Minimum => DimOp::Min,
                Maximum => DimOp::Max,
                Neg => {
                    let x = dim_expr(func, op.operands[0], fuel)?;
                    return Some(DimExpr::bin(DimOp::Sub, DimExpr::Const(0), x));
                }
                Div | Abs | Fma | Sqrt | Recip | Floor | Ceil | Round | Trunc | Sign | Clamp
                | And | Or | Xor | Not | Shl | Shr | Popcount | Clz | Ctz | Brev | MulHi
                | FunnelShift | Eq | Ne | Lt | Le | Gt | Ge | IsNan | IsInf | IsFinite => {
                    return None;
                }
            };
            if !func.ty(value).dtype().is_int() {
                return None;
            }
            let a = dim_expr(func, op.operands[0], fuel)?;
            let b = dim_expr(func, op.operands[1], fuel)?;
            Some(DimExpr::bin(dim_op, a, b))
        }
        For | If | While | Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId
        | LocalId | GroupSize | WarpSize | Origin | Iota | Select | Cast | Bitcast | Reshape
        | Transpose | Broadcast | Expand | Load | Store | Gather | Scatter | Accumulate
        | BufAlloc | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait | Mma | GroupReduce
        | GroupScan | GroupBroadcast | GroupShuffle | Philox | Print | Assert | Reduce | Scan
        | ArgReduce | Slice | Concat | Take | ReduceBy | ScanBy | Sort | Histogram | Owned
        | Asm | AsmEffect => None,
    }
}

/// What a linear form is over: a dimension symbol, or a value that is no sum of others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Atom {
    Dim(String),
    Value(Value),
    /// A group's coordinate: two ops with one axis are one number.
    Program(i64),
}

/// `constant + Σ coefficient · atom`, with no zero coefficients: equal forms are equal numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Linear {
    pub constant: i64,
    pub terms: BTreeMap<Atom, i64>,
}

impl Linear {
    pub fn constant(v: i64) -> Self {
        Self { constant: v, terms: BTreeMap::new() }
    }

    pub fn atom(atom: Atom) -> Self {
        Self { constant: 0, terms: [(atom, 1)].into() }
    }

    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    pub fn scaled(&self, by: i64) -> Option<Self> {
        let mut out = Self::constant(self.constant.checked_mul(by)?);
        for (atom, c) in &self.terms {
            let c = c.checked_mul(by)?;
            if c != 0 {
                out.terms.insert(atom.clone(), c);
            }
        }
        Some(out)
    }

    pub fn plus(&self, other: &Self) -> Option<Self> {
        let mut out = self.clone();
        out.constant = out.constant.checked_add(other.constant)?;
        for (atom, c) in &other.terms {
            let sum = out.terms.get(atom).copied().unwrap_or(0).checked_add(*c)?;
            if sum == 0 {
                out.terms.remove(atom)
            } else {
                out.terms.insert(atom.clone(), sum)
            };
        }
        Some(out)
    }

    pub fn minus(&self, other: &Self) -> Option<Self> {
        self.plus(&other.scaled(-1)?)
    }
}

/// The linear form of an integer scalar.
pub fn linear_of(func: &Func<Tile>, value: Value) -> Linear {
    linear_or_atom(func, value, &mut { FUEL })
}

fn linear_or_atom(func: &Func<Tile>, value: Value, fuel: &mut usize) -> Linear {
    linear(func, value, fuel).unwrap_or_else(|| Linear::atom(Atom::Value(value)))
}

fn linear(func: &Func<Tile>, value: Value, fuel: &mut usize) -> Option<Linear> {
    *fuel = fuel.checked_sub(1)?;
    let op = func.def(value)?;
    match op.code {
        TileOp::Const => op.attr("value").and_then(Attr::as_int).map(Linear::constant),
        TileOp::Dim => op.attr("name").map(|n| Linear::atom(Atom::Dim(n.to_string()))),
        TileOp::ProgramId => {
            op.attr("axis").and_then(Attr::as_int).map(|a| Linear::atom(Atom::Program(a)))
        }
        // Widening keeps the number; narrowing may not.
        TileOp::Cast => {
            let widens = keeps(func.ty(op.operands[0]).dtype(), func.ty(value).dtype());
            widens.then(|| linear_or_atom(func, op.operands[0], fuel))
        }
        TileOp::Ew(f) if func.ty(value) == &Type::INDEX => {
            let known = matches!(f, ScalarFn::Add | ScalarFn::Sub | ScalarFn::Neg | ScalarFn::Mul);
            if !known {
                return None;
            }
            let forms: Vec<_> =
                op.operands.iter().map(|&v| linear_or_atom(func, v, fuel)).collect();
            match (f, forms.as_slice()) {
                (ScalarFn::Add, [a, b]) => a.plus(b),
                (ScalarFn::Sub, [a, b]) => a.minus(b),
                (ScalarFn::Neg, [a]) => a.scaled(-1),
                (ScalarFn::Mul, [a, b]) => match (a.as_constant(), b.as_constant()) {
                    (_, Some(c)) => a.scaled(c),
                    (Some(c), _) => b.scaled(c),
                    _ => None,
                },
                _ => None,
            }
        }
        _ => None,
    }
}
