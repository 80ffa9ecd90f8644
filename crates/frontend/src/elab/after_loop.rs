//! What is left of a loop after it: its `else`, and the variable that it counted.

use super::Elab;
use super::flow::{Exits, RETURN};
use super::loops::Loop;
use super::val::{Last, Val};
use crate::names::assigned;
use std::collections::BTreeSet;
use tessera_ir::{Attr, OpSpec, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

impl Elab<'_> {
    /// `else` runs where the loop was not left by `break`.
    pub(super) fn after_loop(&mut self, l: &Loop<'_>, exits: Exits) -> Exits {
        let out = Exits { ret: exits.ret.clone(), ..Exits::none() };
        let ended = self.env().remove(&l.ended);
        if l.orelse.is_empty() {
            return out;
        }
        let left = match ended {
            Some(Val::Rt(ended)) => Some(self.b().ew(ScalarFn::Not, &[ended])),
            _ if l.tests_inside() => None,
            _ => self.left(&exits),
        };
        let Some(left) = left else {
            let later = self.stmts(l.orelse);
            return self.either(out, later);
        };
        // What only a `break` gave a value has it where the loop was left by one.
        let before = self.env().clone();
        let otherwise = assigned(l.orelse);
        let hollow: BTreeSet<String> = assigned(l.body).intersection(&otherwise).cloned().collect();
        let later = self.branch(
            left,
            |this| {
                for name in &hollow {
                    if let Some(Val::Maybe(v, _)) = before.get(name) {
                        this.env().insert(name.clone(), Val::Rt(*v));
                    }
                }
                Exits::none()
            },
            |this| {
                this.env().remove(RETURN);
                for (name, value) in before.iter().filter(|(name, _)| hollow.contains(*name)) {
                    if let Val::Maybe(_, l) = value {
                        this.env().insert(name.clone(), Val::Unset(l.clone()));
                    }
                }
                this.stmts(l.orelse)
            },
        );
        self.either(out, later)
    }

    /// The variable of a loop after it: the last position, or what it was before a loop without an
    /// iteration. `read`: the program reads it here, so that checked mode reports where it has none.
    pub fn read_after(&mut self, v: &Val, read: bool) -> Val {
        let Val::After(after) = v else { return v.clone() };
        let after = after.clone();
        let ran = self.b().ew(ScalarFn::Lt, &[after.lo, after.hi]);
        let before = after.before.clone();
        let out = self.choose(
            ran,
            |this| match after.last {
                Last::Carried(v) => Val::Rt(v),
                Last::Scaled(first, step) => {
                    let one = this.b().index(1);
                    let iteration = this.b().ew(ScalarFn::Sub, &[after.hi, one]);
                    Val::Rt(this.scaled(iteration, first, step, &after.name))
                }
                Last::Position(step) if this.is_far(after.lo, after.hi) => {
                    let steps = this.whole_steps(after.lo, after.hi, step, true);
                    let steps = this.bits_as(steps, DType::I64);
                    let far = this.b().ew(ScalarFn::Mul, &[steps, step]);
                    Val::Rt(this.b().ew(ScalarFn::Add, &[after.lo, far]))
                }
                Last::Position(step) => {
                    let one = this.b().index(1);
                    let span = this.b().ew(ScalarFn::Sub, &[after.hi, after.lo]);
                    let span = this.b().ew(ScalarFn::Sub, &[span, one]);
                    let iterations = this.b().ew(ScalarFn::FloorDiv, &[span, step]);
                    let far = this.b().ew(ScalarFn::Mul, &[iterations, step]);
                    Val::Rt(this.b().ew(ScalarFn::Add, &[after.lo, far]))
                }
            },
            |this| match before {
                Some(v @ (Val::Rt(_) | Val::Const(_) | Val::Dim(_) | Val::After(_))) => {
                    let v = this.read_after(&v, read);
                    this.convert(&v, DType::I64, &[]).map_or(Val::Poison, Val::Rt)
                }
                _ => Val::Rt(this.unset(read)),
            },
        );
        if let Val::Rt(v) = out
            && self.func.name_of(v).is_none()
        {
            self.func.set_name(v, &after.name);
        }
        out
    }

    /// The position of an iteration.
    pub(super) fn scaled(
        &mut self,
        iteration: Value,
        first: Value,
        step: Value,
        name: &str,
    ) -> Value {
        let far = self.b().ew(ScalarFn::Mul, &[iteration, step]);
        let value = self.b().ew(ScalarFn::Add, &[first, far]);
        self.func.set_name(value, name);
        value
    }

    /// Zero in place of a variable without a value.
    fn unset(&mut self, read: bool) -> Value {
        let mut spec =
            OpSpec::new(TileOp::Const, &[]).attr("value", Attr::Int(0)).result(Type::INDEX);
        if read {
            spec = spec.attr("unset", Attr::Bool(true));
        }
        self.b().value(spec).expect("the result type is given")
    }
}
