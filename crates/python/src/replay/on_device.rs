//! Calls of traced functions on arrays of a device. A recording finds the addresses of the call's arrays, allocates its
//! results, and puts the program on the call's stream: everything else was found out by the call that was recorded.

use super::form::Form;
use super::notes::Allocation;
use super::traced::{dtype_of, word};
use super::walk::{Walk, view};
use crate::device_array::DeviceArray;
use crate::graph::Executable;
use crate::readers::{self, Reader};
use crate::streams;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tessera_diag::Diagnostics;
use tessera_driver::device::{self, Memory};
use tessera_driver::replay::{Free, View};
use tessera_driver::{BufferArg, DeviceId, Queue};
use tessera_numerics::{DType, NumType};

/// How the results of a call came about, and whether its launches are captured.
#[derive(FromPyObject)]
pub struct Makes<'py>(Vec<Make<'py>>, bool);

/// How one did: in the memory of an argument that was donated, which is the n-th leaf, by a call, by a function of the
/// n-th leaf, or as an array of ours.
#[derive(FromPyObject)]
enum Make<'py> {
    Given(usize),
    Called(Bound<'py, PyAny>, Bound<'py, PyTuple>, Bound<'py, PyDict>),
    Like(Bound<'py, PyAny>, usize),
    Ours(Bound<'py, PyAny>),
}

/// A function with the memory of its arguments and results left open.
pub struct There {
    run: Py<Executable>,
    kernels: Option<Py<PyAny>>,
    device: DeviceId,
    captured: bool,
    /// Arrays of ours that the trace holds, which are the last arguments.
    held: Vec<Py<DeviceArray>>,
    results: Vec<Result>,
    form: Form,
    /// The bytes of each argument.
    bytes: Vec<u64>,
}

enum Result {
    Given(usize),
    Called(Allocation),
    Like(Py<PyAny>, usize),
    Ours(Vec<i64>, DType),
}

/// Numbers of a call lie this far apart on the device: as far as code is made for the alignment of arguments.
const APART: u64 = 16;

impl There {
    /// `None` for a call that needs more than the allocation of results and one run: copies of arguments to where they are
    /// needed, or conversions of results.
    pub fn new(
        walk: &Walk<'_>,
        run: Py<Executable>,
        kernels: Option<Py<PyAny>>,
        held: Vec<Bound<'_, PyAny>>,
        (result, leaves): (&Bound<'_, PyAny>, &[Bound<'_, PyAny>]),
        Makes(made, captured): Makes<'_>,
    ) -> PyResult<Option<Self>> {
        let (inputs, outputs) = run.get().templates();
        let Some(first) = walk.arrays.first().and_then(view) else { return Ok(None) };
        let device = first.device;
        let mut given = Vec::new();
        for leaf in walk.leaves() {
            given.push(match leaf {
                Ok(array) => match view(array) {
                    Some(seen) if seen.device == device && is_dense(&seen) => seen.dtype,
                    _ => return Ok(None),
                },
                Err(free) if word(free).is_some() => dtype_of(free),
                Err(_) => return Ok(None),
            });
        }
        let fits = given.len() + held.len() == inputs.len()
            && leaves.len() == outputs.len()
            && made.len() == leaves.len()
            && inputs.iter().zip(&given).all(|(a, dtype)| a.dtype == *dtype);
        if !fits || device.is_host() {
            return Ok(None);
        }
        let mut ours = Vec::new();
        for (array, input) in held.iter().zip(&inputs[given.len()..]) {
            let Ok(array) = array.cast::<DeviceArray>() else { return Ok(None) };
            let same = view(array).is_some_and(|seen| {
                seen.device == device && seen.dtype == input.dtype && is_dense(&seen)
            });
            if !same {
                return Ok(None);
            }
            ours.push(array.clone().unbind());
        }
        let mut results = Vec::new();
        let mut known = Vec::new();
        for ((make, leaf), output) in made.into_iter().zip(leaves).zip(&outputs) {
            let seen = view(leaf).filter(|seen| seen.device == device && is_dense(seen));
            let Some(seen) = seen.filter(|seen| seen.dtype == output.dtype) else {
                return Ok(None);
            };
            known.push((leaf.clone(), seen));
            results.push(match make {
                Make::Given(place) if place < given.len() => Result::Given(place),
                Make::Like(make, place) if place < given.len() => {
                    Result::Like(make.unbind(), place)
                }
                Make::Given(_) | Make::Like(..) => return Ok(None),
                Make::Called(make, args, kwargs) => Result::Called(Allocation::new(
                    make.unbind(),
                    args.unbind(),
                    Some(kwargs.unbind()),
                )),
                Make::Ours(none) if none.is_none() && leaf.is_instance_of::<DeviceArray>() => {
                    Result::Ours(output.dims.clone(), output.dtype)
                }
                Make::Ours(_) => return Ok(None),
            });
        }
        let Some(form) = Form::of(result, &known).filter(Form::is_of_whole) else {
            return Ok(None);
        };
        let bytes = inputs.iter().map(bytes).collect();
        Ok(Some(Self { run, kernels, device, captured, held: ours, results, form, bytes }))
    }

    pub fn traverse(&self, visit: &PyVisit<'_>) -> std::result::Result<(), PyTraverseError> {
        visit.call(&self.run)?;
        visit.call(&self.kernels)?;
        self.held.iter().try_for_each(|array| visit.call(array))?;
        self.results.iter().try_for_each(|result| match result {
            Result::Called(allocation) => allocation.traverse(visit),
            Result::Like(make, _) => visit.call(make),
            Result::Given(_) | Result::Ours(..) => Ok(()),
        })
    }

    /// `None` where arrays are in use on other streams than the call's, where a donated array overlaps another argument, where
    /// a number does not fit, and in a recording of the caller's.
    pub fn run<'py>(
        &self,
        py: Python<'py>,
        walk: &Walk<'py>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let stream = if device::is_recording() { None } else { walk.stream(py) };
        let Some(stream) = stream else { return Ok(None) };
        let queue = Queue { device: self.device, stream };
        let mut at = Vec::with_capacity(self.bytes.len() + self.results.len());
        let numbers = walk.tokens.free();
        let _numbers = if numbers.is_empty() {
            at.extend_from_slice(walk.tokens.addresses());
            None
        } else {
            let Some(memory) = put_numbers(py, numbers, queue)? else { return Ok(None) };
            let (mut arrays, mut next) = (walk.tokens.addresses().iter(), memory.address());
            for leaf in walk.leaves() {
                match leaf {
                    Ok(_) => at.extend(arrays.next()),
                    Err(_) => {
                        at.push(next);
                        next += APART;
                    }
                }
            }
            Some(memory)
        };
        let mut after = Vec::new();
        for array in &self.held {
            let array = array.get();
            at.push(array.buffer.data as u64);
            let last = array.memory.last();
            if last != stream && !after.contains(&last) {
                after.push(last);
            }
        }
        if self.overlaps(&at) {
            return Ok(None);
        }
        let mut made = Vec::with_capacity(self.results.len());
        for result in &self.results {
            let array = match result {
                Result::Ours(dims, dtype) => {
                    let queue = Queue { stream: streams::own(), ..queue };
                    let array = DeviceArray::new(dims.clone(), NumType::plain(*dtype), queue);
                    let array = array.map_err(|found| crate::enter::exception(py, &found))?;
                    at.push(array.buffer.data as u64);
                    made.push(Bound::new(py, array)?.into_any());
                    continue;
                }
                Result::Given(place) => match leaf_array(walk, *place) {
                    Some(array) => array,
                    None => return Ok(None),
                },
                Result::Called(allocation) => allocation.again(py)?,
                Result::Like(make, place) => match leaf_array(walk, *place) {
                    Some(array) => make.bind(py).call1((array,))?,
                    None => return Ok(None),
                },
            };
            let Some(address) = address(&array) else { return Ok(None) };
            at.push(address);
            made.push(array);
        }
        let kernels = self.kernels.as_ref().map(|k| k.clone_ref(py));
        self.run.get().run_again(py, &at, queue, after, kernels, self.captured)?;
        if walk.is_of_ours() {
            for array in &walk.arrays {
                if let Ok(array) = array.cast::<DeviceArray>() {
                    array.get().memory.used_on(stream);
                }
            }
        }
        self.held.iter().for_each(|array| array.get().memory.used_on(stream));
        self.form.build(py, &made).map(Some)
    }

    /// Whether an array that gives its memory to a result shares it with another argument.
    fn overlaps(&self, at: &[u64]) -> bool {
        let span = |i: usize| (at[i], at[i].wrapping_add(self.bytes[i]));
        self.results.iter().any(|result| match result {
            Result::Given(place) => {
                let (begin, end) = span(*place);
                (0..at.len()).filter(|i| i != place).map(span).any(|(b, e)| b < end && begin < e)
            }
            Result::Called(_) | Result::Like(..) | Result::Ours(..) => false,
        })
    }
}

