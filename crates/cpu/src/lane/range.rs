//! The range of lanes that need no masks: guards such as `if i < n` hold, and positions that follow
//! the lane's number are inside their memory.
//!
//! The range is computed once, before the loop over vectors. Conditions that must be tested for
//! each vector are in [`super::local`].

use super::local::Local;
use super::ops::plus;
use super::uniform::is_pure;
use super::{Lanes, Repr};
use crate::llvm::{IntCmp, Val};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ir::{BlockId, Op, OpId, Value, ValueDef};
use tessera_numerics::{DType, ScalarFn};
use tessera_support::Entity;
use tessera_tile::attrs::checked_axes;
use tessera_tile::{Tile, TileOp};

/// A position of lane `n`: `first + step * n`, at most `below` less and `above` more, which loops
/// around it make of it.
#[derive(Copy, Clone, PartialEq)]
pub struct Form {
    pub first: Val,
    pub step: i64,
    below: Option<Val>,
    above: Option<Val>,
    /// `first` is known not to be negative.
    low: bool,
    /// No lane's position is near the end of the number range.
    pub near: bool,
}

impl Form {
    fn uniform(&self) -> Option<Val> {
        (self.step == 0 && self.is_exact()).then_some(self.first)
    }

    pub fn is_exact(&self) -> bool {
        self.below.is_none() && self.above.is_none()
    }
}

/// What is found out about a piece of code before its loop over the lanes.
pub struct Range {
    /// The numbers of the lanes.
    pub lo: Val,
    pub hi: Val,
    /// Conditions that hold, or do not, for these.
    pub known: Vec<(Value, bool)>,
    /// Accesses that are inside for these, along an axis.
    pub inside: BTreeSet<(OpId, usize)>,
    pub forms: BTreeMap<Value, Option<Form>>,
    requested: Vec<(Val, Form)>,
    pub locals: BTreeMap<Value, Option<Local>>,
    pub quotients: Vec<(Val, Val, Val, Val)>,
    /// What must hold for a vector beside.
    pub tests: Vec<Val>,
}

const MOST_STEP: i64 = 1 << 31;
const SMALL: i64 = 1 << 40;
const FEW: i64 = 64;

impl<'a> Lanes<'a> {
    /// Emits the computation of the range for some ops, at a place before the loop over lanes.
    pub fn range(&self, items: &[OpId]) -> Range {
        let mut r = Range {
            lo: self.span.lo,
            hi: self.span.hi,
            known: Vec::new(),
            inside: BTreeSet::new(),
            forms: BTreeMap::new(),
            requested: Vec::new(),
            locals: BTreeMap::new(),
            quotients: Vec::new(),
            tests: Vec::new(),
        };
        self.survey(&mut r, items);
        r
    }

    fn survey(&self, r: &mut Range, items: &[OpId]) {
        for &id in items {
            let op = &self.func.ops[id];
            match op.code {
                TileOp::Load | TileOp::Store | TileOp::Accumulate => {
                    if let Some(&mask) = op.group("mask").first() {
                        self.guard(r, mask, true);
                    }
                    self.survey_access(r, id);
                }
                TileOp::If => {
                    let [yes, no] = [op.regions[0], op.regions[1]];
                    let taken = match (self.is_trivial(yes), self.is_trivial(no)) {
                        (false, true) => self.guard(r, op.operands[0], true).then_some(yes),
                        (true, false) => self.guard(r, op.operands[0], false).then_some(no),
                        _ => None,
                    };
                    let regions = taken.map_or(vec![yes, no], |side| vec![side]);
                    regions.iter().for_each(|&b| self.survey(r, &self.func.blocks[b].ops));
                }
                _ => op.regions.iter().for_each(|&b| self.survey(r, &self.func.blocks[b].ops)),
            }
        }
    }

    /// Whether a region does nothing but yield constants and the like.
    fn is_trivial(&self, block: BlockId) -> bool {
        let ops = &self.func.blocks[block].ops;
        ops.len() <= 3
            && ops.iter().all(|&id| {
                let op = &self.func.ops[id];
                op.is_terminator() || is_pure(op.code) && !self.plan.varies(op.result())
            })
    }

