//! Attributes: compile-time parameters of an op or function. They are kept in the order of the op's
//! table, so that equal ops print equally.

use crate::{DimExpr, Type};
use std::fmt;

#[derive(Clone, Debug)]
pub enum Attr {
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(String),
    /// A bare word: a choice from a closed set, a dtype or a symbol.
    Word(String),
    /// A reference to a function, printed `@name`.
    Ref(String),
    /// A dimension expression that is neither an integer nor a bare symbol.
    Expr(DimExpr),
    Type(Type),
    List(Vec<Attr>),
    Dict(Attrs),
}

impl PartialEq for Attr {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Attr::Bool(a), Attr::Bool(b)) => a == b,
            (Attr::Int(a), Attr::Int(b)) => a == b,
            // By bits: -0.0 and 0.0 are different constants, and NaN equals itself.
            (Attr::Float(a), Attr::Float(b)) => {
                a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
            }
            (Attr::Str(a), Attr::Str(b))
            | (Attr::Word(a), Attr::Word(b))
            | (Attr::Ref(a), Attr::Ref(b)) => a == b,
            (Attr::Expr(a), Attr::Expr(b)) => a == b,
            (Attr::Type(a), Attr::Type(b)) => a == b,
            (Attr::List(a), Attr::List(b)) => a == b,
            (Attr::Dict(a), Attr::Dict(b)) => a == b,
            _ => false,
        }
    }
}

impl Attr {
    pub fn word(text: impl Into<String>) -> Self {
        Attr::Word(text.into())
    }

    pub fn ints(values: impl IntoIterator<Item = i64>) -> Self {
        Attr::List(values.into_iter().map(Attr::Int).collect())
    }

    pub fn words<S: Into<String>>(values: impl IntoIterator<Item = S>) -> Self {
        Attr::List(values.into_iter().map(|w| Attr::Word(w.into())).collect())
    }

    pub fn exprs(values: impl IntoIterator<Item = DimExpr>) -> Self {
        Attr::List(values.into_iter().map(Attr::from).collect())
    }

    /// Along one axis the expression itself, along several a list.
    pub fn extents(values: impl IntoIterator<Item = DimExpr>) -> Self {
        let mut values: Vec<DimExpr> = values.into_iter().collect();
        match values.len() {
            1 => values.remove(0).into(),
            _ => Self::exprs(values),
        }
    }

    pub fn as_int(&self) -> Option<i64> {
        if let Attr::Int(v) = self { Some(*v) } else { None }
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Attr::Bool(v) = self { Some(*v) } else { None }
    }

    /// A float, or an integer where a float is wanted.
    pub fn as_float(&self) -> Option<f64> {
        match self {
            Attr::Float(v) => Some(*v),
            Attr::Int(v) => Some(*v as f64),
            _ => None,
        }
    }

    pub fn as_word(&self) -> Option<&str> {
        if let Attr::Word(w) = self { Some(w) } else { None }
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Attr::Str(s) = self { Some(s) } else { None }
    }

    pub fn as_ref_name(&self) -> Option<&str> {
        if let Attr::Ref(s) = self { Some(s) } else { None }
    }

    pub fn as_list(&self) -> Option<&[Attr]> {
        if let Attr::List(items) = self { Some(items) } else { None }
    }

    pub fn as_dict(&self) -> Option<&Attrs> {
        if let Attr::Dict(items) = self { Some(items) } else { None }
    }

    pub fn as_ints(&self) -> Option<Vec<i64>> {
        self.as_list()?.iter().map(Attr::as_int).collect()
    }

    /// An integer, a symbol, or an expression of them.
    pub fn as_expr(&self) -> Option<DimExpr> {
        match self {
            Attr::Int(v) => Some(DimExpr::Const(*v)),
            Attr::Word(w) => Some(DimExpr::sym(w)),
            Attr::Expr(e) => Some(e.clone()),
            _ => None,
        }
    }

    pub fn as_exprs(&self) -> Option<Vec<DimExpr>> {
        self.as_list()?.iter().map(Attr::as_expr).collect()
    }

    /// What [`Attr::extents`] made.
    pub fn as_extents(&self) -> Option<Vec<DimExpr>> {
        let several = || self.as_exprs().filter(|list| list.len() > 1);
        self.as_expr().map(|one| vec![one]).or_else(several)
    }
}

impl From<DimExpr> for Attr {
    fn from(e: DimExpr) -> Self {
        match e {
            DimExpr::Const(v) => Attr::Int(v),
            DimExpr::Sym(s) => Attr::Word(s.to_string()),
            e => Attr::Expr(e),
        }
    }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Bool(v) => write!(f, "{v}"),
            Attr::Int(v) => write!(f, "{v}"),
            Attr::Float(v) if v.is_nan() => f.write_str("nan"),
            Attr::Float(v) => write!(f, "{v:?}"),
            Attr::Str(s) => write!(f, "{s:?}"),
            Attr::Word(w) => f.write_str(w),
            Attr::Ref(r) => write!(f, "@{r}"),
            Attr::Expr(e) => write!(f, "{e}"),
            Attr::Type(t) => write!(f, "{t}"),
            Attr::List(items) => {
                f.write_str("[")?;
                for (i, item) in items.iter().enumerate() {
                    write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str("]")
            }
            Attr::Dict(items) => write!(f, "{items}"),
        }
    }
}

/// Named attributes in a fixed order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attrs {
    items: Vec<(String, Attr)>,
}

impl Attrs {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn with(mut self, name: &str, value: Attr) -> Self {
        self.set(name, value);
        self
    }

    pub fn get(&self, name: &str) -> Option<&Attr> {
        self.items.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    pub fn set(&mut self, name: &str, value: Attr) {
        match self.items.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => self.items.push((name.to_string(), value)),
        }
    }

    pub fn remove(&mut self, name: &str) -> Option<Attr> {
        let place = self.items.iter().position(|(n, _)| n == name)?;
        Some(self.items.remove(place).1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attr)> {
        self.items.iter().map(|(n, v)| (n.as_str(), v))
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the attributes stand in the order that [`Attrs::arrange`] gives.
    pub fn is_arranged(&self, names: &[&str]) -> bool {
        let place = |n: &str| names.iter().position(|known| *known == n).unwrap_or(names.len());
        self.items.is_sorted_by_key(|(n, _)| place(n))
    }

    /// Puts the attributes into the order of `names`; others follow in the order they have.
    pub fn arrange(&mut self, names: &[&str]) {
        self.items
            .sort_by_key(|(n, _)| names.iter().position(|known| known == n).unwrap_or(names.len()));
    }
}

impl fmt::Display for Attrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, (name, value)) in self.items.iter().enumerate() {
            write!(f, "{}{name} = {value}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("}")
    }
}
