//! Index-set splitting: a loop whose masks hide nothing in its first iterations becomes two loops,
//! as causal attention kernels do by hand.
//!
//! Input: a group kernel after the tile passes. Output: applies to a matmul loop whose scores are
//! masked by position, by a causal mask or at the end of an array. The first loop has the
//! iterations in which these masks hold for every element, without the masks; the second loop has
//! the others unchanged. A block of queries then masks only the blocks of keys on its diagonal, and
//! not those before it.
//!
//! A mask is a `select` whose condition compares positions: sums and differences of `iota`, of the
//! loop's own position and of scalars from outside it. The smallest value of one side minus the
//! largest of the other is the loop's position plus a scalar `end`, and the condition holds
//! everywhere in the iterations before `end`. Only loops that begin at a constant are split, so the
//! second loop is not split again.
//!
//! Must not: change the iterations of the loop, their order, or a bit of what they compute.

use crate::canonicalise::Canonicalise;
use crate::facts::{int_const, subtree};
use crate::mask_elimination::always;
use std::collections::BTreeSet;
use tessera_diag::Loc;
use tessera_ir::{Attr, BlockId, OpId, Pass, PassContext, Rewriter, Value, ValueDef};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

/// The most ops of one query.
const DEPTH: u32 = 16;

/// The function with such loops split; none where there are none.
pub fn split(func: &TileFunc) -> Option<TileFunc> {
    let plans: Vec<SplitPlan> = func.walk().into_iter().filter_map(|id| plan(func, id)).collect();
    if plans.is_empty() {
        return None;
    }
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    for &id in &func.blocks[func.body].ops {
        emit(&mut rw, &plans, id, body);
    }
    let mut new = rw.new;
    // Removes what only the masks needed; it has nothing to refuse.
    let _ = Canonicalise.run(&mut new, &mut PassContext::default());
    Some(new)
}

/// A loop that is split.
struct SplitPlan {
    id: OpId,
    first: i64,
    step: i64,
    /// Masks that hide nothing before all of the ends.
    masks: BTreeSet<OpId>,
    ends: Vec<Sum>,
}

/// A sum of scalars from outside a loop, some of them subtracted, and a constant.
#[derive(Clone, Default, PartialEq, Eq)]
struct Sum {
    added: Vec<Value>,
    taken: Vec<Value>,
    constant: i64,
}

/// The elements of a tile of integers: a multiple of the loop's position, a sum, and from 0 to
/// `over` more.
#[derive(Clone, Default)]
struct Positions {
    iterations: i64,
    sum: Sum,
    over: i64,
}

impl Positions {
    fn plus(mut self, other: Positions) -> Option<Positions> {
        self.iterations = self.iterations.checked_add(other.iterations)?;
        self.sum.added.extend(other.sum.added);
        self.sum.taken.extend(other.sum.taken);
        self.sum.constant = self.sum.constant.checked_add(other.sum.constant)?;
        self.over = self.over.checked_add(other.over)?;
        Some(self)
    }

    /// The negation: it begins at minus the largest.
    fn negative(self) -> Option<Positions> {
        let Sum { added, taken, constant } = self.sum;
        let constant = constant.checked_add(self.over)?.checked_neg()?;
        let sum = Sum { added: taken, taken: added, constant };
        Some(Positions { iterations: self.iterations.checked_neg()?, sum, over: self.over })
    }
}

fn plan(func: &TileFunc, id: OpId) -> Option<SplitPlan> {
    let op = &func.ops[id];
    if op.code != TileOp::For {
        return None;
    }
    let [first, step] = [0, 2].map(|i| int_const(func, op.operands[i]));
    let (first, step) = (first?, step.filter(|&n| n > 0)?);
    let inside = subtree(func, id);
    let is = |o: &OpId, code: TileOp| func.ops[*o].code == code;
    let nested = inside.iter().any(|o| *o != id && (is(o, TileOp::For) || is(o, TileOp::While)));
    if nested || !inside.iter().any(|o| is(o, TileOp::Mma)) {
        return None;
    }
    let within: BTreeSet<OpId> = inside.iter().copied().collect();
    let iteration = Iteration { func, block: op.regions[0], within: &within };
    let mut plan = SplitPlan { id, first, step, masks: BTreeSet::new(), ends: Vec::new() };
    for &mask in inside.iter().filter(|o| is(o, TileOp::Select)) {
        let condition = func.ops[mask].operands[0];
        let mut ends = Vec::new();
        if func.ty(func.ops[mask].result()).is_tile()
            && !always(func, condition)
            && iteration.holds_before(condition, &mut ends)
        {
            plan.masks.insert(mask);
            for end in ends {
                if !plan.ends.contains(&end) {
                    plan.ends.push(end);
                }
            }
        }
    }
    (!plan.masks.is_empty()).then_some(plan)
}

