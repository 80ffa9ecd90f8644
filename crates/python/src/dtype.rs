//! Dtypes and policy items as Python objects.

use crate::enter::exception;
use pyo3::IntoPyObjectExt;
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyString;
use tessera_diag::{Code, Diagnostic};
use tessera_numerics::{DType as Storage, NumType, PolicyError, PolicyItem as Item};

/// A storage dtype with its numeric policy: `fp8_e4m3 @ accum(fp32)`.
#[pyclass(frozen, module = "tessera._core")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct DType(pub NumType);

#[tessera_entry::entry]
#[pymethods]
impl DType {
    /// NumPy's dtype of the same elements is equal to a plain one: `x.dtype == ts.f32` holds for
    /// arrays of either kind.
    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        match other.cast::<DType>() {
            Ok(other) => self.0 == other.get().0,
            Err(_) => self.numpy(other.py()).is_some_and(|mine| is_dtype(other) && mine.is(other)),
        }
    }

    /// That of NumPy's dtype where there is one, which it is equal to.
    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        match self.numpy(py) {
            Some(numpy) => numpy.hash(),
            None => PyString::new(py, &self.0.to_string()).hash(),
        }
    }

    /// This type with one more policy item.
    fn __matmul__(&self, py: Python<'_>, item: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let Ok(item) = item.cast::<PolicyItem>() else { return Ok(py.NotImplemented()) };
        let made = self.0.with(item.get().0).map_err(|e| policy_error(py, &e))?;
        DType(made).into_py_any(py)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        // By name, so that a plain dtype is the one object it always is.
        Ok((slf.py().import("tessera.base.dtypes")?.getattr("dtype")?, (slf.get().0.to_string(),)))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    /// The storage dtype's name.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.storage.name()
    }

    /// Whether it has no policy.
    #[getter]
    fn is_plain(&self) -> bool {
        self.0.is_plain()
    }

    /// Whether two 4-bit elements share a byte.
    #[getter]
    fn packed(&self) -> bool {
        self.0.packed
    }

    /// Width of one element in bits.
    #[getter]
    fn bits(&self) -> u32 {
        self.0.storage.bits()
    }

    /// Bytes of one element in an unpacked array.
    #[getter]
    fn itemsize(&self) -> usize {
        self.0.storage.bytes()
    }

    /// The name of the NumPy dtype (or that of `ml_dtypes`) that holds it.
    #[getter]
    fn numpy_name(&self) -> &'static str {
        match self.0.storage {
            Storage::Bool => "bool",
            Storage::I4 => "int4",
            Storage::I8 => "int8",
            Storage::I16 => "int16",
            Storage::I32 => "int32",
            Storage::I64 => "int64",
            Storage::U8 => "uint8",
            Storage::U16 => "uint16",
            Storage::U32 => "uint32",
            Storage::U64 => "uint64",
            Storage::F64 => "float64",
            Storage::F32 | Storage::Tf32 => "float32",
            Storage::F16 => "float16",
            Storage::BF16 => "bfloat16",
            Storage::Fp8E4M3 => "float8_e4m3fn",
            Storage::Fp8E5M2 => "float8_e5m2",
            Storage::Fp6E3M2 => "float6_e3m2fn",
            Storage::Fp6E2M3 => "float6_e2m3fn",
            Storage::Fp4E2M1 => "float4_e2m1fn",
            Storage::E8M0 => "float8_e8m0fnu",
        }
    }
}

impl DType {
    /// The one object that NumPy has for a plain dtype of its own.
    fn numpy<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let own = match self.0.storage {
            Storage::Bool | Storage::I8 | Storage::I16 | Storage::I32 | Storage::I64 => true,
            Storage::U8 | Storage::U16 | Storage::U32 | Storage::U64 => true,
            Storage::F64 | Storage::F32 | Storage::F16 => true,
            // NumPy learns of these from `ml_dtypes`, or has none.
            Storage::I4 | Storage::Tf32 | Storage::BF16 | Storage::Fp8E4M3 | Storage::Fp8E5M2 => {
                false
            }
            Storage::Fp6E3M2 | Storage::Fp6E2M3 | Storage::Fp4E2M1 | Storage::E8M0 => false,
        };
        if !own || !self.0.is_plain() {
            return None;
        }
        static MADE: [PyOnceLock<Py<PyAny>>; 32] = [const { PyOnceLock::new() }; 32];
        let place = MADE.get(self.0.storage as usize)?;
        let make = || {
            Ok::<_, PyErr>(
                py.import("numpy")?.getattr("dtype")?.call1((self.numpy_name()?,))?.unbind(),
            )
        };
        place.get_or_try_init(py, make).ok().map(|made| made.bind(py).clone())
    }
}

