//! Call replay: a call that differs from an earlier one only in addresses and float scalars is run,
//! or enqueued on its stream, without being bound, specialised and checked again. Everything that
//! could differ is compared; a call with a difference takes the full path.

use crate::args::{Arg, Number};
use crate::backends::Backends;
use crate::bind::{Bound, Slot};
use crate::explain::Record;
use crate::kernel::KernelHandle;
use crate::knobs;
use crate::number::scalar_of;
use crate::params::{Kind, Param, Params};
use crate::profile::Span;
use crate::specialise::Specialised;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_diag::Diagnostics;
use tessera_frontend::{ArgType, Capture, FuncSource};
use tessera_ir::Privilege;
use tessera_numerics::{DType, NumType, Profile, Scalar};
use tessera_support::ForkLock;
use tessera_target::device::DeviceId;
use tessera_target::{ArgValue, BufferArg, LaunchArgs, Queue, Settled};

/// Calls with arrays of more axes take the full path.
pub const MAX_RANK: usize = 6;

/// Code may be made for addresses that are multiples of this.
const ALIGNMENT: u64 = 16;

/// An argument as a caller gives it, with little made for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    None,
    Array(View),
    Float(f64),
    Int(i128),
    Bool(bool),
    Text(String),
    DType(NumType),
    Func(Function),
    /// A function of the language, by its name there.
    Builtin(String),
}

/// A function of the caller's. The same text elsewhere counts as another: to compare texts would take
/// longer than what is saved.
#[derive(Clone, Debug)]
pub struct Function(pub Arc<FuncSource>);

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// An array on a device, or on the host.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct View {
    pub address: u64,
    pub device: DeviceId,
    pub dtype: DType,
    pub rank: usize,
    pub dims: [i64; MAX_RANK],
    /// In bytes.
    pub strides: [i64; MAX_RANK],
    pub writable: bool,
}

/// What an argument must be like.
#[derive(PartialEq)]
enum Wanted {
    Array(Layout),
    /// An array that the caller leaves to the call.
    Made(Layout),
    /// A real number, whichever, to be made this dtype.
    Real(DType),
    /// The same for a parameter that takes anything: what is no float there is another program.
    Float(DType),
    /// A number that the grid may rest on, as this dtype.
    Exactly(DType, Scalar),
    /// What the code was made for.
    Constant(Seen),
}

#[derive(PartialEq)]
struct Layout {
    dtype: DType,
    dims: Box<[i64]>,
    strides: Box<[i64]>,
    /// The address below the largest alignment.
    low: u64,
    /// Bytes from the address to the first that is used, and to the one after the last.
    reach: (i64, i64),
    writes: bool,
}

pub(crate) struct Recipe {
    basis: Basis,
    wanted: Vec<Wanted>,
    /// The least number of arguments; the rest have their defaults.
    least: usize,
    /// All numbers that the launch takes, and which of them are a call's own.
    scalars: Vec<Scalar>,
    reals: Vec<usize>,
    made: Vec<Made>,
    way: Variant,
    record: Arc<Record>,
}

/// An array that is made for a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    pub param: usize,
    /// Its place among the arrays.
    array: usize,
    pub dims: Vec<i64>,
    pub dtype: DType,
}

/// How a launch is repeated. There is one for each call that is remembered, and none is moved.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Variant {
    /// Put on a stream.
    Queued(Arc<dyn Settled>),
    /// Run to its end.
    Settled(Arc<dyn Settled>),
    /// Run to its end, with these arguments but for addresses and reals. The second is a copy that
    /// no launch is using.
    Here(LaunchArgs, ForkLock<Option<LaunchArgs>>),
}

/// What a launch depends on beside its arguments.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Basis {
    pub profile: Profile,
    pub grid: Option<Vec<i64>>,
    pub device: DeviceId,
    /// What the choice of the backend depends on, beside where the arrays are.
    pub selection: u64,
    pub environment: Option<String>,
    /// Passes that the environment leaves out.
    pub off: Option<String>,
    pub returns: Vec<usize>,
}

/// The recipes of one kernel, or of one that was compiled by itself; the latest first.
#[derive(Default)]
pub struct Replays {
    kept: ForkLock<Vec<Arc<Recipe>>>,
}

/// More are taken for sizes that change all the time.
const KEPT: usize = 64;

/// A call that fits one.
pub struct Replay {
    recipe: Arc<Recipe>,
    addresses: [u64; MAX_ARRAYS],
    arrays: usize,
    reals: [Scalar; MAX_REALS],
}

