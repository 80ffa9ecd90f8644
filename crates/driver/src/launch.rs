//! Calls: arguments are bound, code is found or made, every check passes, and then it runs.

use crate::alias;
use crate::args::{Arg, ArrayArg, Number};
use crate::backends::{Backends, Choice};
use crate::bind::{Bound, Call, Slot, bind, stored};
use crate::copies::Copies;
use crate::device::{hold_back, or_wait, wait_for};
use crate::explain::{How, Launch, Record};
use crate::fetch::Fetched;
use crate::geometry::{Geometry, check_axes, geometry};
use crate::kernel::KernelHandle;
use crate::knobs;
use crate::location::{Location, first_array, location};
use crate::mode::{Form, GridFrom, Mode};
use crate::profile::Span;
use crate::replay::{Key, Launches, Note, Noted, Recipe, Way};
use crate::specialise::Specialised;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tessera_diag::{Code, Diagnostic, Diagnostics, Kind, Loc};
use tessera_interp::{CheckOptions, CheckReport, Checked, Sink, Watch};
use tessera_ir::{DimExpr, Privilege};
use tessera_lower::Launched;
use tessera_numerics::{NumType, Profile};
use tessera_support::ForkLock;
use tessera_target::device::DeviceId;
use tessera_target::{ArgValue, Backend, LaunchArgs, Queue};

/// How a call is to be run, beside its arguments.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    pub grid: Option<Vec<i64>>,
    pub profile: Profile,
    pub purpose: Purpose,
    pub streams: Streams,
    /// What the call looks like, where it is to be kept for replay.
    pub key: Option<Key>,
}

/// The streams of a call on a device, by their handles; 0 is the default one.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    /// The one it runs on: the caller's.
    pub on: u64,
    /// Those whose work so far goes before the call.
    pub after: Vec<u64>,
    /// Those whose later work waits for the call.
    pub then: Vec<u64>,
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
    fn mode(&self) -> Result<Mode, Diagnostics> {
        let form = match self.purpose {
            Purpose::Watch => Form::Source,
            Purpose::Check => Form::Checked,
            Purpose::Run if knobs::CHECK.is_on() => Form::Checked,
            Purpose::Run => Form::Lowered,
        };
        let (grid, off) = (GridFrom::caller(self.grid.as_deref()), knobs::off()?);
        Ok(Mode { profile: self.profile, grid, form, off })
    }
}

/// An array that a caller leaves to the call.
pub struct Missing {
    pub param: usize,
    pub dims: Vec<i64>,
    pub elem: NumType,
    /// What it is used with. One that a kernel folds into begins with the identity of its operator.
    pub privilege: Privilege,
    /// Whether it begins with zeros: it is not known that every element is written.
    pub clear: bool,
}

/// A call that fits: arrays that were left out are still to be put in.
#[derive(Clone)]
pub struct Prepared {
    pub(crate) bound: Bound,
    pub(crate) spec: Arc<Specialised>,
    pub(crate) cache_hit: bool,
    grid: Option<Vec<i64>>,
    /// Whether the environment makes it a checked launch.
    pub(crate) checked: bool,
    /// Whether candidates are measured before it runs.
    pub(crate) measure: bool,
    pub(crate) location: Location,
    /// The device that works on copies of arrays in host memory, where the backend has devices.
    pub(crate) copied_to: DeviceId,
    pub(crate) streams: Streams,
    /// Parameters whose arrays were made for the call.
    made: Vec<usize>,
    /// Where it is kept for replay. Calls with arrays made for them on a device always take the full
    /// path.
    noted: Option<Noted>,
}

impl Prepared {
    /// The arrays to allocate.
    pub fn missing(&self) -> Vec<Missing> {
        let slots = self.bound.slots.iter().enumerate();
        slots
            .filter_map(|(param, slot)| match slot {
                Slot::Missing { dims, elem } => {
                    let place = self.spec.params.iter().position(|&p| p == param);
                    let privilege = place.map_or(Privilege::Write, |p| self.spec.privilege(p));
                    let (dims, elem) = (dims.clone(), *elem);
                    let whole = privilege == Privilege::Write
                        && place.is_some_and(|p| self.writes_whole(p, &stored(&dims, elem)));
                    let clear = !privilege.reduces() && !whole;
                    Some(Missing { param, dims, elem, privilege, clear })
                }
                Slot::Array(_) | Slot::Scalar(_) | Slot::Static => None,
            })
            .collect()
    }

