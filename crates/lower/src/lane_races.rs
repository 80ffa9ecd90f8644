//! The writes of a lane kernel that provably go to one element from several lanes.
//!
//! Two lanes that differ along one axis alone are compared. They race if a plain write has the same
//! position in both, happens in both, and may store different values: lanes may store one and the
//! same value (LANGUAGE 7). `+=` reads what it writes, so its values do not matter (LANGUAGE 5).
//! What depends on memory or on an atomic's result is never provable, and neither is a write that
//! an acquire may order: checked mode finds those.

use crate::check::{acquires, may_precede};
use crate::facts::{dim_expr, is_view, quoted, written};
use crate::order::sides;
use crate::taint::{Taint, of_lanes, taint};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, DimExpr, Op, OpId, Type, Value};
use tessera_numerics::ScalarFn;
use tessera_tile::{
    Atom, Tile, TileFunc, TileOp, dim_expr_of, is_collective, lane_axes, lane_axis, lane_extents,
    linear_of,
};

/// Which lanes are compared.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Apart {
    /// Lanes of one group.
    Lanes,
    /// Lanes of two groups, each at the same place in its group.
    Groups,
}

/// Two lanes that differ along an axis.
struct Pair<'f> {
    func: &'f TileFunc,
    domain: &'f [DimExpr],
    axis: usize,
    apart: Apart,
    /// What may differ in positions and conditions. What memory holds is unknown.
    places: Taint,
    /// What may differ where reads of one element give one value.
    values: Taint,
}

/// The races of lanes of `domain`. An axis of extent 1 has one lane.
pub fn lane_races(func: &TileFunc, domain: &[DimExpr]) -> Diagnostics {
    let mut errors = Diagnostics::new();
    let order: Vec<OpId> = func.walk();
    let locks: Vec<OpId> = order.iter().copied().filter(|&id| acquires(func, id)).collect();
    let mut refused: Vec<OpId> = Vec::new();
    for (axis, extent) in domain.iter().enumerate() {
        for apart in [Apart::Lanes, Apart::Groups] {
            if !has_several(func, axis, extent, apart) {
                continue;
            }
            let pair = Pair::new(func, domain, axis, apart);
            for &id in &order {
                if !refused.contains(&id)
                    && pair.races(id)
                    && !locks.iter().any(|&lock| may_precede(func, lock, id))
                {
                    refused.push(id);
                    errors.push(pair.error(id));
                }
            }
        }
    }
    errors
}

/// Whether there are two such lanes. A symbol may be any extent, but says nothing of how many groups
/// of several lanes there are: a launch of one group is common.
fn has_several(func: &TileFunc, axis: usize, extent: &DimExpr, apart: Apart) -> bool {
    let lanes = lane_extents(func).get(axis).copied();
    let constant = match extent {
        DimExpr::Const(v) => Some(*v),
        DimExpr::Sym(_) | DimExpr::Bin(..) => None,
    };
    match apart {
        Apart::Lanes => lanes != Some(1) && constant.is_none_or(|v| v > 1),
        Apart::Groups => match (lanes, constant) {
            (Some(lanes), Some(extent)) => extent > lanes,
            (Some(lanes), None) => lanes == 1,
            (None, _) => false,
        },
    }
}

impl<'f> Pair<'f> {
    fn new(func: &'f TileFunc, domain: &'f [DimExpr], axis: usize, apart: Apart) -> Self {
        let own = |op: &Op<Tile>| lane_axis(op).is_none_or(|a| a == axis);
        let is_id = |op: &Op<Tile>| match op.code {
            TileOp::LinearId => own(op),
            TileOp::LocalId => apart == Apart::Lanes && own(op),
            TileOp::ProgramId => apart == Apart::Groups && own(op),
            _ => false,
        };
        let unknown =
            |op: &Op<Tile>| matches!(op.code, TileOp::Load | TileOp::Gather | TileOp::Atomic);
        let run = |seed: &dyn Fn(&Op<Tile>) -> bool| match apart {
            Apart::Lanes => of_lanes(func, seed),
            Apart::Groups => taint(func, true, seed),
        };
        let places = run(&|op| is_id(op) || unknown(op));
        let values = run(&|op| is_id(op) || counts(func, op));
        Self { func, domain, axis, apart, places, values }
    }

