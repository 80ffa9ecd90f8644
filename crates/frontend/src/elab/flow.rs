//! Control flow: branches and loops over the variables they change. Leaving early (`return`,
//! `break`, `continue`) becomes flags, so that the function keeps its structure.

use super::expr::Truth;
use super::val::Val;
use super::{Elab, Env, Mode};
use ruff_python_ast::{Expr, Stmt, StmtIf};
use ruff_text_size::Ranged;
use std::collections::BTreeSet;
use tessera_ir::{
    Attr, BlockId, Effects, OpId, OpSpec, Opcode, Shape, Type, Value, ValueData, ValueDef,
};
use tessera_numerics::{Basic, DType, FnClass, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

/// The variable that holds what a helper returned: no name of Python's is a keyword. It is there
/// only on paths that have returned, and nothing on other paths reads it.
pub const RETURN: &str = "return";

/// Whether control left by one kind of exit.
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
        let condition = self.condition(test);
        self.loc = self.place(test.range());
        let then = |this: &mut Self| {
            this.bound_by(test, true);
            this.stmts(body)
        };
        let otherwise = |this: &mut Self| {
            this.bound_by(test, false);
            match rest.split_first() {
                None => Exits::none(),
                Some((clause, more)) => match &clause.test {
                    Some(test) => this.if_chain(test, &clause.body, more),
                    None => this.stmts(&clause.body),
                },
            }
        };
        match condition {
            Some(Truth::Known(true)) => then(self),
            Some(Truth::Known(false)) => otherwise(self),
            Some(Truth::Run(c)) => self.branch(c, then, otherwise),
            // Not known: both sides are checked as if either could run.
            Some(Truth::Open) | None => {
                let c = self.b().constant(Type::BOOL, Attr::Bool(true));
                self.branch(c, then, otherwise)
            }
        }
    }

    /// Names that a condition binds for certain where it came out so have their values.
    pub fn bound_by(&mut self, test: &Expr, holds: bool) {
        for name in crate::names::bound_where(test, holds) {
            if let Some(Val::Maybe(v, _)) = self.env().get(&name) {
                let value = Val::Rt(*v);
                self.env().insert(name, value);
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
        self.branch_after(condition, &Exits::none(), then, otherwise)
    }

    /// The rest of a run of statements, where those before it did not leave. `exits` says how they
    /// may have left: where they did, nothing reads what the rest would have assigned.
    pub fn rest(&mut self, left: Value, exits: &Exits, rest: &[Stmt]) -> Exits {
        self.rest_with(left, exits, |this| this.stmts(rest))
    }

    /// The same of anything that comes after.
    pub fn rest_with(
        &mut self,
        left: Value,
        exits: &Exits,
        rest: impl FnOnce(&mut Self) -> Exits,
    ) -> Exits {
        let gone = |flag: &Flag| *flag != Flag::Never;
        let dead =
            if gone(&exits.brk) || gone(&exits.cont) { Exits::broken() } else { Exits::returned() };
        let mut returns = false;
        let mut out = self.branch_after(
            left,
            &dead,
            |_| Exits::none(),
            |this| {
                this.env().remove(RETURN);
                let exits = rest(this);
                returns = exits.ret == Flag::Always;
                exits
            },
        );
        // Who has not returned before does now.
        if returns && !gone(&exits.brk) && !gone(&exits.cont) {
            out.ret = Flag::Always;
        }
        out
    }

    /// `dead` is how control had left before the first side, if it is there only for that.
    fn branch_after(
        &mut self,
        condition: Value,
        dead: &Exits,
        then: impl FnOnce(&mut Self) -> Exits,
        otherwise: impl FnOnce(&mut Self) -> Exits,
    ) -> Exits {
        let loc = self.loc.clone();
        let outer = self.block;
        let Some((mut join, before)) = self.open_branch(condition, false) else {
            return Exits::none();
        };
        let first = then(self);
        let env1 = std::mem::replace(self.env(), before.clone());
        self.block = join.regions[1];
        let second = otherwise(self);
        let env2 = std::mem::replace(self.env(), before);
        self.loc = loc;
        let first_left = if dead.always() { dead } else { &first };
        self.merge_envs(&mut join, env1, env2, first_left, &second);
        let ret = self.merge_flag(&mut join, condition, first.ret, second.ret);
        let brk = self.merge_flag(&mut join, condition, first.brk, second.brk);
        let cont = self.merge_flag(&mut join, condition, first.cont, second.cont);
        self.close_branch(join, outer);
        let mut finish = |flag: Merged| match flag {
            Merged::Flag(f) => f,
            Merged::Not => Flag::Maybe(self.b().ew(ScalarFn::Not, &[condition])),
        };
        Exits { ret: finish(ret), brk: finish(brk), cont: finish(cont) }
    }

    /// Begins a branch in its first region; gives the variables before it.
    fn open_branch(&mut self, condition: Value, expression: bool) -> Option<(Join, Env)> {
        let mut spec = OpSpec::new(TileOp::If, &[condition]).results(Vec::new());
        if expression {
            spec = spec.attr("select", Attr::Bool(true));
        }
        let op = self.b().op(spec).ok()?;
        let regions = [self.func.ops[op].regions[0], self.func.ops[op].regions[1]];
        self.block = regions[0];
        let before = self.env().clone();
        Some((Join { op, regions, yields: [Vec::new(), Vec::new()], flat: None }, before))
    }

    fn close_branch(&mut self, join: Join, outer: BlockId) {
        if join.flat.is_none() {
            for side in [0, 1] {
                self.block = join.regions[side];
                let values = join.yields[side].clone();
                self.b().yield_(&values);
            }
        }
        self.block = outer;
    }

    /// A value from the side that Python would evaluate; the other is not. Where neither side can
    /// be noticed, not in checked mode either, both are evaluated and one is selected.
    pub fn choose(
        &mut self,
        condition: Value,
        then: impl FnOnce(&mut Self) -> Val,
        otherwise: impl FnOnce(&mut Self) -> Val,
    ) -> Val {
        let loc = self.loc.clone();
        let outer = self.block;
        let Some((mut join, before)) = self.open_branch(condition, true) else {
            return Val::Poison;
        };
        let a = then(self);
        let env1 = std::mem::replace(self.env(), before.clone());
        self.block = join.regions[1];
        let b = otherwise(self);
        let env2 = std::mem::replace(self.env(), before);
        self.loc = loc;
        if join.regions.iter().all(|&r| self.is_silent(r)) {
            self.flatten(&mut join, condition, outer);
        }
        let none = Exits::none();
        let mut own = self.own_names(&mut join, &env1, &env2, 0);
        own.extend(self.own_names(&mut join, &env2, &env1, 1));
        self.merge_envs(&mut join, env1, env2, &none, &none);
        self.env().extend(own);
        let out = self.merge_choice(&mut join, &a, &b);
        self.close_branch(join, outer);
        out
    }

    /// Names that only one side of an expression binds may be read where that side ran: their
    /// values are carried along.
    fn own_names(&mut self, join: &mut Join, env: &Env, other: &Env, side: usize) -> Env {
        let mut out = Env::new();
        for (name, value) in env.iter().filter(|(name, _)| !other.contains_key(*name)) {
            if !matches!(value, Val::Rt(_) | Val::Maybe(..)) {
                continue;
            }
            if let Val::Rt(v) | Val::Maybe(v, _) =
                self.one_side(join, name, value, &Val::None, side)
            {
                out.insert(name.clone(), Val::Maybe(v, self.assigned_at(name)));
            }
        }
        out
    }

    /// Puts the ops of both sides into the block around.
    fn flatten(&mut self, join: &mut Join, condition: Value, outer: BlockId) {
        self.func.blocks[outer].ops.retain(|&op| op != join.op);
        for region in join.regions {
            let ops = std::mem::take(&mut self.func.blocks[region].ops);
            for &op in &ops {
                self.func.ops[op].block = outer;
            }
            self.func.blocks[outer].ops.extend(ops);
        }
        join.regions = [outer, outer];
        join.flat = Some(condition);
    }

    /// Whether it is not observable if the ops of a block ran, checked mode included.
    #[deny(clippy::wildcard_enum_match_arm)]
    fn is_silent(&self, block: BlockId) -> bool {
        use Basic::*;
        use TileOp::*;
        self.func.blocks[block].ops.iter().all(|&id| {
            let op = &self.func.ops[id];
            if op.code.info().effects != Effects::Pure || !op.regions.is_empty() {
                return false;
            }
            match op.code {
                Const | Dim | ProgramId | NumPrograms | LinearId | LocalId | GroupSize
                | WarpSize | Iota | Select | Broadcast | Expand | Reshape | Transpose => {
                    op.attr("unset").is_none()
                }
                Cast => {
                    let (from, to) =
                        (self.ty(op.operands[0]).dtype(), self.ty(op.result()).dtype());
                    let one_kind = from.is_float() == to.is_float();
                    !one_kind || from.bits() <= to.bits()
                }
                Ew(f) => {
                    let dtype = self.ty(op.operands[0]).dtype();
                    match f.class() {
                        FnClass::Compare | FnClass::Predicate | FnClass::Bits => true,
                        FnClass::Arith => f.basic().is_some_and(|f| match f {
                            Minimum | Maximum => true,
                            // Wrapping is reported on the way to an index.
                            Add | Sub | Mul | Neg => dtype == DType::I64 || dtype.is_unsigned_int(),
                            Div | FloorDiv | Mod | Abs | Fma | Sqrt | Recip | Floor | Ceil
                            | Round | Trunc | Sign | Clamp | And | Or | Xor | Not | Shl | Shr
                            | Popcount | Clz | Ctz | Brev | MulHi | FunnelShift | Eq | Ne | Lt
                            | Le | Gt | Ge | IsNan | IsInf | IsFinite => false,
                        }),
                        FnClass::Float | FnClass::Shift => false,
                        FnClass::Word => true,
                    }
                }
                For | If | While | Yield | Return | SlowPath | Origin | Bitcast | Load | Store
                | Gather | Scatter | Accumulate | BufAlloc | CopyAsync | Barrier | Atomic
                | CopyCommit | CopyWait | Mma | GroupReduce | GroupScan | GroupBroadcast
                | GroupShuffle | Philox | Print | Assert | Reduce | Scan | ArgReduce | Slice
                | Concat | Take | ReduceBy | ScanBy | Sort | Histogram | Owned | Asm
                | AsmEffect => false,
            }
        })
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
        let value = match join.flat {
            Some(condition) => {
                self.block = join.regions[0];
                self.chosen(condition, a, b)
            }
            None => {
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
        };
        if self.widened.contains(&a) || self.widened.contains(&b) {
            self.widened.insert(value);
        }
        value
    }

    /// `a` where the condition holds, `b` elsewhere, with logic for what it is.
    fn chosen(&mut self, condition: Value, a: Value, b: Value) -> Value {
        let known = |this: &Self, v: Value| {
            this.func.def(v).filter(|op| op.code == TileOp::Const).and_then(|op| {
                match op.attr("value") {
                    Some(Attr::Bool(known)) if op.attr("unset").is_none() => Some(*known),
                    _ => None,
                }
            })
        };
        match (known(self, a), known(self, b)) {
            _ if a == b => a,
            (Some(true), Some(false)) => condition,
            (_, Some(false)) => self.b().ew(ScalarFn::And, &[condition, a]),
            (Some(true), _) => self.b().ew(ScalarFn::Or, &[condition, b]),
            _ => self.b().select(condition, a, b),
        }
    }

    /// One environment from the two sides'. After a side that returned, the other's values hold.
    /// After one that left by `break` or `continue`, both do: the loop goes on with them.
    fn merge_envs(&mut self, join: &mut Join, env1: Env, env2: Env, first: &Exits, second: &Exits) {
        let names: BTreeSet<String> = env1.keys().chain(env2.keys()).cloned().collect();
        for name in names {
            let merged = match (env1.get(&name), env2.get(&name)) {
                (Some(a), Some(b)) if a == b => a.clone(),
                (Some(a), Some(b)) if name == RETURN => {
                    let none = Exits::none();
                    self.merge_vals(join, &name, a, b, &none, &none)
                }
                (Some(a), None) if name == RETURN => self.one_side(join, &name, a, &Val::None, 0),
                (None, Some(b)) if name == RETURN => self.one_side(join, &name, b, &Val::None, 1),
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

    /// The value of the side that goes on; the other side yields any value of its type.
    fn one_side(
        &mut self,
        join: &mut Join,
        name: &str,
        live: &Val,
        dead: &Val,
        side: usize,
    ) -> Val {
        let v = match *live {
            Val::Rt(v) => v,
            // What may have no value keeps that; the value goes along.
            Val::Maybe(v, ref l) => {
                let (l, v) = (l.clone(), Val::Rt(v));
                return match self.one_side(join, name, &v, dead, side) {
                    Val::Rt(v) => Val::Maybe(v, l),
                    other => other,
                };
            }
            // Their operands may be defined in the side.
            Val::After(_) => {
                self.block = join.regions[side];
                let v = self.read_after(live, false);
                return self.one_side(join, name, &v, dead, side);
            }
            Val::Tuple(ref parts) => {
                let parts = parts.clone();
                let parts = parts.iter().map(|v| self.one_side(join, name, v, &Val::None, side));
                return Val::Tuple(parts.collect());
            }
            _ => return live.clone(),
        };
        if !self.func.block_within(self.def_block(v), join.regions[side]) {
            return Val::Rt(v);
        }
        let ty = self.ty(v).clone();
        self.block = join.regions[1 - side];
        let other = match dead {
            Val::Rt(d) | Val::Maybe(d, _) if *self.ty(*d) == ty => *d,
            _ => self.b().constant(ty.clone(), Self::zero(ty.dtype())),
        };
        let (x, y) = if side == 0 { (v, other) } else { (other, v) };
        let out = self.add_result(join, x, y, Some(name));
        if let Some(weak) = self.weak.get(&v).copied() {
            self.note_weak(out, weak, &[Val::Rt(v)]);
        }
        Val::Rt(out)
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
        if let (Val::Maybe(_, l), _) | (_, Val::Maybe(_, l)) = (a, b) {
            let l = l.clone();
            // Either may be the one that has a value; which is known where the loop was left.
            let plain = |v: &Val| match v {
                Val::Maybe(v, _) => Val::Rt(*v),
                other => other.clone(),
            };
            if !matches!(a, Val::Unset(_)) && !matches!(b, Val::Unset(_)) {
                return match self.merge_numbers(join, Some(name), &plain(a), &plain(b)) {
                    Some(Val::Rt(v)) => Val::Maybe(v, l),
                    _ => Val::Unset(l),
                };
            }
        }
        // Part by part, whichever side leaves.
        if let (Val::Tuple(x), Val::Tuple(y)) = (a, b)
            && x.len() == y.len()
        {
            let parts = x.iter().zip(y).map(|(a, b)| {
                if a == b { a.clone() } else { self.merge_vals(join, name, a, b, first, second) }
            });
            return Val::Tuple(parts.collect());
        }
        let met = self.common_type_of_values(a, b);
        // A side that left the loop with a value of another type: only the rest of the body reads
        // it.
        match (&met, first.always(), second.always()) {
            (None, true, _) => return self.one_side(join, name, b, a, 1),
            (None, _, true) => return self.one_side(join, name, a, b, 0),
            _ => {}
        }
        if let (Val::Unset(l), _) | (_, Val::Unset(l)) = (a, b) {
            return Val::Unset(l.clone());
        }
        if let Some(merged) = self.merge_numbers(join, Some(name), a, b) {
            return merged;
        }
        if self.mode == Mode::Check && self.has_open(a, b) {
            return Val::Poison;
        }
        // An error only where it is read: two branches may use one name for two things.
        let words = |this: &Self, v: &Val| match v {
            Val::Clash(both) => format!("{} or {}", both.0, both.1),
            v => this.describe(v),
        };
        Val::Clash(Box::new((words(self, a), words(self, b))))
    }

    /// The numbers of two sides in their common type; `None` where there is none.
    fn merge_numbers(
        &mut self,
        join: &mut Join,
        name: Option<&str>,
        a: &Val,
        b: &Val,
    ) -> Option<Val> {
        let (dtype, shape) = self.common_type_of_values(a, b)?;
        let weak = self.weak_join(a, b);
        let mut side = |block: BlockId, v: &Val| {
            self.block = block;
            let v = self.read_after(v, false);
            self.convert(&v, dtype, &shape)
        };
        let (Some(x), Some(y)) = (side(join.regions[0], a), side(join.regions[1], b)) else {
            return Some(Val::Poison);
        };
        let out = self.add_result(join, x, y, name);
        if let Some(weak) = weak {
            self.note_weak(out, weak, &[a.clone(), b.clone()]);
        }
        Some(Val::Rt(out))
    }

    /// The value of a conditional expression.
    fn merge_choice(&mut self, join: &mut Join, a: &Val, b: &Val) -> Val {
        if matches!(a, Val::Poison) || matches!(b, Val::Poison) {
            return Val::Poison;
        }
        if a == b {
            return a.clone();
        }
        if let (Val::Tuple(x), Val::Tuple(y)) = (a, b)
            && x.len() == y.len()
        {
            return Val::Tuple(
                x.iter().zip(y).map(|(a, b)| self.merge_choice(join, a, b)).collect(),
            );
        }
        // Two values of one storage dtype are chosen between without conversion.
        if let (Val::Rt(x), Val::Rt(y)) = (a, b)
            && self.ty(*x) == self.ty(*y)
            && self.weak_join(a, b).is_none()
        {
            return Val::Rt(self.add_result(join, *x, *y, None));
        }
        let (before, loc) = (self.found, self.loc.clone());
        let outer = self.block;
        let common = self.common_type(&[a.clone(), b.clone()], None);
        self.block = outer;
        self.loc = loc;
        let Some((mut dtype, shape)) = common else {
            if self.found == before {
                let (x, y) = (self.describe(a), self.describe(b));
                self.error_help(
                    tessera_diag::Code::E_TYPE,
                    format!("expected two values of one type to choose between, got {x} and {y}"),
                    "cast one of them, or use an `if` statement",
                );
            }
            return Val::Poison;
        };
        let weak = self.weak_join(a, b);
        if let Some(weak) = weak {
            dtype = Self::weak_dtype(weak);
        }
        let mut side = |block: BlockId, v: &Val| {
            self.block = block;
            self.convert(v, dtype, &shape)
        };
        let (Some(x), Some(y)) = (side(join.regions[0], a), side(join.regions[1], b)) else {
            return Val::Poison;
        };
        let out = self.add_result(join, x, y, None);
        if let Some(weak) = weak {
            self.note_weak(out, weak, &[a.clone(), b.clone()]);
        }
        Val::Rt(out)
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

    /// The common type of two values of one variable: a literal takes the other value's type, and
    /// two typed values must have one type.
    fn common_type_of_values(&self, a: &Val, b: &Val) -> Option<(DType, Shape)> {
        let number = |v: &Val| match v {
            Val::After(_) => Some(Val::Dim(tessera_ir::DimExpr::Const(0))),
            Val::Const(_) | Val::Dim(_) | Val::Open(_) | Val::Rt(_) => Some(v.clone()),
            _ => None,
        };
        let (a, b) = (number(a)?, number(b)?);
        let strong = |v: &Val| match v {
            Val::Rt(x) if !self.weak.contains_key(x) => Some(self.ty(*x).clone()),
            _ => None,
        };
        match (strong(&a), strong(&b)) {
            (Some(x), Some(y)) => (x == y).then(|| (x.dtype(), x.shape().to_vec())),
            (Some(ty), None) | (None, Some(ty)) => {
                let other = if strong(&a).is_some() { &b } else { &a };
                let own = super::literal::Weight::Strong(ty.dtype());
                let dtype = match (self.weight_of(other)?, other) {
                    // A literal that the stored type holds is one of it: nothing is computed here.
                    (super::literal::Weight::WeakInt(lo, hi), _)
                        if ty.dtype().is_int() && super::literal::holds(ty.dtype(), lo, hi) =>
                    {
                        ty.dtype()
                    }
                    (super::literal::Weight::WeakFloat, _) if ty.dtype().is_float() => ty.dtype(),
                    (super::literal::Weight::WeakInt(..), _) if ty.dtype().is_float() => ty.dtype(),
                    (super::literal::Weight::WeakBool, _) => ty.dtype(),
                    (_, Val::Dim(_)) if ty.dtype().is_int() || ty.dtype() == DType::Bool => {
                        (ty.dtype() == DType::I64).then_some(DType::I64)?
                    }
                    (weight, _) => super::literal::join(own, weight)?.dtype()?,
                };
                ty.is_value().then(|| (dtype, ty.shape().to_vec()))
            }
            (None, None) => {
                let (x, y) = (self.weight_of(&a)?, self.weight_of(&b)?);
                if let Some(weak) = self.weak_join(&a, &b) {
                    return Some((Self::weak_dtype(weak), Vec::new()));
                }
                Some((super::literal::join(x, y)?.dtype()?, Vec::new()))
            }
        }
    }
}

/// A branch whose results are being found.
pub struct Join {
    op: OpId,
    regions: [BlockId; 2],
    yields: [Vec<Value>; 2],
    /// Both sides are emitted in the enclosing block, one after the other: this condition selects.
    flat: Option<Value>,
}

enum Merged {
    Flag(Flag),
    /// True where the condition is not.
    Not,
}
