//! A loop whose iterations are small becomes one kernel.
//!
//! The kernel is one group. A carried value is a tile that the loop of Tile IR carries, an op of the body is an op on
//! whole tiles; loops and branches inside are loops and branches of Tile IR. What the loop captures and its `xs` are
//! read-only parameters, the last carried values and the stacks are written once. So no value of the body has memory
//! that outlives an op, and an iteration costs its arithmetic instead of launches.
//!
//! Parts of tiles, which Tile IR has no ops for, go through buffers of the group.
//!
//! `None` where an op of the body has no form on tiles, or where an iteration is large enough for kernels of its own:
//! those use all cores and the blocked matmul.

use super::class::{
    Class, accumulator, along, axes_of, class, is_empty, is_matrix, operator, sides, sums_in,
};
use super::emit::{ArrayUse, Kernel, cast, constant, plain_array, settle};
use super::index::dims_of;
use super::nodes::{plain, splat};
use std::collections::{BTreeMap, BTreeSet};
use tessera_graph::{GraphFunc, GraphOp, elem, walk};
use tessera_ir::{Attr, BlockId, Builder, Dim, DimExpr, OpId, OpSpec, Privilege, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp, Rounding, Scalar, ScalarFn};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

mod resident;

/// Elements of a value in an iteration.
const LARGEST: i64 = 1 << 12;

/// Elements that the ops of an iteration compute together.
const MOST_WORK: i64 = 1 << 18;

/// Ops of a body: code grows with them.
const MOST_OPS: usize = 600;

/// The kernel of a loop; `memory` gives the value whose memory a value has.
pub fn loop_kernel(func: &GraphFunc, id: OpId, memory: &dyn Fn(Value) -> Value) -> Option<Kernel> {
    let op = &func.ops[id];
    if op.results.is_empty() || !is_small(func, id) {
        return None;
    }
    let mut tile = TileFunc::new("loop");
    tile.loc = op.loc.clone();
    tile.attrs.set("kind", Attr::word("group"));
    tile.attrs.set("grid", Attr::exprs([DimExpr::Const(1)]));
    let entry = tile.body;
    let mut read: Vec<Value> = op.operands.clone();
    for &region in &op.regions {
        read.extend(walk::captures(func, region));
    }
    let mut args: Vec<ArrayUse> = Vec::new();
    let mut held: BTreeMap<Value, Held> = BTreeMap::new();
    let mut param = |tile: &mut TileFunc, v: Value, writes: bool| {
        let mut dims = dims_of(func, v);
        if dims.is_empty() {
            dims.push(1);
        }
        let dtype = func.ty(v).dtype();
        let one = ArrayUse { writes, ..plain_array(memory(v), &dims, dtype) };
        let privilege = if writes { Privilege::Write } else { Privilege::Read };
        let dims = dims.iter().map(|&d| Dim::Static(d)).collect();
        let ty = Type::View { dims, elem: NumType::plain(dtype), privilege };
        let name = format!("{}{}", if writes { "y" } else { "x" }, args.len());
        let value = tile.add_arg(entry, ty, Some(&name));
        args.push(one);
        value
    };
    for v in read {
        held.entry(v).or_insert_with(|| Held { tile: None, mem: Some(param(&mut tile, v, false)) });
    }
    let outputs: Vec<Value> = op.results.iter().map(|&v| param(&mut tile, v, true)).collect();
    let b = Builder::at_end(&mut tile, entry, op.loc.clone());
    let mut emitter = Emitter { func, b, entry, held, changed: BTreeSet::new() };
    emitter.run(id, &outputs)?;
    emitter.b.return_();
    Some(Kernel { func: tile, args, grid: [1, 1, 1] })
}

/// Whether every op has a form on tiles, and their work is that of one core.
pub fn is_small(func: &GraphFunc, id: OpId) -> bool {
    let (mut work, mut ops, mut fits) = (0, 0, true);
    let resident = resident::all(func, id);
    let most = |v: Value| if resident.contains(&v) { resident::LARGEST } else { LARGEST };
    for &region in &func.ops[id].regions {
        func.walk_block(region, &mut |inner| {
            ops += 1;
            let op = &func.ops[inner];
            let terminator = matches!(op.code, GraphOp::Yield | GraphOp::Return);
            let values = op.results.iter().chain(&op.operands);
            fits &= values.clone().all(|&v| !is_empty(func, v) && !elem(func.ty(v)).packed);
            fits &= terminator || has_form(func, inner);
            if !op.regions.is_empty() {
                return;
            }
            for &v in &op.results {
                let size: i64 = dims_of(func, v).iter().product();
                fits &= size <= most(v);
                work += if resident.contains(&v) { 0 } else { size };
            }
            if op.code == GraphOp::Dot {
                work += sides(func, inner).depth.iter().product::<i64>()
                    * op.results
                        .iter()
                        .map(|&v| dims_of(func, v).iter().product::<i64>())
                        .sum::<i64>();
            }
        });
        for &arg in &func.blocks[region].args {
            fits &= dims_of(func, arg).iter().product::<i64>() <= most(arg) && !is_empty(func, arg);
        }
    }
    let whole = func.ops[id].operands.iter().chain(&func.ops[id].results);
    fits && ops <= MOST_OPS && work <= MOST_WORK && whole.into_iter().all(|&v| !is_empty(func, v))
}

