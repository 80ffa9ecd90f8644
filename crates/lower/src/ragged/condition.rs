//! Bounds conditions: comparisons of a position along one axis with a scalar.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{Attr, Value};
use tessera_numerics::ScalarFn;
use tessera_tile::{TileFunc, TileOp};

/// How many ops one question may look at: an op that uses a value twice doubles the way through it.
const FUEL: usize = 1000;

/// False once the fuel is spent.
fn burn(fuel: &Cell<usize>) -> bool {
    let left = fuel.get();
    fuel.set(left.saturating_sub(1));
    left > 0
}

/// Which ends of an axis a condition cuts off.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Sides {
    pub lower: bool,
    pub upper: bool,
}

impl Sides {
    fn flipped(self) -> Self {
        Self { lower: self.upper, upper: self.lower }
    }

    fn and(self, other: Self) -> Self {
        Self { lower: self.lower || other.lower, upper: self.upper || other.upper }
    }
}

type Bounds = BTreeMap<usize, Sides>;

/// The axes along which a condition says where a tile ends or begins: it is, or has as a conjunct,
/// a comparison of something that varies along that axis only with something that varies along
/// none. A causal mask compares two axes and bounds neither.
pub(super) fn bounded_axes(func: &TileFunc, condition: Value) -> Bounds {
    bounded(func, condition, &Cell::new(FUEL))
}

fn bounded(func: &TileFunc, condition: Value, fuel: &Cell<usize>) -> Bounds {
    let Some(op) = func.def(condition).filter(|_| burn(fuel)) else { return Bounds::new() };
    match op.code {
        TileOp::Ew(ScalarFn::And) => {
            let mut axes = bounded(func, op.operands[0], fuel);
            for (axis, sides) in bounded(func, op.operands[1], fuel) {
                let both = axes.get(&axis).copied().unwrap_or_default().and(sides);
                axes.insert(axis, both);
            }
            axes
        }
        TileOp::Ew(ScalarFn::Not) => match func.def(op.operands[0]).map(|inner| inner.code) {
            // The complement of one comparison is one; of a conjunction it is not.
            Some(TileOp::Ew(f @ (ScalarFn::Lt | ScalarFn::Le | ScalarFn::Gt | ScalarFn::Ge))) => {
                let Some(inner) = func.def(op.operands[0]) else { return Bounds::new() };
                let found = compared(func, f, [inner.operands[0], inner.operands[1]], fuel);
                found.into_iter().map(|(axis, sides)| (axis, sides.flipped())).collect()
            }
            _ => Bounds::new(),
        },
        TileOp::Ew(f @ (ScalarFn::Lt | ScalarFn::Le | ScalarFn::Gt | ScalarFn::Ge)) => {
            // What is below the least of some is below each of them.
            let (a, b) = match f {
                ScalarFn::Lt | ScalarFn::Le => (ScalarFn::Maximum, ScalarFn::Minimum),
                _ => (ScalarFn::Minimum, ScalarFn::Maximum),
            };
            let all_b = parts(func, op.operands[1], b, fuel);
            let mut axes = Bounds::new();
            for a in parts(func, op.operands[0], a, fuel) {
                for &b in &all_b {
                    for (axis, sides) in compared(func, f, [a, b], fuel) {
                        let both = axes.get(&axis).copied().unwrap_or_default().and(sides);
                        axes.insert(axis, both);
                    }
                }
            }
            axes
        }
        // Conditions made on one axis and spread over the others.
        TileOp::Broadcast => bounded(func, op.operands[0], fuel),
        TileOp::Expand => {
            let at = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
            let inner = bounded(func, op.operands[0], fuel);
            inner.into_iter().map(|(a, sides)| (if a >= at { a + 1 } else { a }, sides)).collect()
        }
        _ => Bounds::new(),
    }
}

/// The axes that one comparison bounds.
fn compared(func: &TileFunc, f: ScalarFn, [a, b]: [Value; 2], fuel: &Cell<usize>) -> Bounds {
    let below = matches!(f, ScalarFn::Lt | ScalarFn::Le);
    let one = |axes: BTreeSet<usize>, upper: bool| {
        axes.into_iter().map(|a| (a, Sides { lower: !upper, upper })).collect()
    };
    match (varies(func, a, fuel), varies(func, b, fuel)) {
        (Some(a), Some(b)) if a.len() == 1 && b.is_empty() => one(a, below),
        (Some(a), Some(b)) if a.is_empty() && b.len() == 1 => one(b, !below),
        _ => Bounds::new(),
    }
}

/// What a value is the least of, or the greatest, as `f` says; else the value itself. Parts may have
/// fewer axes than it, of which none varies.
fn parts(func: &TileFunc, value: Value, f: ScalarFn, fuel: &Cell<usize>) -> Vec<Value> {
    let Some(op) = func.def(value).filter(|_| burn(fuel)) else { return vec![value] };
    let inside: Vec<Value> = match op.code {
        TileOp::Broadcast => parts(func, op.operands[0], f, fuel),
        TileOp::Ew(found) if found == f => {
            op.operands.iter().flat_map(|&v| parts(func, v, f, fuel)).collect()
        }
        _ => return vec![value],
    };
    match inside.len() {
        1 => vec![value],
        _ => inside,
    }
}

fn shifted(axes: &BTreeSet<usize>, at: Option<&Attr>) -> BTreeSet<usize> {
    let at = at.and_then(Attr::as_int).unwrap_or(0) as usize;
    axes.iter().map(|&a| if a >= at { a + 1 } else { a }).collect()
}

/// The axes along which a value differs, where it is made of positions and scalars alone.
fn varies(func: &TileFunc, value: Value, fuel: &Cell<usize>) -> Option<BTreeSet<usize>> {
    if func.ty(value).rank() == 0 {
        return Some(BTreeSet::new());
    }
    let op = func.def(value).filter(|_| burn(fuel))?;
    match op.code {
        TileOp::Const => Some(BTreeSet::new()),
        TileOp::Iota => Some([0].into()),
        TileOp::Cast | TileOp::Broadcast => varies(func, op.operands[0], fuel),
        TileOp::Expand => Some(shifted(&varies(func, op.operands[0], fuel)?, op.attr("axis"))),
        TileOp::Transpose => {
            let inner = varies(func, op.operands[0], fuel)?;
            let perm = op.attr("perm").and_then(Attr::as_ints)?;
            Some((0..perm.len()).filter(|&i| inner.contains(&(perm[i] as usize))).collect())
        }
        TileOp::Ew(ScalarFn::Add | ScalarFn::Sub | ScalarFn::Mul | ScalarFn::Neg) => {
            let mut out = BTreeSet::new();
            for &operand in &op.operands {
                out.extend(varies(func, operand, fuel)?);
            }
            Some(out)
        }
        _ => None,
    }
}
