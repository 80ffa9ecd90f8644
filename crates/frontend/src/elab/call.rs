//! Calls: functions of the API, and `@ts.func` functions, which are inlined.

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
use tessera_ir::{OpSpec, Value};
use tessera_tile::{KernelKind, TileOp};

/// An argument as given.
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
            Val::Opaque(name) if name.contains("calls itself") => self.error_help(
                Code::E_GRAPH_INVALID,
                "expected no recursion: functions are inlined where they are called",
                "write a loop",
            ),
            other => {
                let what = self.describe(&other);
                // A module's function is what it is called there; a bare name may be anybody's.
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
    fn arguments(&mut self, c: &ExprCall, places: &[&str]) -> Option<Vec<Given>> {
        let mut out = Vec::new();
        for (position, arg) in c.arguments.args.iter().enumerate() {
            if let Expr::Starred(s) = arg {
                self.loc = self.place(s.range());
                self.error_help(
                    Code::E_SYNTAX,
                    "`*` arguments are not part of the kernel language",
                    "write the arguments out",
                );
                return None;
            }
            out.push(self.given(None, arg, position < places.len()));
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
        let parsed = match Parsed::new(&source.file) {
            Ok(p) => Arc::new(p),
            Err(d) => return self.report(d),
        };
        let call_site = self.loc.clone();
        let mut env = BTreeMap::new();
        let names: Vec<String> =
            parsed.def.parameters.iter().map(|p| p.name().to_string()).collect();
        for (place, g) in given.into_iter().enumerate() {
            let slot = match &g.name {
                Some(n) => names.iter().position(|p| p == n),
                None => Some(place).filter(|p| *p < names.len()),
            };
            match slot {
                Some(slot) if !env.contains_key(&names[slot]) => {
                    env.insert(names[slot].clone(), g.value);
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
            result: None,
            assigned: BTreeMap::new(),
        });
        let complete = self.defaults(&parsed, &names, &source.name, &call_site);
        let (block, depth) = (self.block, std::mem::take(&mut self.loop_depth));
        let found = self.found;
        let exits =
            if complete { self.stmts(&parsed.def.body) } else { super::flow::Exits::returned() };
        self.loop_depth = depth;
        let partly = self.left(&exits).is_some();
        self.block = block;
        let frame = self.frames.pop();
        self.loc = call_site.clone();
        // What went wrong inside is the reason for what it does not give.
        let failed = self.found > found;
        if partly && failed {
            return Val::Poison;
        }
        if partly {
            let message = format!(
                "expected `{}` to return at its end, got a return under a run-time condition",
                source.name
            );
            let name: Arc<str> = Arc::from(source.name.as_str());
            let place = parsed.loc(parsed.def.name.range()).inside(&name, &call_site);
            let error = Diagnostic::new(Code::E_UNSUPPORTED, message).at(place);
            return self.report(error.help("use `a if c else b` or ts.tile.where(c, a, b)"));
        }
        let nothing = if complete && !failed { Val::None } else { Val::Poison };
        frame.and_then(|f| f.result).unwrap_or(nothing)
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
    pub fn range_of(&mut self, iter: &Expr) -> Option<(Value, Value, Value)> {
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
        if let Some(s) = step.as_const_int()
            && s <= 0
        {
            self.error_help(
                Code::E_ARGUMENT,
                format!("expected a positive step, got {s}"),
                "count up, and turn the index around: `for i in range(n): j = n - 1 - i`",
            );
            return None;
        }
        Some((self.index_value(&lo)?, self.index_value(&hi)?, self.index_value(&step)?))
    }
}
