//! Interval analysis: the range of integer scalars, from compile-time facts alone.

use crate::{TileFunc, TileOp, domain_of, lane_axis, lane_extents, lanes_of};
use std::cell::Cell;
use tessera_ir::{Attr, BlockId, DimExpr, Value, ValueDef};
use tessera_numerics::{Basic, DType, ScalarFn};

/// Both ends included; `None` is open.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Interval {
    pub lo: Option<i64>,
    pub hi: Option<i64>,
}

const UNKNOWN: Interval = Interval { lo: None, hi: None };

/// The most ops of one query: an op that uses a value twice doubles the paths through it.
const FUEL: usize = 1000;

impl Interval {
    pub fn point(v: i64) -> Self {
        Self { lo: Some(v), hi: Some(v) }
    }

    fn bounded(lo: Option<i64>, hi: Option<i64>) -> Self {
        Self { lo, hi }
    }

    fn ends(self) -> Option<(i64, i64)> {
        Some((self.lo?, self.hi?))
    }

    /// Values wrap at 64 bits: an end that leaves them makes the whole unknown.
    fn add(self, other: Self) -> Self {
        let end = |a: Option<i64>, b: Option<i64>| match (a, b) {
            (Some(a), Some(b)) => a.checked_add(b).map(Some),
            _ => Some(None),
        };
        match (end(self.lo, other.lo), end(self.hi, other.hi)) {
            (Some(lo), Some(hi)) => Self::bounded(lo, hi),
            _ => UNKNOWN,
        }
    }

    fn neg(self) -> Self {
        let flip = |v: Option<i64>| v.and_then(i64::checked_neg);
        Self::bounded(flip(self.hi), flip(self.lo))
    }

    fn mul(self, other: Self) -> Self {
        if let (Some((a, b)), Some((c, d))) = (self.ends(), other.ends()) {
            let products = [(a, c), (a, d), (b, c), (b, d)].map(|(x, y)| x.checked_mul(y));
            if let [Some(p), Some(q), Some(r), Some(s)] = products {
                return Self::bounded(Some(p.min(q).min(r).min(s)), Some(p.max(q).max(r).max(s)));
            }
        }
        UNKNOWN
    }

    fn union(self, other: Self) -> Self {
        Self::bounded(
            self.lo.zip(other.lo).map(|(a, b)| a.min(b)),
            self.hi.zip(other.hi).map(|(a, b)| a.max(b)),
        )
    }

    fn minimum(self, other: Self) -> Self {
        let hi = [self.hi, other.hi].into_iter().flatten().min();
        Self::bounded(self.lo.zip(other.lo).map(|(a, b)| a.min(b)), hi)
    }

    fn maximum(self, other: Self) -> Self {
        let lo = [self.lo, other.lo].into_iter().flatten().max();
        Self::bounded(lo, self.hi.zip(other.hi).map(|(a, b)| a.max(b)))
    }
}

/// The range of an integer scalar.
pub fn interval_of(func: &TileFunc, value: Value) -> Interval {
    interval(func, value, &Cell::new(FUEL))
}

/// Whether integer arithmetic is exact: its result, of numbers without end, is one of its type and
/// of i64. Sums and products in i64 count as exact, because they are positions.
pub(crate) fn is_exact(func: &TileFunc, value: Value) -> bool {
    let dtype = func.ty(value).dtype();
    if dtype == DType::I64 {
        return true;
    }
    let found = computed(func, value, &Cell::new(FUEL)).ends();
    let least = if dtype.is_unsigned_int() { 0 } else { -(1i64 << (dtype.bits() - 1)) };
    let most = type_range(dtype).hi.unwrap_or(i64::MAX);
    found.is_some_and(|(lo, hi)| least <= lo && hi <= most)
}

/// The range of a type: open where it is more than an i64 holds.
fn type_range(dtype: DType) -> Interval {
    match (dtype.is_unsigned_int(), dtype.is_signed_int()) {
        (true, _) if dtype.bits() < 64 => Interval::bounded(Some(0), Some((1 << dtype.bits()) - 1)),
        (_, true) if dtype.bits() < 64 => {
            let most = 1i64 << (dtype.bits() - 1);
            Interval::bounded(Some(-most), Some(most - 1))
        }
        _ => UNKNOWN,
    }
}

