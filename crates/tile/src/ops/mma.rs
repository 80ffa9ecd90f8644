//! Matrix multiply-accumulate.

use crate::Tile;
use tessera_ir::{Attr, Func, InferContext, OpErrors, OpId, Type};
use tessera_numerics::DType::{self, *};

/// The operand dtypes that `mma` takes, as rows (a, b, accumulator). The verifier, the front end's
/// message and the reference page all read this table.
pub const LEGAL: &[(DType, DType, DType)] = &[
    (F64, F64, F64),
    (F32, F32, F32),
    (Tf32, Tf32, F32),
    (BF16, BF16, F32),
    (F16, F16, F32),
    (Fp8E4M3, Fp8E4M3, F32),
    (Fp8E4M3, Fp8E5M2, F32),
    (Fp8E5M2, Fp8E4M3, F32),
    (Fp8E5M2, Fp8E5M2, F32),
    (I8, I8, I32),
    (U8, U8, I32),
    (I8, U8, I32),
    (U8, I8, I32),
];

/// The accumulation classes of LANGUAGE 13.
pub const CLASSES: [&str; 4] = ["seq", "f32", "fast", "i32"];

/// Promotion interval of 8-bit floats: tensor cores add this many products with 13 fraction bits
/// before the partial sum is added in f32, where the class is not `fast`.
pub const PROMOTED: u32 = 128;

/// Whether the partial sums of such operands are promoted every [`PROMOTED`] products.
pub fn is_promoted(a: DType, class: Option<&str>) -> bool {
    matches!(a, Fp8E4M3 | Fp8E5M2) && class != Some("fast")
}

/// The accumulator of two operand dtypes, where the pair is legal.
pub fn accumulator(a: DType, b: DType) -> Option<DType> {
    LEGAL.iter().find(|row| (row.0, row.1) == (a, b)).map(|row| row.2)
}

pub fn infer_mma(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    c.operands.get(2).map(|t| vec![t.clone()]).ok_or_else(|| "expected three operands".into())
}

pub fn verify_mma(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let operands = [0, 1, 2].map(|i| func.ty(op.operands[i]));
    verify_operands(operands, "three tiles", op.attr("class"), errors);
}

/// The rules of `a`, `b` and the accumulator, and of the accumulation class; `what` names the operands.
pub fn verify_operands(
    [a, b, acc]: [&Type; 3],
    what: &str,
    class: Option<&Attr>,
    errors: &mut OpErrors,
) {
    if [a, b, acc].iter().any(|t| t.rank() != 2) {
        errors.shape(format!("expected {what} of rank 2, got {a}, {b} and {acc}"));
        return;
    }
    let [(m, k), (kb, n), (ma, na)] = [a, b, acc].map(|t| (&t.shape()[0], &t.shape()[1]));
    if k != kb {
        errors.shape(format!("expected k of `b` to be {k}, got {kb}"));
    }
    if (m, n) != (ma, na) {
        errors.shape(format!("expected an accumulator of {m}x{n}, got {ma}x{na}"));
    }
    if !LEGAL.contains(&(a.dtype(), b.dtype(), acc.dtype())) {
        errors.ty(format!(
            "expected dtypes of a legal row, got {} x {} into {}",
            a.dtype(),
            b.dtype(),
            acc.dtype()
        ));
    }
    if let Some(class) = class.and_then(Attr::as_word)
        && !CLASSES.contains(&class)
    {
        errors.structure(format!(
            "expected an accumulation class of {}, got {class}",
            CLASSES.join(" ")
        ));
    }
}
