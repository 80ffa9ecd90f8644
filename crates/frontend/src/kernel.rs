//! A kernel: made at decoration, elaborated anew for each configuration.

use crate::api::{self, Style};
use crate::dim_text::{is_expression, parse_dim};
use crate::elab::val::{OpenKind, Record, Val};
use crate::elab::{Elab, Frame, Mode, packed};
use crate::names::free_paths;
use crate::parsed::Parsed;
use crate::privilege;
use crate::source::{
    ArgType, Bundle, Capture, Config, Elaborated, FuncSource, KernelDecl, ParamKind, ParamSpec,
    Table, axis_symbol, symbol,
};
use crate::unknown;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc, Severity};
use tessera_ir::{Attr, Dim, DimExpr, PassContext, PassOptions, Privilege, Type};
use tessera_numerics::{DType, NumType};
use tessera_tile::{KernelKind, TileBuild, TileFunc};

/// The size of an unknown dimension when the passes try a kernel at decoration. It is large, so
/// that a slice that could be inside its tensor is.
const TRIAL_SIZE: i64 = 1 << 12;

pub struct Kernel {
    decl: KernelDecl,
    parsed: Arc<Parsed>,
    kind: KernelKind,
    static_dims: Vec<String>,
    returns: Vec<usize>,
    privileges: Vec<Option<Privilege>>,
    symbolic: TileFunc,
    notes: Diagnostics,
}

impl Kernel {
    /// Decoration: everything that the source and the annotations determine is checked, and every
    /// error found is reported.
    pub fn new(decl: KernelDecl) -> Result<Kernel, Diagnostics> {
        let parsed = Arc::new(Parsed::new(&decl.source.file)?);
        let config = first_config(&decl);
        let mut kind = kind_of(&decl.source, &mut Vec::new());
        let mut run = elaborate(&decl, &parsed, kind, &config, Mode::Check)?;
        if run.diags.has_errors() && kind == KernelKind::Group && decl.source.waits() {
            // A function that is defined later may use a lane id, and make it a lane kernel.
            let lane = elaborate(&decl, &parsed, KernelKind::Lane, &config, Mode::Check)?;
            if !lane.diags.has_errors() {
                (run, kind) = (lane, KernelKind::Lane);
            }
        }
        if run.diags.has_errors() {
            run = with_values(&decl, &parsed, kind, &config, run);
        }
        let mut diags = run.diags;
        if kind == KernelKind::Group && decl.lanes.len() > 1 {
            let message = format!(
                "expected lanes of one axis in a group kernel, got {} axes: the body calls no linear_id or local_id",
                decl.lanes.len()
            );
            let help = "take the lane's place: `i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)`; \
                        or leave `lanes=` out, and launch a grid of groups";
            let loc = parsed.loc(parsed.def.name.range);
            diags.push(Diagnostic::new(Code::E_STYLE_MIX, message).at(loc).help(help));
        }
        trial_passes(&decl, &parsed, kind, &config, &run.static_dims, &mut diags);
        let notes = diags.sorted().into_result()?;
        Ok(Kernel {
            privileges: run.privileges,
            static_dims: run.static_dims.into_iter().collect(),
            returns: run.returns,
            symbolic: run.func,
            notes,
            decl,
            parsed,
            kind,
        })
    }

    pub fn decl(&self) -> &KernelDecl {
        &self.decl
    }
    pub fn name(&self) -> &str {
        &self.decl.source.name
    }
    pub fn kind(&self) -> KernelKind {
        self.kind
    }
    /// Dimensions that a configuration must give, products by their text.
    pub fn static_dims(&self) -> &[String] {
        &self.static_dims
    }
    /// Which parameters the kernel returns.
    pub fn returns(&self) -> &[usize] {
        &self.returns
    }
    /// What the body does with each parameter; `None` for those that are no arrays.
    pub fn privileges(&self) -> &[Option<Privilege>] {
        &self.privileges
    }
    /// The kernel with its sizes left open, for inspection.
    pub fn symbolic(&self) -> &TileFunc {
        &self.symbolic
    }
    pub fn notes(&self) -> &Diagnostics {
        &self.notes
    }

    /// The kernel for one configuration, before any pass.
    pub fn elaborate(&self, config: &Config) -> Result<Elaborated, Diagnostics> {
        let mut run = elaborate(&self.decl, &self.parsed, self.kind, config, Mode::Full)?;
        let notes = std::mem::take(&mut run.diags).sorted().into_result()?;
        let Run { func, params, tables, returns, printed, .. } = run;
        Ok(Elaborated { func, params, tables, returns, notes, printed })
    }
}

