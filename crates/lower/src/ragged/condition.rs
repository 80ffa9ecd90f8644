//! Bounds conditions: comparisons of a position along one axis with a scalar.

use super::bound::ends_beyond;
use super::ragged_state::{Root, Spread};
use crate::sign::{keeps_positions, may_be_negative};
use std::cell::Cell;
use std::collections::BTreeMap;
use tessera_ir::{Attr, Value};
use tessera_numerics::ScalarFn;
use tessera_tile::{TileFunc, TileOp};

/// The most ops of one query: an op that uses a value twice doubles the paths through it.
const FUEL: usize = 1000;

/// False once the fuel is spent.
fn burn(fuel: &Cell<usize>) -> bool {
    let left = fuel.get();
    fuel.set(left.saturating_sub(1));
    left > 0
}

/// Which ends of an axis a condition cuts off: it is false beyond them.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Sides {
    pub lower: bool,
    pub upper: bool,
}

impl Sides {
    /// Whether the condition is false in all padding of a place.
    pub fn cut(self, root: Root) -> bool {
        root.spread == Spread::Ends && self.upper && (self.lower || !root.front)
    }

    fn either(self, other: Self) -> Self {
        Self { lower: self.lower || other.lower, upper: self.upper || other.upper }
    }

    fn both(self, other: Self) -> Self {
        Self { lower: self.lower && other.lower, upper: self.upper && other.upper }
    }
}

type Bounds = BTreeMap<usize, Sides>;

/// What is cut off where both conditions hold: all that one of them cuts off.
fn conjunction(mut a: Bounds, b: Bounds) -> Bounds {
    for (axis, sides) in b {
        let both = a.get(&axis).copied().unwrap_or_default().either(sides);
        a.insert(axis, both);
    }
    a
}

/// What is cut off where one of two conditions holds: what both of them cut off.
fn disjunction(a: &Bounds, b: &Bounds) -> Bounds {
    a.iter().filter_map(|(axis, sides)| Some((*axis, sides.both(*b.get(axis)?)))).collect()
}

/// The axes along which a condition bounds a tile: it is, or has as a conjunct, a comparison of
/// something that varies along that axis only with something that varies along none. A causal mask
/// compares two axes and bounds neither.
pub(super) fn bounded_axes(func: &TileFunc, condition: Value) -> Bounds {
    bounded(&Query::new(func, None), condition, true)
}

/// The same of the condition's complement: where it is true in the padding.
pub(super) fn bounded_by_complement(func: &TileFunc, condition: Value) -> Bounds {
    bounded(&Query::new(func, None), condition, false)
}

/// Whether a condition, where it `holds`, cuts off the padding of this axis. A bound that is known
/// to end beyond the tensor does not.
pub(super) fn cuts(func: &TileFunc, condition: Value, holds: bool, of: Masked) -> bool {
    let all = bounded(&Query::new(func, Some(of)), condition, holds);
    all.get(&of.axis).is_some_and(|sides| sides.cut(of.root))
}

/// A ragged axis of a tile that a condition masks.
#[derive(Copy, Clone)]
pub(super) struct Masked {
    pub axis: usize,
    pub extent: Option<i64>,
    pub root: Root,
}

struct Query<'f> {
    func: &'f TileFunc,
    fuel: Cell<usize>,
    of: Option<Masked>,
}

impl<'f> Query<'f> {
    fn new(func: &'f TileFunc, of: Option<Masked>) -> Self {
        Self { func, fuel: Cell::new(FUEL), of }
    }
}

