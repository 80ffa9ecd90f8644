//! The checks on memory before a launch (LANGUAGE 5), so that compiled code may assume no alias.

use crate::args::ArrayArg;
use crate::overlap::{overlaps_itself, views_overlap};
use crate::pointwise::is_pointwise;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_ir::Privilege;
use tessera_tile::TileFunc;

/// One array argument of a launch.
pub struct Access<'a> {
    pub name: &'a str,
    /// Its place among the parameters of the compiled function.
    pub place: usize,
    pub array: &'a ArrayArg,
    pub privilege: Privilege,
    pub loc: &'a Loc,
}

/// Reports every written argument that is read-only, overlaps itself, or overlaps another.
pub fn check(func: &TileFunc, accesses: &[Access<'_>], errors: &mut Diagnostics) {
    for a in accesses.iter().filter(|a| a.privilege.writes()) {
        if !a.array.buffer.writable {
            errors.push(
                Diagnostic::new(
                    Code::E_READ_ONLY,
                    format!(
                        "the kernel writes `{}`, and the array given for it is read-only",
                        a.name
                    ),
                )
                .at(a.loc.clone())
                .help("pass a writable copy, such as `array.copy()`"),
            );
        } else if overlaps_itself(&a.array.buffer) {
            errors.push(
                Diagnostic::new(
                    Code::E_PRIVILEGE,
                    format!("the kernel writes `{}`, and elements of the array given for it share memory", a.name),
                )
                .at(a.loc.clone())
                .note(format!("its shape is {} and its strides in bytes are {}", crate::args::shape(&a.array.buffer.dims), crate::args::shape(&a.array.buffer.strides)))
                .help("pass a copy, such as `array.copy()`"),
            );
        }
    }
    for (i, a) in accesses.iter().enumerate() {
        for b in &accesses[i + 1..] {
            if let Some(error) = pair(func, a, b) {
                errors.push(error);
            }
        }
    }
}

fn pair(func: &TileFunc, a: &Access<'_>, b: &Access<'_>) -> Option<Diagnostic> {
    if !a.privilege.writes() && !b.privilege.writes()
        || !views_overlap(&a.array.buffer, &b.array.buffer)
    {
        return None;
    }
    let (written, other) = if a.privilege.writes() { (a, b) } else { (b, a) };
    let (x, y) = (&written.array.buffer, &other.array.buffer);
    let same_view =
        x.data == y.data && x.dims == y.dims && x.strides == y.strides && x.dtype == y.dtype;
    if !other.privilege.writes() && same_view && is_pointwise(func, other.place, written.place) {
        return None;
    }
    let why = if other.privilege.writes() {
        "both are written".to_string()
    } else if same_view {
        format!(
            "they are one array, and the kernel does not access `{}` and `{}` at the same index only",
            a.name, b.name
        )
    } else {
        format!("`{}` is written and `{}` is read", written.name, other.name)
    };
    Some(
        Diagnostic::new(
            Code::E_PRIVILEGE,
            format!("the arrays given for `{}` and `{}` overlap in memory", a.name, b.name),
        )
        .at(written.loc.clone())
        .note(why)
        .help(format!("pass a copy for one of them, such as `{}.copy()`", other.name)),
    )
}
