//! The declared layout of an array, for code that is compiled before the array exists:
//! `layouts={"b": {"axis": 0, "align": 4}}`.

use crate::config;
use crate::params::{Kind, Param, Params};
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic};
use tessera_frontend::Capture;
use tessera_target::arrays::{ArrayClass, WIDEST};

const HELP: &str = "write `layouts={\"b\": {\"axis\": 0}}` for an array whose columns are contiguous, and `{\"align\": 2}` for one whose address or rows are multiples of 2 bytes alone";

pub fn read(
    params: &Params,
    name: &str,
    entries: &BTreeMap<String, Capture>,
) -> Result<ArrayClass, Diagnostic> {
    let fail = |message: String| {
        Diagnostic::new(Code::E_ARGUMENT, format!("`layouts`: {message}"))
            .at(params.loc.clone())
            .help(HELP)
    };
    let is_array = |p: &&Param| matches!(p.kind, Kind::Array { .. });
    let found = params.items.iter().find(|p| p.name == name);
    let (rank, bytes) = match found.map(|p| &p.kind) {
        Some(Kind::Array { dims: Some(dims), elem, .. }) => {
            (dims.len(), elem.map_or(1, |e| e.storage.bytes() as i64))
        }
        Some(Kind::Array { dims: None, .. }) => {
            return Err(fail(format!("`{name}` has no shape: annotate it")));
        }
        Some(Kind::Scalar(_) | Kind::Const(_) | Kind::Function | Kind::Any) | None => {
            let known: Vec<_> = params.items.iter().filter(is_array).map(|p| &*p.name).collect();
            let known = known.join(", ");
            return Err(fail(format!("expected an array (one of {known}), got `{name}`")));
        }
    };
    let (mut axis, mut align) = (rank.checked_sub(1), i64::from(WIDEST));
    for (key, value) in entries {
        let shown = || config::show(value);
        let most = rank as i128;
        match (key.as_str(), value) {
            ("axis", Capture::None) => axis = None,
            ("axis", Capture::Int(n)) if (-most..most).contains(n) => {
                axis = Some((if *n < 0 { n + most } else { *n }) as usize);
            }
            ("axis", _) => {
                let wanted = match rank {
                    0 => "None, as it has no axes".to_string(),
                    _ => format!("an axis from {} to {}, or None,", -most, most - 1),
                };
                return Err(fail(format!(
                    "`{name}`: expected {wanted} as `axis`, got {}",
                    shown()
                )));
            }
            ("align", Capture::Int(n))
                if *n >= bytes.into() && *n <= WIDEST.into() && n.count_ones() == 1 =>
            {
                align = *n as i64;
            }
            ("align", _) => {
                return Err(fail(format!(
                    "`{name}`: expected a power of two from {bytes} to {WIDEST} as `align`, got {}",
                    shown()
                )));
            }
            (key, _) => {
                return Err(fail(format!("`{name}`: expected `axis` or `align`, got `{key}`")));
            }
        }
    }
    Ok(ArrayClass::said(rank, axis, align as u32))
}