fn interval(func: &TileFunc, value: Value, fuel: &Cell<usize>) -> Interval {
    let ty = func.ty(value);
    let is_scalar = ty.rank() == 0 && (ty.dtype().is_signed_int() || ty.dtype().is_unsigned_int());
    if fuel.get() == 0 || !is_scalar {
        return UNKNOWN;
    }
    fuel.set(fuel.get() - 1);
    let held = type_range(ty.dtype());
    let found = computed(func, value, fuel);
    // Arithmetic wraps: a result that may leave its type may be anything.
    let fits = match (held.ends(), found.ends()) {
        (Some((least, most)), Some((lo, hi))) => least <= lo && hi <= most,
        (Some(_), None) => false,
        // Not all u64 numbers fit an i64.
        (None, Some((lo, _))) => lo >= 0 || ty.dtype().is_signed_int(),
        (None, None) => ty.dtype().is_signed_int(),
    };
    if fits { found } else { held }
}

#[deny(clippy::wildcard_enum_match_arm)]
fn computed(func: &TileFunc, value: Value, fuel: &Cell<usize>) -> Interval {
    use Basic::*;
    use TileOp::*;
    let of = |v: Value| interval(func, v, fuel);
    let id = match func.values[value].def {
        ValueDef::Arg(block, index) => return argument(func, block, index, fuel),
        ValueDef::Result(id, _) => id,
    };
    let op = &func.ops[id];
    match op.code {
        Const => int_const(func, value).map_or(UNKNOWN, Interval::point),
        ProgramId => {
            below(op.attr("axis").and_then(Attr::as_int).and_then(|a| grid_extent(func, a)))
        }
        LinearId => below(static_extent(func, lane_axis(op).unwrap_or(0))),
        LocalId => below(match lane_axis(op) {
            Some(axis) => lane_extents(func).get(axis).copied(),
            None => lanes_of(func),
        }),
        NumPrograms | GroupSize | WarpSize | Dim => Interval::bounded(Some(0), None),
        Cast => of(op.operands[0]),
        Select => of(op.operands[1]).union(of(op.operands[2])),
        If => {
            let place = op.results.iter().position(|&r| r == value).unwrap_or(0);
            let ends =
                op.regions.iter().filter_map(|&r| yielded(func, r).get(place).map(|&v| of(v)));
            ends.reduce(Interval::union).unwrap_or(UNKNOWN)
        }
        Ew(f) => {
            let x = |i: usize| of(op.operands[i]);
            // Real functions are of floats.
            let Some(f) = f.basic() else { return UNKNOWN };
            match f {
                Add => x(0).add(x(1)),
                Sub => x(0).add(x(1).neg()),
                Neg => x(0).neg(),
                Mul => x(0).mul(x(1)),
                Minimum => x(0).minimum(x(1)),
                Maximum => x(0).maximum(x(1)),
                FloorDiv => match int_const(func, op.operands[1]) {
                    Some(by) if by > 0 => {
                        let down = |v: Option<i64>| v.map(|v| v.div_euclid(by));
                        Interval::bounded(down(x(0).lo), down(x(0).hi))
                    }
                    _ => UNKNOWN,
                },
                // Modulo zero is zero.
                Mod => match x(1) {
                    Interval { lo: Some(lo), hi } if lo >= 0 => {
                        Interval::bounded(Some(0), hi.map(|by| (by - 1).max(0)))
                    }
                    _ => UNKNOWN,
                },
                // The result has only bits of the operand that is not negative.
                And => match [x(0), x(1)].map(|x| x.hi.filter(|_| x.lo >= Some(0))) {
                    [None, None] => UNKNOWN,
                    [a, b] => Interval::bounded(Some(0), a.into_iter().chain(b).min()),
                },
                Shr => match (x(0), int_const(func, op.operands[1])) {
                    (x, Some(by)) if (0..63).contains(&by) => {
                        Interval::bounded(x.lo.map(|v| v >> by), x.hi.map(|v| v >> by))
                    }
                    (x, _) if x.lo >= Some(0) => Interval::bounded(Some(0), x.hi),
                    _ => UNKNOWN,
                },
                // The least integer is its own magnitude.
                Abs => match x(0).ends() {
                    Some((lo, hi)) if lo > i64::MIN => {
                        let least = if lo > 0 { lo } else { (-hi).max(0) };
                        Interval::bounded(Some(least), Some(hi.max(-lo)))
                    }
                    _ => UNKNOWN,
                },
                Clamp => x(0).maximum(x(1)).minimum(x(2)),
                Div | Fma | Sqrt | Recip | Floor | Ceil | Round | Trunc | Sign | Or | Xor | Not
                | Shl | Popcount | Clz | Ctz | Brev | MulHi | FunnelShift | Eq | Ne | Lt | Le
                | Gt | Ge | IsNan | IsInf | IsFinite => UNKNOWN,
            }
        }
        For | While | Yield | Return | SlowPath | Origin | Iota | Bitcast | Reshape | Transpose
        | Broadcast | Expand | Load | Store | Gather | Scatter | Accumulate | BufAlloc
        | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait | Mma | GroupReduce | GroupScan
        | GroupBroadcast | GroupShuffle | Philox | Print | Assert | Reduce | Scan | ArgReduce
        | Slice | Concat | Take | ReduceBy | ScanBy | Sort | Histogram | Owned | Asm
        | AsmEffect => UNKNOWN,
    }
}

