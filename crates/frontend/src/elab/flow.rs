//! Control flow: branches and loops over the variables they change. Leaving early (`return`,
//! `break`, `continue`) becomes flags, so that the function keeps its structure.

use super::expr::Truth;
use super::val::{Const, Val};
use super::{Elab, Env, Mode};
use crate::names::{assigned, leaves_loop};
use ruff_python_ast::{Expr, Stmt, StmtFor, StmtIf, StmtWhile};
use ruff_text_size::Ranged;
use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Type, Value, ValueData, ValueDef};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{KernelKind, TileBuild, TileOp};

/// Whether control left by one way.
#[derive(Clone, Debug, PartialEq)]
pub enum Flag {
    Never,
    Always,
    /// A bool in the function that says so.
    Maybe(Value),
}

/// How a piece of code may leave the code around it.
#[derive(Clone, Debug)]
pub struct Exits {
    pub ret: Flag,
    pub brk: Flag,
    pub cont: Flag,
}

impl Exits {
    pub fn none() -> Self {
        Self { ret: Flag::Never, brk: Flag::Never, cont: Flag::Never }
    }
    pub fn returned() -> Self {
        Self { ret: Flag::Always, ..Self::none() }
    }
    pub fn broken() -> Self {
        Self { brk: Flag::Always, ..Self::none() }
    }
    pub fn continued() -> Self {
        Self { cont: Flag::Always, ..Self::none() }
    }
    pub fn always(&self) -> bool {
        [&self.ret, &self.brk, &self.cont].contains(&&Flag::Always)
    }
}