/// A loop, seen from inside.
struct Iteration<'f> {
    func: &'f TileFunc,
    block: BlockId,
    within: &'f BTreeSet<OpId>,
}

impl Iteration<'_> {
    /// Whether a condition holds for every element in the iterations before some ends, which it
    /// adds.
    fn holds_before(&self, condition: Value, ends: &mut Vec<Sum>) -> bool {
        let Some(op) = self.func.def(condition) else { return false };
        let [a, b] = [0, 1].map(|i| op.operands.get(i).copied().unwrap_or(condition));
        let found = match op.code {
            TileOp::Broadcast | TileOp::Expand | TileOp::Transpose | TileOp::Reshape => {
                return self.holds_before(a, ends);
            }
            TileOp::Ew(ScalarFn::And) => {
                return self.holds_before(a, ends) && self.holds_before(b, ends);
            }
            TileOp::Ew(ScalarFn::Le) => self.end(a, b, 0),
            TileOp::Ew(ScalarFn::Lt) => self.end(a, b, 1),
            TileOp::Ew(ScalarFn::Ge) => self.end(b, a, 0),
            TileOp::Ew(ScalarFn::Gt) => self.end(b, a, 1),
            _ => None,
        };
        found.map(|end| ends.push(end)).is_some()
    }

    /// Where the iterations end in which `low + by <= high` everywhere.
    fn end(&self, low: Value, high: Value, by: i64) -> Option<Sum> {
        let low = self.positions(low, DEPTH)?.negative()?;
        let room = self.positions(high, DEPTH)?.plus(low)?;
        if room.iterations != -1 {
            return None;
        }
        // It holds where the position is at most `room - by`.
        let mut end = room.sum;
        end.constant = end.constant.checked_sub(by)?.checked_add(1)?;
        // A scalar that is added and subtracted cancels.
        end.added.retain(|v| match end.taken.iter().position(|w| w == v) {
            Some(at) => {
                end.taken.remove(at);
                false
            }
            None => true,
        });
        end.added.sort();
        end.taken.sort();
        Some(end)
    }

    fn positions(&self, v: Value, depth: u32) -> Option<Positions> {
        let depth = depth.checked_sub(1)?;
        let func = self.func;
        let ty = func.ty(v);
        if !ty.is_tile() {
            return self.scalar(v, depth);
        }
        let op = func.def(v)?;
        match op.code {
            TileOp::Iota => {
                let constant = op.attr("start").and_then(Attr::as_int).unwrap_or(0);
                let over = ty.shape().first()?.as_static()?.checked_sub(1)?;
                Some(Positions { sum: Sum { constant, ..Sum::default() }, over, iterations: 0 })
            }
            TileOp::Const => {
                let constant = op.attr("value").and_then(Attr::as_int)?;
                Some(Positions { sum: Sum { constant, ..Sum::default() }, ..Positions::default() })
            }
            // A widening cast keeps positions.
            TileOp::Cast if is_wider(ty.dtype(), func.ty(op.operands[0]).dtype()) => {
                self.positions(op.operands[0], depth)
            }
            TileOp::Broadcast | TileOp::Expand | TileOp::Transpose | TileOp::Reshape => {
                self.positions(op.operands[0], depth)
            }
            TileOp::Ew(ScalarFn::Add | ScalarFn::Sub) => self.combined(v, depth),
            _ => None,
        }
    }

    /// A scalar: the loop's position, one from outside, or computed from them here.
    fn scalar(&self, v: Value, depth: u32) -> Option<Positions> {
        let func = self.func;
        if func.ty(v).dtype() != DType::I64 {
            return None;
        }
        if let Some(constant) = int_const(func, v) {
            return Some(Positions {
                sum: Sum { constant, ..Sum::default() },
                ..Positions::default()
            });
        }
        match func.values[v].def {
            ValueDef::Arg(block, 0) if block == self.block => {
                Some(Positions { iterations: 1, ..Positions::default() })
            }
            ValueDef::Result(by, _) if self.within.contains(&by) => self.combined(v, depth),
            ValueDef::Arg(block, _)
                if func.blocks[block].parent.is_some_and(|o| self.within.contains(&o)) =>
            {
                None
            }
            ValueDef::Arg(..) | ValueDef::Result(..) => Some(Positions {
                sum: Sum { added: vec![v], ..Sum::default() },
                ..Positions::default()
            }),
        }
    }

    /// Sums and differences of positions in memory, which do not wrap.
    fn combined(&self, v: Value, depth: u32) -> Option<Positions> {
        let op = self.func.def(v).filter(|_| self.func.ty(v).dtype() == DType::I64)?;
        let depth = depth.checked_sub(1)?;
        let of = |i: usize| self.positions(op.operands[i], depth);
        match op.code {
            TileOp::Ew(ScalarFn::Add) => of(0)?.plus(of(1)?),
            TileOp::Ew(ScalarFn::Sub) => of(0)?.plus(of(1)?.negative()?),
            _ => None,
        }
    }
}

