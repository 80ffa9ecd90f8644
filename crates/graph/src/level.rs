//! The level: its types, and the rules on a whole function.

use crate::ops::kernel::verify_versions;
use crate::{GraphOp, states};
use tessera_ir::{Func, Level, OpErrors, Type};

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Graph;

impl Level for Graph {
    const NAME: &'static str = "graph";
    const PREFIX: &'static str = "graph";
    type Op = GraphOp;

    fn admits(ty: &Type) -> bool {
        match ty {
            Type::Scalar(_) => true,
            Type::Tensor { dims, .. } => dims.iter().all(|d| d.as_static().is_none_or(|d| d >= 0)),
            Type::Tile { .. }
            | Type::View { .. }
            | Type::Buf { .. }
            | Type::Frag { .. }
            | Type::Smem { .. }
            | Type::Pipeline { .. }
            | Type::Stage { .. }
            | Type::Pending(_)
            | Type::OrderBarrier
            | Type::Event => false,
        }
    }

    fn verify_func(func: &Func<Self>, errors: &mut OpErrors) {
        for (name, _) in func.attrs.iter() {
            errors.structure(format!("expected no function attributes, got `{name}`"));
        }
        for id in func.walk() {
            errors.at_op(func, id);
            let op = &func.ops[id];
            let top = func.blocks[op.block].parent.is_none();
            if op.is_terminator() && (op.code == GraphOp::Return) != top {
                let wanted = if top { "graph.return" } else { "graph.yield" };
                errors.structure(format!("expected the block to end in {wanted}"));
            }
        }
        for id in func.walk().into_iter().filter(|&id| func.ops[id].code == GraphOp::Manual) {
            // Where there are calls, the module decides: they say what their results are.
            if func.ops[id].regions.first().is_some_and(|&r| !states::has_calls(func, r)) {
                for found in states::check(None, func, id) {
                    errors.at_op(func, found.op);
                    errors.push_with_help(found.refusal.code, found.refusal.message, found.help);
                }
            }
        }
        verify_versions(func, errors);
    }
}