/// 0 up to an extent that is known. With no groups or lanes at all nothing runs.
fn below(extent: Option<i64>) -> Interval {
    Interval::bounded(Some(0), extent.map(|e| (e - 1).max(0)))
}

/// The number of lanes along an axis.
fn static_extent(func: &TileFunc, axis: usize) -> Option<i64> {
    constant(domain_of(func)?.get(axis)?)
}

fn constant(extent: &DimExpr) -> Option<i64> {
    match extent {
        DimExpr::Const(v) => Some(*v),
        DimExpr::Sym(_) | DimExpr::Bin(..) => None,
    }
}

fn grid_extent(func: &TileFunc, axis: i64) -> Option<i64> {
    let grid = func.attrs.get("grid").and_then(Attr::as_list)?;
    constant(&grid.get(usize::try_from(axis).ok()?)?.as_expr()?)
}

/// A loop's position: from `lo`, in whole steps, below `hi`. Of carried values only those are
/// followed that are a remainder after every iteration.
fn argument(func: &TileFunc, block: BlockId, index: usize, fuel: &Cell<usize>) -> Interval {
    let Some(parent) = func.blocks[block].parent else { return UNKNOWN };
    let op = &func.ops[parent];
    if op.code != TileOp::For {
        return UNKNOWN;
    }
    if let Some(carried) = index.checked_sub(1) {
        let init = op.group("init").get(carried).map(|&v| interval(func, v, fuel));
        let rest = yielded(func, block).get(carried).and_then(|&v| remainder(func, v));
        return init.zip(rest).map_or(UNKNOWN, |(init, rest)| init.union(rest));
    }
    let of = |i: usize| interval(func, op.operands[i], fuel);
    let (lo, hi, step) = (of(0), of(1), of(2));
    // A step that may be zero or negative has no meaning here.
    if step.lo.is_none_or(|s| s <= 0) {
        return UNKNOWN;
    }
    let last = hi.hi.and_then(|h| h.checked_sub(1));
    let exact = match (lo.ends(), step.ends(), last) {
        (Some((a, b)), Some((s, t)), Some(last)) if a == b && s == t && last >= a => {
            (last - a).checked_div_euclid(s).map(|n| a + n * s)
        }
        _ => last,
    };
    Interval::bounded(lo.lo, exact)
}

/// The range of `x % n` with a constant `n`, whatever `x` is.
fn remainder(func: &TileFunc, value: Value) -> Option<Interval> {
    let op = func.def(value).filter(|op| op.code == TileOp::Ew(ScalarFn::Mod))?;
    let by = int_const(func, op.operands[1]).filter(|&n| n > 0)?;
    Some(Interval::bounded(Some(0), Some(by - 1)))
}

/// The value of an integer constant.
fn int_const(func: &TileFunc, value: Value) -> Option<i64> {
    let op = func.def(value).filter(|op| op.code == TileOp::Const)?;
    op.attr("value").and_then(Attr::as_int)
}

/// The values that a block yields to the op around it.
fn yielded(func: &TileFunc, block: BlockId) -> &[Value] {
    func.terminator(block).map_or(&[], |end| func.ops[end].group("values"))
}
