//! Integer expressions over dimension symbols that the host evaluates at launch: grid extents,
//! product dims such as `B*H`, lane domains.

use std::fmt;
use std::sync::Arc;

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DimOp {
    Add,
    Sub,
    Mul,
    FloorDiv,
    CeilDiv,
    Mod,
    Min,
    Max,
}

impl DimOp {
    pub const ALL: [DimOp; 8] = [
        DimOp::Add,
        DimOp::Sub,
        DimOp::Mul,
        DimOp::FloorDiv,
        DimOp::CeilDiv,
        DimOp::Mod,
        DimOp::Min,
        DimOp::Max,
    ];

    /// An infix sign, or the name of a two-argument function.
    pub fn text(self) -> &'static str {
        match self {
            DimOp::Add => "+",
            DimOp::Sub => "-",
            DimOp::Mul => "*",
            DimOp::FloorDiv => "floordiv",
            DimOp::CeilDiv => "cdiv",
            DimOp::Mod => "mod",
            DimOp::Min => "min",
            DimOp::Max => "max",
        }
    }

    /// `None` on overflow. Division and remainder by zero give 0, as everywhere in the language.
    pub fn eval(self, a: i64, b: i64) -> Option<i64> {
        let floor_div = |a: i64, b: i64| {
            if b == 0 {
                return Some(0);
            }
            let q = a.checked_div(b)?;
            Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
        };
        match self {
            DimOp::Add => a.checked_add(b),
            DimOp::Sub => a.checked_sub(b),
            DimOp::Mul => a.checked_mul(b),
            DimOp::FloorDiv => floor_div(a, b),
            DimOp::CeilDiv => floor_div(a.checked_neg()?, b)?.checked_neg(),
            DimOp::Mod => {
                Some(if b == 0 { 0 } else { a.checked_sub(floor_div(a, b)?.checked_mul(b)?)? })
            }
            DimOp::Min => Some(a.min(b)),
            DimOp::Max => Some(a.max(b)),
        }
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DimExpr {
    Const(i64),
    Sym(Arc<str>),
    Bin(DimOp, Arc<DimExpr>, Arc<DimExpr>),
}

impl DimExpr {
    pub fn sym(name: &str) -> Self {
        DimExpr::Sym(Arc::from(name))
    }

    /// Builds `a op b`, folding constants and units so that equal things tend to look equal.
    pub fn bin(op: DimOp, a: DimExpr, b: DimExpr) -> Self {
        if let (DimExpr::Const(x), DimExpr::Const(y)) = (&a, &b)
            && let Some(v) = op.eval(*x, *y)
        {
            return DimExpr::Const(v);
        }
        match (op, &a, &b) {
            (DimOp::Add, DimExpr::Const(0), _) | (DimOp::Mul, DimExpr::Const(1), _) => b,
            (DimOp::Add | DimOp::Sub, _, DimExpr::Const(0)) => a,
            (DimOp::Mul | DimOp::FloorDiv | DimOp::CeilDiv, _, DimExpr::Const(1)) => a,
            (DimOp::Min | DimOp::Max, x, y) if x == y => a,
            // Divided twice, rounded to the same side each time, is divided once.
            (DimOp::CeilDiv | DimOp::FloorDiv, DimExpr::Bin(inner, x, by), DimExpr::Const(d))
                if *inner == op =>
            {
                match **by {
                    DimExpr::Const(c) if c > 0 && *d > 0 && c.checked_mul(*d).is_some() => {
                        DimExpr::bin(op, (**x).clone(), DimExpr::Const(c * d))
                    }
                    _ => DimExpr::Bin(op, Arc::new(a), Arc::new(b)),
                }
            }
            _ => DimExpr::Bin(op, Arc::new(a), Arc::new(b)),
        }
    }

    pub fn ceil_div(self, by: i64) -> Self {
        DimExpr::bin(DimOp::CeilDiv, self, DimExpr::Const(by))
    }

    /// `Err` names the symbol that has no value, or says that the arithmetic left 64 bits.
    pub fn eval(&self, bind: &dyn Fn(&str) -> Option<i64>) -> Result<i64, String> {
        match self {
            DimExpr::Const(v) => Ok(*v),
            DimExpr::Sym(name) => bind(name).ok_or_else(|| format!("`{name}` has no value")),
            DimExpr::Bin(op, a, b) => op
                .eval(a.eval(bind)?, b.eval(bind)?)
                .ok_or_else(|| format!("`{self}` does not fit 64 bits")),
        }
    }

    /// Replaces symbols that `bind` knows by their values.
    pub fn substitute(&self, bind: &dyn Fn(&str) -> Option<i64>) -> DimExpr {
        match self {
            DimExpr::Const(_) => self.clone(),
            DimExpr::Sym(name) => bind(name).map_or_else(|| self.clone(), DimExpr::Const),
            DimExpr::Bin(op, a, b) => DimExpr::bin(*op, a.substitute(bind), b.substitute(bind)),
        }
    }

    /// Every symbol in it, in order of first appearance.
    pub fn symbols(&self) -> Vec<Arc<str>> {
        fn walk(e: &DimExpr, out: &mut Vec<Arc<str>>) {
            match e {
                DimExpr::Const(_) => {}
                DimExpr::Sym(s) => {
                    if !out.contains(s) {
                        out.push(s.clone());
                    }
                }
                DimExpr::Bin(_, a, b) => {
                    walk(a, out);
                    walk(b, out);
                }
            }
        }
        let mut out = Vec::new();
        walk(self, &mut out);
        out
    }
}

impl fmt::Display for DimExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DimExpr::Const(v) => write!(f, "{v}"),
            DimExpr::Sym(s) => f.write_str(s),
            DimExpr::Bin(op @ (DimOp::Add | DimOp::Sub | DimOp::Mul), a, b) => {
                write!(f, "({a} {} {b})", op.text())
            }
            DimExpr::Bin(op, a, b) => write!(f, "{}({a}, {b})", op.text()),
        }
    }
}
