//! Arguments as the caller gives them.

use std::sync::Arc;
use tessera_frontend::{Capture, FuncSource};
use tessera_numerics::{DType, NumType};
use tessera_target::BufferArg;
use tessera_target::device::DeviceId;

/// Where an array's memory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Host,
    Device(DeviceId),
    /// A device that no platform here reaches, by the name its users know: `hip:0`.
    Other(String),
}

impl Place {
    /// Where a device's arrays are: in host memory for the host.
    pub fn of(device: DeviceId) -> Self {
        if device.is_host() { Place::Host } else { Place::Device(device) }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Host => f.write_str("in host memory"),
            Place::Device(device) => write!(f, "on {device}"),
            Place::Other(name) => write!(f, "on {name}"),
        }
    }
}

#[derive(Clone, Debug)]
pub struct ArrayArg {
    pub buffer: BufferArg,
    pub place: Place,
}

impl ArrayArg {
    /// An array without axes has one axis of one element in compiled code.
    pub fn as_point(&mut self) {
        if self.buffer.dims.is_empty() {
            self.buffer.dims = vec![1];
            self.buffer.strides = vec![self.buffer.dtype.bytes() as i64];
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    Bool(bool),
    Int(i128),
    Float(f64),
    /// An integer beyond 128 bits, as text.
    Huge(String),
}

#[derive(Clone, Debug)]
pub enum Arg {
    Array(ArrayArg),
    /// An array that cannot be used; the sentence says what was expected and what it is.
    Unusable(String),
    /// An array of which a mask says what counts.
    Masked,
    /// A number, with its dtype where it has one (a NumPy scalar).
    Number {
        value: Number,
        dtype: Option<DType>,
    },
    Str(String),
    None,
    DType(NumType),
    Func(Arc<FuncSource>),
    /// A function of the language, by its name there.
    Builtin(String),
    /// Anything else: the name of its type.
    Other(String),
}

impl Arg {
    pub fn int(value: i64) -> Self {
        Arg::Number { value: Number::Int(value.into()), dtype: None }
    }

    /// What the argument is, for messages.
    pub fn describe(&self) -> String {
        match self {
            Arg::Array(a) => {
                format!("an array of {} with shape {}", a.buffer.dtype, shape(&a.buffer.dims))
            }
            Arg::Unusable(what) => what.clone(),
            Arg::Masked => "a masked array".into(),
            Arg::Number { value: Number::Bool(v), .. } => if *v { "True" } else { "False" }.into(),
            Arg::Number { value: Number::Int(v), .. } => format!("the integer {v}"),
            Arg::Number { value: Number::Float(v), .. } => format!("the number {v:?}"),
            Arg::Number { value: Number::Huge(v), .. } => format!("the integer {v}"),
            Arg::Str(s) => format!("the string {s:?}"),
            Arg::None => "None".into(),
            Arg::DType(t) => format!("the dtype {t}"),
            Arg::Func(f) => format!("the function `{}`", f.name),
            Arg::Builtin(name) => format!("the function `ts.{name}`"),
            Arg::Other(name) => format!("a value of type {name}"),
        }
    }

    /// A default value as an argument.
    pub fn from_capture(value: &Capture) -> Self {
        match value {
            Capture::None => Arg::None,
            Capture::Bool(v) => Arg::Number { value: Number::Bool(*v), dtype: None },
            Capture::Int(v) => Arg::Number { value: Number::Int(*v), dtype: None },
            Capture::Float(v) => Arg::Number { value: Number::Float(*v), dtype: None },
            Capture::Str(s) => Arg::Str(s.clone()),
            Capture::Func(f) => Arg::Func(f.clone()),
            Capture::DType(t) => Arg::DType(*t),
            Capture::Tuple(_) => Arg::Other("tuple".into()),
            Capture::Table(_) => Arg::Other("constant table".into()),
            Capture::Namespace(n) => Arg::Other(format!("module {n}")),
            Capture::Builtin(n) => Arg::Builtin(n.clone()),
            Capture::Later => Arg::Other("value that is not there yet".into()),
            Capture::Opaque(n) => Arg::Other(n.clone()),
        }
    }
}

/// `(3, 4)`, as Python writes it.
pub fn shape(dims: &[i64]) -> String {
    match dims {
        [one] => format!("({one},)"),
        dims => format!("({})", dims.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")),
    }
}
