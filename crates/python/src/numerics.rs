//! Codes and block formats on whole arrays. Python gives row-major arrays of the right dtypes, and
//! the arrays that results go to.

use crate::arrays::argument;
use crate::dtype::DType;
use crate::enter::enter;
use crate::streams::Found;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tessera_driver::{Arg, BufferArg};
use tessera_numerics::{
    BlockFormat, DType as Storage, Quantized, Rounding, Scalar, decode, decode_slice_f32,
    dequantize, encode, encode_slice_f32, quantize,
};

/// The codes of values (f32, f64, i64 or u64), rounded once.
#[tessera_entry::entry]
#[pyfunction]
pub fn numerics_encode(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    dtype: &Bound<'_, DType>,
    round: &str,
    saturate: Option<bool>,
) -> PyResult<()> {
    let (x, y) = (row_major(values)?, row_major(out)?);
    let to = dtype.get().0.storage;
    let round = Rounding::from_name(round)
        .ok_or_else(|| PyValueError::new_err(format!("no such rounding: {round}")))?;
    let saturate = saturate.unwrap_or(to.saturates_by_default());
    enter(py, || {
        let plain = round == Rounding::Rne && saturate == to.saturates_by_default();
        let out = bytes_mut(&y);
        if plain && x.dtype == Storage::F32 {
            // SAFETY: a row-major array of f32 that Python keeps alive, aligned as NumPy aligns.
            let xs = unsafe { std::slice::from_raw_parts(x.data.cast::<f32>(), count(&x)) };
            encode_slice_f32(to, xs, out);
            return Ok(());
        }
        let width = to.bytes();
        for (from, code) in bytes(&x).chunks_exact(x.dtype.bytes()).zip(out.chunks_exact_mut(width))
        {
            let bits = encode(to, scalar(x.dtype, from), round, saturate);
            code.copy_from_slice(&bits.to_le_bytes()[..width]);
        }
        Ok(())
    })
}

/// The values of codes: f32, or f64 where the dtype is.
#[tessera_entry::entry]
#[pyfunction]
pub fn numerics_decode(
    py: Python<'_>,
    codes: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    dtype: &Bound<'_, DType>,
) -> PyResult<()> {
    let (x, y) = (row_major(codes)?, row_major(out)?);
    let from = dtype.get().0.storage;
    enter(py, || {
        if y.dtype == Storage::F32 {
            // SAFETY: a row-major array of f32 that Python keeps alive, aligned as NumPy aligns.
            let out = unsafe { std::slice::from_raw_parts_mut(y.data.cast::<f32>(), count(&y)) };
            decode_slice_f32(from, bytes(&x), out);
            return Ok(());
        }
        let codes = bytes(&x).chunks_exact(from.bytes());
        for (code, out) in codes.zip(bytes_mut(&y).chunks_exact_mut(8)) {
            out.copy_from_slice(&decode(from, word(code)).as_f64().to_le_bytes());
        }
        Ok(())
    })
}

/// The rows of a block format: name, element dtype, scale dtype, block length.
#[tessera_entry::entry]
#[pyfunction]
pub fn block_formats() -> Vec<(&'static str, &'static str, &'static str, usize)> {
    BlockFormat::ALL
        .iter()
        .map(|f| (f.name(), f.element().name(), f.scale().name(), f.block()))
        .collect()
}

/// Fills `data` and `scales` with codes, and gives the scale of the tensor where there is one.
#[tessera_entry::entry]
#[pyfunction]
pub fn numerics_quantize(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    last: usize,
    format: &str,
    data: &Bound<'_, PyAny>,
    scales: &Bound<'_, PyAny>,
) -> PyResult<Option<f32>> {
    let (x, d, s) = (row_major(values)?, row_major(data)?, row_major(scales)?);
    let format = block_format(format)?;
    let done = enter(py, || {
        // SAFETY: a row-major array of f32 that Python keeps alive, aligned as NumPy aligns.
        let xs = unsafe { std::slice::from_raw_parts(x.data.cast::<f32>(), count(&x)) };
        Ok(quantize(xs, last, format).map(|q| {
            fill(bytes_mut(&d), &q.data);
            fill(bytes_mut(&s), &q.scales);
            q.tensor_scale
        }))
    })?;
    done.ok_or_else(|| PyValueError::new_err("rows of one length are needed"))
}

#[tessera_entry::entry]
#[pyfunction]
pub fn numerics_dequantize(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    scales: &Bound<'_, PyAny>,
    tensor_scale: Option<f32>,
    last: usize,
    format: &str,
    out: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (d, s, y) = (row_major(data)?, row_major(scales)?, row_major(out)?);
    let format = block_format(format)?;
    enter(py, || {
        let (data, scales) = (bytes(&d).to_vec(), bytes(&s).to_vec());
        let values = dequantize(&Quantized { format, last, data, scales, tensor_scale });
        for (to, v) in bytes_mut(&y).chunks_exact_mut(4).zip(values) {
            to.copy_from_slice(&v.to_le_bytes());
        }
        Ok(())
    })
}

fn block_format(name: &str) -> PyResult<BlockFormat> {
    BlockFormat::from_name(name)
        .ok_or_else(|| PyValueError::new_err(format!("no such block format: {name}")))
}

fn fill(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(t, f)| *t = *f);
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |w, &b| w << 8 | u64::from(b))
}

/// A value in one of the wide dtypes, which Python has converted to.
fn scalar(dtype: Storage, bytes: &[u8]) -> Scalar {
    decode(dtype, word(bytes))
}

/// A row-major contiguous array.
fn row_major(object: &Bound<'_, PyAny>) -> PyResult<BufferArg> {
    let wrong = || PyValueError::new_err("a row-major NumPy array is needed");
    let Arg::Array(array) = argument(object, &mut Vec::new(), &mut Found::default())? else {
        return Err(wrong());
    };
    let b = array.buffer;
    // Of nothing any strides will do.
    if b.dims.contains(&0) {
        return Ok(b);
    }
    let mut step = b.dtype.bytes() as i64;
    for (&n, &s) in b.dims.iter().zip(&b.strides).rev() {
        if n > 1 && s != step {
            return Err(wrong());
        }
        step *= n;
    }
    Ok(b)
}

fn count(b: &BufferArg) -> usize {
    b.dims.iter().map(|&d| d as usize).product()
}

fn bytes(b: &BufferArg) -> &[u8] {
    if count(b) == 0 {
        return &[];
    }
    // SAFETY: the array is row-major, as `row_major` saw, and Python keeps it during the call.
    unsafe { std::slice::from_raw_parts(b.data, count(b) * b.dtype.bytes()) }
}

#[allow(clippy::mut_from_ref)] // The memory is the array's, not the argument's.
fn bytes_mut(b: &BufferArg) -> &mut [u8] {
    if count(b) == 0 {
        return &mut [];
    }
    // SAFETY: as above; Python has just made the array, so nothing else looks at it.
    unsafe { std::slice::from_raw_parts_mut(b.data, count(b) * b.dtype.bytes()) }
}
