//! Extents that are only known as expressions: when two are the same, and arithmetic whose results
//! look the same when they are.
//!
//! An expression is brought to a sum of products with integer factors; what is no sum or product
//! (`cdiv(n, 2)`, `min(n, 8)`) stands in it as one factor. Two extents are the same where these sums
//! are equal. That is enough for shapes made by slicing, padding, joining and reshaping.

use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_ir::{Attr, AttrKind, Attrs, Dim, DimExpr, DimOp, OpInfo, Shape, Type};

/// The expression that replaces each symbol.
pub type Symbols = BTreeMap<Arc<str>, DimExpr>;

/// Sums of more products than this are not expanded: nested text could have 2^100 of them.
const MOST_PRODUCTS: usize = 256;

/// Factors in order, and how often their product is taken.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Sum(BTreeMap<Vec<DimExpr>, i64>);

impl Sum {
    fn constant(v: i64) -> Sum {
        Sum(if v == 0 { BTreeMap::new() } else { BTreeMap::from([(Vec::new(), v)]) })
    }

    fn atom(e: DimExpr) -> Sum {
        Sum(BTreeMap::from([(vec![e], 1)]))
    }

    /// `None` where a factor leaves 64 bits.
    fn plus(&self, other: &Sum, times: i64) -> Option<Sum> {
        let mut out = self.0.clone();
        for (key, &v) in &other.0 {
            let slot = out.entry(key.clone()).or_insert(0);
            *slot = slot.checked_add(v.checked_mul(times)?)?;
        }
        out.retain(|_, v| *v != 0);
        Some(Sum(out))
    }

    /// `None` also where the products are too many to be worth it: the expression then stands as one
    /// factor.
    fn times(&self, other: &Sum) -> Option<Sum> {
        if self.0.len() * other.0.len() > MOST_PRODUCTS {
            return None;
        }
        let mut out = Sum::default();
        for (a, &x) in &self.0 {
            for (b, &y) in &other.0 {
                let mut key: Vec<_> = a.iter().chain(b).cloned().collect();
                key.sort();
                let one = Sum(BTreeMap::from([(key, x.checked_mul(y)?)]));
                out = out.plus(&one, 1)?;
            }
        }
        Some(out)
    }

