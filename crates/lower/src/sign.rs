//! Whether a position may be before its tensor.
//!
//! Positions are compared as integers that do not wrap: as sums of other values, each of which is
//! replaced by a lower or upper bound, until only sizes are left. Sizes, ids and numbers from
//! outside are assumed to be at least 0. Conditions around the access count.

use crate::facts::{int_const, yielded};
use crate::order::{Order, implied, order_at, sides};
use std::collections::BTreeSet;
use tessera_ir::{Attr, OpId, Value, ValueDef};
use tessera_numerics::{Basic, ScalarFn};
use tessera_tile::{Atom, Linear, TileFunc, TileOp};

/// The most steps of one query, and the depth of replacements.
const FUEL: usize = 4000;
const DEPTH: usize = 8;

/// Whether a position of an access may be negative.
pub(crate) fn may_be_negative(func: &TileFunc, value: Value, access: OpId) -> bool {
    let mut proof = Proof { func, known: Vec::new(), assumed: BTreeSet::new(), fuel: FUEL };
    for order in order_at(func, access) {
        proof.learn(order);
    }
    let form = proof.form(value);
    !proof.holds(&form, DEPTH)
}

/// Whether a cast to an integer keeps every position. In 32 bits and more positions are taken to fit, as
/// their sums are; in fewer they do not, and what was negative is far above 0 in an unsigned dtype.
pub(crate) fn keeps_positions(func: &TileFunc, to: Value, from: Value) -> bool {
    let [to, from] = [to, from].map(|v| func.ty(v).dtype());
    let widens = to.bits() > from.bits() || to.bits() == from.bits() && to == from;
    let same_sign = to.is_unsigned_int() == from.is_unsigned_int();
    match (from.is_int(), same_sign) {
        (true, true) => widens || to.bits() >= 32,
        // The sign bit of the wider one is free; u32 and u64 are as i32 and i64 are.
        (true, false) => from.is_unsigned_int() && (widens || to.bits() >= 32),
        (false, _) => false,
    }
}

struct Proof<'f> {
    func: &'f TileFunc,
    /// Sums that are at least 0 here.
    known: Vec<Linear>,
    /// Carried values taken to be at least 0 while it is shown that they stay so.
    assumed: BTreeSet<Value>,
    fuel: usize,
}

