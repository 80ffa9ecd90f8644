//! Python's values as tokens, without calls into Python but for what is rare.

use crate::arrays::{Class, NdHead, class, descr_dtype, generic_dtype, head, word};
use crate::device_array::DeviceArray;
use crate::exchange::Exchange;
use crate::readers::{self, Reader};
use crate::values::Func;
use crate::{dlpack, streams};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use std::sync::Arc;
use tessera_driver::replay::{Free, Held, Key, MAX_RANK, Mark, Numbers, Tokens, View};
use tessera_driver::{DeviceId, Number, Place};
use tessera_numerics::DType;

/// Where the stream of a call is to be had from.
#[derive(Copy, Clone)]
enum Source {
    /// Arrays in host memory, which are on none.
    Host,
    /// Arrays of our own, last used on this stream.
    Own(u64),
    Library(&'static Exchange, DeviceId),
}

/// The values of one call.
pub struct Walk<'py> {
    pub tokens: Tokens,
    /// Its arrays, in order. Another thread may remove them from their containers meanwhile.
    pub arrays: Vec<Bound<'py, PyAny>>,
    /// The classes among the tokens, which a key keeps.
    classes: Vec<Bound<'py, PyType>>,
    source: Option<Source>,
    /// Whether the tokens say which arrays begin at one address.
    aliases: bool,
    /// How many containers the present value is in.
    depth: usize,
}

/// Values in more containers take the full path: a list may contain itself.
const DEEPEST: usize = 32;

/// The numbers of classes in tokens, after those of `Class`.
const OWN: u8 = 3;
const LIBRARY: u8 = 4;

impl<'py> Walk<'py> {
    pub fn new(guards: [u64; 3], aliases: bool) -> Self {
        let (tokens, arrays) = (Tokens::new(guards), Vec::with_capacity(8));
        Self { tokens, arrays, classes: Vec::new(), source: None, aliases, depth: 0 }
    }

    /// The key of the call.
    pub fn key(&self) -> Key {
        let held = |class: &Bound<'py, PyType>| Arc::new(class.clone().unbind()) as Held;
        self.tokens.key(self.classes.iter().map(held))
    }

    /// The stream of the call, where one is known for sure.
    pub fn stream(&self, py: Python<'_>) -> Option<u64> {
        match (streams::named(), self.source.unwrap_or(Source::Host)) {
            (_, Source::Host) => Some(0),
            (Some(named), Source::Library(..)) => Some(named),
            (Some(named), Source::Own(last)) if named == last => Some(named),
            (None, Source::Own(0)) => Some(0),
            (None, Source::Library(exchange, device)) => {
                exchange.stream(py, device).ok().map(streams::canonical)
            }
            (_, Source::Own(_)) => None,
        }
    }

    /// Whether all its arrays are in host memory.
    pub fn is_on_host(&self) -> bool {
        matches!(self.source, None | Some(Source::Host))
    }

    /// Whether all its arrays are ours, on a device.
    pub fn is_of_ours(&self) -> bool {
        matches!(self.source, Some(Source::Own(_)))
    }

