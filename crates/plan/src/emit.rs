//! Emits the Tile IR function of a fused kernel.

mod access;
mod arrays;

use crate::index::Axis;
use crate::machine::Machine;
use crate::nodes::{Body, Node, NodeId, plain};
use crate::shape::{Shape, shape};
use std::collections::BTreeMap;
use tessera_diag::Loc;
use tessera_ir::{Attr, Builder, Dim, DimExpr, OpSpec, Privilege, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp, Rounding, Scalar, ScalarFn};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

pub use arrays::{ArrayUse, plain_array};
use arrays::{operand_arrays, params};

/// A kernel and the arguments of one launch.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub func: TileFunc,
    pub args: Vec<ArrayUse>,
    pub grid: [i64; 3],
}

/// A value with the tiled axes it varies along, in their order; without any it is a scalar.
#[derive(Clone, Debug)]
struct Held {
    value: Value,
    axes: Vec<Axis>,
}

struct Emitter<'b> {
    b: Builder<'b, Tile>,
    body: &'b Body,
    shape: &'b Shape,
    machine: Machine,
    params: Vec<(ArrayUse, Value)>,
    held: BTreeMap<NodeId, Held>,
    /// Where the group's block begins along each axis.
    starts: BTreeMap<Axis, Value>,
    sums: Option<Held>,
}

pub fn emit(mut body: Body, machine: Machine, ordered: bool, loc: &Loc) -> Result<Kernel, String> {
    body.ordered = ordered;
    let shape = shape(&mut body, machine)?;
    let mut func = TileFunc::new("kernel");
    func.loc = loc.clone();
    func.attrs.set("kind", Attr::word("group"));
    let uses = params(&body, &shape);
    let entry = func.body;
    let mut listed = Vec::new();
    for (i, one) in uses.into_iter().enumerate() {
        let dims = one.dims.iter().map(|&d| Dim::Static(d)).collect();
        let privilege = if one.writes { Privilege::Write } else { Privilege::Read };
        let ty = Type::View { dims, elem: NumType::plain(one.dtype), privilege };
        let name = if one.writes { format!("y{i}") } else { format!("x{i}") };
        let value = func.add_arg(entry, ty, Some(&name));
        listed.push((one, value));
    }
    let b = Builder::at_end(&mut func, entry, loc.clone());
    let mut emitter = Emitter {
        b,
        body: &body,
        shape: &shape,
        machine,
        params: listed,
        held: BTreeMap::new(),
        starts: BTreeMap::new(),
        sums: None,
    };
    emitter.begin();
    if body.product.is_some() {
        emitter.product()?;
    }
    if machine == Machine::Cpu {
        // All loads come before all stores: results may be written over operands (`forward`).
        for write in &body.writes {
            emitter.node(write.node)?;
        }
    }
    for place in 0..body.writes.len() {
        emitter.write(place)?;
    }
    emitter.b.return_();
    let args = emitter.params.iter().map(|(u, _)| u.clone()).collect();
    let axes = shape.grid.iter().rposition(|&g| g != 1).map_or(1, |p| p + 1);
    let grid = Attr::exprs(shape.grid[..axes].iter().map(|&g| DimExpr::Const(g)));
    func.attrs.set("grid", grid);
    if !shape.config.is_empty() {
        func.attrs.set("config", Attr::Dict(shape.config.clone()));
    }
    Ok(Kernel { func, args, grid: shape.grid })
}