const MAX_ARRAYS: usize = 16;
const MAX_REALS: usize = 8;

impl Replays {
    pub(crate) fn clear(&self) {
        self.kept.lock().clear();
    }

    /// Whether such a call is kept already.
    pub(crate) fn has(&self, note: &Note, basis: &Basis) -> bool {
        self.kept.lock().iter().any(|r| r.basis == *basis && r.wanted == note.wanted)
    }

    pub(crate) fn keep(&self, recipe: Recipe) {
        let mut kept = self.kept.lock();
        kept.insert(0, Arc::new(recipe));
        kept.truncate(KEPT);
    }

    /// An earlier call that this one is like.
    pub fn find(
        &self,
        backends: &Backends,
        args: &[Seen],
        grid: Option<&[i64]>,
        profile: Profile,
    ) -> Option<Replay> {
        let kept = self.kept.lock();
        if kept.is_empty() {
            return None;
        }
        let selection = backends.changes();
        knobs::of_launches(|knobs| {
            let fits = |recipe: &Arc<Recipe>| {
                let basis = &recipe.basis;
                let same = basis.profile == profile
                    && basis.selection == selection
                    && basis.grid.as_deref() == grid
                    && basis.environment == knobs.backend
                    && basis.off == knobs.off;
                if same { fit(recipe, args) } else { None }
            };
            if knobs.check || knobs.garbled.is_some() { None } else { kept.iter().find_map(fits) }
        })
    }
}

impl KernelHandle {
    /// Launches it, on a stream where its arrays are on a device.
    pub fn launch_again(&self, replay: &Replay, stream: u64) -> Result<(), Diagnostics> {
        let recipe = &*replay.recipe;
        match &recipe.way {
            Variant::Queued(settled) => {
                let span = Span::open(Some(Queue { device: recipe.basis.device, stream }));
                replay.launch(&**settled, stream)?;
                if let Some(span) = span {
                    span.kernel(self.name(), &self.params.loc, &recipe.record);
                }
                self.record(recipe.record.clone());
                Ok(())
            }
            Variant::Settled(settled) => {
                let (span, start) = (Span::open(None), Instant::now());
                replay.launch(&**settled, 0)?;
                self.ran_again(recipe, span, start.elapsed());
                Ok(())
            }
            Variant::Here(args, spare) => self.run_again(replay, args, spare),
        }
    }

    fn run_again(
        &self,
        replay: &Replay,
        args: &LaunchArgs,
        spare: &ForkLock<Option<LaunchArgs>>,
    ) -> Result<(), Diagnostics> {
        let recipe = &*replay.recipe;
        let mut args = spare.lock().take().unwrap_or_else(|| args.clone());
        // Tables stay where they are: they are the last, and no address is left for them.
        let mut addresses = replay.addresses[..replay.arrays].iter();
        let mut reals = replay.reals.iter();
        let mut number = 0;
        for arg in &mut args.params {
            match arg {
                ArgValue::Buffer(buffer) => {
                    buffer.data = addresses.next().map_or(buffer.data, |&at| at as *mut u8);
                }
                ArgValue::Scalar(value) => {
                    if recipe.reals.contains(&number)
                        && let Some(real) = reals.next()
                    {
                        *value = *real;
                    }
                    number += 1;
                }
            }
        }
        let (span, start) = (Span::open(None), Instant::now());
        recipe.record.spec.artifact.launch(&args)?;
        let time = start.elapsed();
        *spare.lock() = Some(args);
        self.ran_again(recipe, span, time);
        Ok(())
    }

    fn ran_again(&self, recipe: &Recipe, span: Option<Span>, time: Duration) {
        if let Some(span) = span {
            span.kernel(self.name(), &self.params.loc, &Arc::new(recipe.record.taking(time)));
        }
        self.record_again(recipe.record.clone(), time);
    }
}

impl Replay {
    pub fn device(&self) -> DeviceId {
        self.recipe.basis.device
    }

    fn launch(&self, settled: &dyn Settled, stream: u64) -> Result<(), Diagnostics> {
        let recipe = &*self.recipe;
        let addresses = &self.addresses[..self.arrays];
        if recipe.reals.is_empty() {
            return settled.launch(addresses, &recipe.scalars, stream);
        }
        let mut scalars = recipe.scalars.clone();
        for (&place, &value) in recipe.reals.iter().zip(&self.reals) {
            scalars[place] = value;
        }
        settled.launch(addresses, &scalars, stream)
    }

    /// The arrays that the call is to be given beside the caller's.
    pub fn made(&self) -> &[Made] {
        &self.recipe.made
    }

