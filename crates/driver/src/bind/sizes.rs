//! The sizes of dims: those that the caller gives by name, products and expressions of them, and the
//! shapes of the arrays that are made for a call.

use super::{Binder, Call, Slot, constant, extent, is_packed};
use crate::args::{Arg, Number};
use crate::factors::{Factors, Found};
use crate::params::{Kind, Params, show_dim};
use tessera_diag::Code;
use tessera_frontend::{Capture, Config, is_expression};
use tessera_ir::DimExpr;

/// The parameters with the caller's values of compile-time integers in their dims.
pub fn with_sizes(params: &Params, call: &Call, fixed: Option<&Config>) -> Params {
    let value = |name: &str| {
        let place = params.position(name)?;
        let by_name = || call.keyword.iter().find(|(n, _)| n == name).map(|(_, arg)| arg);
        let value = match call.positional.get(place).or_else(by_name) {
            Some(arg) => constant(arg, "int").ok()?,
            None => {
                let known = fixed.and_then(|c| c.consts.get(name));
                known.or(params.items[place].default.as_ref())?.clone()
            }
        };
        match value {
            Capture::Int(v) => i64::try_from(v).ok(),
            _ => None,
        }
    };
    params.with_sizes(&value)
}

impl Binder<'_> {
    /// `k(x, K=7)`: the size of a dim that no argument gives.
    pub(super) fn size_by_name(&mut self, name: String, arg: &Arg) {
        let size = match arg {
            Arg::Number { value: Number::Int(v), .. } => i64::try_from(*v).ok().filter(|v| *v >= 0),
            _ => None,
        };
        match size {
            Some(size) => {
                self.sizes.known.insert(name.clone(), size);
                self.given.insert(name, size);
            }
            None => self.fail(
                format!("`{name}`: expected a size of at least 0, got {}", arg.describe()),
                format!("write `{name}=7`"),
            ),
        }
    }

    /// Checks dims that are expressions of others.
    pub(super) fn expressions(&mut self, slots: &[Slot]) {
        for (param, slot) in self.params.items.iter().zip(slots) {
            let (Kind::Array { dims: Some(dims), elem, .. }, Slot::Array(array)) =
                (&param.kind, slot)
            else {
                continue;
            };
            for (axis, dim) in dims.iter().enumerate() {
                let Some(dim) = dim.as_ref().filter(|d| is_expression(d)) else { continue };
                let got = array.buffer.dims.get(axis).and_then(|&n| extent(n, *elem, axis, dims));
                let (Some(got), name, text) = (got, &param.shown, show_dim(dim)) else { continue };
                let (message, help) = match self.sizes.eval(dim) {
                    Ok(size) if size == got => continue,
                    Ok(size) if is_packed(*elem, axis, dims) && size + 1 == got => continue,
                    Ok(size) => (
                        format!(
                            "`{name}`: expected `{text}` to be {size} along axis {axis}, got {got}"
                        ),
                        format!(
                            "pass an array of {size} there, or leave `{name}` out: it is made for the call"
                        ),
                    ),
                    Err(why) => (
                        format!("`{name}`: expected `{text}` to have a value, but {why}"),
                        "give each size by name, such as `K=7`".into(),
                    ),
                };
                self.errors.push(param.error(Code::E_LAUNCH_INVALID_SHAPE, message).help(help));
            }
        }
    }

    /// Checks product dims: the sizes must agree with the factors that are known, and the others
    /// must have a solution.
    pub(super) fn products(&mut self, slots: &[Slot]) {
        let mut open = Vec::new();
        for (param, slot) in self.params.items.iter().zip(slots) {
            let (Kind::Array { dims: Some(dims), elem, .. }, Slot::Array(array)) =
                (&param.kind, slot)
            else {
                continue;
            };
            for (axis, dim) in dims.iter().enumerate() {
                let Some(dim @ DimExpr::Bin(..)) = dim else { continue };
                let got = array.buffer.dims.get(axis).and_then(|&n| extent(n, *elem, axis, dims));
                if let (Some(factors), Some(got)) = (Factors::of(dim), got) {
                    open.push((param, axis, dim, factors, got));
                }
            }
        }
        // A factor that one product determines is known to all.
        let mut known = self.sizes.known.clone();
        loop {
            let (before, count) = (known.len(), open.len());
            open.retain(|(param, axis, dim, factors, got)| {
                let wanted = match factors.against(*got, &known) {
                    Found::Fits => return true,
                    Found::Solved(name, size) => {
                        known.insert(name, size);
                        return false;
                    }
                    Found::Other(size) => size.to_string(),
                    Found::Never(what) => what,
                };
                let (name, dim) = (&param.shown, show_dim(dim));
                let message = format!(
                    "`{name}`: expected `{dim}` to be {wanted} along axis {axis}, got {got}"
                );
                let help = "pass arrays whose sizes agree, or use a name of its own";
                self.errors.push(param.error(Code::E_LAUNCH_INVALID_SHAPE, message).help(help));
                false
            });
            if known.len() == before || open.len() == count {
                break;
            }
        }
    }

    /// The shapes of the arrays that are left to us.
    pub(super) fn outs(&mut self, slots: &mut [Slot]) {
        for (param, slot) in self.params.items.iter().zip(slots) {
            let (Kind::Array { dims: Some(dims), .. }, Slot::Missing { dims: sizes, .. }) =
                (&param.kind, slot)
            else {
                continue;
            };
            for dim in dims.iter().flatten() {
                match self.sizes.eval(dim) {
                    Ok(size) if size < 0 => {
                        let (name, text) = (&param.shown, show_dim(dim));
                        let message =
                            format!("`{name}`: expected `{text}` to be at least 0, got {size}");
                        let help =
                            "check the sizes of the arguments, or write `max(0, …)` around it";
                        self.errors
                            .push(param.error(Code::E_LAUNCH_INVALID_SHAPE, message).help(help));
                    }
                    Ok(size) => sizes.push(size),
                    Err(why) if self.errors.is_empty() => {
                        let message = format!(
                            "`{}` must be given: its shape is not known, for {why}",
                            param.shown
                        );
                        let open = dim.symbols().into_iter().find(|s| self.sizes.get(s).is_none());
                        let help = format!(
                            "give the size by name: `{}=…`, or pass an array: `{}=ts.empty(shape, dtype)`",
                            open.as_deref().unwrap_or("n"),
                            param.shown
                        );
                        self.errors.push(param.error(Code::E_ARGUMENT, message).help(help));
                    }
                    Err(_) => {}
                }
            }
        }
    }
}
