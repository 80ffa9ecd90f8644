//! A kernel with everything that was compiled of it.

#[cfg(test)]
mod tests;

use crate::backends::{Backends, Choice};
use crate::bind::Bound;
use crate::config::key;
use crate::constraint::{self, Constraint};
use crate::cost::{self, Cost};
use crate::dims::Sizes;
use crate::explain::{Explanation, Record, explain};
use crate::inspect::{self, LevelError};
use crate::mode::Mode;
use crate::params::Params;
use crate::replay::Launches;
use crate::request::Given;
use crate::specialise::{Specialised, first_legal, is_passed_over, lanes_or_default};
use crate::tuning::{TuneOptions, Tuning};
use crate::warnings::Warnings;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tessera_diag::{Diagnostic, Diagnostics, Kind};
use tessera_frontend::{Capture, Config, Kernel, KernelDecl};
use tessera_ir::{Attrs, Privilege};
use tessera_numerics::Profile;
use tessera_support::{Census, Counted, Flights, ForkLock, Hash128};
use tessera_target::arrays::Said;
use tessera_target::beside;

/// Options beside the declaration: how the kernel is to be used.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The backend the kernel is bound to.
    pub target: Option<String>,
    pub require: Vec<Constraint>,
    pub tuning: TuneOptions,
}

pub struct KernelHandle {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) params: Params,
    /// The tunables, in the order they are tried.
    candidates: Vec<BTreeMap<String, Capture>>,
    options: Options,
    /// Shared with threads that compile, which may outlast the call that requested them.
    shared: Arc<Shared>,
    /// Calls that can be repeated without being bound again.
    replays: Arc<Launches>,
    /// How its tunables are chosen, and what is known of them.
    pub(crate) tuning: Tuning,
}

/// So much compiled code a kernel keeps. More is for sizes that change all the time.
const MOST: usize = 256;

static ALIVE: Census = Census::new();

/// How many kernels there are.
pub fn census() -> (usize, usize) {
    ALIVE.now()
}

struct Shared {
    state: ForkLock<KernelState>,
    /// Configurations that are being compiled.
    compiling: Flights<Hash128>,
    /// Whether there may be warnings that were not handed out.
    news: AtomicBool,
    _counted: Counted,
}

impl Shared {
    fn new(state: KernelState) -> Self {
        let (state, news) = (ForkLock::new(state), AtomicBool::new(true));
        Self { state, compiling: Flights::new(), news, _counted: ALIVE.count(0) }
    }

    fn find(&self, key: Hash128) -> Option<Arc<Specialised>> {
        self.state.lock().compiled.get(key)
    }

    fn keep(&self, key: Hash128, spec: &Arc<Specialised>) {
        let mut state = self.state.lock();
        state.warnings.add(&spec.notes);
        state.compiled.insert(key, spec);
        self.news.store(true, Ordering::Release);
    }
}

/// Compiled code by its configuration: a least-recently-used cache.
#[derive(Default)]
struct Compiled {
    all: BTreeMap<Hash128, (Arc<Specialised>, u64)>,
    /// Counts uses.
    clock: u64,
}

impl Compiled {
    fn get(&mut self, key: Hash128) -> Option<Arc<Specialised>> {
        self.clock += 1;
        let (spec, used) = self.all.get_mut(&key)?;
        *used = self.clock;
        Some(spec.clone())
    }

    fn insert(&mut self, key: Hash128, spec: &Arc<Specialised>) {
        self.clock += 1;
        self.all.entry(key).or_insert_with(|| (spec.clone(), self.clock));
        if self.all.len() > MOST
            && let Some((&oldest, _)) = self.all.iter().min_by_key(|(_, (_, used))| *used)
        {
            self.all.remove(&oldest);
        }
    }
}

#[derive(Default)]
struct KernelState {
    compiled: Compiled,
    last: Option<Arc<Record>>,
    /// How long the last launch took, where it was a replay and `last` describes an earlier launch.
    took: Option<Duration>,
    warnings: Warnings,
}

