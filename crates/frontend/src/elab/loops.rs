//! Loops over the variables that their bodies change. A counted loop that nothing leaves early is
//! `tile.for`; every other one is `tile.while`, with a flag for each way it may be left.

use super::call::Range;
use super::carried::Again;
use super::expr::Truth;
use super::flow::{Exits, Flag, RETURN};
use super::literal::{Weak, Weight};
use super::tuple_parts::Parts;
use super::unroll::Iterable;
use super::val::{AfterLoop, Const, Last, Val};
use super::{Elab, Env};
use crate::names::{assigned, bound_where, breaks_loop, has_named, leaves_loop, named, returns};
use ruff_python_ast::{Expr, Stmt, StmtFor, StmtWhile};
use ruff_text_size::Ranged;
use std::collections::BTreeSet;
use tessera_diag::Code;
use tessera_ir::{Attr, BlockId, OpSpec, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

pub enum Head<'a> {
    Range { name: String, range: Range },
    While { test: &'a Expr },
}

impl Head<'_> {
    /// The first number and the step, where the loop counts its iterations.
    pub fn scale(&self) -> Option<(Value, Value)> {
        match self {
            Head::Range { range, .. } => range.scale,
            Head::While { .. } => None,
        }
    }

    /// The variable, as far as it is the number that the loop counts.
    pub fn counter(&self) -> Option<&str> {
        self.variable().filter(|_| self.scale().is_none())
    }

    pub fn variable(&self) -> Option<&str> {
        match self {
            Head::Range { name, .. } => Some(name),
            Head::While { .. } => None,
        }
    }
}

/// The pieces of a loop statement.
pub struct Loop<'a> {
    pub head: Head<'a>,
    pub body: &'a [Stmt],
    pub orelse: &'a [Stmt],
    /// It is in a helper, which may return from the loop.
    in_helper: bool,
    /// The variable that says whether the test, which is in the body, ended the loop.
    pub(super) ended: String,
}

impl Loop<'_> {
    /// Names that the test of a `while` binds must reach the body: the test is then part of it.
    pub fn tests_inside(&self) -> bool {
        matches!(&self.head, Head::While { test } if has_named(test))
    }

    /// Whether a variable must say that the test ended the loop: it does so by a `break` then.
    pub fn asks_for_its_end(&self) -> bool {
        self.tests_inside() && !self.orelse.is_empty() && leaves_loop(self.body)
    }

    /// The names that the test of a `while` has bound wherever the loop ends.
    pub fn bound_by_test(&self) -> BTreeSet<String> {
        let Head::While { test } = &self.head else { return BTreeSet::new() };
        let mut names = bound_where(test, false);
        if leaves_loop(self.body) {
            let others = bound_where(test, true);
            names.retain(|n| others.contains(n));
        }
        names
    }

    /// The names that one iteration may bind.
    pub fn changed(&self) -> BTreeSet<String> {
        let mut names = assigned(self.body);
        if let Head::While { test } = &self.head {
            names.extend(named(test));
        }
        if self.asks_for_its_end() {
            names.insert(self.ended.clone());
        }
        if self.in_helper && returns(self.body) {
            names.insert(RETURN.into());
        }
        names
    }
}

