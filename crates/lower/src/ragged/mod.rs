//! `tile-ragged` (LANGUAGE 6): refuses reductions that would take in padding.
//!
//! Before: no implicit origins, buffers that can be lifted are.
//! After: the same function; no reduction takes in zeros from beyond a tensor except where they
//! change nothing: sums of values that are still zero there, and `mma` with an operand that is.
//! Must not: change anything, or let run-time sizes decide what is accepted.
//!
//! Each axis of each tile is tracked by itself (`ragged_state.rs`), through loops and buffers to a
//! fixed point (`ragged_flow.rs`). The contents of padding are known where they are computed from
//! padding and constants alone (`held.rs`): a product is zero there where one factor is zero and
//! the other is finite. A select on a bounds condition (`condition.rs`) ends the raggedness, unless
//! the bound is known to end beyond the tensor (`bound.rs`).

mod bound;
mod condition;
mod held;
mod ragged_flow;
mod ragged_parts;
mod ragged_state;

use crate::facts::{
    dim_expr, extents, int_const, kept_axes, positioned, python, python_int, quoted, user_name,
};
use held::Held;
use ragged_flow::{Flow, flow};
use ragged_state::{Axis, Root, Spread};
use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, Changed, OpId, Pass, PassContext, Value};
use tessera_tile::{KernelKind, Tile, TileFunc, TileOp, kind_of};

pub struct Ragged;

impl Pass<Tile> for Ragged {
    fn name(&self) -> &'static str {
        "tile-ragged"
    }

    fn run(&self, func: &mut TileFunc, context: &mut PassContext) -> Result<Changed, Diagnostics> {
        if kind_of(func) != Some(KernelKind::Group) {
            return Ok(Changed::No);
        }
        let flow = flow(func);
        let mut errors = Diagnostics::new();
        // One unmasked slice spoils everything computed from it: reported once.
        let mut reported: BTreeSet<(OpId, usize)> = BTreeSet::new();
        for id in func.walk() {
            if let Some((root, error)) = check(func, &flow, id)
                && reported.insert((root.access, root.axis))
            {
                errors.push(in_memory(func, id, &context.notes, error));
            }
        }
        errors.into_result().map(|_| Changed::No)
    }
}

/// The error with the reason why a buffer that the op reads is not a value (`tile-lift`): what passes
/// through memory is not known to be zero.
fn in_memory(func: &TileFunc, id: OpId, notes: &Diagnostics, mut error: Diagnostic) -> Diagnostic {
    let mut reasons = 0;
    let mut found: BTreeSet<Value> = BTreeSet::new();
    let mut left: Vec<Value> = func.ops[id].operands.clone();
    while let Some(value) = left.pop() {
        if !found.insert(value) {
            continue;
        }
        let Some(op) = func.def(value) else { continue };
        if op.code == TileOp::BufAlloc {
            let why = |d: &&Diagnostic| d.code == Code::N_BUFFER_IN_MEMORY && d.loc == op.loc;
            if let Some(note) = notes.iter().find(why) {
                error = error.note(note.message.clone());
                reasons += 1;
            }
        }
        left.extend(&op.operands);
    }
    match error.help.clone() {
        Some(help) if reasons > 0 => {
            let lift = "a buffer that is written whole before it is read is a value, of which the padding is known";
            error.help(format!("{lift}: change what the note says; or {help}"))
        }
        _ => error,
    }
}

