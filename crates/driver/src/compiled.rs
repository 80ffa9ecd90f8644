//! A kernel compiled without data: what `.jit(...)` gives.

use crate::backends::Backends;
use crate::bind::Call;
use crate::config;
use crate::cost::{self, Cost};
use crate::explain::{Explanation, Record, explain};
use crate::inspect::{self, LevelError};
use crate::kernel::KernelHandle;
use crate::launch::{Ask, Prepared};
use crate::replay::Launches;
use crate::request::Given;
use crate::specialise::Specialised;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_frontend::Capture;
use tessera_numerics::Profile;

pub struct Compiled {
    pub kernel: Arc<KernelHandle>,
    spec: Arc<Specialised>,
    /// The backend that was requested.
    target: Option<String>,
    replays: Arc<Launches>,
}

impl Compiled {
    /// `target` names a backend, and wins over the kernel's own.
    pub fn new(
        kernel: &Arc<KernelHandle>,
        backends: &Backends,
        given: &Given,
        target: Option<&str>,
        profile: Profile,
    ) -> Result<Self, Diagnostics> {
        let target = target.or(kernel.target());
        let choice = backends.to_compile(target)?;
        let (spec, cache_hit) = kernel.open(given, &choice, profile)?;
        kernel.record(Arc::new(Record { spec: spec.clone(), cache_hit, launch: None }));
        let (kernel, target) = (kernel.clone(), target.map(str::to_string));
        Ok(Self { kernel, spec, target, replays: Launches::of_kernel() })
    }

    /// The profile is the one it was compiled with. Arrays that are elsewhere than where it runs
    /// get code of their own, unless the target was named.
    pub fn prepare(
        &self,
        backends: &Backends,
        call: Call,
        ask: Ask,
    ) -> Result<Prepared, Diagnostics> {
        let target = self.target.as_deref();
        self.kernel.prepare_compiled(backends, &self.spec, target, call, ask, &self.replays)
    }

    /// Its calls that can be repeated.
    pub fn replays(&self) -> &Arc<Launches> {
        &self.replays
    }

    pub fn config(&self) -> Vec<(String, Capture)> {
        config::entries(&self.spec.config)
    }

    pub fn resources(&self) -> Vec<(&'static str, String)> {
        self.spec.artifact.resources()
    }

    pub fn inspect_ir(&self, level: &str, locs: bool) -> Result<String, LevelError> {
        inspect::specialised(&self.spec, level, locs)
    }

    pub fn explain(&self) -> Explanation {
        let own = || Record { spec: self.spec.clone(), cache_hit: false, launch: None };
        let last = self.last().unwrap_or_else(|| Arc::new(own()));
        explain(self.kernel.name(), self.kernel.kernel.notes(), Some(&last))
    }

    /// The work of its last launch; with `sizes`, or where there was none, that of one with these
    /// dims.
    pub fn cost(&self, sizes: &BTreeMap<String, Capture>) -> Result<Cost, Diagnostics> {
        let last = self.last().filter(|_| sizes.is_empty());
        match last.as_ref().and_then(|last| last.launch.as_ref()) {
            Some(launch) => cost::of_launch(&self.spec, launch),
            None => cost::of_sizes(&self.spec, &self.kernel.params, sizes),
        }
    }

    /// What the kernel did last, where it was this that it did.
    fn last(&self) -> Option<Arc<Record>> {
        self.kernel.last().filter(|r| Arc::ptr_eq(&r.spec, &self.spec))
    }
}