    /// Arrays and free numbers in the order in which they came.
    pub fn leaves(&self) -> impl Iterator<Item = Result<&Bound<'py, PyAny>, &Free>> {
        let (mut arrays, mut free) = (self.arrays.iter(), self.tokens.free().iter().peekable());
        let mut count = 0;
        std::iter::from_fn(move || match free.peek() {
            Some(number) if number.after == count => free.next().map(Err),
            _ => {
                count += 1;
                arrays.next().map(Ok)
            }
        })
    }

    /// `None` for what only the full path knows to take apart.
    pub fn value(&mut self, value: &Bound<'py, PyAny>, numbers: Numbers) -> Option<()> {
        if let Ok(array) = value.cast_exact::<DeviceArray>() {
            return self.own(value, array.get());
        }
        if let Some(class) = class(value).ok()? {
            self.join(Source::Host)?;
            self.array(value, numpy(value, class)?);
            return Some(());
        }
        match readers::known(value) {
            Some(Reader::Exchange(exchange, writable)) => {
                let view = shared(exchange, value, writable)?;
                self.join(match view.device.is_host() {
                    true => Source::Host,
                    false => Source::Library(exchange, view.device),
                })?;
                self.array(value, view);
                // Arrays of several types may be read by one table.
                self.class(value);
                Some(())
            }
            Some(Reader::Own) => self.own(value, value.cast::<DeviceArray>().ok()?.get()),
            Some(Reader::Torch | Reader::Cupy | Reader::Dlpack | Reader::ArrayInterface) => None,
            None => {
                self.depth += 1;
                let done = self.constant(value, numbers);
                self.depth -= 1;
                done
            }
        }
    }

    fn own(&mut self, value: &Bound<'py, PyAny>, array: &DeviceArray) -> Option<()> {
        let (view, memory) = (&array.buffer, &array.memory);
        if view.dims.len() > MAX_RANK {
            return None;
        }
        self.join(Source::Own(memory.last()))?;
        let whose = (OWN, memory.device(), view.dtype, view.writable);
        self.tokens.lying(whose, view.data as u64, &view.dims, &view.strides);
        self.kept(value);
        Some(())
    }

    fn array(&mut self, value: &Bound<'py, PyAny>, view: View) {
        self.tokens.array(&view);
        self.kept(value);
    }

    fn kept(&mut self, value: &Bound<'py, PyAny>) {
        if self.aliases {
            self.tokens.alias();
        }
        self.arrays.push(value.clone());
    }

    /// Arrays of one kind only: others may be in use on another stream.
    fn join(&mut self, now: Source) -> Option<()> {
        let same = match (self.source, now) {
            (None, _) | (Some(Source::Host), Source::Host) => true,
            (Some(Source::Own(a)), Source::Own(b)) => a == b,
            (Some(Source::Library(a, i)), Source::Library(b, j)) => std::ptr::eq(a, b) && i == j,
            _ => false,
        };
        self.source = Some(now);
        same.then_some(())
    }

    fn constant(&mut self, value: &Bound<'py, PyAny>, numbers: Numbers) -> Option<()> {
        if value.is_none() {
            self.tokens.none();
            return Some(());
        }
        if let Ok(v) = value.cast_exact::<PyInt>() {
            return self.tokens.number(Number::Int(v.extract().ok()?), None, numbers);
        }
        if let Ok(v) = value.cast_exact::<PyFloat>() {
            return self.tokens.number(Number::Float(v.value()), None, numbers);
        }
        if let Ok(v) = value.cast_exact::<PyString>() {
            self.tokens.text(Mark::Text, v.to_str().ok()?);
            return Some(());
        }
        if let Ok(v) = value.cast_exact::<PyBool>() {
            return self.tokens.number(Number::Bool(v.is_true()), None, numbers);
        }
        if self.depth > DEEPEST {
            return None;
        }
        if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            self.tokens.mark(Mark::Tuple, tuple.len());
            return tuple.iter_borrowed().try_for_each(|item| self.value(&item, numbers));
        }
        if let Ok(list) = value.cast_exact::<PyList>() {
            self.tokens.mark(Mark::List, list.len());
            return list.iter().try_for_each(|item| self.value(&item, numbers));
        }
        if let Ok(dict) = value.cast_exact::<PyDict>() {
            return self.dict(dict, &|_| numbers);
        }
        if let Ok(v) = value.cast_exact::<crate::dtype::DType>() {
            self.tokens.dtype(v.get().0);
            return Some(());
        }
        if let Some(dtype) = generic_dtype(value) {
            let bits = word(value, dtype)?;
            return self.tokens.number(typed(bits, dtype), Some(dtype), numbers);
        }
        self.named(value)
    }

    /// Functions of the caller's and of the language, and objects that say what they rest on.
    fn named(&mut self, value: &Bound<'py, PyAny>) -> Option<()> {
        let py = value.py();
        // Objects of others may have attributes of these names, which say something else or run code.
        let class = value.get_type();
        let ours = class.module().ok()?;
        if !ours.to_str().ok()?.starts_with("tessera.") {
            return None;
        }
        let handle = interrupted(py, value.getattr_opt(intern!(py, "handle")))?;
        if let Some(func) = handle.as_ref().and_then(|handle| handle.cast::<Func>().ok()) {
            self.tokens.func(&func.get().source);
            return Some(());
        }
        if let Some(name) = interrupted(py, value.getattr_opt(intern!(py, "api_name")))? {
            self.tokens.text(Mark::Builtin, name.cast_exact::<PyString>().ok()?.to_str().ok()?);
            return Some(());
        }
        let parts = interrupted(py, value.call_method0(intern!(py, "rests_on")))?;
        self.class(value);
        self.value(&parts, Numbers::Fixed)
    }

    fn class(&mut self, value: &Bound<'py, PyAny>) {
        let class = value.get_type();
        self.tokens.identity(class.as_ptr() as usize);
        self.classes.push(class);
    }

    /// In the order of the keys, which is that of a tree's leaves.
    pub fn dict(
        &mut self,
        dict: &Bound<'py, PyDict>,
        numbers: &dyn Fn(&str) -> Numbers,
    ) -> Option<()> {
        self.tokens.mark(Mark::Dict, dict.len());
        if dict.is_empty() {
            return Some(());
        }
        let mut items = Vec::with_capacity(dict.len());
        for (key, value) in dict.iter() {
            items.push((key.cast_into_exact::<PyString>().ok()?, value));
        }
        let text = |key: &Bound<'py, PyString>| key.to_str().map(str::to_owned).ok();
        let mut named = Vec::with_capacity(items.len());
        for (key, value) in &items {
            named.push((text(key)?, value));
        }
        // As Python sorts text: by code points, which is the order of UTF-8's bytes.
        if !named.is_sorted_by(|a, b| a.0 <= b.0) {
            named.sort_by(|a, b| a.0.cmp(&b.0));
        }
        named.into_iter().try_for_each(|(name, value)| {
            self.tokens.text(Mark::Text, &name);
            self.value(value, numbers(&name))
        })
    }
}

