//! Call replay of kernels: device and NumPy arrays, numbers, strings and functions are compared
//! with a recorded call without allocating. On any difference the call takes the full path, which
//! reports what is wrong.

use crate::arrays::{Class, NdHead, class, descr_dtype, head, zeros};
use crate::call::Given;
use crate::device_array::DeviceArray;
use crate::enter::enter;
use crate::exchange::Exchange;
use crate::kernel::BACKENDS;
use crate::readers::{self, Reader};
use crate::values::Func;
use crate::{dlpack, record, streams};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString, PyTuple};
use tessera_driver::{DeviceId, Function, MAX_RANK, Made, Place, Purpose, Replay, Seen, View};
use tessera_numerics::Profile;

/// Where the stream of a call is to be had from.
#[derive(Copy, Clone)]
enum Source {
    /// Arrays of NumPy, which are on none.
    Host,
    /// Arrays of our own, last used on this stream.
    Own(u64),
    Library(&'static Exchange, DeviceId),
}

/// A recorded call that this one is like, with the arrays that were made for it.
pub struct Again<'py> {
    pub replay: Replay,
    pub stream: u64,
    pub on_host: bool,
    made: Vec<(usize, Bound<'py, PyAny>)>,
}

impl<'py> Again<'py> {
    /// What the call gives back.
    pub fn results(&self, args: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyAny>> {
        results(args, &self.made, self.replay.returns())
    }
}

pub fn launch<'py>(given: &Given<'_, 'py>) -> Option<PyResult<Bound<'py, PyAny>>> {
    let again = find(given)?;
    record::keep(given.args);
    let (kernel, stream) = (given.kernel, again.stream);
    let done = enter(given.args.py(), || kernel.launch_again(&again.replay, stream));
    Some(done.and_then(|()| again.results(given.args)))
}

pub fn find<'py>(given: &Given<'_, 'py>) -> Option<Again<'py>> {
    if given.purpose != Purpose::Run || !given.kwargs.is_empty() {
        return None;
    }
    let py = given.args.py();
    let mut seen = Vec::with_capacity(given.args.len());
    let (mut source, mut first) = (None, None);
    for value in given.args.iter_borrowed() {
        let value = &*value;
        if let Some(class) = class(value).ok()? {
            first = first.or(Some(class));
            seen.push(Seen::Array(numpy(value)?));
            source = merged(source, Source::Host)?;
            continue;
        }
        match readers::known(value) {
            Some(Reader::Exchange(exchange, writable)) => {
                seen.push(Seen::Array(shared(exchange, value, writable)?));
                let Some(Seen::Array(View { device, .. })) = seen.last() else { return None };
                source = merged(source, Source::Library(exchange, *device))?;
            }
            Some(Reader::Own) => {
                let array = value.cast::<DeviceArray>().ok()?.get();
                seen.push(Seen::Array(own(array)?));
                source = merged(source, Source::Own(array.memory.last()))?;
            }
            Some(Reader::Torch | Reader::Cupy | Reader::Dlpack | Reader::ArrayInterface) => {
                return None;
            }
            None => seen.push(constant(value)?),
        }
    }
    let source = source?;
    let on_host = matches!(source, Source::Host);
    let stream = match (streams::named(), source) {
        (_, Source::Host) => 0,
        (Some(named), Source::Library(..)) => named,
        (Some(named), Source::Own(last)) if named == last => named,
        (None, Source::Own(0)) => 0,
        (None, Source::Library(exchange, device)) => {
            streams::canonical(exchange.stream(py, device).ok()?)
        }
        (_, Source::Own(_)) => return None,
    };
    let grid = match given.grid {
        Some(grid) => Some(extents(grid)?),
        None => None,
    };
    let profile = Profile::ALL.get(given.profile).copied().unwrap_or_default();
    let mut replay = given.replays.find(&BACKENDS, &seen, grid.as_deref(), profile)?;
    let mut made = Vec::with_capacity(replay.made().len());
    for number in 0..replay.made().len() {
        let Made { param, dims, dtype, .. } = &replay.made()[number];
        let array = zeros(py, dims, *dtype, first.is_some_and(|c| c != Class::NumPy))?;
        made.push((*param, array.clone()));
        if !replay.fill(number, &numpy(&array)?) {
            return None;
        }
    }
    Some(Again { replay, stream, on_host, made })
}

/// Arrays of one kind only: others may be in use on another stream.
fn merged(before: Option<Source>, now: Source) -> Option<Option<Source>> {
    let same = match (before, now) {
        (None, _) | (Some(Source::Host), Source::Host) => true,
        (Some(Source::Own(a)), Source::Own(b)) => a == b,
        (Some(Source::Library(a, i)), Source::Library(b, j)) => std::ptr::eq(a, b) && i == j,
        _ => false,
    };
    same.then_some(Some(now))
}

fn shared(exchange: &Exchange, value: &Bound<'_, PyAny>, writable: bool) -> Option<View> {
    let tensor = exchange.tensor(value).ok()?;
    let Ok(Place::Device(device)) = dlpack::place(tensor.device) else { return None };
    let dtype = dlpack::dtype(tensor.code, tensor.bits).filter(|_| tensor.lanes == 1)?;
    let rank = usize::try_from(tensor.rank).ok().filter(|&r| r <= MAX_RANK)?;
    if tensor.strides.is_null() || tensor.dims.is_null() {
        return None;
    }
    let (mut dims, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
    for axis in 0..rank {
        // SAFETY: both hold `rank` entries.
        unsafe {
            dims[axis] = *tensor.dims.add(axis);
            strides[axis] = (*tensor.strides.add(axis)).checked_mul(dtype.bytes() as i64)?;
        }
    }
    let address = (tensor.data as u64).checked_add(tensor.byte_offset)?;
    Some(View { address, device, dtype, rank, dims, strides, writable })
}

/// An array of NumPy's own class.
fn numpy(value: &Bound<'_, PyAny>) -> Option<View> {
    let NdHead { data, dims: extents, dtype, strides: steps, writable, .. } = head(value);
    let rank = Some(extents.len()).filter(|&r| r <= MAX_RANK)?;
    let dtype = descr_dtype(&dtype).ok()?.ok()?;
    let (mut dims, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
    for axis in 0..rank {
        (dims[axis], strides[axis]) = (extents[axis] as i64, steps[axis] as i64);
    }
    Some(View {
        address: data as u64,
        device: DeviceId::HOST,
        dtype,
        rank,
        dims,
        strides,
        writable,
    })
}

fn own(array: &DeviceArray) -> Option<View> {
    let view = &array.buffer;
    let rank = view.dims.len();
    if rank > MAX_RANK {
        return None;
    }
    let (mut dims, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
    dims[..rank].copy_from_slice(&view.dims);
    strides[..rank].copy_from_slice(&view.strides);
    let (address, device) = (view.data as u64, array.memory.device());
    let writable = view.writable;
    Some(View { address, device, dtype: view.dtype, rank, dims, strides, writable })
}

/// Of numbers Python's own only: those of NumPy know their dtype.
fn constant(value: &Bound<'_, PyAny>) -> Option<Seen> {
    if value.is_none() {
        return Some(Seen::None);
    }
    if let Ok(v) = value.cast_exact::<PyInt>() {
        return v.extract().ok().map(Seen::Int);
    }
    if let Ok(v) = value.cast_exact::<PyString>() {
        return v.extract().ok().map(Seen::Text);
    }
    if let Ok(v) = value.cast_exact::<PyFloat>() {
        return Some(Seen::Float(v.value()));
    }
    if let Ok(v) = value.cast_exact::<PyBool>() {
        return Some(Seen::Bool(v.is_true()));
    }
    if let Ok(v) = value.cast_exact::<crate::dtype::DType>() {
        return Some(Seen::DType(v.get().0));
    }
    let py = value.py();
    if let Ok(handle) = value.getattr(intern!(py, "handle"))
        && let Ok(func) = handle.cast::<Func>()
    {
        return Some(Seen::Func(Function(func.get().source.clone())));
    }
    // What has neither is a NumPy number, or nothing that a kernel takes.
    let name = value.getattr(intern!(py, "api_name")).ok()?;
    name.extract().ok().map(Seen::Builtin)
}

fn extents(grid: &Bound<'_, PyAny>) -> Option<Vec<i64>> {
    if let Ok(tuple) = grid.cast_exact::<PyTuple>() {
        return tuple.extract().ok();
    }
    grid.cast_exact::<PyInt>().ok()?.extract().ok().map(|n| vec![n])
}

fn results<'py>(
    args: &Bound<'py, PyTuple>,
    made: &[(usize, Bound<'py, PyAny>)],
    returns: &[usize],
) -> PyResult<Bound<'py, PyAny>> {
    let of = |place: usize| match made.iter().find(|(param, _)| *param == place) {
        Some((_, array)) => Ok(array.clone()),
        None => args.get_item(place),
    };
    match returns {
        [] => Ok(args.py().None().into_bound(args.py())),
        [one] => of(*one),
        several => {
            let all = several.iter().map(|&place| of(place));
            Ok(PyTuple::new(args.py(), all.collect::<PyResult<Vec<_>>>()?)?.into_any())
        }
    }
}