fn has_form(func: &GraphFunc, id: OpId) -> bool {
    let op = &func.ops[id];
    let ints = |name: &str| op.attr(name).and_then(Attr::as_ints).unwrap_or_default();
    match op.code {
        GraphOp::Cond | GraphOp::While | GraphOp::Loop => true,
        GraphOp::Pad => ints("lo").iter().chain(&ints("hi")).all(|&n| n >= 0),
        GraphOp::DynamicUpdateSlice | GraphOp::Concat => true,
        GraphOp::Scatter => resident::is_single(func, id),
        GraphOp::Dot => {
            matches!(class(func, id), Class::Product)
                && (!is_matrix(func, id) || axes_of(func, id, "batch_a").is_empty())
        }
        GraphOp::Gather => dims_of(func, op.operands[1]).iter().product::<i64>() <= LARGEST,
        GraphOp::Const => op.attr("data").is_none(),
        _ => matches!(
            class(func, id),
            Class::Source | Class::View | Class::Pointwise | Class::Combine | Class::DynamicSlice
        ),
    }
}

/// A value as a tile (or a scalar), in memory, or both. A tile is in the carrier of the value's dtype, rounded to it.
#[derive(Clone, Copy)]
struct Held {
    tile: Option<Value>,
    mem: Option<Value>,
}

struct Emitter<'f, 'b> {
    func: &'f GraphFunc,
    b: Builder<'b, Tile>,
    entry: BlockId,
    held: BTreeMap<Value, Held>,
    /// Updates of carried arrays that are made where those are.
    changed: BTreeSet<OpId>,
}

fn shape_of(dims: &[i64]) -> Vec<Dim> {
    dims.iter().map(|&d| Dim::Static(d)).collect()
}

impl Emitter<'_, '_> {
    fn carrier(&self, v: Value) -> DType {
        self.func.ty(v).dtype().carrier()
    }

    fn ty(&self, v: Value) -> Type {
        Type::value(shape_of(&dims_of(self.func, v)), self.carrier(v))
    }

    fn of(&self, tile: Value) -> Vec<i64> {
        self.b.func.ty(tile).static_shape().unwrap_or_default()
    }

    fn set(&mut self, v: Value, tile: Value) {
        self.held.insert(v, Held { tile: Some(tile), mem: None });
    }

    /// A value as a tile. What is in memory is read here.
    fn tile(&mut self, v: Value) -> Option<Value> {
        let held = *self.held.get(&v)?;
        if let Some(tile) = held.tile {
            return Some(tile);
        }
        let dims = dims_of(self.func, v);
        let at = vec![0; dims.len().max(1)];
        self.load(held.mem?, &at, &dims, None, self.carrier(v))
    }

    /// All elements of a block of memory whose first one is at constant positions.
    fn load(
        &mut self,
        mem: Value,
        at: &[i64],
        extent: &[i64],
        step: Option<Vec<i64>>,
        carrier: DType,
    ) -> Option<Value> {
        let at: Vec<Value> = at.iter().map(|&i| self.b.index(i)).collect();
        let extent = if extent.is_empty() { vec![0] } else { extent.to_vec() };
        self.load_at(mem, &at, &extent, step, carrier)
    }

    fn load_at(
        &mut self,
        mem: Value,
        at: &[Value],
        extent: &[i64],
        step: Option<Vec<i64>>,
        carrier: DType,
    ) -> Option<Value> {
        let shape: Vec<i64> = extent.iter().copied().filter(|&e| e != 0).collect();
        let dtype = self.b.func.ty(mem).dtype();
        let mut spec = OpSpec::new(TileOp::Load, &[mem])
            .group("at", at)
            .attr("extent", Attr::ints(extent.iter().copied()))
            // Starts are constants, iterations, or moved back inside.
            .attr("inbounds", Attr::Bool(true))
            .result(Type::value(shape_of(&shape), dtype));
        if let Some(step) = step.filter(|s| s.iter().any(|&n| n != 1)) {
            spec = spec.attr("step", Attr::ints(step));
        }
        let value = self.b.value(spec).ok()?;
        Some(self.b.cast(value, carrier))
    }

    fn store(
        &mut self,
        mem: Value,
        tile: Value,
        at: &[Value],
        extent: &[i64],
        step: Option<Vec<i64>>,
    ) -> Option<()> {
        let dtype = self.b.func.ty(mem).dtype();
        let value = self.b.cast(tile, dtype);
        let mut spec = OpSpec::new(TileOp::Store, &[mem, value])
            .group("at", at)
            .attr("extent", Attr::ints(extent.iter().copied()));
        if let Some(step) = step.filter(|s| s.iter().any(|&n| n != 1)) {
            spec = spec.attr("step", Attr::ints(step));
        }
        self.b.op(spec).ok().map(|_| ())
    }

    /// A tile into all of a memory of its extents; a scalar into the one element there is.
    fn store_all(&mut self, mem: Value, tile: Value) -> Option<()> {
        let extent = self.of(tile);
        let zero = self.b.index(0);
        let at = vec![zero; extent.len().max(1)];
        let extent = if extent.is_empty() { vec![0] } else { extent };
        self.store(mem, tile, &at, &extent, None)
    }

    /// Memory of the group, not filled.
    fn buffer(&mut self, dims: &[i64], dtype: DType) -> Option<Value> {
        let shape = shape_of(if dims.is_empty() { &[1] } else { dims });
        let spec = OpSpec::new(TileOp::BufAlloc, &[]).result(Type::Buf { shape, dtype });
        let (entry, loc) = (self.entry, self.b.loc.clone());
        let id = self.b.func.insert(entry, 0, spec, loc).ok()?;
        Some(self.b.func.ops[id].result())
    }

