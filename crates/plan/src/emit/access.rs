//! Reads and writes of a kernel's arrays: blocks of tiles, elements at computed positions.

use super::arrays::{array, axes_of, output_axes, plain_array, within, written};
use super::{Emitter, Held};
use crate::index::Axis;
use crate::nodes::{Access, Node, NodeId};
use tessera_ir::{Attr, OpSpec, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{TileBuild, TileOp};

impl Emitter<'_> {
    /// The positions and extents of an access's block.
    pub(super) fn block(&mut self, axes: &[Axis]) -> (Vec<Value>, Vec<i64>) {
        let at = axes.iter().map(|&a| self.start(a)).collect();
        let extent = axes.iter().map(|&a| self.tile_of(a).unwrap_or(0)).collect();
        (at, extent)
    }

    /// How far an access is moved, in elements.
    pub(super) fn moved(&mut self, moved: &[(NodeId, i64, i64)]) -> Result<Option<Value>, String> {
        let mut sum = None;
        for &(node, stride, most) in moved {
            let held = self.node(node)?;
            if !held.axes.is_empty() {
                return Err("a position that is not one number".into());
            }
            let at = self.b.cast(held.value, DType::I64);
            let (zero, most) = (self.b.index(0), self.b.index(most));
            let at = self.b.ew(ScalarFn::Maximum, &[at, zero]);
            let at = self.b.ew(ScalarFn::Minimum, &[at, most]);
            let by = self.b.index(stride);
            let part = self.b.ew(ScalarFn::Mul, &[at, by]);
            sum = Some(match sum {
                None => part,
                Some(before) => self.b.ew(ScalarFn::Add, &[before, part]),
            });
        }
        Ok(sum)
    }

    pub(super) fn load(
        &mut self,
        access: &Access,
        dtype: DType,
        moved: &[(NodeId, i64, i64)],
        window: &[(Axis, i64, i64)],
    ) -> Result<Held, String> {
        let one = array(access, self.body, self.shape, dtype, false, moved);
        let mem = self.param(&within(one, access, self.shape, window))?;
        let axes = axes_of(access, self.shape);
        let (mut at, mut extent) = self.block(&axes);
        for &(axis, lo, _) in window.iter().filter(|w| w.1 != 0) {
            if let Some(place) = axes.iter().position(|&a| a == axis) {
                let lo = self.b.index(lo);
                at[place] = self.b.ew(ScalarFn::Sub, &[at[place], lo]);
            }
        }
        if let Some(start) = self.moved(moved)? {
            at.insert(0, start);
            extent.insert(0, 0);
        }
        if at.is_empty() {
            at.push(self.b.index(0));
            extent.push(0);
        }
        let value = self.b.load(mem, &at, &extent);
        let value = self.b.cast(value, dtype.carrier());
        let axes = axes.into_iter().filter(|&a| self.tile_of(a).is_some()).collect();
        Ok(Held { value, axes })
    }

    pub(super) fn gather(
        &mut self,
        value: tessera_ir::Value,
        dims: &[i64],
        dtype: DType,
        at: &[NodeId],
        other: Option<NodeId>,
        clamp: bool,
    ) -> Result<Held, String> {
        let mem = self.param(&plain_array(value, dims, dtype))?;
        let mut places = Vec::new();
        for (&node, &extent) in at.iter().zip(dims) {
            let mut held = self.node(node)?;
            // Positions outside are clamped, and the access need not check again.
            if clamp && !self.is_within(node, extent) {
                let ends = [0, extent - 1].map(|v| {
                    let v = self.b.index(v);
                    let shape = self.b.func.ty(held.value).shape().to_vec();
                    if shape.is_empty() { v } else { self.b.broadcast(v, shape) }
                });
                let v = self.b.ew(ScalarFn::Maximum, &[held.value, ends[0]]);
                held.value = self.b.ew(ScalarFn::Minimum, &[v, ends[1]]);
            }
            places.push(held);
        }
        let axes = self.union(&places.iter().collect::<Vec<_>>());
        let at: Vec<Value> = places.iter().map(|p| self.align(p, &axes)).collect();
        let shape = self.extents(&axes);
        let ty = Type::value(shape, dtype);
        let mut spec = match axes.is_empty() {
            true => OpSpec::new(TileOp::Load, &[mem])
                .group("at", &at)
                .attr("extent", Attr::ints(at.iter().map(|_| 0))),
            false => OpSpec::new(TileOp::Gather, &[mem]).group("at", &at),
        };
        if clamp && !axes.is_empty() {
            spec = spec.attr("inbounds", Attr::Bool(true));
        }
        if let Some(other) = other {
            let held = self.node(other)?;
            let value = self.b.cast(held.value, dtype);
            spec = spec.group("other", &[value]);
        }
        let value = self.b.value(spec.result(ty))?;
        Ok(Held { value: self.b.cast(value, dtype.carrier()), axes })
    }

    /// Whether a position is inside an axis of this extent for all elements of all tiles, including
    /// the padding of ragged ones.
    fn is_within(&self, node: NodeId, extent: i64) -> bool {
        let Node::Position { offset, strides, .. } = &self.body.nodes[node] else { return false };
        let whole = |axis: Axis| {
            let extent = self.body.space.extents[axis];
            self.tile_of(axis).map_or(Some(extent), |tile| (extent % tile == 0).then_some(extent))
        };
        let mut ends = (*offset, *offset);
        for &(axis, stride) in strides {
            let Some(n) = whole(axis) else { return false };
            let reach = stride * (n - 1).max(0);
            ends = (ends.0 + reach.min(0), ends.1 + reach.max(0));
        }
        0 <= ends.0 && ends.1 < extent
    }

    pub(super) fn write(&mut self, place: usize) -> Result<(), String> {
        let write = self.body.writes[place].clone();
        let held = self.node(write.node)?;
        let mem = self.param(&written(&write, self.body, self.shape))?;
        let axes = match self.shape.matrix {
            Some((row, column)) => output_axes(&write.access, self.shape, row, column),
            None => axes_of(&write.access, self.shape),
        };
        let (mut at, mut extent) = self.block(&axes);
        if let Some(start) = self.moved(&write.moved)? {
            at.insert(0, start);
            extent.insert(0, 0);
        }
        if at.is_empty() {
            at.push(self.b.index(0));
            extent.push(0);
        }
        let tiled: Vec<Axis> = axes.into_iter().filter(|&a| self.tile_of(a).is_some()).collect();
        let value = self.align(&held, &tiled);
        let value = self.b.cast(value, write.dtype);
        self.b.store(mem, value, &at, &extent);
        Ok(())
    }
}
