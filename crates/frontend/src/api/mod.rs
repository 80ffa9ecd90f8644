//! The functions of the tile language: one row each, with its signature, its documentation,
//! and what it elaborates to. Python's `ts.tile` and its stubs are made from this table.

mod atomic;
mod combine;
mod create;
pub mod group;
mod host;
mod ids;
mod mask;
mod memory;
mod mma;
mod mma_scaled;
mod parts;
mod pure;
mod python;
mod quantize;
mod random;
mod reduce;
pub mod rounding;
mod shape;
mod softmax;
mod sort;
mod target;

use crate::elab::Elab;
use crate::elab::call::Given;
use crate::elab::val::Val;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_numerics::ScalarFn;

/// In which kind of kernel a function may be called.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Style {
    Any,
    Lane,
    Group,
}

#[derive(Copy, Clone)]
pub enum Handler {
    Call(fn(&mut Elab<'_>, &mut Args) -> Val),
    /// An elementwise function.
    Ew(ScalarFn),
    /// A name that is kept for later; why, and what to use.
    Reserved(&'static str),
}

pub struct ApiRow {
    /// Below `tessera.`; `py.*` and `math.*` are Python's own, as kernels know them.
    pub name: &'static str,
    /// As Python writes it: `(x, axis=None)`.
    pub signature: &'static str,
    pub doc: &'static str,
    pub style: Style,
    pub handler: Handler,
}

impl std::fmt::Debug for ApiRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.name, self.signature)
    }
}

impl ApiRow {
    /// The parameters, the first ones, that name a place in memory (LANGUAGE 20).
    pub fn places(&self) -> &'static [&'static str] {
        match self.name {
            "tile.store" | "tile.accumulate" | "tile.load" | "tile.owned" => &["t"],
            "tile.cp_async" => &["dst", "src"],
            name if name.starts_with("tile.atomic_") => &["ref"],
            _ => &[],
        }
    }
}

impl PartialEq for ApiRow {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// Rows of one file.
pub(crate) type Rows = &'static [ApiRow];

macro_rules! rows {
    ($($style:ident $name:literal $sig:literal $handler:expr, $doc:literal;)*) => {
        &[$(crate::api::ApiRow {
            name: $name, signature: $sig, doc: $doc,
            style: crate::api::Style::$style, handler: $handler,
        }),*]
    };
}
pub(crate) use rows;

/// Every row.
pub fn all() -> &'static [ApiRow] {
    static ALL: OnceLock<Vec<ApiRow>> = OnceLock::new();
    ALL.get_or_init(|| {
        let files: [Rows; 20] = [
            ids::ROWS,
            create::ROWS,
            memory::ROWS,
            mma::ROWS,
            reduce::ROWS,
            shape::ROWS,
            parts::ROWS,
            combine::ROWS,
            sort::ROWS,
            rounding::ROWS,
            quantize::ROWS,
            mask::ROWS,
            softmax::ROWS,
            python::ROWS,
            atomic::ROWS,
            random::ROWS,
            host::ROWS,
            group::ROWS,
            pure::ROWS,
            target::ROWS,
        ];
        let mut out: Vec<ApiRow> = Vec::new();
        for rows in files {
            out.extend(rows.iter().map(|r| ApiRow { ..*r }));
        }
        out.extend(elementwise());
        out
    })
}

/// The rows of the `ScalarFn` table that users call by name; the rest are operators.
fn elementwise() -> impl Iterator<Item = ApiRow> {
    let operators = [
        "and", "or", "xor", "not", "shl", "shr", "eq", "ne", "lt", "le", "gt", "ge", "floordiv",
        "mod",
    ];
    ScalarFn::ALL.iter().copied().filter(move |f| !operators.contains(&f.name())).map(|f| {
        let signature = match (f, f.arity()) {
            (ScalarFn::Clamp, _) => "(x, low, high)",
            (ScalarFn::Fma, _) => "(a, b, c)",
            (ScalarFn::FunnelShift, _) => "(hi, lo, n)",
            (_, 1) => "(x)",
            (_, 2) => "(a, b)",
            _ => "(a, b, c)",
        };
        // Names live as long as the table, which is made once.
        let name: &'static str = Box::leak(format!("tile.{}", f.name()).into_boxed_str());
        ApiRow { name, signature, doc: f.doc(), style: Style::Any, handler: Handler::Ew(f) }
    })
}

/// `0 … n-1` as a tile.
pub fn iota(e: &mut Elab<'_>, extent: &tessera_ir::Dim) -> Val {
    create::iota(e, 0, extent)
}

/// Tiles one after another along an axis.
pub fn joined(e: &mut Elab<'_>, parts: &[tessera_ir::Value], axis: usize) -> Val {
    parts::joined(e, parts, axis)
}

pub fn find(name: &str) -> Option<&'static ApiRow> {
    static BY_NAME: OnceLock<BTreeMap<&'static str, &'static ApiRow>> = OnceLock::new();
    BY_NAME.get_or_init(|| all().iter().map(|r| (r.name, r)).collect()).get(name).copied()
}

/// A parameter of a signature; `*name` is none.
pub struct Parameter {
    pub name: &'static str,
    pub is_required: bool,
}

