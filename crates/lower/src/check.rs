//! `tile-check`: refuses divergent barriers and provable races.
//!
//! Input: no implicit origins; the grid is stated where it could be inferred. Output: the same
//! function. In a lane kernel no barrier is under lane-dependent control flow, and with a `domain` no
//! plain write goes to one element from different lanes ([`lane_races`]). In a group kernel
//! with a `grid`, no plain store goes to one element from different groups along an axis, as far as
//! linear forms show; [`races`] checks the same for a caller's grid,
//! as `lane_races` does for a caller's domain.
//! Must not: change anything, or refuse what it cannot prove wrong. What depends on memory or on an
//! atomic's result is never provable, and neither is a write that an acquire may order: checked
//! mode finds those.

use crate::facts::{is_view, quoted, written};
use crate::lane_races::lane_races;
use crate::taint::{Taint, taint};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, Changed, DimExpr, Op, OpId, Pass, PassContext, Type};
use tessera_tile::{
    Atom, KernelKind, Tile, TileFunc, TileOp, domain_of, is_collective, kind_of, linear_of,
};

pub struct Check;

impl Pass<Tile> for Check {
    fn name(&self) -> &'static str {
        "tile-check"
    }

    fn run(&self, func: &mut TileFunc, _context: &mut PassContext) -> Result<Changed, Diagnostics> {
        let errors = match kind_of(func) {
            Some(KernelKind::Lane) => {
                let mut errors = divergent_barriers(func);
                if let Some(domain) = domain_of(func) {
                    errors.extend(lane_races(func, &domain));
                }
                errors
            }
            Some(KernelKind::Group) => match func.attrs.get("grid").and_then(Attr::as_exprs) {
                Some(grid) => races(func, &grid),
                None => Diagnostics::new(),
            },
            None => Diagnostics::new(),
        };
        errors.into_result().map(|_| Changed::No)
    }
}

fn divergent_barriers(func: &TileFunc) -> Diagnostics {
    // Each lane gets another old value from one element.
    let lanes = taint(func, false, &|op| {
        matches!(op.code, TileOp::LinearId | TileOp::LocalId | TileOp::Atomic)
    });
    let mut errors = Diagnostics::new();
    for id in func.walk() {
        let op = &func.ops[id];
        if op.code == TileOp::GroupBroadcast && lanes.value(op.operands[1]) {
            errors.push(
                Diagnostic::new(
                    Code::E_ARGUMENT,
                    "expected `src` of a broadcast to be the same for all lanes, got one that differs between lanes",
                )
                .at(op.loc.clone())
                .help("each lane may request another one with ts.tile.group.shuffle(x, src)"),
            );
        }
        if op.code != TileOp::Barrier && !is_collective(op.code) {
            continue;
        }
        let meeting = match op.code {
            TileOp::Barrier => "barrier",
            _ => "group operation",
        };
        if let Some(around) = lanes.control_around(func, id) {
            let what = match func.ops[around].code {
                TileOp::If => "condition",
                _ => "loop",
            };
            errors.push(
                Diagnostic::new(
                    Code::E_DIVERGENT_BARRIER,
                    format!(
                        "expected every lane to reach the {meeting}, got one under a {what} that differs between lanes"
                    ),
                )
                .at(op.loc.clone())
                .label(func.ops[around].loc.clone(), format!("this {what} depends on the lane"))
                .help(format!(
                    "put the {meeting} outside, and guard the loads and stores instead; \
                     lanes beyond the domain need no guard"
                )),
            );
        }
    }
    errors
}

/// The writes of a group kernel that provably go to the same place from every group along an axis
/// of `grid`. An axis of extent 1 has one group.
pub fn races(func: &TileFunc, grid: &[DimExpr]) -> Diagnostics {
    let mut errors = Diagnostics::new();
    let acquires: Vec<OpId> = func.walk().into_iter().filter(|&id| acquires(func, id)).collect();
    for (axis, extent) in grid.iter().enumerate() {
        if matches!(extent, DimExpr::Const(v) if *v <= 1) {
            continue;
        }
        let axis = axis as i64;
        // The contents of memory and the result of an atomic are unknown: they may differ.
        let taint = taint(func, true, &|op| match op.code {
            TileOp::ProgramId => op.attr("axis") == Some(&Attr::Int(axis)),
            TileOp::Load | TileOp::Gather | TileOp::Atomic => true,
            _ => false,
        });
        for id in func.walk() {
            if same_place(func, &taint, axis, id)
                && !acquires.iter().any(|&a| may_precede(func, a, id))
            {
                errors.push(race(func, axis, id));
            }
        }
    }
    errors
}

