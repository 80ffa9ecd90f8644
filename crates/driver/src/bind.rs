//! Binds a call's arguments to a kernel's parameters: which goes where, the sizes of the dims, and
//! the compile-time values. Nothing here runs or writes; errors are collected.

mod sizes;

use crate::args::{Arg, ArrayArg, Number, Place, shape};
use crate::backends::Choice;
use crate::dims::Sizes;
use crate::location::Location;
use crate::number::scalar_of;
use crate::params::{Kind, Param, Params, show_dim};
use crate::specialise::CallArrays;
use std::borrow::Cow;
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_frontend::{ArgType, Capture, Config, axis_symbol, is_expression, symbol};
use tessera_ir::DimExpr;
use tessera_numerics::{DType, NumType, Scalar};
use tessera_target::BufferArg;

/// What a call gives.
#[derive(Clone, Debug, Default)]
pub struct Call {
    pub positional: Vec<Arg>,
    pub keyword: Vec<(String, Arg)>,
}

/// What stands for one parameter at run time.
#[derive(Clone, Debug)]
pub enum Slot {
    Array(ArrayArg),
    Scalar(Scalar),
    /// Compile-time: in the configuration, not among the launch arguments.
    Static,
    /// An `Out[...]` the caller left to us: to be allocated.
    Missing {
        dims: Vec<i64>,
        elem: NumType,
    },
}

/// A call that fits the kernel.
#[derive(Clone, Debug)]
pub struct Bound {
    pub slots: Vec<Slot>,
    pub sizes: Sizes,
    /// Without tunables, and with the static dims only.
    pub config: Config,
}

/// The address of an array that does not exist yet, in what is compiled for it: what is allocated is aligned to this.
const ALIGNED: usize = 64;

impl Bound {
    /// The call, for what is compiled for it: where the backend gets copies of the arrays, none of its arrays says how they lie.
    pub fn call_on(&self, location: Location, choice: &Choice) -> Option<&Self> {
        choice.works_at(location).then_some(self)
    }

    /// Its arrays for such a backend.
    pub fn arrays_on(&self, location: Location, choice: &Choice) -> CallArrays {
        self.call_on(location, choice).map(Self::arrays).unwrap_or_default()
    }

    /// The arrays of the call; those that are left to it as they will be made: aligned and row-major.
    pub fn arrays(&self) -> CallArrays {
        let array = |slot: &Slot| match slot {
            Slot::Array(array) => Some(array.buffer.clone()),
            Slot::Missing { dims, elem } => Some(made(dims, *elem)),
            Slot::Scalar(_) | Slot::Static => None,
        };
        self.slots.iter().map(array).collect()
    }
}

fn made(dims: &[i64], elem: NumType) -> BufferArg {
    let dtype = stored_as(elem);
    let mut dims = stored(dims, elem);
    if dims.is_empty() {
        dims.push(1);
    }
    let mut strides = vec![dtype.bytes() as i64; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(dims[axis].max(1));
    }
    let data = std::ptr::without_provenance_mut(ALIGNED);
    BufferArg { data, dims, strides, dtype, writable: true }
}

struct Binder<'a> {
    params: &'a Params,
    errors: Diagnostics,
    sizes: Sizes,
    /// Integers of the caller: they may be part of the launch grid.
    integers: BTreeMap<String, i64>,
    /// Sizes that the caller gives by name.
    given: BTreeMap<String, i64>,
    config: Config,
    /// Axes of packed elements whose dim is a symbol, with their bytes. They come last: where another
    /// array says that a size is odd, the last byte has one element.
    packed: Vec<(&'a Param, usize, &'a DimExpr, ArrayArg)>,
}

