//! Scalars that are known before a launch: computed from dims, coordinates and loop variables.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tessera_ir::{Attr, DimExpr, Type, Value};
use tessera_numerics::{DType, Scalar, ScalarFn, cast, eval};
use tessera_tile::{TileFunc, TileOp, lane_axes, lane_axis, lane_extents};

/// Sizes by symbol, and by text for products of symbols that are known only as a whole.
#[derive(Copy, Clone)]
pub struct Sizes<'a>(pub &'a BTreeMap<String, i64>);

impl Sizes<'_> {
    pub fn eval(&self, expr: &DimExpr) -> Result<i64, String> {
        let DimExpr::Bin(op, a, b) = expr else {
            return expr.eval(&|name| self.0.get(name).copied());
        };
        match self.0.get(&expr.to_string()) {
            Some(value) => Ok(*value),
            None => op
                .eval(self.eval(a)?, self.eval(b)?)
                .ok_or_else(|| format!("`{expr}` does not fit 64 bits")),
        }
    }
}

/// The most ops of one query.
const FUEL: usize = 1000;

/// What is known at one point of the walk.
pub struct Known<'a> {
    pub func: &'a TileFunc,
    pub sizes: Sizes<'a>,
    pub grid: [i64; 3],
    pub domain: [i64; 3],
    pub lanes: i64,
    pub programs: [i64; 3],
    /// Variables of the loops that the walk follows.
    pub variables: BTreeMap<Value, i64>,
}

