//! Ops that bring a value from one placement to another.

use super::Partition;
use crate::placement::{Axes, Dims, Move, Placement, block, cut, divides, path};
use crate::rules::neutral;
use tessera_diag::{Diagnostic, Loc};
use tessera_graph::{GraphOp, elem, tensor};
use tessera_ir::{Attr, Dim, DimExpr, OpSpec, Type, Value};
use tessera_numerics::{DType, NumType, ReduceOp, ScalarFn};

/// The dtype that contributions are combined in.
pub fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

impl Partition<'_> {
    /// A value, whole of type `ty`, in another placement; `how` contributions are combined. They come in the dtype that they are
    /// combined in, and leave in that of `ty`.
    pub(super) fn move_to(
        &mut self,
        x: Value,
        ty: &Type,
        from: &Placement,
        (how, to): (Option<ReduceOp>, &Dims),
        loc: &Loc,
    ) -> Result<Value, Diagnostic> {
        let steps = path(from, to);
        if steps.is_empty() {
            return self.narrow(x, ty, loc);
        }
        let key = (x, Placement { dims: to.clone(), contributes: from.contributes.clone() });
        if let Some(&known) = self.moved.iter().rev().find_map(|scope| scope.get(&key)) {
            return Ok(known);
        }
        let (mut value, mut at) = (x, from.dims.clone());
        let mut rest: Vec<Move> = steps.into_iter().rev().collect();
        while let Some(next) = rest.pop() {
            let mut parts = self.one_by_one(ty, &at, next);
            let step = parts.remove(0);
            rest.extend(parts);
            let combines = matches!(step, Move::AllReduce { .. } | Move::ReduceScatter { .. });
            if !combines {
                value = self.narrow(value, ty, loc)?;
            }
            // Blocks are filled up before they are cut, and what filled them up is cut off when they are joined.
            match &step {
                Move::ReduceScatter { axes, dim } | Move::Own { axes, dim } => {
                    value = self.pad_for(value, *dim, axes, loc)?;
                    at[*dim].extend(axes);
                }
                Move::AllToAll { axis, split, concat } => {
                    value = self.pad_for(value, *split, &[*axis], loc)?;
                    at[*concat].pop();
                    at[*split].push(*axis);
                }
                Move::AllGather { axes, dim } => {
                    let keep = at[*dim].len() - axes.len();
                    at[*dim].truncate(keep);
                }
                Move::AllReduce { .. } => {}
            }
            value = self.step(value, step, how, loc)?;
            let wanted = block(self.mesh(), ty, &at);
            value = self.clipped(value, &wanted, loc)?;
        }
        value = self.narrow(value, ty, loc)?;
        if let Some(scope) = self.moved.last_mut() {
            scope.insert(key, value);
            // Back again is where it came from.
            if from.contributes.is_empty() {
                scope.insert((value, from.clone()), x);
            }
        }
        Ok(value)
    }

    /// Axes of a step one after the other, where the finest does not divide the dim.
    fn one_by_one(&self, ty: &Type, at: &Dims, step: Move) -> Vec<Move> {
        let (axes, dim) = match &step {
            Move::ReduceScatter { axes, dim }
            | Move::Own { axes, dim }
            | Move::AllGather { axes, dim } => (axes.clone(), *dim),
            Move::AllReduce { .. } | Move::AllToAll { .. } => return vec![step],
        };
        let Some((&finest, coarse)) = axes.split_last().filter(|(_, c)| !c.is_empty()) else {
            return vec![step];
        };
        let whole: Axes = match &step {
            Move::AllGather { .. } => at[dim].clone(),
            _ => at[dim].iter().chain(&axes).copied().collect(),
        };
        if divides(self.mesh(), ty, dim, &whole) {
            return vec![step];
        }
        let (first, last) = (coarse.to_vec(), vec![finest]);
        match step {
            Move::ReduceScatter { .. } => vec![
                Move::ReduceScatter { axes: first, dim },
                Move::ReduceScatter { axes: last, dim },
            ],
            Move::Own { .. } => {
                vec![Move::Own { axes: first, dim }, Move::Own { axes: last, dim }]
            }
            _ => vec![Move::AllGather { axes: last, dim }, Move::AllGather { axes: first, dim }],
        }
    }

    /// The value with a dim that the axes divide.
    fn pad_for(
        &mut self,
        x: Value,
        dim: usize,
        axes: &[usize],
        loc: &Loc,
    ) -> Result<Value, Diagnostic> {
        let ty = self.b.ty(x).clone();
        let n = self.size(axes);
        let Some(have) = ty.shape()[dim].as_static().filter(|d| d % n != 0) else { return Ok(x) };
        let mut dims = ty.shape().to_vec();
        dims[dim] = Dim::Static(have + n - have % n);
        self.grown(x, &tensor(dims, elem(&ty)), loc)
    }

    /// A whole value whose dims the axes divide.
    pub(super) fn filled(
        &mut self,
        x: Value,
        ty: &Type,
        dims: &Dims,
        loc: &Loc,
    ) -> Result<Value, Diagnostic> {
        let block = block(self.mesh(), ty, dims);
        let each = block.shape().iter().zip(dims).map(|(d, axes)| match d.as_static() {
            Some(n) => Dim::Static(n * self.size(axes)),
            None => d.clone(),
        });
        let to = tensor(each.collect(), elem(ty));
        self.grown(x, &to, loc)
    }

    /// Zeros behind the elements, up to these extents.
    fn grown(&mut self, x: Value, to: &Type, loc: &Loc) -> Result<Value, Diagnostic> {
        let ty = self.b.ty(x).clone();
        let known = |ty: &Type| ty.static_shape().unwrap_or_default();
        if known(&ty) == known(to) {
            return Ok(x);
        }
        let more =
            known(to).into_iter().zip(known(&ty)).map(|(to, have)| DimExpr::Const(to - have));
        let hi: Vec<DimExpr> = more.collect();
        let zero = self.b.splat(0.0, &tensor(Vec::new(), elem(&ty)), loc)?;
        let lo = vec![DimExpr::Const(0); hi.len()];
        self.b.pad((x, zero), &lo, &hi, &vec![0; hi.len()], loc)
    }

    /// The elements up to the extents of a type.
    pub(super) fn clipped(&mut self, x: Value, to: &Type, loc: &Loc) -> Result<Value, Diagnostic> {
        let have = self.b.ty(x).static_shape().unwrap_or_default();
        let limit = to.static_shape().unwrap_or_default();
        if have == limit {
            return Ok(x);
        }
        let rank = limit.len();
        let limit: Vec<DimExpr> = limit.into_iter().map(DimExpr::Const).collect();
        self.b.slice(x, &vec![DimExpr::Const(0); rank], &limit, &vec![1; rank], loc)
    }

    /// What fills up the blocks of a dim, replaced by what changes nothing where it is combined.
    pub(super) fn masked(
        &mut self,
        x: Value,
        whole: Value,
        dim: usize,
        axes: &[usize],
        how: ReduceOp,
        loc: &Loc,
    ) -> Result<Value, Diagnostic> {
        let Some((&finest, _)) = axes.split_last() else { return Ok(x) };
        let extent = self.func.ty(whole).shape()[dim].as_static().unwrap_or(0);
        let (part, block) = cut(self.mesh(), extent, axes);
        if block * self.mesh().sizes[finest] == part {
            return Ok(x);
        }
        let ty = self.b.ty(x).clone();
        let wide = tensor(ty.shape().to_vec(), NumType::plain(DType::I64));
        let inside = self.b.iota(&wide, dim as i64, loc)?;
        let start = self.start(&[(vec![finest], block)], loc)?;
        let start = self.b.broadcast(start, wide.shape(), &[], loc)?;
        let place = self.b.ew(ScalarFn::Add, &[inside, start], loc)?;
        let end = self.number(part, loc)?;
        let end = self.b.broadcast(end, wide.shape(), &[], loc)?;
        let is_there = self.b.ew(ScalarFn::Lt, &[place, end], loc)?;
        let fill = self.b.splat(neutral(how, ty.dtype()).unwrap_or(0.0), &ty, loc)?;
        self.b.select(is_there, x, fill, loc)
    }

    /// A number of i64.
    pub(super) fn number(&mut self, n: i64, loc: &Loc) -> Result<Value, Diagnostic> {
        let ty = tessera_graph::scalar(DType::I64);
        let spec = OpSpec::new(GraphOp::Const, &[]).attr("value", Attr::Int(n)).result(ty);
        self.b.value(spec, loc.clone())
    }

    /// Where the block of a rank begins: the sum of its positions along axes, each times an extent.
    pub(super) fn start(&mut self, parts: &[(Axes, i64)], loc: &Loc) -> Result<Value, Diagnostic> {
        let mut sum: Option<Value> = None;
        for (axes, extent) in parts.iter().filter(|(axes, _)| !axes.is_empty()) {
            let attrs = self.mesh().pick(axes.iter().copied()).attrs();
            let spec = OpSpec { attrs, ..OpSpec::new(GraphOp::AxisIndex, &[]) };
            let index = self.b.value(spec, loc.clone())?;
            let extent = self.number(*extent, loc)?;
            let part = self.b.ew(ScalarFn::Mul, &[index, extent], loc)?;
            sum = Some(match sum {
                Some(sum) => self.b.ew(ScalarFn::Add, &[sum, part], loc)?,
                None => part,
            });
        }
        match sum {
            Some(sum) => Ok(sum),
            None => self.number(0, loc),
        }
    }

    /// In the dtype of the whole.
    fn narrow(&mut self, x: Value, ty: &Type, loc: &Loc) -> Result<Value, Diagnostic> {
        if elem(self.b.ty(x)) == elem(ty) {
            return Ok(x);
        }
        let to = tensor(self.b.ty(x).shape().to_vec(), elem(ty));
        self.b.value(OpSpec::new(GraphOp::Cast, &[x]).result(to), loc.clone())
    }

    fn step(
        &mut self,
        x: Value,
        step: Move,
        how: Option<ReduceOp>,
        loc: &Loc,
    ) -> Result<Value, Diagnostic> {
        let op = || Attr::word(how.unwrap_or(ReduceOp::Sum).name());
        let int = |v: usize| Attr::Int(v as i64);
        let (code, axes, attrs): (GraphOp, Axes, Vec<(&'static str, Attr)>) = match step {
            Move::AllReduce { axes } => (GraphOp::AllReduce, axes, vec![("op", op())]),
            Move::ReduceScatter { axes, dim } => {
                (GraphOp::ReduceScatter, axes, vec![("dim", int(dim)), ("op", op())])
            }
            Move::AllToAll { axis, split, concat } => {
                let attrs = vec![("split", int(split)), ("concat", int(concat))];
                (GraphOp::AllToAll, vec![axis], attrs)
            }
            Move::AllGather { axes, dim } => (GraphOp::AllGather, axes, vec![("dim", int(dim))]),
            Move::Own { axes, dim } => (GraphOp::Own, axes, vec![("dim", int(dim))]),
        };
        let mut all = self.mesh().pick(axes).attrs();
        for (name, attr) in attrs {
            all = all.with(name, attr);
        }
        self.b.value(OpSpec { attrs: all, ..OpSpec::new(code, &[x]) }, loc.clone())
    }

    /// An operand in the dtype that contributions are combined in.
    pub(super) fn widened(&mut self, x: Value, loc: &Loc) -> Result<Value, Diagnostic> {
        let ty = self.b.ty(x).clone();
        let to = wide(ty.dtype());
        if to == ty.dtype() {
            return Ok(x);
        }
        let to = tensor(ty.shape().to_vec(), NumType::plain(to));
        self.b.value(OpSpec::new(GraphOp::Cast, &[x]).result(to), loc.clone())
    }
}
