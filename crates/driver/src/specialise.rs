//! One configuration of a kernel, from its syntax tree to code that can be launched.

use crate::backends::Choice;
use crate::mode::Mode;
use crate::tables::Tables;
use crate::{cache, config, inspect, knobs, launches, schedule};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostic, Diagnostics, Kind, Loc};
use tessera_frontend::{Config, Kernel, Table};
use tessera_ir::{Attr, DimExpr, PassContext, PassOptions, Privilege, Type};
use tessera_lower::stage::Off;
use tessera_lower::{Cover, Launched};
use tessera_target::arrays::Said;
use tessera_target::{Artifact, BufferArg, CompileOptions};
use tessera_tile::{KernelKind, TileFunc, kind_of};

/// The arrays of a call by the kernel's parameters, `None` for what is no array; empty without a call. Only where and how they lie
/// counts: code for such arrays is what is compiled first.
pub type CallArrays = Vec<Option<BufferArg>>;

/// What was compiled, and how it came about.
pub struct Specialised {
    pub config: Config,
    /// After the tile pipeline: what the backend got.
    pub func: TileFunc,
    /// For each parameter of `func`, its place among the kernel's.
    pub params: Vec<usize>,
    /// The constant arrays that are its last parameters.
    pub tables: Tables,
    /// Which of the kernel's parameters are returned.
    pub returns: Vec<usize>,
    pub artifact: Box<dyn Artifact>,
    pub choice: Choice,
    pub mode: Mode,
    /// The declared layouts of the arrays.
    pub said: Said,
    pub notes: Diagnostics,
    pub stages: Vec<(String, Duration)>,
    /// Candidates that were tried before, each with the reason it was passed over.
    pub rejected: Vec<(String, String)>,
    /// Stores that may write a whole parameter; computed only where arrays are made for a call.
    covers: OnceLock<Vec<Cover>>,
}

impl Specialised {
    pub fn is_lane(&self) -> bool {
        kind_of(&self.func) == Some(KernelKind::Lane)
    }

    pub fn grid(&self) -> Option<Vec<DimExpr>> {
        self.func.attrs.get("grid").and_then(Attr::as_exprs)
    }

    pub fn domain(&self) -> Option<Vec<DimExpr>> {
        tessera_tile::domain_of(&self.func)
    }

    pub fn lanes(&self) -> Vec<i64> {
        lanes_or_default(&self.func)
    }

    /// Whether a launch is known to write every element of an array given for a parameter of `func`.
    pub fn writes_whole(&self, place: usize, dims: &[i64], launch: &Launched<'_>) -> bool {
        let covers = self.covers.get_or_init(|| tessera_lower::covers(&self.func));
        covers.iter().any(|c| c.param == place && c.holds(dims, launch))
    }

    /// What the kernel's parameters are used for; `None` for those that are no arrays.
    pub fn privileges(&self, count: usize) -> Vec<Option<Privilege>> {
        let is_array = |&(_, place): &(usize, &usize)| *place < count;
        let mut found = vec![None; count];
        for (at, &place) in self.params.iter().enumerate().filter(is_array) {
            if let Type::View { privilege, .. } = self.func.ty(self.func.params()[at]) {
                found[place] = Some(*privilege);
            }
        }
        found
    }

    /// The privilege of a parameter of `func`; a scalar is read.
    pub fn privilege(&self, place: usize) -> Privilege {
        match self.func.ty(self.func.params()[place]) {
            Type::View { privilege, .. } => *privilege,
            _ => Privilege::Read,
        }
    }
}

/// Lanes in a group where the kernel does not say: eight warps, what GPUs like for streaming code.
pub const DEFAULT_LANES: i64 = 256;

/// The extents of a group along the axes of its lanes.
pub fn lanes_or_default(func: &TileFunc) -> Vec<i64> {
    let lanes = tessera_tile::lane_extents(func);
    if lanes.is_empty() { vec![DEFAULT_LANES] } else { lanes }
}

fn compile(
    kernel: &Kernel,
    config: &Config,
    choice: &Choice,
    mode: Mode,
    said: &Said,
    call: &CallArrays,
) -> Result<Specialised, Diagnostics> {
    lower(kernel, config, choice, mode)?.compile(config, choice, mode, said, call)
}

/// A configuration that has been through the tile pipeline, and is still to be compiled.
pub struct Lowered {
    pub func: TileFunc,
    params: Vec<usize>,
    tables: Vec<Arc<Table>>,
    returns: Vec<usize>,
    notes: Diagnostics,
    stages: Vec<(String, Duration)>,
}

pub fn lower(
    kernel: &Kernel,
    config: &Config,
    choice: &Choice,
    mode: Mode,
) -> Result<Lowered, Diagnostics> {
    if knobs::DEBUG_PANIC.is_on() {
        panic!("TESSERA_DEBUG_PANIC requests it");
    }
    // Said to be wrong before anything is compiled for it.
    choice.caps()?;
    let mut stages = Vec::new();
    let start = Instant::now();
    let elaborated = kernel.elaborate(config).map_err(|e| e.inside_kernel(Kind::Type))?;
    elaborated.printed.iter().for_each(|line| tessera_target::tell(line));
    stages.push(("elaborate".to_string(), start.elapsed()));
    let mut func = elaborated.func;
    let mut context = PassContext { notes: elaborated.notes, ..PassContext::default() };
    let options = PassOptions { verify_each: knobs::VERIFY.is_on(), dump_dir: knobs::dump_dir() };
    let passes = mode.pipeline(options, choice.is_on_device());
    let passed = passes.run(&mut func, &mut context).map_err(|e| e.inside_kernel(Kind::Type))?;
    for report in passed {
        stages.push((report.name.to_string(), report.time));
    }
    let (params, returns, notes) = (elaborated.params, elaborated.returns, context.notes);
    Ok(Lowered { func, params, tables: elaborated.tables, returns, notes, stages })
}