    /// A value in memory: where it is already, or a buffer that is filled here.
    fn memory(&mut self, v: Value) -> Option<Value> {
        let held = *self.held.get(&v)?;
        if let Some(mem) = held.mem {
            return Some(mem);
        }
        let mem = self.buffer(&dims_of(self.func, v), self.carrier(v))?;
        self.store_all(mem, held.tile?)?;
        self.held.insert(v, Held { mem: Some(mem), ..held });
        Some(mem)
    }

    fn reshape(&mut self, x: Value, dims: &[i64]) -> Option<Value> {
        let (from, dtype) = (self.of(x), self.b.func.ty(x).dtype());
        if from == dims {
            return Some(x);
        }
        if from.is_empty() {
            return Some(self.b.broadcast(x, shape_of(dims)));
        }
        if !dims.is_empty() {
            let spec = OpSpec::new(TileOp::Reshape, &[x]).result(Type::tile(dims, dtype));
            return self.b.value(spec).ok();
        }
        // One element.
        let op = if dtype == DType::Bool { ReduceOp::Or } else { ReduceOp::Max };
        let mut x = self.reshape(x, &[1])?;
        x = self.b.reduce(x, op, 0);
        Some(x)
    }

    fn transpose(&mut self, x: Value, perm: &[usize]) -> Option<Value> {
        if perm.iter().enumerate().all(|(i, &p)| i == p) {
            return Some(x);
        }
        let (from, dtype) = (self.of(x), self.b.func.ty(x).dtype());
        let dims: Vec<i64> = perm.iter().map(|&p| from[p]).collect();
        let spec = OpSpec::new(TileOp::Transpose, &[x])
            .attr("perm", Attr::ints(perm.iter().map(|&p| p as i64)))
            .result(Type::tile(&dims, dtype));
        self.b.value(spec).ok()
    }

    /// Axis `i` of the operand is axis `axes[i]` of the result.
    fn broadcast(&mut self, x: Value, axes: &[usize], dims: &[i64]) -> Option<Value> {
        let from = self.of(x);
        if from.is_empty() {
            return self.reshape(x, dims);
        }
        let mut order: Vec<usize> = (0..axes.len()).collect();
        order.sort_by_key(|&i| axes[i]);
        let x = self.transpose(x, &order)?;
        let mut apart = vec![1; dims.len()];
        for (&axis, &d) in axes.iter().zip(&from) {
            apart[axis] = d;
        }
        let x = self.reshape(x, &apart)?;
        Some(if apart == dims { x } else { self.b.broadcast(x, shape_of(dims)) })
    }

    /// Converts as values of this type are stored.
    fn by_policy(&mut self, x: Value, to: NumType) -> Value {
        settle(&mut self.b, x, to, plain(to.rounding()), to.saturates())
    }

    fn plainly(&mut self, x: Value, to: DType) -> Value {
        settle(&mut self.b, x, NumType::plain(to), Rounding::Rne, to.saturates_by_default())
    }

    /// Positions along an axis of a tile of these extents, as i64.
    fn positions(&mut self, dims: &[i64], axis: usize) -> Option<Value> {
        let steps = self.b.iota(0, dims[axis]);
        let steps = self.b.cast(steps, DType::I64);
        self.broadcast(steps, &[axis], dims)
    }

    fn same(&mut self, x: i64, like: Value) -> Value {
        let ty = self.b.func.ty(like).clone();
        self.b.constant(ty, Attr::Int(x))
    }

    fn clamp(&mut self, x: Value, most: i64) -> Value {
        let (zero, most) = (self.same(0, x), self.same(most, x));
        let x = self.b.ew(ScalarFn::Maximum, &[x, zero]);
        self.b.ew(ScalarFn::Minimum, &[x, most])
    }

    /// The ops of a block; what it hands on.
    fn block(&mut self, block: BlockId) -> Option<Vec<Value>> {
        self.block_but(block, &[])
    }

    /// The same without what it hands on at these places.
    fn block_but(&mut self, block: BlockId, places: &[usize]) -> Option<Vec<Value>> {
        for &id in &self.func.blocks[block].ops {
            let op = &self.func.ops[id];
            if matches!(op.code, GraphOp::Yield | GraphOp::Return) {
                let wanted = op.operands.iter().enumerate().filter(|(i, _)| !places.contains(i));
                return wanted.map(|(_, &v)| self.tile(v)).collect();
            }
            self.b.loc = op.loc.clone();
            self.op(id)?;
        }
        None
    }

    /// A region of a Tile op. Buffers that are filled inside are not filled outside.
    fn region(&mut self, to: BlockId, make: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let (back, known) = (self.b.block, self.held.clone());
        self.b.block = to;
        make(self)?;
        self.b.block = back;
        self.held = known;
        Some(())
    }

    /// The outermost loop, whose results are parameters.
    fn run(&mut self, id: OpId, outputs: &[Value]) -> Option<()> {
        let carried = self.func.ops[id].group("init").len();
        let results = self.control(id, Some(&outputs[carried.min(outputs.len())..]))?;
        for (&mem, tile) in outputs.iter().zip(results) {
            self.store_all(mem, tile)?;
        }
        Some(())
    }