impl Known<'_> {
    /// The lanes of the launch.
    pub fn all_lanes(&self) -> i64 {
        let axes = lane_axes(self.func);
        self.domain[..axes].iter().fold(1, |all, &n| all.saturating_mul(n.max(0)))
    }

    /// The index of a lane along an axis, where lanes are numbered with the last axis fastest.
    fn along(&self, lane: i64, axis: usize) -> Option<i64> {
        let axes = lane_axes(self.func);
        let inner = self.domain.get(axis + 1..axes)?.iter().product();
        lane.checked_div(inner)?.checked_rem(self.domain[axis])
    }

    /// The place of a lane in its group, along an axis or over all.
    fn in_group(&self, lane: i64, axis: Option<usize>) -> Option<i64> {
        let extents = lane_extents(self.func);
        if extents.len() < 2 {
            return lane.checked_rem(self.lanes);
        }
        let place = |axis: usize| self.along(lane, axis)?.checked_rem(extents[axis]);
        match axis {
            Some(axis) => place(axis),
            None => {
                (0..extents.len()).try_fold(0, |at, axis| Some(at * extents[axis] + place(axis)?))
            }
        }
    }

    /// The value of an integer or a bool in one lane.
    pub fn value(&self, value: Value, lane: i64) -> Option<Scalar> {
        self.find(value, lane, &mut { FUEL })
    }

    pub fn int(&self, value: Value, lane: i64) -> Option<i64> {
        self.value(value, lane)?.as_int().and_then(|v| i64::try_from(v).ok())
    }

    #[deny(clippy::wildcard_enum_match_arm)]
    fn find(&self, value: Value, lane: i64, fuel: &mut usize) -> Option<Scalar> {
        use TileOp::*;
        *fuel = fuel.checked_sub(1)?;
        if let Some(&v) = self.variables.get(&value) {
            return Some(Scalar::I64(v));
        }
        let Type::Scalar(dtype) = *self.func.ty(value) else { return None };
        if dtype.is_float() {
            return None;
        }
        let of_type = |v: i64| Some(cast(Scalar::I64(v), DType::I64, dtype));
        let Some(op) = self.func.def(value) else {
            let name = self.func.name_of(value)?;
            let is_param = self.func.params().contains(&value);
            return of_type(*self.sizes.0.get(name).filter(|_| is_param)?);
        };
        let axis = || op.attr("axis").and_then(Attr::as_int).map(|a| a as usize);
        let args = |fuel: &mut usize| -> Option<Vec<Scalar>> {
            op.operands.iter().map(|&v| self.find(v, lane, fuel)).collect()
        };
        match op.code {
            Const => {
                let value = op.attr("value")?;
                value.as_bool().map(Scalar::Bool).or_else(|| of_type(value.as_int()?))
            }
            Dim => of_type(self.sizes.eval(&op.attr("name")?.as_expr()?).ok()?),
            ProgramId => of_type(*self.programs.get(axis()?)?),
            NumPrograms => of_type(*self.grid.get(axis()?)?),
            LinearId => of_type(self.along(lane, lane_axis(op).unwrap_or(0))?),
            LocalId => of_type(self.in_group(lane, lane_axis(op))?),
            GroupSize => of_type(self.lanes),
            Cast => {
                let from = self.func.ty(op.operands[0]).dtype();
                Some(cast(args(fuel)?[0], from, dtype))
            }
            Select => match args(fuel)?[..] {
                [Scalar::Bool(true), a, _] => Some(a),
                [Scalar::Bool(false), _, b] => Some(b),
                _ => None,
            },
            Ew(f) => eval(f, &args(fuel)?),
            For | If | While | Yield | Return | SlowPath | WarpSize | Origin | Iota | Bitcast
            | Reshape | Transpose | Broadcast | Expand | Load | Store | Gather | Scatter
            | Accumulate | BufAlloc | CopyAsync | Barrier | Atomic | CopyCommit | CopyWait
            | Mma | GroupReduce | GroupScan | GroupBroadcast | GroupShuffle | Philox | Print
            | Assert | Reduce | Scan | ArgReduce | Slice | Concat | Take | ReduceBy | ScanBy
            | Sort | Histogram | Owned | Asm | AsmEffect => None,
        }
    }

    /// The lanes of a range in which a condition holds, where they are one range and are known.
    pub fn holds(&self, condition: Value, lanes: &Range<i64>) -> Option<Range<i64>> {
        let at = |lane| match self.value(condition, lane) {
            Some(Scalar::Bool(b)) => Some(b),
            _ => None,
        };
        let (first, last) = (at(lanes.start)?, at(lanes.end - 1)?);
        let all = |holds| if holds { lanes.clone() } else { lanes.start..lanes.start };
        if !self.varies(condition, &mut { FUEL }) {
            return Some(all(first));
        }
        let op = self.func.def(condition)?;
        let TileOp::Ew(f) = op.code else { return None };
        match f {
            ScalarFn::And => {
                let a = self.holds(op.operands[0], lanes)?;
                let b = self.holds(op.operands[1], lanes)?;
                let start = a.start.max(b.start);
                Some(start..a.end.min(b.end).max(start))
            }
            ScalarFn::Lt | ScalarFn::Le | ScalarFn::Gt | ScalarFn::Ge
                if op.operands.iter().all(|&v| self.is_linear(v, &mut { FUEL })) =>
            {
                // Along one of several axes it changes in every row.
                let mut axes = BTreeSet::new();
                self.axes_of(condition, &mut axes, &mut { FUEL });
                if axes.len() > 1 || (lane_axes(self.func) > 1 && first != last) {
                    return None;
                }
                if first == last {
                    return Some(all(first));
                }
                // The condition changes once: find where.
                let (mut before, mut after) = (lanes.start, lanes.end - 1);
                while after - before > 1 {
                    let middle = before + (after - before) / 2;
                    *(if at(middle)? == first { &mut before } else { &mut after }) = middle;
                }
                Some(if first { lanes.start..after } else { after..lanes.end })
            }
            _ => None,
        }
    }

    /// The axes of the lanes that a value depends on.
    fn axes_of(&self, value: Value, axes: &mut BTreeSet<usize>, fuel: &mut usize) {
        let Some(left) = fuel.checked_sub(1) else { return };
        *fuel = left;
        let Some(op) = self.func.def(value) else { return };
        if op.code == TileOp::LinearId {
            axes.insert(lane_axis(op).unwrap_or(0));
        }
        op.operands.iter().for_each(|&v| self.axes_of(v, axes, fuel));
    }

    /// Whether a value may differ between lanes.
    pub fn varies(&self, value: Value, fuel: &mut usize) -> bool {
        let Some(left) = fuel.checked_sub(1) else { return true };
        *fuel = left;
        let Some(op) = self.func.def(value) else { return false };
        matches!(op.code, TileOp::LinearId | TileOp::LocalId)
            || op.operands.iter().any(|&v| self.varies(v, fuel))
    }

    /// Whether a value is `a + b · lane`.
    fn is_linear(&self, value: Value, fuel: &mut usize) -> bool {
        if !self.varies(value, &mut { FUEL }) {
            return true;
        }
        let Some(left) = fuel.checked_sub(1) else { return false };
        *fuel = left;
        let Some(op) = self.func.def(value) else { return false };
        match op.code {
            TileOp::LinearId => true,
            TileOp::Cast => self.is_linear(op.operands[0], fuel),
            TileOp::Ew(ScalarFn::Add | ScalarFn::Sub | ScalarFn::Neg) => {
                op.operands.iter().all(|&v| self.is_linear(v, fuel))
            }
            TileOp::Ew(ScalarFn::Mul) => {
                op.operands.iter().any(|&v| !self.varies(v, &mut { FUEL }))
                    && op.operands.iter().all(|&v| self.is_linear(v, fuel))
            }
            _ => false,
        }
    }
}