    /// Rounded division by a positive number: products that divide go out of the rounding.
    fn divide(&self, op: DimOp, by: i64) -> Option<Sum> {
        let (whole, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.0.clone().into_iter().partition(|(_, v)| v % by == 0);
        let whole = Sum(whole.into_iter().map(|(k, v)| (k, v / by)).collect());
        let rest = match Sum(rest).expr() {
            DimExpr::Const(v) => Sum::constant(op.eval(v, by)?),
            rest => Sum::atom(DimExpr::bin(op, rest, DimExpr::Const(by))),
        };
        whole.plus(&rest, 1)
    }

    /// The quotient by one product that divides every product of the sum without rest: `6 * n * m` by
    /// `2 * n`. An extent that is divided by is not 0.
    fn quotient(&self, by: &Sum) -> Option<Sum> {
        let mut terms = by.0.iter();
        let (Some((divisor, &size)), None) = (terms.next(), terms.next()) else { return None };
        let mut out = Sum::default();
        for (key, &v) in &self.0 {
            let mut rest = key.clone();
            for factor in divisor {
                rest.remove(rest.iter().position(|f| f == factor)?);
            }
            if v % size != 0 {
                return None;
            }
            out = out.plus(&Sum(BTreeMap::from([(rest, v / size)])), 1)?;
        }
        Some(out)
    }

    /// Whether it is 0 or more whatever the extents are: symbols stand for extents.
    fn is_natural(&self) -> bool {
        let factor = |e: &DimExpr| match e {
            DimExpr::Const(v) => *v >= 0,
            DimExpr::Sym(_) => true,
            DimExpr::Bin(DimOp::FloorDiv | DimOp::CeilDiv, a, b) => {
                Sum::of(a).is_natural() && Sum::of(b).is_natural()
            }
            DimExpr::Bin(DimOp::Mod, _, b) => Sum::of(b).is_natural(),
            DimExpr::Bin(DimOp::Max, a, b) => Sum::of(a).is_natural() || Sum::of(b).is_natural(),
            DimExpr::Bin(DimOp::Min, a, b) => Sum::of(a).is_natural() && Sum::of(b).is_natural(),
            DimExpr::Bin(DimOp::Add | DimOp::Sub | DimOp::Mul, ..) => false,
        };
        self.0.iter().all(|(key, &v)| v >= 0 && key.iter().all(factor))
    }

    fn of(e: &DimExpr) -> Sum {
        let sum = match e {
            DimExpr::Const(v) => Some(Sum::constant(*v)),
            DimExpr::Sym(_) => None,
            DimExpr::Bin(op, a, b) => {
                let (a, b) = (Sum::of(a), Sum::of(b));
                match (op, b.expr()) {
                    (DimOp::Add, _) => a.plus(&b, 1),
                    (DimOp::Sub, _) => a.plus(&b, -1),
                    (DimOp::Mul, _) => a.times(&b),
                    (DimOp::FloorDiv | DimOp::CeilDiv, DimExpr::Const(by)) if by > 0 => {
                        a.divide(*op, by)
                    }
                    (DimOp::FloorDiv | DimOp::CeilDiv, _) if a.quotient(&b).is_some() => {
                        a.quotient(&b)
                    }
                    (DimOp::Mod, _) if a.quotient(&b).is_some() => Some(Sum::default()),
                    (DimOp::Max, DimExpr::Const(..=0)) if a.is_natural() => Some(a),
                    (
                        DimOp::FloorDiv | DimOp::CeilDiv | DimOp::Mod | DimOp::Min | DimOp::Max,
                        b,
                    ) => Some(match DimExpr::bin(*op, a.expr(), b) {
                        DimExpr::Const(v) => Sum::constant(v),
                        e => Sum::atom(e),
                    }),
                }
            }
        };
        sum.unwrap_or_else(|| Sum::atom(e.clone()))
    }

    /// Products in order, the constant last.
    fn expr(&self) -> DimExpr {
        let mut out: Option<DimExpr> = None;
        let named = self.0.iter().filter(|(k, _)| !k.is_empty());
        for (key, &v) in named.chain(self.0.iter().filter(|(k, _)| k.is_empty())) {
            let minus = v < 0 && out.is_some() && v != i64::MIN;
            let size = DimExpr::Const(if minus { -v } else { v });
            let product = match key.split_first() {
                None => size,
                Some((first, rest)) => {
                    let product = rest
                        .iter()
                        .fold(first.clone(), |a, b| DimExpr::bin(DimOp::Mul, a, b.clone()));
                    DimExpr::bin(DimOp::Mul, size, product)
                }
            };
            let op = if minus { DimOp::Sub } else { DimOp::Add };
            out = Some(match out {
                None => product,
                Some(before) => DimExpr::bin(op, before, product),
            });
        }
        out.unwrap_or(DimExpr::Const(0))
    }
}

/// The one spelling of an expression.
pub fn simplify(e: &DimExpr) -> DimExpr {
    Sum::of(e).expr()
}

pub fn expr_of(dim: &Dim) -> Option<DimExpr> {
    match dim {
        Dim::Static(v) => Some(DimExpr::Const(*v)),
        Dim::Expr(e) => Some(e.clone()),
        Dim::Any => None,
    }
}

/// `a op b`, simplified; unknown where one of them is.
pub fn compute(op: DimOp, a: &Dim, b: &Dim) -> Dim {
    match (expr_of(a), expr_of(b)) {
        (Some(a), Some(b)) => Dim::from(simplify(&DimExpr::bin(op, a, b))),
        _ => Dim::Any,
    }
}

/// The product of extents.
pub fn count(shape: &[Dim]) -> Dim {
    shape.iter().fold(Dim::Static(1), |a, b| compute(DimOp::Mul, &a, b))
}

/// Whether two extents are the same; an unknown one agrees with everything.
pub fn same(a: &Dim, b: &Dim) -> bool {
    match (expr_of(a), expr_of(b)) {
        (Some(x), Some(y)) => a == b || Sum::of(&x) == Sum::of(&y),
        _ => true,
    }
}

pub fn same_shape(a: &[Dim], b: &[Dim]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

/// Types that differ at most in how their extents are written, and in numeric policy.
pub fn same_type(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Tensor { dims: x, .. }, Type::Tensor { dims: y, .. }) => {
            a.dtype() == b.dtype() && same_shape(x, y)
        }
        _ => a == b,
    }
}

