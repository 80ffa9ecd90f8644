//! Builders for the ops that passes and the front end make most.

use crate::{Tile, TileOp};
use tessera_ir::{Attr, Builder, OpSpec, Shape, Type, Value};
use tessera_numerics::{DType, ReduceOp, ScalarFn};

/// Adds Tile IR's ops to a [`Builder`]. Callers hand over operands that fit; what does not is
/// reported by the verifier, at the op.
pub trait TileBuild {
    fn index(&mut self, value: i64) -> Value;
    fn constant(&mut self, ty: Type, value: Attr) -> Value;
    fn dim(&mut self, name: &str) -> Value;
    fn ew(&mut self, f: ScalarFn, operands: &[Value]) -> Value;
    fn cast(&mut self, x: Value, dtype: DType) -> Value;
    fn broadcast(&mut self, x: Value, shape: Shape) -> Value;
    fn expand(&mut self, x: Value, axis: usize) -> Value;
    fn iota(&mut self, start: i64, len: i64) -> Value;
    fn select(&mut self, c: Value, a: Value, b: Value) -> Value;
    fn load(&mut self, mem: Value, at: &[Value], extent: &[i64]) -> Value;
    fn store(&mut self, mem: Value, value: Value, at: &[Value], extent: &[i64]);
    fn reduce(&mut self, x: Value, op: ReduceOp, axis: usize) -> Value;
    fn return_(&mut self);
    fn yield_(&mut self, values: &[Value]);
}

impl TileBuild for Builder<'_, Tile> {
    fn index(&mut self, value: i64) -> Value {
        self.constant(Type::INDEX, Attr::Int(value))
    }

    fn constant(&mut self, ty: Type, value: Attr) -> Value {
        emit(self, OpSpec::new(TileOp::Const, &[]).attr("value", value).result(ty))
    }

    fn dim(&mut self, name: &str) -> Value {
        let v = emit(
            self,
            OpSpec::new(TileOp::Dim, &[]).attr("name", Attr::word(name)).result(Type::INDEX),
        );
        self.name(v, name);
        v
    }

    fn ew(&mut self, f: ScalarFn, operands: &[Value]) -> Value {
        let ty = self.func.ty(operands[0]);
        let ty = ty.with_dtype(f.result(ty.dtype()));
        emit(self, OpSpec::new(TileOp::Ew(f), operands).result(ty))
    }

    fn cast(&mut self, x: Value, dtype: DType) -> Value {
        if self.func.ty(x).dtype() == dtype {
            return x;
        }
        let ty = self.func.ty(x).with_dtype(dtype);
        emit(self, OpSpec::new(TileOp::Cast, &[x]).result(ty))
    }

    fn broadcast(&mut self, x: Value, shape: Shape) -> Value {
        if self.func.ty(x).shape() == shape {
            return x;
        }
        let ty = Type::value(shape, self.func.ty(x).dtype());
        emit(self, OpSpec::new(TileOp::Broadcast, &[x]).result(ty))
    }

    fn expand(&mut self, x: Value, axis: usize) -> Value {
        let mut shape = self.func.ty(x).shape().to_vec();
        shape.insert(axis, 1.into());
        let ty = Type::value(shape, self.func.ty(x).dtype());
        emit(
            self,
            OpSpec::new(TileOp::Expand, &[x]).attr("axis", Attr::Int(axis as i64)).result(ty),
        )
    }

    fn iota(&mut self, start: i64, len: i64) -> Value {
        let spec = OpSpec::new(TileOp::Iota, &[]).result(Type::tile(&[len], DType::I32));
        emit(self, if start == 0 { spec } else { spec.attr("start", Attr::Int(start)) })
    }

    fn select(&mut self, c: Value, a: Value, b: Value) -> Value {
        let ty = self.func.ty(a).clone();
        emit(self, OpSpec::new(TileOp::Select, &[c, a, b]).result(ty))
    }

    fn load(&mut self, mem: Value, at: &[Value], extent: &[i64]) -> Value {
        let ty = Type::value(crate::ops::memory::block_shape(extent), self.func.ty(mem).dtype());
        let spec = OpSpec::new(TileOp::Load, &[mem]).group("at", at);
        emit(self, spec.attr("extent", Attr::ints(extent.iter().copied())).result(ty))
    }

    fn store(&mut self, mem: Value, value: Value, at: &[Value], extent: &[i64]) {
        let spec = OpSpec::new(TileOp::Store, &[mem, value]).group("at", at);
        effect(self, spec.attr("extent", Attr::ints(extent.iter().copied())));
    }

    fn reduce(&mut self, x: Value, op: ReduceOp, axis: usize) -> Value {
        let mut shape = self.func.ty(x).shape().to_vec();
        shape.remove(axis);
        let ty = Type::value(shape, self.func.ty(x).dtype());
        let spec = OpSpec::new(TileOp::Reduce, &[x]).attr("op", Attr::word(op.name()));
        emit(self, spec.attr("axis", Attr::Int(axis as i64)).result(ty))
    }

    fn return_(&mut self) {
        effect(self, OpSpec::new(TileOp::Return, &[]));
    }

    fn yield_(&mut self, values: &[Value]) {
        effect(self, OpSpec::new(TileOp::Yield, &[]).group("values", values));
    }
}

/// Result types are always given here, so nothing is left to infer and nothing can fail.
fn emit(b: &mut Builder<'_, Tile>, spec: OpSpec<Tile>) -> Value {
    b.value(spec).expect("the result type is given")
}

fn effect(b: &mut Builder<'_, Tile>, spec: OpSpec<Tile>) {
    b.op(spec).expect("the op has no results");
}
