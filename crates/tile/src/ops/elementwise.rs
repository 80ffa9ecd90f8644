//! The elementwise family: one op for each row of the `ScalarFn` table. Operands have one type, of
//! a dtype that arithmetic is done in; the result has the shape of the operands.

use crate::{Tile, TileOp};
use tessera_diag::Code;
use tessera_ir::{
    AttrKind, AttrSpec, Effects, Func, InferContext, OpErrors, OpId, OpInfo, OperandSpec, Type,
    TypeClass,
};
use tessera_numerics::ScalarFn;

const fn operand(name: &'static str) -> OperandSpec {
    OperandSpec { name, class: TypeClass::Value }
}

/// Of a block format: a zero of the first operand stays zero, whatever the second is. The scale of
/// a block is finite, or NaN where an element of the block is: then the padding of the block does
/// not count either. For `tile-ragged`; it changes no result.
const CLEARS: &[AttrSpec] = &[AttrSpec { name: "clears", kind: AttrKind::Bool, required: false }];

const fn row(
    operands: &'static [OperandSpec],
    attrs: &'static [AttrSpec],
    infer: fn(&InferContext<'_>) -> Result<Vec<Type>, String>,
    example: &'static str,
) -> OpInfo<Tile> {
    OpInfo {
        number: 0x100,
        since: "0.1",
        doc: "Applies a scalar function to each element.\n",
        example,
        operands,
        groups: &[],
        attrs,
        regions: &[],
        results: Some(1),
        effects: Effects::Pure,
        infer: Some(infer),
        verify: Some(verify_ew),
    }
}

static UNARY: OpInfo<Tile> = row(&[operand("x")], &[], infer_same, "%r = tile.exp %x : f32");
static BINARY: OpInfo<Tile> =
    row(&[operand("a"), operand("b")], CLEARS, infer_same, "%r = tile.add %x, %y : f32");
static TERNARY: OpInfo<Tile> = row(
    &[operand("a"), operand("b"), operand("c")],
    &[],
    infer_same,
    "%r = tile.fma %x, %y, %x : f32",
);
static PREDICATE: OpInfo<Tile> = row(&[operand("x")], &[], infer_bool, "%r = tile.isnan %x : bool");
static COMPARE: OpInfo<Tile> =
    row(&[operand("a"), operand("b")], &[], infer_bool, "%r = tile.lt %x, %y : bool");

/// The row of an elementwise function, by its arity and whether its result is a bool.
pub fn info(f: ScalarFn) -> &'static OpInfo<Tile> {
    use tessera_numerics::FnClass;
    match (f.arity(), f.class()) {
        (1, FnClass::Predicate) => &PREDICATE,
        (2, FnClass::Compare) => &COMPARE,
        (1, _) => &UNARY,
        (2, _) => &BINARY,
        _ => &TERNARY,
    }
}

fn infer_same(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    c.operands.first().map(|t| vec![t.clone()]).ok_or_else(|| "expected an operand".into())
}

fn infer_bool(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    Ok(infer_same(c)?.iter().map(|t| t.with_dtype(tessera_numerics::DType::Bool)).collect())
}

pub fn verify_ew(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let TileOp::Ew(f) = op.code else { return };
    let first = func.ty(op.operands[0]);
    for &other in &op.operands[1..] {
        let ty = func.ty(other);
        if ty.shape() != first.shape() {
            errors.shape(format!("expected operands of one shape, got {first} and {ty}"));
        } else if ty != first {
            errors.ty(format!("expected operands of one dtype, got {first} and {ty}"));
        }
    }
    let dtype = first.dtype();
    if dtype.is_storage_only() && dtype != tessera_numerics::DType::Bool {
        errors.push(
            Code::E_TYPE,
            format!(
                "expected a dtype that arithmetic is done in, got {dtype}: cast to {} first",
                dtype.compute()
            ),
        );
    } else if !f.accepts(dtype) {
        errors.ty(format!("expected an operand that `{}` takes, got {dtype}", f.name()));
    }
}
