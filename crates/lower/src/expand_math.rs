//! `tile-expand-math`: expands elementary functions (`exp`, `sin`, ...) into basic operations.
//!
//! Input: any valid function. Output: no elementwise f32 op whose function has a published
//! expansion. Each is a fixed sequence of additions, multiplications, fused multiply-adds,
//! comparisons and integer operations that every target computes with the same bits (LANGUAGE 14).
//! f64 is left alone. The pass does not change a bit: the sequence *is* the function's definition
//! in f32.
//!
//! It is not in the common pipeline: the interpreter evaluates the functions directly. A compiled
//! backend that has no such function, or may not use it (`strict`), runs this pass.

use tessera_diag::Diagnostics;
use tessera_ir::{Attr, BlockId, Changed, OpId, OpSpec, Pass, PassContext, Rewriter, Type, Value};
use tessera_numerics::{DType, ExpOp, Expansion, Scalar, ScalarFn, expansion};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

pub struct ExpandMath;

impl Pass<Tile> for ExpandMath {
    fn name(&self) -> &'static str {
        "tile-expand-math"
    }

    fn run(&self, func: &mut TileFunc, _: &mut PassContext) -> Result<Changed, Diagnostics> {
        if !func.walk().into_iter().any(|id| expandable(func, id).is_some()) {
            return Ok(Changed::No);
        }
        let old = func.clone();
        let mut rewriter = Rewriter::new(&old);
        let body = rewriter.new.body;
        for &id in &old.blocks[old.body].ops {
            copy(&mut rewriter, id, body);
        }
        *func = rewriter.new;
        Ok(Changed::Yes)
    }
}

/// The expansion of an op, where it has one.
fn expandable(func: &TileFunc, id: OpId) -> Option<&'static Expansion> {
    let op = &func.ops[id];
    match op.code {
        TileOp::Ew(f) if func.ty(op.operands[0]).dtype() == DType::F32 => expansion(f),
        _ => None,
    }
}

fn copy(r: &mut Rewriter<'_, Tile>, id: OpId, into: BlockId) {
    match expandable(r.old, id) {
        Some(e) => expand(r, id, into, e),
        None => {
            r.copy_op_with(id, into, &mut |r, inner, block| copy(r, inner, block));
        }
    }
}

fn expand(r: &mut Rewriter<'_, Tile>, id: OpId, into: BlockId, e: &Expansion) {
    let op = &r.old.ops[id];
    let inputs: Vec<Value> = op.operands.iter().map(|&v| r.get(v)).collect();
    let shape = r.old.ty(op.result()).clone();
    let mut slots: Vec<Value> = Vec::with_capacity(e.ops.len());
    let mut b = r.builder(into, op.loc.clone());
    for (step, &dtype) in e.ops.iter().zip(&e.types) {
        let ty = shape.with_dtype(dtype);
        let slot = |s: &tessera_numerics::Slot| slots[s.0 as usize];
        let value = match step {
            ExpOp::Input(i) => inputs[*i as usize],
            ExpOp::Const(c) => constant(&mut b, ty, *c),
            ExpOp::Apply { f, args } => {
                let args: Vec<Value> = args.iter().map(slot).collect();
                b.ew(*f, &args)
            }
            ExpOp::Select { cond, then, other } => b.select(slot(cond), slot(then), slot(other)),
            ExpOp::Cast { value, .. } => b.cast(slot(value), dtype),
            ExpOp::Bitcast { value, .. } => {
                let spec = OpSpec::new(TileOp::Bitcast, &[slot(value)]).result(ty);
                b.value(spec).expect("the result type is given")
            }
        };
        slots.push(value);
    }
    let result = slots[slots.len() - 1];
    if let Some(name) = r.old.name_of(op.result()).filter(|_| !inputs.contains(&result)) {
        r.new.set_name(result, name);
    }
    r.set(op.result(), result);
}

/// A number by its exact bits; NaN and infinities included.
fn constant(b: &mut tessera_ir::Builder<'_, Tile>, ty: Type, c: Scalar) -> Value {
    let attr = match c {
        Scalar::Bool(v) => Attr::Bool(v),
        Scalar::I32(v) => Attr::Int(v.into()),
        Scalar::I64(v) => Attr::Int(v),
        Scalar::U32(v) => Attr::Int(v.into()),
        // The verifier reads an i64 with the same bits.
        Scalar::U64(v) => Attr::Int(v as i64),
        Scalar::F32(v) => Attr::Float(v.into()),
        Scalar::F64(v) => Attr::Float(v),
    };
    b.constant(ty, attr)
}

/// The functions that the pass expands, for backends that implement the others.
pub fn expanded_functions() -> &'static [ScalarFn] {
    tessera_numerics::STRICT
}