    /// A loop or a branch; its results but the stacks, which are written to `stacks`, or to buffers that they are
    /// then held in.
    fn control(&mut self, id: OpId, stacks: Option<&[Value]>) -> Option<Vec<Value>> {
        let op = &self.func.ops[id];
        match op.code {
            GraphOp::Cond => {
                let pred = self.tile(op.operands[0])?;
                let types = op.results.iter().map(|&v| self.ty(v)).collect();
                let made = self.b.op(OpSpec::new(TileOp::If, &[pred]).results(types)).ok()?;
                for (place, &region) in op.regions.iter().enumerate() {
                    let to = self.b.func.ops[made].regions[place];
                    self.region(to, |e| {
                        let yields = e.block(region)?;
                        e.b.yield_(&yields);
                        Some(())
                    })?;
                }
                Some(self.b.func.ops[made].results.clone())
            }
            GraphOp::While => {
                let stays = self.settle_in(id)?;
                let left = |i: &usize| !stays.iter().any(|s| s.0 == *i);
                let places: Vec<usize> = (0..op.results.len()).filter(left).collect();
                let init: Vec<Value> = places.iter().map(|&i| op.group("init")[i]).collect();
                let init = self.tiles(&init)?;
                let types: Vec<Type> = places.iter().map(|&i| self.ty(op.results[i])).collect();
                let spec = OpSpec::new(TileOp::While, &[]).group("init", &init);
                let made = self.b.op(spec.results(types.clone())).ok()?;
                for (place, &region) in op.regions.iter().enumerate() {
                    let to = self.b.func.ops[made].regions[place];
                    let args = self.func.blocks[region].args.clone();
                    self.region(to, |e| {
                        for (&i, ty) in places.iter().zip(types.clone()) {
                            let tile = e.b.func.add_arg(to, ty, None);
                            e.set(args[i], tile);
                        }
                        e.put_in(&args, &stays);
                        let skipped: Vec<usize> = stays.iter().map(|s| s.0).collect();
                        let skipped = if place == 0 { &[][..] } else { &skipped };
                        let yields = e.block_but(region, skipped)?;
                        e.b.yield_(&yields);
                        Some(())
                    })?;
                }
                self.all_results(id, made, &stays)
            }
            _ => self.counted(id, stacks),
        }
    }

    fn tiles(&mut self, values: &[Value]) -> Option<Vec<Value>> {
        values.iter().map(|&v| self.tile(v)).collect()
    }

    fn counted(&mut self, id: OpId, stacks: Option<&[Value]>) -> Option<Vec<Value>> {
        let op = &self.func.ops[id];
        let trip = op.attr("trip").and_then(Attr::as_expr)?.eval(&|_| None).ok()?;
        let reverse = op.attr("reverse").and_then(Attr::as_bool).unwrap_or(false);
        let carried = op.group("init").len();
        let stacked = &op.results[carried..];
        let stacks: Vec<Value> = match stacks {
            Some(stacks) => stacks.to_vec(),
            None => stacked
                .iter()
                .map(|&v| self.buffer(&dims_of(self.func, v), self.carrier(v)))
                .collect::<Option<_>>()?,
        };
        let xs: Vec<Value> =
            op.group("xs").iter().map(|&v| self.memory(v)).collect::<Option<_>>()?;
        let stays = self.settle_in(id)?;
        let places: Vec<usize> =
            (0..carried).filter(|i| !stays.iter().any(|s| s.0 == *i)).collect();
        let init: Vec<Value> = places.iter().map(|&i| op.group("init")[i]).collect();
        let init = self.tiles(&init)?;
        let types: Vec<Type> = places.iter().map(|&i| self.ty(op.results[i])).collect();
        let (lo, hi, step) = (self.b.index(0), self.b.index(trip), self.b.index(1));
        let spec = OpSpec::new(TileOp::For, &[lo, hi, step]).group("init", &init);
        let made = self.b.op(spec.results(types.clone())).ok()?;
        let to = self.b.func.ops[made].regions[0];
        let region = op.regions[0];
        let args = self.func.blocks[region].args.clone();
        self.region(to, |e| {
            let turn = e.b.func.add_arg(to, Type::INDEX, Some("i"));
            for (&i, ty) in places.iter().zip(types) {
                let tile = e.b.func.add_arg(to, ty, None);
                e.set(args[1 + i], tile);
            }
            e.put_in(&args[1..], &stays);
            let at = match reverse {
                false => turn,
                true => {
                    let last = e.b.index(trip - 1);
                    e.b.ew(ScalarFn::Sub, &[last, turn])
                }
            };
            e.set(args[0], at);
            for (&arg, mem) in args[1 + carried..].iter().zip(xs) {
                let dims = dims_of(e.func, arg);
                let (place, extent) = e.row(at, &dims);
                let tile = e.load_at(mem, &place, &extent, None, e.carrier(arg))?;
                e.set(arg, tile);
            }
            let skipped: Vec<usize> = stays.iter().map(|s| s.0).collect();
            let yields = e.block_but(region, &skipped)?;
            let (next, rows) = yields.split_at(places.len());
            for (&mem, &tile) in stacks.iter().zip(rows) {
                let dims = e.of(tile);
                let (place, extent) = e.row(at, &dims);
                e.store(mem, tile, &place, &extent, None)?;
            }
            e.b.yield_(next);
            Some(())
        })?;
        for (&v, &mem) in stacked.iter().zip(&stacks) {
            self.held.insert(v, Held { tile: None, mem: Some(mem) });
        }
        self.all_results(id, made, &stays)
    }

    /// Memory for the carried arrays of a loop that stay in one place, filled with what they begin with.
    fn settle_in(&mut self, id: OpId) -> Option<Vec<(usize, Value)>> {
        let op = &self.func.ops[id];
        let mut out = Vec::new();
        for one in resident::of(self.func, id) {
            let v = op.results[one.place];
            let mem = self.buffer(&dims_of(self.func, v), self.carrier(v))?;
            let tile = self.tile(op.group("init")[one.place])?;
            self.store_all(mem, tile)?;
            self.changed.insert(one.update);
            out.push((one.place, mem));
        }
        Some(out)
    }

