//! A gather along a dim that is split: a rank reads the elements that it has.

use super::Partition;
use crate::placement::{Axes, Dims, cut};
use crate::rules::neutral;
use tessera_diag::{Diagnostic, Loc};
use tessera_graph::{GraphOp, extents, tensor};
use tessera_ir::{Attr, DimExpr, OpId, OpSpec, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp, ScalarFn};

impl Partition<'_> {
    /// The contributions of a rank: the elements that are in its block of operand 0, and elsewhere what changes nothing.
    pub(super) fn lookup(
        &mut self,
        id: OpId,
        operands: &[Value],
        (split, dims): (&Dims, &Dims),
        how: ReduceOp,
    ) -> Result<Value, Diagnostic> {
        let func = self.func;
        let op = &func.ops[id];
        let loc = op.loc.clone();
        let axes = op.attr("axes").and_then(Attr::as_ints).unwrap_or_default();
        let ty = self.b.ty(operands[1]).clone();
        let last = ty.rank() - 1;
        let (mut columns, mut is_here): (Vec<Value>, Option<Value>) = (Vec::new(), None);
        for (at, &axis) in axes.iter().enumerate() {
            let mut column = self.column(operands[1], &ty, at, &loc)?;
            let axis = axis.max(0) as usize;
            if !split[axis].is_empty() {
                let extent = func.ty(op.operands[0]).shape()[axis].as_static().unwrap_or(0);
                let (inside, has) = self.inside(column, extent, &split[axis], &loc)?;
                column = inside;
                is_here = Some(match is_here {
                    Some(other) => self.b.ew(ScalarFn::And, &[other, has], &loc)?,
                    None => has,
                });
            }
            columns.push(column);
        }
        let indices = match columns[..] {
            [only] => only,
            _ => {
                let spec = OpSpec::new(GraphOp::Concat, &[]).group("values", &columns);
                let spec = spec.attr("axis", Attr::Int(last as i64)).result(ty.clone());
                self.b.value(spec, loc.clone())?
            }
        };
        let read = self.emit(
            id,
            &[&[operands[0], indices], &operands[2..]].concat(),
            std::slice::from_ref(dims),
            false,
        )?;
        let read = read[0];
        let Some(is_here) = is_here else { return Ok(read) };
        let whole = self.b.ty(read).clone();
        let kept = tensor(ty.shape()[..last].to_vec(), NumType::plain(DType::Bool));
        let is_here =
            self.b.value(OpSpec::new(GraphOp::Reshape, &[is_here]).result(kept), loc.clone())?;
        let places: Vec<i64> = (0..last as i64).collect();
        let is_here = self.b.broadcast(is_here, whole.shape(), &places, &loc)?;
        let nothing = self.b.splat(neutral(how, whole.dtype()).unwrap_or(0.0), &whole, &loc)?;
        self.b.select(is_here, read, nothing, &loc)
    }

    /// The indices of one axis, with an axis of extent 1 behind.
    fn column(
        &mut self,
        indices: Value,
        ty: &Type,
        at: usize,
        loc: &Loc,
    ) -> Result<Value, Diagnostic> {
        let mut shape = ty.shape().to_vec();
        let last = shape.len() - 1;
        if shape[last].as_static() == Some(1) {
            return Ok(indices);
        }
        let all = |at: i64, rest: &dyn Fn(usize) -> DimExpr| -> Attr {
            let each: Vec<DimExpr> =
                (0..=last).map(|d| if d == last { DimExpr::Const(at) } else { rest(d) }).collect();
            extents(&each)
        };
        let size = |d: usize| DimExpr::Const(ty.shape()[d].as_static().unwrap_or(0));
        let spec = OpSpec::new(GraphOp::Slice, &[indices])
            .attr("start", all(at as i64, &|_| DimExpr::Const(0)))
            .attr("limit", all(at as i64 + 1, &size))
            .attr("stride", Attr::ints(std::iter::repeat_n(1, last + 1)));
        shape[last] = tessera_ir::Dim::Static(1);
        let to = tensor(shape, tessera_graph::elem(ty));
        self.b.value(spec.result(to), loc.clone())
    }

    /// Indices into the block of a rank, 0 where they are in another, and whether they are in it.
    fn inside(
        &mut self,
        index: Value,
        extent: i64,
        axes: &Axes,
        loc: &Loc,
    ) -> Result<(Value, Value), Diagnostic> {
        let own = self.b.ty(index).clone();
        let ty = tensor(own.shape().to_vec(), NumType::plain(DType::I64));
        let index =
            self.b.value(OpSpec::new(GraphOp::Cast, &[index]).result(ty.clone()), loc.clone())?;
        let number = |p: &mut Self, n: i64| -> Result<Value, Diagnostic> {
            let n = p.number(n, loc)?;
            p.b.broadcast(n, ty.shape(), &[], loc)
        };
        // What is outside the whole is the first or the last element of it.
        let (first, end) = (number(self, 0)?, number(self, (extent - 1).max(0))?);
        let index = self.b.ew(ScalarFn::Maximum, &[index, first], loc)?;
        let index = self.b.ew(ScalarFn::Minimum, &[index, end], loc)?;
        let (part, block) = cut(self.mesh(), extent, axes);
        let (coarse, finest) = axes.split_at(axes.len() - 1);
        // Between the coarser axes first: blocks of the finest may be filled up at the end of their part.
        let start = self.start(&[(coarse.to_vec(), part)], loc)?;
        let start = self.b.broadcast(start, ty.shape(), &[], loc)?;
        let index = self.b.ew(ScalarFn::Sub, &[index, start], loc)?;
        let most = number(self, part)?;
        let below = self.b.ew(ScalarFn::Lt, &[index, most], loc)?;
        let start = self.start(&[(finest.to_vec(), block)], loc)?;
        let start = self.b.broadcast(start, ty.shape(), &[], loc)?;
        let index = self.b.ew(ScalarFn::Sub, &[index, start], loc)?;
        let most = number(self, block)?;
        let (above, in_block) = (
            self.b.ew(ScalarFn::Ge, &[index, first], loc)?,
            self.b.ew(ScalarFn::Lt, &[index, most], loc)?,
        );
        let has = self.b.ew(ScalarFn::And, &[above, in_block], loc)?;
        let has = self.b.ew(ScalarFn::And, &[has, below], loc)?;
        let index = self.b.select(has, index, first, loc)?;
        let index = self.b.value(OpSpec::new(GraphOp::Cast, &[index]).result(own), loc.clone())?;
        Ok((index, has))
    }
}
