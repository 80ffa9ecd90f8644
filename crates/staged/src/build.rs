//! Short forms for the ops that passes emit most. The caller gives result types wherever a layout
//! is chosen.

use crate::{Staged, StagedOp};
use tessera_ir::{Attr, Builder, OpId, OpSpec, Type, Value};
use tessera_numerics::{DType, ReduceOp, ScalarFn};
use tessera_tile::TileOp;

/// Adds Staged IR's ops to a [`Builder`]. Callers pass operands that fit; the verifier reports
/// errors, at the op.
pub trait StagedBuild {
    /// An op with one result whose type is given.
    fn one(&mut self, spec: OpSpec<Staged>, ty: Type) -> Value;
    /// An op without results.
    fn effect(&mut self, spec: OpSpec<Staged>) -> OpId;
    fn index(&mut self, value: i64) -> Value;
    fn constant(&mut self, ty: Type, value: Attr) -> Value;
    fn dim(&mut self, name: &str) -> Value;
    fn ew(&mut self, f: ScalarFn, operands: &[Value]) -> Value;
    fn cast(&mut self, x: Value, dtype: DType) -> Value;
    fn select(&mut self, c: Value, a: Value, b: Value) -> Value;
    fn reduce(&mut self, x: Value, op: ReduceOp, axis: usize) -> Result<Value, String>;
    fn convert_layout(&mut self, x: Value, ty: Type) -> Value;
    /// A block of a tile, of whole atoms of its layout.
    fn frag_part(&mut self, x: Value, at: &[u32], extent: &[u32]) -> Result<Value, String>;
    fn pipeline_create(&mut self, ty: Type) -> Value;
    fn acquire(&mut self, pipeline: Value, i: Value) -> Value;
    fn fill(&mut self, stage: Value, field: &str, src: Value, at: &[Value], extent: &[i64])
    -> OpId;
    fn publish(&mut self, pipeline: Value, i: Value);
    fn wait(&mut self, pipeline: Value, i: Value) -> Value;
    fn field(&mut self, stage: Value, name: &str) -> Value;
    fn release(&mut self, pipeline: Value, i: Value, unless_first: bool);
    fn drain(&mut self, pipeline: Value);
    fn smem_alloc(&mut self, ty: Type) -> Value;
    fn frag_load(&mut self, mem: Value, ty: Type) -> Value;
    fn frag_store(&mut self, mem: Value, tile: Value);
    fn mma_open(&mut self, acc: Value) -> Value;
    fn mma_issue(&mut self, a: Value, b: Value, acc: Value) -> Value;
    /// The tile, or with `pending` the tile still pending.
    fn mma_retire(&mut self, p: Value, keep: i64, pending: bool) -> Value;
    fn sync(&mut self, code: StagedOp);
    fn return_(&mut self);
    fn yield_(&mut self, values: &[Value]);
}

