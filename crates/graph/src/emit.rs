//! Helpers for the ops that transforms add most. Each returns a value of the type that its rule
//! infers, or the error; the caller gives locations.

use crate::ops::value::hex_text;
use crate::rule::{elem, tensor};
use crate::{GraphBuilder, GraphOp};
use tessera_diag::{Diagnostic, Loc};
use tessera_ir::{Attr, Dim, DimExpr, OpSpec, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp, ScalarFn};

type Emitted = Result<Value, Diagnostic>;

/// Which axes of two operands are paired and which are summed over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DotAxes {
    pub batch_a: Vec<i64>,
    pub batch_b: Vec<i64>,
    pub contract_a: Vec<i64>,
    pub contract_b: Vec<i64>,
}

fn ints(list: &[i64]) -> Attr {
    Attr::ints(list.iter().copied())
}

/// Extents as attributes: integers, symbols or expressions.
pub fn extents(dims: &[DimExpr]) -> Attr {
    Attr::exprs(dims.iter().cloned())
}

impl GraphBuilder {
    pub fn ew(&mut self, f: ScalarFn, args: &[Value], loc: &Loc) -> Emitted {
        self.value(OpSpec::new(GraphOp::Ew(f), args), loc.clone())
    }

    /// A tensor of this type whose elements all are `value`, rounded to the dtype.
    pub fn splat(&mut self, value: f64, ty: &Type, loc: &Loc) -> Emitted {
        let value = match ty.dtype() {
            DType::Bool => Attr::Bool(value != 0.0),
            dtype if dtype.is_int() => Attr::Int(value as i64),
            _ => Attr::Float(value),
        };
        let spec = OpSpec::new(GraphOp::Const, &[]).attr("value", value).result(ty.clone());
        self.value(spec, loc.clone())
    }

    /// A tensor with these elements, as in memory: row-major.
    pub fn dense(&mut self, bytes: &[u8], ty: &Type, loc: &Loc) -> Emitted {
        let data = Attr::Str(hex_text(bytes));
        let spec = OpSpec::new(GraphOp::Const, &[]).attr("data", data).result(ty.clone());
        self.value(spec, loc.clone())
    }

    pub fn iota(&mut self, ty: &Type, axis: i64, loc: &Loc) -> Emitted {
        let spec = OpSpec::new(GraphOp::Iota, &[]).attr("axis", Attr::Int(axis)).result(ty.clone());
        self.value(spec, loc.clone())
    }

    /// The run-time value of an extent.
    pub fn extent(&mut self, dim: DimExpr, loc: &Loc) -> Emitted {
        self.value(OpSpec::new(GraphOp::Dim, &[]).attr("name", dim.into()), loc.clone())
    }

    pub fn cast(&mut self, x: Value, to: DType, loc: &Loc) -> Emitted {
        if self.ty(x).dtype() == to {
            return Ok(x);
        }
        let ty = tensor(self.ty(x).shape().to_vec(), NumType::plain(to));
        self.value(OpSpec::new(GraphOp::Cast, &[x]).result(ty), loc.clone())
    }

    pub fn select(&mut self, cond: Value, a: Value, b: Value, loc: &Loc) -> Emitted {
        self.value(OpSpec::new(GraphOp::Select, &[cond, a, b]), loc.clone())
    }

    /// Axis `i` of `x` becomes axis `axes[i]` of a tensor of these extents.
    pub fn broadcast(&mut self, x: Value, dims: &[Dim], axes: &[i64], loc: &Loc) -> Emitted {
        let ty = tensor(dims.to_vec(), elem(self.ty(x)));
        let spec = OpSpec::new(GraphOp::Broadcast, &[x]).attr("dims", ints(axes)).result(ty);
        self.value(spec, loc.clone())
    }

    pub fn reshape(&mut self, x: Value, dims: &[Dim], loc: &Loc) -> Emitted {
        let ty = tensor(dims.to_vec(), elem(self.ty(x)));
        self.value(OpSpec::new(GraphOp::Reshape, &[x]).result(ty), loc.clone())
    }

    pub fn transpose(&mut self, x: Value, perm: &[i64], loc: &Loc) -> Emitted {
        self.value(OpSpec::new(GraphOp::Transpose, &[x]).attr("perm", ints(perm)), loc.clone())
    }

    pub fn reverse(&mut self, x: Value, axes: &[i64], loc: &Loc) -> Emitted {
        self.value(OpSpec::new(GraphOp::Reverse, &[x]).attr("axes", ints(axes)), loc.clone())
    }

    pub fn slice(
        &mut self,
        x: Value,
        start: &[DimExpr],
        limit: &[DimExpr],
        stride: &[i64],
        loc: &Loc,
    ) -> Emitted {
        let spec = OpSpec::new(GraphOp::Slice, &[x])
            .attr("start", extents(start))
            .attr("limit", extents(limit))
            .attr("stride", ints(stride));
        self.value(spec, loc.clone())
    }

    pub fn pad(
        &mut self,
        (x, value): (Value, Value),
        lo: &[DimExpr],
        hi: &[DimExpr],
        interior: &[i64],
        loc: &Loc,
    ) -> Emitted {
        let spec = OpSpec::new(GraphOp::Pad, &[x, value])
            .attr("lo", extents(lo))
            .attr("hi", extents(hi))
            .attr("interior", ints(interior));
        self.value(spec, loc.clone())
    }

    pub fn concat(&mut self, parts: &[Value], axis: i64, loc: &Loc) -> Emitted {
        let spec = OpSpec::new(GraphOp::Concat, &[]).group("values", parts);
        self.value(spec.attr("axis", Attr::Int(axis)), loc.clone())
    }

    /// No axes: `x` itself.
    pub fn reduce(&mut self, op: ReduceOp, x: Value, axes: &[i64], loc: &Loc) -> Emitted {
        if axes.is_empty() {
            return Ok(x);
        }
        let spec = OpSpec::new(GraphOp::Reduce, &[x])
            .attr("op", Attr::word(op.name()))
            .attr("axes", ints(axes));
        self.value(spec, loc.clone())
    }

    /// `out` is the dtype of the result; the operands' where not given.
    pub fn dot(
        &mut self,
        (a, b): (Value, Value),
        axes: &DotAxes,
        out: Option<DType>,
        loc: &Loc,
    ) -> Emitted {
        let mut spec = OpSpec::new(GraphOp::Dot, &[a, b])
            .attr("batch_a", ints(&axes.batch_a))
            .attr("batch_b", ints(&axes.batch_b))
            .attr("contract_a", ints(&axes.contract_a))
            .attr("contract_b", ints(&axes.contract_b));
        if let Some(out) = out {
            spec = spec.attr("out", Attr::word(out.name()));
        }
        self.value(spec, loc.clone())
    }
}