impl Elab<'_> {
    /// A bool that is true where control left; `None` where it never does.
    pub fn left(&mut self, exits: &Exits) -> Option<Value> {
        let mut out: Option<Value> = None;
        for flag in [&exits.ret, &exits.brk, &exits.cont] {
            if let Flag::Maybe(v) = flag {
                out = Some(match out {
                    None => *v,
                    Some(before) if before == *v => before,
                    Some(before) => self.b().ew(ScalarFn::Or, &[before, *v]),
                });
            }
        }
        out
    }

    /// Left by the first piece, or by the one that ran where the first did not.
    pub fn either(&mut self, a: Exits, b: Exits) -> Exits {
        let mut join = |x: Flag, y: Flag| match (x, y) {
            (Flag::Never, f) | (f, Flag::Never) => f,
            (Flag::Maybe(p), Flag::Maybe(q)) => Flag::Maybe(self.b().ew(ScalarFn::Or, &[p, q])),
            // The second piece always leaves where it runs; it runs where the first did not leave.
            (Flag::Maybe(_), Flag::Always) | (Flag::Always, _) => Flag::Always,
        };
        Exits { ret: join(a.ret, b.ret), brk: join(a.brk, b.brk), cont: join(a.cont, b.cont) }
    }

    pub fn if_stmt(&mut self, s: &StmtIf) -> Exits {
        let rest: Vec<_> = s.elif_else_clauses.iter().collect();
        self.if_chain(&s.test, &s.body, &rest)
    }

    fn if_chain(
        &mut self,
        test: &Expr,
        body: &[Stmt],
        rest: &[&ruff_python_ast::ElifElseClause],
    ) -> Exits {
        let condition = self.expr(test);
        self.loc = self.place(test.range());
        let otherwise = |this: &mut Self| match rest.split_first() {
            None => Exits::none(),
            Some((clause, more)) => match &clause.test {
                Some(test) => this.if_chain(test, &clause.body, more),
                None => this.stmts(&clause.body),
            },
        };
        match self.truth(&condition) {
            Some(Truth::Known(true)) => self.stmts(body),
            Some(Truth::Known(false)) => otherwise(self),
            Some(Truth::Run(c)) => self.branch(c, |this| this.stmts(body), otherwise),
            // Not known: both sides are checked as if either could run.
            Some(Truth::Open) | None => {
                let c = self.b().constant(Type::BOOL, Attr::Bool(true));
                self.branch(c, |this| this.stmts(body), otherwise)
            }
        }
    }

    /// A run-time branch. Variables that the sides leave different become its results.
    pub fn branch(
        &mut self,
        condition: Value,
        then: impl FnOnce(&mut Self) -> Exits,
        otherwise: impl FnOnce(&mut Self) -> Exits,
    ) -> Exits {
        let loc = self.loc.clone();
        let Ok(op) = self.b().op(OpSpec::new(TileOp::If, &[condition]).results(Vec::new())) else {
            return Exits::none();
        };
        let regions = self.func.ops[op].regions.clone();
        let outer = self.block;
        let before = self.env().clone();
        self.block = regions[0];
        let first = then(self);
        let env1 = std::mem::replace(self.env(), before.clone());
        self.block = regions[1];
        let second = otherwise(self);
        let env2 = std::mem::replace(self.env(), before);
        self.loc = loc;
        let mut join = Join { op, regions, yields: [Vec::new(), Vec::new()] };
        self.merge_envs(&mut join, env1, env2, &first, &second);
        let ret = self.merge_flag(&mut join, condition, first.ret, second.ret);
        let brk = self.merge_flag(&mut join, condition, first.brk, second.brk);
        let cont = self.merge_flag(&mut join, condition, first.cont, second.cont);
        for side in [0, 1] {
            self.block = join.regions[side];
            let values = join.yields[side].clone();
            self.b().yield_(&values);
        }
        self.block = outer;
        let mut finish = |flag: Merged| match flag {
            Merged::Flag(f) => f,
            Merged::Not => Flag::Maybe(self.b().ew(ScalarFn::Not, &[condition])),
        };
        Exits { ret: finish(ret), brk: finish(brk), cont: finish(cont) }
    }

    fn merge_flag(&mut self, join: &mut Join, condition: Value, a: Flag, b: Flag) -> Merged {
        match (&a, &b) {
            (Flag::Never, Flag::Never) => Merged::Flag(Flag::Never),
            (Flag::Always, Flag::Always) => Merged::Flag(Flag::Always),
            (Flag::Always, Flag::Never) => Merged::Flag(Flag::Maybe(condition)),
            (Flag::Never, Flag::Always) => Merged::Not,
            _ => {
                let mut value = |side: usize, flag: Flag| match flag {
                    Flag::Maybe(v) => v,
                    known => {
                        self.block = join.regions[side];
                        self.b().constant(Type::BOOL, Attr::Bool(known == Flag::Always))
                    }
                };
                let (x, y) = (value(0, a), value(1, b));
                Merged::Flag(Flag::Maybe(self.add_result(join, x, y, None)))
            }
        }
    }

    fn add_result(&mut self, join: &mut Join, a: Value, b: Value, name: Option<&str>) -> Value {
        let ty = self.ty(a).clone();
        let index = self.func.ops[join.op].results.len();
        let value = self.func.values.push(ValueData {
            ty,
            name: name.map(std::sync::Arc::from),
            def: ValueDef::Result(join.op, index),
        });
        self.func.ops[join.op].results.push(value);
        join.yields[0].push(a);
        join.yields[1].push(b);
        value
    }

    /// One environment from the two sides'. After a side that returned, the other's values hold.
    /// After one that left by `break` or `continue`, both do: the loop goes on with them.
    fn merge_envs(&mut self, join: &mut Join, env1: Env, env2: Env, first: &Exits, second: &Exits) {
        let names: BTreeSet<String> = env1.keys().chain(env2.keys()).cloned().collect();
        for name in names {
            let merged = match (env1.get(&name), env2.get(&name)) {
                (Some(a), Some(b)) if a == b => a.clone(),
                (Some(a), Some(b)) => self.merge_vals(join, &name, a, b, first, second),
                // What only one side has is used only where the other did not leave.
                (Some(a), None) if second.always() => self.one_side(join, &name, a, &Val::None, 0),
                (None, Some(b)) if first.always() => self.one_side(join, &name, b, &Val::None, 1),
                (Some(Val::Unset(l)), None) | (None, Some(Val::Unset(l))) => Val::Unset(l.clone()),
                _ => Val::Unset(self.assigned_at(&name)),
            };
            self.env().insert(name, merged);
        }
    }

    /// The value of the side that goes on; the other hands over anything of its type.
    fn one_side(
        &mut self,
        join: &mut Join,
        name: &str,
        live: &Val,
        dead: &Val,
        side: usize,
    ) -> Val {
        let Val::Rt(v) = *live else { return live.clone() };
        if !self.func.block_within(self.def_block(v), join.regions[side]) {
            return Val::Rt(v);
        }
        let ty = self.ty(v).clone();
        self.block = join.regions[1 - side];
        let other = match dead {
            Val::Rt(d) if *self.ty(*d) == ty => *d,
            _ => {
                let zero =
                    Self::const_attr(&Const::Int(0), ty.dtype()).unwrap_or(Attr::Bool(false));
                self.b().constant(ty, zero)
            }
        };
        let (x, y) = if side == 0 { (v, other) } else { (other, v) };
        Val::Rt(self.add_result(join, x, y, Some(name)))
    }

    fn merge_vals(
        &mut self,
        join: &mut Join,
        name: &str,
        a: &Val,
        b: &Val,
        first: &Exits,
        second: &Exits,
    ) -> Val {
        if matches!(a, Val::Poison) || matches!(b, Val::Poison) {
            return Val::Poison;
        }
        if first.ret == Flag::Always {
            return self.one_side(join, name, b, a, 1);
        }
        if second.ret == Flag::Always {
            return self.one_side(join, name, a, b, 0);
        }
        let met = self.meeting_type(a, b);
        // A side that left the loop with something of another kind: only the rest of the body asks.
        match (&met, first.always(), second.always()) {
            (None, true, _) => return self.one_side(join, name, b, a, 1),
            (None, _, true) => return self.one_side(join, name, a, b, 0),
            _ => {}
        }
        if let (Val::Unset(l), _) | (_, Val::Unset(l)) = (a, b) {
            return Val::Unset(l.clone());
        }
        let Some(ty) = met else {
            if self.mode == Mode::Check && self.has_open(a, b) {
                return Val::Poison;
            }
            let (x, y) = (self.describe(a), self.describe(b));
            return self.report(
                Diagnostic::new(
                    Code::E_TYPE,
                    format!("expected `{name}` to have one type on both paths, got {x} and {y}"),
                )
                .help("cast one of them, or use two names"),
            );
        };
        let mut side = |block: BlockId, v: &Val| {
            self.block = block;
            self.convert(v, ty.dtype(), ty.shape())
        };
        let (Some(x), Some(y)) = (side(join.regions[0], a), side(join.regions[1], b)) else {
            return Val::Poison;
        };
        Val::Rt(self.add_result(join, x, y, Some(name)))
    }

    fn has_open(&self, a: &Val, b: &Val) -> bool {
        [a, b].iter().any(|v| match v {
            Val::Open(_) => true,
            Val::Rt(x) => self.ty(*x).static_shape().is_none(),
            _ => false,
        })
    }

    fn def_block(&self, v: Value) -> BlockId {
        match self.func.values[v].def {
            ValueDef::Result(op, _) => self.func.ops[op].block,
            ValueDef::Arg(block, _) => block,
        }
    }

    /// The type two values of one variable meet in: literals give way to what they meet.
    fn meeting_type(&self, a: &Val, b: &Val) -> Option<Type> {
        let weak = |v: &Val| match v {
            Val::Const(c) => Self::default_dtype(c),
            Val::Dim(_) | Val::Open(super::val::OpenKind::Int) => Some(DType::I64),
            Val::Open(super::val::OpenKind::Float) => Some(DType::F32),
            Val::Open(super::val::OpenKind::Bool) => Some(DType::Bool),
            _ => None,
        };
        match (a, b) {
            (Val::Rt(x), Val::Rt(y)) => (self.ty(*x) == self.ty(*y)).then(|| self.ty(*x).clone()),
            (Val::Rt(x), other) | (other, Val::Rt(x)) => {
                let ty = self.ty(*x).clone();
                let gives_way = weak(other)? != DType::F32 || ty.dtype().is_float();
                (gives_way && ty.is_value()).then_some(ty)
            }
            _ => {
                let (x, y) = (weak(a)?, weak(b)?);
                let dtype = if x == y {
                    x
                } else if x.is_float() || y.is_float() {
                    DType::F32
                } else {
                    DType::I64
                };
                Some(Type::Scalar(dtype))
            }
        }
    }

    pub fn for_stmt(&mut self, s: &StmtFor) -> Exits {
        if !s.orelse.is_empty() {
            self.error(Code::E_SYNTAX, "`else` after a loop is not part of the kernel language");
        }
        let loc = self.loc.clone();
        let Some((lo, hi, step)) = self.range_of(&s.iter) else {
            self.poison_assigned(&s.body, &s.target);
            return Exits::none();
        };
        let Expr::Name(target) = &*s.target else {
            self.loc = self.place(s.target.range());
            self.error(Code::E_SYNTAX, "expected one loop variable");
            return Exits::none();
        };
        self.loc = loc;
        let name = target.id.to_string();
        self.repeat(&s.body, Repeat::Range { name, lo, hi, step })
    }

    pub fn while_stmt(&mut self, s: &StmtWhile) -> Exits {
        if !s.orelse.is_empty() {
            self.error(Code::E_SYNTAX, "`else` after a loop is not part of the kernel language");
        }
        self.repeat(&s.body, Repeat::While { test: &s.test })
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

    /// Emits a loop. A variable that begins as a literal takes the type it has at the end of the
    /// body: if that is another than the literal's own, the body is elaborated again with it.
    fn repeat(&mut self, body: &[Stmt], kind: Repeat<'_>) -> Exits {
        let mut wanted: Vec<(String, Type)> = Vec::new();
        for _ in 0..4 {
            let saved = (self.func.clone(), self.diags.clone(), self.env().clone(), self.block);
            match self.try_repeat(body, &kind, &wanted) {
                Ok(exits) => return exits,
                Err((name, ty)) => {
                    (self.func, self.diags, *self.env(), self.block) = saved;
                    wanted.retain(|(n, _)| *n != name);
                    wanted.push((name, ty));
                }
            }
        }
        self.error(Code::E_TYPE, "expected the variables of the loop to keep their types");
        Exits::none()
    }

    /// `Err` names a variable that should have been carried with another type.
    fn try_repeat(
        &mut self,
        body: &[Stmt],
        kind: &Repeat<'_>,
        wanted: &[(String, Type)],
    ) -> Result<Exits, (String, Type)> {
        let loc = self.loc.clone();
        let before = self.env().clone();
        let changed = assigned(body);
        let mut carried = Vec::new();
        for name in changed.iter().filter(|n| kind.variable() != Some(n.as_str())) {
            let Some(v) = before.get(name).cloned() else { continue };
            let ty = wanted.iter().find(|(n, _)| n == name).map(|(_, t)| t.clone());
            let init = match (&v, ty) {
                (Val::Rt(x), _) => *x,
                (Val::Const(Const::Str(_) | Const::DType(_)), _) => continue,
                (Val::Const(_) | Val::Dim(_) | Val::Open(_), Some(ty)) => {
                    match self.convert(&v, ty.dtype(), ty.shape()) {
                        Some(x) => x,
                        None => continue,
                    }
                }
                (Val::Const(_) | Val::Dim(_) | Val::Open(_), None) => match self.runtime(&v) {
                    Some(x) => x,
                    None => continue,
                },
                _ => continue,
            };
            carried.push(Carried { name: name.clone(), init, weak: !matches!(v, Val::Rt(_)) });
        }
        let (lo, hi, step) = match kind {
            Repeat::Range { lo, hi, step, .. } => (Some(*lo), Some(*hi), Some(*step)),
            Repeat::While { .. } => (None, None, None),
        };
        let leaves = leaves_loop(body);
        let plain = lo.is_some() && !leaves;
        let mut init: Vec<Value> = Vec::new();
        if !plain {
            init.extend(lo);
        }
        init.extend(carried.iter().map(|c| c.init));
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
        let loop_env = |this: &mut Self, region: BlockId| -> Vec<Value> {
            let mut args = Vec::new();
            if plain {
                args.push(this.func.add_arg(region, Type::INDEX, kind.variable()));
            }
            for (i, ty) in types.iter().enumerate() {
                let offset = usize::from(!plain && lo.is_some());
                let name = match i.checked_sub(offset) {
                    None => kind.variable(),
                    Some(at) => carried.get(at).map(|c| c.name.as_str()),
                };
                args.push(this.func.add_arg(region, ty.clone(), name));
            }
            let counted = usize::from(lo.is_some());
            *this.env() = before.clone();
            if let Some(name) = kind.variable() {
                this.env().insert(name.to_string(), Val::Rt(args[0]));
            }
            for (c, &arg) in carried.iter().zip(&args[counted..]) {
                this.env().insert(c.name.clone(), Val::Rt(arg));
            }
            args
        };
        if !plain {
            self.block = regions[0];
            let args = loop_env(self, regions[0]);
            let go_on = self.goes_on(kind, hi, &args, leaves);
            self.b().yield_(&[go_on]);
        }
        let body_region = regions[regions.len() - 1];
        self.block = body_region;
        let args = loop_env(self, body_region);
        self.loop_depth += 1;
        let exits = self.stmts(body);
        self.loop_depth -= 1;
        self.loc = loc.clone();
        let mut yields = Vec::new();
        if !plain && let (Some(step), Some(_)) = (step, lo) {
            let next = self.b().ew(ScalarFn::Add, &[args[0], step]);
            yields.push(next);
        }
        for c in &carried {
            let end = self.env().get(&c.name).cloned().unwrap_or(Val::Poison);
            yields.push(self.carry(c, &end, &loc)?);
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
        self.lane_break_check(&exits);
        self.check_uncarried(&before, &carried, &changed);
        self.block = outer;
        let results = self.func.ops[op].results.clone();
        let offset = usize::from(!plain && lo.is_some());
        *self.env() = before.clone();
        for (c, &result) in carried.iter().zip(&results[offset..]) {
            self.func.set_name(result, &c.name);
            self.env().insert(c.name.clone(), Val::Rt(result));
        }
        for name in changed.iter().map(String::as_str).chain(kind.variable()) {
            if !before.contains_key(name) {
                let at = self.assigned_at(name);
                self.env().insert(name.to_string(), Val::Unset(at));
            }
        }
        let ret = match (leaves, &exits.ret) {
            (true, Flag::Maybe(_) | Flag::Always) => Flag::Maybe(results[results.len() - 1]),
            _ => Flag::Never,
        };
        Ok(Exits { ret, ..Exits::none() })
    }

    /// The condition of a loop in its condition region.
    fn goes_on(
        &mut self,
        kind: &Repeat<'_>,
        hi: Option<Value>,
        args: &[Value],
        leaves: bool,
    ) -> Value {
        let mut out = match kind {
            Repeat::Range { .. } => {
                let hi = hi.expect("a range has bounds");
                self.b().ew(ScalarFn::Lt, &[args[0], hi])
            }
            Repeat::While { test } => {
                let v = self.expr(test);
                match self.truth(&v) {
                    Some(Truth::Run(c)) => c,
                    Some(Truth::Known(b)) => self.b().constant(Type::BOOL, Attr::Bool(b)),
                    Some(Truth::Open) | None => self.b().constant(Type::BOOL, Attr::Bool(false)),
                }
            }
        };
        if leaves {
            for &flag in &args[args.len() - 2..] {
                let stays = self.b().ew(ScalarFn::Not, &[flag]);
                out = self.b().ew(ScalarFn::And, &[out, stays]);
            }
        }
        out
    }

    /// The value of a carried variable at the end of the body, in the type it is carried with.
    fn carry(&mut self, c: &Carried, end: &Val, loc: &Loc) -> Result<Value, (String, Type)> {
        let ty = self.ty(c.init).clone();
        match end {
            Val::Rt(v) if *self.ty(*v) == ty => Ok(*v),
            Val::Rt(v) if c.weak => Err((c.name.clone(), self.ty(*v).clone())),
            Val::Rt(v) => {
                let got = self.ty(*v).clone();
                let same_rank = got.rank() == ty.rank() && got.dtype() == ty.dtype();
                let open = got.static_shape().is_none() || ty.static_shape().is_none();
                if !(self.mode == Mode::Check && same_rank && open) {
                    let (a, b) = (super::describe_type(&ty), super::describe_type(&got));
                    self.report(
                        Diagnostic::new(
                            Code::E_TYPE,
                            format!("expected `{}` to keep its type in the loop, got {a} before it and {b} after its body", c.name),
                        )
                        .at(loc.clone())
                        .help(format!("begin with the type it ends with, or cast: ts.tile.cast({}, …)", c.name)),
                    );
                }
                Ok(c.init)
            }
            Val::Const(_) | Val::Dim(_) | Val::Open(_) => {
                Ok(self.convert(end, ty.dtype(), ty.shape()).unwrap_or(c.init))
            }
            _ => Ok(c.init),
        }
    }

    /// What is no number may not change in a loop: which buffer a name means must be known.
    fn check_uncarried(&mut self, before: &Env, carried: &[Carried], changed: &BTreeSet<String>) {
        for name in changed {
            let (Some(old), Some(new)) = (before.get(name), self.env().get(name).cloned()) else {
                continue;
            };
            let poisoned = *old == Val::Poison || new == Val::Poison;
            // A name that an earlier loop or branch may have left without a value is the body's own.
            let unset = matches!(old, Val::Unset(_));
            if !poisoned && !unset && !carried.iter().any(|c| c.name == *name) && *old != new {
                self.error(
                    Code::E_UNSUPPORTED,
                    format!("expected `{name}` to mean the same in every iteration of the loop"),
                );
            }
        }
    }

    /// In lane kernels `break` and `continue` must not depend on the lane.
    fn lane_break_check(&mut self, exits: &Exits) {
        if self.kind != KernelKind::Lane {
            return;
        }
        for flag in [&exits.brk, &exits.cont] {
            if let Flag::Maybe(v) = flag
                && self.depends_on_lane(*v, &mut BTreeSet::new())
            {
                self.error_help(
                    Code::E_UNSUPPORTED,
                    "expected `break` and `continue` under a condition that is the same for all lanes",
                    "put the rest of the body under `if`, or make the condition part of a `while`",
                );
            }
        }
    }

    /// Whether a value may differ between lanes. Loop arguments are taken to be uniform until one
    /// of their sources is not.
    fn depends_on_lane(&self, v: Value, seen: &mut BTreeSet<Value>) -> bool {
        if !seen.insert(v) {
            return false;
        }
        let mut any = |values: &[Value]| {
            values.iter().any(|&o| !self.ty(o).is_memory() && self.depends_on_lane(o, seen))
        };
        match self.func.values[v].def {
            ValueDef::Arg(block, index) => match self.func.blocks[block].parent {
                None => false,
                Some(parent) => {
                    let sources = self.carried_sources(parent, index);
                    any(&sources)
                }
            },
            ValueDef::Result(id, index) => {
                let op = &self.func.ops[id];
                match op.code {
                    TileOp::LinearId | TileOp::LocalId | TileOp::Atomic => true,
                    TileOp::GroupReduce | TileOp::GroupBroadcast => false,
                    TileOp::If => {
                        let mut sources = op.operands.clone();
                        for &region in &op.regions {
                            sources.extend(self.yielded(region, index));
                        }
                        any(&sources)
                    }
                    TileOp::For | TileOp::While => {
                        let offset = usize::from(op.code == TileOp::For);
                        let mut sources = self.carried_sources(id, index + offset);
                        sources.extend(op.positional());
                        if op.code == TileOp::While {
                            sources.extend(self.yielded(op.regions[0], 0));
                        }
                        any(&sources)
                    }
                    _ => any(&op.operands.clone()),
                }
            }
        }
    }

    fn yielded(&self, region: BlockId, index: usize) -> Option<Value> {
        let end = self.func.terminator(region)?;
        self.func.ops[end].group("values").get(index).copied()
    }

    /// Where the argument of a loop's region comes from: before the loop, and its last iteration.
    fn carried_sources(&self, id: OpId, index: usize) -> Vec<Value> {
        let op = &self.func.ops[id];
        let init = op.group("init");
        match (op.code, index) {
            (TileOp::For, 0) => vec![op.operands[0], op.operands[2]],
            (TileOp::For, n) => init
                .get(n - 1)
                .copied()
                .into_iter()
                .chain(self.yielded(op.regions[0], n - 1))
                .collect(),
            (_, n) => init
                .get(n)
                .copied()
                .into_iter()
                .chain(self.yielded(op.regions[op.regions.len() - 1], n))
                .collect(),
        }
    }
}

/// A variable that a loop hands from one iteration to the next.
struct Carried {
    name: String,
    init: Value,
    /// It began as a literal, whose type is open.
    weak: bool,
}

enum Repeat<'a> {
    Range { name: String, lo: Value, hi: Value, step: Value },
    While { test: &'a Expr },
}

impl Repeat<'_> {
    fn variable(&self) -> Option<&str> {
        match self {
            Repeat::Range { name, .. } => Some(name),
            Repeat::While { .. } => None,
        }
    }
}

/// A branch whose results are being found.
struct Join {
    op: OpId,
    regions: Vec<BlockId>,
    yields: [Vec<Value>; 2],
}

enum Merged {
    Flag(Flag),
    /// True where the condition is not.
    Not,
}
