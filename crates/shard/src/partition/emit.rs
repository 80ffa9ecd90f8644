//! An op on blocks: its attributes for the extents of a rank, and offsets where elements depend on their position.

use super::Partition;
use super::moves::wide;
use crate::placement::{Dims, cut};
use tessera_diag::{Diagnostic, Loc};
use tessera_graph::ops::kernel;
use tessera_graph::{Graph, GraphOp, elem, extents, tensor};
use tessera_ir::{Attr, Attrs, DimExpr, Op, OpId, OpSpec, Opcode, Privilege, Type, Value};
use tessera_numerics::{DType, NumType, ScalarFn};

impl Partition<'_> {
    /// The results on blocks in these placements. Contributions are made in the dtype that they are combined in.
    pub(super) fn emit(
        &mut self,
        id: OpId,
        operands: &[Value],
        dims: &[Dims],
        contributes: bool,
    ) -> Result<Vec<Value>, Diagnostic> {
        let func = self.func;
        let op = &func.ops[id];
        let loc = op.loc.clone();
        let mut types: Vec<Type> =
            op.results.iter().zip(dims).map(|(&v, d)| self.block_of(v, d)).collect();
        let mut attrs = op.attrs.clone();
        let mut operands = operands.to_vec();
        match op.code {
            // A pin is a placement: the operand has it.
            GraphOp::Shard => return Ok(operands),
            GraphOp::Iota => {
                let axis = attrs.get("axis").and_then(Attr::as_int).unwrap_or(0);
                return Ok(vec![self.iota(
                    (func.ty(op.result()), &types[0]),
                    axis,
                    &dims[0],
                    &loc,
                )?]);
            }
            GraphOp::Slice => {
                let x = self.b.ty(operands[0]).clone();
                attrs = clipped(attrs, "limit", &func.ty(op.operands[0]).clone(), &x);
            }
            GraphOp::DynamicSlice => {
                let extent: Vec<DimExpr> =
                    types[0].shape().iter().filter_map(tessera_graph::dims::expr_of).collect();
                attrs.set("extent", extents(&extent));
            }
            GraphOp::Dot | GraphOp::Conv if contributes => {
                let to = wide(types[0].dtype());
                if to != types[0].dtype() {
                    attrs.set("out", Attr::word(to.name()));
                    types[0] = tensor(types[0].shape().to_vec(), NumType::plain(to));
                }
            }
            GraphOp::KernelCall => {
                let made = self.kernel(id, operands, attrs, types, &loc)?;
                let each = made.into_iter().map(|v| match contributes {
                    true => self.widened(v, &loc),
                    false => Ok(v),
                });
                return each.collect();
            }
            GraphOp::Reduce | GraphOp::Scatter if contributes => {
                drop_elsewhere(op, &dims[0], &mut attrs);
                for operand in &mut operands {
                    if self.b.ty(*operand).dtype().is_float() {
                        *operand = self.widened(*operand, &loc)?;
                    }
                }
                let to = wide(types[0].dtype());
                if to != types[0].dtype() {
                    types[0] = tensor(types[0].shape().to_vec(), NumType::plain(to));
                }
            }
            GraphOp::Scatter => drop_elsewhere(op, &dims[0], &mut attrs),
            _ => {}
        }
        self.copy(id, &operands, attrs, types, &loc)
    }

    /// The call of a kernel. An array that it writes over may be that of another value here, which is still read.
    fn kernel(
        &mut self,
        id: OpId,
        mut operands: Vec<Value>,
        mut attrs: Attrs,
        types: Vec<Type>,
        loc: &Loc,
    ) -> Result<Vec<Value>, Diagnostic> {
        let whole = self.func.ops[id].operands.iter().map(|&v| self.func.ty(v));
        if whole.eq(operands.iter().map(|&v| self.b.ty(v))) {
            // It is the kernel that it was.
            self.gathered.insert(id);
            attrs.remove("sharding");
            attrs.remove("contract");
        }
        let privileges = kernel::privileges(attrs.get("privileges"));
        let fresh = kernel::fresh(attrs.get("fresh"));
        for (at, privilege) in privileges.iter().enumerate() {
            if privilege.is_some_and(Privilege::writes) && !fresh.contains(&at) {
                let spec = OpSpec::new(GraphOp::OptBarrier, &[]).group("values", &[operands[at]]);
                operands[at] = self.b.value(spec, loc.clone())?;
            }
        }
        self.copy(id, &operands, attrs, types, loc)
    }

    /// The op with other operands, attributes and types.
    pub(super) fn copy(
        &mut self,
        id: OpId,
        operands: &[Value],
        attrs: Attrs,
        types: Vec<Type>,
        loc: &Loc,
    ) -> Result<Vec<Value>, Diagnostic> {
        let op = &self.func.ops[id];
        let info = op.code.info();
        let count = info.operands.len();
        let mut spec = OpSpec::new(op.code, &operands[..count]);
        let mut at = count;
        for (row, &len) in info.groups.iter().zip(&op.group_lens) {
            spec = spec.group(row.name, &operands[at..at + len]);
            at += len;
        }
        spec.attrs = attrs;
        spec.results = Some(types);
        self.b.push(spec, loc.clone())
    }

    /// Positions in the whole value.
    fn iota(
        &mut self,
        (whole, ty): (&Type, &Type),
        axis: i64,
        dims: &Dims,
        loc: &Loc,
    ) -> Result<Value, Diagnostic> {
        let axes = dims.get(axis.max(0) as usize).cloned().unwrap_or_default();
        if self.size(&axes) == 1 {
            return self.b.iota(ty, axis, loc);
        }
        let (part, _) =
            cut(self.mesh(), whole.shape()[axis.max(0) as usize].as_static().unwrap_or(0), &axes);
        let wide = tensor(ty.shape().to_vec(), NumType::plain(DType::I64));
        let inside = self.b.iota(&wide, axis, loc)?;
        let extent = ty.shape()[axis.max(0) as usize].as_static().unwrap_or(0);
        let (coarse, finest) = axes.split_at(axes.len() - 1);
        let parts = [(coarse.to_vec(), part), (finest.to_vec(), extent)];
        let start = self.start(&parts, loc)?;
        let start = self.b.broadcast(start, wide.shape(), &[], loc)?;
        let all = self.b.ew(ScalarFn::Add, &[inside, start], loc)?;
        if elem(ty) == NumType::plain(DType::I64) {
            return Ok(all);
        }
        self.b.value(OpSpec::new(GraphOp::Cast, &[all]).result(ty.clone()), loc.clone())
    }
}

