//! Compile-time parameters that have no value at decoration (`BLOCK: int`, `act: str`). The check
//! leaves them open, and open values agree with most of what is done to them; what it still finds
//! wrong may be wrong for some values only. Such a finding is reported immediately if it is also
//! found with every value tried here, and else waits for the first call.

use crate::names::free_paths;
use crate::parsed::Parsed;
use crate::source::{Capture, Config, FuncSource, KernelDecl, ParamKind};
use ruff_python_ast::visitor::{Visitor, walk_expr};
use ruff_python_ast::{Expr, Number, Stmt};
use std::collections::BTreeSet;
use std::sync::Arc;
use tessera_numerics::{DType, NumType};

/// What messages call a value that is not known yet. An error that mentions one is deferred until
/// it is known.
pub const DESCRIBED: &str = "a compile-time value";

/// Configurations that are tried at most.
const MOST: usize = 32;

/// Whether it is a compile-time parameter that has no value.
fn is_open(p: &crate::source::ParamSpec, config: &Config) -> bool {
    matches!(p.kind, ParamKind::Const(_)) && !config.consts.contains_key(&p.name)
}

/// A value of a compile-time type, where any will do.
pub fn one(ty: &str) -> Capture {
    match ty {
        "bool" => Capture::Bool(false),
        "float" => Capture::Float(1.0),
        "str" => Capture::Str(String::new()),
        "dtype" => Capture::DType(NumType::plain(DType::F32)),
        _ => Capture::Int(16),
    }
}

/// Configurations with values for all of them. What a body compares them with is in its text, so
/// its literals are tried too. Values are taken in step first, then each with each.
pub fn tried(decl: &KernelDecl, config: &Config) -> Vec<Config> {
    let mut literals = Literals::default();
    literals.of(&decl.source, &mut Vec::new());
    let open: Vec<(&str, Vec<Capture>)> = decl
        .params
        .iter()
        .filter(|p| is_open(p, config))
        .filter_map(|p| match &p.kind {
            ParamKind::Const(ty) => Some((p.name.as_str(), literals.values(ty))),
            _ => None,
        })
        .collect();
    if open.is_empty() {
        return Vec::new();
    }
    let longest = open.iter().map(|(_, values)| values.len()).max().unwrap_or(1);
    let all: usize = open.iter().map(|(_, values)| values.len()).product();
    let in_step = (0..longest).map(|i| vec![i; open.len()]);
    let each = (0..all.min(4 * MOST)).map(|mut i| {
        let digit = |(_, values): &(&str, Vec<Capture>)| {
            let place = i % values.len();
            i /= values.len();
            place
        };
        open.iter().map(digit).collect()
    });
    let mut seen = BTreeSet::new();
    let mut out = Vec::new();
    for places in in_step.chain(each) {
        let places: Vec<usize> =
            places.iter().zip(&open).map(|(i, (_, values))| i % values.len()).collect();
        if out.len() == MOST || !seen.insert(places.clone()) {
            continue;
        }
        let mut one = config.clone();
        for (place, (name, values)) in places.iter().zip(&open) {
            one.consts.insert(name.to_string(), values[*place].clone());
        }
        out.push(one);
    }
    out
}

/// The numbers and texts that stand in a kernel and in the functions that it reaches.
#[derive(Default)]
struct Literals {
    ints: BTreeSet<i64>,
    texts: BTreeSet<String>,
}

impl Literals {
    fn of(&mut self, source: &Arc<FuncSource>, seen: &mut Vec<Arc<FuncSource>>) {
        if seen.iter().any(|s| Arc::ptr_eq(s, source)) {
            return;
        }
        seen.push(source.clone());
        let Ok(parsed) = Parsed::new(&source.file) else { return };
        self.visit_body(&parsed.def.body);
        for path in free_paths(&source.file).unwrap_or_default() {
            if let Some(Capture::Func(f)) = source.captures.get(&path) {
                self.of(f, seen);
            }
        }
    }

    fn values(&self, ty: &str) -> Vec<Capture> {
        let dtype = |d| Capture::DType(NumType::plain(d));
        match ty {
            "bool" => vec![Capture::Bool(false), Capture::Bool(true)],
            "float" => [1.0, 0.5, 0.0, -1.0].map(Capture::Float).to_vec(),
            "str" => {
                let others = self.texts.iter().take(12).cloned();
                std::iter::once(String::new()).chain(others).map(Capture::Str).collect()
            }
            "dtype" => [DType::F32, DType::BF16, DType::I32, DType::F64].map(dtype).to_vec(),
            _ => {
                let usual = [16, 1, 64, 2, 128, 8, 32, 3, 0];
                let others = self.ints.iter().copied().filter(|n| !usual.contains(n)).take(12);
                usual.into_iter().chain(others).map(|n| Capture::Int(n.into())).collect()
            }
        }
    }
}

impl<'a> Visitor<'a> for Literals {
    fn visit_stmt(&mut self, stmt: &'a Stmt) {
        ruff_python_ast::visitor::walk_stmt(self, stmt);
    }

    fn visit_expr(&mut self, expr: &'a Expr) {
        match expr {
            Expr::NumberLiteral(n) => {
                if let Number::Int(v) = &n.value {
                    self.ints.extend(v.as_i64());
                }
            }
            Expr::StringLiteral(s) => {
                self.texts.insert(s.value.to_str().to_string());
            }
            _ => {}
        }
        walk_expr(self, expr);
    }
}