impl KernelHandle {
    pub fn new(decl: KernelDecl, options: Options) -> Result<Self, Diagnostics> {
        let candidates = decl.tunables.candidates.clone();
        let kernel = declare(decl).map_err(|e| e.inside_kernel(Kind::Type))?;
        let params = Params::new(kernel.decl());
        crate::schedule::check(&candidates, &params.loc)?;
        let mut state = KernelState::default();
        state.warnings.add(kernel.notes());
        let (kernel, shared) = (Arc::new(kernel), Arc::new(Shared::new(state)));
        let replays = Launches::of_kernel();
        let tuning = Tuning::new(options.tuning.clone());
        crate::tuning::check_key(&params, &tuning)?;
        Ok(Self { kernel, params, candidates, options, shared, replays, tuning })
    }

    pub fn name(&self) -> &str {
        &self.params.kernel
    }

    pub fn param_count(&self) -> usize {
        self.params.items.len()
    }

    /// The dims that reach tile shapes.
    pub fn static_dims(&self) -> &[String] {
        self.kernel.static_dims()
    }

    /// Names of the parameters, in order.
    pub fn param_names(&self) -> impl Iterator<Item = &str> {
        self.params.items.iter().map(|p| p.name.as_str())
    }

    /// By parameter, what the kernel does with its elements, declared or found in the body; `None` for numbers.
    pub fn privileges(&self) -> Vec<Option<Privilege>> {
        self.kernel.privileges().to_vec()
    }

    /// Which parameters the kernel returns.
    pub fn returns(&self) -> &[usize] {
        self.kernel.returns()
    }

    /// Warnings that were not handed out yet; each is handed out once.
    pub fn take_warnings(&self) -> Vec<String> {
        // A call rarely has any, and should not take the lock to find that out.
        if !self.shared.news.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        self.shared.state.lock().warnings.take()
    }

    pub fn clear(&self) {
        let mut state = self.shared.state.lock();
        state.compiled = Compiled::default();
        (state.last, state.took) = (None, None);
        drop(self.replays.take());
        self.tuning.clear();
    }

    pub(crate) fn require(&self, sizes: &Sizes) -> Result<(), Diagnostics> {
        if self.options.require.is_empty() {
            return Ok(());
        }
        let mut errors = Diagnostics::new();
        constraint::check(&self.options.require, sizes, &self.params.loc, &mut errors);
        errors.into_result().map(|_| ())
    }

    /// The code for a configuration, and whether it was there. `pinned` are tunables with values; arrays like those of `call` are
    /// what it is compiled for first.
    pub(crate) fn specialise(
        &self,
        config: &Config,
        pinned: &BTreeMap<String, Capture>,
        choice: &Choice,
        mode: Mode,
        said: &Said,
        call: Option<&Bound>,
    ) -> Result<(Arc<Specialised>, bool), Diagnostics> {
        let key = key(config, pinned, &*choice.backend, mode, said);
        if let Some(spec) = self.shared.find(key) {
            return Ok((spec, true));
        }
        let (kernel, shared) = (self.kernel.clone(), self.shared.clone());
        let (candidates, loc) = (self.candidates(pinned), self.params.loc.clone());
        let (wanted, choice, said) = (config.clone(), choice.clone(), said.clone());
        let call = call.map(Bound::arrays).unwrap_or_default();
        let (spec, was_there) = beside(move || {
            let make = || {
                let arrays = (&said, &call);
                let spec = first_legal(&kernel, &wanted, &candidates, &choice, mode, arrays, &loc)?;
                let spec = Arc::new(spec);
                shared.keep(key, &spec);
                Ok(spec)
            };
            shared.compiling.once(&key, || shared.find(key), make)
        })?;
        if !was_there {
            self.shared.state.lock().warnings.count_values(&self.params, config);
            self.shared.news.store(true, Ordering::Release);
        }
        Ok((spec, was_there))
    }

    /// The candidates in their order, each once.
    pub(crate) fn candidate_list(&self) -> Vec<BTreeMap<String, Capture>> {
        self.candidates(&BTreeMap::new())
    }

    /// Whether there is something to choose.
    pub(crate) fn has_candidates(&self) -> bool {
        self.candidates.len() > 1
    }

