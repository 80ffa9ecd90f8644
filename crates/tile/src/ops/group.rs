//! Collective operations of a group's lanes.

use super::reduce::operator;
use crate::Tile;
use tessera_ir::{Func, InferContext, OpErrors, OpId, Type};

pub fn infer_same(c: &InferContext<'_>) -> Result<Vec<Type>, String> {
    c.operands.first().map(|t| vec![t.clone()]).ok_or_else(|| "expected an operand".into())
}

pub fn verify_combine(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    operator(func, id, errors);
}
