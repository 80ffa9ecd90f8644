//! Gathers and scatters along a dim that is split: a rank reads and writes the elements that it has.

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
        let ty = self.b.ty(operands[1]).clone();
        let last = ty.rank() - 1;
        let (indices, is_here) = self.positions(id, operands[1], split)?;
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

    /// The elements of a rank's block of operand 0 with the updates that fall on them; others are left out.
    pub(super) fn put(
        &mut self,
        id: OpId,
        operands: &[Value],
        dims: &Dims,
        contributes: bool,
    ) -> Result<Value, Diagnostic> {
        let (indices, _) = self.positions(id, operands[1], dims)?;
        let all = [operands[0], indices, operands[2]];
        Ok(self.emit(id, &all, std::slice::from_ref(dims), contributes)?[0])
    }

    /// The indices of a gather or a scatter in the rank's block of operand 0, and which are in it. Those of others are 0, and of a
    /// scatter outside.
    fn positions(
        &mut self,
        id: OpId,
        indices: Value,
        split: &Dims,
    ) -> Result<(Value, Option<Value>), Diagnostic> {
        let func = self.func;
        let op = &func.ops[id];
        let loc = op.loc.clone();
        let is_read = op.code == GraphOp::Gather;
        let clips = is_read || op.attr("oob").and_then(Attr::as_word) == Some("clamp");
        let axes = op.attr("axes").and_then(Attr::as_ints).unwrap_or_default();
        let mut ty = self.b.ty(indices).clone();
        let mut all = indices;
        if !is_read {
            // There is no position outside that each integer dtype has.
            all = self.cast(indices, DType::I64, &loc)?;
            ty = self.b.ty(all).clone();
        }
        let (mut columns, mut is_here): (Vec<Value>, Option<Value>) = (Vec::new(), None);
        for (at, &axis) in axes.iter().enumerate() {
            let mut column = self.column(all, &ty, at, &loc)?;
            let axis = axis.max(0) as usize;
            let extent = func.ty(op.operands[0]).shape()[axis].as_static().unwrap_or(0);
            let is_split = !split[axis].is_empty();
            if clips && (is_split || !is_read) {
                column = self.cast(column, DType::I64, &loc)?;
                column = self.clamped(column, extent, &loc)?;
            }
            if is_split {
                let elsewhere = if is_read { 0 } else { -1 };
                let (inside, has) = self.inside(column, (extent, elsewhere), &split[axis], &loc)?;
                column = inside;
                is_here = Some(match is_here {
                    Some(other) => self.b.ew(ScalarFn::And, &[other, has], &loc)?,
                    None => has,
                });
            }
            columns.push(self.cast(column, ty.dtype(), &loc)?);
        }
        if let [only] = columns[..] {
            return Ok((only, is_here));
        }
        let spec = OpSpec::new(GraphOp::Concat, &[]).group("values", &columns);
        let spec = spec.attr("axis", Attr::Int(ty.rank() as i64 - 1)).result(ty);
        Ok((self.b.value(spec, loc)?, is_here))
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

    /// Integers in another dtype.
    fn cast(&mut self, x: Value, to: DType, loc: &Loc) -> Result<Value, Diagnostic> {
        let ty = self.b.ty(x).clone();
        if ty.dtype() == to {
            return Ok(x);
        }
        let to = tensor(ty.shape().to_vec(), NumType::plain(to));
        self.b.value(OpSpec::new(GraphOp::Cast, &[x]).result(to), loc.clone())
    }

    /// A number of i64 for each of some indices.
    fn each(&mut self, n: i64, like: Value, loc: &Loc) -> Result<Value, Diagnostic> {
        let shape = self.b.ty(like).shape().to_vec();
        let n = self.number(n, loc)?;
        self.b.broadcast(n, &shape, &[], loc)
    }

    /// What is outside the whole is the first or the last element of it.
    fn clamped(&mut self, index: Value, extent: i64, loc: &Loc) -> Result<Value, Diagnostic> {
        let (first, end) = (self.each(0, index, loc)?, self.each((extent - 1).max(0), index, loc)?);
        let index = self.b.ew(ScalarFn::Maximum, &[index, first], loc)?;
        self.b.ew(ScalarFn::Minimum, &[index, end], loc)
    }

    /// Indices into the block of a rank, `elsewhere` where they are in another, and whether they are in it; in i64.
    fn inside(
        &mut self,
        index: Value,
        (extent, elsewhere): (i64, i64),
        axes: &Axes,
        loc: &Loc,
    ) -> Result<(Value, Value), Diagnostic> {
        let shape = self.b.ty(index).shape().to_vec();
        let (part, block) = cut(self.mesh(), extent, axes);
        let (coarse, finest) = axes.split_at(axes.len() - 1);
        // Between the coarser axes first: blocks of the finest may be filled up at the end of their part.
        let start = self.start(&[(coarse.to_vec(), part)], loc)?;
        let start = self.b.broadcast(start, &shape, &[], loc)?;
        let index = self.b.ew(ScalarFn::Sub, &[index, start], loc)?;
        let most = self.each(part, index, loc)?;
        let below = self.b.ew(ScalarFn::Lt, &[index, most], loc)?;
        let start = self.start(&[(finest.to_vec(), block)], loc)?;
        let start = self.b.broadcast(start, &shape, &[], loc)?;
        let index = self.b.ew(ScalarFn::Sub, &[index, start], loc)?;
        let (most, first) = (self.each(block, index, loc)?, self.each(0, index, loc)?);
        let (above, in_block) = (
            self.b.ew(ScalarFn::Ge, &[index, first], loc)?,
            self.b.ew(ScalarFn::Lt, &[index, most], loc)?,
        );
        let has = self.b.ew(ScalarFn::And, &[above, in_block], loc)?;
        let has = self.b.ew(ScalarFn::And, &[has, below], loc)?;
        let elsewhere = self.each(elsewhere, index, loc)?;
        Ok((self.b.select(has, index, elsewhere, loc)?, has))
    }
}