/// What one elaboration gives.
struct Run {
    func: TileFunc,
    params: Vec<usize>,
    tables: Vec<Arc<Table>>,
    returns: Vec<usize>,
    privileges: Vec<Option<Privilege>>,
    static_dims: BTreeSet<String>,
    diags: Diagnostics,
    printed: Vec<String>,
}

/// A kernel that uses a lane id anywhere, also in a function it calls, is a lane kernel.
fn kind_of(source: &Arc<FuncSource>, seen: &mut Vec<Arc<FuncSource>>) -> KernelKind {
    if seen.iter().any(|s| Arc::ptr_eq(s, source)) {
        return KernelKind::Group;
    }
    seen.push(source.clone());
    let lane = |name: &str| {
        api::find(name).is_some_and(|r| r.style == Style::Lane)
            || name == "tile.group"
            || name.starts_with("tile.group.")
    };
    for path in free_paths(&source.file).unwrap_or_default() {
        // The longest captured prefix says what the path begins with.
        let cuts: Vec<usize> =
            path.match_indices('.').map(|(i, _)| i).chain([path.len()]).collect();
        for &cut in cuts.iter().rev() {
            let rest = path[cut..].trim_start_matches('.');
            let found = match source.captures.get(&path[..cut]) {
                None => continue,
                Some(Capture::Builtin(name)) => lane(name),
                Some(Capture::Namespace(ns)) => {
                    let below = ns.strip_prefix("tessera").unwrap_or("").trim_start_matches('.');
                    lane(format!("{below}.{rest}").trim_start_matches('.'))
                }
                Some(Capture::Func(f)) => kind_of(f, seen) == KernelKind::Lane,
                Some(_) => false,
            };
            if found {
                return KernelKind::Lane;
            }
            break;
        }
    }
    KernelKind::Group
}

/// What is known at decoration: defaults, and the first candidate of the tunables.
fn first_config(decl: &KernelDecl) -> Config {
    let mut config = Config::default();
    if let Some(first) = decl.tunables.candidates.first() {
        config.tunables = first.clone();
    }
    for p in &decl.params {
        if let (ParamKind::Const(_) | ParamKind::Function, Some(default)) = (&p.kind, &p.default) {
            config.consts.insert(p.name.clone(), default.clone());
        }
    }
    config
}

/// The check, without errors that are not found with other values of parameters that have none yet.
fn with_values(
    decl: &KernelDecl,
    parsed: &Arc<Parsed>,
    kind: KernelKind,
    config: &Config,
    open: Run,
) -> Run {
    let waits = |d: &&Diagnostic| d.message.contains(unknown::DESCRIBED);
    let mut errors: Vec<Diagnostic> = open.diags.errors().filter(|d| !waits(d)).cloned().collect();
    let mut static_dims = open.static_dims.clone();
    let mut good = None;
    for config in unknown::tried(decl, config) {
        let Ok(run) = elaborate(decl, parsed, kind, &config, Mode::Check) else { continue };
        errors.retain(|e| run.diags.errors().any(|d| is_same(d, e)));
        // What an error hides may make other dims static.
        static_dims.extend(run.static_dims.iter().cloned());
        if good.is_none() && !run.diags.has_errors() {
            good = Some(run);
        }
    }
    let mut run = good.unwrap_or(open);
    let mut diags = Diagnostics::new();
    let notes = run.diags.iter().filter(|d| d.severity() != Severity::Error).cloned();
    diags.extend(errors.into_iter().chain(notes));
    (run.diags, run.static_dims) = (diags, static_dims);
    run
}

fn is_same(a: &Diagnostic, b: &Diagnostic) -> bool {
    a.code == b.code && a.loc == b.loc
}

/// Runs the checks that are passes on a trial elaboration with sizes made up. Only what cannot depend
/// on them is believed, and what is found with every value tried of parameters that have none yet;
/// front-end errors of the trial are not: the check has reported the real ones.
fn trial_passes(
    decl: &KernelDecl,
    parsed: &Arc<Parsed>,
    kind: KernelKind,
    config: &Config,
    dims: &BTreeSet<String>,
    diags: &mut Diagnostics,
) {
    let open = decl
        .params
        .iter()
        .any(|p| p.kind == ParamKind::Any || matches!(p.kind, ParamKind::Function));
    if open || decl.source.waits() {
        return;
    }
    let sized = |mut config: Config| {
        for d in dims {
            config.dims.entry(d.clone()).or_insert(TRIAL_SIZE);
        }
        config
    };
    let mut first = config.clone();
    for p in &decl.params {
        if let ParamKind::Const(ty) = &p.kind {
            first.consts.entry(p.name.clone()).or_insert_with(|| unknown::one(ty));
        }
    }
    let failed = diags.has_errors();
    let mut found = found_by_passes(decl, parsed, kind, &sized(first), failed);
    if !found.is_empty() {
        for config in unknown::tried(decl, config) {
            let others = found_by_passes(decl, parsed, kind, &sized(config), failed);
            found.retain(|e| others.iter().any(|d| is_same(d, e)));
        }
    }
    diags.extend(found);
}

