//! The recording of one launch.

use super::table::Table;
use super::tokens::{ALIGNMENT, Free, Key, Numbers, reach};
use crate::args::Arg;
use crate::bind::{Bound, Call, Slot};
use crate::explain::Record;
use crate::kernel::KernelHandle;
use crate::number::scalar_of;
use crate::params::{Kind, Param, Params};
use crate::profile::Span;
use crate::specialise::Specialised;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tessera_diag::Diagnostics;
use tessera_frontend::ArgType;
use tessera_ir::Privilege;
use tessera_numerics::{DType, Scalar};
use tessera_support::ForkLock;
use tessera_target::device::DeviceId;
use tessera_target::{ArgValue, LaunchArgs, Queue, Settled};

/// A table of launches.
pub type Launches = Table<Recipe>;

/// More are not kept of one kernel: its sizes change all the time then.
const KEPT: usize = 64;

impl Launches {
    /// For the calls of one kernel.
    pub(crate) fn of_kernel() -> Arc<Self> {
        Arc::new(Self::new(KEPT))
    }
}

/// What runs, where, and how arrays and numbers of the call become its own.
pub struct Recipe {
    device: DeviceId,
    note: Note,
    way: Way,
    record: Arc<Record>,
    /// About how long a run to its end took, in ns; 0 where it was not run again.
    took: AtomicU64,
}

/// What is needed to keep a call.
pub(crate) struct Note {
    /// By launch argument.
    arrays: Vec<Array>,
    /// The launch's numbers; those at these places are free ones, to be made this dtype.
    scalars: Vec<Scalar>,
    reals: Vec<Real>,
    made: Vec<Made>,
    returns: Vec<Return>,
    /// By parameter of the kernel.
    privileges: Vec<Option<Privilege>>,
}

struct Array {
    /// Bytes from the address to the first that is used, and to the one after the last.
    reach: (i64, i64),
    writes: bool,
    source: Source,
}

#[derive(Copy, Clone)]
enum Source {
    /// One of the arrays of the call, by its place among them.
    Given(usize),
    Made(usize),
}

struct Real {
    place: usize,
    dtype: DType,
    /// Which of the free numbers.
    free: usize,
}

/// An array that is made for a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Made {
    pub dims: Vec<i64>,
    pub dtype: DType,
    /// Its address below the largest alignment.
    low: u64,
}

impl Made {
    /// Whether an array at this address will do.
    pub fn fits(&self, address: u64) -> bool {
        address % ALIGNMENT == self.low
    }
}

/// What a call gives back: an argument by its place, or an array that was made.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Return {
    Given(usize),
    Made(usize),
    Nothing,
}

/// How a launch is repeated. There is one for each call that is remembered, and none is moved.
#[allow(clippy::large_enum_variant)]
pub(crate) enum Way {
    /// Put on a stream.
    Queued(Arc<dyn Settled>),
    /// Run to its end.
    Settled(Arc<dyn Settled>),
    /// Run to its end, with these arguments but for addresses and reals. The second is a copy that
    /// no launch is using.
    Here(LaunchArgs, ForkLock<Option<LaunchArgs>>),
}

/// Where a call is kept when it has run, and what the caller gave.
#[derive(Clone)]
pub(crate) struct Noted {
    key: Key,
    table: Arc<Launches>,
    given: Vec<Option<Given>>,
}

/// What stands for one parameter.
#[derive(Copy, Clone)]
struct Given {
    /// Its place among the arguments.
    place: usize,
    is_array: bool,
    /// Whether it is a number that is a call's own.
    is_free: bool,
}

impl Noted {
    pub fn new(key: Key, table: &Arc<Launches>, call: &Call, params: &Params) -> Self {
        let first = call.positional.len();
        let named = |name: &str| {
            let (at, (_, arg)) = call.keyword.iter().enumerate().find(|(_, (n, _))| n == name)?;
            Some((first + at, arg))
        };
        let one = |(i, param): (usize, &Param)| {
            let (place, arg) =
                call.positional.get(i).map(|arg| (i, arg)).or_else(|| named(&param.name))?;
            let is_free = match arg {
                Arg::Number { value, .. } => numbers(&param.kind).frees(value),
                _ => false,
            };
            Some(Given { place, is_array: matches!(arg, Arg::Array(_)), is_free })
        };
        let given = params.items.iter().enumerate().map(one).collect();
        Self { key, table: table.clone(), given }
    }

    pub fn keep(self, recipe: Recipe) {
        drop(self.table.keep(self.key, Arc::new(recipe)));
    }

    /// How many arguments of a kind come before one.
    fn before(&self, given: Given, is: impl Fn(&Given) -> bool) -> usize {
        self.given.iter().flatten().filter(|g| is(g) && g.place < given.place).count()
    }
}