/// What is cut off where the condition is `holds`.
fn bounded(query: &Query<'_>, condition: Value, holds: bool) -> Bounds {
    let (func, fuel) = (query.func, &query.fuel);
    let Some(op) = func.def(condition).filter(|_| burn(fuel)) else { return Bounds::new() };
    match op.code {
        TileOp::Ew(f @ (ScalarFn::And | ScalarFn::Or)) => {
            let [a, b] = [0, 1].map(|i| bounded(query, op.operands[i], holds));
            if (f == ScalarFn::And) == holds { conjunction(a, b) } else { disjunction(&a, &b) }
        }
        TileOp::Ew(ScalarFn::Not) => bounded(query, op.operands[0], !holds),
        TileOp::Ew(f @ (ScalarFn::Lt | ScalarFn::Le | ScalarFn::Gt | ScalarFn::Ge)) => {
            let f = if holds { f } else { complement(f) };
            // What is below the minimum of some is below each of them.
            let (a, b) = match f {
                ScalarFn::Lt | ScalarFn::Le => (ScalarFn::Maximum, ScalarFn::Minimum),
                _ => (ScalarFn::Minimum, ScalarFn::Maximum),
            };
            let all_b = parts(func, op.operands[1], b, fuel);
            let mut axes = Bounds::new();
            for a in parts(func, op.operands[0], a, fuel) {
                for &b in &all_b {
                    axes = conjunction(axes, compared(query, f, [a, b]));
                }
            }
            axes
        }
        // Conditions made on one axis and spread over the others.
        TileOp::Broadcast => bounded(query, op.operands[0], holds),
        TileOp::Expand => {
            let at = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
            let inner = bounded(query, op.operands[0], holds);
            inner.into_iter().map(|(a, sides)| (if a >= at { a + 1 } else { a }, sides)).collect()
        }
        _ => Bounds::new(),
    }
}

fn complement(f: ScalarFn) -> ScalarFn {
    match f {
        ScalarFn::Lt => ScalarFn::Ge,
        ScalarFn::Le => ScalarFn::Gt,
        ScalarFn::Gt => ScalarFn::Le,
        _ => ScalarFn::Lt,
    }
}

/// The axes that one comparison bounds.
fn compared(query: &Query<'_>, f: ScalarFn, [a, b]: [Value; 2]) -> Bounds {
    let (func, fuel) = (query.func, &query.fuel);
    let below = matches!(f, ScalarFn::Lt | ScalarFn::Le);
    let (Some(in_a), Some(in_b)) = (varies(func, a, fuel), varies(func, b, fuel)) else {
        return Bounds::new();
    };
    let (axes, below) = match (in_a.len(), in_b.len()) {
        (1, 0) => (in_a, below),
        (0, 1) => (in_b, !below),
        _ => return Bounds::new(),
    };
    // A position that decreases along its axis is below a bound at the axis's end.
    let sides = |course: Course| match (course, below) {
        (Course::Rises, true) | (Course::Falls, false) => Sides { lower: false, upper: true },
        (Course::Rises, false) | (Course::Falls, true) => Sides { lower: true, upper: false },
        (Course::Unknown, _) => Sides::default(),
    };
    // A bound that ends beyond the tensor lets padding through.
    let beyond = |axis: usize| {
        query.of.is_some_and(|of| of.axis == axis && ends_beyond(func, f, [a, b], of))
    };
    let kept = |axis: usize, sides: Sides| Sides { upper: sides.upper && !beyond(axis), ..sides };
    axes.into_iter().map(|(axis, course)| (axis, kept(axis, sides(course)))).collect()
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

/// How a value changes along an axis.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Course {
    Rises,
    Falls,
    Unknown,
}

impl Course {
    fn turned(self) -> Self {
        match self {
            Course::Rises => Course::Falls,
            Course::Falls => Course::Rises,
            Course::Unknown => Course::Unknown,
        }
    }
}

type Courses = BTreeMap<usize, Course>;

fn shifted(axes: Courses, at: Option<&Attr>) -> Courses {
    let at = at.and_then(Attr::as_int).unwrap_or(0) as usize;
    axes.into_iter().map(|(a, course)| (if a >= at { a + 1 } else { a }, course)).collect()
}

