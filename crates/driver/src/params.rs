//! A kernel's parameters, read once at decoration.

use crate::dims::parse_dim;
use crate::place;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_frontend::{Capture, KernelDecl, ParamKind};
use tessera_ir::DimExpr;
use tessera_numerics::{DType, NumType};

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

pub struct Param {
    pub name: String,
    pub kind: Kind,
    pub default: Option<Capture>,
    pub loc: Loc,
}

pub struct Params {
    pub items: Vec<Param>,
    pub kernel: String,
    pub loc: Loc,
}

impl Params {
    pub fn new(decl: &KernelDecl) -> Self {
        let (file, name): (&Arc<_>, &str) = (&decl.source.file, &decl.source.name);
        let items = decl.params.iter().map(|p| Param {
            name: p.name.clone(),
            kind: kind(&p.kind),
            default: p.default.clone(),
            loc: place::of_param(file, name, &p.name),
        });
        Self { items: items.collect(), kernel: name.into(), loc: place::of_function(file, name) }
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

    /// `saxpy(x, y, alpha)`.
    pub fn signature(&self) -> String {
        let names: Vec<_> = self.items.iter().map(|p| p.name.as_str()).collect();
        format!("{}({})", self.kernel, names.join(", "))
    }
}

impl Param {
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

/// A dim as the user wrote it: products without parentheses.
pub fn show_dim(dim: &DimExpr) -> String {
    dim.to_string().replace(['(', ')'], "").replace(" * ", "*")
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
