//! Subscripts: places in memory, their loads and stores, and new axes on tiles.

use super::val::{BlockRef, Const, Reach, Val};
use super::{Elab, Mode, Origin, show_shape};
use ruff_python_ast::{Expr, ExprSubscript, Operator};
use ruff_text_size::Ranged;
use tessera_diag::{Code, Diagnostic};
use tessera_ir::{Attr, Dim, DimExpr, OpSpec, Shape, Type, Value};
use tessera_numerics::{Accum, DType, ScalarFn};
use tessera_tile::{KernelKind, TileBuild, TileOp, distance};

impl Elab<'_> {
    pub fn subscript(&mut self, s: &ExprSubscript) -> Val {
        let base = self.expr(&s.value);
        self.subscript_of(base, s)
    }

    /// The same of a base that was evaluated before.
    pub fn subscript_of(&mut self, base: Val, s: &ExprSubscript) -> Val {
        let items: Vec<&Expr> = match &*s.slice {
            Expr::Tuple(t) => t.elts.iter().collect(),
            one => vec![one],
        };
        match base {
            Val::Poison => Val::Poison,
            Val::None => self.subscript_of_none(&s.value),
            Val::View(v) if self.points.contains(&v) => self.point_at(v, &s.slice),
            Val::View(v) if self.is_table(v, &items) => self.table_at(v, &items),
            Val::View(v) => self.block_of(v, &items, false),
            Val::ViewT(v) => self.block_of(v, &items, true),
            Val::Buf { buf, transposed: false } => self.block_of(buf, &items, false),
            Val::Local { buf, own } => self.local_place(buf, own, &items),
            Val::Tuple(parts) => {
                if let [Expr::Slice(slice)] = items[..] {
                    return self.tuple_slice(&parts, slice);
                }
                let index = items.first().map_or(Val::Poison, |e| self.expr(e));
                self.loc = self.place(s.range());
                let name = match &*s.value {
                    Expr::Name(n) => n.id.as_str(),
                    Expr::Attribute(a) => a.attr.as_str(),
                    _ => "tuple",
                };
                self.tuple_at(name, &parts, index)
            }
            Val::Rt(_) | Val::Buf { .. } | Val::Block(_) => {
                let Some(value) = self.runtime(&base) else { return Val::Poison };
                self.tile_subscript(value, &items)
            }
            other => {
                let what = self.describe(&other);
                self.error_help(
                    Code::E_TYPE,
                    format!("expected a tensor, tile or tuple before `[`, got {what}"), "subscripts take elements of arrays, shared buffers and tuples, and put axes into tiles: `t[:, None]`")
            }
        }
    }

    /// An element of a private array: one position for each of its axes.
    fn local_place(&mut self, buf: Value, own: Value, items: &[&Expr]) -> Val {
        let dims = self.ty(buf).shape().to_vec();
        let rank = dims.len() - 1;
        let whole = |e: &&Expr| matches!(e, Expr::Slice(_) | Expr::EllipsisLiteral(_));
        if items.len() != rank || items.iter().any(whole) {
            return self.error_help(
                Code::E_SHAPE_MISMATCH,
                format!("expected one index for each of {rank} axes of a private array"),
                "a lane reads and writes its elements one at a time: `a[i]`",
            );
        }
        let mut block = BlockRef::new(buf);
        for (item, dim) in items.iter().zip(&dims) {
            let Some((at, reach)) = self.point_axis(item, dim) else { return Val::Poison };
            block.push(at, reach, 1);
        }
        block.push(own, Reach::Point, 1);
        Val::Block(Box::new(block))
    }

    /// The place in memory that a subscript names.
    pub fn block_of(&mut self, mem: Value, items: &[&Expr], transposed: bool) -> Val {
        let ty = self.ty(mem).clone();
        let name = self.func.name_of(mem).unwrap_or("buffer").to_string();
        let is_dots = |e: &&Expr| matches!(e, Expr::EllipsisLiteral(_));
        let dots = items.iter().position(is_dots);
        if items.iter().filter(|e| is_dots(e)).count() > 1 {
            return self.error_help(
                Code::E_SYNTAX,
                "expected `...` once in a subscript, got it again",
                "write `:` for the other axes",
            );
        }
        // `...` stands for as many whole axes as are not written out.
        let mut items: Vec<Option<&Expr>> = items.iter().copied().map(Some).collect();
        if let Some(dots) = dots {
            let rest = ty.rank().saturating_sub(items.len() - 1);
            items.splice(dots..=dots, std::iter::repeat_n(None, rest));
        }
        if items.len() > ty.rank() {
            return self.error_help(
                Code::E_SHAPE_MISMATCH,
                format!(
                    "expected at most {} indices for `{name}` of shape {}, got {}",
                    ty.rank(),
                    show_shape(ty.shape()),
                    items.len()
                ),
                "give one index or slice for each axis; `...` stands for those that are left out",
            );
        }
        let mut block = BlockRef::new(mem);
        let mut dims = ty.shape().to_vec();
        if transposed {
            dims.reverse();
        }
        for (axis, dim) in dims.iter().enumerate() {
            let mut step = 1;
            let placed = match items.get(axis).copied().flatten() {
                None => self.whole_axis(dim),
                Some(item @ Expr::Slice(s))
                    if s.lower.is_none() && s.upper.is_none() && s.step.is_none() =>
                {
                    self.loc = self.place(item.range());
                    self.whole_axis(dim)
                }
                Some(Expr::Slice(s)) => {
                    self.loc = self.place(s.range());
                    match self.slice_step(s) {
                        Some(by) => step = by,
                        None => return Val::Poison,
                    }
                    self.slice_axis(s, dim, step)
                }
                Some(item) => self.point_axis(item, dim),
            };
            let Some((at, reach)) = placed else { return Val::Poison };
            block.push(at, reach, step);
        }
        if self.kind == KernelKind::Lane && block.reach.iter().any(|r| *r != Reach::Point) {
            return self.error_help(
                Code::E_STYLE_MIX,
                format!("expected one scalar index for each axis of `{name}` in a lane kernel, got a slice"),
                "a lane kernel handles one element per lane; for tiles, use ts.tile.program_id instead of lane ids",
            );
        }
        if block.reach.contains(&Reach::Gather) && !self.join_indices(&mut block, &dims) {
            return Val::Poison;
        }
        if transposed {
            block.reverse();
        }
        Val::Block(Box::new(block))
    }

    /// Index tiles of several axes broadcast like operands; beside a whole axis (`W[ids, :]`) one
    /// of rank 1 picks rows. `dims` are the memory's in the order of the subscript.
    pub fn join_indices(&mut self, block: &mut BlockRef, dims: &[Dim]) -> bool {
        let tiles: Vec<usize> =
            (0..block.at.len()).filter(|&i| block.reach[i] == Reach::Gather).collect();
        let spans: Vec<usize> =
            (0..block.at.len()).filter(|&i| matches!(block.reach[i], Reach::Span(_))).collect();
        if spans.is_empty() {
            let values: Vec<Value> = tiles.iter().map(|&i| block.at[i]).collect();
            let Some(joined) = self.unify_shapes(&values) else { return false };
            for (place, v) in tiles.into_iter().zip(joined) {
                block.at[place] = v;
            }
            return true;
        }
        let whole = spans.iter().all(|&i| match &block.reach[i] {
            Reach::Span(d) => {
                let from_start = self
                    .func
                    .def(block.at[i])
                    .is_some_and(|op| op.attr("value") == Some(&Attr::Int(0)));
                from_start && (dims[i] == *d || self.mode == Mode::Check)
            }
            _ => false,
        });
        if !whole || tiles.len() != 1 || self.ty(block.at[tiles[0]]).rank() != 1 {
            self.error_help(
                Code::E_UNSUPPORTED,
                "expected one rank-1 index tile beside whole axes (`W[ids, :]`), or index tiles and scalars only",
                "give a tile for each axis: rows[:, None] and ts.tile.arange(n)[None, :]",
            );
            return false;
        }
        let kept: Vec<usize> =
            (0..block.at.len()).filter(|&i| block.reach[i] != Reach::Point).collect();
        let mut values = Vec::new();
        for (place, &axis) in kept.iter().enumerate() {
            let mut tile = match &block.reach[axis] {
                Reach::Span(d) => match crate::api::iota(self, d) {
                    Val::Rt(v) => v,
                    _ => return false,
                },
                _ => block.at[axis],
            };
            for other in (0..kept.len()).filter(|o| *o != place) {
                tile = self.b().expand(tile, other);
            }
            values.push(tile);
        }
        let Some(joined) = self.unify_shapes(&values) else { return false };
        for (axis, v) in kept.into_iter().zip(joined) {
            block.at[axis] = v;
            block.reach[axis] = Reach::Gather;
        }
        true
    }

    fn whole_axis(&mut self, dim: &Dim) -> Option<(Value, Reach)> {
        let extent = match dim {
            Dim::Static(v) => Dim::Static(*v),
            Dim::Expr(e) => self.static_dim(e)?,
            Dim::Any => Dim::Any,
        };
        Some((self.b().index(0), Reach::Span(extent)))
    }

    fn point_axis(&mut self, item: &Expr, dim: &Dim) -> Option<(Value, Reach)> {
        let v = self.expr(item);
        let here = self.place(item.range());
        let outer = std::mem::replace(&mut self.loc, here);
        let out = self.point_value(&v, dim);
        self.loc = outer;
        out
    }

    pub fn point_value(&mut self, v: &Val, dim: &Dim) -> Option<(Value, Reach)> {
        match v {
            // A constant below zero counts from the end.
            Val::Const(Const::Int(i)) if *i < 0 => {
                let size = super::names::dim_val(dim);
                let at = self.binary(ScalarFn::Add, size, Val::Const(Const::Int(*i)));
                Some((self.index_value(&at)?, Reach::Point))
            }
            Val::None => {
                self.error_help(
                    Code::E_TYPE,
                    "expected an index, got None",
                    "load the tile first, then add the axis: `t = x[...]`, `t[:, None]`",
                );
                None
            }
            Val::Origin(name) => {
                self.error_help(
                    Code::E_NAME,
                    format!("`{name}` is not defined here"),
                    format!("a tile origin is used as a slice: `{name}:{name}+64`"),
                );
                None
            }
            other => {
                let value = self.runtime(other)?;
                let ty = self.ty(value).clone();
                match &ty {
                    Type::Tile { dtype, .. } if dtype.is_int() => Some((value, Reach::Gather)),
                    _ => Some((self.index_value(&Val::Rt(value))?, Reach::Point)),
                }
            }
        }
    }

    /// The step of a slice: a positive compile-time integer.
    fn slice_step(&mut self, s: &ruff_python_ast::ExprSlice) -> Option<i64> {
        let Some(step) = &s.step else { return Some(1) };
        let v = self.expr(step);
        match v {
            Val::Open(_) => Some(1),
            _ => match v.as_const_int().filter(|v| *v > 0) {
                Some(by) => Some(by),
                None => {
                    let what = self.describe(&v);
                    self.error_help(
                        Code::E_ARGUMENT,
                        format!("expected a step that is a positive compile-time integer, got {what}"),
                        "write `x[a:b:2]`; to run backwards, gather: `x[n - 1 - ts.tile.arange(n)]`",
                    );
                    None
                }
            },
        }
    }

    fn slice_axis(
        &mut self,
        s: &ruff_python_ast::ExprSlice,
        dim: &Dim,
        step: i64,
    ) -> Option<(Value, Reach)> {
        self.settle_variables(s.lower.as_deref());
        let lower = s.lower.as_deref().map(|e| self.expr(e)).unwrap_or(Val::int(0));
        if let Val::Origin(name) = &lower {
            if step != 1 {
                self.error_help(
                    Code::E_UNSUPPORTED,
                    format!("expected `{name}:{name}+T` without a step, got a step of {step}"),
                    "the explicit form is a loop over ts.tile.range and ts.tile.program_id",
                );
                return None;
            }
            return self.origin_axis(name, s, dim);
        }
        let upper = match s.upper.as_deref() {
            Some(e) => self.expr(e),
            None => super::names::dim_val(dim),
        };
        if lower == Val::Poison || upper == Val::Poison {
            return None;
        }
        let negative = |v: &Val| v.as_const_int().filter(|i| *i < 0);
        let size = super::names::dim_val(dim);
        let lower = match negative(&lower) {
            Some(i) => self.binary(ScalarFn::Add, size.clone(), Val::int(i)),
            None => lower,
        };
        let upper = match negative(&upper) {
            Some(i) => self.binary(ScalarFn::Add, size, Val::int(i)),
            None => upper,
        };
        let extent = self.slice_extent(s, &lower, &upper)?;
        if let Dim::Static(v) = extent
            && v < 0
        {
            self.error_help(
                Code::E_SHAPE_MISMATCH,
                format!(
                    "expected a slice that ends at its start or after it, got an extent of {v}"
                ),
                "write `start : start + T` with a `T` of at least 0",
            );
            return None;
        }
        let at = self.slice_start(&lower)?;
        let extent = match extent {
            Dim::Static(v) => Dim::Static((v + step - 1) / step),
            Dim::Expr(e) if step != 1 => Dim::Expr(e.ceil_div(step)),
            other => other,
        };
        Some((at, Reach::Span(extent)))
    }

    /// The variables of finished loops in the start of a slice are read once, so that the distance of
    /// the end from it is known.
    pub fn settle_variables(&mut self, bound: Option<&Expr>) {
        match bound {
            Some(Expr::BinOp(e)) => {
                self.settle_variables(Some(&e.left));
                self.settle_variables(Some(&e.right));
            }
            Some(Expr::UnaryOp(e)) => self.settle_variables(Some(&e.operand)),
            Some(Expr::Name(n)) => {
                let Some(v @ Val::After(_)) = self.env().get(n.id.as_str()).cloned() else {
                    return;
                };
                let value = self.read_after(&v, true);
                self.env().insert(n.id.to_string(), value);
            }
            _ => {}
        }
    }

    /// `stop - start`, which must fold to a compile-time integer.
    pub fn slice_extent(
        &mut self,
        s: &ruff_python_ast::ExprSlice,
        lower: &Val,
        upper: &Val,
    ) -> Option<Dim> {
        if matches!(lower, Val::Open(_)) || matches!(upper, Val::Open(_)) {
            return Some(Dim::Any);
        }
        let run_time = |v: &Val| matches!(v, Val::Rt(_) | Val::Block(_));
        if !run_time(lower) && !run_time(upper) {
            return match self.binary(ScalarFn::Sub, upper.clone(), lower.clone()) {
                Val::Const(Const::Int(v)) if i64::try_from(v).is_ok() => {
                    Some(Dim::Static(v as i64))
                }
                Val::Dim(e) => self.static_dim(&e),
                Val::Open(_) => Some(Dim::Any),
                Val::Poison => None,
                other => {
                    let what = self.describe(&other);
                    self.error_help(
                        Code::E_TYPE,
                        format!("expected integer bounds of a slice, got {what}"),
                        "cast it: ts.tile.cast(x, ts.i64)",
                    );
                    None
                }
            };
        }
        let (start, stop) = (self.index_value(lower)?, self.index_value(upper)?);
        match distance(&self.func, start, stop, &self.open_values) {
            Some(DimExpr::Const(v)) => return Some(Dim::Static(v)),
            // A run-time parameter is no dimension that a configuration could fix.
            Some(e)
                if !self.depends_on_open(start)
                    && !self.depends_on_open(stop)
                    && e.symbols()
                        .iter()
                        .all(|s| self.symbols.contains(&**s) || self.factors.contains(&**s)) =>
            {
                return self.static_dim(&e);
            }
            _ => {}
        }
        // While checking, a value that stands for an open constant has no meaning of its own.
        if self.depends_on_open(start) || self.depends_on_open(stop) {
            return Some(Dim::Any);
        }
        let parsed = self.frame().parsed.clone();
        let text =
            |e: &Option<Box<Expr>>| e.as_ref().map_or(String::new(), |e| parsed.snippet(e.range()));
        self.report(
            Diagnostic::new(
                Code::E_DYNAMIC_EXTENT,
                format!(
                    "expected a slice whose extent is a compile-time integer, got `{}` to `{}`",
                    text(&s.lower),
                    text(&s.upper)
                ),
            )
            .help(
                "write `start : start + T` with an integer, tunable or static dimension `T`; give a \
                 start that the end computes again in another way a name first: `j = f(k)`, then \
                 `x[j:j + T]`",
            ),
        );
        None
    }

    /// `tile_m : tile_m + 64` with an unbound `tile_m` (LANGUAGE 4).
    fn origin_axis(
        &mut self,
        name: &str,
        s: &ruff_python_ast::ExprSlice,
        dim: &Dim,
    ) -> Option<(Value, Reach)> {
        let step = match s.upper.as_deref() {
            Some(Expr::BinOp(e)) if e.op == Operator::Add && is_name(&e.left, name) => {
                self.expr(&e.right)
            }
            Some(Expr::BinOp(e)) if e.op == Operator::Add && is_name(&e.right, name) => {
                self.expr(&e.left)
            }
            _ => Val::None,
        };
        let Some(step) = step.as_const_int().filter(|v| *v > 0) else {
            self.error_help(
                Code::E_NAME,
                format!("`{name}` is not defined here"),
                format!("a tile origin is used as `{name}:{name}+T` with a compile-time `T`"),
            );
            return None;
        };
        let size = match dim {
            Dim::Expr(e) => e.clone(),
            Dim::Static(v) => DimExpr::Const(*v),
            Dim::Any => {
                self.error_help(
                    Code::E_LAUNCH_GEOMETRY,
                    format!("expected a named dimension for the origin `{name}`"), "name the dim in the annotation, `ts.Tensor[\"M\", ts.f32]`, or write a loop over ts.tile.range");
                return None;
            }
        };
        if let Some(known) = self.origins.get(name) {
            let (value, before, over) = (known.value, known.step, known.dim.clone());
            if before != step {
                self.error_help(
                    Code::E_LAUNCH_GEOMETRY,
                    format!("expected one extent for the origin `{name}`, got {before} and {step}"),
                    "use one extent for each origin, or two names",
                );
                return None;
            }
            if over != size {
                self.error_help(
                    Code::E_LAUNCH_GEOMETRY,
                    format!(
                        "expected one dimension for the origin `{name}`, got `{over}` and `{size}`"
                    ),
                    "use one origin for each dimension",
                );
                return None;
            }
            return Some((value, Reach::Span(Dim::Static(step))));
        }
        // Origins are at the top of the function: they have the same value at every use.
        let spec = OpSpec::new(TileOp::Origin, &[])
            .attr("name", Attr::word(name))
            .attr("dim", Attr::exprs([size.clone()]))
            .attr("step", Attr::Int(step))
            .result(Type::INDEX);
        let (body, place, loc) = (self.func.body, self.origins.len(), self.loc.clone());
        let id = self.func.insert(body, place, spec, loc).ok()?;
        let value = self.func.ops[id].result();
        self.func.set_name(value, name);
        self.origins.insert(name.to_string(), Origin { value, step, dim: size });
        Some((value, Reach::Span(Dim::Static(step))))
    }

    /// The `extent` attribute of a block; an axis without elements is written as -1, and so are
    /// extents that are open while checking.
    fn extents(block: &BlockRef) -> Vec<i64> {
        let extent = |r: &Reach| match r {
            Reach::Point | Reach::Gather => 0,
            Reach::Span(d) => d.as_static().filter(|&v| v > 0).unwrap_or(-1),
        };
        block.reach.iter().map(extent).collect()
    }

    /// The attributes that say which block of memory an op means.
    pub fn as_block(
        spec: OpSpec<tessera_tile::Tile>,
        block: &BlockRef,
    ) -> OpSpec<tessera_tile::Tile> {
        let spec = spec.attr("extent", Attr::ints(Self::extents(block)));
        if block.step.iter().all(|&s| s == 1) {
            return spec;
        }
        spec.attr("step", Attr::ints(block.step.iter().copied()))
    }

    /// The shape of the value that a block holds.
    pub fn block_shape(&self, block: &BlockRef) -> Shape {
        let mut shape = self.stored_shape(block);
        if block.transposed {
            shape.reverse();
        }
        shape
    }

    /// The same in the order of the memory's axes.
    pub fn stored_shape(&self, block: &BlockRef) -> Shape {
        let gather = block.reach.iter().zip(&block.at).find(|(r, _)| **r == Reach::Gather);
        if let Some((_, at)) = gather {
            return self.ty(*at).shape().to_vec();
        }
        block
            .reach
            .iter()
            .filter_map(|r| if let Reach::Span(d) = r { Some(d.clone()) } else { None })
            .collect()
    }

    pub fn load_block(&mut self, block: &BlockRef) -> Option<Value> {
        self.load_block_other(block, None)
    }

    pub fn load_block_other(&mut self, block: &BlockRef, other: Option<Value>) -> Option<Value> {
        if self.is_packed(block.mem) {
            let value = self.load_packed(block, other)?;
            return self.in_order(block, value);
        }
        let dtype = self.ty(block.mem).dtype();
        let ty = Type::value(self.stored_shape(block), dtype);
        let gather = block.reach.contains(&Reach::Gather);
        let code = if gather { TileOp::Gather } else { TileOp::Load };
        let mut spec = OpSpec::new(code, &[block.mem]).group("at", &block.at).result(ty);
        if let Some(other) = other {
            spec = spec.group("other", &[other]);
        }
        if !gather {
            spec = Self::as_block(spec, block);
        }
        if block.hint == Some("inbounds") {
            spec = spec.attr("inbounds", Attr::Bool(true));
        }
        let value = self.b().value(spec).ok()?;
        self.in_order(block, value)
    }

    /// Between the order of the memory's axes and that of the block's, which are each other's
    /// reverse or the same.
    fn in_order(&mut self, block: &BlockRef, value: Value) -> Option<Value> {
        if !block.transposed || self.ty(value).rank() < 2 {
            return Some(value);
        }
        match self.transpose(value) {
            Val::Rt(v) => Some(v),
            _ => None,
        }
    }

    /// The whole of a shared buffer as a tile.
    pub fn load_buf(&mut self, buf: Value, transposed: bool) -> Value {
        let shape = self.ty(buf).shape().to_vec();
        let dtype = self.ty(buf).dtype();
        let at: Vec<Value> = shape.iter().map(|_| self.b().index(0)).collect();
        let extents = shape.iter().map(|d| d.as_static().filter(|&v| v > 0).unwrap_or(-1));
        let spec = OpSpec::new(TileOp::Load, &[buf])
            .group("at", &at)
            .attr("extent", Attr::ints(extents))
            .result(Type::value(shape, dtype));
        let value = self.b().value(spec).expect("the result type is given");
        if let Some(name) = self.func.name_of(buf).map(str::to_string) {
            self.func.set_name(value, &name);
        }
        if !transposed {
            return value;
        }
        match self.transpose(value) {
            Val::Rt(v) => v,
            _ => value,
        }
    }

    /// Reverses the axes of a tile.
    pub fn transpose(&mut self, value: Value) -> Val {
        let ty = self.ty(value).clone();
        let perm: Vec<i64> = (0..ty.rank() as i64).rev().collect();
        let shape = ty.shape().iter().rev().cloned().collect();
        let spec = OpSpec::new(TileOp::Transpose, &[value])
            .attr("perm", Attr::ints(perm))
            .result(Type::value(shape, ty.dtype()));
        match self.b().value(spec) {
            Ok(v) => Val::Rt(v),
            Err(_) => Val::Poison,
        }
    }

    /// Writes a value into a block, converted by the memory's policy.
    pub fn store_block(&mut self, block: &BlockRef, value: &Val, mask: Option<Value>) {
        let Some(value) = self.fit_block(block, value, None) else { return };
        let Some(value) = self.in_order(block, value) else { return };
        if self.is_packed(block.mem) {
            return self.store_packed(block, value, mask);
        }
        let gather = block.reach.contains(&Reach::Gather);
        let code = if gather { TileOp::Scatter } else { TileOp::Store };
        let mut spec = OpSpec::new(code, &[block.mem, value]).group("at", &block.at);
        if let Some(mask) = mask.and_then(|m| self.in_order(block, m)) {
            spec = spec.group("mask", &[mask]);
        }
        if !gather {
            spec = Self::as_block(spec, block);
        }
        if block.hint == Some("unique") {
            spec = spec.attr("unique", Attr::Bool(true));
        }
        let _ = self.b().op(spec);
    }

    /// Says that the group alone touches a block.
    pub fn own_block(&mut self, block: &BlockRef) {
        if block.reach.contains(&Reach::Gather) {
            self.error_help(
                Code::E_TYPE,
                "expected a slice or an element to own, got positions of an index tile",
                "say it of the store: ts.tile.store(y, index, value, unique=True)",
            );
            return;
        }
        let spec = OpSpec::new(TileOp::Owned, &[block.mem]).group("at", &block.at);
        let _ = self.b().op(Self::as_block(spec, block));
    }

    /// A value of the block's shape, in `dtype` or converted to the memory's storage.
    pub fn fit_block(
        &mut self,
        block: &BlockRef,
        value: &Val,
        dtype: Option<DType>,
    ) -> Option<Value> {
        let shape = self.block_shape(block);
        let mem = self.ty(block.mem).clone();
        let target = dtype.unwrap_or(mem.dtype());
        let value = match value {
            // A float stored into integers is truncated, as a run-time one is.
            Val::Const(Const::Float(_)) if !target.is_float() => self.runtime(value)?,
            Val::Const(c @ (Const::Bool(_) | Const::Int(_) | Const::Float(_))) => {
                self.scalar(c, target)?
            }
            Val::Rt(v) => {
                self.check_widened(*v, target);
                *v
            }
            other => self.runtime(other)?,
        };
        let ty = self.ty(value).clone();
        let fits = ty.rank() == 0
            || (ty.rank() == shape.len()
                && ty.shape().iter().zip(&shape).all(|(a, b)| a.may_equal(b) || a.is_one()));
        if !fits {
            let name = self.func.name_of(block.mem).unwrap_or("buffer").to_string();
            self.error_help(
                Code::E_SHAPE_MISMATCH,
                format!(
                    "expected a value of the slice's shape {} for `{name}`, got {}",
                    show_shape(&shape),
                    super::describe_type(&ty)
                ),
                "take a slice of the same extents, or broadcast the value: `v[:, None]`",
            );
            return None;
        }
        let value = self.convert_to_storage(value, target, &mem);
        Some(self.b().broadcast(value, shape))
    }

    fn convert_to_storage(&mut self, value: Value, target: DType, mem: &Type) -> Value {
        let from = self.ty(value).clone();
        if from.dtype() == target {
            return value;
        }
        let mut spec = OpSpec::new(TileOp::Cast, &[value]).result(from.with_dtype(target));
        if let Type::View { elem, .. } = mem
            && target == elem.storage
        {
            if let Some(mode) = elem.round {
                spec = spec.attr("round", Attr::word(mode.name()));
            }
            if let Some(sat) = elem.saturate {
                spec = spec.attr("saturate", Attr::Bool(sat));
            }
        }
        self.b().value(spec).expect("the result type is given")
    }

    /// The dtype in which elements of memory are added up.
    pub fn sum_type(mem: &Type) -> DType {
        match mem {
            Type::View { elem, .. } => match elem.accumulator() {
                Accum::Type(dtype) => dtype,
                Accum::Fp32Fast => DType::F32,
            },
            other => other.dtype().compute(),
        }
    }

    /// `X[...] += v`, or a fold by a reduction parameter's own operator.
    pub fn accumulate_block(&mut self, block: &BlockRef, value: &Val, op: &str) {
        let mem = self.ty(block.mem).clone();
        if self.is_packed(block.mem) {
            let why = "groups cannot fold values into it, because two elements share a byte";
            let help = "fold into an array of f32, and convert it afterwards";
            return self.refuse_packed(block, why, help);
        }
        if block.reach.contains(&Reach::Gather) {
            // Every contribution counts. Other groups may add too where the parameter says so.
            let wide = matches!(&mem, Type::View { privilege, .. } if privilege.reduces());
            let op = if op == "sum" { "add" } else { op };
            if !tessera_tile::ops::atomic::OPS.contains(&op) {
                self.error_help(
                    Code::E_UNSUPPORTED,
                    format!("accumulating at index tiles with \"{op}\" is not supported"),
                    "accumulate slices: `C[i0:i0 + T]`",
                );
                return;
            }
            let scope = if wide { "device" } else { "block" };
            self.atomic_block(block, value, None, op, "relaxed", scope);
            return;
        }
        let Some(value) = self.fit_block(block, value, Some(Self::sum_type(&mem))) else { return };
        let Some(value) = self.in_order(block, value) else { return };
        let spec = OpSpec::new(TileOp::Accumulate, &[block.mem, value])
            .group("at", &block.at)
            .attr("op", Attr::word(op));
        let _ = self.b().op(Self::as_block(spec, block));
    }
}

fn is_name(e: &Expr, name: &str) -> bool {
    matches!(e, Expr::Name(n) if n.id.as_str() == name)
}