    fn writes_whole(&self, place: usize, dims: &[i64]) -> bool {
        let dims = if dims.is_empty() { &[1] } else { dims };
        let sizes = &self.bound.sizes;
        // A call without a geometry is refused later.
        let known = geometry(&self.spec, sizes, self.grid.as_deref(), &Loc::unknown());
        known.is_ok_and(|g| {
            let eval = |e: &DimExpr| sizes.eval(e).ok();
            let launch = Launched { grid: g.grid, domain: g.domain, eval: &eval };
            self.spec.writes_whole(place, dims, &launch)
        })
    }

    /// Puts in an array that was made for the call. What other streams do to it goes before.
    pub fn fill(&mut self, param: usize, mut array: ArrayArg, streams: &[u64]) {
        array.as_point();
        self.bound.slots[param] = Slot::Array(array);
        if self.location != Location::Host {
            self.noted = None;
        }
        self.made.push(param);
        for &stream in streams {
            if stream != self.streams.on && !self.streams.after.contains(&stream) {
                self.streams.after.push(stream);
            }
        }
    }

    /// The parameters the call gives back: those the kernel returns, and those left to us.
    pub fn returns(&self) -> Vec<usize> {
        let mut out = self.spec.returns.clone();
        out.extend(
            self.missing().into_iter().map(|m| m.param).filter(|p| !self.spec.returns.contains(p)),
        );
        out
    }

    /// Where it is put, if it is not run to its end in host memory.
    pub(crate) fn queue(&self) -> Option<Queue> {
        match self.location {
            Location::Device(device) if self.spec.choice.works_at(self.location) => {
                Some(Queue { device, stream: self.streams.on })
            }
            Location::Device(_) | Location::Host => None,
        }
    }

    /// The call with other code of its kernel, to be run as it is.
    pub(crate) fn with(self, spec: Arc<Specialised>, cache_hit: bool) -> Self {
        Self { spec, cache_hit, measure: false, ..self }
    }

    /// What it uses each parameter of the kernel for; `None` for those that are no arrays.
    pub fn privileges(&self) -> Vec<Option<Privilege>> {
        self.spec.privileges(self.bound.slots.len())
    }

    /// Where the arrays are: what is allocated goes there too.
    pub fn location(&self) -> Location {
        self.location
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
        mut ask: Ask,
    ) -> Result<Prepared, Diagnostics> {
        let noted = self.noted(&mut ask, &call, self.replays());
        check_axes(ask.grid.as_deref(), &self.params.loc)?;
        let bound = bind(&self.params, call, self.kernel.static_dims(), None)?;
        self.require(&bound.sizes)?;
        let place = Placed::new(self, backends, &bound, self.target(), &ask)?;
        let (spec, cache_hit, measure) =
            self.choose(&bound, place.location, &place.choice, ask.mode()?)?;
        Ok(Prepared { measure, ..place.prepared(bound, spec, cache_hit, ask, noted) })
    }

    /// Where a call is kept.
    fn noted(&self, ask: &mut Ask, call: &Call, table: &Arc<Launches>) -> Option<Noted> {
        ask.key.take().map(|key| Noted::new(key, table, call, &self.params))
    }

    /// The same for code that exists already, but for the caller's grid.
    pub(crate) fn prepare_compiled(
        &self,
        backends: &Backends,
        spec: &Arc<Specialised>,
        target: Option<&str>,
        call: Call,
        mut ask: Ask,
        table: &Arc<Launches>,
    ) -> Result<Prepared, Diagnostics> {
        let noted = self.noted(&mut ask, &call, table);
        check_axes(ask.grid.as_deref(), &self.params.loc)?;
        let bound = bind(&self.params, call, self.kernel.static_dims(), Some(&spec.config))?;
        self.require(&bound.sizes)?;
        let place = Placed::new(self, backends, &bound, target, &ask)?;
        let Mode { profile, off, .. } = spec.mode;
        let mode = Mode { profile, off, ..ask.mode()? };
        let same =
            |a: &dyn Backend, b: &dyn Backend| a.name() == b.name() && a.target() == b.target();
        let here = place.checked || same(&*place.choice.backend, &*spec.choice.backend);
        let (spec, cache_hit) = if mode == spec.mode && here {
            (spec.clone(), true)
        } else {
            let choice = if here { &spec.choice } else { &place.choice };
            let (config, tunables) = (&spec.config, &spec.config.tunables);
            let call = bound.call_on(place.location, choice);
            self.specialise(config, tunables, choice, mode, &spec.said, call)?
        };
        Ok(place.prepared(bound, spec, cache_hit, ask, noted))
    }

