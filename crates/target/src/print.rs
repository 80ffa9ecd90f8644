//! Output of kernels, in the same format on every backend.

use std::sync::{PoisonError, RwLock};
use tessera_numerics::{DType, Scalar, decode};

static PRINT: RwLock<Option<fn(&str)>> = RwLock::new(None);

/// Tiles with more elements are shown by their edges.
const MANY: usize = 1000;
/// How much of each edge is shown.
const EDGE: usize = 3;

/// Sets the function that gets each printed line; without one they go to standard output. It is
/// called on the thread of the launch.
pub fn set_print(print: fn(&str)) {
    *PRINT.write().unwrap_or_else(PoisonError::into_inner) = Some(print);
}

pub fn tell(line: &str) {
    match *PRINT.read().unwrap_or_else(PoisonError::into_inner) {
        Some(print) => print(line),
        None => println!("{line}"),
    }
}

/// A number as text that distinguishes different values.
pub fn show(s: Scalar) -> String {
    match s {
        Scalar::Bool(x) => x.to_string(),
        Scalar::I32(x) => x.to_string(),
        Scalar::I64(x) => x.to_string(),
        Scalar::U32(x) => x.to_string(),
        Scalar::U64(x) => x.to_string(),
        Scalar::F32(x) if x.is_nan() => "nan".into(),
        Scalar::F64(x) if x.is_nan() => "nan".into(),
        Scalar::F32(x) => format!("{x:?}"),
        Scalar::F64(x) => format!("{x:?}"),
    }
}

/// A value of this shape as nested lists, as Python writes them; one number for no axes. `at` gives
/// the elements in row-major order; `None` when one is missing.
pub fn show_tile(shape: &[usize], at: &dyn Fn(usize) -> Option<Scalar>) -> Option<String> {
    nested(shape, at, 0, shape.iter().product::<usize>() > MANY)
}

fn nested(
    shape: &[usize],
    at: &dyn Fn(usize) -> Option<Scalar>,
    first: usize,
    many: bool,
) -> Option<String> {
    let Some((&len, inner)) = shape.split_first() else { return at(first).map(show) };
    let step: usize = inner.iter().product();
    let mut items = Vec::new();
    for i in 0..len {
        if many && len > 2 * EDGE && (EDGE..len - EDGE).contains(&i) {
            if i == EDGE {
                items.push("...".to_string());
            }
            continue;
        }
        items.push(nested(inner, at, first + i * step, many)?);
    }
    Some(format!("[{}]", items.join(", ")))
}

/// The same for elements in memory, in row-major order.
pub fn show_elements(dtype: DType, bytes: &[u8], shape: &[usize]) -> String {
    let width = dtype.bytes();
    let at = |i: usize| {
        let code = bytes.get(i * width..(i + 1) * width)?;
        let mut word = [0; 8];
        word[..width].copy_from_slice(code);
        Some(decode(dtype, u64::from_le_bytes(word)))
    };
    show_tile(shape, &at).unwrap_or_default()
}