fn check(func: &TileFunc, flow: &Flow<'_>, id: OpId) -> Option<(Root, Diagnostic)> {
    let op = &func.ops[id];
    match op.code {
        TileOp::Reduce => {
            let axis = op.attr("axis").and_then(Attr::as_int)? as usize;
            let name = op.attr("op").and_then(Attr::as_word)?;
            // Of one element the reduction is the element.
            let extent = func.ty(op.operands[0]).shape()[axis].as_static();
            let state = flow.state(op.operands[0])[axis];
            if extent == Some(1) && op.attr("whole").is_none() {
                return None;
            }
            // Zeros add nothing to a sum, and are the least of unsigned integers; any other padding,
            // or any other operator, counts them in.
            let unsigned = func.ty(op.operands[0]).dtype().is_unsigned_int();
            let passes = matches!(name, "sum" | "or" | "xor") || unsigned && name == "max";
            let harmless = passes && matches!(state, Axis::Zero(_)) && op.attr("whole").is_none();
            let root = state.root().filter(|_| !harmless)?;
            let what = format!("a {name} along");
            let found = error(func, id, op.operands[0], axis, root, &what, state, filler(name));
            if op.attr("whole").is_some() {
                let help = "a mean counts every element: divide ts.tile.sum by the number of elements that are there";
                return Some((root, found.help(help)));
            }
            Some((root, found))
        }
        TileOp::Scan => {
            let axis = op.attr("axis").and_then(Attr::as_int)? as usize;
            let name = op.attr("op").and_then(Attr::as_word)?;
            let state = flow.state(op.operands[0])[axis];
            // Zeros add nothing to a sum; whatever is behind the last element does not count.
            let last = |r: Root| !r.front && r.spread == Spread::Ends;
            let sums = matches!(name, "sum" | "or" | "xor");
            let harmless = |r: Root| matches!(state, Axis::Zero(_)) && (sums || last(r));
            let root = state.root().filter(|&r| !harmless(r))?;
            let what = format!("a scan ({name}) along");
            Some((root, error(func, id, op.operands[0], axis, root, &what, state, filler(name))))
        }
        TileOp::ReduceBy => over(func, flow, id, "a reduction by a function along", |_| true, "…"),
        // What is folded before the padding does not take it in.
        TileOp::ScanBy => {
            let reverse = op.attr("reverse").and_then(Attr::as_bool) == Some(true);
            let counts = |r: Root| reverse || r.front || r.spread != Spread::Ends;
            over(func, flow, id, "a scan by a function along", counts, "…")
        }
        TileOp::Sort => {
            let falls = op.attr("descending").and_then(Attr::as_bool) == Some(true);
            let fill = if falls { "-math.inf" } else { "math.inf" };
            let whole = op.attr("whole").is_some();
            let what = if whole { "a count of different elements along" } else { "a sort along" };
            let found = over(func, flow, id, what, |_| true, fill);
            if whole {
                let help = "every element counts: put one that is there in place of the padding, \
                            `ts.tile.where(p < n, t, t[0])` with `p` the positions of the slice";
                return found.map(|(root, error)| (root, error.help(help)));
            }
            found
        }
        TileOp::Histogram => {
            let x = op.operands[0];
            flow.state(x).into_iter().enumerate().find_map(|(axis, state)| {
                let root = state.root()?;
                let what = "a histogram over";
                Some((root, error(func, id, x, axis, root, what, state, Some("-1"))))
            })
        }
        TileOp::ArgReduce => {
            let axis = op.attr("axis").and_then(Attr::as_int)? as usize;
            let name = op.attr("op").and_then(Attr::as_word)?;
            let state = flow.state(op.operands[0])[axis];
            let root = state.root()?;
            let what = format!("an arg{name} along");
            Some((root, error(func, id, op.operands[0], axis, root, &what, state, filler(name))))
        }
        TileOp::Mma => {
            let (a, b) = (op.operands[0], op.operands[1]);
            let (ka, kb) = (flow.state(a)[1], flow.state(b)[0]);
            // Zeros clear the other operand's padding, unless that is known not to be finite.
            let finite = |k: Axis| !matches!(k, Axis::Dirty(_, Held::Never(_)));
            if ka.is_zero() && finite(kb) || kb.is_zero() && finite(ka) {
                return None;
            }
            let left = ka.root().is_some() && !ka.is_zero() || kb.root().is_none();
            let (value, axis, state) = if left { (a, 1, ka) } else { (b, 0, kb) };
            let root = state.root()?;
            Some((root, error(func, id, value, axis, root, "a matmul over", state, Some("0.0"))))
        }
        // Padding of an index tile is a position like any other: the first element.
        TileOp::Scatter | TileOp::Atomic => {
            let masked = op.group("mask").first().map(|&m| condition::bounded_axes(func, m));
            op.group("at").iter().filter(|&&at| func.ty(at).rank() > 0).find_map(|&at| {
                flow.state(at).iter().enumerate().find_map(|(axis, state)| {
                    let root = state.root()?;
                    let mask = masked.as_ref().and_then(|m| m.get(&axis));
                    let extent = func.ty(at).shape()[axis].as_static();
                    let of = condition::Masked { axis, extent, root };
                    if mask.is_some_and(|sides| sides.cut(root))
                        && op.group("mask").iter().all(|&m| condition::cuts(func, m, true, of))
                    {
                        return None;
                    }
                    let what = "the positions along";
                    Some((root, error(func, id, at, axis, root, what, *state, Some("-1"))))
                })
            })
        }
        _ => None,
    }
}

