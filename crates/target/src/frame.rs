//! The argument block of generated code: one row of 64-bit words.
//!
//! The words are, in this order: the launch's context, the grid's three extents, the number of
//! lanes along their first axis and the lanes of a group, two that the launch fills in itself; then for each parameter a
//! scalar's bits in its carrier, or an array's address, extents and strides in bytes; then the
//! values of the dimension symbols; then the lanes along further axes, where they have several.

use crate::{ArgValue, BufferArg, LaunchArgs};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, Dim, Privilege, Type};
use tessera_numerics::{DType, NumType, Scalar, cast};
use tessera_tile::{TileFunc, TileOp, lane_extents};

pub const CONTEXT: usize = 0;
pub const GRID: usize = 1;
pub const DOMAIN: usize = 4;
pub const LANES: usize = 5;
/// The address of memory for values that lanes keep across barriers.
pub const SLOTS: usize = 6;
/// The number of parts in which a kernel that divides its own work is run.
pub const PARTS: usize = 7;
const PARAMS: usize = 8;

/// The most axes of an array: layouts are words with a bit for each, and a last bit for other
/// facts.
pub const MAX_AXES: usize = 31;

pub enum ParamKind {
    Scalar(DType),
    Array {
        dims: Vec<Option<i64>>,
        symbols: Vec<Option<String>>,
        elem: NumType,
        privilege: Privilege,
    },
}

pub struct Param {
    pub name: String,
    pub kind: ParamKind,
    /// Its first word.
    pub word: usize,
}

/// Where everything is.
pub struct Frame {
    pub params: Vec<Param>,
    pub symbols: Vec<String>,
    pub first_symbol: usize,
    /// Extents of a group along the axes of its lanes, where there are several.
    extents: Vec<i64>,
}