/// `fixed` is the configuration of a compiled kernel, whose constants a call need not repeat.
pub fn bind(
    params: &Params,
    call: Call,
    static_dims: &[String],
    fixed: Option<&Config>,
) -> Result<Bound, Diagnostics> {
    let sized;
    let params = if params.sizes.is_empty() {
        params
    } else {
        sized = sizes::with_sizes(params, &call, fixed);
        &sized
    };
    let mut b = Binder {
        params,
        errors: Diagnostics::new(),
        sizes: Sizes::default(),
        integers: BTreeMap::new(),
        given: BTreeMap::new(),
        config: Config::default(),
        packed: Vec::new(),
    };
    let args = b.match_names(call, fixed);
    if b.errors.has_errors() {
        return Err(b.errors);
    }
    let mut slots: Vec<Slot> =
        params.items.iter().zip(args).map(|(p, arg)| b.slot(p, arg)).collect();
    b.packed_sizes();
    b.products(&slots);
    b.expressions(&slots);
    b.outs(&mut slots);
    for name in static_dims {
        match b.sizes.get(name).or_else(|| fixed.and_then(|c| c.dims.get(name).copied())) {
            Some(value) => {
                b.config.dims.insert(name.clone(), value);
            }
            None if b.errors.has_errors() || params.is_absent(name, &b.config.consts) => {}
            None => b.errors.push(missing_dim(params, name)),
        }
    }
    if let Some(fixed) = fixed {
        b.against(fixed);
    }
    b.errors.into_result()?;
    for (name, value) in b.integers {
        b.sizes.known.entry(name).or_insert(value);
    }
    Ok(Bound { slots, sizes: b.sizes, config: b.config })
}

/// The error for a dim that must be known and that no argument determines.
fn missing_dim(params: &Params, name: &str) -> Diagnostic {
    Diagnostic::new(Code::E_SPECIALIZE, format!("no argument gives the size of `{name}`"))
        .at(params.loc.clone())
        .help(format!("use `{name}` as a dimension of a parameter that is an array"))
}

impl<'a> Binder<'a> {
    /// One argument, or none, for each parameter.
    fn match_names(&mut self, call: Call, fixed: Option<&Config>) -> Vec<Option<Arg>> {
        let params = self.params;
        let mut args: Vec<Option<Arg>> = (0..params.items.len()).map(|_| None).collect();
        let given = call.positional.len();
        for (slot, arg) in args.iter_mut().zip(call.positional) {
            *slot = Some(arg);
        }
        if given > params.items.len() {
            let wanted = params.items.len();
            let s = if wanted == 1 { "" } else { "s" };
            self.fail(
                format!("expected at most {wanted} argument{s}, got {given}"),
                "leave out those at the end".into(),
            );
        }
        for (name, arg) in call.keyword {
            match params.position(&name) {
                None if params.has_symbol(&name) => self.size_by_name(name, &arg),
                None => {
                    let message = format!("`{}` has no parameter `{name}`", params.kernel);
                    let help = self.instead_of(&name);
                    self.fail(message, help);
                }
                Some(i) if args[i].is_some() => self.fail(
                    format!("expected `{name}` once, got it twice"),
                    "it is given by place already: leave out the keyword".into(),
                ),
                Some(i) => args[i] = Some(arg),
            }
        }
        for (param, slot) in params.items.iter().zip(&mut args) {
            if slot.is_none() {
                let value =
                    fixed.and_then(|c| c.consts.get(&param.name)).or(param.default.as_ref());
                *slot = value.map(Arg::from_capture);
            }
            let optional = matches!(param.kind, Kind::Array { out: true, .. });
            if slot.is_none() && !optional {
                self.errors.push(
                    param
                        .error(Code::E_ARGUMENT, format!("missing the argument `{}`", param.shown))
                        .note(format!("the kernel is `{}`", params.signature()))
                        .help(format!("give it by place or as `{}=…`", param.shown)),
                );
            }
        }
        args
    }

