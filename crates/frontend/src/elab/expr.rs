//! Expressions.

use super::Elab;
use super::val::{Const, OpenKind, Val};
use ruff_python_ast::{Expr, Int, Number, Operator, UnaryOp};
use ruff_text_size::Ranged;
use tessera_diag::Code;
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
                Number::Int(i) => match integer(i) {
                    Some(v) => Val::Const(Const::Int(v)),
                    None => self.error_help(
                        Code::E_TYPE,
                        format!("expected an integer of at most 127 bits, got {i}"),
                        "the widest integers of kernels have 64 bits",
                    ),
                },
                Number::Float(f) => Val::Const(Const::Float(*f)),
                Number::Complex { .. } => self.error_help(
                    Code::E_UNSUPPORTED,
                    "complex numbers are not supported in kernels",
                    "keep the real and the imaginary part in variables of their own",
                ),
            },
            Expr::BooleanLiteral(b) => Val::Const(Const::Bool(b.value)),
            Expr::NoneLiteral(_) => Val::None,
            Expr::StringLiteral(s) => Val::Const(Const::Str(s.value.to_str().to_string())),
            Expr::Tuple(t) => self.display(&t.elts).map_or(Val::Poison, Val::Tuple),
            Expr::List(t) => self.display(&t.elts).map_or(Val::Poison, Val::Tuple),
            Expr::BinOp(e) => {
                let (a, b) = (self.expr(&e.left), self.expr(&e.right));
                self.operator(e.op, a, b)
            }
            Expr::UnaryOp(e) => self.unary_op(e.op, &e.operand),
            Expr::BoolOp(e) => self.bool_op(e.op, &e.values),
            Expr::Compare(e) => self.compare(&e.left, &e.ops, &e.comparators),
            Expr::If(e) => self.conditional(&e.test, &e.body, &e.orelse),
            // A subscript is a value, read here; `place_expr` handles places.
            Expr::Subscript(s) => {
                let here = self.loc.clone();
                match self.subscript(s) {
                    Val::Block(block) => {
                        self.loc = here;
                        self.load_block(&block).map_or(Val::Poison, Val::Rt)
                    }
                    other => other,
                }
            }
            Expr::Call(c) => self.call(c),
            Expr::Named(n) => {
                let value = self.expr(&n.value);
                self.assign(&n.target, value.clone());
                value
            }
            other => {
                let usual = "a kernel is arithmetic on tiles and scalars, indexing, calls, if, for and while";
                let (what, write) = match other {
                    Expr::Lambda(_) => (
                        "`lambda`",
                        "write `f = ts.func(lambda a, b: a + b)` outside the kernel, and its name here",
                    ),
                    Expr::Dict(_) | Expr::DictComp(_) => {
                        ("a dict", "use a tuple, or variables of their own")
                    }
                    Expr::Set(_) | Expr::SetComp(_) => ("a set", "use a tuple: `x in (1, 2)`"),
                    Expr::ListComp(_) | Expr::Generator(_) => {
                        ("a comprehension", "write a `for` loop, or an operation on a tile")
                    }
                    Expr::FString(_) | Expr::TString(_) => {
                        ("a formatted string", "give the values beside the text: `print(\"x\", v)`")
                    }
                    Expr::Yield(_) | Expr::YieldFrom(_) => ("`yield`", "store into a parameter"),
                    Expr::Await(_) => ("`await`", usual),
                    Expr::Starred(_) => {
                        ("`*` here", "it stands in a call or a tuple: `f(*xs)`, `(*xs, y)`")
                    }
                    _ => ("this expression", usual),
                };
                self.error_help(
                    Code::E_SYNTAX,
                    format!("{what} is not part of the kernel language"),
                    write,
                )
            }
        }
    }

    /// An expression in a position that names a place in memory and reads nothing: the target of an
    /// assignment, and what functions that write take first. What is no subscript is a value.
    pub fn place_expr(&mut self, expr: &Expr) -> Val {
        let Expr::Subscript(s) = expr else { return self.expr(expr) };
        let here = self.place(expr.range());
        let outer = std::mem::replace(&mut self.loc, here);
        let out = self.subscript(s);
        self.loc = outer;
        out
    }

    /// Python's binary operators.
    pub fn operator(&mut self, op: Operator, a: Val, b: Val) -> Val {
        let f = match op {
            Operator::Add if matches!((&a, &b), (Val::Tuple(_), Val::Tuple(_))) => {
                let (Val::Tuple(mut parts), Val::Tuple(more)) = (a, b) else { return Val::Poison };
                parts.extend(more);
                return Val::Tuple(parts);
            }
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
            Operator::MatMult if a == Val::Poison || b == Val::Poison => return Val::Poison,
            Operator::MatMult if matches!(b, Val::Rounding(_)) => {
                return self.with_rounding(&a, &b);
            }
            Operator::MatMult => {
                return self.error_help(
                    Code::E_UNSUPPORTED,
                    "`@` is not an operator of kernels",
                    "write ts.tile.mma(a, b) for the matmul of tiles",
                );
            }
        };
        self.binary_recovering(f, a, b)
    }

    /// Like [`binary`](Self::binary), but a rank mismatch still gives a value of the larger shape.
    pub fn binary_recovering(&mut self, f: ScalarFn, a: Val, b: Val) -> Val {
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
        if op == UnaryOp::Not {
            return match self.condition(operand) {
                Some(Truth::Known(b)) => Val::Const(Const::Bool(!b)),
                Some(Truth::Open) => Val::Open(OpenKind::Bool),
                Some(Truth::Run(v)) => Val::Rt(self.b().ew(ScalarFn::Not, &[v])),
                None => Val::Poison,
            };
        }
        let x = self.expr(operand);
        match op {
            UnaryOp::USub => self.unary(ScalarFn::Neg, x),
            UnaryOp::UAdd => x,
            UnaryOp::Invert => self.unary(ScalarFn::Not, x),
            UnaryOp::Not => Val::Poison,
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
            Val::Record(_) => Some(Truth::Known(true)),
            Val::Tuple(items) => Some(Truth::Known(!items.is_empty())),
            Val::View(view) => {
                let name = crate::source::shown(self.func.name_of(*view).unwrap_or("x"));
                self.error_help(
                    Code::E_TYPE,
                    format!("expected a scalar condition, got the whole parameter `{name}`"),
                    format!("write `{name} is not None` to see whether it was given, or compare an element of it"),
                );
                None
            }
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
                self.not_zero(value, ty.dtype()).map(Truth::Run)
            }
        }
    }

    /// `x is None` and the like, on compile-time values.
    pub fn identity(&mut self, a: &Val, b: &Val, same: bool) -> Val {
        if *a == Val::Poison || *b == Val::Poison {
            return Val::Poison;
        }
        if matches!(a, Val::Open(_)) || matches!(b, Val::Open(_)) {
            return Val::Open(OpenKind::Bool);
        }
        Val::Const(Const::Bool((a == b) == same))
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
                self.error_help(
                    Code::E_SHAPE_MISMATCH,
                    format!(
                        "expected values of one shape, got {} and {}",
                        super::show_shape(&shape),
                        super::show_shape(&other)
                    ), "both sides of `a if c else b` and `where` have one shape: broadcast one with ts.tile.broadcast, or put in an axis with `x[:, None]`");
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

/// An integer literal; ruff keeps those beyond 64 bits as text.
fn integer(i: &Int) -> Option<i128> {
    if let Some(v) = i.as_u64() {
        return Some(v.into());
    }
    let text = i.to_string().replace('_', "");
    let digits = |radix| i128::from_str_radix(&text[2..], radix).ok();
    match text.get(..2).unwrap_or_default() {
        "0x" | "0X" => digits(16),
        "0o" | "0O" => digits(8),
        "0b" | "0B" => digits(2),
        _ => text.parse().ok(),
    }
}

/// What is known of a condition.
pub enum Truth {
    Known(bool),
    /// Compile-time, but not known while checking.
    Open,
    Run(tessera_ir::Value),
}
