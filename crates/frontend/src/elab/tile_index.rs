//! Subscripts of tiles, which are values: positions, slices, new axes, index tiles. They mean what
//! NumPy's do; a slice has an extent that is known, and lies inside the tile.

use super::val::{Const, Val};
use super::{Elab, show_shape};
use ruff_python_ast::{Expr, ExprSlice};
use ruff_text_size::Ranged;
use tessera_diag::Code;
use tessera_ir::{Attr, Dim, OpSpec, Shape, Type, Value};
use tessera_numerics::{DType, ReduceOp, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

/// What a subscript takes of one axis.
enum Item {
    Whole,
    /// One position that is known; the axis goes.
    Point(i64),
    /// From a start that is known, with a step that may be below zero.
    Part {
        start: i64,
        step: i64,
        extent: Dim,
    },
    /// One position of run time; the axis goes.
    At(Value),
    /// From a start of run time.
    From {
        start: Value,
        step: i64,
        extent: Dim,
    },
    /// Positions from an index tile.
    Gather(Value),
}

const OUTSIDE: &str =
    "a tile has no elements outside; slices of arrays are padded, slices of tiles are not";

impl Elab<'_> {
    pub fn tile_subscript(&mut self, value: Value, items: &[&Expr]) -> Val {
        let shape = self.ty(value).shape().to_vec();
        let dots = |e: &&&Expr| matches!(e, Expr::EllipsisLiteral(_));
        if items.iter().filter(dots).count() > 1 {
            return self.error_help(
                Code::E_SYNTAX,
                "expected `...` once in a subscript, got it again",
                "write `:` for the other axes",
            );
        }
        let new = |e: &&&Expr| matches!(e, Expr::NoneLiteral(_));
        let written = items.iter().filter(|e| !dots(e) && !new(e)).count();
        if written > shape.len() {
            let (rank, shown) = (shape.len(), show_shape(&shape));
            return self.error_help(
                Code::E_SHAPE_MISMATCH,
                format!("expected at most {rank} axes for a tile of shape {shown}, got {written}"),
                "a tile takes one index or slice for each of its axes, and `None` for each new one: `t[:, None]`",
            );
        }
        let mut taken = Vec::new();
        // Where new axes are among the axes that stay.
        let mut kept = 0;
        let mut new_axes = Vec::new();
        for item in items {
            match item {
                Expr::NoneLiteral(_) => {
                    new_axes.push(kept + new_axes.len());
                    continue;
                }
                Expr::EllipsisLiteral(_) => {
                    for _ in 0..shape.len() - written {
                        taken.push(Item::Whole);
                        kept += 1;
                    }
                    continue;
                }
                _ => {}
            }
            let Some(item) = self.tile_item(item, &shape[taken.len()]) else { return Val::Poison };
            kept += match &item {
                Item::Point(_) | Item::At(_) => 0,
                Item::Gather(index) => self.ty(*index).rank(),
                Item::Whole | Item::Part { .. } | Item::From { .. } => 1,
            };
            taken.push(item);
        }
        taken.resize_with(shape.len(), || Item::Whole);
        let Some(mut out) = self.taken(value, &shape, taken) else { return Val::Poison };
        for axis in new_axes {
            if self.ty(out).rank() == 0 {
                let spec = OpSpec::new(TileOp::Broadcast, &[out])
                    .result(Type::value(vec![Dim::Static(1)], self.ty(out).dtype()));
                out = self.b().value(spec).expect("the result type is given");
                continue;
            }
            out = self.b().expand(out, axis);
        }
        Val::Rt(out)
    }

    fn tile_item(&mut self, item: &Expr, dim: &Dim) -> Option<Item> {
        if let Expr::Slice(s) = item {
            self.loc = self.place(s.range());
            return self.tile_slice(s, dim);
        }
        let v = self.expr(item);
        self.loc = self.place(item.range());
        if let Some(at) = v.as_const_int() {
            let Some(size) = dim.as_static() else { return Some(Item::Point(at.max(0))) };
            let from_start = if at < 0 { at + size } else { at };
            if !(0..size).contains(&from_start) {
                self.error_help(
                    Code::E_SHAPE_MISMATCH,
                    format!(
                        "expected a position from {} to {} of the tile's axis, got {at}",
                        -size,
                        size - 1
                    ),
                    "a tile has no elements outside: check the extent of the axis",
                );
                return None;
            }
            return Some(Item::Point(from_start));
        }
        if let Val::Tuple(_) = v {
            self.error_help(
                Code::E_TYPE,
                "expected an integer, a slice or an index tile in the subscript of a tile, got a tuple",
                "make an index tile: ts.tile.arange, or a captured table indexed by it",
            );
            return None;
        }
        let index = self.runtime(&v)?;
        match self.ty(index).clone() {
            Type::Tile { dtype, .. } if dtype.is_int() => Some(Item::Gather(index)),
            Type::Tile { dtype: DType::Bool, .. } => {
                self.error_help(
                    Code::E_UNSUPPORTED,
                    "a mask of bools in the subscript of a tile is not supported: its result would have no known extent",
                    "choose elements with ts.tile.where(mask, t, other)",
                );
                None
            }
            _ => Some(Item::At(self.index_value(&Val::Rt(index))?)),
        }
    }

    /// A slice of a tile. Bounds below zero count from the end, as a step below zero runs.
    fn tile_slice(&mut self, s: &ExprSlice, dim: &Dim) -> Option<Item> {
        if s.lower.is_none() && s.upper.is_none() && s.step.is_none() {
            return Some(Item::Whole);
        }
        self.settle_variables(s.lower.as_deref());
        let lower = s.lower.as_deref().map(|e| self.expr(e));
        let upper = s.upper.as_deref().map(|e| self.expr(e));
        let step = s.step.as_deref().map_or(Val::int(1), |e| self.expr(e));
        self.loc = self.place(s.range());
        let by = match step.as_const_int().filter(|s| *s != 0) {
            Some(by) => by,
            None if matches!(step, Val::Open(_)) => 1,
            None => {
                let what = self.describe(&step);
                self.error_help(
                    Code::E_ARGUMENT,
                    format!(
                        "expected a step that is a compile-time integer other than 0, got {what}"
                    ),
                    "write `t[a:b:2]`, or `t[::-1]` to run backwards",
                );
                return None;
            }
        };
        let run_time = |v: &Option<Val>| matches!(v, Some(Val::Rt(_) | Val::Block(_)));
        if run_time(&lower) || run_time(&upper) {
            let (lower, upper) =
                (lower.unwrap_or(Val::int(0)), upper.unwrap_or_else(|| super::names::dim_val(dim)));
            let extent = self.slice_extent(s, &lower, &upper)?;
            let start = self.slice_start(&lower)?;
            if by < 1 {
                self.error_help(
                    Code::E_ARGUMENT,
                    "expected a step above 0 in a slice from a position of run time",
                    "take the slice first, then flip it: ts.tile.flip(t[a:a + 8])",
                );
                return None;
            }
            let extent = match extent {
                Dim::Static(v) if v < 0 => return self.backwards(v),
                Dim::Static(v) => Dim::Static((v + by - 1) / by),
                other => other,
            };
            return Some(Item::From { start, step: by, extent });
        }
        let size = dim.as_static();
        let known = |v: &Option<Val>| v.as_ref().map(Val::as_const_int);
        let (Some(size), false) =
            (size, matches!(known(&lower), Some(None)) || matches!(known(&upper), Some(None)))
        else {
            return self.open_slice(s, lower, upper, dim, by);
        };
        // Bounds and steps may be any integers; their sums are computed in twice the width.
        let (wide, by_wide) = (i128::from(size), i128::from(by));
        let bound = |v: Option<Option<i64>>, otherwise: i128| match v.flatten().map(i128::from) {
            Some(i) if i < 0 => i + wide,
            Some(i) => i,
            None => otherwise,
        };
        let (first, end) = if by > 0 { (0, wide) } else { (wide - 1, -1) };
        let (start, stop) = (bound(known(&lower), first), bound(known(&upper), end));
        let extent = (stop - start + by_wide - by_wide.signum()) / by_wide;
        let last = start + (extent - 1) * by_wide;
        let inside = |p: i128| (0..wide).contains(&p);
        if extent < 0 {
            return self.backwards(i64::try_from(extent).unwrap_or(i64::MIN));
        }
        if extent > 0 && !(inside(start) && inside(last)) {
            self.error_help(
                Code::E_SHAPE_MISMATCH,
                format!(
                    "expected a slice inside the tile's axis of extent {size}, got positions {start} to {last}"
                ),
                OUTSIDE,
            );
            return None;
        }
        // Both are inside the axis, or the slice has no element.
        let (start, extent) = (if extent == 0 { 0 } else { start as i64 }, extent as i64);
        // Of one element no step is taken.
        let step = if extent > 1 { by } else { 1 };
        Some(Item::Part { start, step, extent: Dim::Static(extent) })
    }

    /// A slice whose bounds or whose tile are not known yet, or are dimensions.
    fn open_slice(
        &mut self,
        s: &ExprSlice,
        lower: Option<Val>,
        upper: Option<Val>,
        dim: &Dim,
        step: i64,
    ) -> Option<Item> {
        let (lower, upper) =
            (lower.unwrap_or(Val::int(0)), upper.unwrap_or_else(|| super::names::dim_val(dim)));
        if lower == Val::Poison || upper == Val::Poison {
            return None;
        }
        if self.mode == super::Mode::Full {
            // Dimensions that the configuration fixes: the extents are those of the tile's slice.
            let fixed = |e: &mut Self, v: &Val| match v {
                Val::Dim(d) => match e.static_dim(d) {
                    Some(Dim::Static(v)) => Some(Val::int(v)),
                    _ => None,
                },
                v => v.as_const_int().map(Val::int),
            };
            if let (Some(a), Some(b), Some(_)) =
                (fixed(self, &lower), fixed(self, &upper), dim.as_static())
            {
                let start = a.as_const_int().unwrap_or(0);
                let stop = b.as_const_int().unwrap_or(0);
                let size = dim.as_static().unwrap_or(0);
                let extent = (stop - start + step - 1) / step;
                if step > 0 && start >= 0 && extent >= 0 && stop <= size {
                    return Some(Item::Part { start, step, extent: Dim::Static(extent) });
                }
                self.error_help(
                    Code::E_SHAPE_MISMATCH,
                    format!("expected a slice inside the tile's axis of extent {size}, got {start} to {stop}"),
                    OUTSIDE,
                );
                return None;
            }
        }
        let extent = match self.slice_extent(s, &lower, &upper)? {
            Dim::Static(v) if step == 1 && v >= 0 => Dim::Static(v),
            _ => Dim::Any,
        };
        Some(Item::Part { start: 0, step, extent })
    }

    fn backwards(&mut self, extent: i64) -> Option<Item> {
        self.error_help(
            Code::E_SHAPE_MISMATCH,
            format!(
                "expected a slice that ends at its start or after it, got an extent of {extent}"
            ),
            "write `start : start + T` with a `T` of at least 0",
        );
        None
    }

    /// The parts of a tile that a subscript names, without new axes.
    fn taken(&mut self, value: Value, shape: &[Dim], items: Vec<Item>) -> Option<Value> {
        let indices = items.iter().filter(|i| matches!(i, Item::Gather(_))).count();
        let others = items.iter().any(|i| matches!(i, Item::At(_) | Item::Point(_)));
        if indices > 1 || indices == 1 && others {
            return self.taken_by_tiles(value, shape, &items);
        }
        // What is known, in one slice.
        let dtype = self.ty(value).dtype();
        let (mut start, mut step) = (Vec::new(), Vec::new());
        let mut extents: Shape = Vec::new();
        for (item, dim) in items.iter().zip(shape) {
            let (at, by, extent) = match item {
                Item::Point(at) => (*at, 1, Dim::Static(1)),
                Item::Part { start, step, extent } => (*start, *step, extent.clone()),
                Item::Whole | Item::At(_) | Item::From { .. } | Item::Gather(_) => {
                    (0, 1, dim.clone())
                }
            };
            start.push(at);
            step.push(by);
            extents.push(extent);
        }
        let mut out = self.slice_value(value, &start, &step, extents);
        // Positions of run time, one axis after another.
        for (axis, item) in items.iter().enumerate() {
            match item {
                Item::At(at) => {
                    let one = Type::value(vec![Dim::Static(1)], DType::I64);
                    let spec = OpSpec::new(TileOp::Broadcast, &[*at]).result(one);
                    let index = self.b().value(spec).expect("the result type is given");
                    out = self.take_rows(out, index, axis)?;
                }
                Item::From { start, step, extent } => {
                    let Val::Rt(counted) = crate::api::iota(self, extent) else { return None };
                    let counted = self.b().cast(counted, DType::I64);
                    let far = self.binary(ScalarFn::Mul, Val::Rt(counted), Val::int(*step));
                    let Val::Rt(index) = self.binary(ScalarFn::Add, far, Val::Rt(*start)) else {
                        return None;
                    };
                    out = self.take_rows(out, index, axis)?;
                }
                Item::Whole | Item::Point(_) | Item::Part { .. } | Item::Gather(_) => {}
            }
        }
        // An index tile may put several axes in place of one, so it comes last.
        for (axis, item) in items.iter().enumerate() {
            let Item::Gather(index) = item else { continue };
            let of = self.ty(*index).shape().to_vec();
            let flat = self.flattened(*index);
            out = self.take_rows(out, flat, axis)?;
            if of.len() > 1 {
                let mut dims = self.ty(out).shape().to_vec();
                dims.splice(axis..=axis, of);
                let spec = OpSpec::new(TileOp::Reshape, &[out]).result(Type::value(dims, dtype));
                out = self.b().value(spec).expect("the result type is given");
            }
        }
        let dropped: Vec<usize> = (0..items.len())
            .filter(|&d| matches!(items[d], Item::Point(_) | Item::At(_)))
            .collect();
        Some(self.without_axes(out, &dropped))
    }

    /// Index tiles and positions for every axis: the elements one by one.
    fn taken_by_tiles(&mut self, value: Value, shape: &[Dim], items: &[Item]) -> Option<Value> {
        let mut positions = Vec::new();
        for item in items {
            positions.push(match item {
                Item::Gather(v) | Item::At(v) => Val::Rt(self.b().cast(*v, DType::I64)),
                Item::Point(at) => Val::int(*at),
                Item::Whole | Item::Part { .. } | Item::From { .. } => {
                    self.error_help(
                        Code::E_UNSUPPORTED,
                        "expected index tiles and integers for all axes of the tile, or one index tile beside whole axes",
                        "give a tile for each axis: rows[:, None] and ts.tile.arange(n)[None, :]",
                    );
                    return None;
                }
            });
        }
        let mut linear = Val::int(0);
        let mut inside = Val::Const(Const::Bool(true));
        for (at, dim) in positions.into_iter().zip(shape) {
            let size = super::names::dim_val(dim);
            let above = self.binary(ScalarFn::Ge, at.clone(), Val::int(0));
            let below = self.binary(ScalarFn::Lt, at.clone(), size.clone());
            inside = self.binary(ScalarFn::And, inside, above);
            inside = self.binary(ScalarFn::And, inside, below);
            linear = self.binary(ScalarFn::Mul, linear, size);
            linear = self.binary(ScalarFn::Add, linear, at);
        }
        let inside = self.runtime(&inside)?;
        let Val::Rt(index) = self.select(inside, linear, Val::int(-1)) else { return None };
        let of = self.ty(index).shape().to_vec();
        let (flat, index) = (self.flattened(value), self.flattened(index));
        let out = self.take_rows(flat, index, 0)?;
        if of.len() == 1 {
            return Some(out);
        }
        let spec =
            OpSpec::new(TileOp::Reshape, &[out]).result(Type::value(of, self.ty(out).dtype()));
        self.b().value(spec).ok()
    }

    /// A part of a tile at known positions; the tile itself where that is all of it.
    pub fn slice_value(&mut self, x: Value, start: &[i64], step: &[i64], extents: Shape) -> Value {
        let whole = extents == self.ty(x).shape() && step.iter().all(|&s| s == 1);
        if whole {
            return x;
        }
        let ty = Type::value(extents, self.ty(x).dtype());
        let mut spec = OpSpec::new(TileOp::Slice, &[x])
            .attr("start", Attr::ints(start.iter().copied()))
            .result(ty);
        if step.iter().any(|&s| s != 1) {
            spec = spec.attr("step", Attr::ints(step.iter().copied()));
        }
        self.b().value(spec).expect("the result type is given")
    }

    /// The positions of a rank-1 index tile along an axis.
    pub fn take_rows(&mut self, x: Value, index: Value, axis: usize) -> Option<Value> {
        let mut dims = self.ty(x).shape().to_vec();
        dims[axis] = self.ty(index).shape()[0].clone();
        let mut tile = index;
        for other in (0..dims.len()).filter(|&d| d != axis) {
            tile = self.b().expand(tile, other);
        }
        let tile = self.b().broadcast(tile, dims);
        self.take_value(x, tile, axis)
    }

    /// Elements by a tile of positions along one axis.
    pub fn take_value(&mut self, x: Value, index: Value, axis: usize) -> Option<Value> {
        let ty = self.ty(index).with_dtype(self.ty(x).dtype());
        let spec =
            OpSpec::new(TileOp::Take, &[x, index]).attr("axis", Attr::Int(axis as i64)).result(ty);
        self.b().value(spec).ok()
    }

    /// All elements in row-major order.
    pub fn flattened(&mut self, x: Value) -> Value {
        let ty = self.ty(x).clone();
        if ty.rank() == 1 {
            return x;
        }
        let whole = |s: Vec<i64>| s.iter().try_fold(1i64, |n, &d| n.checked_mul(d));
        let count = ty.static_shape().and_then(whole).map_or(Dim::Any, Dim::Static);
        let spec = OpSpec::new(TileOp::Reshape, &[x]).result(Type::value(vec![count], ty.dtype()));
        self.b().value(spec).expect("the result type is given")
    }

    /// A tile without these axes of extent 1; a scalar where none is left.
    pub fn without_axes(&mut self, x: Value, axes: &[usize]) -> Value {
        if axes.is_empty() {
            return x;
        }
        let ty = self.ty(x).clone();
        let mut dims: Shape = Vec::new();
        for (d, dim) in ty.shape().iter().enumerate() {
            if !axes.contains(&d) {
                dims.push(dim.clone());
            }
        }
        let all = dims.is_empty();
        if all {
            dims.push(Dim::Static(1));
        }
        let mut out = x;
        if dims != ty.shape() {
            let spec = OpSpec::new(TileOp::Reshape, &[x]).result(Type::value(dims, ty.dtype()));
            out = self.b().value(spec).expect("the result type is given");
        }
        if all {
            // Of one element every reduction is the element.
            let op = if ty.dtype() == DType::Bool { ReduceOp::Or } else { ReduceOp::Max };
            // Storage types that are not compared as they are have their values in what they are
            // computed in.
            let wide =
                if op.combine().accepts(ty.dtype()) { ty.dtype() } else { ty.dtype().compute() };
            out = self.b().cast(out, wide);
            out = self.b().reduce(out, op, 0);
            out = self.b().cast(out, ty.dtype());
        }
        out
    }
}
