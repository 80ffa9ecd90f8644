//! A loop with small iterations becomes one kernel.
//!
//! The kernel is one group. A carried value is a tile that a loop of Tile IR carries, an op of the
//! body is an op on whole tiles; loops and branches inside are loops and branches of Tile IR.
//! Captured values and `xs` are read-only parameters; the final carried values and the stacks are
//! written once. So no value of the body has memory that outlives an op, and an iteration costs its
//! arithmetic instead of launches.
//!
//! Slices of tiles, which Tile IR has no ops for, go through buffers of the group.
//!
//! `None` where an op of the body has no form on tiles, or where an iteration is large enough for
//! kernels of its own: those use all cores and the blocked matmul.

use crate::class::{Class, axes_of, class, is_empty, is_matrix, sides, weight_of};
use crate::emit::{ArrayUse, Kernel, plain_array, settle};
use crate::index::dims_of;
use crate::nodes::plain;
use std::collections::{BTreeMap, BTreeSet};
use tessera_graph::{GraphFunc, GraphOp, elem, walk};
use tessera_ir::{Attr, BlockId, Builder, Dim, DimExpr, OpId, OpSpec, Privilege, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp, Rounding, ScalarFn};
use tessera_tile::{Tile, TileBuild, TileFunc, TileOp};

mod ops;
mod resident;

/// The most elements of a value in an iteration.
const LARGEST: i64 = 1 << 12;

/// The most elements that the ops of an iteration compute together.
const MOST_WORK: i64 = 1 << 18;

/// The most ops of a body, and operations for an element: code size grows with them.
const MOST_OPS: usize = 600;
const HEAVIEST: usize = 4096;

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
    let (mut work, mut ops, mut weight, mut fits) = (0, 0, 0, true);
    let resident = resident::all(func, id);
    let most = |v: Value| if resident.contains(&v) { resident::LARGEST } else { LARGEST };
    for &region in &func.ops[id].regions {
        func.walk_block(region, &mut |inner| {
            ops += 1;
            weight += weight_of(func, inner);
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
    let small = ops <= MOST_OPS && weight <= HEAVIEST && work <= MOST_WORK;
    fits && small && whole.into_iter().all(|&v| !is_empty(func, v))
}

#[deny(clippy::wildcard_enum_match_arm)]
fn has_form(func: &GraphFunc, id: OpId) -> bool {
    use GraphOp::*;
    let op = &func.ops[id];
    let ints = |name: &str| op.attr(name).and_then(Attr::as_ints).unwrap_or_default();
    match op.code {
        Cond | While | Loop => true,
        Pad => ints("lo").iter().chain(&ints("hi")).all(|&n| n >= 0),
        DynamicUpdateSlice | Concat => true,
        Scatter => resident::is_single(func, id),
        Dot => {
            matches!(class(func, id), Class::Product)
                && (!is_matrix(func, id) || axes_of(func, id, "batch_a").is_empty())
        }
        Gather => dims_of(func, op.operands[1]).iter().product::<i64>() <= LARGEST,
        Const => op.attr("data").is_none(),
        Manual | Vary | Own | AllReduce | AllGather | ReduceScatter | AllToAll | Permute
        | FromRank | AxisIndex | KernelCall | Return | Yield | Call | Composite | Iota | Select
        | Cast | Bitcast | Dim | StopGradient | OptBarrier | Shard | Broadcast | Reshape
        | Transpose | Slice | Reverse | DynamicSlice | Reduce | ArgReduce | Scan | Sort | Conv
        | WindowReduce | WindowArgReduce | Philox | Ew(_) => matches!(
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
            // Starts are constants, loop positions, or clamped to be inside.
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

    /// The ops of a block; returns what it yields.
    fn block(&mut self, block: BlockId) -> Option<Vec<Value>> {
        self.block_but(block, &[])
    }

    /// The same without the yields at these places.
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

    /// A loop or a branch. Returns its results except the stacks, which are written to `stacks`, or
    /// to buffers that then hold them.
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
            let iteration = e.b.func.add_arg(to, Type::INDEX, Some("i"));
            for (&i, ty) in places.iter().zip(types) {
                let tile = e.b.func.add_arg(to, ty, None);
                e.set(args[1 + i], tile);
            }
            e.put_in(&args[1..], &stays);
            let at = match reverse {
                false => iteration,
                true => {
                    let last = e.b.index(trip - 1);
                    e.b.ew(ScalarFn::Sub, &[last, iteration])
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

    /// Memory for the carried arrays of a loop that stay in one place, filled with their initial
    /// values.
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

    /// Maps these arrays in a region to their memory.
    fn put_in(&mut self, args: &[Value], stays: &[(usize, Value)]) {
        for &(place, mem) in stays {
            self.held.insert(args[place], Held { tile: None, mem: Some(mem) });
        }
    }

    /// The carried results of a loop; those in memory are read at its end.
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

    /// The position of a row of a stack.
    fn row(&mut self, at: Value, dims: &[i64]) -> (Vec<Value>, Vec<i64>) {
        let zero = self.b.index(0);
        let mut place = vec![at];
        place.extend(dims.iter().map(|_| zero));
        let mut extent = vec![0];
        extent.extend(dims);
        (place, extent)
    }
}
