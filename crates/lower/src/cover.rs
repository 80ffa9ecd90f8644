//! Which arrays a launch certainly writes completely (LANGUAGE 5). The runtime zeroes the others
//! before the launch, where it allocated them.
//!
//! A store covers its array where it runs in every group (or lane) and its positions along each
//! axis leave no gap. A position is a sum of digits: a block's own extent, a loop's position, a
//! group's or lane's index, or a part of such an index by `//` and `%`. The ranges of the digits
//! are known at launch, so the launch calls [`Cover::holds`]. Stores that do not have this form are
//! not known to cover; nothing is guessed.

use crate::facts::{extents, int_const, is_view, step};
use std::collections::BTreeMap;
use tessera_ir::{BlockId, DimExpr, OpId, Value, ValueDef};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{
    Atom, KernelKind, TileFunc, TileOp, dim_expr_of, keeps, kind_of, lane_axis, linear_of,
};

/// One store that may cover a parameter whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Cover {
    /// Which of the function's parameters.
    pub param: usize,
    /// For each axis of the array, the digits that make its positions.
    axes: Vec<Vec<Digit>>,
    /// Only lanes below each of these run it.
    guards: Vec<(usize, DimExpr)>,
    /// It runs in every iteration of these loops: their ends, which are above 0.
    loops: Vec<DimExpr>,
}

#[derive(Clone, Debug, PartialEq)]
struct Digit {
    stride: i64,
    counts: Counts,
}

#[derive(Clone, Debug, PartialEq)]
enum Counts {
    /// From 0 to one below.
    Fixed(i64),
    /// A loop from 0 with a step: which one, and its end.
    Loop(OpId, DimExpr, i64),
    /// `number // div % modulo`.
    Part { number: Number, div: DimExpr, modulo: Option<DimExpr> },
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Number {
    Program(i64),
    /// Along an axis.
    Lane(usize),
}

/// A launch.
pub struct Launched<'a> {
    pub grid: [i64; 3],
    pub domain: [i64; 3],
    /// The value of an expression over dimensions and integer parameters.
    pub eval: &'a dyn Fn(&DimExpr) -> Option<i64>,
}

/// Every store that may cover a parameter.
pub fn covers(func: &TileFunc) -> Vec<Cover> {
    let kind = kind_of(func);
    func.walk().into_iter().filter_map(|id| cover(func, kind?, id)).collect()
}

fn cover(func: &TileFunc, kind: KernelKind, id: OpId) -> Option<Cover> {
    let op = &func.ops[id];
    if !matches!(op.code, TileOp::Store | TileOp::Scatter) || !is_view(func, op.operands[0]) {
        return None;
    }
    let param = func.params().iter().position(|&p| p == op.operands[0])?;
    let mut out = Cover { param, axes: Vec::new(), guards: Vec::new(), loops: Vec::new() };
    reached(func, kind, op.block, &mut out)?;
    let mut along = Vec::new();
    for (axis, &at) in op.group("at").iter().enumerate() {
        let (mut digits, varies) = position(func, at)?;
        along.extend(varies);
        let extent = extents(op).get(axis).copied().unwrap_or(0);
        if extent > 1 {
            digits.push(Digit { stride: step(op, axis), counts: Counts::Fixed(extent) });
        }
        out.axes.push(digits);
    }
    // Index tiles reach every combination only where each has an axis of its own.
    let count = along.len();
    along.sort_unstable();
    along.dedup();
    if along.len() != count {
        return None;
    }
    let bounds: Vec<DimExpr> = func
        .ty(op.operands[0])
        .shape()
        .iter()
        .map(crate::facts::dim_expr)
        .collect::<Option<_>>()?;
    op.group("mask").iter().all(|&m| is_bounds(func, m, &out, &bounds, 100)).then_some(out)
}

/// The control flow around an op: `None` where the op may be skipped.
fn reached(func: &TileFunc, kind: KernelKind, block: BlockId, out: &mut Cover) -> Option<()> {
    let Some(parent) = func.blocks[block].parent else { return Some(()) };
    let op = &func.ops[parent];
    match op.code {
        TileOp::If if kind == KernelKind::Lane => {
            guard(func, op.operands[0], op.regions[0] == block, &mut out.guards)?;
        }
        TileOp::For => {
            (int_const(func, op.operands[0]) == Some(0)).then_some(())?;
            out.loops.push(dim_expr_of(func, op.operands[1])?);
        }
        _ => return None,
    }
    reached(func, kind, op.block, out)
}

/// A condition that says `i < E` of the lane, and nothing else.
fn guard(
    func: &TileFunc,
    condition: Value,
    truth: bool,
    out: &mut Vec<(usize, DimExpr)>,
) -> Option<()> {
    let op = func.def(condition)?;
    let TileOp::Ew(f) = op.code else { return None };
    let (lane, bound) = match (f, truth) {
        (ScalarFn::And, true) | (ScalarFn::Or, false) => {
            guard(func, op.operands[0], truth, out)?;
            return guard(func, op.operands[1], truth, out);
        }
        (ScalarFn::Not, _) => return guard(func, op.operands[0], !truth, out),
        (ScalarFn::Lt, true) | (ScalarFn::Ge, false) => (op.operands[0], op.operands[1]),
        (ScalarFn::Gt, true) | (ScalarFn::Le, false) => (op.operands[1], op.operands[0]),
        _ => return None,
    };
    let lane = func.def(lane).filter(|op| op.code == TileOp::LinearId)?;
    out.push((lane_axis(lane).unwrap_or(0), dim_expr_of(func, bound)?));
    Some(())
}

