//! The call in a `; run:` line: `%f(x = [1.0, 2.0], y = iota : f32[2, 3], alpha = 2.0, grid = [4])`.

use crate::array::{Array, scalar};
use std::collections::BTreeMap;
use tessera_ir::{Attr, Dim, DimExpr, Type};
use tessera_numerics::{DType, Scalar, cast};
use tessera_target::{ArgValue, LaunchArgs};
use tessera_tile::{KernelKind, TileFunc, domain_of, kind_of, lane_axes, lane_extents, lane_grid};

/// The name and the text of each argument.
type Written<'t> = Vec<(&'t str, &'t str)>;

/// `%name(args)` in its parts.
pub fn split_call(text: &str) -> Result<(&str, Written<'_>), String> {
    let wrong = || format!("expected `%name(argument = value, …)`, got `{text}`");
    let (name, rest) =
        text.trim().strip_prefix('%').and_then(|t| t.split_once('(')).ok_or_else(wrong)?;
    let inner = rest.strip_suffix(')').ok_or_else(wrong)?;
    let parts = split(inner).into_iter().map(|p| p.split_once('=').ok_or_else(wrong));
    let args = parts.map(|p| p.map(|(n, v)| (n.trim(), v.trim()))).collect::<Result<_, _>>()?;
    Ok((name, args))
}

/// At commas outside brackets.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0;
    let mut out = Vec::new();
    let mut start = 0;
    for (i, c) in text.char_indices() {
        match c {
            '[' | '(' | '{' => depth += 1,
            ']' | ')' | '}' => depth -= 1,
            ',' if depth == 0 => {
                out.push(text[start..i].trim());
                start = i + 1;
            }
            _ => {}
        }
    }
    let last = text[start..].trim();
    if !last.is_empty() {
        out.push(last);
    }
    out
}

/// `[1, 2]` as its items.
fn items(text: &str) -> Option<Vec<&str>> {
    text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).map(split)
}

fn ints(text: &str) -> Result<Vec<i64>, String> {
    let wrong = || format!("expected a list of integers, got `{text}`");
    let items = items(text).ok_or_else(wrong)?;
    items.iter().map(|t| t.parse().map_err(|_| wrong())).collect()
}

/// Nested lists: the extents and the numbers.
fn nested<'t>(
    text: &'t str,
    dims: &mut Vec<i64>,
    out: &mut Vec<&'t str>,
    depth: usize,
) -> Result<(), String> {
    let Some(items) = items(text) else {
        out.push(text);
        return Ok(());
    };
    let len = items.len() as i64;
    if dims.len() == depth {
        dims.push(len);
    } else if dims[depth] != len {
        return Err(format!("expected lists of one length, got {} and {len}", dims[depth]));
    }
    items.into_iter().try_for_each(|item| nested(item, dims, out, depth + 1))
}

fn array(text: &str, dtype: DType) -> Result<Array, String> {
    let (values, shape) = match text.split_once(':') {
        None => (text, None),
        Some((values, ty)) => {
            let ty = ty.trim();
            let at = ty.find('[').ok_or_else(|| format!("expected `dtype[dims]`, got `{ty}`"))?;
            let given = ty[..at].trim();
            if !given.is_empty() && DType::parse(given) != Some(dtype) {
                return Err(format!("expected an array of {dtype}, got {given}"));
            }
            (values.trim(), Some(ints(&ty[at..])?))
        }
    };
    let count = |dims: &Option<Vec<i64>>| {
        dims.as_ref()
            .map(|d| d.iter().product::<i64>())
            .ok_or(format!("expected `: [dims]` after `{values}`"))
    };
    if values == "iota" {
        let number = |i: i64| cast(Scalar::I64(i), DType::I64, dtype);
        let all: Vec<_> = (0..count(&shape)?).map(number).collect();
        return Array::new(dtype, shape.unwrap_or_default(), &all);
    }
    if let Some(one) = values.strip_prefix("fill(").and_then(|t| t.strip_suffix(')')) {
        let all = vec![scalar(one.trim(), dtype)?; count(&shape)? as usize];
        return Array::new(dtype, shape.unwrap_or_default(), &all);
    }
    let (mut dims, mut numbers) = (Vec::new(), Vec::new());
    nested(values, &mut dims, &mut numbers, 0)?;
    let all = numbers.iter().map(|t| scalar(t, dtype)).collect::<Result<Vec<_>, _>>()?;
    Array::new(dtype, shape.unwrap_or(dims), &all)
}

/// What a call binds.
pub struct Call {
    /// One for each parameter that is an array, by its index.
    pub arrays: BTreeMap<usize, Array>,
    pub launch: LaunchArgs,
}