fn found_by_passes(
    decl: &KernelDecl,
    parsed: &Arc<Parsed>,
    kind: KernelKind,
    trial: &Config,
    failed: bool,
) -> Vec<Diagnostic> {
    let Ok(run) = elaborate(decl, parsed, kind, trial, Mode::Full) else { return Vec::new() };
    if run.diags.has_errors() && !failed {
        return Vec::new();
    }
    let mut func = run.func;
    if tessera_ir::verify(&func).is_err() {
        return Vec::new();
    }
    let pipeline = tessera_lower::tile_pipeline(PassOptions::default());
    let Err(found) = pipeline.run(&mut func, &mut PassContext::default()) else {
        return Vec::new();
    };
    let sure = [Code::E_RAGGED, Code::E_RACE, Code::E_DIVERGENT_BARRIER, Code::E_ARGUMENT];
    found.into_iter().filter(|d| sure.contains(&d.code)).collect()
}

fn elaborate(
    decl: &KernelDecl,
    parsed: &Arc<Parsed>,
    kind: KernelKind,
    config: &Config,
    mode: Mode,
) -> Result<Run, Diagnostics> {
    let mut func = TileFunc::new(decl.source.name.clone());
    func.loc = parsed.loc(parsed.def.name.range);
    func.attrs.set("kind", Attr::word(kind.name()));
    if !decl.lanes.is_empty() {
        func.attrs.set("lanes", tessera_tile::lanes_attr(&decl.lanes));
    }
    let block = func.body;
    let mut elab = Elab {
        decl,
        config,
        mode,
        kind,
        block,
        loc: func.loc.clone(),
        func,
        frames: vec![Frame {
            source: decl.source.clone(),
            parsed: parsed.clone(),
            env: BTreeMap::new(),
            call_site: Loc::unknown(),
            name: Arc::from(decl.source.name.as_str()),
            is_kernel: true,
            assigned: BTreeMap::new(),
        }],
        diags: Diagnostics::new(),
        static_dims: BTreeSet::new(),
        symbols: BTreeSet::new(),
        factors: BTreeSet::new(),
        origins: BTreeMap::new(),
        returns: None,
        views: BTreeMap::new(),
        points: BTreeSet::new(),
        absent: BTreeMap::new(),
        loop_depth: 0,
        open_values: BTreeSet::new(),
        weak: BTreeMap::new(),
        widened: BTreeSet::new(),
        weak_roots: BTreeMap::new(),
        weak_used: BTreeSet::new(),
        breaks: Vec::new(),
        found: 0,
        parsed: Vec::new(),
        inlined: 0,
        too_large: false,
        emulated: false,
        tables: Vec::new(),
        printed: Vec::new(),
    };
    let mut params = parameters(&mut elab, parsed);
    elab.stmts(&parsed.def.body);
    elab.loc = elab.func.loc.clone();
    elab.block = elab.func.body;
    elab.b().return_();
    let privileges = privilege::assign(&mut elab);
    privilege::tables(&mut elab);
    packed::settle(&mut elab);
    params.extend((0..elab.tables.len()).map(|i| decl.params.len() + i));
    if !elab.tables.is_empty() {
        elab.func.attrs.set("tables", Attr::Int(elab.tables.len() as i64));
    }
    let mut diags = elab.diags;
    if !elab.origins.is_empty() && mode == Mode::Check {
        let names: Vec<_> = elab.origins.keys().map(|n| format!("`{n}`")).collect();
        diags.push(
            Diagnostic::new(
                Code::N_IMPLICIT_TILE,
                format!("{} are not defined and are read as tile origins", names.join(", ")),
            )
            .at(elab.func.loc.clone())
            .help("the explicit form is a loop over ts.tile.range and ts.tile.program_id"),
        );
    }
    Ok(Run {
        func: elab.func,
        params,
        tables: elab.tables.into_iter().map(|(table, _)| table).collect(),
        returns: elab.returns.unwrap_or_default(),
        privileges,
        static_dims: elab.static_dims,
        diags,
        printed: elab.printed,
    })
}