    /// What a keyword may have been meant for: a parameter of nearly this name, or something of another library's.
    fn instead_of(&self, name: &str) -> String {
        let known = self.params.items.iter().map(|p| p.name.as_str());
        match (tessera_frontend::closest(name, known), name) {
            (Some(near), _) => format!("did you mean `{near}`?"),
            (None, "grid") => "write `k[grid](…)` or `k.launch(…, grid=…)`".into(),
            (None, "num_warps" | "num_stages" | "num_ctas") => {
                "pin it: `k.scheduled(warps=8, stages=3)(…)`, or name it in `@ts.kernel.autotune`"
                    .into()
            }
            (None, "stream") => "write `with ts.runtime.stream(s):` around the call".into(),
            (None, "out") => "pass the array for the parameter that the kernel writes".into(),
            _ => format!("leave out `{name}=`"),
        }
    }

    fn fail(&mut self, message: String, help: String) {
        let error = Diagnostic::new(Code::E_ARGUMENT, message)
            .at(self.params.loc.clone())
            .note(format!("the kernel is `{}`", self.params.signature()))
            .help(help);
        self.errors.push(error);
    }

    fn slot(&mut self, param: &'a Param, arg: Option<Arg>) -> Slot {
        let left_out = match &arg {
            None => true,
            Some(Arg::None) if param.optional => {
                self.config.consts.insert(param.name.clone(), Capture::None);
                return Slot::Static;
            }
            // An output that is None is left to us.
            Some(Arg::None) => matches!(param.kind, Kind::Array { out: true, .. }),
            Some(_) => false,
        };
        let Some(arg) = arg.filter(|_| !left_out) else {
            let Kind::Array { elem: Some(elem), .. } = &param.kind else { return Slot::Static };
            return Slot::Missing { dims: Vec::new(), elem: *elem };
        };
        match &param.kind {
            Kind::Array { dims, elem, .. } => self.array(param, arg, dims.as_deref(), *elem),
            Kind::Scalar(dtype) => self.scalar(param, &arg, *dtype),
            Kind::Const(ty) => {
                match constant(&arg, ty) {
                    Ok(value) => {
                        self.config.consts.insert(param.name.clone(), value);
                    }
                    Err(why) => {
                        let message = format!("`{}`: {why}", param.shown);
                        let help = format!(
                            "it is a compile-time {ty}: pass one of Python's, or annotate it with a dtype for a run-time number"
                        );
                        self.errors.push(param.error(Code::E_ARGUMENT, message).help(help));
                    }
                }
                Slot::Static
            }
            Kind::Function => {
                let function = match arg {
                    Arg::Func(f) => Capture::Func(f),
                    Arg::Builtin(name) => Capture::Builtin(name),
                    other => {
                        let (name, got) = (&param.shown, other.describe());
                        let message = format!("`{name}`: expected a function, got {got}");
                        let help = "decorate the function with `@ts.func`";
                        self.errors.push(param.error(Code::E_ARGUMENT, message).help(help));
                        return Slot::Static;
                    }
                };
                self.config.consts.insert(param.name.clone(), function);
                Slot::Static
            }
            Kind::Any => match arg {
                Arg::Number { dtype, ref value } => {
                    let dtype = dtype.unwrap_or(match value {
                        Number::Bool(_) => DType::Bool,
                        Number::Int(_) | Number::Huge(_) => DType::I64,
                        Number::Float(_) => DType::F32,
                    });
                    self.config.args.insert(param.name.clone(), ArgType::Scalar(dtype));
                    self.scalar(param, &arg, dtype)
                }
                arg => self.array(param, arg, None, None),
            },
        }
    }

