//! Calls: functions of the API, and `@ts.func` functions, which are inlined.

use super::flow::{Flag, RETURN};
use super::val::{Const, Val};
use super::{Elab, Frame};
use crate::api::{ApiRow, Args, Handler, Style};
use crate::parsed::Parsed;
use crate::source::FuncSource;
use ruff_python_ast::{Expr, ExprCall};
use ruff_text_size::Ranged;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::{Attr, OpSpec, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{KernelKind, TileBuild, TileOp, magnitude};

/// What a loop counts over.
pub struct Range {
    pub lo: Value,
    pub hi: Value,
    /// Above 0.
    pub step: Value,
    /// The loop counts its iterations, and its variable is `first + count * second`.
    pub scale: Option<(Value, Value)>,
}

/// An argument as given.
#[derive(Clone)]
pub struct Given {
    pub name: Option<String>,
    pub value: Val,
    pub loc: Loc,
    pub text: String,
}

impl Elab<'_> {
    pub fn call(&mut self, c: &ExprCall) -> Val {
        let target = self.expr(&c.func);
        let loc = self.place(c.range());
        let places = match &target {
            Val::Api(row) => row.places(),
            _ => &[],
        };
        let Some(given) = self.arguments(c, places) else { return Val::Poison };
        self.loc = loc;
        match target {
            Val::Api(row) if matches!(row.name, "py.min" | "py.max") && given.len() > 2 => {
                let f = if row.name == "py.min" { ScalarFn::Minimum } else { ScalarFn::Maximum };
                match given.iter().find(|g| g.name.is_some()) {
                    None => given
                        .into_iter()
                        .map(|g| g.value)
                        .reduce(|a, b| self.binary(f, a, b))
                        .unwrap_or(Val::Poison),
                    Some(_) => self.call_api(row, given),
                }
            }
            Val::Api(row) => self.call_api(row, given),
            Val::Func(f) => self.inline(&f, given),
            Val::Const(Const::DType(t)) => match given.first() {
                Some(g) => match self.cast_source(&g.value, t.storage) {
                    Some(v) => {
                        let ty = self.ty(v).with_dtype(t.storage);
                        let spec = OpSpec::new(TileOp::Cast, &[v]).result(ty);
                        self.b().value(spec).map_or(Val::Poison, Val::Rt)
                    }
                    None => Val::Poison,
                },
                None => self.error_help(
                    Code::E_ARGUMENT,
                    format!("expected a value to convert to {t}"),
                    format!("write ts.{}(x)", t.storage),
                ),
            },
            Val::Poison => Val::Poison,
            Val::Opaque(name) if name.contains("kernel") => self.error_help(
                Code::E_GRAPH_INVALID,
                "expected no call of a kernel inside a kernel",
                "put what both need into a @ts.func, which is inlined where it is called",
            ),
            Val::Opaque(name) if name == "type" => self.error_help(
                Code::E_TYPE,
                "expected a function of the tile language or a @ts.func, got a Python class",
                "records are not built in kernels: take one as a parameter, or give a @ts.func the values that it would have",
            ),
            Val::Opaque(name) if name.contains("calls itself") => self.error_help(
                Code::E_GRAPH_INVALID,
                "expected no recursion: functions are inlined where they are called",
                "write a loop",
            ),
            other => {
                let what = self.describe(&other);
                // A dotted path names a module's function; a bare name may mean anything.
                let path = crate::names::dotted_path(&c.func).unwrap_or_default();
                let known = crate::foreign::path(&path)
                    .filter(|_| path.contains('.') || crate::foreign::name(&path).is_some());
                let help = known.unwrap_or_else(|| {
                    "decorate helpers with @ts.func; other Python functions cannot run inside a kernel".into()
                });
                self.error_help(
                    Code::E_TYPE,
                    format!("expected a function of the tile language or a @ts.func, got {what}"),
                    help,
                )
            }
        }
    }

    /// Calls a function of the API.
    pub fn call_api(&mut self, row: &'static ApiRow, given: Vec<Given>) -> Val {
        if let (Style::Lane, KernelKind::Group) | (Style::Group, KernelKind::Lane) =
            (row.style, self.kind)
        {
            return self.style_mix(row.name, row.style);
        }
        match row.handler {
            Handler::Reserved(why) => {
                self.error_help(Code::E_UNSUPPORTED, format!("`ts.{}` is reserved", row.name), why)
            }
            Handler::Ew(f) => match Args::bind(self, row, given) {
                Some(args) => {
                    let operands = args.in_order();
                    self.apply(f, &operands)
                }
                None => Val::Poison,
            },
            Handler::Call(handler) => match Args::bind(self, row, given) {
                Some(mut args) => handler(self, &mut args),
                None => Val::Poison,
            },
        }
    }

    fn style_mix(&mut self, name: &str, style: Style) -> Val {
        match style {
            Style::Lane => self.error_help(
                Code::E_STYLE_MIX,
                format!("expected no lane operation in a group kernel, got `ts.{name}`"),
                "a group kernel works on whole tiles: use ts.tile.program_id and slices",
            ),
            Style::Group | Style::Any => self.error_help(
                Code::E_STYLE_MIX,
                format!("expected no tile operation in a lane kernel, got `ts.{name}`"),
                "this kernel calls a lane id (ts.tile.linear_id, local_id, …), so each value is one scalar per \
                 lane; drop the lane ids to work on tiles",
            ),
        }
    }

    /// The arguments from left to right. `places` names those, by their position, that name a place
    /// in memory and read nothing.
    pub fn arguments(&mut self, c: &ExprCall, places: &[&str]) -> Option<Vec<Given>> {
        let mut out = Vec::new();
        for arg in &c.arguments.args {
            if let Expr::Starred(s) = arg {
                let (loc, text) = (self.place(s.range()), self.frame().parsed.snippet(s.range()));
                for value in self.starred(s)? {
                    out.push(Given { name: None, value, loc: loc.clone(), text: text.clone() });
                }
                continue;
            }
            out.push(self.given(None, arg, out.len() < places.len()));
        }
        for kw in &c.arguments.keywords {
            let Some(name) = &kw.arg else {
                self.error_help(
                    Code::E_SYNTAX,
                    "`**` arguments are not part of the kernel language",
                    "write the arguments out",
                );
                return None;
            };
            let place = places.contains(&name.as_str());
            out.push(self.given(Some(name.to_string()), &kw.value, place));
        }
        Some(out)
    }

    fn given(&mut self, name: Option<String>, e: &Expr, place: bool) -> Given {
        let value = if place { self.place_expr(e) } else { self.expr(e) };
        Given {
            name,
            value,
            loc: self.place(e.range()),
            text: self.frame().parsed.snippet(e.range()),
        }
    }

    /// Elaborates a `@ts.func` in place of its call.
    pub fn inline(&mut self, source: &Arc<FuncSource>, given: Vec<Given>) -> Val {
        if self.frames.iter().any(|f| Arc::ptr_eq(&f.source, source) || f.source == *source) {
            return self.error_help(
                Code::E_GRAPH_INVALID,
                format!("expected no recursion, got a call of `{}` inside itself", source.name),
                "functions are inlined where they are called: write a loop",
            );
        }
        self.inlined += 1;
        if self.is_too_large() {
            return Val::Poison;
        }
        let parsed = match self.parsed(source) {
            Ok(p) => p,
            Err(d) => return self.report(d),
        };
        let call_site = self.loc.clone();
        let mut env = BTreeMap::new();
        let takes = &parsed.def.parameters;
        if let Some(open) = takes.vararg.as_ref().or(takes.kwarg.as_ref()) {
            let stars = if takes.vararg.is_some() { "*" } else { "**" };
            let name: Arc<str> = Arc::from(source.name.as_str());
            let place = parsed.loc(open.range()).inside(&name, &call_site);
            let message = format!("`{stars}{}` is not part of the kernel language", open.name);
            let error = Diagnostic::new(Code::E_SYNTAX, message).at(place);
            return self.report(error.help("write the parameters out; a tuple is one argument"));
        }
        let by_name = takes.posonlyargs.len();
        let by_place = by_name + takes.args.len();
        let names: Vec<String> = takes.iter().map(|p| p.name().to_string()).collect();
        for (place, g) in given.into_iter().enumerate() {
            let slot = match &g.name {
                Some(n) => names.iter().position(|p| p == n).filter(|p| *p >= by_name),
                None => Some(place).filter(|p| *p < by_place),
            };
            match slot {
                Some(slot) if !env.contains_key(&names[slot]) => {
                    env.insert(names[slot].clone(), g.value);
                }
                None if g.name.is_none() && by_place < names.len() => {
                    let message = format!(
                        "`{}` takes at most {by_place} arguments without a name, got one more: `{}`",
                        source.name, g.text
                    );
                    let help = format!("write `{}={}`", names[by_place], g.text);
                    return self
                        .report(Diagnostic::new(Code::E_ARGUMENT, message).at(g.loc).help(help));
                }
                _ => {
                    let known: Vec<&str> = names.iter().map(String::as_str).collect();
                    let g = Given { value: Val::Poison, ..g };
                    let signature = format!("({})", names.join(", "));
                    let d = crate::api::superfluous(&source.name, &signature, &known, &g);
                    return self.report(d);
                }
            }
        }
        self.frames.push(Frame {
            source: source.clone(),
            parsed: parsed.clone(),
            env,
            call_site: call_site.clone(),
            name: Arc::from(source.name.as_str()),
            is_kernel: false,
            assigned: BTreeMap::new(),
        });
        let complete = self.defaults(&parsed, &names, &source.name, &call_site);
        let (block, depth) = (self.block, std::mem::take(&mut self.loop_depth));
        let found = self.found;
        let exits =
            if complete { self.stmts(&parsed.def.body) } else { super::flow::Exits::returned() };
        self.loop_depth = depth;
        self.block = block;
        let returned = self.frames.pop().and_then(|mut f| f.env.remove(RETURN));
        self.loc = call_site.clone();
        // What went wrong inside is the reason for what it does not give.
        if !complete || self.found > found {
            return returned.filter(|_| exits.ret == Flag::Always).unwrap_or(Val::Poison);
        }
        match (returned, &exits.ret) {
            (None | Some(Val::None), _) | (_, Flag::Never) => Val::None,
            (Some(Val::Clash(both)), _) => {
                let message = format!(
                    "expected `{}` to return one type on all paths, got {} and {}",
                    source.name, both.0, both.1
                );
                let name: Arc<str> = Arc::from(source.name.as_str());
                let place = parsed.loc(parsed.def.name.range()).inside(&name, &call_site);
                let error = Diagnostic::new(Code::E_TYPE, message).at(place);
                self.report(error.help("cast one of them: ts.tile.cast(v, …)"))
            }
            (Some(value), Flag::Always) => value,
            // An error where the program uses it.
            (Some(value), Flag::Maybe(_)) => {
                let what = self.describe(&value);
                let none = format!("None, where `{}` ends without a `return`", source.name);
                Val::Clash(Box::new((what, none)))
            }
        }
    }

    /// The syntax tree of a function, read once.
    fn parsed(&mut self, source: &Arc<FuncSource>) -> Result<Arc<Parsed>, Diagnostic> {
        if let Some((_, known)) = self.parsed.iter().find(|(s, _)| Arc::ptr_eq(s, source)) {
            return Ok(known.clone());
        }
        let parsed = Arc::new(Parsed::new(&source.file)?);
        self.parsed.push((source.clone(), parsed.clone()));
        Ok(parsed)
    }

    /// Gives parameters that got no argument their defaults.
    fn defaults(
        &mut self,
        parsed: &Arc<Parsed>,
        names: &[String],
        function: &str,
        call_site: &Loc,
    ) -> bool {
        for (param, name) in parsed.def.parameters.iter().zip(names) {
            if self.env().contains_key(name) {
                continue;
            }
            // Python has evaluated it, once, in the function's own module.
            if let Some(value) = self.frame().source.defaults.get(name).cloned() {
                let value = self.captured(name, &value);
                self.env().insert(name.clone(), value);
                continue;
            }
            match param.default() {
                Some(default) => {
                    let value = self.expr(default);
                    self.env().insert(name.clone(), value);
                }
                None => {
                    let d = Diagnostic::new(
                        Code::E_ARGUMENT,
                        format!("expected a value for `{name}` of `{function}`"),
                    )
                    .help(format!(
                        "call it with {}",
                        names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
                    ));
                    self.report(d.at(call_site.clone()));
                    return false;
                }
            }
        }
        true
    }

    /// The bounds of `range(…)` or `ts.tile.range(…)` at the head of a loop.
    pub fn range_of(&mut self, iter: &Expr) -> Option<Range> {
        let Expr::Call(c) = iter else {
            self.loc = self.place(iter.range());
            self.error_help(
                Code::E_SYNTAX,
                "expected `range(…)` or `ts.tile.range(…)` at the head of the loop",
                "loops count: `for k0 in ts.tile.range(0, K, 32):`",
            );
            return None;
        };
        let target = self.expr(&c.func);
        let is_range =
            matches!(&target, Val::Api(row) if matches!(row.name, "tile.range" | "py.range"));
        if !is_range {
            if target != Val::Poison {
                self.loc = self.place(iter.range());
                let what = self.describe(&target);
                self.error_help(
                    Code::E_SYNTAX,
                    format!("expected `range(…)` at the head of the loop, got {what}"),
                    "loops count: `for i in range(n):`, then index with `i`",
                );
            }
            return None;
        }
        let given = self.arguments(c, &[])?;
        self.loc = self.place(iter.range());
        let mut bounds: Vec<Val> = Vec::new();
        let mut step = None;
        for g in given {
            match g.name.as_deref() {
                None => bounds.push(g.value),
                Some("step") => step = Some(g.value),
                // A hint for the pipeline; it never changes a result.
                Some("prefetch") => {}
                Some(other) => {
                    self.error_help(
                        Code::E_ARGUMENT,
                        format!("expected start, stop, step or prefetch, got `{other}`"),
                        crate::foreign::keyword("tile.range", other)
                            .unwrap_or("write `ts.tile.range(start, stop, step)`"),
                    );
                    return None;
                }
            }
        }
        let (lo, hi, third) = match bounds.len() {
            1 => (Val::int(0), bounds[0].clone(), None),
            2 => (bounds[0].clone(), bounds[1].clone(), None),
            3 => (bounds[0].clone(), bounds[1].clone(), Some(bounds[2].clone())),
            n => {
                self.error_help(
                    Code::E_ARGUMENT,
                    format!("expected 1 to 3 bounds, got {n}"),
                    "write `range(stop)`, `range(start, stop)` or `range(start, stop, step)`",
                );
                return None;
            }
        };
        let step = third.or(step).unwrap_or(Val::int(1));
        if step.as_const_int() == Some(0) {
            self.error_help(
                Code::E_ARGUMENT,
                "expected a step other than 0, got 0",
                "Python would raise ValueError: write `range(start, stop, 1)`",
            );
            return None;
        }
        let known = step.as_const_int();
        // What counts past the last position must be a number of 64 bits.
        let far = known.zip(hi.as_const_int()).is_some_and(|(s, hi)| hi.checked_add(s).is_none());
        let (lo, hi) = (self.bound(&lo)?, self.bound(&hi)?);
        // A size, or a constant that is still open, is a step up.
        let up = known.map_or(matches!(step, Val::Dim(_) | Val::Open(_)), |s| s > 0);
        let by = self.index_value(&step)?;
        if (up && !far) || (known.is_none() && self.is_positive(by)) {
            return Some(Range { lo, hi, step: by, scale: None });
        }
        let iterations = match known {
            Some(s) => self.iterations(lo, hi, by, s > 0),
            None => self.iterations_of_signed_step(lo, hi, by),
        };
        let (zero, one) = (self.b().index(0), self.b().index(1));
        Some(Range { lo: zero, hi: iterations, step: one, scale: Some((lo, by)) })
    }

    /// A bound of a range. What 64 bits with a sign do not hold is beyond every position.
    fn bound(&mut self, v: &Val) -> Option<Value> {
        let value = self.runtime(v)?;
        if *self.ty(value) != Type::Scalar(DType::U64) {
            return self.index_value(v);
        }
        let most = self.b().constant(Type::Scalar(DType::U64), Attr::Int(i64::MAX));
        let value = self.b().ew(ScalarFn::Minimum, &[value, most]);
        Some(self.b().cast(value, DType::I64))
    }

    /// How many positions a range has, going up or down. What is not above 0 is none.
    pub fn iterations(&mut self, lo: Value, hi: Value, step: Value, up: bool) -> Value {
        let (from, to) = if up { (lo, hi) } else { (hi, lo) };
        if self.is_far(lo, hi) {
            return self.iterations_of_far_ends(from, to, step, up);
        }
        let by = if up { step } else { self.b().ew(ScalarFn::Neg, &[step]) };
        let one = self.b().index(1);
        let span = self.b().ew(ScalarFn::Sub, &[to, from]);
        let span = self.b().ew(ScalarFn::Sub, &[span, one]);
        let whole = self.b().ew(ScalarFn::FloorDiv, &[span, by]);
        self.b().ew(ScalarFn::Add, &[whole, one])
    }

    /// Whether a number is so far from 0 that twice it may be no i64.
    pub fn is_large(&self, v: Value) -> bool {
        magnitude(&self.func, v, &Ok) > 62
    }

    /// Whether two positions may be further apart than an i64 says.
    pub fn is_far(&self, lo: Value, hi: Value) -> bool {
        self.is_large(lo) || self.is_large(hi)
    }

    /// The same where the ends may be further apart than an i64 says: their distance is a u64. More
    /// iterations than an i64 counts do not end either way.
    fn iterations_of_far_ends(&mut self, from: Value, to: Value, step: Value, up: bool) -> Value {
        let ends = [from, to, step].map(|v| self.constant_index(v).map(i128::from));
        if let [Some(from), Some(to), Some(step)] = ends {
            let (apart, by) = ((to - from).max(0), step.abs().max(1));
            let count = (apart + by - 1) / by;
            return self.b().index(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let whole = self.whole_steps(from, to, step, up);
        let unsigned = Type::Scalar(DType::U64);
        let (one, most) = (
            self.b().constant(unsigned.clone(), Attr::Int(1)),
            self.b().constant(unsigned, Attr::Int(i64::MAX)),
        );
        let count = self.b().ew(ScalarFn::Add, &[whole, one]);
        let count = self.b().ew(ScalarFn::Minimum, &[count, most]);
        let count = self.bits_as(count, DType::I64);
        let none = self.b().index(0);
        let any = self.b().ew(ScalarFn::Lt, &[from, to]);
        self.b().select(any, count, none)
    }

    /// How many whole steps lie between the first position and the last one before the end, as a
    /// u64, where there is a first one.
    pub fn whole_steps(&mut self, from: Value, to: Value, step: Value, up: bool) -> Value {
        let [from, to, step] = [from, to, step].map(|v| self.bits_as(v, DType::U64));
        let by = if up { step } else { self.b().ew(ScalarFn::Neg, &[step]) };
        let one = self.b().constant(Type::Scalar(DType::U64), Attr::Int(1));
        let span = self.b().ew(ScalarFn::Sub, &[to, from]);
        let span = self.b().ew(ScalarFn::Sub, &[span, one]);
        self.b().ew(ScalarFn::FloorDiv, &[span, by])
    }

    /// The same bits as another integer of 64 bits. Checked mode reports casts that lose a number.
    pub fn bits_as(&mut self, v: Value, dtype: DType) -> Value {
        let spec = OpSpec::new(TileOp::Bitcast, &[v]).result(Type::Scalar(dtype));
        self.b().value(spec).expect("the result type is given")
    }

    fn constant_index(&self, v: Value) -> Option<i64> {
        let op = self.func.def(v).filter(|op| op.code == TileOp::Const)?;
        op.attr("value").and_then(Attr::as_int)
    }

    /// A range as one that counts its iterations, where what follows its last position may be no i64.
    pub fn counted(&mut self, range: Range) -> Range {
        let Range { lo, hi, step, scale: None } = range else { return range };
        let single = self.constant_index(step) == Some(1);
        if single || !self.is_large(hi) && !self.is_large(step) {
            return Range { lo, hi, step, scale: None };
        }
        let hi = self.iterations(lo, hi, step, true);
        let (zero, one) = (self.b().index(0), self.b().index(1));
        Range { lo: zero, hi, step: one, scale: Some((lo, step)) }
    }

    /// The same for a step whose sign is known at run time. A step of 0 is an error, as in Python.
    fn iterations_of_signed_step(&mut self, lo: Value, hi: Value, step: Value) -> Value {
        let zero = self.b().index(0);
        let valid = self.b().ew(ScalarFn::Ne, &[step, zero]);
        let text = Val::Const(Const::Str("expected a step of `range` other than 0".into()));
        self.assertion(&Val::Rt(valid), &text);
        let up = self.b().ew(ScalarFn::Gt, &[step, zero]);
        let down = self.b().ew(ScalarFn::Lt, &[step, zero]);
        let iterations = self.choose(
            up,
            |this| Val::Rt(this.iterations(lo, hi, step, true)),
            |this| {
                this.choose(
                    down,
                    |this| Val::Rt(this.iterations(lo, hi, step, false)),
                    |this| Val::Rt(this.b().index(0)),
                )
            },
        );
        match iterations {
            Val::Rt(v) => v,
            _ => zero,
        }
    }

    /// Whether a number is above 0 wherever it is computed from what every launch has.
    fn is_positive(&self, v: Value) -> bool {
        let Some(op) = self.func.def(v) else { return false };
        let all = || op.operands.iter().all(|&v| self.is_positive(v));
        match op.code {
            TileOp::Const => op.attr("value").and_then(Attr::as_int).is_some_and(|n| n > 0),
            TileOp::NumPrograms | TileOp::GroupSize | TileOp::WarpSize | TileOp::Dim => true,
            TileOp::Cast => {
                let (from, to) = (self.ty(op.operands[0]).dtype(), self.ty(v).dtype());
                from.is_int() && from.bits() <= to.bits() && all()
            }
            TileOp::Ew(ScalarFn::Add | ScalarFn::Mul | ScalarFn::Minimum) => all(),
            TileOp::Ew(ScalarFn::Maximum) => op.operands.iter().any(|&v| self.is_positive(v)),
            _ => false,
        }
    }
}