/// Larger results take the full path, which knows whether they must be cleared.
const MADE_BYTES: i64 = 64 << 10;

impl Note {
    /// `None` for a call that cannot be repeated so: with empty arrays, or with large results that
    /// are made for it. `made` are the parameters whose arrays were made for the call.
    pub fn of(
        params: &Params,
        spec: &Specialised,
        bound: &Bound,
        made: &[usize],
        noted: &Noted,
    ) -> Option<Self> {
        let mut out = Note {
            arrays: Vec::new(),
            scalars: Vec::new(),
            reals: Vec::new(),
            made: Vec::new(),
            returns: Vec::new(),
            privileges: spec.privileges(params.items.len()),
        };
        for (i, (param, slot)) in params.items.iter().zip(&bound.slots).enumerate() {
            let place = spec.params.iter().position(|&p| p == i);
            let given = noted.given[i];
            match (slot, place) {
                (Slot::Array(array), Some(place)) => {
                    let buffer = &array.buffer;
                    if buffer.dims.contains(&0) {
                        return None;
                    }
                    let privilege = spec.privilege(place);
                    let reach = reach(&buffer.dims, &buffer.strides, buffer.dtype);
                    let source = if made.contains(&i) {
                        // What is folded into begins with something else than zeros.
                        if privilege != Privilege::Write || reach.1 - reach.0 > MADE_BYTES {
                            return None;
                        }
                        let dims = if param.is_point() { Vec::new() } else { buffer.dims.clone() };
                        let low = buffer.data as u64 % ALIGNMENT;
                        out.made.push(Made { dims, dtype: buffer.dtype, low });
                        Source::Made(out.made.len() - 1)
                    } else {
                        Source::Given(noted.before(given?, |g| g.is_array))
                    };
                    out.arrays.push(Array { reach, writes: privilege.writes(), source });
                }
                (Slot::Scalar(value), Some(_)) => {
                    if let Some(given) = given.filter(|g| g.is_free) {
                        let (place, dtype) = (out.scalars.len(), dtype_of(param, bound)?);
                        let free = noted.before(given, |g| g.is_free);
                        out.reals.push(Real { place, dtype, free });
                    }
                    out.scalars.push(*value);
                }
                (Slot::Static, None) if given.is_none_or(|g| !g.is_free) => {}
                _ => return None,
            }
        }
        let mut returns = spec.returns.clone();
        returns.extend(made.iter().filter(|p| !spec.returns.contains(p)));
        // Arrays are made in the order of the parameters.
        let mut made = made.to_vec();
        made.sort_unstable();
        let back = |param: usize| match (made.iter().position(|&p| p == param), noted.given[param])
        {
            (Some(made), _) => Return::Made(made),
            (None, Some(given)) => Return::Given(given.place),
            (None, None) => Return::Nothing,
        };
        out.returns = returns.into_iter().map(back).collect();
        Some(out)
    }
}

/// Which numbers of a parameter are a call's own.
fn numbers(kind: &Kind) -> Numbers {
    match kind {
        Kind::Scalar(dtype) if dtype.is_float() => Numbers::Free,
        Kind::Any => Numbers::Floats,
        Kind::Scalar(_) | Kind::Array { .. } | Kind::Const(_) | Kind::Function => Numbers::Fixed,
    }
}

/// The dtype of a parameter for a number that is a call's own.
fn dtype_of(param: &Param, bound: &Bound) -> Option<DType> {
    match (&param.kind, bound.config.args.get(&param.name)) {
        (Kind::Scalar(dtype), _) if dtype.is_float() => Some(*dtype),
        // The dtype of the number: f32 for Python's floats.
        (Kind::Any, Some(ArgType::Scalar(dtype))) if dtype.is_float() => Some(*dtype),
        _ => None,
    }
}

impl Recipe {
    pub(crate) fn new(device: DeviceId, note: Note, way: Way, record: Arc<Record>) -> Self {
        Self { device, note, way, record, took: AtomicU64::new(0) }
    }

    /// What it uses each parameter of the kernel for; `None` for those that are no arrays.
    pub fn privileges(&self) -> &[Option<Privilege>] {
        &self.note.privileges
    }

    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// About how long a run to its end takes: the least of late, which a busy machine does not change.
    pub fn takes(&self) -> Option<Duration> {
        let took = self.took.load(Ordering::Relaxed);
        (took > 0).then(|| Duration::from_nanos(took))
    }

    fn took(&self, time: Duration) {
        let (time, before) = (time.as_nanos().max(1) as u64, self.took.load(Ordering::Relaxed));
        let slower = before + before / 8 + 1;
        let now = if before == 0 { time } else { time.min(slower) };
        self.took.store(now, Ordering::Relaxed);
    }