/// The digits of a position, and the axis that a tile of positions varies along.
fn position(func: &TileFunc, at: Value) -> Option<(Vec<Digit>, Option<usize>)> {
    if func.ty(at).rank() == 0 {
        return scalar(func, at).map(|digits| (digits, None));
    }
    let op = func.def(at)?;
    match op.code {
        TileOp::Iota => {
            let starts = op.attr("start").and_then(tessera_ir::Attr::as_int).unwrap_or(0);
            let len = func.ty(at).static_shape()?.first().copied()?;
            let digit = Digit { stride: 1, counts: Counts::Fixed(len) };
            (starts == 0).then_some((vec![digit], Some(0)))
        }
        // A narrower cast or sum may wrap.
        TileOp::Cast if kept(func, at) => position(func, op.operands[0]),
        TileOp::Broadcast => position(func, op.operands[0]),
        TileOp::Expand => {
            let new = op.attr("axis").and_then(tessera_ir::Attr::as_int)? as usize;
            let (digits, axis) = position(func, op.operands[0])?;
            Some((digits, axis.map(|a| if a >= new { a + 1 } else { a })))
        }
        TileOp::Ew(ScalarFn::Add) if func.ty(at).dtype() == DType::I64 => {
            let (mut digits, a) = position(func, op.operands[0])?;
            let (more, b) = position(func, op.operands[1])?;
            digits.extend(more);
            (a.is_none() || b.is_none()).then_some((digits, a.or(b)))
        }
        _ => None,
    }
}

/// Whether a cast keeps every number.
fn kept(func: &TileFunc, cast: Value) -> bool {
    let from = func.def(cast).and_then(|op| op.operands.first()).map(|&v| func.ty(v).dtype());
    from.is_some_and(|from| keeps(from, func.ty(cast).dtype()))
}

fn scalar(func: &TileFunc, at: Value) -> Option<Vec<Digit>> {
    let form = linear_of(func, at);
    if form.constant != 0 {
        return None;
    }
    let digit = |(atom, &factor): (&Atom, &i64)| {
        let (stride, counts) = match atom {
            Atom::Program(axis) => (factor, whole(Number::Program(*axis))),
            Atom::Value(v) => match looped(func, *v) {
                Some((id, end, by)) => (factor.checked_mul(by)?, Counts::Loop(id, end, by)),
                None => (factor, part(func, *v)?),
            },
            Atom::Dim(_) => return None,
        };
        (stride > 0).then_some(Digit { stride, counts })
    };
    form.terms.iter().map(digit).collect()
}

fn whole(number: Number) -> Counts {
    Counts::Part { number, div: DimExpr::Const(1), modulo: None }
}

/// A loop variable that begins at 0: its loop, where that ends, and the step.
fn looped(func: &TileFunc, value: Value) -> Option<(OpId, DimExpr, i64)> {
    let ValueDef::Arg(block, 0) = func.values[value].def else { return None };
    let id = func.blocks[block].parent?;
    let op = func.ops.get(id).filter(|op| op.code == TileOp::For)?;
    let by = int_const(func, op.operands[2]).filter(|&s| s > 0)?;
    Some((id, dim_expr_of(func, op.operands[1])?, by))
}

/// A group's or lane's number, whole or divided.
fn part(func: &TileFunc, value: Value) -> Option<Counts> {
    let op = func.def(value)?;
    match op.code {
        TileOp::LinearId => Some(whole(Number::Lane(lane_axis(op).unwrap_or(0)))),
        TileOp::ProgramId => {
            Some(whole(Number::Program(op.attr("axis").and_then(tessera_ir::Attr::as_int)?)))
        }
        TileOp::Cast if kept(func, value) => part(func, op.operands[0]),
        TileOp::Ew(f @ (ScalarFn::FloorDiv | ScalarFn::Mod)) => {
            let Counts::Part { number, div, modulo: None } = part(func, op.operands[0])? else {
                return None;
            };
            let by = dim_expr_of(func, op.operands[1])?;
            Some(match f {
                ScalarFn::Mod => Counts::Part { number, div, modulo: Some(by) },
                _ => {
                    let div = DimExpr::bin(tessera_ir::DimOp::Mul, div, by);
                    Counts::Part { number, div, modulo: None }
                }
            })
        }
        _ => None,
    }
}

