//! Analysis of integer values: as dimension expressions that the host can evaluate, and as linear
//! forms that can be compared.

use crate::interval::{interval_of, is_exact};
use crate::{Tile, TileOp};
use std::collections::BTreeMap;
use tessera_ir::{Attr, DimExpr, DimOp, Func, Type, Value};
use tessera_numerics::{Basic, DType, ScalarFn};

/// How many ops one query may visit. An op that uses a value twice makes the way through it
/// twice as long, so that a short chain of them would otherwise take forever.
const FUEL: usize = 1000;

/// Whether every number of one integer type is one of the other.
pub fn keeps(from: DType, to: DType) -> bool {
    match (from.is_signed_int(), to.is_signed_int()) {
        (true, true) => from.bits() <= to.bits(),
        (false, true) => from.is_unsigned_int() && from.bits() < to.bits(),
        (false, false) => {
            from.is_unsigned_int() && to.is_unsigned_int() && from.bits() <= to.bits()
        }
        (true, false) => false,
    }
}

/// What an expression of the host, whose numbers have no end, says of arithmetic that may wrap.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Wrapping {
    /// It is no expression.
    Refused,
    /// Unsigned numbers of 32 bits wrap as the kernel's do. Signed ones do not: that they overflow
    /// is a mistake, which checked mode reports.
    Written,
}

/// The value as an expression over dimension symbols and integer parameters, where it is one. It has
/// the value's number in every launch.
pub fn dim_expr_of(func: &Func<Tile>, value: Value) -> Option<DimExpr> {
    dim_expr(func, value, Wrapping::Refused, &mut { FUEL })
}

/// An extent of the launch as the user wrote it, where the host can compute it: signed numbers of 32
/// bits do not wrap in it.
pub fn launch_extent_of(func: &Func<Tile>, value: Value) -> Option<DimExpr> {
    dim_expr(func, value, Wrapping::Written, &mut { FUEL })
}

#[deny(clippy::wildcard_enum_match_arm)]
fn dim_expr(
    func: &Func<Tile>,
    value: Value,
    wrapping: Wrapping,
    fuel: &mut usize,
) -> Option<DimExpr> {
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
            dim_expr(func, op.operands[0], wrapping, fuel)
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
                    let x = dim_expr(func, op.operands[0], wrapping, fuel)?;
                    let x = DimExpr::bin(DimOp::Sub, DimExpr::Const(0), x);
                    return wrapped(func, value, x, wrapping);
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
            let a = dim_expr(func, op.operands[0], wrapping, fuel)?;
            let b = dim_expr(func, op.operands[1], wrapping, fuel)?;
            wrapped(func, value, DimExpr::bin(dim_op, a, b), wrapping)
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

/// The expression of an op's result, which may wrap.
fn wrapped(func: &Func<Tile>, value: Value, exact: DimExpr, wrapping: Wrapping) -> Option<DimExpr> {
    let op = func.def(value)?;
    let dtype = func.ty(value).dtype();
    let stays = match op.code {
        // Of numbers that the host has.
        TileOp::Ew(ScalarFn::Mod | ScalarFn::Minimum | ScalarFn::Maximum) => dtype != DType::U64,
        // Only the least number by -1 leaves its type.
        TileOp::Ew(ScalarFn::FloorDiv) => {
            dtype.is_unsigned_int() && dtype != DType::U64
                || interval_of(func, op.operands[1]).lo.is_some_and(|lo| lo >= 0)
        }
        _ => false,
    };
    if stays || is_exact(func, value) {
        return Some(exact);
    }
    match wrapping {
        Wrapping::Refused => None,
        Wrapping::Written if dtype == DType::U32 => {
            Some(DimExpr::bin(DimOp::Mod, exact, DimExpr::Const(1 << 32)))
        }
        Wrapping::Written => Some(exact),
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
    linear_or_atom(func, value, DType::I64, &mut { FUEL })
}

/// The same of a scalar of another integer dtype, in the arithmetic of that dtype, which wraps: equal
/// forms are equal numbers, and different ones are so up to a multiple of its range.
pub fn linear_within(func: &Func<Tile>, value: Value) -> Linear {
    linear_or_atom(func, value, func.ty(value).dtype(), &mut { FUEL })
}

fn linear_or_atom(func: &Func<Tile>, value: Value, dtype: DType, fuel: &mut usize) -> Linear {
    linear(func, value, dtype, fuel).unwrap_or_else(|| Linear::atom(Atom::Value(value)))
}

fn linear(func: &Func<Tile>, value: Value, dtype: DType, fuel: &mut usize) -> Option<Linear> {
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
            // Narrower sums wrap on their own.
            let one = dtype == DType::I64;
            (widens && one).then(|| linear_or_atom(func, op.operands[0], dtype, fuel))
        }
        TileOp::Ew(f) if func.ty(value) == &Type::Scalar(dtype) => {
            let known = matches!(f, ScalarFn::Add | ScalarFn::Sub | ScalarFn::Neg | ScalarFn::Mul);
            if !known {
                return None;
            }
            let forms: Vec<_> =
                op.operands.iter().map(|&v| linear_or_atom(func, v, dtype, fuel)).collect();
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