    /// The checks that are left when a call is launched: of its geometry, and of arrays that share memory.
    pub fn check_launch(&self, call: &Prepared) -> Result<(), Diagnostics> {
        geometry(&call.spec, &call.bound.sizes, call.grid.as_deref(), &self.params.loc)?;
        self.check_memory(&call.spec, &call.bound)
    }

    /// Runs a prepared call. Nothing is written before every check has passed.
    pub fn launch(&self, call: Prepared) -> Result<(), Diagnostics> {
        let call = self.after_tuning(call)?;
        let checked = call.checked;
        let made = self.made(&call);
        let ready = self.ready(call)?;
        let device = match ready.location {
            Location::Device(device) if ready.spec.choice.works_at(ready.location) && !checked => {
                Some(device)
            }
            Location::Device(_) | Location::Host => None,
        };
        if let Some(device) = device {
            return self.enqueue(ready, device);
        }
        if !checked {
            let how = if ready.spec.choice.is_on_device() { How::Copied } else { How::Backend };
            let there = ready.copied_to;
            return self.run(ready, how, |spec, args| {
                spec.artifact.launch_on(args, there).map_err(|e| e.inside_kernel(Kind::Check))
            });
        }
        self.run(ready, How::Checked, |spec, args| {
            let checked = Checked::new(&spec.func, &CheckOptions::default())?;
            checked.check_with(args, &made)?.into_result()
        })
    }

    /// Runs a call under the checker, on copies of what it writes.
    pub fn check(&self, call: Prepared) -> Result<CheckReport, Diagnostics> {
        let made = self.made(&call);
        let mut ready = self.ready(call)?;
        // What is fetched from a device is a copy already, and is not put back.
        let fetched = ready.fetch()?;
        ready.location = Location::Host;
        let _copies = match &fetched {
            None => Some(Copies::of_written(&ready.spec, &mut ready.args)?),
            Some(_) => None,
        };
        let mut report = CheckReport::default();
        self.run(ready, How::Checked, |spec, args| {
            let checked = Checked::new(&spec.func, &CheckOptions::default())?;
            report = checked.check_with(args, &made)?;
            Ok(())
        })?;
        Ok(report)
    }

    /// The parameters of the function whose arrays hold nothing yet, with where they are declared.
    fn made(&self, call: &Prepared) -> Vec<(usize, Loc)> {
        let place = |&param: &usize| {
            let place = call.spec.params.iter().position(|&p| p == param)?;
            let fold = call.spec.privilege(place).reduces();
            (!fold).then(|| (place, self.params.items[param].loc.clone()))
        };
        call.made.iter().filter_map(place).collect()
    }

    /// Runs a call line by line and reports the requested values to the sink.
    pub fn watch(&self, call: Prepared, wanted: &Watch, sink: Sink<'_>) -> Result<(), Diagnostics> {
        let ready = self.ready(call)?;
        self.run(ready, How::Watched, |spec, args| {
            tessera_interp::watch(&spec.func, args, wanted, sink)
                .map_err(|e| e.inside_kernel(Kind::Check))
        })
    }