    fn scalar(&mut self, param: &Param, arg: &Arg, dtype: DType) -> Slot {
        match scalar_of(arg, dtype) {
            Ok(value) => {
                if let Some(v) = value.as_int().and_then(|v| i64::try_from(v).ok()) {
                    self.integers.insert(symbol(&param.name), v);
                    if param.name.contains('.') {
                        // `@ts.kernel.autotune(key=["p.k"])` names it so.
                        self.integers.insert(param.name.clone(), v);
                    }
                }
                Slot::Scalar(value)
            }
            Err(why) => {
                let whole =
                    dtype.is_int() && matches!(arg, Arg::Number { value: Number::Float(_), .. });
                let help = match whole {
                    true => format!(
                        "pass an integer, as `int(…)` makes it, or annotate `{}` with a float dtype",
                        param.shown
                    ),
                    false => format!(
                        "pass a number that {dtype} holds, or annotate `{}` with a wider dtype",
                        param.shown
                    ),
                };
                let error = param.error(Code::E_ARGUMENT, format!("`{}`: {why}", param.shown));
                self.errors.push(error.help(help));
                Slot::Static
            }
        }
    }

    fn array(
        &mut self,
        param: &'a Param,
        arg: Arg,
        dims: Option<&'a [Option<DimExpr>]>,
        elem: Option<NumType>,
    ) -> Slot {
        let mut array = match arg {
            Arg::Array(array) => array,
            Arg::Unusable(what) => {
                let error =
                    param.error(Code::E_LAUNCH_BAD_LAYOUT, format!("`{}`: {what}", param.shown));
                let help = format!("convert it: `ts.array({}, \"f32\")`", param.shown);
                self.errors.push(error.help(help));
                return Slot::Static;
            }
            Arg::Masked => {
                let message = format!(
                    "`{}`: expected an array without a mask, got a masked one",
                    param.shown
                );
                let help = "kernels do not see masks: write `x.filled(0)`, or give `x.data` and `x.mask` as two arrays";
                self.errors.push(param.error(Code::E_TYPE, message).help(help));
                return Slot::Static;
            }
            other => {
                let message =
                    format!("`{}`: expected an array, got {}", param.shown, other.describe());
                let help = if matches!(other, Arg::Other(name) if name == "DistArray") {
                    "call it in a function of `ts.jit`, or on the parts of arrays: `ts.index_launch(axis)(kernel)(…)`"
                } else if param.is_point() {
                    "it has no axes: pass `numpy.array(value, \"f32\")`, or another array of shape ()"
                } else {
                    "pass a NumPy array, or an object with `__dlpack__` or `__cuda_array_interface__`"
                };
                self.errors.push(param.error(Code::E_ARGUMENT, message).help(help));
                return Slot::Static;
            }
        };
        if let Place::Other(device) = &array.place {
            let message =
                format!("`{}` is on {device}, and no backend here runs there", param.shown);
            self.errors.push(
                param
                    .error(Code::E_LAUNCH_DEVICE_MISMATCH, message)
                    .help("copy it to the host or to a CUDA device first"),
            );
            return Slot::Static;
        }
        let (rank, dtype) = (array.buffer.dims.len(), array.buffer.dtype);
        let stored = elem.map(stored_as);
        if stored.is_some_and(|want| want != dtype) {
            let want = elem.map_or(String::new(), |e| e.to_string());
            let message = format!("`{}`: expected an array of {want}, got {dtype}", param.shown);
            let help = format!(
                "convert it: `ts.array({}, \"{}\")`",
                param.shown,
                stored.map_or("", DType::name)
            );
            self.errors.push(param.error(Code::E_TYPE, message).help(help));
        }
        if rank == 0 && param.is_point() {
            array.as_point();
            return Slot::Array(array);
        }
        if rank == 0 {
            let message = format!(
                "`{}`: expected an array of rank 1 or more, got one of rank 0",
                param.shown
            );
            self.errors.push(
                param
                    .error(Code::E_LAUNCH_INVALID_SHAPE, message)
                    .help("pass a number, or `array.reshape(1)`, or annotate it without axes: `ts.Tensor[ts.f32]`"),
            );
            return Slot::Array(array);
        }
        if elem.is_none() || dims.is_none() {
            let elem = elem.unwrap_or(NumType::plain(dtype));
            self.config.args.insert(param.name.clone(), ArgType::Array { elem, rank });
        }
        // A dim without a name has one of its own inside the compiler.
        for (axis, size) in array.buffer.dims.iter().enumerate() {
            if dims.is_none_or(|dims| matches!(dims.get(axis), Some(None))) {
                let bytes = dims.and_then(|dims| extent(*size, elem, axis, dims));
                self.sizes.known.insert(axis_symbol(&param.name, axis), bytes.unwrap_or(*size));
            }
        }
        let Some(dims) = dims else { return Slot::Array(array) };
        if dims.len() != rank {
            let message = format!(
                "`{}`: expected rank {} {}, got rank {rank} with shape {}",
                param.shown,
                dims.len(),
                param.shape_text(),
                shape(&array.buffer.dims)
            );
            let help = if rank > dims.len() {
                "index or reshape the array, or give the annotation a name for each axis"
            } else {
                "add axes with `x[None]` or reshape the array, or leave out names of the annotation"
            };
            self.errors.push(param.error(Code::E_LAUNCH_INVALID_SHAPE, message).help(help));
            return Slot::Array(array);
        }
        for (axis, dim) in dims.iter().enumerate() {
            let Some(got) = extent(array.buffer.dims[axis], elem, axis, dims) else { continue };
            // An expression is compared when every size is known.
            let Some(dim) = dim.as_ref().filter(|d| !is_expression(d)) else { continue };
            match dim {
                DimExpr::Const(want) if is_packed(elem, axis, dims) && want + 1 == got => {}
                DimExpr::Sym(_) if is_packed(elem, axis, dims) => {
                    self.packed.push((param, axis, dim, array.clone()));
                }
                _ => self.size(param, axis, dim, got, &array),
            }
        }
        Slot::Array(array)
    }