impl Emitter<'_> {
    /// Where blocks begin, from the group's coordinates.
    fn begin(&mut self) {
        let mut ids: BTreeMap<usize, Value> = BTreeMap::new();
        for (axis, part) in self.shape.parts.clone() {
            let tile = self.tile_of(axis).unwrap_or(1);
            let matrix = self.shape.matrix.is_some_and(|(r, c)| r == axis || c == axis);
            // Rows and columns follow the grid even where it has one group.
            if part.blocks == 1 && !matrix {
                let zero = self.b.index(0);
                self.starts.insert(axis, zero);
                continue;
            }
            let id = match ids.get(&part.program) {
                Some(&id) => id,
                None => {
                    let spec = OpSpec::new(TileOp::ProgramId, &[])
                        .attr("axis", Attr::Int(part.program as i64))
                        .result(Type::INDEX);
                    let id = self.b.value(spec).expect("the result type is given");
                    ids.insert(part.program, id);
                    id
                }
            };
            let mut at = id;
            if part.divide != 1 {
                let by = self.b.index(part.divide);
                at = self.b.ew(ScalarFn::FloorDiv, &[at, by]);
            }
            if !part.last {
                let by = self.b.index(part.blocks);
                at = self.b.ew(ScalarFn::Mod, &[at, by]);
            }
            if tile != 1 {
                let by = self.b.index(tile);
                at = self.b.ew(ScalarFn::Mul, &[at, by]);
            }
            self.starts.insert(axis, at);
        }
    }

    fn tile_of(&self, axis: Axis) -> Option<i64> {
        self.shape.tiled.iter().find(|(a, _)| *a == axis).map(|(_, t)| *t)
    }

    fn extents(&self, axes: &[Axis]) -> Vec<Dim> {
        axes.iter().map(|&a| Dim::Static(self.tile_of(a).unwrap_or(1))).collect()
    }

    /// The tiled axes among these, in order.
    fn tiled(&self, axes: &[Axis]) -> Vec<Axis> {
        let all = self.shape.tiled.iter().map(|(a, _)| *a);
        all.filter(|a| axes.contains(a)).collect()
    }

    fn start(&mut self, axis: Axis) -> Value {
        match self.starts.get(&axis) {
            Some(&v) => v,
            None => self.b.index(0),
        }
    }

    fn param(&self, one: &ArrayUse) -> Result<Value, String> {
        let found = self.params.iter().find(|(u, _)| u == one);
        found.map(|(_, v)| *v).ok_or_else(|| "an array without a parameter".into())
    }

    /// The same value along more axes.
    fn align(&mut self, x: &Held, axes: &[Axis]) -> Value {
        if x.axes == axes {
            return x.value;
        }
        let mut value = x.value;
        if !x.axes.is_empty() {
            for (place, axis) in axes.iter().enumerate() {
                if !x.axes.contains(axis) {
                    value = self.b.expand(value, place);
                }
            }
        }
        let extents = self.extents(axes);
        self.b.broadcast(value, extents)
    }

    fn union(&self, all: &[&Held]) -> Vec<Axis> {
        let mut axes: Vec<Axis> = Vec::new();
        for held in all {
            axes.extend(
                held.axes.iter().filter(|a| !axes.contains(a)).copied().collect::<Vec<_>>(),
            );
        }
        self.tiled(&axes)
    }

    /// Converts to a stored dtype and back into its carrier.
    fn settle(&mut self, x: Value, to: NumType, round: Rounding, saturate: bool) -> Value {
        settle(&mut self.b, x, to, round, saturate)
    }

    fn by_policy(&mut self, x: Value, to: NumType) -> Value {
        self.settle(x, to, plain(to.rounding()), to.saturates())
    }

    fn node(&mut self, id: NodeId) -> Result<Held, String> {
        if let Some(held) = self.held.get(&id) {
            return Ok(held.clone());
        }
        let held = self.make(&self.body.nodes[id].clone())?;
        self.held.insert(id, held.clone());
        Ok(held)
    }

    fn make(&mut self, node: &Node) -> Result<Held, String> {
        Ok(match node {
            Node::Load { access, dtype, moved, window } => {
                self.load(access, *dtype, moved, window)?
            }
            Node::Splat { value } => {
                let (attr, dtype) = constant(*value);
                let value = self.b.constant(Type::Scalar(dtype), attr);
                Held { value, axes: Vec::new() }
            }
            Node::Position { offset, strides, dtype } => {
                let held = self.position(*offset, strides);
                let to = NumType::plain(*dtype);
                let value =
                    self.settle(held.value, to, Rounding::Rne, dtype.saturates_by_default());
                Held { value, axes: held.axes }
            }
            Node::Apply { f, args, to } => {
                let args = args.iter().map(|&a| self.node(a)).collect::<Result<Vec<_>, _>>()?;
                let axes = self.union(&args.iter().collect::<Vec<_>>());
                let args: Vec<Value> = args.iter().map(|a| self.align(a, &axes)).collect();
                let value = match f {
                    ScalarFn::Exp => self.exp(args[0]),
                    f => self.b.ew(*f, &args),
                };
                Held { value: self.by_policy(value, *to), axes }
            }
            Node::Select { cond, a, b } => {
                let (cond, a, b) = (self.node(*cond)?, self.node(*a)?, self.node(*b)?);
                let axes = self.union(&[&cond, &a, &b]);
                let (a, b) = (self.align(&a, &axes), self.align(&b, &axes));
                let cond = self.align(&cond, &axes);
                Held { value: self.b.select(cond, a, b), axes }
            }
            Node::Cast { x, to, round, saturate } => {
                let x = self.node(*x)?;
                let value = self.settle(x.value, *to, *round, *saturate);
                Held { value, axes: x.axes }
            }
            Node::Bitcast { x, from, to } => {
                let x = self.node(*x)?;
                let stored = self.b.cast(x.value, *from);
                let ty = self.b.func.ty(stored).with_dtype(*to);
                let spec = OpSpec::new(TileOp::Bitcast, &[stored]).result(ty);
                let value = self.b.value(spec)?;
                Held { value: self.b.cast(value, to.carrier()), axes: x.axes }
            }
            Node::Philox { key, counter, word } => {
                let (key, counter) = (self.node(*key)?, self.node(*counter)?);
                if !key.axes.is_empty() {
                    return Err("a key that is not one number".into());
                }
                let ty = self.b.func.ty(counter.value).with_dtype(DType::U32);
                let spec = OpSpec::new(TileOp::Philox, &[key.value, counter.value])
                    .attr("word", Attr::Int(*word))
                    .result(ty);
                Held { value: self.b.value(spec)?, axes: counter.axes }
            }
            Node::Reduce { x, op, accum, axes, to } => {
                let held = self.node(*x)?;
                let (value, rest) = self.spread(&held, axes);
                let mut value = self.settle(
                    value,
                    NumType::plain(*accum),
                    Rounding::Rne,
                    accum.saturates_by_default(),
                );
                let mut left = rest;
                let listed: Vec<Axis> =
                    axes.iter().copied().filter(|&a| self.tile_of(a).is_some()).collect();
                if self.body.ordered && listed.len() > 1 {
                    value = self.in_one(value, &left, &listed)?;
                    left.retain(|a| !listed.contains(a));
                    value = self.b.reduce(value, *op, left.len());
                }
                let listed: Vec<Axis> =
                    self.tiled(axes).into_iter().filter(|a| left.contains(a)).collect();
                for axis in listed.into_iter().rev() {
                    let place = left.iter().position(|&a| a == axis).unwrap_or(0);
                    value = self.b.reduce(value, *op, place);
                    left.remove(place);
                }
                let clamp = matches!(op, ReduceOp::Max | ReduceOp::Min) && to.storage.is_int();
                let value = self.settle(value, *to, plain(to.rounding()), to.saturates() || clamp);
                Held { value, axes: left }
            }
            Node::ArgReduce { x, op, axis } => {
                let held = self.node(*x)?;
                let (value, mut axes) = self.spread(&held, &[*axis]);
                let place = axes.iter().position(|a| a == axis).unwrap_or(0);
                axes.remove(place);
                let ty = Type::value(self.extents(&axes), DType::I32);
                let spec = OpSpec::new(TileOp::ArgReduce, &[value])
                    .attr("op", Attr::word(op.name()))
                    .attr("axis", Attr::Int(place as i64))
                    .result(ty);
                let value = self.b.value(spec)?;
                Held { value: self.b.cast(value, DType::I64), axes }
            }
            Node::Scan { x, op, accum, axis, exclusive, to } => {
                let held = self.node(*x)?;
                let (value, axes) = self.spread(&held, &[*axis]);
                let value = self.settle(
                    value,
                    NumType::plain(*accum),
                    Rounding::Rne,
                    accum.saturates_by_default(),
                );
                let place = axes.iter().position(|a| a == axis).unwrap_or(0);
                let mut spec = OpSpec::new(TileOp::Scan, &[value])
                    .attr("op", Attr::word(op.name()))
                    .attr("axis", Attr::Int(place as i64))
                    .result(self.b.func.ty(value).clone());
                if *exclusive {
                    spec = spec.attr("exclusive", Attr::Bool(true));
                }
                let value = self.b.value(spec)?;
                let clamp = matches!(op, ReduceOp::Max | ReduceOp::Min) && to.storage.is_int();
                let value = self.settle(value, *to, plain(to.rounding()), to.saturates() || clamp);
                Held { value, axes }
            }
            Node::Gather { value, dims, dtype, at, other, clamp } => {
                self.gather(*value, dims, *dtype, at, *other, *clamp)?
            }
            Node::Sums { to } => {
                let sums = self.sums.clone().ok_or("sums without a matmul")?;
                Held { value: self.by_policy(sums.value, *to), axes: sums.axes }
            }
        })
    }

    /// `e^x`. Where it is certainly zero, as in masked elements, nothing is computed from `x`. The
    /// CPU backend does this itself.
    fn exp(&mut self, x: Value) -> Value {
        if self.machine == Machine::Cpu {
            return self.b.ew(ScalarFn::Exp, &[x]);
        }
        let ty = self.b.func.ty(x).clone();
        // Below these e^x is less than half of the least number.
        let least = match ty.dtype() {
            DType::F32 => -104.0,
            DType::F64 => -746.0,
            _ => return self.b.ew(ScalarFn::Exp, &[x]),
        };
        let (zero, least) = (
            self.b.constant(ty.clone(), Attr::Float(0.0)),
            self.b.constant(ty, Attr::Float(least)),
        );
        let none = self.b.ew(ScalarFn::Lt, &[x, least]);
        let x = self.b.select(none, zero, x);
        let y = self.b.ew(ScalarFn::Exp, &[x]);
        self.b.select(none, zero, y)
    }

    /// A tile whose axes `last` are merged into one, the last, in this order.
    fn in_one(&mut self, x: Value, axes: &[Axis], last: &[Axis]) -> Result<Value, String> {
        let place = |a: &Axis| axes.iter().position(|b| a == b).unwrap_or(0);
        let kept: Vec<usize> = axes.iter().filter(|a| !last.contains(a)).map(place).collect();
        let perm: Vec<usize> = kept.iter().copied().chain(last.iter().map(place)).collect();
        let dtype = self.b.func.ty(x).dtype();
        let from: Vec<i64> = axes.iter().map(|&a| self.tile_of(a).unwrap_or(1)).collect();
        let mut value = x;
        if perm.iter().enumerate().any(|(i, &p)| i != p) {
            let dims: Vec<i64> = perm.iter().map(|&p| from[p]).collect();
            let spec = OpSpec::new(TileOp::Transpose, &[value])
                .attr("perm", Attr::ints(perm.iter().map(|&p| p as i64)))
                .result(Type::tile(&dims, dtype));
            value = self.b.value(spec)?;
        }
        let mut dims: Vec<i64> = kept.iter().map(|&p| from[p]).collect();
        dims.push(last.iter().map(|&a| self.tile_of(a).unwrap_or(1)).product());
        let spec = OpSpec::new(TileOp::Reshape, &[value]).result(Type::tile(&dims, dtype));
        self.b.value(spec)
    }

    /// A value broadcast along these axes too.
    fn spread(&mut self, x: &Held, more: &[Axis]) -> (Value, Vec<Axis>) {
        let mut all = x.axes.clone();
        all.extend(more.iter().filter(|a| !x.axes.contains(a)));
        let axes = self.tiled(&all);
        (self.align(x, &axes), axes)
    }

    /// `offset + Σ stride · position`, in 32 bits where every value fits.
    fn position(&mut self, offset: i64, strides: &[(Axis, i64)]) -> Held {
        let reach: i64 = strides
            .iter()
            .map(|&(a, s)| s.abs().saturating_mul(self.body.space.extents[a]))
            .fold(offset.abs(), i64::saturating_add);
        let narrow = reach < i64::from(i32::MAX) / 2;
        let dtype = if narrow { DType::I32 } else { DType::I64 };
        let mut base: Option<Value> = (offset != 0).then(|| self.b.index(offset));
        let mut tiles = Vec::new();
        for &(axis, stride) in strides {
            if self.shape.parts.get(&axis).is_some_and(|p| p.blocks > 1) {
                let mut part = self.start(axis);
                if stride != 1 {
                    let by = self.b.index(stride);
                    part = self.b.ew(ScalarFn::Mul, &[part, by]);
                }
                base = Some(match base {
                    None => part,
                    Some(before) => self.b.ew(ScalarFn::Add, &[before, part]),
                });
            }
            if let Some(extent) = self.tile_of(axis) {
                let steps = self.b.iota(0, extent);
                let mut value = self.b.cast(steps, dtype);
                if stride != 1 {
                    let ty = self.b.func.ty(value).clone();
                    let by = self.b.constant(ty, Attr::Int(stride));
                    value = self.b.ew(ScalarFn::Mul, &[value, by]);
                }
                tiles.push(Held { value, axes: vec![axis] });
            }
        }
        let mut sum = base.map(|value| Held { value, axes: Vec::new() });
        if let Some(held) = &mut sum {
            held.value = self.b.cast(held.value, dtype);
        }
        for tile in tiles {
            sum = Some(match sum {
                None => tile,
                Some(before) => {
                    let axes = self.union(&[&before, &tile]);
                    let (a, b) = (self.align(&before, &axes), self.align(&tile, &axes));
                    Held { value: self.b.ew(ScalarFn::Add, &[a, b]), axes }
                }
            });
        }
        sum.unwrap_or_else(|| {
            let value = self.b.constant(Type::Scalar(dtype), Attr::Int(0));
            Held { value, axes: Vec::new() }
        })
    }

    /// The loop over k.
    fn product(&mut self) -> Result<(), String> {
        let (Some(product), Some((row, column))) = (&self.body.product, self.shape.matrix) else {
            return Err("a matmul without rows and columns".into());
        };
        let depth = self.shape.depth;
        let arrays = operand_arrays(self.body, self.shape);
        let params = [self.param(&arrays[0])?, self.param(&arrays[1])?];
        let tile = |a: Axis| self.tile_of(a).unwrap_or(1);
        let (bm, bn, bk) = (tile(row), tile(column), self.shape.depth_tile);
        let ty = Type::tile(&[bm, bn], product.accum);
        let (zero_attr, _) = constant(Scalar::zero(product.accum));
        let zero = self.b.constant(ty.clone(), zero_attr);
        let (lo, hi) = (self.b.index(0), self.b.index(self.body.space.extents[depth]));
        let step = self.b.index(bk);
        let spec = OpSpec::new(TileOp::For, &[lo, hi, step])
            .group("init", &[zero])
            .results(vec![ty.clone()]);
        let loop_op = self.b.op(spec)?;
        let region = self.b.func.ops[loop_op].regions[0];
        let k = self.b.func.add_arg(region, Type::INDEX, Some("k"));
        let acc = self.b.func.add_arg(region, ty.clone(), Some("acc"));
        let outer: Vec<Vec<Value>> = [(&product.a, [row, depth]), (&product.b, [depth, column])]
            .iter()
            .map(|(access, last)| {
                let has = |a: &Axis| access.strides.iter().any(|(b, _)| b == a);
                let axes: Vec<Axis> = self
                    .shape
                    .order
                    .iter()
                    .copied()
                    .filter(|a| has(a) && !last.contains(a))
                    .collect();
                axes.into_iter().map(|a| self.start(a)).collect()
            })
            .collect();
        let (m0, n0) = (self.start(row), self.start(column));
        let back = self.b.block;
        self.b.block = region;
        let mut tiles = Vec::new();
        for (side, tail) in [[m0, k], [k, n0]].into_iter().enumerate() {
            let mut at = outer[side].clone();
            let mut extent = vec![0; at.len()];
            at.extend(tail);
            extent.extend(if side == 0 { [bm, bk] } else { [bk, bn] });
            let padded = side == 0 && self.body.ordered && self.body.space.extents[depth] % bk != 0;
            tiles.push(match padded && product.types[0].is_float() {
                // Beyond k a product is -0.0, which leaves a sum of -0.0 unchanged.
                true => {
                    let elem = product.types[0];
                    let zero = self.b.constant(Type::Scalar(elem.carrier()), Attr::Float(-0.0));
                    let zero = self.b.cast(zero, elem);
                    let spec = OpSpec::new(TileOp::Load, &[params[side]])
                        .group("at", &at)
                        .group("other", &[zero])
                        .attr("extent", Attr::ints(extent.iter().copied()));
                    let shape: Vec<i64> = vec![bm, bk];
                    self.b.value(spec.result(Type::tile(&shape, elem)))?
                }
                false => self.b.load(params[side], &at, &extent),
            });
        }
        let mut spec = OpSpec::new(TileOp::Mma, &[tiles[0], tiles[1], acc]);
        if let Some(class) = &product.class {
            spec = spec.attr("class", Attr::word(class.as_str()));
        }
        let next = self.b.value(spec.result(ty))?;
        self.b.yield_(&[next]);
        self.b.block = back;
        let value = self.b.func.ops[loop_op].results[0];
        self.sums = Some(Held { value, axes: vec![row, column] });
        Ok(())
    }
}