    fn races(&self, id: OpId) -> bool {
        let op = &self.func.ops[id];
        let Some(memory) = written(op) else { return false };
        let plain = match op.code {
            TileOp::Store | TileOp::Scatter => self.stores_apart(id),
            TileOp::Accumulate => true,
            _ => false,
        };
        // Groups have their own buffers.
        plain
            && (is_view(self.func, memory) || self.apart == Apart::Lanes)
            && !matches!(self.func.ty(memory), Type::View { privilege, .. } if privilege.reduces())
            && !op.group("mask").iter().any(|&m| self.places.value(m))
            && self.is_reached(id)
            && op.group("at").iter().all(|&at| self.is_fixed(at))
    }

    /// Whether both lanes have one position.
    fn is_fixed(&self, at: Value) -> bool {
        if self.func.ty(at) != &Type::INDEX {
            return !self.places.value(at);
        }
        linear_of(self.func, at).terms.keys().all(|atom| match atom {
            Atom::Dim(_) => true,
            Atom::Program(axis) => self.apart == Apart::Lanes || *axis != self.axis as i64,
            Atom::Value(v) => !self.places.value(*v),
        })
    }

    /// Whether both lanes reach an op: nothing around it depends on the lane, but for guards that
    /// hold for every lane of the domain.
    fn is_reached(&self, id: OpId) -> bool {
        let mut block = self.func.ops[id].block;
        while let Some(parent) = self.func.blocks[block].parent {
            let op = &self.func.ops[parent];
            if self.places.decides(parent) {
                let wanted = op.regions[0] == block;
                if op.code != TileOp::If || self.holds(op.operands[0]) != Some(wanted) {
                    return false;
                }
            }
            block = op.block;
        }
        true
    }