    /// The sizes of packed axes: an even number, or the one below it that another argument gives.
    fn packed_sizes(&mut self) {
        for (param, axis, dim, array) in std::mem::take(&mut self.packed) {
            let bytes = array.buffer.dims[axis];
            let known = self.sizes.get(&dim.to_string());
            let odd = known.is_some_and(|n| n % 2 != 0 && n / 2 + 1 == bytes);
            if let Some(got) = bytes.checked_mul(2).filter(|_| !odd) {
                self.size(param, axis, dim, got, &array);
            }
        }
    }

    /// A dim of an array gives a symbol its size, or must have the size it has.
    fn size(&mut self, param: &'a Param, axis: usize, dim: &DimExpr, got: i64, array: &ArrayArg) {
        let name = match dim {
            DimExpr::Sym(name) => Cow::Borrowed(&**name),
            DimExpr::Const(_) | DimExpr::Bin(..) => Cow::Owned(dim.to_string()),
        };
        match (dim, self.sizes.get(&name)) {
            (DimExpr::Const(want), _) if *want != got => {
                let message = format!(
                    "`{}`: expected {want} along axis {axis}, got {got}; its shape is {}",
                    param.shown,
                    shape(&array.buffer.dims)
                );
                let help =
                    format!("pass an array of {want}, or write a name for the axis: `\"n\"`");
                self.errors.push(param.error(Code::E_LAUNCH_INVALID_SHAPE, message).help(help));
            }
            (DimExpr::Const(_), _) => {}
            (_, None) => {
                self.sizes.known.insert(name.into_owned(), got);
            }
            (_, Some(known)) if known != got => {
                let first = match self.given.get(&*name) {
                    Some(_) => format!("given by name: `{name}={known}`"),
                    None => format!("in `{}`", self.first_with(dim).unwrap_or(&param.shown)),
                };
                let dim = show_dim(dim);
                let message = format!(
                    "`{}`: expected `{dim}` to be {known} along axis {axis}, as {first}, got {got}",
                    param.shown
                );
                let error = param
                    .error(Code::E_LAUNCH_INVALID_SHAPE, message)
                    .note(format!("`{}` has shape {}", param.shown, shape(&array.buffer.dims)))
                    .help("a name stands for one size: pass arrays that agree, or use two names");
                self.errors.push(error);
            }
            (_, Some(_)) => {}
        }
    }