fn turned(axes: Courses) -> Courses {
    axes.into_iter().map(|(a, course)| (a, course.turned())).collect()
}

fn added(mut a: Courses, b: Courses) -> Courses {
    for (axis, course) in b {
        a.entry(axis)
            .and_modify(|c| *c = if *c == course { course } else { Course::Unknown })
            .or_insert(course);
    }
    a
}

/// How a cast's value changes: a dtype of fewer bits starts again from its least number where the
/// positions do not fit.
fn converted(func: &TileFunc, to: Value, from: Value, axes: Courses) -> Courses {
    let ty = func.ty(to).dtype();
    let fits = || {
        let bits = ty.bits() - u32::from(!ty.is_unsigned_int());
        let iota = func.def(from).filter(|op| op.code == TileOp::Iota);
        iota.is_some_and(|op| {
            let start = op.attr("start").and_then(Attr::as_int).unwrap_or(0);
            let extent = func.ty(from).shape()[0].as_static();
            let end = extent.and_then(|n| start.checked_add(n));
            start >= 0 && end.is_some_and(|end| end <= 1 << bits.min(62))
        })
    };
    if !ty.is_int() || !func.ty(from).dtype().is_int() || keeps_positions(func, to, from) || fits()
    {
        return axes;
    }
    axes.into_keys().map(|axis| (axis, Course::Unknown)).collect()
}

/// The axes along which a value differs, and how, where it is made of positions and scalars alone.
fn varies(func: &TileFunc, value: Value, fuel: &Cell<usize>) -> Option<Courses> {
    if func.ty(value).rank() == 0 {
        return Some(Courses::new());
    }
    let op = func.def(value).filter(|_| burn(fuel))?;
    let of = |i: usize| varies(func, op.operands[i], fuel);
    match op.code {
        TileOp::Const => Some(Courses::new()),
        TileOp::Iota => Some([(0, Course::Rises)].into()),
        TileOp::Cast => Some(converted(func, value, op.operands[0], of(0)?)),
        TileOp::Broadcast => of(0),
        TileOp::Expand => Some(shifted(of(0)?, op.attr("axis"))),
        TileOp::Transpose => {
            let inner = of(0)?;
            let perm = op.attr("perm").and_then(Attr::as_ints)?;
            let moved = |i: usize| Some((i, *inner.get(&(perm[i] as usize))?));
            Some((0..perm.len()).filter_map(moved).collect())
        }
        TileOp::Ew(ScalarFn::Neg) => Some(turned(of(0)?)),
        TileOp::Ew(ScalarFn::Add) => Some(added(of(0)?, of(1)?)),
        TileOp::Ew(ScalarFn::Sub) => Some(added(of(0)?, turned(of(1)?))),
        TileOp::Ew(ScalarFn::Mul) => {
            let (a, b) = (of(0)?, of(1)?);
            let factor = if a.is_empty() { op.operands[0] } else { op.operands[1] };
            let sign = if a.is_empty() || b.is_empty() { sign(func, factor) } else { None };
            Some(match sign {
                Some(true) => added(a, b),
                Some(false) => turned(added(a, b)),
                None => added(a, b).into_keys().map(|axis| (axis, Course::Unknown)).collect(),
            })
        }
        _ => None,
    }
}

/// Whether a number is known to be above zero, or below it.
fn sign(func: &TileFunc, value: Value) -> Option<bool> {
    let id = func.def_id(value)?;
    let op = &func.ops[id];
    match op.code {
        TileOp::Const => {
            let number = op.attr("value").and_then(Attr::as_float).filter(|x| *x != 0.0);
            number.map(|x| x > 0.0)
        }
        TileOp::Cast | TileOp::Broadcast | TileOp::Expand => sign(func, op.operands[0]),
        _ if func.ty(value).rank() == 0 && func.ty(value).dtype().is_int() => {
            (!may_be_negative(func, value, id)).then_some(true)
        }
        _ => None,
    }
}