impl Frame {
    pub fn new(func: &TileFunc) -> Result<Self, Diagnostics> {
        let mut word = PARAMS;
        let mut params = Vec::new();
        let mut errors = Diagnostics::new();
        for &v in func.params() {
            let name = func.name_of(v).unwrap_or("").to_string();
            let first = word;
            let kind = match func.ty(v) {
                Type::Scalar(dtype) => {
                    word += 1;
                    ParamKind::Scalar(*dtype)
                }
                Type::View { dims, .. } if dims.len() > MAX_AXES => {
                    let got = dims.len();
                    let why = format!("expected at most {MAX_AXES} axes of `{name}`, got {got}");
                    let help = "reshape the array to merge contiguous axes, or run it \
                                on the interpreter: `TESSERA_BACKEND=interp`";
                    let error = Diagnostic::new(Code::E_UNSUPPORTED, why).at(func.loc.clone());
                    errors.push(error.help(help));
                    continue;
                }
                Type::View { dims, elem, privilege } if !elem.packed => {
                    word += 1 + 2 * dims.len();
                    ParamKind::Array {
                        dims: dims.iter().map(Dim::as_static).collect(),
                        symbols: dims.iter().map(symbol).collect(),
                        elem: *elem,
                        privilege: *privilege,
                    }
                }
                ty => {
                    let why = match ty {
                        Type::View { .. } => {
                            format!("packed elements of `{name}` are not supported here")
                        }
                        _ => format!("expected a scalar or an array as `{name}`, got {ty}"),
                    };
                    errors.push(Diagnostic::new(Code::E_UNSUPPORTED, why).at(func.loc.clone()));
                    continue;
                }
            };
            params.push(Param { name, kind, word: first });
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut symbols: Vec<String> = Vec::new();
        for id in func.walk() {
            let op = &func.ops[id];
            if op.code == TileOp::Dim {
                let name = op.attr("name").map(Attr::to_string).unwrap_or_default();
                if !symbols.contains(&name) {
                    symbols.push(name);
                }
            }
        }
        let mut extents = lane_extents(func);
        if extents.len() < 2 {
            extents.clear();
        }
        Ok(Self { params, symbols, first_symbol: word, extents })
    }

    /// How many words there are.
    pub fn words(&self) -> usize {
        self.first_symbol + self.symbols.len() + self.further_axes()
    }

    /// The axes of the lanes beside the first.
    fn further_axes(&self) -> usize {
        self.extents.len().saturating_sub(1)
    }

    /// The word with the number of lanes along an axis.
    pub fn domain(&self, axis: usize) -> usize {
        match axis {
            0 => DOMAIN,
            axis => self.first_symbol + self.symbols.len() + axis - 1,
        }
    }

    pub fn symbol(&self, name: &str) -> usize {
        let place = self.symbols.iter().position(|s| s == name);
        self.first_symbol + place.unwrap_or_default()
    }

    /// The words of a launch; `words` is overwritten. `see` gets each array and its parameter;
    /// scalars are skipped.
    pub fn fill(
        &self,
        func: &TileFunc,
        args: &LaunchArgs,
        words: &mut Vec<u64>,
        mut see: impl FnMut(usize, &ParamKind, &BufferArg),
    ) -> Result<(), Diagnostics> {
        let error = |code, why: String| Err(Diagnostic::new(code, why).at(func.loc.clone()).into());
        if args.params.len() != self.params.len() {
            let (wanted, got) = (self.params.len(), args.params.len());
            let why = format!("expected {wanted} arguments for @{}, got {got}", func.name);
            return error(Code::E_ARGUMENT, why);
        }
        if !self.extents.is_empty() && self.extents.iter().product::<i64>() != args.lanes {
            let (wanted, got) = (&self.extents, args.lanes);
            let why = format!("expected groups of {wanted:?} lanes, as the kernel says, got {got}");
            return error(Code::E_ARGUMENT, why);
        }
        words.clear();
        words.push(0);
        words.extend(args.grid.map(|g| g as u64));
        words.extend([args.domain[0] as u64, args.lanes as u64, 0, 1]);
        for (place, (param, arg)) in self.params.iter().zip(&args.params).enumerate() {
            match (&param.kind, arg) {
                (ParamKind::Scalar(dtype), ArgValue::Scalar(x)) => {
                    words.push(bits(cast(*x, x.dtype(), *dtype)));
                }
                (ParamKind::Array { .. }, ArgValue::Buffer(b)) => {
                    check_array(func, param, b)?;
                    words.push(b.data as u64);
                    words.extend(b.dims.iter().map(|&d| d as u64));
                    words.extend(b.strides.iter().map(|&s| s as u64));
                    see(place, &param.kind, b);
                }
                (ParamKind::Scalar(dtype), ArgValue::Buffer(_)) => {
                    let why = format!("expected {dtype} for `{}`, got an array", param.name);
                    return error(Code::E_ARGUMENT, why);
                }
                (ParamKind::Array { .. }, ArgValue::Scalar(_)) => {
                    let why = format!("expected an array for `{}`, got a scalar", param.name);
                    return error(Code::E_ARGUMENT, why);
                }
            }
        }
        for name in &self.symbols {
            match args.dims.get(name).copied().or_else(|| self.shown(name, args)) {
                Some(value) => words.push(value as u64),
                None => {
                    let why = format!("expected a value for the dimension `{name}`, got none");
                    return error(Code::E_ARGUMENT, why);
                }
            }
        }
        words.extend((1..=self.further_axes()).map(|axis| args.domain[axis] as u64));
        Ok(())
    }

    /// A symbol's value as the arrays show it.
    fn shown(&self, name: &str, args: &LaunchArgs) -> Option<i64> {
        self.params.iter().zip(&args.params).find_map(|(param, arg)| match (&param.kind, arg) {
            (ParamKind::Array { symbols, .. }, ArgValue::Buffer(b)) => {
                let axis = symbols.iter().position(|s| s.as_deref() == Some(name))?;
                b.dims.get(axis).copied()
            }
            _ => None,
        })
    }
}

fn symbol(dim: &Dim) -> Option<String> {
    match dim {
        Dim::Expr(e) => Some(e.to_string()),
        Dim::Static(_) | Dim::Any => None,
    }
}

/// A scalar's bits in its carrier.
pub fn bits(x: Scalar) -> u64 {
    match x {
        Scalar::F32(v) => v.to_bits().into(),
        Scalar::F64(v) => v.to_bits(),
        Scalar::I32(v) => v as u32 as u64,
        Scalar::I64(v) => v as u64,
        Scalar::U32(v) => v.into(),
        Scalar::U64(v) => v,
        Scalar::Bool(v) => v.into(),
    }
}

fn check_array(func: &TileFunc, param: &Param, b: &BufferArg) -> Result<(), Diagnostics> {
    let ParamKind::Array { dims, elem, privilege, .. } = &param.kind else { return Ok(()) };
    let name = &param.name;
    let error = |code, why: String| Err(Diagnostic::new(code, why).at(func.loc.clone()).into());
    let fits = |(&dim, wanted): (&i64, &Option<i64>)| wanted.is_none_or(|w| w == dim);
    if b.dims.len() != dims.len() || !b.dims.iter().zip(dims).all(fits) {
        let wanted: Vec<_> = dims.iter().map(|d| d.map_or("?".into(), |d| d.to_string())).collect();
        let wanted = wanted.join(", ");
        let why = format!("expected an array of shape [{wanted}] for `{name}`, got {:?}", b.dims);
        return error(Code::E_LAUNCH_INVALID_SHAPE, why);
    }
    if b.strides.len() != b.dims.len() {
        let (wanted, got) = (b.dims.len(), b.strides.len());
        return error(
            Code::E_LAUNCH_BAD_LAYOUT,
            format!("expected {wanted} strides for `{name}`, got {got}"),
        );
    }
    // tf32 is f32 in memory.
    let stored = |d: DType| if d == DType::Tf32 { DType::F32 } else { d };
    if stored(b.dtype) != stored(elem.storage) {
        let why = format!("expected {} elements for `{name}`, got {}", elem.storage, b.dtype);
        return error(Code::E_ARGUMENT, why);
    }
    if privilege.writes() && !b.writable {
        let why = format!("expected an array that may be written for `{name}`");
        return error(Code::E_READ_ONLY, why);
    }
    Ok(())
}
