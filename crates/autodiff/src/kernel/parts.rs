//! Derivatives of ops that take tiles apart and put them together.

use super::reverse::Reverse;
use super::weave::{Weave, wide};
use crate::scalar::Scalars;
use tessera_diag::Diagnostic;
use tessera_ir::{Attr, OpId, OpSpec, Type, Value};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::ops::parts::slice_steps;
use tessera_tile::{TileBuild, TileOp};

type Out = Result<Value, Diagnostic>;

/// How many elements the tile has in which positions are compared.
const MOST_COMPARED: i64 = 1 << 14;

impl Weave<'_> {
    /// Elements by their positions along an axis.
    pub fn take(&mut self, x: Value, index: Value, axis: usize) -> Out {
        self.value(OpSpec::new(TileOp::Take, &[x, index]).attr("axis", Attr::Int(axis as i64)))
    }

    /// The transpose of `take`: a tile of the old shape, with the sum of what was taken from each
    /// position, in ascending order of the positions in `index`. There is no scatter of tiles: every
    /// position is compared with every element of `index`, as many at a time as a tile of
    /// [`MOST_COMPARED`] elements holds.
    pub fn untake(&mut self, ct: Value, index: Value, axis: usize, to: &Type) -> Out {
        let (from, sizes) = (self.ty(ct).clone(), to.static_shape().unwrap_or_default());
        let count = from.static_shape().unwrap_or_default()[axis];
        let chunk = MOST_COMPARED / sizes.iter().product::<i64>().max(1);
        let chunk = chunk.clamp(1, count.max(1));
        if chunk >= count {
            return self.placed(ct, index, axis, to);
        }
        let bounds = [0, count, chunk].map(|v| self.b().index(v));
        let zero = self.zeros(to);
        let spec = OpSpec::new(TileOp::For, &bounds).group("init", &[zero]);
        let made = self.op(spec.results(vec![to.clone()]))?;
        let (outer, body) = (self.block, self.rw.new.ops[made].regions[0]);
        self.block = body;
        let first = self.rw.new.add_arg(body, Type::INDEX, None);
        let sum = self.rw.new.add_arg(body, to.clone(), None);
        let mut shape = from.shape().to_vec();
        shape[axis] = chunk.into();
        let like = Type::value(shape, DType::I64);
        let near = self.positions(axis, &like);
        let first = self.broadcast(first, &like);
        let at = self.b().ew(ScalarFn::Add, &[first, near]);
        // Behind the last position is zero, which is added to the first element.
        let (part, ids) = (self.take(ct, at, axis)?, self.take(index, at, axis)?);
        let part = self.placed(part, ids, axis, to)?;
        let next = self.add(sum, part)?;
        self.b().yield_(&[next]);
        self.block = outer;
        Ok(self.rw.new.ops[made].results[0])
    }

    /// The same without a loop.
    fn placed(&mut self, ct: Value, index: Value, axis: usize, to: &Type) -> Out {
        let mut shape = self.ty(ct).shape().to_vec();
        shape.insert(axis, to.shape()[axis].clone());
        let like = Type::value(shape, DType::I64);
        let index = self.cast(index, DType::I64);
        let index = self.b().expand(index, axis);
        let index = self.broadcast(index, &like);
        let position = self.positions(axis, &like);
        let here = self.b().ew(ScalarFn::Eq, &[index, position]);
        let ct = self.b().expand(ct, axis);
        let ct = self.broadcast(ct, &like);
        let zero = self.like(0.0, ct)?;
        let part = self.b().select(here, ct, zero);
        Ok(self.sum(part, axis + 1))
    }

    /// The position of each element along an axis.
    fn positions(&mut self, axis: usize, like: &Type) -> Value {
        let extent = like.shape()[axis].as_static().unwrap_or(1);
        let mut position = self.b().iota(0, extent);
        for other in (0..like.rank()).filter(|&d| d != axis) {
            position = self.b().expand(position, other);
        }
        let position = self.cast(position, like.dtype());
        self.broadcast(position, like)
    }

    /// The transpose of a slice: a tile of the old shape with zeros where the slice took nothing.
    pub fn unslice(&mut self, ct: Value, start: &[i64], step: &[i64], to: &Type) -> Out {
        let sizes = to.static_shape().unwrap_or_default();
        let mut out = ct;
        for axis in 0..sizes.len() {
            let mut extents = self.ty(out).static_shape().unwrap_or_default();
            let taken = extents[axis];
            if taken == sizes[axis] && step[axis] == 1 {
                continue;
            }
            extents[axis] = sizes[axis];
            let index = self.numbers(axis, &extents, start[axis], step[axis], taken);
            out = self.take(out, index, axis)?;
        }
        Ok(out)
    }

    /// The number of each position along an axis in a slice, (p - start) / step; -1 where it has none.
    fn numbers(
        &mut self,
        axis: usize,
        extents: &[i64],
        start: i64,
        step: i64,
        taken: i64,
    ) -> Value {
        let like = Type::tile(extents, DType::I32);
        let constant = |w: &mut Self, v: i64| w.b().constant(like.clone(), Attr::Int(v));
        let position = self.positions(axis, &like);
        // With a step below zero the slice runs from its start down.
        let first = constant(self, start);
        let far = match step < 0 {
            true => self.b().ew(ScalarFn::Sub, &[first, position]),
            false => self.b().ew(ScalarFn::Sub, &[position, first]),
        };
        let by = constant(self, step.abs());
        let number = self.b().ew(ScalarFn::FloorDiv, &[far, by]);
        let rest = self.b().ew(ScalarFn::Mod, &[far, by]);
        let (zero, end) = (constant(self, 0), constant(self, taken));
        let whole = self.b().ew(ScalarFn::Eq, &[rest, zero]);
        let below = self.b().ew(ScalarFn::Lt, &[number, end]);
        let inside = self.b().ew(ScalarFn::And, &[whole, below]);
        let none = constant(self, -1);
        self.b().select(inside, number, none)
    }
}

