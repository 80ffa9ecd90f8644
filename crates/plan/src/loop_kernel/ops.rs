//! The ops of a loop's body, on whole tiles.

use super::{Emitter, Held, shape_of};
use crate::class::{accumulator, along, axes_of, is_matrix, operator, sides, sums_in};
use crate::emit::{cast, constant, settle};
use crate::index::dims_of;
use crate::nodes::{plain, splat};
use tessera_graph::{GraphOp, elem};
use tessera_ir::{Attr, OpId, OpSpec, Type, Value};
use tessera_numerics::{DType, ReduceOp, Rounding, Scalar, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

impl Emitter<'_, '_> {
    #[deny(clippy::wildcard_enum_match_arm)]
    pub(super) fn op(&mut self, id: OpId) -> Option<()> {
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
            GraphOp::StopGradient | GraphOp::Shard => self.tile(op.operands[0])?,
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
            | GraphOp::Call
            | GraphOp::Composite
            | GraphOp::Manual
            | GraphOp::Vary
            | GraphOp::Own
            | GraphOp::AllReduce
            | GraphOp::AllGather
            | GraphOp::ReduceScatter
            | GraphOp::AllToAll
            | GraphOp::Permute
            | GraphOp::FromRank
            | GraphOp::AxisIndex => return None,
        };
        self.set(v, tile);
        Some(())
    }

    /// A scalar at every position; a tile as it is.
    fn reshape_to(&mut self, x: Value, dims: &[i64]) -> Option<Value> {
        if self.of(x).is_empty() { self.reshape(x, dims) } else { Some(x) }
    }

    /// Where a slice begins after clamping it to be inside.
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

    /// A reverse scan is a forward scan over a reversed tile.
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

    /// An update of a part of an array, in its memory.
    pub(super) fn change(&mut self, id: OpId, mem: Value) -> Option<()> {
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

    /// One update at a computed position; nothing happens where that is outside.
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
}