    /// Tells the ops of a region where these arrays are.
    fn put_in(&mut self, args: &[Value], stays: &[(usize, Value)]) {
        for &(place, mem) in stays {
            self.held.insert(args[place], Held { tile: None, mem: Some(mem) });
        }
    }

    /// The carried results of a loop, those in memory read where it ends.
    fn all_results(
        &mut self,
        id: OpId,
        made: OpId,
        stays: &[(usize, Value)],
    ) -> Option<Vec<Value>> {
        let op = &self.func.ops[id];
        let mut tiles = self.b.func.ops[made].results.clone().into_iter();
        let mut out = Vec::new();
        for place in 0..op.group("init").len() {
            match stays.iter().find(|s| s.0 == place) {
                Some(&(_, mem)) => {
                    let v = op.results[place];
                    let dims = dims_of(self.func, v);
                    out.push(self.load(mem, &vec![0; dims.len()], &dims, None, self.carrier(v))?);
                }
                None => out.push(tiles.next()?),
            }
        }
        Some(out)
    }

    /// An update of a part of an array, in its memory.
    fn change(&mut self, id: OpId, mem: Value) -> Option<()> {
        let op = &self.func.ops[id];
        if op.code == GraphOp::Scatter {
            return self.scatter(id, mem);
        }
        let dims = dims_of(self.func, op.operands[0]);
        let update = self.tile(op.operands[1])?;
        let part = self.of(update);
        let at = self.starts(op.group("at"), &dims, &part)?;
        self.store(mem, update, &at, &part, None)
    }