/// Makes the function's parameters and binds the kernel's names. Gives, for each parameter of the
/// function, its place among the kernel's.
fn parameters(e: &mut Elab<'_>, parsed: &Parsed) -> Vec<usize> {
    let mut places = Vec::new();
    let decl = e.decl;
    let locs: BTreeMap<String, Loc> = parsed
        .def
        .parameters
        .iter()
        .map(|p| (p.name().to_string(), parsed.loc(p.name().range)))
        .collect();
    symbols(e);
    for (place, p) in decl.params.iter().enumerate() {
        let root = p.name.split('.').next().unwrap_or_default();
        e.loc = locs.get(root).cloned().unwrap_or(Loc::unknown());
        if is_absent(e, p) {
            e.env().insert(p.name.clone(), Val::None);
            continue;
        }
        // The host would not know which of the two an expression of the launch means.
        let run_time = match &p.kind {
            ParamKind::Scalar(dtype) => dtype.is_int(),
            ParamKind::Any => {
                matches!(e.config.args.get(&p.name), Some(ArgType::Scalar(d)) if d.is_int())
            }
            ParamKind::Tensor { .. } | ParamKind::Const(_) | ParamKind::Function => false,
        };
        if run_time && e.symbols.contains(&p.name) {
            e.error_help(
                Code::E_NAME,
                format!(
                    "expected different names, got `{}` for a parameter and for a dimension",
                    p.name
                ),
                format!(
                    "leave the parameter out: `{}` is the size of the dimension; or rename one of them",
                    p.name
                ),
            );
        }
        let body = e.func.body;
        let val = match &p.kind {
            ParamKind::Tensor { dims, elem, privilege, .. } => {
                if let Some(c) = elem.and_then(|t| t.compute)
                    && Some(c) != elem.map(|t| t.storage.compute())
                {
                    e.error_help(
                        Code::E_UNSUPPORTED,
                        format!("`@compute({c})` is not supported: arithmetic on `{}` is done in f32 or i32", p.name),
                        "leave it out, and cast where a value must be rounded: ts.tile.cast(x, ts.bf16)",
                    );
                }
                array_param(e, &p.name, dims.as_deref(), *elem, *privilege)
            }
            ParamKind::Scalar(dtype) => {
                Some(Val::Rt(e.func.add_arg(body, Type::Scalar(*dtype), Some(&symbol(&p.name)))))
            }
            ParamKind::Any => match e.config.args.get(&p.name) {
                Some(ArgType::Scalar(dtype)) => Some(Val::Rt(e.func.add_arg(
                    body,
                    Type::Scalar(*dtype),
                    Some(&symbol(&p.name)),
                ))),
                Some(ArgType::Array { .. }) => array_param(e, &p.name, None, None, None),
                None => None,
            },
            ParamKind::Const(ty) => {
                let known = e.config.consts.get(&p.name).map(Val::from_capture);
                let open = match ty.as_str() {
                    "bool" => OpenKind::Bool,
                    "int" => OpenKind::Int,
                    "float" => OpenKind::Float,
                    _ => OpenKind::Other,
                };
                e.env().insert(p.name.clone(), known.unwrap_or(Val::Open(open)));
                continue;
            }
            ParamKind::Function => {
                let known = e.config.consts.get(&p.name).map(Val::from_capture);
                if known.is_none() && e.mode == Mode::Full {
                    e.error_help(
                        Code::E_SPECIALIZE,
                        format!("expected a function for `{}`, got none", p.name),
                        format!(
                            "pass a @ts.func, or give a default: `{}: ts.Fn = ts.identity`",
                            p.name
                        ),
                    );
                }
                let known = match known {
                    Some(v @ (Val::Func(_) | Val::Api(_) | Val::None)) => v,
                    Some(other) => {
                        let what = e.describe(&other);
                        e.error_help(
                            Code::E_TYPE,
                            format!("expected a function for `{}`, got {what}", p.name),
                            "decorate it with @ts.func",
                        )
                    }
                    None => Val::Poison,
                };
                e.env().insert(p.name.clone(), known);
                continue;
            }
        };
        match val {
            Some(v) => {
                if let Val::View(view) = v {
                    e.views.insert(p.name.clone(), view);
                }
                e.env().insert(p.name.clone(), v);
                places.push(place);
            }
            // The argument decides its type: until then it has none.
            None => {
                e.env().insert(p.name.clone(), Val::Poison);
            }
        }
    }
    for (name, bundle) in &decl.bundles {
        let value = bundled(e, bundle);
        e.env().insert(name.clone(), value);
    }
    places
}

