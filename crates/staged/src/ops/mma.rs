//! Asynchronous MMAs on the tensor cores (WGMMA), which run concurrently with the threads.

use crate::Staged;
use tessera_ir::{Attr, Func, InferContext, OpErrors, OpId, Type};
use tessera_tile::ops::mma::verify_operands;

pub fn infer_open(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    c.operands.first().map(|t| vec![Type::pending(t.clone())]).ok_or("expected a tile".into())
}

/// The tile of an accumulator, pending or not.
fn tile_of(ty: &Type) -> &Type {
    match ty {
        Type::Pending(tile) => tile,
        ty => ty,
    }
}

pub fn infer_issue(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    let acc = c.operands.get(2).ok_or("expected three operands")?;
    Ok(vec![Type::pending(tile_of(acc).clone())])
}

pub fn verify_issue(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let [a, b, acc] = [0, 1, 2].map(|i| func.ty(op.operands[i]));
    verify_operands([a, b, tile_of(acc)], "operands", op.attr("class"), errors);
}

pub fn verify_retire(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let (from, to) = (func.ty(op.operands[0]), func.ty(op.result()));
    if tile_of(from) != tile_of(to) {
        errors.ty(format!("expected {} or {from}, got {to}", tile_of(from)));
    }
    let keep = op.attr("keep").and_then(Attr::as_int).unwrap_or(-1);
    if keep < 0 {
        errors.structure(format!("expected `keep` of 0 or more, got {keep}"));
    } else if keep == 0 && matches!(to, Type::Pending(_)) {
        errors.ty("expected a tile where nothing is kept, got a pending one");
    }
}
