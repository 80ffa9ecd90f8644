//! Barriers: no block barrier inside a role, because some roles may never reach it; and no role
//! barrier outside roles.

use crate::ops::roles::role_of;
use crate::{Staged, StagedOp};
use tessera_ir::{Func, OpErrors};

pub(super) fn check(func: &Func<Staged>, errors: &mut OpErrors) {
    for id in func.walk() {
        let in_role = role_of(func, id).is_some();
        errors.at_op(func, id);
        match func.ops[id].code {
            StagedOp::BlockBarrier if in_role => {
                errors.structure(
                    "expected no barrier of the block inside a role: use `role_barrier`",
                );
            }
            StagedOp::ClusterBarrier if in_role => {
                errors.structure("expected no barrier of the cluster inside a role");
            }
            StagedOp::RoleBarrier if !in_role => {
                errors.structure("expected a role around `role_barrier`: use `block_barrier`");
            }
            _ => {}
        }
    }
}
