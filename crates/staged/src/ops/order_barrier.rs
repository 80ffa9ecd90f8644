//! Order barriers: the replicas of a role pass through a section in turn.

use super::smem::made_once;
use crate::{Staged, StagedOp};
use tessera_ir::{Func, InferContext, OpErrors, OpId, Type};

pub fn infer_order_barrier(_: &InferContext<'_>) -> Result<Vec<Type>, String> {
    Ok(vec![Type::OrderBarrier])
}

pub fn verify_create(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    made_once(func, id, errors);
}

pub fn verify_order_barrier(func: &Func<Staged>, id: OpId, errors: &mut OpErrors) {
    let role = func.ancestors(func.ops[id].block);
    if !role.iter().any(|&o| func.ops[o].code == StagedOp::WarpRole) {
        errors.structure("expected a role around what its replicas take turns in");
    }
}
