//! Loops whose items are known at compile time: `ts.static_range`, tuples, lists, constant tables,
//! and `enumerate`, `zip` and `reversed` of them. The body is elaborated once for each item.

use super::call::Range;
use super::flow::{Exits, Flag};
use super::val::{Const, OpenKind, Val};
use super::{Elab, Mode};
use ruff_python_ast::{Expr, ExprCall, StmtFor};
use ruff_text_size::Ranged;
use tessera_diag::Code;
use tessera_ir::Dim;
use tessera_numerics::ScalarFn;
use tessera_tile::TileBuild;

/// What stands at the head of a loop.
pub enum Iterable {
    /// Counted at run time.
    Range(Range),
    /// Known at compile time.
    Items(Vec<Val>),
}

/// More rounds than this are a mistake: every one is a copy of the body.
const MOST_ROUNDS: i64 = 1 << 14;

impl Elab<'_> {
    /// What a loop goes over; `None` where it was refused.
    pub fn iterable(&mut self, iter: &Expr) -> Option<Iterable> {
        let Expr::Call(c) = iter else {
            let v = self.expr(iter);
            self.loc = self.place(iter.range());
            return self.items_of(&v).map(Iterable::Items);
        };
        let name = match self.expr(&c.func) {
            Val::Api(row) => row.name,
            _ => "",
        };
        match name {
            "static_range" => self.static_range(c).map(Iterable::Items),
            "py.reversed" => self.reversed(c),
            "py.enumerate" | "py.zip" => self.paired(c, name).map(Iterable::Items),
            "tile.range" | "py.range" => self.range_of(iter).map(Iterable::Range),
            _ => {
                let v = self.expr(iter);
                self.loc = self.place(iter.range());
                self.items_of(&v).map(Iterable::Items)
            }
        }
    }

    /// The items of a tuple or of a constant table, or the letters of a string.
    pub fn items_of(&mut self, v: &Val) -> Option<Vec<Val>> {
        match v {
            Val::Tuple(items) => Some(items.clone()),
            Val::Const(Const::Str(text)) => {
                let letter = |c: char| Val::Const(Const::Str(c.into()));
                Some(text.chars().map(letter).collect())
            }
            Val::Poison => None,
            Val::View(view) if self.tables.iter().any(|(_, known)| known == view) => {
                let (view, dims) = (*view, self.ty(*view).shape().to_vec());
                if let [Dim::Static(size)] = dims[..] {
                    return (0..size).map(|i| self.table_constant(view, &[i])).collect();
                }
                self.error_help(
                    Code::E_UNSUPPORTED,
                    "expected a table of rank 1 at the head of the loop",
                    "count, and index with the position: `for i in range(n):`",
                );
                None
            }
            other => {
                let what = self.describe(other);
                self.error_help(
                    Code::E_SYNTAX,
                    format!("expected `range(…)`, `ts.static_range(…)` or a tuple at the head of the loop, got {what}"),
                    "loops count: `for k0 in ts.tile.range(0, K, 32):`, then index with the position",
                );
                None
            }
        }
    }

    /// The positions of `ts.static_range(…)`, with the meaning of Python's `range`.
    fn static_range(&mut self, c: &ExprCall) -> Option<Vec<Val>> {
        let given = self.arguments(c, &[])?;
        self.loc = self.place(c.range());
        let mut bounds: Vec<Val> = Vec::new();
        for g in given {
            match g.name.as_deref() {
                None => bounds.push(g.value),
                Some("step") if bounds.len() < 3 => {
                    if bounds.len() == 1 {
                        bounds.insert(0, Val::int(0));
                    }
                    bounds.push(g.value);
                }
                Some(other) => {
                    self.error_help(
                        Code::E_ARGUMENT,
                        format!("expected start, stop and step, got `{other}`"),
                        "write `ts.static_range(start, stop, step)`",
                    );
                    return None;
                }
            }
        }
        if bounds.is_empty() || bounds.len() > 3 {
            self.error_help(
                Code::E_ARGUMENT,
                format!("expected 1 to 3 bounds, got {}", bounds.len()),
                "write `ts.static_range(stop)` or `ts.static_range(start, stop, step)`",
            );
            return None;
        }
        if bounds.len() == 1 {
            bounds.insert(0, Val::int(0));
        }
        if bounds.len() == 2 {
            bounds.push(Val::int(1));
        }
        let mut known = Vec::new();
        for v in &bounds {
            match self.known_int(v) {
                Known::Number(n) => known.push(n),
                // While a kernel is only checked, one round stands for all.
                Known::Open => return Some(vec![Val::Open(OpenKind::Int)]),
                Known::No => return None,
            }
        }
        let (start, stop, step) = (known[0], known[1], known[2]);
        if step == 0 {
            self.error_help(
                Code::E_ARGUMENT,
                "expected a step other than 0, got 0",
                "Python would raise ValueError: write `ts.static_range(start, stop, 1)`",
            );
            return None;
        }
        let span = i128::from(stop) - i128::from(start);
        let step_wide = i128::from(step);
        let rounds = ((span + step_wide - step_wide.signum()) / step_wide).max(0);
        if rounds > i128::from(MOST_ROUNDS) {
            self.error_help(
                Code::E_TOO_LARGE,
                format!("expected at most {MOST_ROUNDS} rounds of an unrolled loop, got {rounds}"),
                "every round is a copy of the body: write `range` for a loop of run time",
            );
            return None;
        }
        Some(
            (0..rounds)
                .map(|i| Val::Const(Const::Int(i128::from(start) + i * step_wide)))
                .collect(),
        )
    }

    /// An integer that must be known at compile time.
    fn known_int(&mut self, v: &Val) -> Known {
        if let Some(n) = v.as_const_int() {
            return Known::Number(n);
        }
        match v {
            Val::Poison => Known::No,
            Val::Open(_) => Known::Open,
            Val::Dim(e) => match self.static_dim(e) {
                Some(Dim::Static(n)) => Known::Number(n),
                Some(_) => Known::Open,
                None => Known::No,
            },
            Val::Rt(value) if self.mode == Mode::Check && self.depends_on_open(*value) => {
                Known::Open
            }
            other => {
                let what = self.describe(other);
                self.error_help(
                    Code::E_TYPE,
                    format!("expected a compile-time integer, got {what}"),
                    "`ts.static_range` is unrolled: use `range` for a bound of run time",
                );
                Known::No
            }
        }
    }

    /// `reversed(…)` of a range, which counts down, or of items.
    fn reversed(&mut self, c: &ExprCall) -> Option<Iterable> {
        let [inner] = &*c.arguments.args else {
            self.loc = self.place(c.range());
            self.error_help(
                Code::E_ARGUMENT,
                format!("`reversed` takes one argument, got {}", c.arguments.len()),
                "write `reversed(range(n))`",
            );
            return None;
        };
        Some(match self.iterable(inner)? {
            Iterable::Items(mut items) => {
                items.reverse();
                Iterable::Items(items)
            }
            Iterable::Range(r) => {
                self.loc = self.place(c.range());
                // The range counts its iterations already, or does so from here on.
                let (first, step, count) = match r.scale {
                    Some((first, step)) => (first, step, r.hi),
                    None => (r.lo, r.step, self.iterations(r.lo, r.hi, r.step, true)),
                };
                let one = self.b().index(1);
                let last = self.b().ew(ScalarFn::Sub, &[count, one]);
                let far = self.b().ew(ScalarFn::Mul, &[last, step]);
                let end = self.b().ew(ScalarFn::Add, &[first, far]);
                let back = self.b().ew(ScalarFn::Neg, &[step]);
                let zero = self.b().index(0);
                Iterable::Range(Range { lo: zero, hi: count, step: one, scale: Some((end, back)) })
            }
        })
    }

    /// `enumerate(…)` and `zip(…)` of items that are known.
    fn paired(&mut self, c: &ExprCall, name: &str) -> Option<Vec<Val>> {
        let mut lists = Vec::new();
        let counts = name == "py.enumerate";
        let takes = if counts { 1 } else { c.arguments.args.len() };
        for arg in c.arguments.args.iter().take(takes) {
            match self.iterable(arg)? {
                Iterable::Items(items) => lists.push(items),
                Iterable::Range(_) => {
                    self.loc = self.place(arg.range());
                    self.error_help(
                        Code::E_UNSUPPORTED,
                        "expected items that are known at compile time here, got a range of run time",
                        "count by `range` alone, and compute the other positions from it",
                    );
                    return None;
                }
            }
        }
        self.loc = self.place(c.range());
        if counts {
            if lists.is_empty() {
                self.error_help(
                    Code::E_ARGUMENT,
                    "`enumerate` needs a tuple to number",
                    "write `for i, x in enumerate(items):`",
                );
                return None;
            }
            let start = c.arguments.find_argument_value("start", 1).map(|e| self.expr(e));
            let first = match start.as_ref().map(|v| self.known_int(v)) {
                None => 0,
                Some(Known::Number(n)) => n,
                Some(Known::Open | Known::No) => return None,
            };
            let items = lists.pop().unwrap_or_default().into_iter().enumerate();
            let number = |i: usize| Val::Const(Const::Int(i128::from(first) + i as i128));
            let pair = |(i, v)| Val::Tuple(vec![number(i), v]);
            return Some(items.map(pair).collect());
        }
        let rounds = lists.iter().map(Vec::len).min().unwrap_or(0);
        Some(
            (0..rounds).map(|i| Val::Tuple(lists.iter().map(|l| l[i].clone()).collect())).collect(),
        )
    }

    /// The body once for each item, then the `else` where no round was left by `break`.
    pub fn unrolled(&mut self, s: &StmtFor, items: &[Val]) -> Exits {
        self.loop_depth += 1;
        let outer_breaks = std::mem::take(&mut self.breaks);
        let exits = self.rounds(s, items);
        self.breaks = outer_breaks;
        self.loop_depth -= 1;
        let out = Exits { ret: exits.ret.clone(), ..Exits::none() };
        if s.orelse.is_empty() || exits.brk == Flag::Always || exits.ret == Flag::Always {
            return out;
        }
        let Some(left) = self.left(&exits) else {
            let later = self.stmts(&s.orelse);
            return self.either(out, later);
        };
        let later = self.branch(left, |_| Exits::none(), |this| this.stmts(&s.orelse));
        self.either(out, later)
    }

    fn rounds(&mut self, s: &StmtFor, items: &[Val]) -> Exits {
        for (place, item) in items.iter().enumerate() {
            if self.is_too_large() {
                break;
            }
            self.assign(&s.target, item.clone());
            let mut exits = self.stmts(&s.body);
            // `continue` ends one round.
            exits.cont = Flag::Never;
            if exits.always() {
                return exits;
            }
            // Where this round may leave the loop, the others are what comes after.
            if let Some(left) = self.left(&exits) {
                let rest = &items[place + 1..];
                let later = self.rest_with(left, &exits, |this| this.rounds(s, rest));
                return self.either(exits, later);
            }
        }
        Exits::none()
    }
}

enum Known {
    Number(i64),
    /// Not known while a kernel is only checked.
    Open,
    /// Reported.
    No,
}