/// Start and step of a slice.
fn slice_of(op: &tessera_ir::Op<tessera_tile::Tile>) -> (Vec<i64>, Vec<i64>) {
    let start = op.attr("start").and_then(Attr::as_ints).unwrap_or_default();
    let step = slice_steps(op.attr("step"), start.len());
    (start, step)
}

impl Reverse<'_, '_> {
    pub fn sliced(&mut self, id: OpId, ct: Value) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let (start, step) = slice_of(op);
        let part = self.w.unslice(ct, &start, &step, &wide(self.study.func.ty(op.operands[0])))?;
        self.give(op.operands[0], part);
        Ok(())
    }

    pub fn concatenated(&mut self, id: OpId, ct: Value) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
        let mut at = 0;
        for &part in &op.operands {
            let ty = wide(self.study.func.ty(part));
            let extent = ty.static_shape().unwrap_or_default()[axis];
            if self.study.active[part] {
                let mut start = vec![0; ty.rank()];
                start[axis] = at;
                let spec =
                    OpSpec::new(TileOp::Slice, &[ct]).attr("start", Attr::ints(start)).result(ty);
                let own = self.w.value(spec)?;
                self.give(part, own);
            }
            at += extent;
        }
        Ok(())
    }

    /// What was taken from one position several times adds up.
    pub fn taken_by_position(&mut self, id: OpId, ct: Value) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
        let index = self.w.get(op.operands[1]);
        let part = self.w.untake(ct, index, axis, &wide(self.study.func.ty(op.operands[0])))?;
        self.give(op.operands[0], part);
        Ok(())
    }

    /// The places of a sorted tile are a permutation: sorted, they say where each element went.
    pub fn sorted(&mut self, id: OpId, ct: Value) -> Result<(), Diagnostic> {
        let op = &self.study.func.ops[id];
        let axis = op.attr("axis").and_then(Attr::as_int).unwrap_or(0) as usize;
        let places = self.w.get(op.results[1]);
        let back =
            self.w.op(OpSpec::new(TileOp::Sort, &[places]).attr("axis", Attr::Int(axis as i64)))?;
        let back = self.w.rw.new.ops[back].results[1];
        let part = self.w.take(ct, back, axis)?;
        self.give(op.operands[0], part);
        Ok(())
    }
}