/// An atomic that orders what follows it after another group's release: a lock's, for one.
pub(crate) fn acquires(func: &TileFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    let order = op.attr("order").and_then(Attr::as_word).unwrap_or("relaxed");
    op.code == TileOp::Atomic
        && is_wide(op)
        && is_view(func, op.operands[0])
        && matches!(order, "acquire" | "acq_rel" | "seq_cst")
}

/// Whether one op may run before another: it is before it, or both are in one loop.
pub(crate) fn may_precede(func: &TileFunc, first: OpId, then: OpId) -> bool {
    let order = func.walk();
    let place = |id: OpId| order.iter().position(|&o| o == id);
    let loops = |id: OpId| {
        let around = func.ancestors(func.ops[id].block).into_iter();
        around.filter(|&op| matches!(func.ops[op].code, TileOp::For | TileOp::While))
    };
    place(first) < place(then) || loops(first).any(|a| loops(then).any(|b| a == b))
}

/// Whether an atomic has device scope or wider.
fn is_wide(op: &Op<Tile>) -> bool {
    let narrow = ["thread", "warp", "block", "cluster"];
    !narrow.contains(&op.attr("scope").and_then(Attr::as_word).unwrap_or("device"))
}

/// A plain write to a parameter that every group along the axis does, at one position.
fn same_place(func: &TileFunc, taint: &Taint, axis: i64, id: OpId) -> bool {
    let op = &func.ops[id];
    let Some(memory) = written(op).filter(|&m| is_view(func, m)) else { return false };
    if matches!(func.ty(memory), Type::View { privilege, .. } if privilege.reduces()) {
        return false;
    }
    // Groups may update one element together, unless the atomic has a narrower scope.
    if op.code == TileOp::Atomic && is_wide(op) {
        return false;
    }
    // Under a condition or mask that may differ between the groups, one of them may be the only one.
    if taint.control_around(func, id).is_some() || op.group("mask").iter().any(|&m| taint.value(m))
    {
        return false;
    }
    op.group("at").iter().all(|&at| {
        if func.ty(at) != &Type::INDEX {
            return !taint.value(at);
        }
        linear_of(func, at).terms.keys().all(|atom| match atom {
            Atom::Dim(_) => true,
            Atom::Program(a) => *a != axis,
            Atom::Value(v) => !taint.value(*v),
        })
    })
}

/// A lock, or what looks like one, that orders nothing.
fn is_relaxed_lock(func: &TileFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    op.code == TileOp::Atomic
        && is_view(func, op.operands[0])
        && matches!(op.attr("op").and_then(Attr::as_word), Some("cas" | "exchange"))
}

fn race(func: &TileFunc, axis: i64, id: OpId) -> Diagnostic {
    let op = &func.ops[id];
    let name = quoted(func, op.operands[0], "the parameter");
    let plain = name.trim_matches('`');
    let updates = matches!(op.code, TileOp::Accumulate | TileOp::Atomic);
    let does = if updates { "updated" } else { "stored" };
    let help = if updates {
        let operator = match op.attr("op").and_then(Attr::as_word) {
            None | Some("add" | "sub") => "sum",
            Some(other) => other,
        };
        format!(
            "declare `{plain}: ts.Region[ts.reduce_{operator}]`, or use program_id({axis}) in the index"
        )
    } else {
        format!(
            "use program_id({axis}) in the index, or declare `{plain}: ts.Region[ts.reduce_sum]` and write `+=`"
        )
    };
    let found = Diagnostic::new(
        Code::E_RACE,
        format!(
            "expected each group to own the tile of {name} that it writes, got one that does not depend on \
             program_id({axis}): it is {does} by several groups"
        ),
    )
    .at(op.loc.clone());
    if func
        .walk()
        .into_iter()
        .any(|other| is_relaxed_lock(func, other) && may_precede(func, other, id))
    {
        return found.help(
            "take a lock with order=\"acquire\" and give it back with order=\"release\": relaxed atomics \
             order nothing else",
        );
    }
    found.help(help)
}