impl Proof<'_> {
    fn learn(&mut self, order: Order) {
        let is_int = |v: Value| self.func.ty(v).dtype().is_int() && self.func.ty(v).rank() == 0;
        if !is_int(order.less) || !is_int(order.more) {
            return;
        }
        let (less, more) = (self.form(order.less), self.form(order.more));
        let gap = Linear::constant(-i64::from(order.strict));
        if let Some(known) = more.minus(&less).and_then(|d| d.plus(&gap)) {
            self.known.push(known);
        }
    }

    fn burn(&mut self) -> bool {
        let left = self.fuel > 0;
        self.fuel = self.fuel.saturating_sub(1);
        left
    }

    /// The value as a sum, whatever its width.
    fn form(&mut self, value: Value) -> Linear {
        let alone = || Linear::atom(Atom::Value(value));
        if !self.burn() {
            return alone();
        }
        if let Some(v) = int_const(self.func, value) {
            return Linear::constant(v);
        }
        // The values that a loop's condition tests are those that its body takes.
        if let ValueDef::Arg(block, place) = self.func.values[value].def
            && let Some(parent) = self.func.blocks[block].parent
            && self.func.ops[parent].code == TileOp::While
        {
            let body = self.func.ops[parent].regions[1];
            return Linear::atom(Atom::Value(self.func.blocks[body].args[place]));
        }
        let Some(op) = self.func.def(value) else { return alone() };
        if !self.func.ty(value).dtype().is_int() {
            return alone();
        }
        let made = match op.code {
            TileOp::Dim => op.attr("name").map(|n| Linear::atom(Atom::Dim(n.to_string()))),
            TileOp::ProgramId => {
                op.attr("axis").and_then(Attr::as_int).map(|a| Linear::atom(Atom::Program(a)))
            }
            TileOp::Cast if keeps_positions(self.func, value, op.operands[0]) => {
                Some(self.form(op.operands[0]))
            }
            TileOp::Ew(f @ (ScalarFn::Add | ScalarFn::Sub | ScalarFn::Neg | ScalarFn::Mul)) => {
                let forms: Vec<Linear> = op.operands.iter().map(|&v| self.form(v)).collect();
                match (f, forms.as_slice()) {
                    (ScalarFn::Add, [a, b]) => a.plus(b),
                    (ScalarFn::Sub, [a, b]) => a.minus(b),
                    (ScalarFn::Neg, [a]) => a.scaled(-1),
                    (_, [a, b]) => match (a.as_constant(), b.as_constant()) {
                        (_, Some(c)) => a.scaled(c),
                        (Some(c), _) => b.scaled(c),
                        _ => None,
                    },
                    _ => None,
                }
            }
            _ => None,
        };
        made.unwrap_or_else(alone)
    }

    /// Whether a sum is at least 0.
    fn holds(&mut self, form: &Linear, depth: usize) -> bool {
        if !self.burn() {
            return false;
        }
        let plain = form.constant >= 0 && form.terms.values().all(|&c| c > 0);
        if plain && form.terms.keys().all(|atom| self.counts(atom)) {
            return true;
        }
        let Some(depth) = depth.checked_sub(1) else { return false };
        for (atom, &factor) in &form.terms {
            for bound in self.bounds(atom, factor) {
                let mut rest = form.clone();
                rest.terms.remove(atom);
                if rest.plus(&bound).is_some_and(|less| self.holds(&less, depth)) {
                    return true;
                }
            }
        }
        for place in 0..self.known.len() {
            let known = self.known.remove(place);
            let shares = known.terms.keys().any(|atom| form.terms.contains_key(atom));
            let less = form.minus(&known).filter(|_| shares);
            let holds = less.is_some_and(|less| self.holds(&less, depth));
            self.known.insert(place, known);
            if holds {
                return true;
            }
        }
        false
    }

    fn at_least_zero(&mut self, value: Value) -> bool {
        let form = self.form(value);
        self.holds(&form, DEPTH)
    }

    fn at_most_zero(&mut self, value: Value) -> bool {
        let form = self.form(value).scaled(-1);
        form.is_some_and(|form| self.holds(&form, DEPTH))
    }

    /// Assuming what a condition that evaluated to `truth` implies.
    fn under(
        &mut self,
        condition: Value,
        truth: bool,
        ask: impl FnOnce(&mut Self) -> bool,
    ) -> bool {
        let before = self.known.len();
        for order in implied(self.func, condition, truth) {
            self.learn(order);
        }
        let answer = ask(self);
        self.known.truncate(before);
        answer
    }

    /// Whether what is no sum is at least 0.
    #[deny(clippy::wildcard_enum_match_arm)]
    fn counts(&mut self, atom: &Atom) -> bool {
        use Basic::*;
        use TileOp::*;
        let Atom::Value(value) = *atom else { return true };
        if !self.burn() {
            return false;
        }
        let ty = self.func.ty(value).dtype();
        if ty.is_unsigned_int() {
            return true;
        }
        let op = match self.func.values[value].def {
            ValueDef::Arg(..) => return self.argument_counts(value),
            ValueDef::Result(id, _) => &self.func.ops[id],
        };
        let is_float = ty.is_float();
        match op.code {
            // Of fewer bits of a number the highest is the sign.
            Cast => {
                let from = op.operands[0];
                let kept = keeps_positions(self.func, value, from);
                (kept || !self.func.ty(from).dtype().is_int()) && self.counts(&Atom::Value(from))
            }
            For | While => self.carried_counts(value),
            If | Select => {
                let condition = op.operands[0];
                sides(self.func, value).is_none_or(|[a, b]| {
                    self.under(condition, true, |s| s.at_least_zero(a))
                        && self.under(condition, false, |s| s.at_least_zero(b))
                })
            }
            Ew(f) => {
                let [a, b] =
                    [op.operands[0], op.operands.get(1).copied().unwrap_or(op.operands[0])];
                // Real functions are of floats.
                let Some(f) = f.basic() else { return true };
                match f {
                    Neg if is_float => false,
                    _ if is_float => true,
                    Mul => {
                        self.form(a) == self.form(b)
                            || (self.at_least_zero(a) && self.at_least_zero(b))
                            || (self.at_most_zero(a) && self.at_most_zero(b))
                    }
                    FloorDiv => {
                        (self.at_least_zero(a) && self.at_least_zero(b))
                            || (self.at_most_zero(a) && self.at_most_zero(b))
                    }
                    // The remainder has the sign of the divisor.
                    Mod => self.at_least_zero(b),
                    Maximum => self.at_least_zero(a) || self.at_least_zero(b),
                    Minimum | Or | Xor => self.at_least_zero(a) && self.at_least_zero(b),
                    And => self.at_least_zero(a) || self.at_least_zero(b),
                    Clamp => {
                        self.at_least_zero(op.operands[2])
                            && (self.at_least_zero(a) || self.at_least_zero(b))
                    }
                    Shl | Shr | Sign => self.at_least_zero(a),
                    Not | Brev | FunnelShift => false,
                    Popcount | Clz | Ctz => true,
                    // Of products below zero the high half is below zero.
                    MulHi => self.at_least_zero(a) && self.at_least_zero(b),
                    // Sums that were too large to follow.
                    Add => self.at_least_zero(a) && self.at_least_zero(b),
                    Fma => {
                        let both = |s: &mut Self| s.at_least_zero(a) && s.at_least_zero(b);
                        self.at_least_zero(op.operands[2])
                            && (self.form(a) == self.form(b)
                                || both(self)
                                || (self.at_most_zero(a) && self.at_most_zero(b)))
                    }
                    Sub | Neg => false,
                    Div | Abs | Sqrt | Recip | Floor | Ceil | Round | Trunc | Eq | Ne | Lt | Le
                    | Gt | Ge | IsNan | IsInf | IsFinite => true,
                }
            }
            // From memory, an atomic, a reduction: a number from outside.
            Yield | Return | SlowPath | ProgramId | NumPrograms | LinearId | LocalId
            | GroupSize | WarpSize | Dim | Origin | Const | Iota | Bitcast | Reshape
            | Transpose | Broadcast | Expand | Load | Store | Gather | Scatter | Accumulate
            | BufAlloc | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait | Mma
            | GroupReduce | GroupScan | GroupBroadcast | GroupShuffle | Philox | Print | Assert
            | Reduce | Scan | ArgReduce | Slice | Concat | Take | ReduceBy | ScanBy | Sort
            | Histogram | Owned | Asm | AsmEffect => true,
        }
    }

    /// A parameter, a loop's position, or a value that a loop carries.
    fn argument_counts(&mut self, value: Value) -> bool {
        let ValueDef::Arg(block, place) = self.func.values[value].def else { return false };
        let Some(parent) = self.func.blocks[block].parent else { return true };
        let op = &self.func.ops[parent];
        match op.code {
            TileOp::For if place == 0 => self.at_least_zero(op.operands[0]),
            TileOp::For => self.stays(parent, place - 1),
            TileOp::While => self.stays(parent, place),
            _ => true,
        }
    }

    /// The final value of a carried value.
    fn carried_counts(&mut self, value: Value) -> bool {
        let ValueDef::Result(id, place) = self.func.values[value].def else { return false };
        self.stays(id, place)
    }

    /// Whether a value that a loop carries begins at 0 or above and stays there.
    fn stays(&mut self, id: OpId, place: usize) -> bool {
        let op = &self.func.ops[id];
        let (body, first) = match op.code {
            TileOp::For => (op.regions[0], 1),
            _ => (op.regions[1], 0),
        };
        let arg = self.func.blocks[body].args[first + place];
        if self.assumed.contains(&arg) {
            return true;
        }
        let (Some(&init), Some(&next)) =
            (op.group("init").get(place), yielded(self.func, body).get(place))
        else {
            return false;
        };
        if !self.at_least_zero(init) {
            return false;
        }
        self.assumed.insert(arg);
        let answer = match op.code {
            TileOp::While => {
                let held = yielded(self.func, op.regions[0]).first().copied();
                held.is_some_and(|held| self.under(held, true, |s| s.at_least_zero(next)))
            }
            _ => self.at_least_zero(next),
        };
        self.assumed.remove(&arg);
        answer
    }

    /// Sums that `factor` times a value is at least.
    fn bounds(&mut self, atom: &Atom, factor: i64) -> Vec<Linear> {
        let Atom::Value(value) = *atom else { return Vec::new() };
        let mut out = Vec::new();
        let mut add = |form: Linear, factor: i64| out.extend(form.scaled(factor));
        if let ValueDef::Arg(block, 0) = self.func.values[value].def
            && let Some(parent) = self.func.blocks[block].parent
            && self.func.ops[parent].code == TileOp::For
        {
            let op = &self.func.ops[parent];
            let one = Linear::constant(1);
            match factor > 0 {
                true => add(self.form(op.operands[0]), factor),
                false => {
                    if let Some(last) = self.form(op.operands[1]).minus(&one) {
                        add(last, factor);
                    }
                }
            }
            return out;
        }
        let Some(op) = self.func.def(value) else { return out };
        let TileOp::Ew(f) = op.code else { return out };
        let operand = |i: usize| op.operands[i];
        match (f, factor > 0) {
            (ScalarFn::Maximum, true) | (ScalarFn::Minimum, false) => {
                add(self.form(operand(0)), factor);
                add(self.form(operand(1)), factor);
            }
            (ScalarFn::Mod, false) => {
                if let Some(by) = int_const(self.func, operand(1)).filter(|&by| by > 0) {
                    add(Linear::constant(by - 1), factor);
                }
                if self.at_least_zero(operand(0)) && self.at_least_zero(operand(1)) {
                    add(self.form(operand(0)), factor);
                }
            }
            (ScalarFn::FloorDiv, up) => {
                let Some(by) = int_const(self.func, operand(1)).filter(|&by| by > 0) else {
                    return out;
                };
                let of = self.form(operand(0));
                // by * (x // by) is at most x and more than x - by.
                if factor % by == 0 {
                    let least = of.plus(&Linear::constant(1 - by));
                    match (up, least) {
                        (false, _) => add(of.clone(), factor / by),
                        (true, Some(least)) => add(least, factor / by),
                        (true, None) => {}
                    }
                }
                if !up && self.at_least_zero(operand(0)) {
                    add(of, factor);
                } else if !up && self.at_most_zero(operand(0)) {
                    add(Linear::constant(0), factor);
                }
            }
            _ => {}
        }
        out
    }
}
