//! Chooses how many lanes a thread takes, and computes the conditions of the fast path that runs
//! them together: that guards such as `if i < n` hold for all of them or for none, that positions
//! which are linear in the lane index are in bounds, that wide accesses are aligned. Everything
//! that these checks need is computed before the body.
//!
//! Only straight-line code and loops with uniform control flow run for several lanes together; a
//! condition that is not known beforehand becomes a predicate per lane.

use super::memory::{Memory, Size};
use super::value::{MOST, Steps};
use super::{Lanes, Repr};
use crate::inst::*;
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::Diagnostics;
use tessera_ir::{BlockId, OpId, Type, Value};
use tessera_numerics::{DType, Profile, Scalar, ScalarFn, expansion};
use tessera_tile::TileOp;
use tessera_tile::attrs::checked_axes;

/// The checks, and what they imply.
#[derive(Default)]
pub struct Survey {
    /// Checks may be added: code comes before the body.
    pub collecting: bool,
    /// All of these must hold.
    tests: Vec<Reg>,
    /// Conditions that hold, or do not, for all lanes.
    pub known: BTreeMap<Value, bool>,
    /// Accesses that are in bounds along an axis.
    pub inside: BTreeSet<(OpId, usize)>,
    /// Wide accesses: the axis and the number of elements.
    pub wide: BTreeMap<OpId, (usize, usize)>,
    /// Quotients and remainders that the lanes share.
    pub rows: BTreeMap<(Reg, Opnd), (Reg, Reg)>,
    requested: BTreeSet<(Reg, i64, Question)>,
    lasts: BTreeMap<(Reg, i64), Reg>,
    /// Bytes of elements in wide accesses, and the number of strided accesses that are not wide.
    widths: Vec<usize>,
    narrow: usize,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Inside(Size),
    Order,
    Multiple(u32),
}

/// Which lanes a thread takes: their number, and the distance between them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Share {
    pub width: usize,
    /// 1: contiguous lanes, for wide accesses. 32: lanes are interleaved over the threads
    /// of a warp, so that accesses of one element are coalesced whatever their alignment.
    pub apart: i64,
}

impl Share {
    pub const ONE: Share = Share { width: 1, apart: 1 };
}

/// The most contiguous lanes that a thread takes, and the number of interleaved ones.
const WIDEST_THREAD: usize = 8;
const INTERLEAVED: usize = 4;
/// Instructions of a lane up to which lanes are taken in turn, and up to which a thread takes more
/// than two contiguous lanes.
const LIGHT: usize = 200;
const HEAVY: usize = 600;
/// The most instructions that a thread executes for inactive lanes.
const IN_VAIN: usize = 60;