impl StagedBuild for Builder<'_, Staged> {
    fn one(&mut self, spec: OpSpec<Staged>, ty: Type) -> Value {
        self.value(spec.result(ty)).expect("the result type is given")
    }

    fn effect(&mut self, spec: OpSpec<Staged>) -> OpId {
        self.op(spec).expect("the op has no results")
    }

    fn index(&mut self, value: i64) -> Value {
        self.constant(Type::INDEX, Attr::Int(value))
    }

    fn constant(&mut self, ty: Type, value: Attr) -> Value {
        self.one(OpSpec::new(StagedOp::Tile(TileOp::Const), &[]).attr("value", value), ty)
    }

    fn dim(&mut self, name: &str) -> Value {
        let spec = OpSpec::new(StagedOp::Tile(TileOp::Dim), &[]).attr("name", Attr::word(name));
        let v = self.one(spec, Type::INDEX);
        self.name(v, name);
        v
    }

    fn ew(&mut self, f: ScalarFn, operands: &[Value]) -> Value {
        let ty = self.func.ty(operands[0]);
        let ty = ty.with_dtype(f.result(ty.dtype()));
        self.one(OpSpec::new(StagedOp::Tile(TileOp::Ew(f)), operands), ty)
    }

    fn cast(&mut self, x: Value, dtype: DType) -> Value {
        if self.func.ty(x).dtype() == dtype {
            return x;
        }
        let ty = self.func.ty(x).with_dtype(dtype);
        self.one(OpSpec::new(StagedOp::Tile(TileOp::Cast), &[x]), ty)
    }

    fn select(&mut self, c: Value, a: Value, b: Value) -> Value {
        let ty = self.func.ty(a).clone();
        self.one(OpSpec::new(StagedOp::Tile(TileOp::Select), &[c, a, b]), ty)
    }

    fn reduce(&mut self, x: Value, op: ReduceOp, axis: usize) -> Result<Value, String> {
        let spec = OpSpec::new(StagedOp::Tile(TileOp::Reduce), &[x])
            .attr("op", Attr::word(op.name()))
            .attr("axis", Attr::Int(axis as i64));
        self.value(spec)
    }

    fn convert_layout(&mut self, x: Value, ty: Type) -> Value {
        if *self.func.ty(x) == ty {
            return x;
        }
        self.one(OpSpec::new(StagedOp::ConvertLayout, &[x]), ty)
    }

    fn frag_part(&mut self, x: Value, at: &[u32], extent: &[u32]) -> Result<Value, String> {
        let ints = |list: &[u32]| Attr::ints(list.iter().map(|&n| i64::from(n)));
        let spec = OpSpec::new(StagedOp::FragPart, &[x]).attr("at", ints(at));
        self.value(spec.attr("extent", ints(extent)))
    }

    fn pipeline_create(&mut self, ty: Type) -> Value {
        self.one(OpSpec::new(StagedOp::PipelineCreate, &[]), ty)
    }

    fn acquire(&mut self, pipeline: Value, i: Value) -> Value {
        let ty = stage_of(self.func.ty(pipeline));
        self.one(OpSpec::new(StagedOp::Acquire, &[pipeline, i]), ty)
    }

    fn fill(
        &mut self,
        stage: Value,
        field: &str,
        src: Value,
        at: &[Value],
        extent: &[i64],
    ) -> OpId {
        let spec = OpSpec::new(StagedOp::Fill, &[stage, src]).group("at", at);
        let spec = spec.attr("field", Attr::word(field));
        self.effect(spec.attr("extent", Attr::ints(extent.iter().copied())))
    }

    fn publish(&mut self, pipeline: Value, i: Value) {
        self.effect(OpSpec::new(StagedOp::Publish, &[pipeline, i]));
    }

    fn wait(&mut self, pipeline: Value, i: Value) -> Value {
        let ty = stage_of(self.func.ty(pipeline));
        self.one(OpSpec::new(StagedOp::Wait, &[pipeline, i]), ty)
    }

    fn field(&mut self, stage: Value, name: &str) -> Value {
        let ty = match self.func.ty(stage) {
            Type::Stage { fields } => fields.iter().find(|f| f.name == name).map(|f| f.as_smem()),
            _ => None,
        };
        // A field that does not exist keeps the stage's type, which the verifier refuses.
        let ty = ty.unwrap_or_else(|| self.func.ty(stage).clone());
        self.one(OpSpec::new(StagedOp::Field, &[stage]).attr("name", Attr::word(name)), ty)
    }

    fn release(&mut self, pipeline: Value, i: Value, unless_first: bool) {
        let spec = OpSpec::new(StagedOp::Release, &[pipeline, i]);
        let flag = Attr::Bool(true);
        self.effect(if unless_first { spec.attr("unless_first", flag) } else { spec });
    }

    fn drain(&mut self, pipeline: Value) {
        self.effect(OpSpec::new(StagedOp::Drain, &[pipeline]));
    }

    fn smem_alloc(&mut self, ty: Type) -> Value {
        self.one(OpSpec::new(StagedOp::SmemAlloc, &[]), ty)
    }

    fn frag_load(&mut self, mem: Value, ty: Type) -> Value {
        self.one(OpSpec::new(StagedOp::FragLoad, &[mem]), ty)
    }

    fn frag_store(&mut self, mem: Value, tile: Value) {
        self.effect(OpSpec::new(StagedOp::FragStore, &[mem, tile]));
    }

    fn mma_open(&mut self, acc: Value) -> Value {
        let ty = Type::pending(self.func.ty(acc).clone());
        self.one(OpSpec::new(StagedOp::MmaOpen, &[acc]), ty)
    }

    fn mma_issue(&mut self, a: Value, b: Value, acc: Value) -> Value {
        let ty = match self.func.ty(acc) {
            Type::Pending(_) => self.func.ty(acc).clone(),
            ty => Type::pending(ty.clone()),
        };
        self.one(OpSpec::new(StagedOp::MmaIssue, &[a, b, acc]), ty)
    }

    fn mma_retire(&mut self, p: Value, keep: i64, pending: bool) -> Value {
        let ty = match self.func.ty(p) {
            Type::Pending(tile) if !pending => (**tile).clone(),
            ty => ty.clone(),
        };
        self.one(OpSpec::new(StagedOp::MmaRetire, &[p]).attr("keep", Attr::Int(keep)), ty)
    }

    fn sync(&mut self, code: StagedOp) {
        self.effect(OpSpec::new(code, &[]));
    }

    fn return_(&mut self) {
        self.effect(OpSpec::new(StagedOp::Tile(TileOp::Return), &[]));
    }

    fn yield_(&mut self, values: &[Value]) {
        self.effect(OpSpec::new(StagedOp::Tile(TileOp::Yield), &[]).group("values", values));
    }
}

fn stage_of(pipeline: &Type) -> Type {
    match pipeline {
        Type::Pipeline { fields, .. } => Type::Stage { fields: fields.clone() },
        ty => ty.clone(),
    }
}