    /// The first parameter that has a dim: its array determined the size.
    fn first_with(&self, dim: &DimExpr) -> Option<&'a str> {
        let has = |p: &&Param| {
            let Kind::Array { dims: Some(dims), .. } = &p.kind else { return false };
            dims.iter().flatten().any(|d| d == dim)
        };
        self.params.items.iter().find(has).map(|p| p.shown.as_str())
    }

    /// A compiled kernel takes only what it was compiled for.
    fn against(&mut self, fixed: &Config) {
        let mut differ = Vec::new();
        for (name, want) in &fixed.dims {
            if let Some(got) = self.sizes.get(name).filter(|got| got != want) {
                differ.push(format!("{name} = {want}, got {got}"));
            }
        }
        for (name, want) in &fixed.consts {
            let got = self.config.consts.get(name);
            if *want == Capture::None && got.is_none() && self.params.position(name).is_some() {
                differ.push(format!("{name} = None, got a value"));
            } else if let Some(got) = got.filter(|got| *got != want) {
                differ.push(format!(
                    "{name} = {}, got {}",
                    crate::config::show(want),
                    crate::config::show(got)
                ));
            }
        }
        for (name, got) in &self.config.consts {
            if *got == Capture::None && !fixed.consts.contains_key(name) {
                differ.push(format!("a value of {name}, got None"));
            }
        }
        if fixed.args != self.config.args {
            differ.push("arrays of another dtype or rank".into());
        }
        for difference in differ {
            self.errors.push(
                Diagnostic::new(
                    Code::E_SPECIALIZE,
                    format!("the kernel was compiled for {difference}"),
                )
                .at(self.params.loc.clone())
                .help("call the kernel itself, or compile it again with `.jit(...)`"),
            );
        }
        self.config = fixed.clone();
    }
}

/// How many elements an array has along an axis: two packed elements are one byte of the last.
fn extent(bytes: i64, elem: Option<NumType>, axis: usize, dims: &[Option<DimExpr>]) -> Option<i64> {
    if is_packed(elem, axis, dims) { bytes.checked_mul(2) } else { Some(bytes) }
}

/// Whether two elements share a byte along an axis.
fn is_packed(elem: Option<NumType>, axis: usize, dims: &[Option<DimExpr>]) -> bool {
    elem.is_some_and(|e| e.packed) && axis + 1 == dims.len()
}

/// The dtype of the arrays that hold a type.
/// The extents of the array that holds elements: two packed ones share a byte of the last axis.
pub fn stored(dims: &[i64], elem: NumType) -> Vec<i64> {
    let mut out = dims.to_vec();
    if let Some(last) = out.last_mut().filter(|_| elem.packed) {
        *last = *last / 2 + *last % 2;
    }
    out
}

fn stored_as(elem: NumType) -> DType {
    match elem.storage {
        _ if elem.packed => DType::U8,
        DType::Tf32 => DType::F32,
        storage => storage,
    }
}

/// A compile-time value of the annotated Python type.
pub fn constant(arg: &Arg, ty: &str) -> Result<Capture, String> {
    match (ty, arg) {
        ("bool", Arg::Number { value: Number::Bool(v), .. }) => Ok(Capture::Bool(*v)),
        ("int", Arg::Number { value: Number::Int(v), .. }) => Ok(Capture::Int(*v)),
        ("float", Arg::Number { value: Number::Float(v), .. }) => Ok(Capture::Float(*v)),
        ("float", Arg::Number { value: Number::Int(v), .. }) => Ok(Capture::Float(*v as f64)),
        ("str", Arg::Str(s)) => Ok(Capture::Str(s.clone())),
        ("dtype", Arg::DType(t)) => Ok(Capture::DType(*t)),
        _ => Err(format!(
            "expected {} {ty}, got {}",
            if ty == "int" { "an" } else { "a" },
            arg.describe()
        )),
    }
}