/// Binds the written arguments to the function's parameters. `source` is the function as written:
/// its parameters have the names; `lowered` is what will run: it has the grid.
pub fn bind(source: &TileFunc, lowered: &TileFunc, args: &[(&str, &str)]) -> Result<Call, String> {
    let mut arrays = BTreeMap::new();
    let mut params = Vec::new();
    let mut dims = BTreeMap::new();
    let mut numbers = BTreeMap::new();
    let mut shapes = Vec::new();
    let get = |name: &str| args.iter().find(|(n, _)| *n == name).map(|(_, v)| *v);
    for (index, &param) in source.params().iter().enumerate() {
        let name = source.name_of(param).unwrap_or_default();
        let text = get(name).ok_or_else(|| format!("expected the argument `{name}`"))?;
        let ty = source.ty(param);
        if let Type::View { dims: shape, privilege, .. } = ty {
            let mut array = array(text, ty.dtype())?;
            shapes.push((name, shape.as_slice(), array.dims.clone()));
            params.push(ArgValue::Buffer(array.argument(privilege.writes())));
            arrays.insert(index, array);
        } else {
            let value = scalar(text, ty.dtype())?;
            numbers.extend(
                value.as_int().and_then(|v| i64::try_from(v).ok()).map(|v| (name.to_string(), v)),
            );
            params.push(ArgValue::Scalar(value));
        }
    }
    // Symbols first: an expression may stand before the dims it is made of.
    for (name, shape, got) in &shapes {
        bind_dims(name, shape, got, &mut dims, true)?;
    }
    for (name, shape, got) in &shapes {
        bind_dims(name, shape, got, &mut dims, false)?;
    }
    for (name, _) in args {
        let known = source.params().iter().any(|&p| source.name_of(p) == Some(name));
        if !known && !["grid", "domain", "lanes"].contains(name) {
            return Err(format!("expected an argument of the function, got `{name}`"));
        }
    }
    let value = |e: &DimExpr| e.eval(&|s| dims.get(s).or_else(|| numbers.get(s)).copied());
    let attr = |name: &str| lowered.attrs.get(name);
    let one = |name: &str| -> Result<Option<i64>, String> {
        match get(name) {
            Some(text) => {
                text.parse().map(Some).map_err(|_| format!("expected an integer, got `{text}`"))
            }
            None => attr(name).and_then(Attr::as_expr).map(|e| value(&e)).transpose(),
        }
    };
    let (mut grid, mut domain, mut lanes) = ([1; 3], [0; 3], 1);
    if kind_of(lowered) == Some(KernelKind::Lane) && lane_axes(lowered) > 1 {
        let given = match get("domain") {
            Some(text) => ints(text)?,
            None => {
                let extents = domain_of(lowered).ok_or("expected `domain`")?;
                extents.iter().map(value).collect::<Result<_, _>>()?
            }
        };
        let by = lane_extents(lowered);
        if given.len() != by.len() {
            return Err(format!("expected a domain of {} axes, got {}", by.len(), given.len()));
        }
        (grid, domain) = lane_grid(&by, &given);
        lanes = by.iter().product();
    } else if kind_of(lowered) == Some(KernelKind::Lane) {
        let given = one("domain")?.ok_or("expected `domain`")?;
        lanes = one("lanes")?.unwrap_or(1).max(1);
        (grid, domain) = lane_grid(&[lanes], &[given]);
    } else {
        let given = match get("grid") {
            Some(text) => ints(text)?,
            None => attr("grid")
                .and_then(Attr::as_exprs)
                .unwrap_or_default()
                .iter()
                .map(value)
                .collect::<Result<_, _>>()?,
        };
        if given.len() > 3 {
            return Err(format!("expected at most three grid axes, got {}", given.len()));
        }
        grid[..given.len()].copy_from_slice(&given);
    }
    Ok(Call { arrays, launch: LaunchArgs { params, dims, grid, domain, lanes } })
}

fn bind_dims(
    name: &str,
    shape: &[Dim],
    got: &[i64],
    dims: &mut BTreeMap<String, i64>,
    only_symbols: bool,
) -> Result<(), String> {
    if shape.len() != got.len() {
        return Err(format!("expected {} axes in `{name}`, got {}", shape.len(), got.len()));
    }
    for (dim, &extent) in shape.iter().zip(got) {
        let wanted = match dim {
            Dim::Any => extent,
            Dim::Static(v) => *v,
            Dim::Expr(DimExpr::Sym(s)) => *dims.entry(s.to_string()).or_insert(extent),
            Dim::Expr(_) if only_symbols => extent,
            Dim::Expr(e) => e.eval(&|s| dims.get(s).copied())?,
        };
        if wanted != extent {
            return Err(format!("expected the extent {dim} = {wanted} in `{name}`, got {extent}"));
        }
    }
    Ok(())
}
