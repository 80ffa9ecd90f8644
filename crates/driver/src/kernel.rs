//! A kernel with everything that was compiled of it.

use crate::alias;
use crate::args::{Arg, ArrayArg, Number};
use crate::backends::{Backends, Choice};
use crate::bind::{Bound, Call, Slot, bind};
use crate::config::key;
use crate::constraint::{self, Constraint};
use crate::explain::{Explanation, Launch, Record, explain};
use crate::geometry::geometry;
use crate::inspect::{self, LevelError};
use crate::params::Params;
use crate::specialise::{DEFAULT_LANES, Specialised, first_legal, is_passed_over};
use crate::warnings::Warnings;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_frontend::{Capture, Config, Kernel, KernelDecl};
use tessera_support::Hash128;
use tessera_target::{ArgValue, LaunchArgs};

/// What stands beside the declaration: how the kernel is to be used.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The backend the kernel is bound to.
    pub target: Option<String>,
    pub require: Vec<Constraint>,
}

pub struct KernelHandle {
    pub(crate) kernel: Kernel,
    pub(crate) params: Params,
    /// The tunables, in the order they are tried.
    candidates: Vec<BTreeMap<String, Capture>>,
    options: Options,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    compiled: BTreeMap<Hash128, Arc<Specialised>>,
    last: Option<Record>,
    warnings: Warnings,
}

/// A call that fits: arrays that were left out are still to be put in.
pub struct Prepared {
    bound: Bound,
    spec: Arc<Specialised>,
    cache_hit: bool,
}

impl Prepared {
    /// The arrays to allocate: parameter, shape, type.
    pub fn missing(&self) -> Vec<(usize, Vec<i64>, tessera_numerics::NumType)> {
        let slots = self.bound.slots.iter().enumerate();
        slots
            .filter_map(|(i, slot)| match slot {
                Slot::Missing { dims, elem } => Some((i, dims.clone(), *elem)),
                Slot::Array(_) | Slot::Scalar(_) | Slot::Static => None,
            })
            .collect()
    }

    pub fn fill(&mut self, param: usize, array: ArrayArg) {
        self.bound.slots[param] = Slot::Array(array);
    }

    /// The parameters the call gives back.
    pub fn returns(&self) -> &[usize] {
        &self.spec.returns
    }
}

impl KernelHandle {
    pub fn new(decl: KernelDecl, options: Options) -> Result<Self, Diagnostics> {
        let candidates = decl.tunables.candidates.clone();
        let kernel = declare(decl)?;
        let params = Params::new(kernel.decl());
        let mut state = State::default();
        state.warnings.add(kernel.notes());
        Ok(Self { kernel, params, candidates, options, state: Mutex::new(state) })
    }

    pub fn name(&self) -> &str {
        &self.params.kernel
    }

