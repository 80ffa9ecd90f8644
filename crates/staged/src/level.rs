//! The level itself: its types and function attributes.

use crate::StagedOp;
use tessera_ir::{Attr, Func, Level, OpErrors, Type};
use tessera_tile::{KernelKind, TileOp};

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Staged;

/// The kind a function says it has.
pub fn kind_of(func: &Func<Staged>) -> Option<KernelKind> {
    match func.attrs.get("kind").and_then(Attr::as_word) {
        Some("group") => Some(KernelKind::Group),
        Some("lane") => Some(KernelKind::Lane),
        _ => None,
    }
}

/// Those of Tile IR, and: `threads` of a block; `cluster`, the blocks along each axis that run
/// together; `smem`, the bytes of shared memory a block may use; `regs`, the registers a thread may.
const FUNC_ATTRS: &[&str] =
    &["kind", "grid", "domain", "lanes", "config", "threads", "cluster", "smem", "regs"];

impl Level for Staged {
    const NAME: &'static str = "staged";
    const PREFIX: &'static str = "staged";
    type Op = StagedOp;
    const FUNC_ATTRS: &'static [&'static str] = FUNC_ATTRS;

    fn admits(ty: &Type) -> bool {
        let sized = |ty: &Type| {
            ty.rank() > 0 && ty.shape().iter().all(|d| d.as_static().is_some_and(|v| v > 0))
        };
        match ty {
            Type::Scalar(_) | Type::View { .. } | Type::OrderBarrier => true,
            // A buffer is memory of the whole group, whose accesses take effect in program order;
            // `smem` is memory whose users synchronise.
            Type::Frag { .. } | Type::Smem { .. } | Type::Buf { .. } => sized(ty),
            Type::Pipeline { stages, fields } => {
                *stages > 0 && fields.iter().all(|f| sized(&f.as_smem()))
            }
            Type::Stage { fields } => fields.iter().all(|f| sized(&f.as_smem())),
            Type::Pending(tile) => matches!(**tile, Type::Frag { .. }) && Staged::admits(tile),
            // Here tiles have layouts.
            Type::Tile { .. } | Type::Tensor { .. } | Type::Event => false,
        }
    }

    fn verify_func(func: &Func<Self>, errors: &mut OpErrors) {
        if kind_of(func).is_none() {
            errors.structure("expected the function attribute `kind = group` or `kind = lane`");
            return;
        }
        for (name, value) in func.attrs.iter() {
            let positive = |v: &Attr| v.as_int().is_some_and(|v| v > 0);
            let good = match name {
                "kind" => true,
                "grid" => value.as_exprs().is_some(),
                "domain" => value.as_extents().is_some(),
                "threads" => value.as_int().is_some_and(|v| v > 0 && v % 32 == 0),
                "lanes" | "regs" => positive(value),
                "smem" => value.as_int().is_some_and(|v| v >= 0),
                "cluster" => value.as_list().is_some_and(|l| l.iter().all(positive)),
                "config" => value.as_dict().is_some(),
                _ => false,
            };
            if !good {
                errors.structure(format!(
                    "expected function attributes among {}, well formed, got `{name} = {value}`",
                    FUNC_ATTRS.join(" ")
                ));
            }
        }
        for id in func.walk() {
            errors.at_op(func, id);
            let op = &func.ops[id];
            let top = func.blocks[op.block].parent.is_none();
            if op.is_terminator() && (op.code == StagedOp::Tile(TileOp::Return)) != top {
                let wanted = if top { "staged.return" } else { "staged.yield" };
                errors.structure(format!("expected the block to end in {wanted}"));
            }
        }
        if errors.is_empty() {
            crate::verify::check(func, errors);
        }
    }
}