/// A mask that is false only outside the array: positions of the store compared with its extents.
fn is_bounds(func: &TileFunc, mask: Value, cover: &Cover, bounds: &[DimExpr], fuel: usize) -> bool {
    let Some(op) = func.def(mask).filter(|_| fuel > 0) else { return false };
    let inner = |v: Value| is_bounds(func, v, cover, bounds, fuel - 1);
    match op.code {
        TileOp::Broadcast | TileOp::Expand => inner(op.operands[0]),
        TileOp::Ew(ScalarFn::And) => inner(op.operands[0]) && inner(op.operands[1]),
        TileOp::Ew(ScalarFn::Lt) => {
            let Some((mut digits, _)) = position(func, op.operands[0]) else { return false };
            let bound = constant_of(func, op.operands[1]);
            let same = |(axis, wanted): (usize, &Vec<Digit>)| {
                let mut wanted = wanted.clone();
                let order = |d: &Digit| (d.stride, matches!(d.counts, Counts::Fixed(_)));
                wanted.sort_by_key(order);
                digits.sort_by_key(order);
                wanted == digits && bound.as_ref() == Some(&bounds[axis])
            };
            cover.axes.iter().enumerate().any(same)
        }
        _ => false,
    }
}

/// One number for all elements, as an expression.
fn constant_of(func: &TileFunc, value: Value) -> Option<DimExpr> {
    if func.ty(value).rank() == 0 {
        return dim_expr_of(func, value);
    }
    let op = func.def(value)?;
    match op.code {
        TileOp::Const => dim_expr_of(func, value),
        TileOp::Cast if kept(func, value) => constant_of(func, op.operands[0]),
        TileOp::Broadcast | TileOp::Expand => constant_of(func, op.operands[0]),
        _ => None,
    }
}

impl Cover {
    /// Whether the store writes every element of an array of these extents in a launch.
    pub fn holds(&self, dims: &[i64], launch: &Launched<'_>) -> bool {
        self.reaches(dims, launch).unwrap_or(false)
    }

    fn reaches(&self, dims: &[i64], launch: &Launched<'_>) -> Option<bool> {
        if dims.len() != self.axes.len() || launch.grid.iter().any(|&n| n < 1) {
            return Some(dims.contains(&0));
        }
        let ends = self.loops.iter().map(launch.eval).collect::<Option<Vec<_>>>()?;
        if ends.iter().any(|&end| end < 1) {
            return Some(dims.contains(&0));
        }
        let mut lanes = launch.domain;
        for (axis, guard) in &self.guards {
            lanes[*axis] = lanes[*axis].min((launch.eval)(guard)?);
            // No lane passes.
            if lanes[*axis] < 1 {
                return Some(dims.contains(&0));
            }
        }
        // Digits are independent: a loop occurs once, parts of an index do not overlap.
        let (mut parts, mut loops) = (BTreeMap::<Number, Vec<(i64, i64)>>::new(), Vec::new());
        let mut counted = Vec::new();
        for digits in &self.axes {
            let mut along = Vec::new();
            for digit in digits {
                let count = match &digit.counts {
                    Counts::Fixed(count) => *count,
                    Counts::Loop(id, end, by) => {
                        loops.push(*id);
                        let end = (launch.eval)(end)?;
                        end.checked_add(by - 1)? / by
                    }
                    Counts::Part { number, div, modulo } => {
                        let there = match number {
                            Number::Program(axis) => *launch.grid.get(*axis as usize)?,
                            Number::Lane(axis) => *lanes.get(*axis)?,
                        };
                        let div = (launch.eval)(div).filter(|&d| d > 0)?;
                        let modulo = match modulo {
                            Some(m) => (launch.eval)(m).filter(|&m| m > 0)?,
                            None => i64::MAX / div,
                        };
                        let end = div.checked_mul(modulo)?;
                        parts.entry(*number).or_default().push((div, end));
                        // An index that does not run through the whole part runs through this much.
                        if modulo < there / div { modulo } else { there / div }
                    }
                };
                along.push((digit.stride, count));
            }
            counted.push(along);
        }
        loops.sort_unstable();
        // A lane's index and its group's are not independent.
        let groups = parts.keys().any(|n| matches!(n, Number::Program(_)));
        if groups && parts.keys().any(|n| matches!(n, Number::Lane(_))) {
            return Some(false);
        }
        let repeated = loops.windows(2).any(|pair| pair[0] == pair[1]);
        if repeated || parts.values_mut().any(|p| overlap(p)) {
            return Some(false);
        }
        Some(dims.iter().zip(counted).all(|(&dim, along)| without_gaps(along) >= dim))
    }
}

/// Whether two parts `[div, end)` of one number share anything, or do not fit into each other.
fn overlap(parts: &mut [(i64, i64)]) -> bool {
    parts.sort_unstable();
    parts.windows(2).any(|pair| pair[0].1 > pair[1].0 || pair[1].0 % pair[0].1 != 0)
}

/// How many positions from 0 on are all reached.
fn without_gaps(mut digits: Vec<(i64, i64)>) -> i64 {
    digits.sort_unstable();
    let mut reach = 1i64;
    for (stride, count) in digits {
        if count < 1 {
            return 0;
        }
        if stride > reach {
            break;
        }
        reach = stride.saturating_mul(count - 1).saturating_add(reach);
    }
    reach
}