    /// Code of a candidate that was compiled before, for calls that differ in what no code depends on.
    pub(crate) fn compiled_before(
        &self,
        config: &Config,
        tunables: &BTreeMap<String, Capture>,
        choice: &Choice,
        mode: Mode,
    ) -> Option<Arc<Specialised>> {
        let key = key(config, tunables, &*choice.backend, mode, &Said::new());
        self.shared.find(key)
    }

    /// Keeps code of a candidate that was compiled elsewhere.
    pub(crate) fn keep_compiled(&self, config: &Config, spec: &Arc<Specialised>) {
        let tunables = &spec.config.tunables;
        let key = key(config, tunables, &*spec.choice.backend, spec.mode, &spec.said);
        self.shared.state.lock().compiled.insert(key, spec);
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

    pub(crate) fn record(&self, record: Arc<Record>) {
        let mut state = self.shared.state.lock();
        (state.last, state.took) = (Some(record), None);
    }

    /// A launch like an earlier one, which took so long.
    pub(crate) fn record_again(&self, record: Arc<Record>, took: Duration) {
        let mut state = self.shared.state.lock();
        (state.last, state.took) = (Some(record), Some(took));
    }

    /// A warning that is reported once.
    pub(crate) fn warn(&self, warning: Diagnostic) {
        self.shared.state.lock().warnings.add(&warning.into());
        self.shared.news.store(true, Ordering::Release);
    }

    pub(crate) fn last(&self) -> Option<Arc<Record>> {
        let state = self.shared.state.lock();
        match (&state.last, state.took) {
            (Some(record), Some(took)) => Some(Arc::new(record.taking(took))),
            (last, _) => last.clone(),
        }
    }

    pub fn explain(&self) -> Explanation {
        let last = self.last();
        let mut out = explain(self.name(), self.kernel.notes(), last.as_deref());
        if let Some(by) = last.and_then(|last| self.chosen_by(&last.spec)) {
            out.text.push_str(&format!("\n  tuned: {by}"));
            out.fields.push(("tuned", crate::explain::Field::Text(by)));
        }
        out
    }

    /// The work of the last launch, and its time.
    pub fn cost(&self) -> Result<Cost, Diagnostics> {
        cost::of_last(self.last().as_deref())
    }

    /// Graph, schedule and tile with open sizes; what a target has of its own, of what was compiled
    /// last, or of the open configuration where nothing is missing for it.
    pub fn inspect_ir(
        &self,
        backends: &Backends,
        name: &str,
        locs: bool,
    ) -> Result<String, LevelError> {
        let level = inspect::level(name)?;
        let backend =
            backends.to_compile(self.options.target.as_deref()).map_err(LevelError::Failed)?;
        if !inspect::OF_TARGET.contains(&level) {
            let lanes = lanes_or_default(self.kernel.symbolic());
            let (func, backend) = (self.kernel.symbolic(), backend.backend.name());
            return Ok(inspect::portable(
                func,
                &Config::default(),
                level,
                backend,
                &lanes,
                locs,
                Attrs::new(),
            ));
        }
        if let Some(last) = self.last() {
            return inspect::specialised(&last.spec, level, locs);
        }
        let compiled =
            self.open(&Given::default(), &backend, Profile::Default).map_err(LevelError::Failed)?;
        inspect::specialised(&compiled.0, level, locs)
    }

    /// Compiles without data.
    pub(crate) fn open(
        &self,
        given: &Given,
        choice: &Choice,
        profile: Profile,
    ) -> Result<(Arc<Specialised>, bool), Diagnostics> {
        let request = crate::request::read(&self.kernel, &self.params, given)?;
        self.require(&request.sizes)?;
        let mode = Mode { profile, off: given.off.and(crate::knobs::off()?), ..Mode::default() };
        let (config, tunables) = (&request.config, &request.tunables);
        self.specialise(config, tunables, choice, mode, &request.said, None)
    }

    /// Its calls that can be repeated.
    pub fn replays(&self) -> &Arc<Launches> {
        &self.replays
    }

    pub(crate) fn target(&self) -> Option<&str> {
        self.options.target.as_deref()
    }
}

/// Decoration checks a kernel with its first candidate. One that does not fit for its shapes is
/// passed over here as it would be at a call; the first one's errors are reported if none fits.
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