/// Whether it is an object of NumPy's own class of dtypes.
fn is_dtype(value: &Bound<'_, PyAny>) -> bool {
    let class = value.get_type();
    class.getattr("__module__").is_ok_and(|m| m.to_string().starts_with("numpy"))
}

/// One `@` item of a numeric policy.
#[pyclass(frozen, module = "tessera._core")]
pub struct PolicyItem(pub Item);

#[tessera_entry::entry]
#[pymethods]
impl PolicyItem {
    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }

    fn __richcmp__(&self, other: &PolicyItem, op: CompareOp) -> Option<bool> {
        match op {
            CompareOp::Eq => Some(self.0 == other.0),
            CompareOp::Ne => Some(self.0 != other.0),
            _ => None,
        }
    }

    fn __hash__(&self) -> u64 {
        u64::from_le_bytes(
            tessera_support::StableHasher::of(&self.0.to_string()).0[..8]
                .try_into()
                .unwrap_or([0; 8]),
        )
    }

    /// `saturate(False)`; the items written without parentheses may also have them.
    #[pyo3(signature = (value=None))]
    fn __call__(&self, py: Python<'_>, value: Option<bool>) -> PyResult<Self> {
        match (self.0, value) {
            (Item::Saturate(_), Some(on)) => Ok(PolicyItem(Item::Saturate(on))),
            (item, None) => Ok(PolicyItem(item)),
            (item, Some(_)) => {
                let message = format!("expected no argument for `@{}`", item.kind());
                let help = "leave out the parentheses; only `saturate(False)` has a value";
                Err(exception(py, &Diagnostic::new(Code::E_ARGUMENT, message).help(help).into()))
            }
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        let text = slf.get().0.to_string();
        let item = text.trim_start_matches('@').to_string();
        Ok((slf.py().import("tessera._core")?.getattr("policy_item")?, (item,)))
    }
}

fn policy_error(py: Python<'_>, error: &PolicyError) -> PyErr {
    let code = match error {
        PolicyError::UnknownDType { .. } => Code::E_UNSUPPORTED_DTYPE,
        PolicyError::Syntax { .. } => Code::E_SYNTAX,
        PolicyError::UnknownItem { .. }
        | PolicyError::Duplicate { .. }
        | PolicyError::BadArgument { .. } => Code::E_TYPE,
    };
    exception(py, &Diagnostic::new(code, error.to_string()).help(error.help()).into())
}

/// Reads a type with its policy.
#[tessera_entry::entry]
#[pyfunction]
pub fn dtype(py: Python<'_>, text: &str) -> PyResult<DType> {
    NumType::parse(text).map(DType).map_err(|e| policy_error(py, &e))
}

#[tessera_entry::entry]
#[pyfunction]
pub fn is_dtype_name(text: &str) -> bool {
    Storage::parse(text).is_some()
}

/// Reads one policy item, without its `@`.
#[tessera_entry::entry]
#[pyfunction]
pub fn policy_item(py: Python<'_>, text: &str) -> PyResult<PolicyItem> {
    // Every item may stand on a 4-bit type.
    let found = NumType::parse(&format!("i4 @{text}")).map_err(|e| policy_error(py, &e))?;
    found.items().next().map(PolicyItem).ok_or_else(|| {
        exception(py, &Diagnostic::new(Code::E_TYPE, "expected a policy item, got none").into())
    })
}

/// Every spelling of every dtype.
#[tessera_entry::entry]
#[pyfunction]
pub fn dtype_names() -> Vec<&'static str> {
    Storage::names().collect()
}
