//! A kernel's parameters, read once at decoration.

use crate::dims::parse_dim;
use crate::place;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Loc};
pub use tessera_frontend::show_dim;
use tessera_frontend::{Capture, KernelDecl, ParamKind};
use tessera_ir::DimExpr;
use tessera_numerics::{DType, NumType};

#[derive(Clone)]
pub enum Kind {
    Array {
        /// `None` for any shape; a dim that is `None` has any size.
        dims: Option<Vec<Option<DimExpr>>>,
        elem: Option<NumType>,
        out: bool,
    },
    Scalar(DType),
    /// The Python type's name.
    Const(String),
    Function,
    Any,
}

#[derive(Clone)]
pub struct Param {
    pub name: String,
    /// The name as Python writes it: `p.x`, `xs[0]`.
    pub shown: String,
    pub kind: Kind,
    /// Whether `None` may be given.
    pub optional: bool,
    pub default: Option<Capture>,
    pub loc: Loc,
}

#[derive(Clone)]
pub struct Params {
    pub items: Vec<Param>,
    /// The compile-time integers that dims are made of, by their places.
    pub sizes: Vec<usize>,
    pub kernel: String,
    pub loc: Loc,
}

impl Params {
    pub fn new(decl: &KernelDecl) -> Self {
        let (file, name): (&Arc<_>, &str) = (&decl.source.file, &decl.source.name);
        let items = decl.params.iter().map(|p| Param {
            name: p.name.clone(),
            shown: p.shown(),
            kind: kind(&p.kind),
            optional: p.optional,
            default: p.default.clone(),
            loc: place::of_param(file, name, p.name.split('.').next().unwrap_or_default()),
        });
        let (kernel, loc) = (name.into(), place::of_function(file, name));
        let mut out = Self { items: items.collect(), sizes: Vec::new(), kernel, loc };
        let used: BTreeSet<Arc<str>> = out.dims().flat_map(|d| d.symbols()).collect();
        let is_size = |p: &Param| {
            matches!(&p.kind, Kind::Const(ty) if ty == "int") && used.contains(&*p.name)
        };
        out.sizes = (0..out.items.len()).filter(|&i| is_size(&out.items[i])).collect();
        out
    }

    /// The parameters with numbers for the compile-time integers that dims are made of.
    pub fn with_sizes(&self, value: &dyn Fn(&str) -> Option<i64>) -> Self {
        let mut out = self.clone();
        let names: Vec<&str> = self.sizes.iter().map(|&i| self.items[i].name.as_str()).collect();
        for param in &mut out.items {
            if let Kind::Array { dims: Some(dims), .. } = &mut param.kind {
                for dim in dims.iter_mut().flatten() {
                    *dim = dim.substitute(&|s| if names.contains(&s) { value(s) } else { None });
                }
            }
        }
        out
    }

    /// Whether an annotation makes a size of the name.
    pub fn has_symbol(&self, name: &str) -> bool {
        self.dims().any(|d| d.symbols().iter().any(|s| **s == *name))
    }

    pub fn position(&self, name: &str) -> Option<usize> {
        self.items.iter().position(|p| p.name == name)
    }

    /// Every dim that an annotation names, as expressions, in order.
    pub fn dims(&self) -> impl Iterator<Item = &DimExpr> {
        self.items.iter().flat_map(|p| match &p.kind {
            Kind::Array { dims: Some(dims), .. } => dims.iter().flatten().collect(),
            _ => Vec::new(),
        })
    }

    /// Whether a dim is one of optional arrays only that are not given.
    pub fn is_absent(&self, name: &str, consts: &BTreeMap<String, Capture>) -> bool {
        let of = |p: &&Param| match &p.kind {
            Kind::Array { dims: Some(dims), .. } => dims
                .iter()
                .flatten()
                .any(|d| d.to_string() == name || d.symbols().iter().any(|s| **s == *name)),
            _ => false,
        };
        let mut all = self.items.iter().filter(of).peekable();
        all.peek().is_some() && all.all(|p| consts.get(&p.name) == Some(&Capture::None))
    }

    /// `saxpy(x, y, alpha)`.
    pub fn signature(&self) -> String {
        // Parts of a record or a list are one parameter there.
        let mut names: Vec<_> =
            self.items.iter().filter_map(|p| p.name.split('.').next()).collect();
        names.dedup();
        format!("{}({})", self.kernel, names.join(", "))
    }
}

impl Param {
    /// Whether it is an array without axes.
    pub fn is_point(&self) -> bool {
        matches!(&self.kind, Kind::Array { dims: Some(dims), .. } if dims.is_empty())
    }

    pub fn error(&self, code: Code, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(code, message).at(self.loc.clone())
    }

    /// The annotated shape as text: `(M, K)`.
    pub fn shape_text(&self) -> String {
        let Kind::Array { dims: Some(dims), .. } = &self.kind else { return "any shape".into() };
        let text = |d: &Option<DimExpr>| d.as_ref().map_or("?".into(), show_dim);
        match dims.as_slice() {
            [one] => format!("({},)", text(one)),
            dims => format!("({})", dims.iter().map(text).collect::<Vec<_>>().join(", ")),
        }
    }
}

fn kind(kind: &ParamKind) -> Kind {
    match kind {
        ParamKind::Tensor { dims, elem, out, .. } => Kind::Array {
            dims: dims.as_ref().map(|dims| dims.iter().map(|d| parse_dim(d)).collect()),
            elem: *elem,
            out: *out,
        },
        ParamKind::Scalar(dtype) => Kind::Scalar(*dtype),
        ParamKind::Const(name) => Kind::Const(name.clone()),
        ParamKind::Function => Kind::Function,
        ParamKind::Any => Kind::Any,
    }
}