impl ApiRow {
    pub fn parameters(&self) -> Vec<Parameter> {
        let inner = self.signature.trim_matches(|c| c == '(' || c == ')');
        let named = split_params(inner).into_iter().filter(|p| !p.starts_with('*'));
        named
            .map(|p| Parameter {
                name: p.split('=').next().unwrap_or("").trim(),
                is_required: !p.contains('='),
            })
            .collect()
    }
}

/// The error for an argument that a function has no parameter for, or has a value for already.
pub fn superfluous(function: &str, signature: &str, params: &[&str], g: &Given) -> Diagnostic {
    let (message, help) = match &g.name {
        Some(name) if params.contains(&name.as_str()) => {
            (format!("`{function}` gets `{name}` twice"), "leave out one of them".to_string())
        }
        Some(name) => {
            let help = match crate::foreign::closest(name, params.iter().copied()) {
                Some(near) => format!("did you mean `{near}=`?"),
                None => format!("leave out `{name}=`"),
            };
            (format!("`{function}` has no parameter `{name}`"), help)
        }
        None => {
            let most = match params.len() {
                1 => "1 argument".to_string(),
                n => format!("{n} arguments"),
            };
            let message = format!("`{function}` takes at most {most}, got one more: `{}`", g.text);
            (message, "leave it out".to_string())
        }
    };
    Diagnostic::new(Code::E_ARGUMENT, message)
        .at(g.loc.clone())
        .note(format!("its parameters are `{function}{signature}`"))
        .help(help)
}

/// Arguments by the names of the signature.
#[derive(Clone)]
pub struct Args {
    names: Vec<String>,
    values: BTreeMap<String, Given>,
    /// For `*name`: all positional arguments.
    pub rest: Vec<Given>,
}

impl Args {
    /// Matches arguments to a signature; reports what does not fit.
    pub fn bind(elab: &mut Elab<'_>, row: &ApiRow, given: Vec<Given>) -> Option<Args> {
        let params = row.parameters();
        let names: Vec<String> = params.iter().map(|p| p.name.to_string()).collect();
        let mut args = Args { names, values: BTreeMap::new(), rest: Vec::new() };
        let variadic = row.signature.contains('*');
        // Those before the `*` have names.
        let before = row.signature.split('*').next().map_or(0, |s| s.matches(',').count());
        for (place, g) in given.into_iter().enumerate() {
            let name = match &g.name {
                Some(n) => args.names.iter().find(|p| *p == n).cloned(),
                None if variadic && place >= before => {
                    args.rest.push(g);
                    continue;
                }
                None => args.names.get(place).cloned(),
            };
            match name {
                Some(n) if !args.values.contains_key(&n) => {
                    args.values.insert(n, g);
                }
                _ => {
                    let known: Vec<&str> = params.iter().map(|p| p.name).collect();
                    let d = superfluous(&shown(row), row.signature, &known, &g);
                    let foreign =
                        g.name.as_deref().and_then(|k| crate::foreign::keyword(row.name, k));
                    elab.report(match foreign {
                        Some(write) => d.help(write),
                        None => d,
                    });
                    return None;
                }
            }
        }
        for p in params.iter().filter(|p| p.is_required) {
            if !args.values.contains_key(p.name) {
                elab.error_help(
                    Code::E_ARGUMENT,
                    format!("`{}` needs a value for `{}`", shown(row), p.name),
                    format!("call it as `{}{}`", shown(row), row.signature),
                );
                return None;
            }
        }
        let poisoned = args.values.values().chain(&args.rest).any(|g| g.value == Val::Poison);
        (!poisoned).then_some(args)
    }

    /// The value of a parameter; `Val::None` where it was left out.
    pub fn get(&self, name: &str) -> Val {
        self.values.get(name).map_or(Val::None, |g| g.value.clone())
    }

    /// The same arguments with another value for one of them.
    pub fn with(&self, name: &str, value: Val) -> Args {
        let mut out = self.clone();
        if let Some(given) = out.values.get_mut(name) {
            given.value = value;
        }
        out
    }

    pub fn has(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|g| g.value != Val::None)
    }

    pub fn text(&self, name: &str) -> String {
        self.values.get(name).map_or(String::new(), |g| g.text.clone())
    }

    pub fn loc(&self, name: &str) -> Loc {
        self.values.get(name).map_or(Loc::unknown(), |g| g.loc.clone())
    }

    /// All values in the order of the signature.
    pub fn in_order(&self) -> Vec<Val> {
        self.names.iter().map(|n| self.get(n)).collect()
    }
}

/// Splits at commas outside brackets: defaults may hold tuples.
fn split_params(text: &'static str) -> Vec<&'static str> {
    let mut out = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (i, c) in text.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => {
                out.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    out.push(text[start..].trim());
    out.retain(|p| !p.is_empty());
    out
}

fn shown(row: &ApiRow) -> String {
    match row.name.strip_prefix("py.") {
        Some(name) => name.to_string(),
        None if row.name.starts_with("math.") => row.name.to_string(),
        None => format!("ts.{}", row.name),
    }
}