/// Of two extents that agree, the one that says more.
pub fn known(a: &Dim, b: &Dim) -> Dim {
    match a {
        Dim::Any => b.clone(),
        Dim::Static(_) | Dim::Expr(_) => a.clone(),
    }
}

/// `[4, n]`, as errors show shapes.
pub fn show(shape: &[Dim]) -> String {
    let list: Vec<_> = shape.iter().map(Dim::to_string).collect();
    format!("[{}]", list.join(", "))
}

pub fn substitute(e: &DimExpr, symbols: &Symbols) -> DimExpr {
    match e {
        DimExpr::Const(_) => e.clone(),
        DimExpr::Sym(s) => symbols.get(s).cloned().unwrap_or_else(|| e.clone()),
        DimExpr::Bin(op, a, b) => {
            simplify(&DimExpr::bin(*op, substitute(a, symbols), substitute(b, symbols)))
        }
    }
}

pub fn substitute_type(ty: &Type, symbols: &Symbols) -> Type {
    match ty {
        Type::Tensor { dims, elem } => {
            let dims: Shape = dims
                .iter()
                .map(|d| expr_of(d).map_or(Dim::Any, |e| Dim::from(substitute(&e, symbols))))
                .collect();
            Type::Tensor { dims, elem: *elem }
        }
        ty => ty.clone(),
    }
}

/// The attributes of an op with the symbols in its dimension expressions replaced. A word is a
/// symbol only where the op's row says so.
pub fn substitute_attrs<L: tessera_ir::Level>(
    attrs: &Attrs,
    row: &OpInfo<L>,
    symbols: &Symbols,
) -> Attrs {
    let mut out = Attrs::new();
    for (name, attr) in attrs.iter() {
        let kind = row.attrs.iter().find(|a| a.name == name).map(|a| a.kind);
        let one =
            |a: &Attr| a.as_expr().map_or_else(|| a.clone(), |e| substitute(&e, symbols).into());
        let new = match (kind, attr) {
            (Some(AttrKind::Expr), a) => one(a),
            (Some(AttrKind::Exprs), Attr::List(items)) => {
                Attr::List(items.iter().map(one).collect())
            }
            (_, a) => a.clone(),
        };
        out.set(name, new);
    }
    out
}

/// What the symbols of `params` stand for when the arguments have these types. `Err` holds the first
/// pair that does not fit.
pub fn bind(params: &[Type], args: &[Type]) -> Result<Symbols, (Type, Type)> {
    let mut symbols = Symbols::new();
    for (param, arg) in params.iter().zip(args) {
        if param.rank() != arg.rank() {
            return Err((param.clone(), arg.clone()));
        }
        for (p, a) in param.shape().iter().zip(arg.shape()) {
            if let (Dim::Expr(DimExpr::Sym(s)), Some(e)) = (p, expr_of(a)) {
                symbols.entry(s.clone()).or_insert(e);
            }
        }
    }
    for (param, arg) in params.iter().zip(args) {
        if !same_type(&substitute_type(param, &symbols), arg) {
            return Err((param.clone(), arg.clone()));
        }
    }
    Ok(symbols)
}
