//! `tile-empty`: removes tiles without elements.
//!
//! Input: accesses may keep axes of no element (extent -1), tiles and buffers may have axes of
//! extent 0. The grid or domain is stated where it is known; a store of an empty tile may be what
//! it was inferred from. Output: no tile or buffer has an axis of extent 0. Writes of such tiles
//! are removed; an empty tile that loops and branches carry becomes a tile of zeros that is never
//! read.
//! Must not: change a function without such tiles. The sum, product, `any` and `all` of no elements
//! are what Python says; a maximum, a minimum or a combination by a function, of none, is refused
//! where its result is used.

use crate::canonicalise::remove_dead;
use crate::facts::quoted;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{
    Attr, Attrs, Changed, Dim, Effects, OpId, OpSpec, Opcode, Pass, PassContext, Type, Value,
};
use tessera_numerics::{DType, ReduceOp, Scalar};
use tessera_tile::{Tile, TileFunc, TileOp, is_asm};

pub struct Empty;

impl Pass<Tile> for Empty {
    fn name(&self) -> &'static str {
        "tile-empty"
    }

    fn run(&self, func: &mut TileFunc, _context: &mut PassContext) -> Result<Changed, Diagnostics> {
        if !func.values.ids().any(|v| is_empty(func, v)) {
            return Ok(Changed::No);
        }
        let mut undefined = Vec::new();
        for id in func.walk() {
            let op = &func.ops[id];
            // A combiner's region is of scalars; loops and branches are replaced op by op.
            let own = matches!(op.code, TileOp::ReduceBy | TileOp::ScanBy) || is_asm(op.code);
            if op.regions.is_empty() || own {
                undefined.extend(replace(func, id));
            }
        }
        let values: Vec<Value> = func.values.ids().collect();
        for value in values {
            if let Type::Tile { shape, .. } | Type::Buf { shape, .. } = &mut func.values[value].ty {
                shape
                    .iter_mut()
                    .filter(|d| **d == Dim::Static(0))
                    .for_each(|d| *d = Dim::Static(1));
            }
        }
        remove_dead(func);
        let left = func.walk();
        let mut errors = Diagnostics::new();
        undefined.into_iter().filter(|(id, _)| left.contains(id)).for_each(|(_, e)| errors.push(e));
        errors.into_result().map(|_| Changed::Yes)
    }
}

fn is_empty(func: &TileFunc, value: Value) -> bool {
    match func.ty(value) {
        Type::Tile { shape, .. } | Type::Buf { shape, .. } => shape.contains(&Dim::Static(0)),
        _ => false,
    }
}

fn zero(dtype: DType) -> Attr {
    match dtype {
        DType::Bool => Attr::Bool(false),
        _ if dtype.is_float() => Attr::Float(0.0),
        _ => Attr::Int(0),
    }
}

/// The op becomes a constant.
fn set(func: &mut TileFunc, id: OpId, value: Attr) {
    let mut attrs = Attrs::new();
    attrs.set("value", value);
    let op = &mut func.ops[id];
    (op.code, op.attrs) = (TileOp::Const, attrs);
    (op.operands, op.group_lens) = (Vec::new(), Vec::new());
}