/// Finds the symbols of all parameters: dims of one may use those of a later one.
fn symbols(e: &mut Elab<'_>) {
    let decl = e.decl;
    for p in &decl.params {
        let ParamKind::Tensor { dims: Some(dims), .. } = &p.kind else { continue };
        for expr in dims.iter().filter_map(|d| parse_dim(d)) {
            let names = expr.symbols().into_iter().map(|s| s.to_string());
            // A compile-time parameter is no size of an array.
            let names = names.filter(|name| !is_const(decl, name));
            if is_absent(e, p) {
                e.absent.extend(names.map(|name| (name, p.shown())));
            } else if matches!(expr, DimExpr::Sym(_)) || is_expression(&expr) {
                e.symbols.extend(names);
            } else {
                // A product binds only the product; its factors have no values of their own.
                e.factors.extend(names);
            }
        }
    }
}

fn is_const(decl: &KernelDecl, name: &str) -> bool {
    decl.params.iter().any(|p| matches!(p.kind, ParamKind::Const(_)) && p.name == name)
}

/// Whether it is an optional parameter that this configuration is without.
fn is_absent(e: &Elab<'_>, p: &ParamSpec) -> bool {
    p.optional && e.config.consts.get(&p.name) == Some(&Capture::None)
}

/// The value of a record or a list, made of its parts.
fn bundled(e: &mut Elab<'_>, bundle: &Bundle) -> Val {
    match bundle {
        Bundle::None => Val::None,
        Bundle::Param(place) => {
            let name = e.decl.params[*place].name.clone();
            e.env().remove(&name).unwrap_or(Val::Poison)
        }
        Bundle::List(items) => Val::Tuple(items.iter().map(|item| bundled(e, item)).collect()),
        Bundle::Record { class, fields } => {
            let field = |(name, inner): &(String, Bundle)| (name.clone(), bundled(e, inner));
            let fields = fields.iter().map(field).collect();
            Val::Record(Arc::new(Record { class: class.clone(), fields }))
        }
    }
}

fn array_param(
    e: &mut Elab<'_>,
    name: &str,
    dims: Option<&[String]>,
    elem: Option<NumType>,
    privilege: Option<Privilege>,
) -> Option<Val> {
    let known = match e.config.args.get(name) {
        Some(ArgType::Array { elem, rank }) => Some((*elem, *rank)),
        _ => None,
    };
    let elem = match (elem, known) {
        (Some(t), _) => t,
        (None, Some((t, _))) => t,
        // Any dtype: checked with the one most kernels have.
        (None, None) if e.mode == Mode::Check && dims.is_some() => NumType::plain(DType::F32),
        (None, None) => return None,
    };
    let shape: Vec<Dim> = match (dims, known) {
        (Some(dims), _) => dims
            .iter()
            .enumerate()
            .map(|(axis, d)| match parse_dim(d) {
                Some(expr) => bound_dim(e, expr),
                None => Dim::Expr(DimExpr::sym(&axis_symbol(name, axis))),
            })
            .collect(),
        (None, Some((_, rank))) => (0..rank)
            .map(|axis| {
                let symbol = axis_symbol(name, axis);
                e.symbols.insert(symbol.clone());
                bound_dim(e, DimExpr::sym(&symbol))
            })
            .collect(),
        (None, None) => return None,
    };
    let privilege = privilege.unwrap_or(Privilege::ReadWrite);
    let body = e.func.body;
    let point = shape.is_empty();
    if point && elem.packed {
        e.error_help(
            Code::E_UNSUPPORTED,
            format!("`{name}` is packed: expected an axis along which two elements share a byte"),
            "leave out `@packed`, or give the array an axis",
        );
    }
    let dims = if point { vec![Dim::Static(1)] } else { shape };
    let view = e.func.add_arg(body, Type::View { dims, elem, privilege }, Some(name));
    if point {
        e.points.insert(view);
    }
    Some(Val::View(view))
}

/// The dimension, as an integer where the configuration knows it.
fn bound_dim(e: &Elab<'_>, expr: DimExpr) -> Dim {
    if let Some(v) = e.config.dims.get(&expr.to_string()) {
        return Dim::Static(*v);
    }
    let known = |s: &str| match e.config.consts.get(s) {
        Some(Capture::Int(v)) if is_const(e.decl, s) => i64::try_from(*v).ok(),
        _ => e.config.dims.get(s).copied(),
    };
    let bound = expr.substitute(&known);
    // While checking, a compile-time parameter may have no value yet.
    if bound.symbols().iter().any(|s| is_const(e.decl, s)) { Dim::Any } else { Dim::from(bound) }
}