impl Lanes<'_> {
    pub fn require(&mut self, p: Reg) {
        self.survey.tests.push(p);
    }

    /// The conjunction of all checks, if there are any.
    pub fn requirements(&mut self) -> Option<Reg> {
        let tests = std::mem::take(&mut self.survey.tests);
        tests.into_iter().reduce(|a, b| self.and(a, b))
    }

    fn is_new(&mut self, s: Steps, question: Question) -> bool {
        self.survey.requested.insert((s.first, s.step, question))
    }

    /// The position of the first lane, or of the last.
    pub fn end(&mut self, s: Steps, last: bool) -> Reg {
        if !last {
            return s.first;
        }
        if let Some(&r) = self.survey.lasts.get(&(s.first, s.step)) {
            return r;
        }
        let r = self.add64(s.first, Opnd::Int(s.step.wrapping_mul(self.width as i64 - 1)));
        self.survey.lasts.insert((s.first, s.step), r);
        r
    }

    /// Checks that positions do not overflow between the first lane and the last.
    fn require_order(&mut self, s: Steps) {
        let short = s.step.unsigned_abs() < 1 << 40;
        if short && s.facts.is_near() || !self.is_new(s, Question::Order) {
            return;
        }
        let (first, last) = (self.end(s, false), self.end(s, true));
        let cmp = if s.step > 0 { Cmp::Le } else { Cmp::Ge };
        let p = self.asm.setp(cmp, Ty::S64, first, last);
        self.require(p);
    }

    /// Checks that all positions are in bounds.
    fn require_inside(&mut self, s: Steps, extent: Size) {
        if !self.is_new(s, Question::Inside(extent)) {
            return;
        }
        self.require_order(s);
        let last = self.end(s, true);
        let p = self.is_inside(last, extent);
        self.require(p);
        if !(s.step > 0 && s.facts.low && s.facts.is_near()) {
            let p = self.is_inside(s.first, extent);
            self.require(p);
        }
    }

    /// Analyses a block and emits what can be computed beforehand. `unsure`: some lanes may be
    /// inactive. False where a thread must run one lane at a time.
    #[deny(clippy::wildcard_enum_match_arm)]
    fn survey_block(&mut self, block: BlockId, unsure: bool) -> Result<bool, Diagnostics> {
        use TileOp::*;
        let func = self.func;
        for &id in &func.blocks[block].ops {
            let op = &func.ops[id];
            let good = match op.code {
                Load | Store | Accumulate => {
                    if let Some(&mask) = op.group("mask").first() {
                        self.require_truth(mask, true);
                    }
                    self.survey_access(id, unsure);
                    true
                }
                If => self.survey_branch(id, unsure)?,
                For => {
                    let alike = op.operands[..3].iter().all(|&v| !self.uniform.varies(v));
                    alike && !unsure && self.survey_block(op.regions[0], false)?
                }
                While | Print | AsmEffect => false,
                Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId | LocalId
                | GroupSize | WarpSize | Dim | Origin | Const | Iota | Select | Cast | Bitcast
                | Reshape | Transpose | Broadcast | Expand | Gather | Scatter | BufAlloc
                | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait | Mma | GroupReduce
                | GroupScan | GroupBroadcast | GroupShuffle | Philox | Assert | Reduce | Scan
                | ArgReduce | Ew(_) | Slice | Concat | Take | ReduceBy | ScanBy | Sort
                | Histogram | Owned | Asm => {
                    if self.is_early(id) {
                        self.asm.at(&op.loc);
                        let repr = self.compute(id)?;
                        self.set(op.result(), repr);
                    }
                    true
                }
            };
            if !good {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether an op is computed before the body: positions, and what they are compared with.
    fn is_early(&self, id: OpId) -> bool {
        let op = &self.func.ops[id];
        let one = |v: &Value| matches!(self.repr(*v), Repr::One(_));
        let Some(&result) = op.results.first() else { return false };
        let whole = |v: Value| self.dtype(v).is_int();
        match op.code {
            TileOp::Const | TileOp::Dim | TileOp::LinearId | TileOp::LocalId => true,
            TileOp::ProgramId | TileOp::NumPrograms | TileOp::GroupSize | TileOp::WarpSize => true,
            TileOp::Ew(_) | TileOp::Cast | TileOp::Select if op.operands.iter().all(one) => {
                let last = op.operands[op.operands.len() - 1];
                whole(result) || self.dtype(result) == DType::Bool && whole(last)
            }
            TileOp::Ew(f) if self.dtype(result) == DType::I64 => {
                let known = |v: &Value| matches!(self.repr(*v), Repr::One(_) | Repr::Steps(_));
                let constant = op.operands.iter().any(|&v| self.int_of(v).is_some());
                op.operands.iter().all(known)
                    && match f {
                        ScalarFn::Add | ScalarFn::Sub | ScalarFn::Neg => true,
                        ScalarFn::Mul => constant,
                        ScalarFn::FloorDiv | ScalarFn::Mod => self.is_row(id),
                        _ => false,
                    }
            }
            _ => false,
        }
    }

    fn survey_branch(&mut self, id: OpId, unsure: bool) -> Result<bool, Diagnostics> {
        let op = &self.func.ops[id];
        let (cond, [yes, no]) = (op.operands[0], [op.regions[0], op.regions[1]]);
        let empty = |me: &Self, block: BlockId| me.func.blocks[block].ops.len() <= 1;
        match (empty(self, yes), empty(self, no)) {
            (true, true) => return Ok(true),
            (false, true) if self.require_truth(cond, true) => {
                return self.survey_block(yes, unsure);
            }
            (true, false) if self.require_truth(cond, false) => {
                return self.survey_block(no, unsure);
            }
            _ => {}
        }
        if let Some(p) = self.require_same(cond) {
            self.set(cond, Repr::One(p));
        }
        let apart = self.uniform.varies(cond) && !self.is_one(cond);
        if apart && [yes, no].into_iter().any(|b| self.weight(b) > IN_VAIN) {
            return Ok(false);
        }
        let unsure = unsure || apart;
        Ok(self.survey_block(yes, unsure)? && self.survey_block(no, unsure)?)
    }

    fn is_one(&self, v: Value) -> bool {
        matches!(self.repr(v), Repr::One(_))
    }

    /// A comparison of a position with a uniform value, the position first.
    fn comparison(&self, v: Value) -> Option<(ScalarFn, Steps, Reg)> {
        let op = self.func.def(v)?;
        let TileOp::Ew(f) = op.code else { return None };
        if op.operands.len() != 2 || self.dtype(op.operands[0]) != DType::I64 {
            return None;
        }
        let swapped = match f {
            ScalarFn::Lt => ScalarFn::Gt,
            ScalarFn::Le => ScalarFn::Ge,
            ScalarFn::Gt => ScalarFn::Lt,
            ScalarFn::Ge => ScalarFn::Le,
            ScalarFn::Eq | ScalarFn::Ne => f,
            _ => return None,
        };
        match (self.repr(op.operands[0]), self.repr(op.operands[1])) {
            (Repr::Steps(s), Repr::One(r)) => Some((f, *s, *r)),
            (Repr::One(r), Repr::Steps(s)) => Some((swapped, *s, *r)),
            _ => None,
        }
    }

    /// A condition made of others.
    fn parts(&self, v: Value) -> Option<(ScalarFn, Vec<Value>)> {
        let op = self.func.def(v)?;
        match op.code {
            TileOp::Ew(f @ (ScalarFn::And | ScalarFn::Or | ScalarFn::Not))
                if self.dtype(v) == DType::Bool =>
            {
                Some((f, op.operands.clone()))
            }
            _ => None,
        }
    }

    /// Checks that a condition holds, or does not, for all lanes; false where that cannot be
    /// checked, or never is so.
    fn require_truth(&mut self, v: Value, truth: bool) -> bool {
        if !self.can_require(v, truth) {
            return false;
        }
        self.require_parts(v, truth);
        true
    }

    /// Whether a known condition needs no register: it is used only by branches and masks, or by
    /// other such conditions.
    pub fn is_settled(&self, v: Value) -> bool {
        let func = self.func;
        self.survey.known.contains_key(&v)
            && func.walk().into_iter().all(|id| {
                let op = &func.ops[id];
                match op.code {
                    _ if !op.operands.contains(&v) => true,
                    TileOp::If => true,
                    TileOp::Ew(_) => self.is_settled(op.result()),
                    TileOp::Store | TileOp::Accumulate => op.operands[1] != v,
                    _ => false,
                }
            })
    }

    fn can_require(&self, v: Value, truth: bool) -> bool {
        if let Some(&known) = self.survey.known.get(&v) {
            return known == truth;
        }
        if self.is_one(v) {
            // A branch on it costs as little.
            return false;
        }
        if let Some((f, parts)) = self.parts(v) {
            let any = |v: &Value| self.is_one(*v) || self.can_require(*v, truth);
            return match f {
                ScalarFn::Not => self.can_require(parts[0], !truth),
                ScalarFn::And => truth && parts.iter().all(any),
                _ => !truth && parts.iter().all(any),
            };
        }
        match self.comparison(v) {
            Some((ScalarFn::Eq, ..)) => !truth,
            Some((ScalarFn::Ne, ..)) => truth,
            Some(_) => true,
            None => false,
        }
    }

    fn require_parts(&mut self, v: Value, truth: bool) {
        if self.survey.known.insert(v, truth).is_some() {
            return;
        }
        if let Repr::One(p) = *self.repr(v) {
            let p = if truth { p } else { self.not(p) };
            return self.require(p);
        }
        if let Some((f, parts)) = self.parts(v) {
            let truth = truth != (f == ScalarFn::Not);
            return parts.iter().for_each(|&v| self.require_parts(v, truth));
        }
        let Some((f, s, r)) = self.comparison(v) else { return };
        self.require_order(s);
        let (cmp, above) = match (f, truth) {
            (ScalarFn::Eq | ScalarFn::Ne, _) => return self.require_other(s, r),
            (ScalarFn::Lt, true) | (ScalarFn::Ge, false) => (Cmp::Lt, true),
            (ScalarFn::Le, true) | (ScalarFn::Gt, false) => (Cmp::Le, true),
            (ScalarFn::Gt, true) | (ScalarFn::Le, false) => (Cmp::Gt, false),
            _ => (Cmp::Ge, false),
        };
        // What holds for the greatest position, or the least, holds for all.
        let end = self.end(s, above == (s.step > 0));
        let p = self.asm.setp(cmp, Ty::S64, end, r);
        self.require(p);
    }

    /// Checks that no lane is at a position.
    fn require_other(&mut self, s: Steps, r: Reg) {
        let (least, most) = (self.end(s, s.step < 0), self.end(s, s.step > 0));
        let below = self.asm.setp(Cmp::Lt, Ty::S64, r, least);
        let above = self.asm.setp(Cmp::Gt, Ty::S64, r, most);
        let p = self.or(below, above);
        self.require(p);
    }

    /// Checks that a condition is the same for all lanes, and returns it.
    fn require_same(&mut self, v: Value) -> Option<Reg> {
        if !self.can_same(v) {
            return None;
        }
        Some(self.same(v))
    }

    fn can_same(&self, v: Value) -> bool {
        match self.parts(v) {
            Some((_, parts)) => parts.iter().all(|&v| self.is_one(v) || self.can_same(v)),
            None => self.comparison(v).is_some(),
        }
    }

    fn same(&mut self, v: Value) -> Reg {
        if let Some(&known) = self.survey.known.get(&v) {
            return self.constant(Scalar::Bool(known));
        }
        if let Repr::One(p) = *self.repr(v) {
            return p;
        }
        if let Some((f, parts)) = self.parts(v) {
            let parts: Vec<Reg> = parts.iter().map(|&v| self.same(v)).collect();
            return match f {
                ScalarFn::Not => self.not(parts[0]),
                ScalarFn::And => self.and(parts[0], parts[1]),
                _ => self.or(parts[0], parts[1]),
            };
        }
        let Some((f, s, r)) = self.comparison(v) else { unreachable!("`can_same` has looked") };
        self.require_order(s);
        let cmp = match f {
            ScalarFn::Eq | ScalarFn::Ne => {
                self.require_other(s, r);
                return self.constant(Scalar::Bool(f == ScalarFn::Ne));
            }
            ScalarFn::Lt => Cmp::Lt,
            ScalarFn::Le => Cmp::Le,
            ScalarFn::Gt => Cmp::Gt,
            _ => Cmp::Ge,
        };
        let [p, q] = [false, true].map(|last| {
            let end = self.end(s, last);
            self.asm.setp(cmp, Ty::S64, end, r)
        });
        let apart = self.asm.int(Alu::Xor, Ty::Pred, &[p.into(), q.into()]);
        let same = self.not(apart);
        self.require(same);
        p
    }

    fn survey_access(&mut self, id: OpId, unsure: bool) {
        let op = &self.func.ops[id];
        let mem = self.memory(op.operands[0]);
        let mut checked = checked_axes(op, mem.rank());
        if unsure && op.code == TileOp::Load {
            // Wide loads access all lanes, inactive ones too.
            checked.fill(true);
        }
        let mut steps = Vec::new();
        let mut alike = true;
        for (axis, &v) in op.group("at").iter().enumerate() {
            match *self.repr(v) {
                Repr::Steps(s) => {
                    if checked[axis] {
                        self.require_inside(s, mem.extents[axis]);
                        self.survey.inside.insert((id, axis));
                    }
                    steps.push((axis, s));
                }
                Repr::None => alike &= !self.uniform.varies(v),
                _ => {}
            }
        }
        let folded = matches!(self.func.ty(op.operands[0]), Type::View { privilege, .. } if privilege.reduces());
        if steps.is_empty() || folded {
            return;
        }
        let count = match steps[..] {
            [(axis, s)] if alike && s.step == 1 => self.run_length(&mem, axis, s),
            _ => 1,
        };
        if count == 1 {
            self.survey.narrow += 1;
            return;
        }
        let (axis, s) = steps[0];
        self.survey.widths.push(mem.dtype.bytes());
        self.survey.wide.insert(id, (axis, count));
        if s.facts.align < count as u32 && self.is_new(s, Question::Multiple(count as u32)) {
            let rest = Opnd::Int(count as i64 - 1);
            let rest = self.asm.int(Alu::And, Ty::B64, &[s.first.into(), rest]);
            let p = self.asm.setp(Cmp::Eq, Ty::U64, rest, Opnd::Int(0));
            self.require(p);
        }
    }

    /// The number of elements of one access.
    fn run_length(&self, mem: &Memory, axis: usize, s: Steps) -> usize {
        if mem.strides[axis] != Size::Known(mem.bytes()) {
            return 1;
        }
        let bytes = mem.dtype.bytes();
        let mut count = self.width.min(mem.align as usize / bytes);
        if s.facts.exact {
            count = count.min(s.facts.align as usize);
        }
        // Accesses of less than a word are not vectorised.
        if count * bytes < 4 { 1 } else { count.clamp(1, MOST as usize) }
    }

    /// About how many instructions a block has per lane.
    fn weight(&self, block: BlockId) -> usize {
        let one = |id: OpId| {
            let op = &self.func.ops[id];
            match op.code {
                TileOp::Ew(ScalarFn::FloorDiv | ScalarFn::Mod) => 20,
                TileOp::Ew(f) if expansion(f).is_some() => match self.profile {
                    Profile::Default => 20,
                    _ => 60,
                },
                TileOp::Philox => 60,
                TileOp::Atomic => 20,
                TileOp::Load | TileOp::Store | TileOp::Accumulate => 4,
                _ => 2,
            }
        };
        let mut sum = 0;
        self.func.walk_block(block, &mut |id| sum += one(id));
        sum
    }

    /// Chooses the lanes of a thread.
    pub fn choose(mut self, lanes: i64) -> Result<Share, Diagnostics> {
        if !self.look(Share { width: WIDEST_THREAD, apart: 1 })? {
            return Ok(Share::ONE);
        }
        let weight = self.weight(self.func.body);
        let Survey { widths, narrow, .. } = &self.survey;
        let mut share = match widths.iter().max() {
            // One access takes the widest elements: two accesses per thread would each leave gaps
            // between the threads of a warp. Accesses that are not wide take one per lane, with
            // larger gaps.
            Some(largest) if 2 * narrow <= widths.len() => {
                let width = (MOST as usize / largest).clamp(2, WIDEST_THREAD);
                Share { width: if weight > HEAVY { 2 } else { width }, apart: 1 }
            }
            _ if weight <= LIGHT => Share { width: INTERLEAVED, apart: 32 },
            _ => Share::ONE,
        };
        if !self.uniform.flat {
            // A block has one group, and a multiprocessor holds a limited number of blocks.
            while share.width > 1 && (lanes as usize) < 64 * share.width {
                share.width /= 2;
            }
        }
        Ok(if share.width == 1 { Share::ONE } else { share })
    }

    /// Whether the body can run for these lanes together.
    pub fn suits(mut self, share: Share) -> Result<bool, Diagnostics> {
        self.look(share)
    }

    fn look(&mut self, share: Share) -> Result<bool, Diagnostics> {
        self.place_wide(share);
        self.survey_all(share.width)
    }

    /// Adds all checks of the body.
    pub fn survey_all(&mut self, width: usize) -> Result<bool, Diagnostics> {
        self.survey.collecting = true;
        self.begin(width);
        let good = self.survey_block(self.func.body, false)?;
        self.survey.collecting = false;
        Ok(good)
    }
}
