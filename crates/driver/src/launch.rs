//! Calls: arguments are bound, code is found or made, every check passes, and then it runs.

use crate::alias;
use crate::args::{Arg, ArrayArg, Number};
use crate::backends::Backends;
use crate::bind::{Bound, Call, Slot, bind};
use crate::copies::Copies;
use crate::explain::{How, Launch, Record};
use crate::geometry::{Geometry, geometry};
use crate::kernel::KernelHandle;
use crate::knobs;
use crate::mode::{Form, GridFrom, Mode};
use crate::specialise::Specialised;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_interp::{CheckOptions, CheckReport, Checked, Sink, Watch};
use tessera_ir::Privilege;
use tessera_numerics::{NumType, Profile};
use tessera_target::{ArgValue, LaunchArgs};

/// How a call is to be run, beside its arguments.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub grid: Option<Vec<i64>>,
    pub profile: Profile,
    pub purpose: Purpose,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    #[default]
    Run,
    /// Looks for mistakes and leaves the caller's arrays alone.
    Check,
    /// Runs by the lines of the source.
    Watch,
}

impl Ask {
    fn mode(&self) -> Mode {
        let form = if self.purpose == Purpose::Watch { Form::Source } else { Form::Lowered };
        Mode { profile: self.profile, grid: GridFrom::caller(self.grid.as_deref()), form }
    }
}

/// A call that fits: arrays that were left out are still to be put in.
pub struct Prepared {
    bound: Bound,
    spec: Arc<Specialised>,
    cache_hit: bool,
    grid: Option<Vec<i64>>,
    /// Whether the environment makes it a checked launch.
    checked: bool,
}

impl Prepared {
    /// The arrays to allocate: parameter, shape, type, and the privilege they are used with. One that
    /// a kernel folds into begins with the identity of its operator.
    pub fn missing(&self) -> Vec<(usize, Vec<i64>, NumType, Privilege)> {
        let slots = self.bound.slots.iter().enumerate();
        slots
            .filter_map(|(i, slot)| match slot {
                Slot::Missing { dims, elem } => {
                    let place = self.spec.params.iter().position(|&p| p == i);
                    let privilege = place.map_or(Privilege::Write, |p| self.spec.privilege(p));
                    Some((i, dims.clone(), *elem, privilege))
                }
                Slot::Array(_) | Slot::Scalar(_) | Slot::Static => None,
            })
            .collect()
    }

    pub fn fill(&mut self, param: usize, array: ArrayArg) {
        self.bound.slots[param] = Slot::Array(array);
    }

    /// The parameters the call gives back: those the kernel returns, and those left to us.
    pub fn returns(&self) -> Vec<usize> {
        let mut out = self.spec.returns.clone();
        out.extend(
            self.missing().into_iter().map(|m| m.0).filter(|p| !self.spec.returns.contains(p)),
        );
        out
    }

    /// Sizes of dims, and integers of the caller, by name.
    pub fn sizes(&self) -> &BTreeMap<String, i64> {
        &self.bound.sizes.known
    }

    /// Lines at which a watched run can stop, by file.
    pub fn lines(&self) -> BTreeMap<String, Vec<u32>> {
        tessera_interp::lines_of(&self.spec.func)
    }
}

impl KernelHandle {
    /// Checks the arguments of a call and finds or makes the code for it.
    pub fn prepare(
        &self,
        backends: &Backends,
        call: Call,
        ask: Ask,
    ) -> Result<Prepared, Diagnostics> {
        let bound = bind(&self.params, call, self.kernel.static_dims(), None)?;
        self.require(&bound.sizes)?;
        let checked = knobs::CHECK.is_on();
        let choice = match ask.purpose {
            Purpose::Run if checked => {
                backends.choose(self.target())?;
                backends.interpreter("TESSERA_CHECK asks for it")?
            }
            Purpose::Run => backends.choose(self.target())?,
            Purpose::Check | Purpose::Watch => backends.interpreter("the call asks for it")?,
        };
        let (spec, cache_hit) =
            self.specialise(&bound.config, &BTreeMap::new(), &choice, ask.mode())?;
        Ok(Prepared { bound, spec, cache_hit, grid: ask.grid, checked })
    }