/// An op on several tiles along its axis, which takes in their padding where `counts` says so.
fn over(
    func: &TileFunc,
    flow: &Flow<'_>,
    id: OpId,
    what: &str,
    counts: impl Fn(Root) -> bool,
    fill: &str,
) -> Option<(Root, Diagnostic)> {
    let op = &func.ops[id];
    let axis = op.attr("axis").and_then(Attr::as_int)? as usize;
    op.operands.iter().find_map(|&v| {
        let state = flow.state(v)[axis];
        let root = state.root().filter(|&r| counts(r))?;
        Some((root, error(func, id, v, axis, root, what, state, Some(fill))))
    })
}

/// What to write in place of padding so that an operator passes over it; `None` is the mask's own
/// default.
fn filler(operator: &str) -> Option<&'static str> {
    match operator {
        "max" => None,
        "min" => Some("math.inf"),
        "prod" => Some("1.0"),
        "and" => Some("True"),
        _ => Some("0.0"),
    }
}

/// The tile that the user's call takes, and its axis: a reduction along several axes is one op after
/// another, of which only the first takes what the call was given.
fn as_written(func: &TileFunc, id: OpId, mut value: Value, mut axis: usize) -> (Value, usize) {
    while let Some(op) = func.def(value)
        && op.code == TileOp::Reduce
        && op.loc == func.ops[id].loc
        && user_name(func, value).is_none()
        && let Some(gone) = op.attr("axis").and_then(Attr::as_int)
    {
        axis += usize::from(axis >= gone as usize);
        value = op.operands[0];
    }
    (value, axis)
}

#[allow(clippy::too_many_arguments)] // All of it is reported to the user.
fn error(
    func: &TileFunc,
    id: OpId,
    value: Value,
    axis: usize,
    root: Root,
    what: &str,
    state: Axis,
    fill: Option<&str>,
) -> Diagnostic {
    let (value, axis) = as_written(func, id, value, axis);
    let access = &func.ops[root.access];
    let memory = positioned(access).unwrap_or(access.operands[0]);
    let dim = dim_expr(&func.ty(memory).shape()[root.axis]).map(|e| python(&e));
    let tensor = quoted(func, memory, "a tensor");
    // A value without a name is shown as the expression in the call.
    let named = user_name(func, value);
    let name = named.unwrap_or("…");
    let beyond =
        dim.clone().map_or(format!("the end of {tensor}"), |d| format!("`{d}` of {tensor}"));
    let held = match state {
        Axis::Zero(_) => "padding zeros".to_string(),
        Axis::Dirty(_, Held::Never(x)) => format!("{} made from padding", x.text()),
        _ => "values made from padding".to_string(),
    };
    let of = named.map_or(String::new(), |n| format!(" of `{n}`"));
    let message = format!(
        "expected {what} axis {axis}{of} to take in no padding, got {held} from beyond {beyond}"
    );
    let size = dim.clone().unwrap_or_else(|| "n".into());
    let (left, start) = remaining(func, root, dim);
    let found = Diagnostic::new(Code::E_RAGGED, message).at(func.ops[id].loc.clone());
    let found = match root.mask {
        Some(mask) => found.label(
            func.ops[mask].loc.clone(),
            "the bound of this mask counts from the start of the tile: it ends beyond the tensor",
        ),
        None => found,
    };
    // Merged axes have the slice's padding at their end, but not the slice's positions.
    let merged = match (func.ty(value).shape()[axis].as_static(), extents(access).get(root.axis)) {
        (Some(here), Some(&there)) => here != there && there > 0,
        _ => false,
    };
    if root.spread != Spread::Ends || merged {
        return found
            .label(access.loc.clone(), "this slice may leave the tensor")
            .help(early(func, root, fill, &left, &size));
    }
    if root.front {
        let fill = fill.unwrap_or("-math.inf");
        return found
            .label(
                access.loc.clone(),
                "this slice may begin before the tensor and leave it at the end",
            )
            .help(format!(
                "mask both ends: with `p` the positions of the slice, \
                 `ts.tile.where((p >= 0) & (p < {size}), {name}, {fill})`"
            ));
    }
    let rank = func.ty(value).rank();
    let value_arg = fill.map_or(String::new(), |f| format!(", value={f}"));
    let masked = |which: &str| {
        let call = format!("ts.tile.bounds_mask({name}, {which}={left}{value_arg})");
        let call = match named {
            Some(n) => format!("write `{n} = {call}` before it"),
            None => format!("mask what is given to it: `{call}`"),
        };
        match state {
            Axis::Dirty(_, held) if !held.is_finite() => {
                format!(
                    "{call}, or `ts.tile.where` with a bounds condition; `*` with a zero does not clear it"
                )
            }
            _ => call,
        }
    };
    let help = if axis + 1 == rank {
        masked("cols")
    } else if axis + 2 == rank {
        masked("rows")
    } else {
        let fill = fill.unwrap_or("-math.inf");
        format!(
            "mask `{name}` with `ts.tile.where(…, {name}, {fill})` and a bounds condition along axis {axis}"
        )
    };
    let help = match start {
        Some(what) => format!("{help}, with `start` {what}"),
        None => help,
    };
    found.label(access.loc.clone(), "this slice may leave the tensor").help(help)
}