    /// The arrays that a call is to be given beside the caller's.
    pub fn made(&self) -> &[Made] {
        &self.note.made
    }

    pub fn returns(&self) -> &[Return] {
        &self.note.returns
    }

    /// By launch argument, which bytes around its address an array uses, and whether they are written.
    pub fn accesses(&self) -> impl Iterator<Item = ((i64, i64), bool)> {
        self.note.arrays.iter().map(|array| (array.reach, array.writes))
    }

    /// The launch's addresses, for those of the caller's arrays and of the made ones. `None` where
    /// the range of a written array overlaps another one: the full path finds out whether they share
    /// an element.
    pub fn addresses(&self, given: &[u64], made: &[u64]) -> Option<Vec<u64>> {
        let arrays = &self.note.arrays;
        let at = |array: &Array| match array.source {
            Source::Given(place) => given.get(place).copied(),
            Source::Made(place) => made.get(place).copied(),
        };
        let out = arrays.iter().map(at).collect::<Option<Vec<u64>>>()?;
        let range = |i: usize| {
            let (low, high) = arrays[i].reach;
            (out[i].wrapping_add_signed(low), out[i].wrapping_add_signed(high))
        };
        for i in 0..out.len() {
            let (a0, a1) = range(i);
            for j in i + 1..out.len() {
                let (b0, b1) = range(j);
                if (arrays[i].writes || arrays[j].writes) && a0 < b1 && b0 < a1 {
                    return None;
                }
            }
        }
        Some(out)
    }

    /// The launch's numbers; `None` where a free one does not fit its parameter.
    pub fn scalars(&self, free: &[Free]) -> Option<Option<Vec<Scalar>>> {
        let reals = &self.note.reals;
        if reals.is_empty() {
            return Some(None);
        }
        let mut scalars = self.note.scalars.clone();
        for real in reals {
            let Free { value, dtype, .. } = free.get(real.free)?;
            let number = Arg::Number { value: value.clone(), dtype: *dtype };
            scalars[real.place] = scalar_of(&number, real.dtype).ok()?;
        }
        Some(Some(scalars))
    }
}

impl KernelHandle {
    /// Which numbers of a parameter are a call's own.
    pub fn numbers(&self, param: usize) -> Numbers {
        self.params.items.get(param).map_or(Numbers::Fixed, |param| numbers(&param.kind))
    }

    /// Launches a recording, on a stream where its arrays are on a device. `scalars` are those of the
    /// recording where it has no others.
    pub fn launch_again(
        &self,
        recipe: &Recipe,
        addresses: &[u64],
        scalars: Option<&[Scalar]>,
        stream: u64,
    ) -> Result<(), Diagnostics> {
        let scalars = scalars.unwrap_or(&recipe.note.scalars);
        match &recipe.way {
            Way::Queued(settled) => {
                let span = Span::open(Some(Queue { device: recipe.device, stream }));
                settled.launch(addresses, scalars, stream)?;
                if let Some(span) = span {
                    span.kernel(self.name(), &self.params.loc, &recipe.record);
                }
                self.record(recipe.record.clone());
                Ok(())
            }
            Way::Settled(settled) => {
                let (span, start) = (Span::open(None), Instant::now());
                settled.launch(addresses, scalars, 0)?;
                self.ran_again(recipe, span, start.elapsed());
                Ok(())
            }
            Way::Here(args, spare) => {
                let mut args = spare.lock().take().unwrap_or_else(|| args.clone());
                put(&mut args, addresses, scalars);
                let (span, start) = (Span::open(None), Instant::now());
                recipe.record.spec.artifact.launch(&args)?;
                let time = start.elapsed();
                *spare.lock() = Some(args);
                self.ran_again(recipe, span, time);
                Ok(())
            }
        }
    }

    fn ran_again(&self, recipe: &Recipe, span: Option<Span>, time: Duration) {
        recipe.took(time);
        if let Some(span) = span {
            span.kernel(self.name(), &self.params.loc, &Arc::new(recipe.record.taking(time)));
        }
        self.record_again(recipe.record.clone(), time);
    }
}

/// Puts in the addresses and numbers of a call. Tables stay where they are: they are the last, and no
/// address is left for them.
fn put(args: &mut LaunchArgs, addresses: &[u64], scalars: &[Scalar]) {
    let (mut addresses, mut scalars) = (addresses.iter(), scalars.iter());
    for arg in &mut args.params {
        match arg {
            ArgValue::Buffer(buffer) => {
                buffer.data = addresses.next().map_or(buffer.data, |&at| at as *mut u8);
            }
            ArgValue::Scalar(value) => *value = scalars.next().copied().unwrap_or(*value),
        }
    }
}