    /// Sets one of them; false where its layout is not that of the recorded call.
    pub fn fill(&mut self, made: usize, view: &View) -> bool {
        let Made { param, array, .. } = self.recipe.made[made];
        self.addresses[array] = view.address;
        matches!(&self.recipe.wanted[param], Wanted::Made(layout) if layout.is_of(view))
    }

    /// The parameters that the call gives back.
    pub fn returns(&self) -> &[usize] {
        &self.recipe.basis.returns
    }
}

fn fit(recipe: &Arc<Recipe>, args: &[Seen]) -> Option<Replay> {
    if !(recipe.least..=recipe.wanted.len()).contains(&args.len()) {
        return None;
    }
    let mut out = Replay {
        recipe: recipe.clone(),
        addresses: [0; MAX_ARRAYS],
        arrays: 0,
        reals: [Scalar::Bool(false); MAX_REALS],
    };
    let mut reals = 0;
    for (wanted, seen) in recipe.wanted.iter().zip(args) {
        match (wanted, seen) {
            // An output that is None is left to the call.
            (Wanted::Made(_), Seen::None) => {}
            (Wanted::Made(_), _) => return None,
            (Wanted::Array(layout), Seen::Array(view)) if view.device == recipe.basis.device => {
                if !layout.is_of(view) {
                    return None;
                }
                out.addresses[out.arrays] = view.address;
                out.arrays += 1;
            }
            (Wanted::Float(_), Seen::Int(_) | Seen::Bool(_)) => return None,
            (Wanted::Real(dtype) | Wanted::Float(dtype), seen) => {
                out.reals[reals] = number(seen, *dtype)?;
                reals += 1;
            }
            (Wanted::Exactly(dtype, value), seen) if number(seen, *dtype)? == *value => {}
            (Wanted::Constant(value), seen) if value == seen => {}
            _ => return None,
        }
    }
    // Those that are made come after what was given, and share memory with nothing.
    let fits = is_disjoint(recipe, &out.addresses[..out.arrays]);
    out.arrays += recipe.made.len();
    fits.then_some(out)
}

fn number(seen: &Seen, dtype: DType) -> Option<Scalar> {
    let value = match seen {
        Seen::Float(v) => Number::Float(*v),
        Seen::Int(v) => Number::Int(*v),
        Seen::Bool(v) => Number::Bool(*v),
        Seen::None
        | Seen::Array(_)
        | Seen::Text(_)
        | Seen::DType(_)
        | Seen::Func(_)
        | Seen::Builtin(_) => return None,
    };
    scalar_of(&Arg::Number { value, dtype: None }, dtype).ok()
}

/// Whether the address range of no written array overlaps another one. Where they overlap, the full
/// path finds out whether they share an element.
fn is_disjoint(recipe: &Recipe, addresses: &[u64]) -> bool {
    let layouts = || {
        recipe.wanted.iter().filter_map(|w| match w {
            Wanted::Array(layout) => Some(layout),
            _ => None,
        })
    };
    let range = |layout: &Layout, at: u64| {
        (at.wrapping_add_signed(layout.reach.0), at.wrapping_add_signed(layout.reach.1))
    };
    for (i, (a, &at)) in layouts().zip(addresses).enumerate() {
        for (b, &other) in layouts().zip(addresses).skip(i + 1) {
            let ((a0, a1), (b0, b1)) = (range(a, at), range(b, other));
            if (a.writes || b.writes) && a0 < b1 && b0 < a1 {
                return false;
            }
        }
    }
    true
}

impl Layout {
    fn new(buffer: &BufferArg, writes: bool) -> Self {
        let (mut low, mut high) = (0, buffer.dtype.bytes() as i64);
        for (&n, &stride) in buffer.dims.iter().zip(&buffer.strides) {
            let reach = (n - 1).max(0).saturating_mul(stride);
            if reach < 0 { low += reach } else { high += reach }
        }
        Self {
            dtype: buffer.dtype,
            dims: buffer.dims.as_slice().into(),
            strides: buffer.strides.as_slice().into(),
            low: buffer.data as u64 % ALIGNMENT,
            reach: (low, high),
            writes,
        }
    }

    fn is_of(&self, view: &View) -> bool {
        self.dtype == view.dtype
            && self.dims[..] == view.dims[..view.rank]
            && self.strides[..] == view.strides[..view.rank]
            && self.low == view.address % ALIGNMENT
            && (view.writable || !self.writes)
    }
}