impl Elab<'_> {
    pub fn for_stmt(&mut self, s: &StmtFor) -> Exits {
        let loc = self.loc.clone();
        let range = match self.iterable(&s.iter) {
            Some(Iterable::Range(range)) => range,
            Some(Iterable::Items(items)) => {
                self.loc = loc;
                return self.unrolled(s, &items);
            }
            None => {
                self.poison_assigned(&s.body, &s.target);
                return Exits::none();
            }
        };
        let Expr::Name(target) = &*s.target else {
            self.loc = self.place(s.target.range());
            self.error_help(
                Code::E_SYNTAX,
                "expected one loop variable",
                "a loop counts: `for i in range(n):`",
            );
            return Exits::none();
        };
        self.loc = loc;
        // A loop that is left early computes the position after the last one.
        let range = if leaves_loop(&s.body) { self.counted(range) } else { range };
        let at = self.place(target.range());
        if let Some(frame) = self.frames.last_mut() {
            frame.assigned.insert(target.id.to_string(), at);
        }
        let head = Head::Range { name: target.id.to_string(), range };
        self.repeat(&self.statement(head, &s.body, &s.orelse))
    }

    pub fn while_stmt(&mut self, s: &StmtWhile) -> Exits {
        self.repeat(&self.statement(Head::While { test: &s.test }, &s.body, &s.orelse))
    }

    fn statement<'a>(&self, head: Head<'a>, body: &'a [Stmt], orelse: &'a [Stmt]) -> Loop<'a> {
        let in_helper = !self.frame().is_kernel;
        // No name of Python's has a space in it.
        let ended = format!("else {}", self.loop_depth);
        Loop { head, body, orelse, in_helper, ended }
    }

    /// After an error in a loop's head: its variables mean nothing, and its body is not read.
    fn poison_assigned(&mut self, body: &[Stmt], target: &Expr) {
        let mut names = assigned(body);
        if let Expr::Name(n) = target {
            names.insert(n.id.to_string());
        }
        for name in names {
            self.env().insert(name, Val::Poison);
        }
    }

    /// `Err` names a variable that should have been carried with another type.
    pub(super) fn try_repeat(
        &mut self,
        l: &Loop<'_>,
        wanted: &[(String, Type)],
        tuples: &[String],
    ) -> Result<Exits, Again> {
        let loc = self.loc.clone();
        let tuples: Vec<(String, Parts)> = tuples
            .iter()
            .filter_map(|name| Some((name.clone(), Parts::of(self.env().get(name)?)?)))
            .collect();
        for (name, parts) in &tuples {
            if let Some(v) = self.env().get(name).cloned() {
                parts.spread(name, &v, self.env());
            }
        }
        let hidden: Vec<String> = tuples.iter().flat_map(|(name, p)| p.names(name)).collect();
        if l.asks_for_its_end() {
            self.env().insert(l.ended.clone(), Val::Const(Const::Bool(false)));
        }
        let before = self.env().clone();
        let carried = self.carried(l, hidden.clone(), &before, wanted);
        let (lo, hi, step) = match &l.head {
            Head::Range { range, .. } => (Some(range.lo), Some(range.hi), Some(range.step)),
            Head::While { .. } => (None, None, None),
        };
        let inside = l.tests_inside();
        let leaves = inside || leaves_loop(l.body);
        let plain = lo.is_some() && !leaves;
        // The loop's variable after an iteration that changes it, or that ends the loop early.
        let kept = |n: &&str| (leaves || l.changed().contains(*n)) && self.is_read_after(n);
        let variable = l.head.variable().filter(kept);
        let variable = variable.map(str::to_string);
        let mut init: Vec<Value> = Vec::new();
        if !plain {
            init.extend(lo);
        }
        init.extend(carried.iter().map(|c| c.init));
        if variable.is_some() {
            init.push(self.b().index(0));
        }
        if leaves {
            // One flag for `break`, one for `return`.
            for _ in 0..2 {
                init.push(self.b().constant(Type::BOOL, Attr::Bool(false)));
            }
        }
        let types: Vec<Type> = init.iter().map(|&v| self.ty(v).clone()).collect();
        let spec = if plain {
            let bounds = [lo, hi, step].map(|v| v.expect("a range has bounds"));
            OpSpec::new(TileOp::For, &bounds)
        } else {
            OpSpec::new(TileOp::While, &[])
        };
        let Ok(op) = self.b().op(spec.group("init", &init).results(types.clone())) else {
            return Ok(Exits::none());
        };
        let regions = self.func.ops[op].regions.clone();
        let outer = self.block;
        let mut weak_args: Vec<(usize, Value)> = Vec::new();
        let mut loop_env = |this: &mut Self, region: BlockId| -> Vec<Value> {
            let mut args = Vec::new();
            if plain {
                args.push(this.func.add_arg(region, Type::INDEX, l.head.counter()));
            }
            for (i, ty) in types.iter().enumerate() {
                let offset = usize::from(!plain && lo.is_some());
                let name = match i.checked_sub(offset) {
                    None => l.head.counter(),
                    Some(at) => carried.get(at).map(|c| c.name.as_str()),
                };
                args.push(this.func.add_arg(region, ty.clone(), name));
            }
            let counted = usize::from(lo.is_some());
            *this.env() = before.clone();
            if let Some(name) = l.head.variable() {
                let value = match l.head.scale() {
                    Some((first, step)) => this.scaled(args[0], first, step, name),
                    None => args[0],
                };
                this.env().insert(name.to_string(), Val::Rt(value));
            }
            for (place, (c, &arg)) in carried.iter().zip(&args[counted..]).enumerate() {
                let value = if c.hollow {
                    let at = this.assigned_at(&c.name);
                    Val::Maybe(arg, at)
                } else {
                    Val::Rt(arg)
                };
                this.env().insert(c.name.clone(), value);
                let settled = wanted.iter().any(|(n, _)| *n == c.name);
                if let Some(v) = c.weak.as_ref().filter(|_| !settled) {
                    let weak = match this.weight_of(v) {
                        Some(Weight::WeakInt(lo, hi)) => Some(Weak::Int(lo, hi)),
                        Some(Weight::WeakFloat) => Some(Weak::Float),
                        _ => None,
                    };
                    if let Some(weak) = weak {
                        this.weak.insert(arg, weak);
                        this.weak_roots.insert(arg, [arg].into());
                        weak_args.push((place, arg));
                    }
                }
            }
            for (name, parts) in &tuples {
                let whole = parts.collect(name, this.env());
                this.env().insert(name.clone(), whole);
            }
            // Who has returned is not here.
            this.env().remove(RETURN);
            args
        };
        if !plain {
            self.block = regions[0];
            let args = loop_env(self, regions[0]);
            let go_on = self.goes_on(&l.head, hi, &args, leaves, inside);
            self.b().yield_(&[go_on]);
        }
        let body_region = regions[regions.len() - 1];
        self.block = body_region;
        let args = loop_env(self, body_region);
        self.loop_depth += 1;
        let outer_breaks = std::mem::take(&mut self.breaks);
        let exits = match &l.head {
            Head::While { test } if inside => self.tested_body(test, l),
            _ => self.stmts(l.body),
        };
        let breaks = std::mem::replace(&mut self.breaks, outer_breaks);
        self.loop_depth -= 1;
        self.loc = loc.clone();
        let mut yields = Vec::new();
        if !plain && let (Some(step), Some(_)) = (step, lo) {
            let next = self.b().ew(ScalarFn::Add, &[args[0], step]);
            yields.push(next);
        }
        for (name, parts) in &tuples {
            let end = self.env().get(name).cloned().unwrap_or(Val::Poison);
            if !parts.spread(name, &end, self.env()) && end != Val::Poison {
                let (a, b) = (self.describe(&before[name]), self.describe(&end));
                self.changed_type(name, &a, &b, &loc);
            }
        }
        for c in &carried {
            let end = self.env().get(&c.name).cloned().unwrap_or(Val::Poison);
            yields.push(self.carry(c, &end, &loc)?);
        }
        self.settle_weak(&carried, &weak_args)?;
        let returned = self.returned(&carried)?;
        let mut tested = Env::new();
        for name in l.bound_by_test() {
            let own = !before.contains_key(&name) && !carried.iter().any(|c| c.name == name);
            match self.env().get(&name).cloned() {
                Some(Val::Rt(v)) if own => {
                    let ty = self.ty(v).clone();
                    return Err(Again { name, ty: Some(ty) });
                }
                Some(v @ Val::Const(_)) if own => {
                    tested.insert(name, v);
                }
                _ => {}
            }
        }
        if let Some(name) = &variable {
            let end = self.env().get(name).cloned().unwrap_or(Val::Poison);
            let end = match self.read_after(&end, false) {
                Val::Rt(v) if *self.ty(v) == Type::INDEX => v,
                Val::Const(_) | Val::Dim(_) => {
                    self.convert(&end, DType::I64, &[]).unwrap_or(args[0])
                }
                end => {
                    self.loop_variable_type(name, &end);
                    args[0]
                }
            };
            yields.push(end);
        }
        if leaves {
            for flag in [&exits.brk, &exits.ret] {
                let value = match flag {
                    Flag::Maybe(v) => *v,
                    known => self.b().constant(Type::BOOL, Attr::Bool(*known == Flag::Always)),
                };
                yields.push(value);
            }
        }
        self.b().yield_(&yields);
        let mut others = l.changed();
        others.retain(|n| l.head.variable() != Some(n));
        others.retain(|n| !tuples.iter().any(|(t, _)| t == n));
        self.check_uncarried(&before, &carried, &others)?;
        self.block = outer;
        let results = self.func.ops[op].results.clone();
        let offset = usize::from(!plain && lo.is_some());
        *self.env() = before.clone();
        for (c, &result) in carried.iter().zip(&results[offset..]) {
            self.func.set_name(result, &c.name);
            let value = if c.hollow && c.name != RETURN {
                Val::Maybe(result, self.assigned_at(&c.name))
            } else {
                Val::Rt(result)
            };
            self.env().insert(c.name.clone(), value);
        }
        for (name, parts) in &tuples {
            let whole = parts.collect(name, self.env());
            self.env().insert(name.clone(), whole);
        }
        self.env().retain(|name, _| !hidden.contains(name));
        if let Some(value) = returned {
            self.env().insert(RETURN.into(), value);
        }
        for name in l.bound_by_test() {
            if let Some(Val::Maybe(v, _)) = self.env().get(&name) {
                let value = Val::Rt(*v);
                self.env().insert(name, value);
            }
        }
        for name in l.changed().into_iter().filter(|name| name != RETURN) {
            if !before.contains_key(&name) && !carried.iter().any(|c| c.name == name) {
                let at = self.assigned_at(&name);
                self.env().insert(name, Val::Unset(at));
            }
        }
        self.env().extend(tested);
        if let (Some(name), Some(lo), Some(hi), Some(step)) = (l.head.variable(), lo, hi, step) {
            let last = match &variable {
                Some(_) => Last::Carried(results[offset + carried.len()]),
                None => match l.head.scale() {
                    Some((first, step)) => Last::Scaled(first, step),
                    None => Last::Position(step),
                },
            };
            let was = before.get(name).cloned();
            let after = AfterLoop { lo, hi, last, before: was, name: name.to_string() };
            self.env().insert(name.to_string(), Val::After(Box::new(after)));
        }
        self.hollow_types(l, &carried, &before, &breaks)?;
        let flag = |exit: &Flag, result: usize| match exit {
            Flag::Maybe(_) | Flag::Always if leaves => Flag::Maybe(results[results.len() - result]),
            _ => Flag::Never,
        };
        let brk = if inside && !breaks_loop(l.body) { &Flag::Never } else { &exits.brk };
        Ok(Exits { ret: flag(&exits.ret, 1), brk: flag(brk, 2), cont: Flag::Never })
    }

    /// A body whose `while` test binds names: where it fails, the loop ends.
    fn tested_body(&mut self, test: &Expr, l: &Loop<'_>) -> Exits {
        let last = |this: &mut Self| {
            if l.asks_for_its_end() {
                this.env().insert(l.ended.clone(), Val::Const(Const::Bool(true)));
            }
            Exits::broken()
        };
        let body = |this: &mut Self| {
            this.bound_by(test, true);
            this.stmts(l.body)
        };
        match self.condition(test) {
            Some(Truth::Known(true)) => body(self),
            Some(Truth::Known(false)) => last(self),
            Some(Truth::Run(c)) => self.branch(c, body, last),
            Some(Truth::Open) | None => {
                let c = self.b().constant(Type::BOOL, Attr::Bool(true));
                self.branch(c, body, last)
            }
        }
    }

    /// The condition of a loop in its condition region.
    fn goes_on(
        &mut self,
        head: &Head<'_>,
        hi: Option<Value>,
        args: &[Value],
        leaves: bool,
        inside: bool,
    ) -> Value {
        let stays = leaves.then(|| {
            let flags = &args[args.len() - 2..];
            let left = self.b().ew(ScalarFn::Or, flags);
            self.b().ew(ScalarFn::Not, &[left])
        });
        let goes = match head {
            Head::Range { .. } => {
                let hi = hi.expect("a range has bounds");
                self.b().ew(ScalarFn::Lt, &[args[0], hi])
            }
            Head::While { .. } if inside => self.b().constant(Type::BOOL, Attr::Bool(true)),
            Head::While { test } => {
                // A loop that was left does not evaluate its test again.
                let tested = |this: &mut Self| match this.condition(test) {
                    Some(Truth::Run(c)) => Val::Rt(c),
                    Some(Truth::Known(b)) => Val::Const(Const::Bool(b)),
                    Some(Truth::Open) | None => Val::Const(Const::Bool(false)),
                };
                let goes = match stays {
                    Some(stays) => self.choose(stays, tested, |_| Val::Const(Const::Bool(false))),
                    None => tested(self),
                };
                return match self.convert(&goes, DType::Bool, &[]) {
                    Some(v) => v,
                    None => self.b().constant(Type::BOOL, Attr::Bool(false)),
                };
            }
        };
        match stays {
            Some(stays) => self.b().ew(ScalarFn::And, &[goes, stays]),
            None => goes,
        }
    }
}
