//! Expressions.

use super::Elab;
use super::val::{Const, OpenKind, Val};
use ruff_python_ast::{BoolOp, CmpOp, Expr, Number, Operator, UnaryOp};
use ruff_text_size::Ranged;
use tessera_diag::Code;
use tessera_ir::Type;
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::TileBuild;

impl Elab<'_> {
    /// What an expression stands for; ops it needs are put at the end of the current block.
    pub fn expr(&mut self, expr: &Expr) -> Val {
        let here = self.place(expr.range());
        let outer = std::mem::replace(&mut self.loc, here);
        let out = self.expr_here(expr);
        self.loc = outer;
        out
    }

    fn expr_here(&mut self, expr: &Expr) -> Val {
        match expr {
            Expr::Name(n) => self.name(n.id.as_str()),
            Expr::Attribute(a) => self.attribute(a),
            Expr::NumberLiteral(n) => match &n.value {
                Number::Int(i) => match i.as_i64() {
                    Some(v) => Val::int(v),
                    None => self.error(Code::E_TYPE, "expected an integer of 64 bits"),
                },
                Number::Float(f) => Val::Const(Const::Float(*f)),
                Number::Complex { .. } => {
                    self.error(Code::E_UNSUPPORTED, "complex numbers are not supported in kernels")
                }
            },
            Expr::BooleanLiteral(b) => Val::Const(Const::Bool(b.value)),
            Expr::NoneLiteral(_) => Val::None,
            Expr::StringLiteral(s) => Val::Const(Const::Str(s.value.to_str().to_string())),
            Expr::Tuple(t) => Val::Tuple(t.elts.iter().map(|e| self.expr(e)).collect()),
            Expr::List(t) => Val::Tuple(t.elts.iter().map(|e| self.expr(e)).collect()),
            Expr::BinOp(e) => {
                let (a, b) = (self.expr(&e.left), self.expr(&e.right));
                self.operator(e.op, a, b)
            }
            Expr::UnaryOp(e) => self.unary_op(e.op, &e.operand),
            Expr::BoolOp(e) => self.bool_op(e.op, &e.values),
            Expr::Compare(e) => self.compare(&e.left, &e.ops, &e.comparators),
            Expr::If(e) => self.conditional(&e.test, &e.body, &e.orelse),
            Expr::Subscript(s) => self.subscript(s),
            Expr::Call(c) => self.call(c),
            Expr::Named(n) => {
                let value = self.expr(&n.value);
                self.assign(&n.target, value.clone());
                value
            }
            other => {
                let what = match other {
                    Expr::Lambda(_) => "`lambda`",
                    Expr::Dict(_) | Expr::DictComp(_) => "a dict",
                    Expr::Set(_) | Expr::SetComp(_) => "a set",
                    Expr::ListComp(_) | Expr::Generator(_) => "a comprehension",
                    Expr::FString(_) | Expr::TString(_) => "a formatted string",
                    Expr::Yield(_) | Expr::YieldFrom(_) => "`yield`",
                    Expr::Await(_) => "`await`",
                    Expr::Starred(_) => "`*`",
                    _ => "this expression",
                };
                self.error_help(
                    Code::E_SYNTAX,
                    format!("{what} is not part of the kernel language"),
                    "a kernel is arithmetic on tiles and scalars, indexing, calls, if, for and while",
                )
            }
        }
    }

    /// Python's binary operators.
    pub fn operator(&mut self, op: Operator, a: Val, b: Val) -> Val {
        let f = match op {
            Operator::Add => ScalarFn::Add,
            Operator::Sub => ScalarFn::Sub,
            Operator::Mult => ScalarFn::Mul,
            Operator::Div => ScalarFn::Div,
            Operator::Mod => ScalarFn::Mod,
            Operator::Pow => ScalarFn::Pow,
            Operator::LShift => ScalarFn::Shl,
            Operator::RShift => ScalarFn::Shr,
            Operator::BitOr => ScalarFn::Or,
            Operator::BitXor => ScalarFn::Xor,
            Operator::BitAnd => ScalarFn::And,
            Operator::FloorDiv => ScalarFn::FloorDiv,
            Operator::MatMult => {
                return self.error_help(
                    Code::E_UNSUPPORTED,
                    "`@` is not an operator of kernels",
                    "write ts.tile.mma(a, b) for a product of tiles",
                );
            }
        };
        self.binary_recovering(f, a, b)
    }

    /// Like [`binary`](Self::binary), but a rank mismatch still gives a value of the larger shape.
    fn binary_recovering(&mut self, f: ScalarFn, a: Val, b: Val) -> Val {
        if let (Some(x), Some(y)) = (self.tile_rank(&a), self.tile_rank(&b))
            && x != y
            && x > 0
            && y > 0
        {
            let (Some(x), Some(y)) = (self.runtime(&a), self.runtime(&b)) else {
                return Val::Poison;
            };
            let operands = [Val::Rt(x), Val::Rt(y)];
            self.apply(f, &operands);
            return self.recovered(f, &operands);
        }
        self.binary(f, a, b)
    }

    fn tile_rank(&self, v: &Val) -> Option<usize> {
        match v {
            Val::Rt(x) => Some(self.ty(*x).rank()),
            Val::Buf { buf, .. } => Some(self.ty(*buf).rank()),
            _ => None,
        }
    }

    fn unary_op(&mut self, op: UnaryOp, operand: &Expr) -> Val {
        let x = self.expr(operand);
        match op {
            UnaryOp::USub => self.unary(ScalarFn::Neg, x),
            UnaryOp::UAdd => x,
            UnaryOp::Invert => self.unary(ScalarFn::Not, x),
            UnaryOp::Not => match self.truth(&x) {
                Some(Truth::Known(b)) => Val::Const(Const::Bool(!b)),
                Some(Truth::Open) => Val::Open(OpenKind::Bool),
                Some(Truth::Run(v)) => Val::Rt(self.b().ew(ScalarFn::Not, &[v])),
                None => Val::Poison,
            },
        }
    }

    /// A condition: a scalar, by LANGUAGE 2. A tile is refused with what to write.
    pub fn truth(&mut self, v: &Val) -> Option<Truth> {
        match v {
            Val::Const(Const::Bool(b)) => Some(Truth::Known(*b)),
            Val::Const(Const::Int(i)) => Some(Truth::Known(*i != 0)),
            Val::Const(Const::Float(x)) => Some(Truth::Known(*x != 0.0)),
            Val::Const(Const::Str(s)) => Some(Truth::Known(!s.is_empty())),
            Val::None => Some(Truth::Known(false)),
            Val::Func(_) | Val::Api(_) => Some(Truth::Known(true)),
            Val::Open(_) => Some(Truth::Open),
            Val::Poison => None,
            other => {
                let value = self.runtime(other)?;
                let ty = self.ty(value).clone();
                if ty.rank() > 0 {
                    let what = super::describe_type(&ty);
                    self.error_help(
                        Code::E_TYPE,
                        format!("expected a scalar condition, got {what}"),
                        "use ts.tile.where(c, a, b), a store with mask=c, or ts.tile.any(c) / ts.tile.all(c); \
                         combine tile conditions with & | ~",
                    );
                    return None;
                }
                if ty.dtype() == DType::Bool {
                    return Some(Truth::Run(value));
                }
                let zero = self.convert(&Val::int(0), ty.dtype().compute(), &[])?;
                let value = self.b().cast(value, ty.dtype().compute());
                Some(Truth::Run(self.b().ew(ScalarFn::Ne, &[value, zero])))
            }
        }
    }

    fn bool_op(&mut self, op: BoolOp, values: &[Expr]) -> Val {
        let mut open = false;
        let mut run: Option<tessera_ir::Value> = None;
        for expr in values {
            let v = self.expr(expr);
            match self.truth(&v) {
                None => return Val::Poison,
                Some(Truth::Open) => open = true,
                // A known operand either decides or drops out.
                Some(Truth::Known(b)) if b == (op == BoolOp::Or) && run.is_none() && !open => {
                    return Val::Const(Const::Bool(b));
                }
                Some(Truth::Known(b)) if b == (op == BoolOp::Or) => {
                    let c = self.b().constant(Type::BOOL, tessera_ir::Attr::Bool(b));
                    run = Some(c);
                }
                Some(Truth::Known(_)) => {}
                Some(Truth::Run(v)) => {
                    let f = if op == BoolOp::And { ScalarFn::And } else { ScalarFn::Or };
                    run = Some(match run {
                        Some(before) => self.b().ew(f, &[before, v]),
                        None => v,
                    });
                }
            }
        }
        match run {
            Some(v) => Val::Rt(v),
            None if open => Val::Open(OpenKind::Bool),
            None => Val::Const(Const::Bool(op == BoolOp::And)),
        }
    }

    fn compare(&mut self, left: &Expr, ops: &[CmpOp], rest: &[Expr]) -> Val {
        let mut out: Option<Val> = None;
        let mut a = self.expr(left);
        for (op, right) in ops.iter().zip(rest) {
            let b = self.expr(right);
            let one = match op {
                CmpOp::Is | CmpOp::IsNot => self.identity(&a, &b, *op == CmpOp::Is),
                CmpOp::In | CmpOp::NotIn => {
                    self.error(Code::E_SYNTAX, "`in` is not part of the kernel language")
                }
                _ => {
                    let f = match op {
                        CmpOp::Eq => ScalarFn::Eq,
                        CmpOp::NotEq => ScalarFn::Ne,
                        CmpOp::Lt => ScalarFn::Lt,
                        CmpOp::LtE => ScalarFn::Le,
                        CmpOp::Gt => ScalarFn::Gt,
                        _ => ScalarFn::Ge,
                    };
                    self.binary_recovering(f, a.clone(), b.clone())
                }
            };
            out = Some(match out {
                None => one,
                Some(before) => self.binary(ScalarFn::And, before, one),
            });
            a = b;
        }
        out.unwrap_or(Val::Poison)
    }

    /// `x is None` and the like, on compile-time values.
    fn identity(&mut self, a: &Val, b: &Val, same: bool) -> Val {
        if *a == Val::Poison || *b == Val::Poison {
            return Val::Poison;
        }
        if matches!(a, Val::Open(_)) || matches!(b, Val::Open(_)) {
            return Val::Open(OpenKind::Bool);
        }
        Val::Const(Const::Bool((a == b) == same))
    }

    /// `x if c else y`.
    fn conditional(&mut self, test: &Expr, body: &Expr, orelse: &Expr) -> Val {
        let c = self.expr(test);
        match self.truth(&c) {
            None => Val::Poison,
            Some(Truth::Known(true)) => self.expr(body),
            Some(Truth::Known(false)) => self.expr(orelse),
            Some(Truth::Open) => {
                let (a, b) = (self.expr(body), self.expr(orelse));
                if a == b { a } else { self.open_join(a, b) }
            }
            Some(Truth::Run(c)) => {
                let (a, b) = (self.expr(body), self.expr(orelse));
                self.select(c, a, b)
            }
        }
    }

    /// Either of two values, while which one is not known: a value of their common type.
    fn open_join(&mut self, a: Val, b: Val) -> Val {
        match (&a, &b) {
            (Val::Poison, _) | (_, Val::Poison) => Val::Poison,
            (
                Val::Const(_) | Val::Dim(_) | Val::Open(_),
                Val::Const(_) | Val::Dim(_) | Val::Open(_),
            ) => self.binary(ScalarFn::Add, Val::Open(OpenKind::Int), a),
            _ => match self.unify(&[a, b], None) {
                Some(values) => Val::Rt(values[0]),
                None => Val::Poison,
            },
        }
    }

    /// Takes `a` where the scalar or tile condition holds.
    pub fn select(&mut self, c: tessera_ir::Value, a: Val, b: Val) -> Val {
        if a == Val::Poison || b == Val::Poison {
            return Val::Poison;
        }
        let same = |e: &Self, v: &Val| match v {
            Val::Rt(x) => Some(e.ty(*x).dtype()),
            _ => None,
        };
        // Two values of one storage dtype are chosen between without conversion.
        let storage = match (same(self, &a), same(self, &b)) {
            (Some(x), Some(y)) if x == y && x.is_storage_only() => Some(x),
            _ => None,
        };
        let cond_shape = self.ty(c).shape().to_vec();
        let Some(mut values) = self.unify(&[a, b], None) else { return Val::Poison };
        if let Some(d) = storage {
            values = values.into_iter().map(|v| self.b().cast(v, d)).collect();
        }
        let mut c = c;
        if !cond_shape.is_empty() {
            let Some(all) = self.unify_shapes(&[c, values[0], values[1]]) else {
                return Val::Poison;
            };
            c = all[0];
            values = all[1..].to_vec();
        }
        Val::Rt(self.b().select(c, values[0], values[1]))
    }

    /// Brings values to one shape, each keeping its dtype.
    pub fn unify_shapes(&mut self, values: &[tessera_ir::Value]) -> Option<Vec<tessera_ir::Value>> {
        let mut shape: Vec<tessera_ir::Dim> = Vec::new();
        for &v in values {
            let other = self.ty(v).shape().to_vec();
            if shape.is_empty() {
                shape = other;
                continue;
            }
            if other.is_empty() {
                continue;
            }
            let fits = other.len() == shape.len()
                && shape
                    .iter()
                    .zip(&other)
                    .all(|(a, b)| a.is_one() || b.is_one() || a.may_equal(b));
            if !fits {
                self.error(
                    Code::E_SHAPE_MISMATCH,
                    format!(
                        "expected values of one shape, got {} and {}",
                        super::show_shape(&shape),
                        super::show_shape(&other)
                    ),
                );
                return None;
            }
            for (a, b) in shape.iter_mut().zip(other) {
                if a.is_one() {
                    *a = b;
                }
            }
        }
        Some(values.iter().map(|&v| self.b().broadcast(v, shape.clone())).collect())
    }
}

/// What is known of a condition.
pub enum Truth {
    Known(bool),
    /// Compile-time, but not known while checking.
    Open,
    Run(tessera_ir::Value),
}