/// What is needed to keep a call.
pub(crate) struct Note {
    wanted: Vec<Wanted>,
    least: usize,
    scalars: Vec<Scalar>,
    reals: Vec<usize>,
    made: Vec<Made>,
}

/// Larger results take the full path, which knows whether they must be cleared.
const MADE_BYTES: i64 = 64 << 10;

impl Note {
    /// `None` for a call that cannot be repeated so: with arguments that are no arrays or numbers,
    /// with large results that are made for it, or with more of them than there is room for. `made`
    /// are the parameters whose arrays were made for the call.
    pub fn of(params: &Params, spec: &Specialised, bound: &Bound, made: &[usize]) -> Option<Self> {
        let mut out = Note {
            wanted: Vec::new(),
            least: 0,
            scalars: Vec::new(),
            reals: Vec::new(),
            made: Vec::new(),
        };
        let mut arrays = 0;
        for (i, (param, slot)) in params.items.iter().zip(&bound.slots).enumerate() {
            let place = spec.params.iter().position(|&p| p == i);
            let wanted = match (slot, place) {
                (Slot::Array(array), Some(place)) => {
                    let buffer = &array.buffer;
                    if buffer.dims.len() > MAX_RANK || buffer.dims.contains(&0) {
                        return None;
                    }
                    let privilege = spec.privilege(place);
                    let mut layout = Layout::new(buffer, privilege.writes());
                    if param.is_point() {
                        // As the caller's arrays are.
                        (layout.dims, layout.strides) = (Box::default(), Box::default());
                    }
                    arrays += 1;
                    if made.contains(&i) {
                        // What is folded into begins with something else than zeros.
                        let small = layout.reach.1 - layout.reach.0 <= MADE_BYTES;
                        if privilege != Privilege::Write || !small {
                            return None;
                        }
                        let (dims, dtype) = (layout.dims.to_vec(), buffer.dtype);
                        out.made.push(Made { param: i, array: arrays - 1, dims, dtype });
                        Wanted::Made(layout)
                    } else if out.made.is_empty() {
                        Wanted::Array(layout)
                    } else {
                        return None;
                    }
                }
                (Slot::Scalar(value), Some(_)) => {
                    out.scalars.push(*value);
                    let wanted = scalar(param, *value, bound)?;
                    if matches!(wanted, Wanted::Real(_) | Wanted::Float(_)) {
                        out.reals.push(out.scalars.len() - 1);
                    }
                    wanted
                }
                (Slot::Static, None) => {
                    Wanted::Constant(constant(bound.config.consts.get(&param.name)?)?)
                }
                _ => return None,
            };
            let default = param.default.as_ref().and_then(constant).map(Wanted::Constant);
            if default.as_ref() != Some(&wanted) && !matches!(wanted, Wanted::Made(_)) {
                out.least = i + 1;
            }
            out.wanted.push(wanted);
        }
        (arrays <= MAX_ARRAYS && out.reals.len() <= MAX_REALS).then_some(out)
    }
}

fn scalar(param: &Param, value: Scalar, bound: &Bound) -> Option<Wanted> {
    match (&param.kind, bound.config.args.get(&param.name)) {
        (Kind::Scalar(dtype), _) if dtype.is_float() => Some(Wanted::Real(*dtype)),
        (Kind::Scalar(dtype), _) => Some(Wanted::Exactly(*dtype, value)),
        // A Python float is f32 there; other numbers are programs of their own.
        (_, Some(ArgType::Scalar(DType::F32))) => Some(Wanted::Float(DType::F32)),
        _ => None,
    }
}

/// A compile-time value as a caller gives it.
fn constant(value: &Capture) -> Option<Seen> {
    match value {
        Capture::Bool(v) => Some(Seen::Bool(*v)),
        Capture::Int(v) => Some(Seen::Int(*v)),
        Capture::Float(v) => Some(Seen::Float(*v)),
        Capture::Str(v) => Some(Seen::Text(v.clone())),
        Capture::DType(v) => Some(Seen::DType(*v)),
        Capture::Func(f) => Some(Seen::Func(Function(f.clone()))),
        Capture::Builtin(name) => Some(Seen::Builtin(name.clone())),
        Capture::None => Some(Seen::None),
        Capture::Tuple(_)
        | Capture::Table(_)
        | Capture::Namespace(_)
        | Capture::Later
        | Capture::Opaque(_) => None,
    }
}

impl Recipe {
    pub fn new(note: Note, basis: Basis, way: Variant, record: Arc<Record>) -> Self {
        let Note { wanted, least, scalars, reals, made } = note;
        Self { basis, wanted, least, scalars, reals, made, way, record }
    }
}