    fn survey_access(&self, r: &mut Range, id: OpId) {
        let op = &self.func.ops[id];
        let mem = self.memory(op.operands[0]);
        for (axis, checked) in checked_axes(op, mem.dims.len()).into_iter().enumerate() {
            if !checked {
                continue;
            }
            let Some(form) = self.form(r, op.group("at")[axis]) else { continue };
            let requested = r.requested.contains(&(mem.dims[axis], form));
            if requested || self.ask(r, form, mem.dims[axis]) {
                r.inside.insert((id, axis));
                r.requested.push((mem.dims[axis], form));
            }
        }
    }

    /// Narrows the range to lanes whose positions are from 0 to below `dim`; false where that cannot
    /// be said of a range. Differences that leave the number range end at its ends, which makes the
    /// range no larger.
    fn ask(&self, r: &mut Range, form: Form, dim: Val) -> bool {
        let ir = self.ir;
        let first = form.first;
        let below = form.below.unwrap_or(ir.c64(0));
        let top = form.above.map_or(dim, |above| self.minus(dim, above));
        match form.step {
            1 => {
                if !(form.low && form.below.is_none()) {
                    r.lo = ir.smax(r.lo, self.minus(below, first));
                }
                r.hi = ir.smin(r.hi, self.minus(top, first));
            }
            // Rounded up, of what is not negative.
            2..=MOST_STEP => {
                let up = |x: Val| {
                    let x = ir.add_const(ir.smax(x, ir.c64(0)), form.step - 1);
                    ir.udiv(x, ir.c64(form.step))
                };
                if !(form.low && form.below.is_none()) {
                    r.lo = ir.smax(r.lo, up(self.minus(below, first)));
                }
                r.hi = ir.smin(r.hi, up(self.minus(top, first)));
            }
            -1 => {
                r.hi = ir.smin(r.hi, self.sum(self.minus(first, below), ir.c64(1)));
                let last = form.above.map_or(first, |above| self.sum(first, above));
                r.lo = ir.smax(r.lo, self.sum(self.minus(last, dim), ir.c64(1)));
            }
            // One position for the whole row.
            0 if self.rows.axes() > 1 => {
                let low = ir.icmp(IntCmp::LLVMIntSGE, first, below);
                let inside = ir.and(low, ir.icmp(IntCmp::LLVMIntSLT, first, top));
                self.only_where(r, inside);
            }
            _ => return false,
        }
        true
    }

    /// Leaves no lane in the range where a condition of the row does not hold.
    fn only_where(&self, r: &mut Range, holds: Val) {
        r.hi = self.ir.select(holds, r.hi, self.ir.c64(i64::MIN));
    }

    fn minus(&self, a: Val, b: Val) -> Val {
        let ir = self.ir;
        match (ir.as_int(a), ir.as_int(b)) {
            (_, Some(0)) => a,
            (Some(a), Some(b)) => ir.c64(a.saturating_sub(b)),
            _ => ir.intrinsic("llvm.ssub.sat", &[ir.i64()], &[a, b]),
        }
    }

    fn sum(&self, a: Val, b: Val) -> Val {
        let ir = self.ir;
        match (ir.as_int(a), ir.as_int(b)) {
            (Some(0), _) => b,
            (_, Some(0)) => a,
            (Some(a), Some(b)) => ir.c64(a.saturating_add(b)),
            _ => ir.intrinsic("llvm.sadd.sat", &[ir.i64()], &[a, b]),
        }
    }

    /// Narrows the range to lanes for which a condition is as wanted; false where it stays open.
    fn guard(&self, r: &mut Range, v: Value, want: bool) -> bool {
        if r.known.contains(&(v, want)) {
            return true;
        }
        if !self.plan.varies(v) {
            return false;
        }
        let Some(op) = self.func.def(v) else { return false };
        let TileOp::Ew(f) = op.code else { return false };
        let holds = match (f, want) {
            (ScalarFn::And, true) | (ScalarFn::Or, false) => {
                let a = self.guard(r, op.operands[0], want);
                let b = self.guard(r, op.operands[1], want);
                a && b
            }
            (ScalarFn::Not, _) => self.guard(r, op.operands[0], !want),
            (ScalarFn::Lt | ScalarFn::Le | ScalarFn::Gt | ScalarFn::Ge, _) => {
                self.compare(r, op, f, want)
            }
            _ => false,
        };
        if holds {
            r.known.push((v, want));
        }
        holds
    }