/// How many elements of a slice are there, as the user writes it, and what `start` in it stands for
/// where the help cannot name the origin.
fn remaining(func: &TileFunc, root: Root, dim: Option<String>) -> (String, Option<&'static str>) {
    let access = &func.ops[root.access];
    let (Some(d), Some(&at)) = (dim, access.group("at").get(root.axis)) else {
        return ("…".into(), None);
    };
    // A buffer does not say which of its copies it holds.
    let other = |id: &OpId| {
        let op = &func.ops[*id];
        *id != root.access && op.code == TileOp::CopyAsync && op.operands[0] == access.operands[0]
    };
    if access.code == TileOp::CopyAsync
        && (!access.group("into").is_empty() || func.walk().iter().any(other))
    {
        return (format!("{d} - start"), Some("the position that its copy began at"));
    }
    let left = match (int_const(func, at), python_int(func, at)) {
        (Some(0), _) => d,
        (_, Some(at)) if at.contains(" + ") || at.contains(" - ") => format!("{d} - ({at})"),
        (_, Some(at)) => format!("{d} - {at}"),
        (_, None) => return (format!("{d} - start"), Some("where the slice begins")),
    };
    (left, None)
}

/// Where padding may be anywhere in the reduced tile, no condition separates it from the rest: the
/// slice itself must be masked.
fn early(func: &TileFunc, root: Root, fill: Option<&str>, left: &str, size: &str) -> String {
    let access = &func.ops[root.access];
    let slice = access.results.first().copied().filter(|&v| func.ty(v).is_value());
    let memory = positioned(access).unwrap_or(access.operands[0]);
    let name = match slice.and_then(|v| user_name(func, v)) {
        Some(name) => name.to_string(),
        None => user_name(func, memory).map_or("…".to_string(), |n| format!("{n}[…]")),
    };
    let when = match root.spread {
        Spread::Carried => "where it is read, inside the loop",
        Spread::Ends => "before its axes are merged",
        _ => "before it is reshaped",
    };
    // The axes of memory that the slice keeps; `rows` and `cols` are the last two.
    let extent = extents(access);
    let kept: Vec<usize> = kept_axes(&extent).collect();
    let from_end = kept.iter().rev().position(|&a| a == root.axis);
    let both = if root.front { "both ends of " } else { "" };
    let value = fill.map_or(String::new(), |f| format!(", value={f}"));
    let call = match from_end {
        Some(0) if !root.front => format!("ts.tile.bounds_mask({name}, cols={left}{value})"),
        Some(1) if !root.front => format!("ts.tile.bounds_mask({name}, rows={left}{value})"),
        _ => {
            let fill = fill.unwrap_or("-math.inf");
            let above = if root.front { "(p >= 0) & " } else { "" };
            format!(
                "ts.tile.where({above}(p < {size}), {name}, {fill})` with `p` its positions there, `p = start + ts.tile.arange(…)"
            )
        }
    };
    format!("mask {both}the slice {when}: `{call}`")
}
