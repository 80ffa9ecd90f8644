//! Name resolution: locals, then dimension symbols, then captures, then an implicit tile origin,
//! then `math` and the few built-in functions of Python that kernels may use.

use super::Elab;
use super::val::{Const, Val};
use crate::{api, foreign};
use ruff_python_ast::{Expr, ExprAttribute};
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::DimExpr;

/// Python's built-in functions that kernels may call, by the row that does the work.
const BUILTINS: [&str; 13] = [
    "range",
    "min",
    "max",
    "abs",
    "float",
    "int",
    "bool",
    "len",
    "round",
    "pow",
    "reversed",
    "enumerate",
    "zip",
];

/// Fixes for what no table knows.
const ALL_FUNCTIONS: &str = "docs/functions.md lists the functions that kernels have";
const FOREIGN_MODULE: &str =
    "kernels are written with the functions of ts.tile: docs/functions.md lists them";
const FOREIGN_OBJECT: &str = "Python objects do not exist inside a kernel: make what it needs a parameter, or compute a number outside the kernel";
const MEMBERS: &str =
    "tiles and arrays have `shape`, `dtype` and `T`; everything else is a function of ts.tile";

impl Elab<'_> {
    pub fn name(&mut self, id: &str) -> Val {
        match self.frame().env.get(id) {
            Some(Val::Unset(loc) | Val::Maybe(_, loc)) => {
                let loc = loc.clone();
                return self.name_unset(id, loc);
            }
            Some(Val::Clash(both)) => {
                let both = both.clone();
                return self.error_help(
                    Code::E_TYPE,
                    format!(
                        "expected `{id}` to have one type on both paths, got {} and {}",
                        both.0, both.1
                    ),
                    "cast one of them, or use two names",
                );
            }
            Some(v @ Val::After(_)) => {
                let v = v.clone();
                let out = self.read_after(&v, true);
                return out;
            }
            Some(v) => return v.clone(),
            None => {}
        }
        if let Some(v) = self.symbol(id) {
            return v;
        }
        if let Some(c) = self.frame().source.captures.get(id).cloned() {
            return self.captured(id, &c);
        }
        if id.starts_with("tile_") && id.len() > 5 {
            return Val::Origin(id.to_string());
        }
        if id == "math" {
            return Val::Namespace("math".into());
        }
        if BUILTINS.contains(&id)
            && let Some(row) = api::find(&format!("py.{id}"))
        {
            return Val::Api(row);
        }
        if self.factors.contains(id) {
            return self.error_help(
                Code::E_NAME,
                format!("`{id}` has no value: it stands only in a product dimension, which binds the product"),
                format!("pass it as a parameter: `{id}: int`"),
            );
        }
        if let Some(param) = self.absent.get(id) {
            let message = format!(
                "`{id}` has no value here: it is a dimension of `{param}`, which is None in this call"
            );
            let help = format!("read it where `{param}` is given: `if {param} is not None:`");
            return self.error_help(Code::E_NAME, message, help);
        }
        if id == "print"
            && let Some(row) = api::find("tile.print")
        {
            return Val::Api(row);
        }
        if let Some(write) = foreign::python(id) {
            return self.error_help(
                Code::E_NAME,
                format!("`{id}` is Python's and is not part of the kernel language"),
                write,
            );
        }
        if crate::names::assigned(&self.frame().parsed.def.body).contains(id) {
            return self.error_help(
                Code::E_NAME,
                format!("`{id}` is read before it has a value"),
                format!("assign `{id}` before: what an iteration of a loop leaves, the first one does not have"),
            );
        }
        let mut known: Vec<String> = self.frame().env.keys().cloned().collect();
        known.extend(self.symbols.iter().cloned());
        known.extend(self.frame().source.captures.keys().filter(|k| !k.contains('.')).cloned());
        let d = Diagnostic::new(Code::E_NAME, format!("`{id}` is not defined here"));
        let near = foreign::closest(id, known.iter().map(String::as_str));
        let d = match (near, foreign::path(id)) {
            (Some(near), _) => d.help(format!("did you mean `{near}`?")),
            (None, Some(write)) => d.help(write),
            (None, None) if foreign::module(id).is_some() => d.help(FOREIGN_MODULE),
            (None, None) => d.help(
                "names in a kernel are its variables, the dimension symbols of its annotations, and Python \
                 globals that hold numbers, dtypes, modules or @ts.func functions",
            ),
        };
        self.report(d)
    }

    pub fn name_unset(&mut self, id: &str, assigned: Loc) -> Val {
        self.report(
            Diagnostic::new(
                Code::E_NAME,
                format!("`{id}` is assigned on some paths only and may have no value here"),
            )
            .label(assigned, "assigned here")
            .help(format!("assign `{id}` before the branch or loop")),
        )
    }

    /// A dimension symbol: an integer in scope (LANGUAGE 10).
    fn symbol(&mut self, id: &str) -> Option<Val> {
        let known = self.config.dims.get(id);
        let bound_factor = self.factors.contains(id) && known.is_some();
        if !self.symbols.contains(id) && !bound_factor {
            return None;
        }
        Some(match known {
            Some(v) => Val::int(*v),
            None => Val::Dim(DimExpr::sym(id)),
        })
    }

    pub fn attribute(&mut self, a: &ExprAttribute) -> Val {
        // A path that Python resolved whole: `ts.f32`, `cfg.BLOCK`.
        if let Some(path) = crate::names::dotted_path(&Expr::Attribute(a.clone())) {
            let root = path.split('.').next().unwrap_or_default();
            if !self.frame().env.contains_key(root)
                && let Some(c) = self.frame().source.captures.get(&path).cloned()
            {
                return self.captured(&path, &c);
            }
        }
        if let Some(v) = self.foreign_path(a) {
            return v;
        }
        let base = self.expr(&a.value);
        let loc = self.loc.clone();
        self.loc = self.place(a.range);
        let out = self.member(base, a.attr.as_str());
        self.loc = loc;
        out
    }

    /// `tl.dot`, `threadIdx.x`: a path of another library whose first name nothing binds.
    fn foreign_path(&mut self, a: &ExprAttribute) -> Option<Val> {
        let path = crate::names::dotted_path(&Expr::Attribute(a.clone()))?;
        let root = path.split('.').next()?;
        let frame = self.frame();
        let bound = frame.env.contains_key(root) || frame.source.captures.contains_key(root);
        if bound || self.symbols.contains(root) || root == "math" {
            return None;
        }
        let whose = foreign::module(root);
        if whose.is_none() && foreign::name(root).is_none() {
            return None;
        }
        let whose = whose.map(|w| format!(" is {w} and")).unwrap_or_default();
        let help = foreign::path(&path).unwrap_or_else(|| FOREIGN_MODULE.to_string());
        let loc = self.place(a.range);
        let message = format!("`{path}`{whose} is not part of the kernel language");
        Some(self.report(Diagnostic::new(Code::E_NAME, message).at(loc).help(help)))
    }

    fn member(&mut self, base: Val, attr: &str) -> Val {
        match base {
            Val::Poison => Val::Poison,
            Val::Namespace(ns) => self.namespace_member(&ns, attr),
            Val::Context => self.context_member(attr),
            Val::Record(record) => self.field(&record, attr),
            Val::Buf { buf, transposed } if attr == "T" => {
                Val::Buf { buf, transposed: !transposed }
            }
            Val::Buf { .. } | Val::Rt(_) | Val::Block(_)
                if matches!(attr, "T" | "shape" | "dtype") =>
            {
                self.tile_member(base, attr)
            }
            Val::View(v) if matches!(attr, "shape" | "dtype") => {
                let ty = self.ty(v).clone();
                if attr == "dtype" {
                    return Val::Const(Const::DType(ty.dtype().into()));
                }
                let dims = if self.points.contains(&v) { &[] } else { ty.shape() };
                Val::Tuple(dims.iter().map(dim_val).collect())
            }
            Val::View(v) if attr == "T" && self.points.contains(&v) => Val::View(v),
            Val::View(v) if attr == "T" => Val::ViewT(v),
            Val::ViewT(v) if attr == "T" => Val::View(v),
            Val::ViewT(v) if matches!(attr, "shape" | "dtype") => {
                match self.member(Val::View(v), attr) {
                    Val::Tuple(dims) => Val::Tuple(dims.into_iter().rev().collect()),
                    other => other,
                }
            }
            other => {
                let what = self.describe(&other);
                let d = Diagnostic::new(Code::E_NAME, format!("{what} has no attribute `{attr}`"));
                self.report(d.help(match (api::find(&format!("tile.{attr}")), &other) {
                    (Some(_), Val::View(_) | Val::ViewT(_)) => {
                        format!("functions take tiles, and a slice is one: ts.tile.{attr}(x[:])")
                    }
                    (Some(_), _) => format!("tiles have functions, not methods: ts.tile.{attr}(x)"),
                    (None, Val::Opaque(_)) => FOREIGN_OBJECT.to_string(),
                    (None, _) => foreign::method(attr).unwrap_or(MEMBERS).to_string(),
                }))
            }
        }
    }

    fn tile_member(&mut self, base: Val, attr: &str) -> Val {
        let Some(value) = self.runtime(&base) else { return Val::Poison };
        let ty = self.ty(value).clone();
        match attr {
            "dtype" => Val::Const(Const::DType(ty.dtype().into())),
            "shape" => Val::Tuple(ty.shape().iter().map(dim_val).collect()),
            _ => self.transpose(value),
        }
    }

    fn namespace_member(&mut self, ns: &str, attr: &str) -> Val {
        if ns == "math" {
            let constant = match attr {
                "inf" => f64::INFINITY,
                "nan" => f64::NAN,
                "pi" => std::f64::consts::PI,
                "e" => std::f64::consts::E,
                "tau" => std::f64::consts::TAU,
                _ => {
                    return match api::find(&format!("math.{attr}")) {
                        Some(row) => Val::Api(row),
                        None => {
                            let names =
                                api::all().iter().filter_map(|r| r.name.strip_prefix("math."));
                            let help = match foreign::closest(attr, names) {
                                Some(near) => format!("did you mean `math.{near}`?"),
                                None => foreign::path(attr).unwrap_or_else(|| ALL_FUNCTIONS.into()),
                            };
                            let message = format!("`math.{attr}` is not known in a kernel");
                            self.error_help(Code::E_NAME, message, help)
                        }
                    };
                }
            };
            return Val::Const(Const::Float(constant));
        }
        let below = ns.strip_prefix("tessera").unwrap_or(ns).trim_start_matches('.');
        let path = if below.is_empty() { attr.to_string() } else { format!("{below}.{attr}") };
        if matches!(path.as_str(), "tile" | "tile.group" | "target") {
            return Val::Namespace(format!("tessera.{path}"));
        }
        if below == "tile.group"
            && let Some(v) = api::group::property(self, attr)
        {
            return v;
        }
        if let Some(row) = api::find(&path) {
            return Val::Api(row);
        }
        if below.is_empty()
            && let Some(dtype) = tessera_numerics::DType::parse(attr)
        {
            return Val::Const(Const::DType(dtype.into()));
        }
        self.unknown_function(below, attr, &path)
    }

    /// `ts.tile.expp`, `ts.popcount`: a similar name, the right module, or what to write instead.
    fn unknown_function(&mut self, below: &str, attr: &str, path: &str) -> Val {
        let prefix = if below.is_empty() { String::new() } else { format!("{below}.") };
        let siblings = api::all().iter().filter_map(|r| r.name.strip_prefix(prefix.as_str()));
        let elsewhere = ["tile.", "tile.group.", ""]
            .into_iter()
            .find(|space| *space != prefix && api::find(&format!("{space}{attr}")).is_some());
        let is_dtype = tessera_numerics::DType::parse(attr).is_some();
        let help = match (elsewhere, foreign::closest(attr, siblings), foreign::path(attr)) {
            (Some(space), ..) => format!("write `ts.{space}{attr}`"),
            _ if is_dtype => format!("write `ts.{attr}`"),
            (None, _, Some(write)) => write,
            (None, Some(near), None) => format!("did you mean `ts.{prefix}{near}`?"),
            (None, None, None) => ALL_FUNCTIONS.to_string(),
        };
        self.error_help(Code::E_NAME, format!("`ts.{path}` is not known in a kernel"), help)
    }

    /// `ctx.NAME`: tunables, bound dims, and a few facts of the launch.
    fn context_member(&mut self, attr: &str) -> Val {
        if let Some(c) = self.config.tunables.get(attr) {
            return Val::from_capture(c);
        }
        if let Some(v) = self.symbol(attr) {
            return v;
        }
        let mut names: Vec<String> = self.config.tunables.keys().cloned().collect();
        names.extend(self.symbols.iter().cloned());
        let list = if names.is_empty() { "none".to_string() } else { names.join(", ") };
        self.error_help(
            Code::E_NAME,
            format!("the context has no `{attr}`"),
            format!("it has the tunables and dimension symbols of the kernel: {list}"),
        )
    }
}

pub fn dim_val(d: &tessera_ir::Dim) -> Val {
    match d {
        tessera_ir::Dim::Static(v) => Val::int(*v),
        tessera_ir::Dim::Expr(e) => Val::Dim(e.clone()),
        tessera_ir::Dim::Any => Val::Open(super::val::OpenKind::Int),
    }
}