    /// A comparison of a position, one more from lane to lane, with something all lanes share.
    fn compare(&self, r: &mut Range, op: &Op<Tile>, f: ScalarFn, want: bool) -> bool {
        if self.dtype(op.operands[0]) != DType::I64 {
            return false;
        }
        let (a, b) = (self.form(r, op.operands[0]), self.form(r, op.operands[1]));
        let (Some(a), Some(b)) = (a, b) else { return false };
        let (form, bound, f) = match (a.uniform(), b.uniform()) {
            (Some(a), Some(b)) if self.rows.axes() > 1 => {
                let holds = self.s.apply(f, DType::I64, &[a, b]);
                self.only_where(r, if want { holds } else { self.ir.not(holds) });
                return true;
            }
            (None, Some(bound)) => (a, bound, f),
            (Some(bound), None) => (b, bound, mirrored(f)),
            _ => return false,
        };
        let f = if want { f } else { negated(f) };
        let up = matches!(f, ScalarFn::Ge | ScalarFn::Gt);
        if !form.is_exact() || form.step != 1 || (up && !form.near) {
            return false;
        }
        let ir = self.ir;
        // A guard that few lanes pass is not used: most lanes would be outside the range.
        let known = ir.as_int(bound);
        let few = if up { known.is_none() } else { known.is_some_and(|k| k < FEW) };
        if few && form.first == self.span.base {
            return false;
        }
        let edge = self.minus(bound, form.first);
        let next = || self.sum(edge, ir.c64(1));
        match f {
            ScalarFn::Lt => r.hi = ir.smin(r.hi, edge),
            ScalarFn::Le => r.hi = ir.smin(r.hi, next()),
            ScalarFn::Ge => r.lo = ir.smax(r.lo, edge),
            _ => r.lo = ir.smax(r.lo, next()),
        }
        true
    }

    /// How a position follows from the lane's number.
    pub fn form(&self, r: &mut Range, v: Value) -> Option<Form> {
        if let Some(known) = r.forms.get(&v) {
            return *known;
        }
        let form = self.find_form(r, v).filter(|f| f.step.abs() <= MOST_STEP);
        r.forms.insert(v, form);
        form
    }

    fn find_form(&self, r: &mut Range, v: Value) -> Option<Form> {
        let ir = self.ir;
        if self.dtype(v) != DType::I64 {
            return None;
        }
        let exact = |first: Val, step: i64, low: bool, near: bool| Form {
            first,
            step,
            below: None,
            above: None,
            low,
            near,
        };
        if !self.plan.varies(v) && self.is_there(v) {
            let x = self.scalar(v);
            let known = ir.as_int(x);
            let near = known.is_some_and(|k| k.abs() < SMALL);
            return Some(exact(x, 0, known.is_some_and(|k| k >= 0), near));
        }
        let Some(op) = self.func.def(v) else { return self.form_of_loop(v) };
        let TileOp::Ew(f) = op.code else {
            return match op.code {
                TileOp::LinearId | TileOp::LocalId => {
                    let (first, step) = self.lane_form(op);
                    Some(exact(first, step, true, true))
                }
                _ => None,
            };
        };
        let a = self.form(r, op.operands[0])?;
        match f {
            ScalarFn::Add => {
                let b = self.form(r, op.operands[1])?;
                Some(Form {
                    first: plus(ir, a.first, b.first),
                    step: a.step.checked_add(b.step)?,
                    below: self.more(a.below, b.below),
                    above: self.more(a.above, b.above),
                    low: a.low && b.low && a.near && b.near,
                    near: a.near && b.near,
                })
            }
            ScalarFn::Sub => {
                let b = self.form(r, op.operands[1])?;
                Some(Form {
                    first: if ir.as_int(b.first) == Some(0) {
                        a.first
                    } else {
                        ir.sub(a.first, b.first)
                    },
                    step: a.step.checked_sub(b.step)?,
                    below: self.more(a.below, b.above),
                    above: self.more(a.above, b.below),
                    low: false,
                    near: a.near && b.near,
                })
            }
            ScalarFn::Neg => Some(Form {
                first: ir.sub(ir.c64(0), a.first),
                step: a.step.checked_neg()?,
                below: a.above,
                above: a.below,
                low: false,
                near: a.near,
            }),
            ScalarFn::Mul => {
                let b = self.form(r, op.operands[1])?;
                match (
                    a.uniform().and_then(|k| ir.as_int(k)),
                    b.uniform().and_then(|k| ir.as_int(k)),
                ) {
                    (Some(k), _) => self.times(b, k),
                    (_, Some(k)) => self.times(a, k),
                    (None, None) => None,
                }
            }
            _ => None,
        }
    }

