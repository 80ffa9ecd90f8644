//! What `.jit(...)` requests: dims, tunables and constants by name, and the layouts of arrays.

use crate::args::Arg;
use crate::array_layout;
use crate::bind::constant;
use crate::dims::{Sizes, parse_dim};
use crate::params::{Kind, Params, show_dim};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_frontend::{ArgType, Capture, Config, Kernel, axis_symbol};
use tessera_ir::DimExpr;
use tessera_lower::stage::Off;
use tessera_numerics::{DType, NumType};
use tessera_target::arrays::Said;

/// What a caller gives, as it came.
#[derive(Clone, Default)]
pub struct Given {
    /// Dims, tunables and constants by name.
    pub values: BTreeMap<String, Capture>,
    /// Layouts of arrays, by parameter: each entry is a property with its value.
    pub layouts: BTreeMap<String, BTreeMap<String, Capture>>,
    /// Passes that are left out.
    pub off: Off,
    /// Dtypes and extents of arguments whose annotations leave them open; a number has no extents.
    pub args: BTreeMap<String, (DType, Vec<i64>)>,
}

pub struct Request {
    pub config: Config,
    pub tunables: BTreeMap<String, Capture>,
    pub sizes: Sizes,
    pub said: Said,
}

pub fn read(kernel: &Kernel, params: &Params, given: &Given) -> Result<Request, Diagnostics> {
    let tunables: BTreeSet<&String> =
        kernel.decl().tunables.candidates.iter().flat_map(|c| c.keys()).collect();
    let symbols: BTreeSet<String> = params
        .dims()
        .flat_map(|d| d.symbols().into_iter().map(|s| s.to_string()).chain([d.to_string()]))
        .collect();
    let mut out = Request {
        config: Config::default(),
        tunables: BTreeMap::new(),
        sizes: Sizes::default(),
        said: Said::new(),
    };
    let mut errors = Diagnostics::new();
    for (name, entries) in &given.layouts {
        match array_layout::read(params, name, entries) {
            Ok(class) => _ = out.said.insert(name.clone(), class),
            Err(error) => errors.push(error),
        }
    }
    let mut fail = |code, message: String, help: String| {
        errors.push(Diagnostic::new(code, message).at(params.loc.clone()).help(help));
    };
    for (name, value) in &given.values {
        let dim = parse_dim(name).map(|d| d.to_string()).unwrap_or_default();
        let param = params.items.iter().find(|p| p.name == *name);
        match (param.map(|p| &p.kind), value) {
            (Some(_), Capture::None) if param.is_some_and(|p| p.optional) => {
                out.config.consts.insert(name.clone(), Capture::None);
            }
            (Some(Kind::Const(ty)), value) => match constant(&Arg::from_capture(value), ty) {
                Ok(value) => {
                    out.config.consts.insert(name.clone(), value);
                }
                Err(why) => fail(
                    Code::E_ARGUMENT,
                    format!("`{name}`: {why}"),
                    format!("give a value of Python's type {ty}"),
                ),
            },
            (Some(Kind::Function), Capture::Func(_) | Capture::Builtin(_)) => {
                out.config.consts.insert(name.clone(), value.clone());
            }
            (_, _) if tunables.contains(name) => {
                out.tunables.insert(name.clone(), value.clone());
            }
            (_, Capture::Int(size))
                if symbols.contains(&dim) && (0..=i64::MAX.into()).contains(size) =>
            {
                out.sizes.known.insert(dim, *size as i64);
            }
            (_, value) if symbols.contains(&dim) => {
                let shown = crate::config::show(value);
                fail(
                    Code::E_SPECIALIZE,
                    format!("expected a size of at least 0 for `{name}`, got {shown}"),
                    format!("write `{name}=1024`"),
                );
            }
            _ => {
                let mut known: Vec<String> =
                    params.dims().map(show_dim).filter(|d| d.parse::<i64>().is_err()).collect();
                known.extend(tunables.iter().map(|t| t.to_string()));
                known.extend(
                    params.items.iter().filter(|p| is_static(&p.kind)).map(|p| p.name.clone()),
                );
                known.sort_unstable();
                known.dedup();
                fail(
                    Code::E_ARGUMENT,
                    format!(
                        "expected a dim, tunable or constant (one of {}), got `{name}`",
                        known.join(", ")
                    ),
                    match tessera_frontend::closest(name, known.iter().map(String::as_str)) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => format!("leave out `{name}=`"),
                    },
                );
            }
        }
    }
    arguments(params, given, &mut out);
    defaults(params, &mut out.config, &mut fail);
    dims(kernel, params, &mut out, &mut fail);
    errors.into_result()?;
    Ok(out)
}