/// The numbers of a call on the device, in the order of the queue.
fn put_numbers(py: Python<'_>, free: &[Free], queue: Queue) -> PyResult<Option<Memory>> {
    let Some(words) = free.iter().map(word).collect::<Option<Vec<u64>>>() else { return Ok(None) };
    let bytes: Vec<u8> =
        words.iter().flat_map(|w| [*w, 0].map(u64::to_le_bytes)).flatten().collect();
    let put = || -> std::result::Result<Memory, Diagnostics> {
        let memory = Memory::new(queue, bytes.len() as u64)?;
        let view = BufferArg {
            data: memory.address() as *mut u8,
            dims: vec![bytes.len() as i64],
            strides: vec![1],
            dtype: DType::U8,
            writable: true,
        };
        device::write(&view, queue, &bytes)?;
        Ok(memory)
    };
    crate::enter::enter(py, put).map(Some)
}

fn leaf_array<'py>(walk: &Walk<'py>, place: usize) -> Option<Bound<'py, PyAny>> {
    walk.leaves().nth(place)?.ok().cloned()
}

/// Where an array of the device is.
fn address(array: &Bound<'_, PyAny>) -> Option<u64> {
    match readers::known(array)? {
        Reader::Own => Some(array.cast::<DeviceArray>().ok()?.get().buffer.data as u64),
        _ => view(array).map(|view| view.address),
    }
}

fn bytes(array: &BufferArg) -> u64 {
    let count = array.dims.iter().map(|&n| n.max(0) as u64);
    count.fold(array.dtype.bytes() as u64, u64::saturating_mul)
}

/// Whether an array lies row by row, apart from axes of extent 1.
fn is_dense(view: &View) -> bool {
    let (dims, strides) = (&view.dims[..view.rank], &view.strides[..view.rank]);
    if dims.contains(&0) {
        return true;
    }
    let mut step = view.dtype.bytes() as i64;
    for (&n, &stride) in dims.iter().zip(strides).rev() {
        if n > 1 && stride != step {
            return false;
        }
        step = step.saturating_mul(n);
    }
    true
}