    /// Names of the parameters, in order.
    pub fn param_names(&self) -> impl Iterator<Item = &str> {
        self.params.items.iter().map(|p| p.name.as_str())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic while compiling leaves nothing half done: entries are added whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Warnings that were not handed out yet; each is handed out once.
    pub fn take_warnings(&self) -> Vec<String> {
        self.state().warnings.take()
    }

    pub fn clear(&self) {
        let mut state = self.state();
        state.compiled.clear();
        state.last = None;
    }

    /// Checks the arguments of a call and finds or makes the code for it.
    pub fn prepare(&self, backends: &Backends, call: Call) -> Result<Prepared, Diagnostics> {
        let bound = bind(&self.params, call, self.kernel.static_dims(), None)?;
        self.require(&bound)?;
        let choice = backends.choose(self.options.target.as_deref())?;
        let (spec, cache_hit) = self.specialise(&bound.config, &BTreeMap::new(), &choice)?;
        Ok(Prepared { bound, spec, cache_hit })
    }

    /// The same for code that exists already.
    pub(crate) fn prepare_compiled(
        &self,
        spec: &Arc<Specialised>,
        call: Call,
    ) -> Result<Prepared, Diagnostics> {
        let bound = bind(&self.params, call, self.kernel.static_dims(), Some(&spec.config))?;
        self.require(&bound)?;
        Ok(Prepared { bound, spec: spec.clone(), cache_hit: true })
    }

    fn require(&self, bound: &Bound) -> Result<(), Diagnostics> {
        let mut errors = Diagnostics::new();
        constraint::check(&self.options.require, &bound.sizes, &self.params.loc, &mut errors);
        errors.into_result().map(|_| ())
    }

    /// The code for a configuration, and whether it was there. `pinned` are tunables with values.
    pub(crate) fn specialise(
        &self,
        config: &Config,
        pinned: &BTreeMap<String, Capture>,
        choice: &Choice,
    ) -> Result<(Arc<Specialised>, bool), Diagnostics> {
        let wanted = Config { tunables: pinned.clone(), ..config.clone() };
        let key = key(&wanted, choice.backend.name());
        let mut state = self.state();
        if let Some(spec) = state.compiled.get(&key) {
            return Ok((spec.clone(), true));
        }
        let candidates = self.candidates(pinned);
        let spec =
            Arc::new(first_legal(&self.kernel, config, &candidates, choice, &self.params.loc)?);
        state.warnings.add(&spec.notes);
        state.warnings.count_values(&self.params, config);
        state.compiled.insert(key, spec.clone());
        Ok((spec, false))
    }

    /// The candidates with the pinned tunables put in, each once.
    fn candidates(&self, pinned: &BTreeMap<String, Capture>) -> Vec<BTreeMap<String, Capture>> {
        let mut out: Vec<BTreeMap<String, Capture>> = Vec::new();
        for candidate in &self.candidates {
            let mut candidate = candidate.clone();
            candidate.extend(pinned.iter().map(|(n, v)| (n.clone(), v.clone())));
            if !out.contains(&candidate) {
                out.push(candidate);
            }
        }
        out
    }

    /// Runs a prepared call. Nothing is written before every check has passed.
    pub fn launch(&self, call: Prepared, grid: Option<&[i64]>) -> Result<(), Diagnostics> {
        let (spec, bound) = (&call.spec, &call.bound);
        let geometry = geometry(spec, &bound.sizes, grid, &self.params.loc)?;
        self.check_memory(spec, bound)?;
        let params = spec.params.iter().filter_map(|&place| match &bound.slots[place] {
            Slot::Array(a) => Some(ArgValue::Buffer(a.buffer.clone())),
            Slot::Scalar(s) => Some(ArgValue::Scalar(*s)),
            Slot::Static | Slot::Missing { .. } => None,
        });
        let args = LaunchArgs {
            params: params.collect(),
            dims: bound.sizes.known.clone(),
            grid: geometry.grid,
            domain: geometry.domain,
            lanes: geometry.lanes,
        };
        let start = Instant::now();
        if !geometry.is_empty() {
            spec.artifact.launch(&args)?;
        }
        let launch = Some(Launch { geometry, time: start.elapsed() });
        self.record(Record { spec: call.spec, cache_hit: call.cache_hit, launch });
        Ok(())
    }

    fn check_memory(&self, spec: &Specialised, bound: &Bound) -> Result<(), Diagnostics> {
        let accesses: Vec<_> = spec
            .params
            .iter()
            .enumerate()
            .filter_map(|(place, &param)| match &bound.slots[param] {
                Slot::Array(array) => Some(alias::Access {
                    name: &self.params.items[param].name,
                    place,
                    array,
                    privilege: spec.privilege(place),
                    loc: self.params.items[param].loc.clone(),
                }),
                Slot::Scalar(_) | Slot::Static | Slot::Missing { .. } => None,
            })
            .collect();
        let mut errors = Diagnostics::new();
        alias::check(&spec.func, &accesses, &mut errors);
        errors.into_result().map(|_| ())
    }

    pub(crate) fn record(&self, record: Record) {
        self.state().last = Some(record);
    }

    pub(crate) fn last(&self) -> Option<Record> {
        self.state().last.clone()
    }

    pub fn explain(&self) -> Explanation {
        explain(self.name(), self.kernel.notes(), self.last().as_ref())
    }

    /// Graph, schedule and tile with open sizes; the target of what was compiled last, or of the
    /// open configuration where nothing is missing for it.
    pub fn inspect_ir(
        &self,
        backends: &Backends,
        name: &str,
        locs: bool,
    ) -> Result<String, LevelError> {
        let level = inspect::level(name)?;
        let backend =
            backends.choose(self.options.target.as_deref()).map_err(LevelError::Failed)?;
        if level != "target" {
            let lanes = self.kernel.decl().lanes.unwrap_or(DEFAULT_LANES);
            let (func, backend) = (self.kernel.symbolic(), backend.backend.name());
            return Ok(inspect::portable(func, &Config::default(), level, backend, lanes, locs));
        }
        if let Some(last) = self.last() {
            return inspect::specialised(&last.spec, level, locs);
        }
        let compiled = self.open(&BTreeMap::new(), &backend).map_err(LevelError::Failed)?;
        inspect::specialised(&compiled.0, level, locs)
    }

    /// Compiles without data.
    pub(crate) fn open(
        &self,
        given: &BTreeMap<String, Capture>,
        choice: &Choice,
    ) -> Result<(Arc<Specialised>, bool), Diagnostics> {
        let request = crate::request::read(&self.kernel, &self.params, given)?;
        let mut errors = Diagnostics::new();
        constraint::check(&self.options.require, &request.sizes, &self.params.loc, &mut errors);
        errors.into_result()?;
        self.specialise(&request.config, &request.tunables, choice)
    }

    pub(crate) fn target(&self) -> Option<&str> {
        self.options.target.as_deref()
    }
}

/// Decoration checks a kernel with its first candidate. One that does not fit for its shapes is
/// passed over here as it would be at a call; the first one's errors are told if none fits.
fn declare(decl: KernelDecl) -> Result<Kernel, Diagnostics> {
    let mut first = None;
    for place in 0..decl.tunables.candidates.len().max(1) {
        let mut turned = decl.clone();
        turned.tunables.candidates.rotate_left(place);
        match Kernel::new(turned) {
            Ok(kernel) => return Ok(kernel),
            Err(errors) if is_passed_over(&errors) => _ = first.get_or_insert(errors),
            Err(errors) => return Err(first.unwrap_or(errors)),
        }
    }
    Err(first.unwrap_or_default())
}

/// A grid as the caller writes it.
pub fn grid_of(values: &[Arg]) -> Result<Vec<i64>, Diagnostics> {
    let extent = |arg: &Arg| match arg {
        Arg::Number { value: Number::Int(v), .. } => i64::try_from(*v).ok(),
        _ => None,
    };
    values.iter().map(|a| extent(a).ok_or(a)).collect::<Result<_, _>>().map_err(|bad| {
        Diagnostic::new(
            Code::E_LAUNCH_GEOMETRY,
            format!("expected an integer in the grid, got {}", bad.describe()),
        )
        .help("write `k[gx, gy](...)` with integers, such as `ts.cdiv(n, 64)`")
        .into()
    })
}