    /// The same for code that exists already, but for the caller's grid.
    pub(crate) fn prepare_compiled(
        &self,
        spec: &Arc<Specialised>,
        call: Call,
        ask: Ask,
    ) -> Result<Prepared, Diagnostics> {
        let bound = bind(&self.params, call, self.kernel.static_dims(), Some(&spec.config))?;
        self.require(&bound.sizes)?;
        let mode = Mode { profile: spec.mode.profile, ..ask.mode() };
        let (spec, cache_hit) = if mode == spec.mode {
            (spec.clone(), true)
        } else {
            self.specialise(&spec.config, &spec.config.tunables, &spec.choice, mode)?
        };
        let checked = knobs::CHECK.is_on();
        Ok(Prepared { bound, spec, cache_hit, grid: ask.grid, checked })
    }

    /// Runs a prepared call. Nothing is written before every check has passed.
    pub fn launch(&self, call: Prepared) -> Result<(), Diagnostics> {
        let checked = call.checked;
        let ready = self.ready(call)?;
        if !checked {
            return self.run(ready, How::Backend, |spec, args| spec.artifact.launch(args));
        }
        self.run(ready, How::Checked, |spec, args| {
            let report = Checked::new(&spec.func, &CheckOptions::default())?.check(args)?;
            report.into_result()
        })
    }

    /// Runs a call under the checker, on copies of what it writes.
    pub fn check(&self, call: Prepared) -> Result<CheckReport, Diagnostics> {
        let mut ready = self.ready(call)?;
        let _copies = Copies::of_written(&ready.spec, &mut ready.args);
        let mut report = CheckReport::default();
        self.run(ready, How::Checked, |spec, args| {
            report = Checked::new(&spec.func, &CheckOptions::default())?.check(args)?;
            Ok(())
        })?;
        Ok(report)
    }

    /// Runs a call by the lines of its source and tells what was asked for.
    pub fn watch(&self, call: Prepared, wanted: &Watch, sink: Sink<'_>) -> Result<(), Diagnostics> {
        let ready = self.ready(call)?;
        self.run(ready, How::Watched, |spec, args| {
            tessera_interp::watch(&spec.func, args, wanted, sink)
        })
    }

    fn ready(&self, call: Prepared) -> Result<Ready, Diagnostics> {
        let Prepared { bound, spec, cache_hit, grid, checked } = call;
        let geometry = geometry(&spec, &bound.sizes, grid.as_deref(), &self.params.loc)?;
        self.check_memory(&spec, &bound)?;
        if spec.is_lane() && (checked || spec.choice.backend.name() == "interp") {
            tessera_interp::set_warp_size(knobs::interp_warp()?);
        }
        let mut slots = bound.slots;
        let params = spec.params.iter().filter_map(|&place| {
            match std::mem::replace(&mut slots[place], Slot::Static) {
                Slot::Array(a) => Some(ArgValue::Buffer(a.buffer)),
                Slot::Scalar(s) => Some(ArgValue::Scalar(s)),
                Slot::Static | Slot::Missing { .. } => None,
            }
        });
        let args = LaunchArgs {
            params: params.collect(),
            dims: bound.sizes.known,
            grid: geometry.grid,
            domain: geometry.domain,
            lanes: geometry.lanes,
        };
        Ok(Ready { spec, cache_hit, geometry, args })
    }

    fn run(
        &self,
        ready: Ready,
        how: How,
        work: impl FnOnce(&Specialised, &LaunchArgs) -> Result<(), Diagnostics>,
    ) -> Result<(), Diagnostics> {
        let Ready { spec, cache_hit, geometry, args } = ready;
        let start = Instant::now();
        if !geometry.is_empty() {
            work(&spec, &args)?;
        }
        let launch = Some(Launch { geometry, time: start.elapsed(), how, dims: args.dims });
        self.record(Record { spec, cache_hit, launch });
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
                    loc: &self.params.items[param].loc,
                }),
                Slot::Scalar(_) | Slot::Static | Slot::Missing { .. } => None,
            })
            .collect();
        let mut errors = Diagnostics::new();
        alias::check(&spec.func, &accesses, &mut errors);
        errors.into_result().map(|_| ())
    }
}

/// A call that has passed every check.
struct Ready {
    spec: Arc<Specialised>,
    cache_hit: bool,
    geometry: Geometry,
    args: LaunchArgs,
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
