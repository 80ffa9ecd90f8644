//! The level itself: its types, and the rules on a whole function.

use crate::TileOp;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, Dim, Func, Level, OpErrors, Privilege, Type, Value};

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tile;

/// The execution kind of a kernel, fixed at decoration (LANGUAGE 1).
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum KernelKind {
    /// Collective statements on tiles; scalars are the same for the whole group.
    Group,
    /// Scalar code run by every lane.
    Lane,
}

impl KernelKind {
    pub fn name(self) -> &'static str {
        match self {
            KernelKind::Group => "group",
            KernelKind::Lane => "lane",
        }
    }
}

/// The kind a function says it has.
pub fn kind_of(func: &Func<Tile>) -> Option<KernelKind> {
    match func.attrs.get("kind").and_then(Attr::as_word) {
        Some("group") => Some(KernelKind::Group),
        Some("lane") => Some(KernelKind::Lane),
        _ => None,
    }
}

/// The attributes of a function. `grid` holds one dimension expression for each axis; `domain` the
/// number of lanes of a lane kernel; `lanes` how many form a group (both a list where lanes have
/// several axes, see [`crate::lane_extents`]); `tables` how many of the last
/// parameters are constant tables, which the launch fills in; `flush` that f32 arithmetic may give
/// zero for a subnormal result (LANGUAGE 13); `alias` parameters in pairs, one that is read and one
/// that is written, that are one memory: a group reads of it what it writes itself, and no more.
const FUNC_ATTRS: &[&str] =
    &["kind", "grid", "domain", "lanes", "tables", "config", "flush", "alias"];

/// One number, or in a lane kernel one for each of several axes.
fn is_lanes(kind: KernelKind, value: &Attr) -> bool {
    let several = || value.as_ints().filter(|l| kind == KernelKind::Lane && l.len() > 1);
    match value.as_int() {
        Some(n) => n > 0,
        None => several().is_some_and(|l| l.iter().all(|&n| n > 0)),
    }
}

/// Whether `alias` lists pairs of parameters, one read and one written, of one type but for that.
fn are_pairs(func: &Func<Tile>, value: &Attr) -> bool {
    let Some(places) = value.as_ints() else { return false };
    let view = |place: i64| {
        let param = *func.params().get(usize::try_from(place).ok()?)?;
        match func.ty(param) {
            Type::View { dims, elem, privilege } => Some((dims, elem, *privilege)),
            _ => None,
        }
    };
    let paired = |pair: &[i64]| match (view(pair[0]), view(pair[1])) {
        (Some(a), Some(b)) => {
            (a.0, a.1) == (b.0, b.1) && a.2 == Privilege::Read && b.2 == Privilege::Write
        }
        _ => false,
    };
    places.len() % 2 == 0 && places.chunks_exact(2).all(paired)
}

/// Whether a parameter is a constant table.
pub fn is_table(func: &Func<Tile>, value: Value) -> bool {
    let args = &func.blocks[func.body].args;
    let count = func.attrs.get("tables").and_then(Attr::as_int).unwrap_or(0);
    args.iter().rev().take(usize::try_from(count).unwrap_or(0)).any(|&a| a == value)
}

/// Whether the lanes of a group do the op together, so that all must reach it.
pub fn is_collective(code: TileOp) -> bool {
    matches!(
        code,
        TileOp::GroupReduce | TileOp::GroupScan | TileOp::GroupBroadcast | TileOp::GroupShuffle
    )
}

/// What runs a function takes no tiles without elements: the pass `tile-empty` has taken them away.
pub fn has_elements(func: &Func<Tile>) -> Result<(), Diagnostics> {
    let is_empty = |ty: &Type| match ty {
        Type::Tile { shape, .. } | Type::Buf { shape, .. } => shape.contains(&Dim::Static(0)),
        _ => false,
    };
    for id in func.walk() {
        let op = &func.ops[id];
        if let Some(&value) = op.results.iter().find(|&&v| is_empty(func.ty(v))) {
            let message = format!("expected tiles with elements, got {}", func.ty(value));
            return Err(Diagnostic::new(Code::E_SHAPE_MISMATCH, message).at(op.loc.clone()).into());
        }
    }
    Ok(())
}

impl Level for Tile {
    const NAME: &'static str = "tile";
    const PREFIX: &'static str = "tile";
    type Op = TileOp;
    const FUNC_ATTRS: &'static [&'static str] = FUNC_ATTRS;

    fn admits(ty: &Type) -> bool {
        match ty {
            Type::Scalar(_) => true,
            Type::Tile { shape, .. } | Type::Buf { shape, .. } => {
                !shape.is_empty() && shape.iter().all(|d| d.as_static().is_some_and(|v| v >= 0))
            }
            Type::View { .. } => true,
            Type::Tensor { .. } => false,
            // Layouts, pipelines and pending asynchronous MMAs belong to Staged IR.
            Type::Frag { .. }
            | Type::Smem { .. }
            | Type::Pipeline { .. }
            | Type::Stage { .. }
            | Type::Pending(_)
            | Type::OrderBarrier
            | Type::Event => false,
        }
    }

    fn verify_func(func: &Func<Self>, errors: &mut OpErrors) {
        let Some(kind) = kind_of(func) else {
            errors.structure("expected the function attribute `kind = group` or `kind = lane`");
            return;
        };
        for (name, value) in func.attrs.iter() {
            let good = match name {
                "kind" => true,
                "grid" => value.as_exprs().is_some(),
                "domain" => value.as_extents().is_some(),
                "lanes" => is_lanes(kind, value),
                "tables" => value.as_int().is_some_and(|v| v > 0),
                "config" => value.as_dict().is_some(),
                "flush" => value.as_bool().is_some(),
                "alias" => are_pairs(func, value),
                _ => false,
            };
            if !good {
                errors.structure(format!(
                    "expected function attributes among {}, well formed, got `{name} = {value}`",
                    FUNC_ATTRS.join(" ")
                ));
            }
        }
        crate::lanes::verify_lanes(func, errors);
        for id in func.walk() {
            errors.at_op(func, id);
            let op = &func.ops[id];
            let top = func.blocks[op.block].parent.is_none();
            if op.is_terminator() && (op.code == TileOp::Return) != top {
                let wanted = if top { "tile.return" } else { "tile.yield" };
                errors.structure(format!("expected the block to end in {wanted}"));
            }
            if kind == KernelKind::Group && matches!(op.code, TileOp::LinearId | TileOp::LocalId) {
                errors.push(Code::E_STYLE_MIX, "expected no lane id in a group kernel");
            }
            if kind == KernelKind::Group && is_collective(op.code) {
                errors.push(Code::E_STYLE_MIX, "expected no lane operation in a group kernel");
            }
            let tile_op = matches!(
                op.code,
                TileOp::Mma
                    | TileOp::Reduce
                    | TileOp::Scan
                    | TileOp::ArgReduce
                    | TileOp::ReduceBy
                    | TileOp::Histogram
                    | TileOp::CopyAsync
                    | TileOp::CopyCommit
                    | TileOp::CopyWait
                    | TileOp::Origin
            );
            let tiles = op.results.iter().any(|&v| matches!(func.ty(v), Type::Tile { .. }));
            if kind == KernelKind::Lane && (tile_op || tiles) {
                errors.push(Code::E_STYLE_MIX, "expected no tile operation in a lane kernel");
            }
        }
    }
}