fn is_static(kind: &Kind) -> bool {
    matches!(kind, Kind::Const(_) | Kind::Function)
}

/// What is said of arguments that the annotations leave open, as a call with such arguments would.
fn arguments(params: &Params, given: &Given, out: &mut Request) {
    for param in &params.items {
        let Some((dtype, extents)) = given.args.get(&param.name) else { continue };
        let (elem, dims) = match &param.kind {
            Kind::Any => (None, None),
            Kind::Array { elem, dims, .. } => (*elem, dims.as_ref()),
            Kind::Scalar(_) | Kind::Const(_) | Kind::Function => continue,
        };
        let found = match (&param.kind, extents.is_empty()) {
            (Kind::Any, true) => ArgType::Scalar(*dtype),
            _ => {
                let elem = elem.unwrap_or(NumType::plain(*dtype));
                ArgType::Array { elem, rank: extents.len() }
            }
        };
        if elem.is_none() || dims.is_none() {
            out.config.args.insert(param.name.clone(), found);
        }
        // A dim without a name has one of its own inside the compiler.
        for (axis, &size) in extents.iter().enumerate() {
            if dims.is_none_or(|dims| matches!(dims.get(axis), Some(None))) {
                out.sizes.known.insert(axis_symbol(&param.name, axis), size);
            }
        }
    }
}

/// Constants that were not given take their defaults; what the annotations leave open cannot be
/// compiled without data.
fn defaults(params: &Params, config: &mut Config, fail: &mut impl FnMut(Code, String, String)) {
    for param in &params.items {
        match (&param.kind, &param.default) {
            (_, _) if config.consts.get(&param.name) == Some(&Capture::None) => {}
            (Kind::Const(_) | Kind::Function, _) if config.consts.contains_key(&param.name) => {}
            (Kind::Const(_) | Kind::Function, Some(value)) => {
                config.consts.insert(param.name.clone(), value.clone());
            }
            (Kind::Const(_) | Kind::Function, None) => {
                fail(
                    Code::E_SPECIALIZE,
                    format!("the constant `{}` has no value: give `{}=`", param.name, param.name),
                    format!("write `.jit({}=…)`, or give the parameter a default", param.name),
                );
            }
            (Kind::Any | Kind::Array { elem: None, .. } | Kind::Array { dims: None, .. }, _)
                if !config.args.contains_key(&param.name) =>
            {
                fail(
                    Code::E_SPECIALIZE,
                    format!(
                        "`{}` has no dtype or shape: annotate it, or call the kernel with data",
                        param.name
                    ),
                    format!("write `{}: ts.Tensor[\"n\", ts.f32]`", param.name),
                )
            }
            (Kind::Any | Kind::Array { .. } | Kind::Scalar(_), _) => {}
        }
    }
}

/// Every given dim is pinned; those that reach a tile shape must be among them.
fn dims(
    kernel: &Kernel,
    params: &Params,
    out: &mut Request,
    fail: &mut impl FnMut(Code, String, String),
) {
    // The factors of a product give the product.
    for dim in params.dims().filter(|d| matches!(d, DimExpr::Bin(..))) {
        if let Ok(value) = out.sizes.eval(dim) {
            out.sizes.known.insert(dim.to_string(), value);
        }
    }
    out.config.dims = out.sizes.known.clone();
    let missing: Vec<_> = kernel
        .static_dims()
        .iter()
        .filter(|d| !out.config.dims.contains_key(*d))
        .filter(|d| !params.is_absent(d, &out.config.consts))
        .map(|d| parse_dim(d.trim_matches(['(', ')'])).map_or(d.clone(), |e| show_dim(&e)))
        .collect();
    if !missing.is_empty() {
        let names = missing.iter().map(|m| format!("`{m}`")).collect::<Vec<_>>().join(", ");
        fail(
            Code::E_SPECIALIZE,
            format!(
                "the shapes of tiles depend on {names}: give {}",
                if missing.len() == 1 { "its size" } else { "their sizes" }
            ),
            format!("write `.jit({}=…)`", missing.join("=…, ")),
        );
    }
}