    pub(crate) fn ready(&self, call: Prepared) -> Result<Ready, Diagnostics> {
        let Prepared {
            bound,
            spec,
            cache_hit,
            grid,
            checked,
            measure: _,
            location,
            copied_to,
            streams,
            made,
            noted,
        } = call;
        let geometry = geometry(&spec, &bound.sizes, grid.as_deref(), &self.params.loc)?;
        self.check_memory(&spec, &bound)?;
        if spec.is_lane() && (checked || spec.choice.backend.name() == "interp") {
            tessera_interp::set_warp_size(knobs::interp_warp()?);
        }
        let here = spec.choice.works_at(location);
        // The interpreter is used to inspect a call, and is too slow for replay to matter.
        let repeatable = here && !checked && spec.choice.backend.name() != "interp";
        let again = noted
            .filter(|_| repeatable && !geometry.is_empty())
            .and_then(|noted| Some((Note::of(&self.params, &spec, &bound, &made, &noted)?, noted)));
        let mut slots = bound.slots;
        let own = spec.params.iter().take(spec.params.len() - spec.tables.len());
        let params =
            own.filter_map(|&place| match std::mem::replace(&mut slots[place], Slot::Static) {
                Slot::Array(a) => Some(ArgValue::Buffer(a.buffer)),
                Slot::Scalar(s) => Some(ArgValue::Scalar(s)),
                Slot::Static | Slot::Missing { .. } => None,
            });
        let tables = match location {
            Location::Device(device) if here && !checked => {
                spec.tables.there(Queue { device, stream: streams.on })?
            }
            Location::Device(_) | Location::Host => spec.tables.here(),
        };
        let args = LaunchArgs {
            params: params.chain(tables.into_iter().map(ArgValue::Buffer)).collect(),
            dims: bound.sizes.known,
            grid: geometry.grid,
            domain: geometry.domain,
            lanes: geometry.lanes,
        };
        Ok(Ready { spec, cache_hit, geometry, args, location, copied_to, streams, again })
    }

    /// Puts a launch on its stream.
    fn enqueue(&self, ready: Ready, device: DeviceId) -> Result<(), Diagnostics> {
        let queue = Queue { device, stream: ready.streams.on };
        let Ready { spec, cache_hit, geometry, args, streams, again, .. } = ready;
        let (mut settled, mut span) = (None, None);
        if !geometry.is_empty() {
            wait_for(queue, &streams.after)?;
            span = Span::open(Some(queue));
            spec.artifact.enqueue(&args, queue)?;
            or_wait(queue, hold_back(queue, &streams.then))?;
            settled = again
                .as_ref()
                .filter(|_| spec.tables.len() == 0)
                .and_then(|_| spec.artifact.settle(&args, queue));
        }
        let launch = Launch { geometry, time: None, how: How::Queued, dims: args.dims };
        if let (Some(settled), Some((note, noted))) = (settled, again) {
            let record =
                Record { spec: spec.clone(), cache_hit: true, launch: Some(launch.clone()) };
            noted.keep(Recipe::new(device, note, Way::Queued(settled), Arc::new(record)));
        }
        let record = Arc::new(Record { spec, cache_hit, launch: Some(launch) });
        if let Some(span) = span {
            span.kernel(self.name(), &self.params.loc, &record);
        }
        self.record(record);
        Ok(())
    }

    /// Runs a launch to its end in host memory; arrays of a device are fetched for it.
    fn run(
        &self,
        mut ready: Ready,
        how: How,
        work: impl FnOnce(&Specialised, &LaunchArgs) -> Result<(), Diagnostics>,
    ) -> Result<(), Diagnostics> {
        let fetched = ready.fetch()?;
        let Ready { spec, cache_hit, geometry, args, again, .. } = ready;
        let (span, start) = (Span::open(None), Instant::now());
        if !geometry.is_empty() {
            work(&spec, &args)?;
        }
        let time = Some(start.elapsed());
        if let Some(fetched) = fetched {
            fetched.put_back()?;
        }
        let launch = Launch { geometry, time, how, dims: args.dims.clone() };
        if let Some((note, noted)) = again.filter(|_| how == How::Backend) {
            let launch = Some(launch.clone());
            let record = Arc::new(Record { spec: spec.clone(), cache_hit: true, launch });
            let way = match spec.artifact.settle_here(&args) {
                Some(settled) => Way::Settled(settled),
                None => Way::Here(args, ForkLock::new(None)),
            };
            noted.keep(Recipe::new(DeviceId::HOST, note, way, record));
        }
        let record = Arc::new(Record { spec, cache_hit, launch: Some(launch) });
        if let Some(span) = span {
            span.kernel(self.name(), &self.params.loc, &record);
        }
        self.record(record);
        Ok(())
    }

