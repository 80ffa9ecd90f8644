//! Bounded scores: a constant replaces the running maximum of an online softmax.
//!
//! Where every score is between two known numbers, because it comes from a bounded function
//! (`tanh`, `sigmoid`, `clamp` and others), one constant serves all rows and iterations. No maximum
//! is computed, nothing is rescaled and nothing can overflow. A score of -inf from a mask has
//! weight 0 with any reference.

use super::find::{Base, Online, number};
use tessera_ir::{Attr, Value};
use tessera_numerics::{Basic, DType, FnKind, Real, ScalarFn};
use tessera_tile::{TileFunc, TileOp};

/// Bounds of a value that is not NaN and, where that is stated, not -inf.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Range {
    pub lo: f64,
    pub hi: f64,
    pub or_none: bool,
}

/// Weights are at most 2 to this power, as in lazy rescaling.
const MOST: f64 = super::MOST;
/// And at least 2 to minus this: sums of the smallest are normal numbers.
const LEAST: f64 = 112.0;
/// The most ops of one query.
const FUEL: usize = 200;

/// The constant for all of these loops, in the unit of their scores.
pub fn reference(func: &TileFunc, family: &[&Online]) -> Option<f64> {
    let base = family.first()?.base;
    let mut ends: Option<Range> = None;
    for online in family {
        let range = range(func, online.s, &mut { FUEL })?;
        if online.base != base {
            return None;
        }
        ends = Some(ends.map_or(range, |e| union(e, range)));
    }
    let ends = ends.filter(|e| e.lo.is_finite() && e.hi.is_finite())?;
    chosen(base, ends)
}

/// The middle of the range, or enough above it that weights do not grow too large.
pub fn chosen(base: Base, ends: Range) -> Option<f64> {
    let reference = ((ends.lo + ends.hi) / 2.0).max(ends.hi - base.rise(MOST));
    (reference - ends.lo <= base.rise(LEAST)).then_some(reference)
}

fn union(a: Range, b: Range) -> Range {
    Range { lo: a.lo.min(b.lo), hi: a.hi.max(b.hi), or_none: a.or_none || b.or_none }
}

#[deny(clippy::wildcard_enum_match_arm)]
fn range(func: &TileFunc, v: Value, fuel: &mut usize) -> Option<Range> {
    use Basic::*;
    use TileOp::*;
    *fuel = fuel.checked_sub(1)?;
    if func.ty(v).dtype() != DType::F32 {
        return None;
    }
    if let Some(n) = number(func, v) {
        return match () {
            () if n == f64::NEG_INFINITY => {
                Some(Range { lo: f64::INFINITY, hi: f64::NEG_INFINITY, or_none: true })
            }
            () if n.is_finite() => Some(Range { lo: n, hi: n, or_none: false }),
            () => None,
        };
    }
    let op = func.def(v)?;
    let within = |lo: f64, hi: f64| Some(Range { lo, hi, or_none: false });
    match op.code {
        Broadcast | Expand | Reshape | Transpose => range(func, op.operands[0], fuel),
        Select => {
            let [a, b] = [range(func, op.operands[1], fuel)?, range(func, op.operands[2], fuel)?];
            Some(union(a, b))
        }
        Ew(f) => match f.kind() {
            FnKind::Real(Real::Tanh | Real::Erf | Real::Sin | Real::Cos) => within(-1.0, 1.0),
            FnKind::Real(Real::Sigmoid) => within(0.0, 1.0),
            FnKind::Real(Real::Atan | Real::Asin) => within(-1.6, 1.6),
            FnKind::Real(_) => None,
            FnKind::Basic(f) => match f {
                Sign => within(-1.0, 1.0),
                Clamp => {
                    let [lo, hi] = [1, 2].map(|i| number(func, op.operands[i]));
                    within(lo?, hi?)
                        .filter(|r| r.lo <= r.hi && r.lo.is_finite() && r.hi.is_finite())
                }
                Neg => plain(range(func, op.operands[0], fuel)?).and_then(|r| within(-r.hi, -r.lo)),
                Mul | Div => {
                    let factor = number(func, op.operands[1]).filter(|k| k.is_finite());
                    let (k, x) = match (f, factor, number(func, op.operands[0])) {
                        (Div, Some(k), _) if k != 0.0 => (1.0 / k, op.operands[0]),
                        (Div, ..) => return None,
                        (_, Some(k), _) => (k, op.operands[0]),
                        (_, None, Some(k)) if k.is_finite() => (k, op.operands[1]),
                        (_, None, _) => return None,
                    };
                    let r = range(func, x, fuel)?;
                    match k > 0.0 {
                        true => Some(Range { lo: r.lo * k, hi: r.hi * k, ..r }),
                        false => plain(r).and_then(|r| within(r.hi * k, r.lo * k)),
                    }
                }
                Add => {
                    let [a, b] = [0, 1].map(|i| range(func, op.operands[i], &mut *fuel));
                    let (a, b) = (a?, b?);
                    Some(Range {
                        lo: a.lo + b.lo,
                        hi: a.hi + b.hi,
                        or_none: a.or_none || b.or_none,
                    })
                }
                Sub => {
                    let a = range(func, op.operands[0], fuel)?;
                    let b = plain(range(func, op.operands[1], fuel)?)?;
                    Some(Range { lo: a.lo - b.hi, hi: a.hi - b.lo, ..a })
                }
                FloorDiv | Mod | Abs | Fma | Sqrt | Recip | Floor | Ceil | Round | Trunc
                | Maximum | Minimum | And | Or | Xor | Not | Shl | Shr | Popcount | Clz | Ctz
                | Brev | MulHi | FunnelShift | Eq | Ne | Lt | Le | Gt | Ge | IsNan | IsInf
                | IsFinite => None,
            },
        },
        For | If | While | Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId
        | LocalId | GroupSize | WarpSize | Dim | Origin | Const | Iota | Cast | Bitcast | Load
        | Store | Gather | Scatter | Accumulate | BufAlloc | CopyAsync | Barrier | Atomic
        | CopyCommit | CopyWait | Mma | GroupReduce | GroupScan | GroupBroadcast | GroupShuffle
        | Philox | Print | Assert | Reduce | Scan | ArgReduce | Slice | Concat | Take
        | ReduceBy | ScanBy | Sort | Histogram | Owned | Asm | AsmEffect => None,
    }
}

/// A range without -inf.
fn plain(r: Range) -> Option<Range> {
    (!r.or_none).then_some(r)
}

/// `exp2(s·factor + shift)` is `e(s - reference)`.
pub fn exponent(base: Base, reference: f64) -> (f64, f64) {
    let unit = if base.f == ScalarFn::Exp { std::f64::consts::LOG2_E } else { 1.0 };
    let factor = base.by * unit;
    (factor, -reference * factor)
}

/// The number as an attribute, rounded to f32.
pub fn attr(n: f64) -> Attr {
    Attr::Float(f64::from(n as f32))
}
