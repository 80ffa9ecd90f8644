//! Shared buffers of an expansion, and the accesses to them.

use super::{Expander, Place, shape};
use crate::{TileBuild, TileOp};
use tessera_ir::{Attr, Builder, Dim, OpSpec, Type, Value};
use tessera_numerics::DType;

/// The buffers of the function. Those of an expansion are free again when it ends.
#[derive(Default)]
pub(super) struct Pool {
    free: Vec<(Vec<i64>, DType, Value)>,
    used: Vec<(Vec<i64>, DType, Value)>,
}

impl Pool {
    pub fn release(&mut self) {
        self.free.append(&mut self.used);
    }
}

impl Expander<'_> {
    /// A buffer that no other value of this expansion is in.
    pub(super) fn buffer(&mut self, extents: &[i64], dtype: DType) -> Value {
        let fits = |(e, d, _): &(Vec<i64>, DType, Value)| e == extents && *d == dtype;
        let found = self.pool.free.iter().position(fits).map(|at| self.pool.free.remove(at));
        let entry = found.unwrap_or_else(|| {
            let dims = extents.iter().map(|&e| Dim::Static(e)).collect();
            let spec = OpSpec::new(TileOp::BufAlloc, &[]).result(Type::Buf { shape: dims, dtype });
            let (body, loc) = (self.rw.new.body, self.rw.old.loc.clone());
            let mut b = Builder::before(&mut self.rw.new, body, 0, loc);
            let buffer = b.value(spec).expect("the result type is given");
            (extents.to_vec(), dtype, buffer)
        });
        self.pool.used.push(entry.clone());
        entry.2
    }

    /// A buffer with a tile in it.
    pub(super) fn stored(&mut self, at: &Place, x: Value) -> Value {
        let (extents, dtype) = (shape(self.ty(x)), self.ty(x).dtype());
        let buffer = self.buffer(&extents, dtype);
        self.store(at, buffer, x, &vec![0; extents.len()]);
        buffer
    }

    /// Writes a tile at a position that is known.
    pub(super) fn store(&mut self, at: &Place, buffer: Value, x: Value, start: &[i64]) {
        let extents = shape(self.ty(x));
        let start: Vec<Value> = start.iter().map(|&p| self.b(at).index(p)).collect();
        self.store_at(at, buffer, x, &start, &extents);
    }

    /// Writes a block; an extent of 0 is one position of an axis that the value does not have.
    pub(super) fn store_at(
        &mut self,
        at: &Place,
        buffer: Value,
        x: Value,
        start: &[Value],
        extents: &[i64],
    ) {
        let spec = OpSpec::new(TileOp::Store, &[buffer, x])
            .group("at", start)
            .attr("extent", Attr::ints(extents.iter().copied()))
            .attr("bounds", inside(extents.len()));
        self.b(at).op(spec).expect("the op has no results");
    }

    pub(super) fn load(
        &mut self,
        at: &Place,
        buffer: Value,
        start: &[i64],
        steps: &[i64],
        extents: &[i64],
    ) -> Value {
        let start: Vec<Value> = start.iter().map(|&p| self.b(at).index(p)).collect();
        self.load_at(at, buffer, &start, steps, extents)
    }

    pub(super) fn load_at(
        &mut self,
        at: &Place,
        buffer: Value,
        start: &[Value],
        steps: &[i64],
        extents: &[i64],
    ) -> Value {
        let ty = Type::value(crate::ops::memory::block_shape(extents), self.ty(buffer).dtype());
        let mut spec = OpSpec::new(TileOp::Load, &[buffer])
            .group("at", start)
            .attr("extent", Attr::ints(extents.iter().copied()))
            .attr("bounds", inside(extents.len()))
            .result(ty);
        if steps.iter().any(|&s| s != 1) {
            spec = spec.attr("step", Attr::ints(steps.iter().copied()));
        }
        self.b(at).value(spec).expect("the result type is given")
    }

    pub(super) fn gather(
        &mut self,
        at: &Place,
        buffer: Value,
        positions: &[Value],
        inbounds: bool,
    ) -> Value {
        let ty = self.ty(positions[0]).with_dtype(self.ty(buffer).dtype());
        let mut spec = OpSpec::new(TileOp::Gather, &[buffer]).group("at", positions).result(ty);
        if inbounds {
            spec = spec.attr("inbounds", Attr::Bool(true));
        }
        self.b(at).value(spec).expect("the result type is given")
    }

    /// The position along an axis of every element of a tile, as i32.
    pub(super) fn positions(&mut self, at: &Place, axis: usize, extents: &[i64]) -> Value {
        let dims: Vec<Dim> = extents.iter().map(|&e| Dim::Static(e)).collect();
        let mut tile = self.b(at).iota(0, extents[axis]);
        for other in (0..extents.len()).filter(|&d| d != axis) {
            tile = self.b(at).expand(tile, other);
        }
        self.b(at).broadcast(tile, dims)
    }

    /// An i32 in every element of a tile.
    pub(super) fn spread(&mut self, at: &Place, value: i64, extents: &[i64]) -> Value {
        self.b(at).constant(Type::tile(extents, DType::I32), Attr::Int(value))
    }
}

fn inside(rank: usize) -> Attr {
    Attr::List(vec![Attr::word("inside"); rank])
}