/// Converts to a stored dtype and back into its carrier.
pub(super) fn settle(
    b: &mut Builder<'_, Tile>,
    x: Value,
    to: NumType,
    round: Rounding,
    saturate: bool,
) -> Value {
    let from = b.func.ty(x).dtype();
    if from == to.storage {
        return x;
    }
    let stored = cast(b, x, to.storage, round, saturate);
    b.cast(stored, to.storage.carrier())
}

pub(super) fn cast(
    b: &mut Builder<'_, Tile>,
    x: Value,
    to: DType,
    round: Rounding,
    saturate: bool,
) -> Value {
    let ty = b.func.ty(x).with_dtype(to);
    let mut spec = OpSpec::new(TileOp::Cast, &[x]);
    if round != Rounding::Rne {
        spec = spec.attr("round", Attr::word(round.name()));
    }
    if saturate != to.saturates_by_default() {
        spec = spec.attr("saturate", Attr::Bool(saturate));
    }
    b.value(spec.result(ty)).expect("the result type is given")
}

/// A constant of a carrier.
pub(super) fn constant(value: Scalar) -> (Attr, DType) {
    let attr = match value {
        Scalar::Bool(v) => Attr::Bool(v),
        Scalar::I32(v) => Attr::Int(v.into()),
        Scalar::I64(v) => Attr::Int(v),
        Scalar::U32(v) => Attr::Int(v.into()),
        Scalar::U64(v) => Attr::Int(v as i64),
        Scalar::F32(v) => Attr::Float(v.into()),
        Scalar::F64(v) => Attr::Float(v),
    };
    (attr, value.dtype())
}