    fn check_memory(&self, spec: &Specialised, bound: &Bound) -> Result<(), Diagnostics> {
        let accesses: Vec<_> = spec
            .params
            .iter()
            .enumerate()
            .filter_map(|(place, &param)| match bound.slots.get(param)? {
                Slot::Array(array) => Some(alias::Access {
                    name: &self.params.items[param].shown,
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
pub(crate) struct Ready {
    spec: Arc<Specialised>,
    cache_hit: bool,
    pub(crate) geometry: Geometry,
    pub(crate) args: LaunchArgs,
    location: Location,
    copied_to: DeviceId,
    streams: Streams,
    /// What is needed to repeat it, where that can be done.
    again: Option<(Note, Noted)>,
}

impl Ready {
    /// Replaces arrays of a device by copies on the host, after the work on them.
    fn fetch(&mut self) -> Result<Option<Fetched>, Diagnostics> {
        let Location::Device(device) = self.location else { return Ok(None) };
        let queue = Queue { device, stream: self.streams.on };
        wait_for(queue, &self.streams.after)?;
        Fetched::of(&self.spec, &mut self.args, queue).map(Some)
    }
}

/// Where a call runs.
struct Placed {
    choice: Choice,
    location: Location,
    checked: bool,
}

impl Placed {
    fn new(
        kernel: &KernelHandle,
        backends: &Backends,
        bound: &Bound,
        target: Option<&str>,
        ask: &Ask,
    ) -> Result<Self, Diagnostics> {
        let location = location(&kernel.params, &bound.slots)?;
        let checked = knobs::CHECK.is_on();
        let choose = || {
            backends.to_launch(target, location).map_err(|errors| {
                let first = first_array(&kernel.params, &bound.slots);
                let loc = first.map_or(&kernel.params.loc, |param| &param.loc);
                let errors = placed(errors, loc);
                match (first, location) {
                    (Some(param), Location::Device(device)) => {
                        let there = format!("`{}` is on {device}", param.name);
                        errors.with_first(|error| error.note(there))
                    }
                    _ => errors,
                }
            })
        };
        let choice: Choice = match ask.purpose {
            Purpose::Run if checked => {
                choose()?;
                backends.interpreter("TESSERA_CHECK requests it")?
            }
            Purpose::Run => choose()?,
            Purpose::Check | Purpose::Watch => backends.interpreter("the call requests it")?,
        };
        let moves = !choice.works_at(location);
        if moves && ask.purpose == Purpose::Run && !checked {
            kernel.warn(host_copy(&choice, location, &kernel.params.loc));
        }
        Ok(Self { choice, location, checked })
    }

    fn prepared(
        self,
        bound: Bound,
        spec: Arc<Specialised>,
        cache_hit: bool,
        ask: Ask,
        noted: Option<Noted>,
    ) -> Prepared {
        let Placed { choice, location, checked, .. } = self;
        let copied_to = choice.backend.device();
        let Ask { grid, streams, .. } = ask;
        let (measure, made) = (false, Vec::new());
        Prepared {
            bound,
            spec,
            cache_hit,
            grid,
            checked,
            measure,
            location,
            copied_to,
            streams,
            made,
            noted,
        }
    }
}

/// Gives errors without a location this one.
fn placed(errors: Diagnostics, loc: &Loc) -> Diagnostics {
    let mut out = Diagnostics::new();
    out.extend(errors.into_iter().map(|e| if e.loc.is_known() { e } else { e.at(loc.clone()) }));
    out
}

fn host_copy(choice: &Choice, location: Location, loc: &Loc) -> Diagnostic {
    let backend = choice.backend.name();
    let (message, help) = match location {
        Location::Host => (
            format!(
                "the arrays are in host memory and are copied to the device and back at every call: {backend} runs the kernel, for {}",
                choice.why
            ),
            "keep the arrays on the device: `ts.array(x, device=\"cuda:0\")`, or tensors of another library that are there",
        ),
        Location::Device(device) => (
            format!(
                "the arrays are on {device} and are copied to the host and back at every call: {backend} runs the kernel, for {}",
                choice.why
            ),
            "unset TESSERA_BACKEND or call `ts.runtime.select_backend(None)` to run where the arrays are",
        ),
    };
    Diagnostic::new(Code::W_HOST_COPY, message).at(loc.clone()).help(help)
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