fn is_wider(to: DType, from: DType) -> bool {
    to.is_signed_int() && from.is_signed_int() && to.bits() >= from.bits()
}

type Rw<'f> = Rewriter<'f, Tile>;

fn emit(rw: &mut Rw<'_>, plans: &[SplitPlan], id: OpId, into: BlockId) {
    match plans.iter().find(|plan| plan.id == id) {
        Some(plan) => cut(rw, plan, into),
        None => {
            rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, plans, inner, block));
        }
    }
}

/// Both loops: the second continues with the carried values of the first.
fn cut(rw: &mut Rw<'_>, plan: &SplitPlan, into: BlockId) {
    let old = rw.old;
    let op = &old.ops[plan.id];
    let middle = middle(rw, plan, into, op.loc.clone());
    let [first, last] = [0, 1].map(|i| rw.get(op.operands[i]));
    let place = |rw: &mut Rw<'_>, ends: [Value; 2], masks: &BTreeSet<OpId>| {
        let id = rw.copy_op_with(plan.id, into, &mut |rw, inner, block| {
            without(rw, masks, inner, block);
        });
        rw.new.ops[id].operands[..2].copy_from_slice(&ends);
        id
    };
    let id = place(rw, [first, middle], &plan.masks);
    let handed = rw.new.ops[id].results.clone();
    let id = place(rw, [middle, last], &BTreeSet::new());
    let begins = rw.new.ops[id].operands.len() - handed.len();
    rw.new.ops[id].operands[begins..].copy_from_slice(&handed);
}

fn without(rw: &mut Rw<'_>, masks: &BTreeSet<OpId>, id: OpId, into: BlockId) {
    let op = &rw.old.ops[id];
    if masks.contains(&id) {
        let all = rw.get(op.operands[1]);
        rw.set(op.result(), all);
        return;
    }
    rw.copy_op_with(id, into, &mut |rw, inner, block| without(rw, masks, inner, block));
}

/// The position of the first iteration in which a mask may hide something: the start plus as many
/// whole steps as begin before all ends.
fn middle(rw: &mut Rw<'_>, plan: &SplitPlan, into: BlockId, loc: Loc) -> Value {
    let mut end = rw.get(rw.old.ops[plan.id].operands[1]);
    for sum in &plan.ends {
        let values = |list: &[Value]| list.iter().map(|&v| rw.get(v)).collect::<Vec<_>>();
        let (added, taken) = (values(&sum.added), values(&sum.taken));
        let mut build = rw.builder(into, loc.clone());
        let mut at = None;
        for v in added {
            at = Some(at.map_or(v, |at| build.ew(ScalarFn::Add, &[at, v])));
        }
        let constant = build.index(sum.constant);
        let mut at = at.map_or(constant, |at| build.ew(ScalarFn::Add, &[at, constant]));
        for v in taken {
            at = build.ew(ScalarFn::Sub, &[at, v]);
        }
        end = build.ew(ScalarFn::Minimum, &[end, at]);
    }
    let mut build = rw.builder(into, loc);
    let up = build.index(plan.step - 1 - plan.first);
    let step = build.index(plan.step);
    let most = build.ew(ScalarFn::Add, &[end, up]);
    let iterations = build.ew(ScalarFn::FloorDiv, &[most, step]);
    let none = build.index(0);
    let iterations = build.ew(ScalarFn::Maximum, &[iterations, none]);
    let mut at = build.ew(ScalarFn::Mul, &[iterations, step]);
    if plan.first != 0 {
        let first = build.index(plan.first);
        at = build.ew(ScalarFn::Add, &[at, first]);
    }
    at
}