    /// The position of a loop whose bounds all lanes share.
    fn form_of_loop(&self, v: Value) -> Option<Form> {
        let func = self.func;
        let ValueDef::Arg(block, 0) = func.values[v].def else { return None };
        let op = &func.ops[func.blocks[block].parent?];
        let shared = op.code == TileOp::For
            && op.operands[..2].iter().all(|&b| !self.plan.varies(b) && self.is_there(b));
        if !shared {
            return None;
        }
        let (lo, hi) = (self.scalar(op.operands[0]), self.scalar(op.operands[1]));
        let ir = self.ir;
        let last = self.minus(self.minus(hi, ir.c64(1)), lo);
        let above = Some(ir.smax(last, ir.c64(0)));
        let low = ir.as_int(lo).is_some_and(|lo| lo >= 0);
        Some(Form { first: lo, step: 0, below: None, above, low, near: false })
    }

    /// Whether the value that all lanes share can be had here.
    fn is_there(&self, v: Value) -> bool {
        !matches!(self.env[v.index()], Repr::Absent)
    }

    fn more(&self, a: Option<Val>, b: Option<Val>) -> Option<Val> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.sum(a, b)),
            (a, b) => a.or(b),
        }
    }

    fn times(&self, f: Form, k: i64) -> Option<Form> {
        let ir = self.ir;
        if k.checked_abs()? >= 1 << 20 {
            return None;
        }
        // Long ways become as long as can be, which lets no lane be in the range.
        let stretch = |way: Option<Val>| {
            way.map(|way| {
                let long = ir.icmp(IntCmp::LLVMIntSGT, way, ir.c64(SMALL));
                ir.select(long, ir.c64(i64::MAX), ir.mul_const(way, k.abs()))
            })
        };
        let (below, above) = if k < 0 { (f.above, f.below) } else { (f.below, f.above) };
        Some(Form {
            first: ir.mul(f.first, ir.c64(k)),
            step: f.step.checked_mul(k)?,
            below: stretch(below),
            above: stretch(above),
            low: f.low && f.near && k >= 0,
            near: false,
        })
    }

    /// Binds what is known of a vector in the range.
    pub fn assume(&mut self, r: &Range) {
        let ir = self.ir;
        for &(v, holds) in &r.known {
            self.set(v, Repr::Uniform(ir.bool(holds)));
        }
        for (&v, form) in &r.forms {
            let Some(f) = form.filter(|f| f.is_exact() && !self.is_there(v)) else { continue };
            let moved = if f.step == 0 {
                f.first
            } else {
                plus(ir, f.first, ir.mul_const(self.at, f.step))
            };
            self.set(v, place(moved, f.step));
        }
        for (&v, local) in &r.locals {
            let Some(l) = local.filter(|_| !self.is_there(v)) else { continue };
            self.set(v, place(l.first, l.step));
        }
        self.inside = r.inside.clone();
    }
}

fn place(first: Val, step: i64) -> Repr {
    if step == 0 { Repr::Uniform(first) } else { Repr::Steps { first, step } }
}

/// The comparison with its sides exchanged.
fn mirrored(f: ScalarFn) -> ScalarFn {
    match f {
        ScalarFn::Lt => ScalarFn::Gt,
        ScalarFn::Le => ScalarFn::Ge,
        ScalarFn::Gt => ScalarFn::Lt,
        _ => ScalarFn::Le,
    }
}

fn negated(f: ScalarFn) -> ScalarFn {
    match f {
        ScalarFn::Lt => ScalarFn::Ge,
        ScalarFn::Le => ScalarFn::Gt,
        ScalarFn::Gt => ScalarFn::Le,
        _ => ScalarFn::Lt,
    }
}