impl Lowered {
    /// The function, which of the kernel's parameters it has, its tables, and what is returned.
    pub fn parts(self) -> (TileFunc, Vec<usize>, Vec<Arc<Table>>, Vec<usize>) {
        (self.func, self.params, self.tables, self.returns)
    }

    pub fn compile(
        self,
        config: &Config,
        choice: &Choice,
        mode: Mode,
        said: &Said,
        call: &CallArrays,
    ) -> Result<Specialised, Diagnostics> {
        let Lowered { func, params, tables, returns, mut notes, mut stages } = self;
        let start = Instant::now();
        let (profile, store, arrays) = (mode.profile, cache::store()?, said.clone());
        let call = params.iter().map(|&p| call.get(p).cloned().flatten()).collect();
        let options = CompileOptions { profile, store, arrays, call };
        let requested = scheduled(&func, config, mode.off);
        let artifact = choice.backend.compile(&requested, &options)?;
        let artifact = launches::planned(artifact, &requested, choice, mode);
        notes.extend(artifact.warnings().iter().cloned());
        notes.extend(cache::take_warnings());
        stages.push((format!("compile for {}", choice.backend.name()), start.elapsed()));
        let (config, choice, rejected) = (config.clone(), choice.clone(), Vec::new());
        let spec = Specialised {
            config,
            func,
            params,
            tables: Tables::new(tables),
            returns,
            artifact,
            choice,
            mode,
            said: said.clone(),
            notes,
            stages,
            rejected,
            covers: OnceLock::new(),
        };
        print_levels(&spec);
        Ok(spec)
    }
}

/// The function with the schedule of the configuration, if it has one, beside its own: kernels of
/// plans have one.
pub fn scheduled<'f>(func: &'f TileFunc, config: &Config, off: Off) -> Cow<'f, TileFunc> {
    let said = schedule::attrs(config, off);
    if said.is_empty() {
        return Cow::Borrowed(func);
    }
    let mut func = func.clone();
    let mut all = func.attrs.get("config").and_then(Attr::as_dict).cloned().unwrap_or_default();
    said.iter().for_each(|(name, value)| all.set(name, value.clone()));
    func.attrs.set("config", Attr::Dict(all));
    Cow::Owned(func)
}

/// The function with these passes left out.
pub fn without(func: &TileFunc, off: Off) -> Cow<'_, TileFunc> {
    scheduled(func, &Config::default(), off)
}

fn print_levels(spec: &Specialised) {
    for level in inspect::LEVELS {
        if knobs::debug_ir(level)
            && let Ok(text) = inspect::specialised(spec, level, false)
        {
            eprintln!("{text}");
        }
    }
}

/// The first legal candidate (LANGUAGE 10). One that fails for its shapes or resources is passed
/// over; any other error is the kernel's own.
pub fn first_legal(
    kernel: &Kernel,
    config: &Config,
    candidates: &[std::collections::BTreeMap<String, tessera_frontend::Capture>],
    choice: &Choice,
    mode: Mode,
    (said, call): (&Said, &CallArrays),
    loc: &Loc,
) -> Result<Specialised, Diagnostics> {
    if candidates.is_empty() {
        return compile(kernel, config, choice, mode, said, call);
    }
    let mut failures: Vec<(String, Diagnostics)> = Vec::new();
    for candidate in candidates {
        let config = Config { tunables: candidate.clone(), ..config.clone() };
        match compile(kernel, &config, choice, mode, said, call) {
            Ok(mut spec) => {
                spec.rejected = failures.into_iter().map(|(c, d)| (c, first_message(&d))).collect();
                return Ok(spec);
            }
            Err(errors) if is_passed_over(&errors) => {
                failures.push((config::show_all(candidate), errors));
            }
            Err(errors) => return Err(errors),
        }
    }
    let first = |d: &Diagnostics| d.errors().next().map(|d| (d.code, d.message.clone()));
    if failures.windows(2).all(|pair| first(&pair[0].1) == first(&pair[1].1)) {
        return Err(failures.swap_remove(0).1);
    }
    let mut error = Diagnostic::new(
        Code::E_TUNE_SPACE_EMPTY,
        format!("none of the {} candidates of the autotuning space is legal", failures.len()),
    )
    .at(loc.clone())
    .help("add a candidate that fits; the notes say why each does not");
    for (candidate, errors) in &failures {
        error = error.note(format!("{candidate}: {}", first_message(errors)));
    }
    Err(error.into())
}

/// Whether another candidate may do better: shapes and resources depend on it, the rest does not.
pub fn is_passed_over(errors: &Diagnostics) -> bool {
    errors.errors().all(|d| matches!(d.code.kind(), Kind::Resource | Kind::Shape))
}

pub fn first_message(errors: &Diagnostics) -> String {
    errors.errors().next().map_or(String::new(), |d| format!("{}: {}", d.code, d.message))
}