/// Replaces an op that takes or gives a tile without elements; an error where its result has no
/// meaning and is used.
fn replace(func: &mut TileFunc, id: OpId) -> Option<(OpId, Diagnostic)> {
    let op = func.ops[id].clone();
    if op.results.iter().any(|&r| is_empty(func, r)) {
        if op.results.iter().any(|&r| matches!(func.ty(r), Type::Buf { .. })) {
            return None;
        }
        // Each result becomes a constant of its own.
        for &result in &op.results[1..] {
            let ty = func.ty(result).clone();
            let at = func.blocks[op.block].ops.iter().position(|&o| o == id).unwrap_or(0);
            let spec = OpSpec::new(TileOp::Const, &[]).attr("value", zero(ty.dtype())).result(ty);
            let new = func.insert(op.block, at, spec, op.loc.clone()).expect("the type is given");
            let stands_in = func.ops[new].result();
            func.replace_uses(result, stands_in);
        }
        func.ops[id].regions.clear();
        func.ops[id].results.truncate(1);
        set(func, id, zero(func.ty(op.results[0]).dtype()));
        return None;
    }
    let taken = op.operands.iter().find(|&&v| is_empty(func, v)).copied()?;
    match op.code {
        // A text runs for each element.
        TileOp::AsmEffect if op.results.is_empty() => func.erase(id),
        // No element: no write, and nothing to copy.
        _ if op.results.is_empty() => match op.code.info().effects {
            Effects::Host => print(func, id),
            Effects::Terminator => {}
            _ => func.erase(id),
        },
        TileOp::Mma => {
            func.replace_uses(op.results[0], op.operands[2]);
            func.erase(id);
        }
        TileOp::Reduce => {
            let dtype = func.ty(op.results[0]).dtype();
            let operator = op.attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name);
            let value = match operator.and_then(|o| o.identity(dtype)) {
                // As Python has it, not with the sign that a sum begins with.
                Some(Scalar::F32(v)) => Attr::Float(f64::from(v) + 0.0),
                Some(Scalar::F64(v)) => Attr::Float(v + 0.0),
                Some(Scalar::Bool(v)) => Attr::Bool(v),
                Some(other) => Attr::Int(other.as_int().map_or(0, |v| v as i64)),
                None => zero(dtype),
            };
            set(func, id, value);
            if matches!(operator, Some(ReduceOp::Max | ReduceOp::Min)) {
                let name = operator.map_or("reduction", ReduceOp::name);
                return Some((id, undefined(func, id, taken, name)));
            }
        }
        // Parts without elements add nothing.
        TileOp::Concat => {
            let kept: Vec<Value> =
                op.operands.iter().copied().filter(|&v| !is_empty(func, v)).collect();
            let op = &mut func.ops[id];
            op.group_lens = vec![kept.len()];
            op.operands = kept;
        }
        // Every position of a buffer without elements is outside.
        TileOp::Load | TileOp::Gather | TileOp::Atomic if taken == op.operands[0] => {
            outside(func, id);
        }
        // Every position is outside.
        TileOp::Take | TileOp::Histogram => set(func, id, zero(func.ty(op.results[0]).dtype())),
        TileOp::ReduceBy => {
            let error = undefined(func, id, taken, "reduction by a function");
            func.ops[id].regions.clear();
            func.ops[id].results.truncate(1);
            set(func, id, zero(func.ty(op.results[0]).dtype()));
            // The others are made of the first, which is used where any of them is.
            for &result in &op.results[1..] {
                let dtype = func.ty(result).dtype();
                let mut stands_in = op.results[0];
                if func.ty(stands_in).dtype() != dtype {
                    let at = func.blocks[op.block].ops.iter().position(|&o| o == id);
                    let spec =
                        OpSpec::new(TileOp::Cast, &[stands_in]).result(func.ty(result).clone());
                    let at = at.map_or(0, |at| at + 1);
                    let new = func.insert(op.block, at, spec, op.loc.clone());
                    stands_in = func.ops[new.expect("the type is given")].result();
                }
                func.replace_uses(result, stands_in);
            }
            return Some((id, error));
        }
        TileOp::ArgReduce => {
            set(func, id, Attr::Int(0));
            let name = format!("arg{}", op.attr("op").and_then(Attr::as_word).unwrap_or("max"));
            return Some((id, undefined(func, id, taken, &name)));
        }
        _ => {}
    }
    None
}

/// A read of what does not exist: zeros, or the number that the kernel names.
fn outside(func: &mut TileFunc, id: OpId) {
    let op = func.ops[id].clone();
    let ty = func.ty(op.result()).clone();
    let Some(&other) = op.group("other").first().filter(|_| op.code != TileOp::Atomic) else {
        return set(func, id, zero(ty.dtype()));
    };
    if *func.ty(other) == ty {
        func.replace_uses(op.result(), other);
        return func.erase(id);
    }
    let op = &mut func.ops[id];
    (op.code, op.attrs) = (TileOp::Broadcast, Attrs::new());
    (op.operands, op.group_lens) = (vec![other], Vec::new());
}

fn undefined(func: &TileFunc, id: OpId, taken: Value, operator: &str) -> Diagnostic {
    let of = quoted(func, taken, "a tile");
    Diagnostic::new(
        Code::E_SHAPE_MISMATCH,
        format!("expected at least one element for the `{operator}` of {of}, got none: its axis has extent 0"),
    )
    .at(func.ops[id].loc.clone())
    .help("do not call the kernel with an empty array, or begin with a value: `if N > 0:` around it")
}

/// A tile without elements is printed as `[]`.
fn print(func: &mut TileFunc, id: OpId) {
    let op = func.ops[id].clone();
    let Some(text) = op.attr("text").and_then(Attr::as_str) else { return };
    let mut pieces = text.split("{}");
    let mut shown = pieces.next().unwrap_or_default().to_string();
    let mut kept = Vec::new();
    for (piece, &value) in pieces.zip(&op.operands) {
        if is_empty(func, value) {
            shown.push_str("[]");
        } else {
            shown.push_str("{}");
            kept.push(value);
        }
        shown.push_str(piece);
    }
    let op = &mut func.ops[id];
    op.attrs.set("text", Attr::Str(shown));
    op.group_lens = vec![kept.len()];
    op.operands = kept;
}