    /// One update at a computed position, which changes nothing where that is outside.
    fn scatter(&mut self, id: OpId, mem: Value) -> Option<()> {
        let (func, op) = (self.func, &self.func.ops[id]);
        let (x, indices, updates) = (op.operands[0], op.operands[1], op.operands[2]);
        let axes = axes_of(func, id, "axes");
        let dims = dims_of(func, x);
        let dtype = func.ty(x).dtype();
        let table = self.tile(indices)?;
        let count = axes.len() as i64;
        let table = self.reshape(table, &[count])?;
        let (mut at, mut extent, mut rest, mut inside) = (Vec::new(), Vec::new(), Vec::new(), None);
        for (axis, &d) in dims.iter().enumerate() {
            let Some(k) = axes.iter().position(|&a| a == axis) else {
                at.push(self.b.index(0));
                extent.push(d);
                rest.push(d);
                continue;
            };
            let one = if count == 1 {
                self.reshape(table, &[])?
            } else {
                let places = self.memory(indices)?;
                let lead = dims_of(func, indices).len() - 1;
                let mut from = vec![0; lead];
                from.push(k as i64);
                self.load(places, &from, &vec![0; lead + 1], None, self.carrier(indices))?
            };
            let saturate = DType::I64.saturates_by_default();
            let one = cast(&mut self.b, one, DType::I64, Rounding::Rne, saturate);
            let near = self.clamp(one, d - 1);
            let here = self.b.ew(ScalarFn::Eq, &[one, near]);
            inside = Some(match inside {
                Some(all) => self.b.ew(ScalarFn::And, &[all, here]),
                None => here,
            });
            at.push(near);
            extent.push(0);
        }
        let update = self.tile(updates)?;
        let update = self.reshape(update, &rest)?;
        let old = self.load_at(mem, &at, &extent, None, self.carrier(x))?;
        let new = match op.attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name) {
            Some(op) => {
                let both = self.b.ew(op.combine(), &[old, update]);
                self.plainly(both, dtype)
            }
            None => update,
        };
        let drops = op.attr("oob").and_then(Attr::as_word) != Some("clamp");
        let new = match inside.filter(|_| drops) {
            Some(inside) => {
                let inside = self.reshape_to(inside, &rest)?;
                self.b.select(inside, new, old)
            }
            None => new,
        };
        self.store(mem, new, &at, &extent, None)
    }

    /// Where a row of a stack is.
    fn row(&mut self, at: Value, dims: &[i64]) -> (Vec<Value>, Vec<i64>) {
        let zero = self.b.index(0);
        let mut place = vec![at];
        place.extend(dims.iter().map(|_| zero));
        let mut extent = vec![0];
        extent.extend(dims);
        (place, extent)
    }

    fn op(&mut self, id: OpId) -> Option<()> {
        let func = self.func;
        let op = &func.ops[id];
        if !op.regions.is_empty() {
            let results = self.control(id, None)?;
            for (&v, tile) in op.results.iter().zip(results) {
                self.set(v, tile);
            }
            return Some(());
        }
        if op.code == GraphOp::OptBarrier {
            for (&from, &to) in op.operands.iter().zip(&op.results) {
                let tile = self.tile(from)?;
                self.set(to, tile);
            }
            return Some(());
        }
        let v = op.result();
        if self.changed.contains(&id) {
            let mem = self.held.get(&op.operands[0])?.mem?;
            self.change(id, mem)?;
            self.held.insert(v, Held { tile: None, mem: Some(mem) });
            return Some(());
        }
        let to = elem(func.ty(v));
        let dims = dims_of(func, v);
        let ints = |name: &str| op.attr(name).and_then(Attr::as_ints).unwrap_or_default();
        let tile = match op.code {
            GraphOp::Const => {
                let (attr, dtype) = constant(splat(op.attr("value"), to.storage));
                self.b.constant(Type::value(shape_of(&dims), dtype), attr)
            }
            GraphOp::Iota => {
                let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0).max(0) as usize;
                let at = self.positions(&dims, axis)?;
                self.plainly(at, to.storage)
            }
            GraphOp::Ew(f) => {
                let args = self.tiles(&op.operands)?;
                let value = self.b.ew(f, &args);
                self.by_policy(value, to)
            }
            GraphOp::Select => {
                let args = self.tiles(&op.operands)?;
                let cond = self.reshape_to(args[0], &dims)?;
                self.b.select(cond, args[1], args[2])
            }
            GraphOp::Cast => {
                let x = self.tile(op.operands[0])?;
                let said = op.attr("round").and_then(Attr::as_word).and_then(Rounding::from_name);
                let round = plain(said.unwrap_or(to.rounding()));
                let saturate = op.attr("saturate").and_then(Attr::as_bool);
                settle(&mut self.b, x, to, round, saturate.unwrap_or(to.saturates()))
            }
            GraphOp::Bitcast => {
                let x = self.tile(op.operands[0])?;
                let stored = self.b.cast(x, func.ty(op.operands[0]).dtype());
                let ty = self.b.func.ty(stored).with_dtype(to.storage);
                let spec = OpSpec::new(TileOp::Bitcast, &[stored]).result(ty);
                let value = self.b.value(spec).ok()?;
                self.b.cast(value, to.storage.carrier())
            }
            GraphOp::Philox => {
                let (key, counter) = (self.tile(op.operands[0])?, self.tile(op.operands[1])?);
                let word = op.attr("word").and_then(Attr::as_int).unwrap_or(0);
                let ty = self.b.func.ty(counter).with_dtype(DType::U32);
                let spec = OpSpec::new(TileOp::Philox, &[key, counter])
                    .attr("word", Attr::Int(word))
                    .result(ty);
                self.b.value(spec).ok()?
            }
            GraphOp::StopGradient => self.tile(op.operands[0])?,
            GraphOp::Reshape => {
                let x = self.tile(op.operands[0])?;
                self.reshape(x, &dims)?
            }
            GraphOp::Transpose => {
                let x = self.tile(op.operands[0])?;
                self.transpose(x, &axes_of(func, id, "perm"))?
            }
            GraphOp::Broadcast => {
                let x = self.tile(op.operands[0])?;
                self.broadcast(x, &axes_of(func, id, "dims"), &dims)?
            }
            GraphOp::Slice => {
                let mem = self.memory(op.operands[0])?;
                let step = op.attr("stride").and_then(Attr::as_ints);
                self.load(mem, &ints("start"), &dims, step, self.carrier(v))?
            }
            GraphOp::Reverse => {
                let axes = axes_of(func, id, "axes");
                self.reversed(op.operands[0], &axes)?
            }
            GraphOp::Reduce => self.reduce(id)?,
            GraphOp::ArgReduce => {
                let x = self.tile(op.operands[0])?;
                let axis = along(func, id)[0];
                let spec = OpSpec::new(TileOp::ArgReduce, &[x])
                    .attr("op", Attr::word(operator(func, id)?.name()))
                    .attr("axis", Attr::Int(axis as i64))
                    .result(Type::value(shape_of(&dims), DType::I32));
                let value = self.b.value(spec).ok()?;
                self.b.cast(value, DType::I64)
            }
            GraphOp::Scan => self.scan(id)?,
            GraphOp::Dot => self.dot(id)?,
            GraphOp::Gather => self.gather(id)?,
            GraphOp::DynamicSlice => {
                let mem = self.memory(op.operands[0])?;
                let from = dims_of(func, op.operands[0]);
                let at = self.starts(op.group("at"), &from, &dims)?;
                if dims.is_empty() {
                    self.load(mem, &[0], &[], None, self.carrier(v))?
                } else {
                    self.load_at(mem, &at, &dims, None, self.carrier(v))?
                }
            }
            GraphOp::DynamicUpdateSlice => {
                let (x, update) = (self.tile(op.operands[0])?, self.tile(op.operands[1])?);
                let part = self.of(update);
                if part.is_empty() {
                    update
                } else {
                    let at = self.starts(op.group("at"), &dims, &part)?;
                    let mem = self.buffer(&dims, self.carrier(v))?;
                    self.store_all(mem, x)?;
                    self.store(mem, update, &at, &part, None)?;
                    self.load(mem, &vec![0; dims.len()], &dims, None, self.carrier(v))?
                }
            }
            GraphOp::Concat => {
                let axis = along(func, id)[0];
                let mem = self.buffer(&dims, self.carrier(v))?;
                let mut start = 0;
                for &part in &op.operands {
                    let tile = self.tile(part)?;
                    let extent = self.of(tile);
                    let at: Vec<Value> = (0..dims.len())
                        .map(|i| self.b.index(if i == axis { start } else { 0 }))
                        .collect();
                    self.store(mem, tile, &at, &extent, None)?;
                    start += extent[axis];
                }
                self.load(mem, &vec![0; dims.len()], &dims, None, self.carrier(v))?
            }
            GraphOp::Pad => {
                let (x, fill) = (self.tile(op.operands[0])?, self.tile(op.operands[1])?);
                let extent = self.of(x);
                if extent.is_empty() {
                    x
                } else {
                    let mem = self.buffer(&dims, self.carrier(v))?;
                    let fill = self.reshape(fill, &dims)?;
                    self.store_all(mem, fill)?;
                    let at: Vec<Value> = ints("lo").into_iter().map(|n| self.b.index(n)).collect();
                    let step = op.attr("interior").and_then(Attr::as_ints);
                    let step = step.map(|gaps| gaps.into_iter().map(|g| g + 1).collect());
                    self.store(mem, x, &at, &extent, step)?;
                    self.load(mem, &vec![0; dims.len()], &dims, None, self.carrier(v))?
                }
            }
            GraphOp::Scatter => {
                let x = self.tile(op.operands[0])?;
                let mem = self.buffer(&dims, self.carrier(v))?;
                self.store_all(mem, x)?;
                self.scatter(id, mem)?;
                self.load(mem, &vec![0; dims.len()], &dims, None, self.carrier(v))?
            }
            GraphOp::Dim
            | GraphOp::OptBarrier
            | GraphOp::Sort
            | GraphOp::Conv
            | GraphOp::WindowReduce
            | GraphOp::WindowArgReduce
            | GraphOp::KernelCall
            | GraphOp::Return
            | GraphOp::Yield
            | GraphOp::Cond
            | GraphOp::While
            | GraphOp::Loop
            | GraphOp::Call => return None,
        };
        self.set(v, tile);
        Some(())
    }

    /// A scalar at every position; a tile as it is.
    fn reshape_to(&mut self, x: Value, dims: &[i64]) -> Option<Value> {
        if self.of(x).is_empty() { self.reshape(x, dims) } else { Some(x) }
    }

    /// Where a part begins that is moved back inside.
    fn starts(&mut self, at: &[Value], from: &[i64], part: &[i64]) -> Option<Vec<Value>> {
        let mut out = Vec::new();
        for ((&v, d), e) in at.iter().zip(from).zip(part) {
            let at = self.tile(v)?;
            let at = self.b.cast(at, DType::I64);
            out.push(self.clamp(at, d - e));
        }
        Some(out)
    }

    fn reversed(&mut self, x: Value, axes: &[usize]) -> Option<Value> {
        let dims = dims_of(self.func, x);
        let carrier = self.carrier(x);
        let mem = self.memory(x)?;
        self.turned_around(mem, &dims, axes, carrier)
    }

    fn turned_around(
        &mut self,
        mem: Value,
        dims: &[i64],
        axes: &[usize],
        carrier: DType,
    ) -> Option<Value> {
        let mut at = Vec::new();
        for (axis, &extent) in dims.iter().enumerate() {
            let mut place = self.positions(dims, axis)?;
            if axes.contains(&axis) {
                let last = self.same(extent - 1, place);
                place = self.b.ew(ScalarFn::Sub, &[last, place]);
            }
            at.push(place);
        }
        self.gathered(mem, &at, dims, None, carrier)
    }

    fn gathered(
        &mut self,
        mem: Value,
        at: &[Value],
        dims: &[i64],
        other: Option<Value>,
        carrier: DType,
    ) -> Option<Value> {
        let dtype = self.b.func.ty(mem).dtype();
        let mut spec = match dims.is_empty() {
            true => OpSpec::new(TileOp::Load, &[mem])
                .group("at", at)
                .attr("extent", Attr::ints(at.iter().map(|_| 0))),
            false => OpSpec::new(TileOp::Gather, &[mem]).group("at", at),
        };
        if let Some(other) = other {
            let other = self.b.cast(other, dtype);
            spec = spec.group("other", &[other]);
        }
        let value = self.b.value(spec.result(Type::value(shape_of(dims), dtype))).ok()?;
        Some(self.b.cast(value, carrier))
    }

    fn reduce(&mut self, id: OpId) -> Option<Value> {
        let (func, op) = (self.func, &self.func.ops[id]);
        let (v, x) = (op.result(), op.operands[0]);
        let to = elem(func.ty(v));
        let (operator, accum) = (operator(func, id)?, accumulator(func, id)?);
        let from = dims_of(func, x);
        let axes = along(func, id);
        let value = self.tile(x)?;
        let mut value = self.plainly(value, accum);
        if !axes.is_empty() {
            // The axes as one, in the order that they are listed in.
            let kept: Vec<usize> = (0..from.len()).filter(|a| !axes.contains(a)).collect();
            let perm: Vec<usize> = kept.iter().chain(&axes).copied().collect();
            value = self.transpose(value, &perm)?;
            let mut joined: Vec<i64> = kept.iter().map(|&a| from[a]).collect();
            joined.push(axes.iter().map(|&a| from[a]).product());
            value = self.reshape(value, &joined)?;
            value = self.b.reduce(value, operator, kept.len());
        }
        let clamp = matches!(operator, ReduceOp::Max | ReduceOp::Min) && to.storage.is_int();
        let (round, saturate) = (plain(to.rounding()), to.saturates() || clamp);
        Some(settle(&mut self.b, value, to, round, saturate))
    }

    /// A scan from the end runs forwards over what is turned around.
    fn scan(&mut self, id: OpId) -> Option<Value> {
        let (func, op) = (self.func, &self.func.ops[id]);
        let (v, x) = (op.result(), op.operands[0]);
        let to = elem(func.ty(v));
        let (operator, accum) = (operator(func, id)?, accumulator(func, id)?);
        let axis = along(func, id)[0];
        let flag = |name: &str| op.attr(name).and_then(Attr::as_bool).unwrap_or(false);
        let (reverse, exclusive) = (flag("reverse"), flag("exclusive"));
        let value = if reverse { self.reversed(x, &[axis])? } else { self.tile(x)? };
        let value = self.plainly(value, accum);
        let mut spec = OpSpec::new(TileOp::Scan, &[value])
            .attr("op", Attr::word(operator.name()))
            .attr("axis", Attr::Int(axis as i64))
            .result(self.b.func.ty(value).clone());
        if exclusive {
            spec = spec.attr("exclusive", Attr::Bool(true));
        }
        let value = self.b.value(spec).ok()?;
        let clamp = matches!(operator, ReduceOp::Max | ReduceOp::Min) && to.storage.is_int();
        let (round, saturate) = (plain(to.rounding()), to.saturates() || clamp);
        let value = settle(&mut self.b, value, to, round, saturate);
        if !reverse {
            return Some(value);
        }
        let (dims, carrier) = (self.of(value), self.b.func.ty(value).dtype());
        let mem = self.buffer(&dims, carrier)?;
        self.store_all(mem, value)?;
        self.turned_around(mem, &dims, &[axis], carrier)
    }

    fn dot(&mut self, id: OpId) -> Option<Value> {
        let (func, op) = (self.func, &self.func.ops[id]);
        let v = op.result();
        let (to, dims) = (elem(func.ty(v)), dims_of(func, v));
        let s = sides(func, id);
        let accum = sums_in(func, id)?;
        let extents = |side: usize, axes: &[usize]| -> Vec<i64> {
            let all = dims_of(func, op.operands[side]);
            axes.iter().map(|&a| all[a]).collect()
        };
        let size = |list: &[i64]| list.iter().product::<i64>();
        let depth = size(&s.depth);
        let (batch, m, n) = (
            size(&extents(0, &s.batch[0])),
            size(&extents(0, &s.free[0])),
            size(&extents(1, &s.free[1])),
        );
        // Batch, rows or columns, depth.
        let mut operands = Vec::new();
        for side in 0..2 {
            let x = self.tile(op.operands[side])?;
            let perm: Vec<usize> = s.batch[side]
                .iter()
                .chain(&s.free[side])
                .chain(&s.contract[side])
                .copied()
                .collect();
            operands.push(self.transpose(x, &perm)?);
        }
        let value = if is_matrix(func, id) {
            let types = [0, 1].map(|i| func.ty(op.operands[i]).dtype());
            let a = self.reshape(operands[0], &[m, depth])?;
            let b = self.reshape(operands[1], &[n, depth])?;
            let b = self.transpose(b, &[1, 0])?;
            let (a, b) = (self.b.cast(a, types[0]), self.b.cast(b, types[1]));
            let ty = Type::tile(&[m, n], accum);
            let (zero, _) = constant(Scalar::zero(accum));
            let zero = self.b.constant(ty.clone(), zero);
            let mut spec = OpSpec::new(TileOp::Mma, &[a, b, zero]);
            if let Some(class) = op.attr("class").and_then(Attr::as_word) {
                spec = spec.attr("class", Attr::word(class));
            }
            self.b.value(spec.result(ty)).ok()?
        } else {
            let all = [batch, m, n, depth];
            let a = self.reshape(operands[0], &[batch, m, 1, depth])?;
            let b = self.reshape(operands[1], &[batch, 1, n, depth])?;
            let sides = [a, b].map(|x| {
                let x = cast(&mut self.b, x, accum, Rounding::Rne, accum.saturates_by_default());
                if self.of(x) == all { x } else { self.b.broadcast(x, shape_of(&all)) }
            });
            let product = self.b.ew(ScalarFn::Mul, &sides);
            self.b.reduce(product, ReduceOp::Sum, 3)
        };
        let value = self.reshape(value, &dims)?;
        Some(self.by_policy(value, to))
    }

    fn gather(&mut self, id: OpId) -> Option<Value> {
        let (func, op) = (self.func, &self.func.ops[id]);
        let (x, indices) = (op.operands[0], op.operands[1]);
        let axes = axes_of(func, id, "axes");
        let batch = op.attr("batch").and_then(Attr::as_int).unwrap_or(0).max(0) as usize;
        let from = dims_of(func, x);
        let dims = dims_of(func, op.result());
        let mut lead = dims_of(func, indices);
        let count = lead.pop()?;
        let clamp = op.attr("oob").and_then(Attr::as_word) != Some("fill");
        let mem = self.memory(x)?;
        let mut at = Vec::new();
        let mut rest = lead.len();
        for (axis, &extent) in from.iter().enumerate() {
            at.push(if let Some(k) = axes.iter().position(|&a| a == axis) {
                let one = if count == 1 {
                    let all = self.tile(indices)?;
                    self.reshape(all, &lead)?
                } else {
                    let table = self.memory(indices)?;
                    let (zero, k) = (self.b.index(0), self.b.index(k as i64));
                    let mut place = vec![zero; lead.len()];
                    place.push(k);
                    let mut extents = lead.clone();
                    extents.push(0);
                    self.load_at(table, &place, &extents, None, self.carrier(indices))?
                };
                let saturate = DType::I64.saturates_by_default();
                let one = cast(&mut self.b, one, DType::I64, Rounding::Rne, saturate);
                let one = if clamp { self.clamp(one, extent - 1) } else { one };
                let own: Vec<usize> = (0..lead.len()).collect();
                if dims.is_empty() { one } else { self.broadcast(one, &own, &dims)? }
            } else if axis < batch {
                self.positions(&dims, axis)?
            } else {
                rest += 1;
                self.positions(&dims, rest - 1)?
            });
        }
        let other = match op.group("other").first() {
            Some(&v) => Some(self.tile(v)?),
            None => None,
        };
        self.gathered(mem, &at, &dims, other, self.carrier(x))
    }
}