    /// What a condition is for every lane: `i < n` holds in a domain of `n` lanes.
    fn holds(&self, condition: Value) -> Option<bool> {
        let func = self.func;
        let op = func.def(condition)?;
        if let Some(known) = op.attr("value").and_then(Attr::as_bool) {
            return Some(known).filter(|_| op.code == TileOp::Const);
        }
        if let Some([yes, no]) = sides(func, condition) {
            return match self.holds(op.operands[0])? {
                true => self.holds(yes),
                false => self.holds(no),
            };
        }
        let TileOp::Ew(f) = op.code else { return None };
        let below = |lane: usize, end: usize| {
            let by = func.def(op.operands[lane]).filter(|d| d.code == TileOp::LinearId)?;
            let extent = self.domain.get(lane_axis(by).unwrap_or(0))?;
            (dim_expr_of(func, op.operands[end]).as_ref() == Some(extent)).then_some(())
        };
        let both = || [self.holds(op.operands[0]), self.holds(op.operands[1])];
        match f {
            ScalarFn::Lt => below(0, 1).map(|()| true),
            ScalarFn::Gt => below(1, 0).map(|()| true),
            ScalarFn::Ge => below(0, 1).map(|()| false),
            ScalarFn::Le => below(1, 0).map(|()| false),
            ScalarFn::Not => self.holds(op.operands[0]).map(|h| !h),
            ScalarFn::And => match both() {
                [Some(false), _] | [_, Some(false)] => Some(false),
                [Some(true), Some(true)] => Some(true),
                _ => None,
            },
            ScalarFn::Or => match both() {
                [Some(true), _] | [_, Some(true)] => Some(true),
                [Some(false), Some(false)] => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the lanes may store different values, or one reads what the other overwrites.
    fn stores_apart(&self, id: OpId) -> bool {
        let op = &self.func.ops[id];
        self.values.value(op.operands[1]) || self.reads_itself(id)
    }

    /// Whether the stored value follows from what is read at the same position, with no barrier that
    /// could be between the reads and the stores of the lanes.
    fn reads_itself(&self, id: OpId) -> bool {
        let (func, op) = (self.func, &self.func.ops[id]);
        let synchronises = |op: &Op<Tile>| op.code == TileOp::Barrier || is_collective(op.code);
        if func.walk().into_iter().any(|other| synchronises(&func.ops[other])) {
            return false;
        }
        let place = |op: &Op<Tile>| -> Vec<_> {
            op.group("at").iter().map(|&at| linear_of(func, at)).collect()
        };
        let same = |other: &Op<Tile>| {
            other.code == TileOp::Load
                && other.operands[0] == op.operands[0]
                && place(other) == place(op)
        };
        of_lanes(func, &same).value(op.operands[1])
    }

    fn error(&self, id: OpId) -> Diagnostic {
        let (func, op) = (self.func, &self.func.ops[id]);
        let (memory, several) = (op.operands[0], lane_axes(func) > 1);
        let name = quoted(func, memory, "the buffer");
        let plain = name.trim_matches('`');
        let along = |id: &str| match several {
            true => format!("{id}({})", self.axis),
            false => format!("{id}()"),
        };
        let (who, by) = match self.apart {
            Apart::Lanes => ("lanes", along("linear_id")),
            Apart::Groups => ("groups", along("group_id")),
        };
        let adds = op.code == TileOp::Accumulate;
        let does = if adds { "updated" } else { "stored" };
        let first = format!("`if ts.tile.{by} == 0:`");
        let is_param = is_view(func, memory);
        let updates = adds || self.reads_itself(id);
        let help = match (updates, is_param) {
            (true, true) => {
                let operator = op.attr("op").and_then(Attr::as_word).unwrap_or("sum");
                let ty = annotation(func, memory);
                format!(
                    "declare `{plain}: ts.Region[ts.reduce_{operator}{ty}]` and write `{plain}[…] += …`, or \
                     `ts.tile.atomic_add({plain}[…], …)`; elsewhere it is a load, an addition and a store, \
                     which several lanes may not do to one element"
                )
            }
            (true, false) => format!(
                "write `ts.tile.atomic_add({plain}[…], …)`, or `ts.tile.group.reduce(…, \"sum\")` instead of the \
                 buffer"
            ),
            (false, true) => format!(
                "use {by} in the index, let one lane store it ({first}), or fold what the lanes have: \
                 `ts.tile.group.reduce(…, \"sum\")`, or `+=` with `{plain}: ts.Region[ts.reduce_sum{}]`",
                annotation(func, memory)
            ),
            (false, false) => {
                let own = along("local_id");
                format!(
                    "use {own} in the index, let one lane store it (`if ts.tile.{own} == 0:`), or write \
                     `ts.tile.group.broadcast(…, 0)` instead of the buffer"
                )
            }
        };
        Diagnostic::new(
            Code::E_RACE,
            format!(
                "expected each lane to own the element of {name} that it writes, got one that does not depend on \
                 {by}: it is {does} by several {who}"
            ),
        )
        .at(op.loc.clone())
        .help(help)
    }
}

/// Whether every lane gets another number from an atomic: it counts.
fn counts(func: &TileFunc, op: &Op<Tile>) -> bool {
    let adds = matches!(op.attr("op").and_then(Attr::as_word), Some("add" | "sub"));
    let by = || op.operands.get(1).and_then(|&v| crate::facts::int_const(func, v));
    op.code == TileOp::Atomic && adds && by().is_some_and(|v| v != 0)
}

/// The rest of an annotation of a parameter's type, where its extents are names and numbers.
fn annotation(func: &TileFunc, view: Value) -> String {
    let ty = func.ty(view);
    let dims: Option<Vec<String>> = ty
        .shape()
        .iter()
        .map(|d| match dim_expr(d)? {
            DimExpr::Const(v) => Some(v.to_string()),
            e @ (DimExpr::Sym(_) | DimExpr::Bin(..)) => Some(format!("\"{e}\"")),
        })
        .collect();
    dims.map_or(String::new(), |dims| {
        format!(", ts.Tensor[{}, ts.{}]", dims.join(", "), ty.dtype())
    })
}