/// Whether a scatter writes to positions along a dim that is split.
pub fn puts_along_split(op: &Op<Graph>, dims: &Dims) -> bool {
    let axes = op.attr("axes").and_then(Attr::as_ints).unwrap_or_default();
    op.code == GraphOp::Scatter && axes.iter().any(|&axis| !dims[axis.max(0) as usize].is_empty())
}

/// Positions in the blocks of other ranks are outside this one, and those outside the whole are in it already where they are clamped.
fn drop_elsewhere(op: &Op<Graph>, dims: &Dims, attrs: &mut Attrs) {
    if puts_along_split(op, dims) {
        attrs.set("oob", Attr::word("drop"));
    }
}

/// Limits at the end of a whole dim, at the end of its block.
fn clipped(mut attrs: Attrs, name: &str, whole: &Type, block: &Type) -> Attrs {
    let Some(all) = attrs.get(name).and_then(Attr::as_exprs) else { return attrs };
    let each = all.into_iter().zip(whole.shape().iter().zip(block.shape()));
    let each: Vec<DimExpr> = each
        .map(|(limit, (whole, block))| match (whole.as_static(), block.as_static()) {
            (Some(w), Some(b)) if w != b => DimExpr::Const(b),
            _ => limit,
        })
        .collect();
    attrs.set(name, extents(&each));
    attrs
}