/// What Python gave. An interrupt that came meanwhile comes again at the next opportunity; other errors are those of the
/// full path.
fn interrupted<T>(py: Python<'_>, done: PyResult<T>) -> Option<T> {
    done.inspect_err(|error| {
        if error.is_instance_of::<PyKeyboardInterrupt>(py) {
            // SAFETY: it may be called at any time.
            unsafe { pyo3::ffi::PyErr_SetInterrupt() }
        }
    })
    .ok()
}

/// A number from the word that holds it: see [`word`].
fn typed(bits: u64, dtype: DType) -> Number {
    if dtype == DType::Bool {
        Number::Bool(bits != 0)
    } else if dtype.is_signed_int() {
        Number::Int((bits as i64).into())
    } else if dtype.is_int() {
        Number::Int(bits.into())
    } else if dtype == DType::F32 {
        Number::Float(f32::from_bits(bits as u32).into())
    } else {
        Number::Float(f64::from_bits(bits))
    }
}

/// An array as the walk sees it.
pub fn view(value: &Bound<'_, PyAny>) -> Option<View> {
    if let Some(class) = class(value).ok()? {
        return numpy(value, class);
    }
    match readers::known(value)? {
        Reader::Exchange(exchange, writable) => shared(exchange, value, writable),
        Reader::Own => own(value.cast::<DeviceArray>().ok()?.get()),
        Reader::Torch | Reader::Cupy | Reader::Dlpack | Reader::ArrayInterface => None,
    }
}

fn shared(exchange: &Exchange, value: &Bound<'_, PyAny>, writable: bool) -> Option<View> {
    let tensor = exchange.tensor(value).ok()?;
    let device = match dlpack::place(tensor.device) {
        Ok(Place::Device(device)) => device,
        Ok(Place::Host) => DeviceId::HOST,
        _ => return None,
    };
    let dtype = dlpack::dtype(tensor.code, tensor.bits).filter(|_| tensor.lanes == 1)?;
    let rank = usize::try_from(tensor.rank).ok().filter(|&r| r <= MAX_RANK)?;
    if rank > 0 && (tensor.strides.is_null() || tensor.dims.is_null()) {
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
    Some(View { class: LIBRARY, address, device, dtype, rank, dims, strides, writable })
}

/// An array of NumPy's own class, or of ours.
fn numpy(value: &Bound<'_, PyAny>, class: Class) -> Option<View> {
    let NdHead { data, dims: extents, dtype, strides: steps, writable, .. } = head(value);
    let rank = Some(extents.len()).filter(|&r| r <= MAX_RANK)?;
    let dtype = descr_dtype(&dtype).ok()?.ok()?;
    let (mut dims, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
    for axis in 0..rank {
        (dims[axis], strides[axis]) = (extents[axis] as i64, steps[axis] as i64);
    }
    let (address, device) = (data as u64, DeviceId::HOST);
    Some(View { class: class as u8, address, device, dtype, rank, dims, strides, writable })
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
    let (dtype, writable) = (view.dtype, view.writable);
    Some(View { class: OWN, address, device, dtype, rank, dims, strides, writable })
}
