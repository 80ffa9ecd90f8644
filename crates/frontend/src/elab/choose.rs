//! Expressions that evaluate only what Python would: `and`, `or`, `a if c else b`, and chained
//! comparisons. They are control flow; see [`Elab::choose`].

use super::Elab;
use super::expr::Truth;
use super::val::{Const, OpenKind, Val};
use ruff_python_ast::{BoolOp, CmpOp, Expr, UnaryOp};
use ruff_text_size::Ranged;
use tessera_diag::Code;
use tessera_ir::{Attr, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::TileBuild;

impl Elab<'_> {
    /// Whether an expression holds: of `and` and `or` only the truth matters, so that their
    /// operands need no common type.
    pub fn condition(&mut self, expr: &Expr) -> Option<Truth> {
        let here = self.place(expr.range());
        let outer = std::mem::replace(&mut self.loc, here);
        let out = match expr {
            Expr::BoolOp(e) => self.all_or_any(e.op, &e.values),
            Expr::UnaryOp(e) if e.op == UnaryOp::Not => match self.condition(&e.operand) {
                Some(Truth::Known(b)) => Some(Truth::Known(!b)),
                Some(Truth::Run(v)) => Some(Truth::Run(self.b().ew(ScalarFn::Not, &[v]))),
                other => other,
            },
            _ => {
                let v = self.expr(expr);
                self.truth(&v)
            }
        };
        self.loc = outer;
        out
    }

    fn all_or_any(&mut self, op: BoolOp, values: &[Expr]) -> Option<Truth> {
        let (first, rest) = values.split_first()?;
        let truth = self.condition(first)?;
        if rest.is_empty() {
            return Some(truth);
        }
        let decides = op == BoolOp::Or;
        let c = match truth {
            Truth::Known(b) if b == decides => return Some(Truth::Known(b)),
            Truth::Known(_) => return self.all_or_any(op, rest),
            Truth::Open => return self.open_rest(op, rest),
            Truth::Run(c) => c,
        };
        let decided = |_: &mut Self| Val::Const(Const::Bool(decides));
        let others = |this: &mut Self| match this.all_or_any(op, rest) {
            None => Val::Poison,
            Some(truth) => this.truth_value(truth),
        };
        let out = match op {
            BoolOp::And => self.choose(c, others, decided),
            BoolOp::Or => self.choose(c, decided, others),
        };
        self.truth(&out)
    }

    /// The left side is not known while checking: the right one is checked as if it could run.
    fn open_rest(&mut self, op: BoolOp, rest: &[Expr]) -> Option<Truth> {
        let c = self.b().constant(Type::BOOL, Attr::Bool(true));
        self.choose(
            c,
            |this| match this.all_or_any(op, rest) {
                None => Val::Poison,
                Some(truth) => this.truth_value(truth),
            },
            |_| Val::Const(Const::Bool(false)),
        );
        Some(Truth::Open)
    }

    pub fn truth_value(&mut self, truth: Truth) -> Val {
        match truth {
            Truth::Known(b) => Val::Const(Const::Bool(b)),
            Truth::Open => Val::Open(OpenKind::Bool),
            Truth::Run(v) => Val::Rt(v),
        }
    }

    /// `a and b`, `a or b` as values: one of the operands, in their common type.
    pub fn bool_op(&mut self, op: BoolOp, values: &[Expr]) -> Val {
        let Some((first, rest)) = values.split_first() else { return Val::Poison };
        let a = self.expr(first);
        if rest.is_empty() {
            return a;
        }
        let decides = op == BoolOp::Or;
        let c = match self.truth(&a) {
            None => return Val::Poison,
            Some(Truth::Known(b)) if b == decides => return a,
            Some(Truth::Known(_)) => return self.bool_op(op, rest),
            Some(Truth::Open) => {
                let c = self.b().constant(Type::BOOL, Attr::Bool(true));
                let (x, y) = (a.clone(), a);
                let mut right = Val::Poison;
                self.choose(
                    c,
                    |this| {
                        right = this.bool_op(op, rest);
                        right.clone()
                    },
                    |_| x,
                );
                return self.open_join(y, right);
            }
            Some(Truth::Run(c)) => c,
        };
        // A bool that decides is known by that.
        let a = match a {
            Val::Rt(v) if *self.ty(v) == Type::BOOL => Val::Const(Const::Bool(decides)),
            Val::Dim(_) | Val::After(_) => match self.runtime(&a) {
                Some(v) => Val::Rt(v),
                None => return Val::Poison,
            },
            other => other,
        };
        let chosen = |_: &mut Self| a;
        let others = |this: &mut Self| this.bool_op(op, rest);
        match op {
            BoolOp::And => self.choose(c, others, chosen),
            BoolOp::Or => self.choose(c, chosen, others),
        }
    }

    /// `a < b < c`: each operand is evaluated once, and none after a comparison that failed. On
    /// tiles the comparisons are combined element by element.
    pub fn compare(&mut self, left: &Expr, ops: &[CmpOp], rest: &[Expr]) -> Val {
        let a = self.expr(left);
        self.compare_from(a, ops, rest)
    }

    fn compare_from(&mut self, a: Val, ops: &[CmpOp], rest: &[Expr]) -> Val {
        let (Some((op, ops)), Some((right, rest))) = (ops.split_first(), rest.split_first()) else {
            return Val::Poison;
        };
        let b = self.expr(right);
        // Evaluated once, also where a second comparison uses it.
        let b = match b {
            Val::After(_) => self.runtime(&b).map_or(Val::Poison, Val::Rt),
            other => other,
        };
        let one = self.compare_two(*op, &a, &b);
        if ops.is_empty() || one == Val::Poison {
            return one;
        }
        if let Val::Rt(v) = one
            && self.ty(v).rank() > 0
        {
            let more = self.compare_from(b, ops, rest);
            return self.binary(ScalarFn::And, one, more);
        }
        match self.truth(&one) {
            None => Val::Poison,
            Some(Truth::Known(false)) => one,
            Some(Truth::Known(true)) => self.compare_from(b, ops, rest),
            Some(Truth::Open) => {
                let more = self.compare_from(b, ops, rest);
                self.open_join(Val::Open(OpenKind::Bool), more)
            }
            Some(Truth::Run(c)) => {
                let failed = |_: &mut Self| Val::Const(Const::Bool(false));
                self.choose(c, |this| this.compare_from(b, ops, rest), failed)
            }
        }
    }

    fn compare_two(&mut self, op: CmpOp, a: &Val, b: &Val) -> Val {
        let f = match op {
            CmpOp::Is | CmpOp::IsNot => return self.identity(a, b, op == CmpOp::Is),
            CmpOp::In | CmpOp::NotIn => return self.is_among(a, b, op == CmpOp::In),
            CmpOp::Eq => ScalarFn::Eq,
            CmpOp::NotEq => ScalarFn::Ne,
            CmpOp::Lt => ScalarFn::Lt,
            CmpOp::LtE => ScalarFn::Le,
            CmpOp::Gt => ScalarFn::Gt,
            CmpOp::GtE => ScalarFn::Ge,
        };
        self.binary_recovering(f, a.clone(), b.clone())
    }

    /// `a in (b, c)`: whether it equals one of them. They are values: nothing is left to evaluate.
    fn is_among(&mut self, a: &Val, items: &Val, wanted: bool) -> Val {
        let found = match (a, items) {
            (Val::Poison, _) | (_, Val::Poison) => return Val::Poison,
            (_, Val::Open(_)) => return Val::Open(OpenKind::Bool),
            (Val::Const(Const::Str(part)), Val::Const(Const::Str(text))) => {
                Val::Const(Const::Bool(text.contains(part.as_str())))
            }
            (_, Val::Tuple(items)) => {
                let mut found = Val::Const(Const::Bool(false));
                for item in items {
                    let same = match (a, item) {
                        // Of what is no number the compiler knows what it is.
                        (
                            Val::Const(Const::Str(_) | Const::DType(_)) | Val::None,
                            Val::Const(_) | Val::None,
                        )
                        | (
                            Val::Const(_),
                            Val::Const(Const::Str(_) | Const::DType(_)) | Val::None,
                        ) => Val::Const(Const::Bool(a == item)),
                        _ => self.binary(ScalarFn::Eq, a.clone(), item.clone()),
                    };
                    found = match (&found, &same) {
                        (Val::Const(Const::Bool(false)), _) => same,
                        (Val::Const(Const::Bool(true)), _) => found,
                        (_, Val::Const(Const::Bool(true))) => same,
                        (_, Val::Const(Const::Bool(false))) => found,
                        (Val::Open(_), _) | (_, Val::Open(_)) => Val::Open(OpenKind::Bool),
                        _ => self.binary(ScalarFn::Or, found, same),
                    };
                }
                found
            }
            _ => {
                let what = self.describe(items);
                return self.error_help(
                    Code::E_TYPE,
                    format!("expected a tuple behind `in`, got {what}"),
                    "write the values out: `x in (1, 2)`; of a tile, ts.tile.any(t == x)",
                );
            }
        };
        match found {
            Val::Const(Const::Bool(b)) => Val::Const(Const::Bool(b == wanted)),
            Val::Rt(_) if !wanted => self.unary(ScalarFn::Not, found),
            other => other,
        }
    }

    /// `x if c else y`.
    pub fn conditional(&mut self, test: &Expr, body: &Expr, orelse: &Expr) -> Val {
        match self.condition(test) {
            None => Val::Poison,
            Some(Truth::Known(true)) => self.expr(body),
            Some(Truth::Known(false)) => self.expr(orelse),
            Some(Truth::Open) => {
                let (a, b) = (self.expr(body), self.expr(orelse));
                if a == b { a } else { self.open_join(a, b) }
            }
            Some(Truth::Run(c)) => self.choose(
                c,
                |this| {
                    this.bound_by(test, true);
                    this.expr(body)
                },
                |this| {
                    this.bound_by(test, false);
                    this.expr(orelse)
                },
            ),
        }
    }

    /// Either of two values, while which one is not known: a value of their common type.
    pub fn open_join(&mut self, a: Val, b: Val) -> Val {
        match (&a, &b) {
            (Val::Poison, _) | (_, Val::Poison) => Val::Poison,
            (
                Val::Const(_) | Val::Dim(_) | Val::Open(_),
                Val::Const(_) | Val::Dim(_) | Val::Open(_),
            ) => {
                let kinds = [super::arith::open_kind(&a), super::arith::open_kind(&b)];
                let known = kinds.into_iter().flatten();
                Val::Open(
                    known
                        .reduce(|a, b| if a == b { a } else { OpenKind::Other })
                        .unwrap_or(OpenKind::Other),
                )
            }
            _ => match self.unify(&[a, b], None) {
                Some(values) => Val::Rt(values[0]),
                None => Val::Poison,
            },
        }
    }

    /// A bool that holds where a value of any dtype is not zero.
    pub fn not_zero(&mut self, value: Value, dtype: DType) -> Option<Value> {
        let zero = self.scalar(&Const::Int(0), dtype.compute())?;
        let value = self.b().cast(value, dtype.compute());
        Some(self.b().ew(ScalarFn::Ne, &[value, zero]))
    }
}
