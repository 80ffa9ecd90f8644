//! Matrix-vector products as sums of elementwise products. Each element of the matrix is used once,
//! so tiles have nothing to reuse, and a sum along rows reads them contiguously. For CPUs, in
//! profiles that leave the order of additions open.

use crate::expand::Site;
use crate::index::dims_of;
use tessera_graph::{GraphOp, elem, tensor};
use tessera_ir::{Attr, Attrs, Dim, OpSpec, Type, Value};
use tessera_numerics::{DType, ReduceOp, ScalarFn};

/// Shorter sums are left to tiled matmuls, which take several rows in a vector.
const SHORTEST: i64 = 64;

/// Fewer columns than this do not fill a vector.
const NARROWEST: i64 = 16;

/// Whether the last axis is the last one in memory too.
fn rows_lie_so(site: &Site<'_>, x: Value) -> bool {
    let Some(op) = site.func.def_id(x).map(|id| &site.func.ops[id]) else { return true };
    let perm = op.attr("perm").and_then(Attr::as_ints).unwrap_or_default();
    op.code != GraphOp::Transpose || perm.last() == Some(&(perm.len() as i64 - 1))
}

/// `None` where neither operand is a vector beside its batch axes. Rows that are not contiguous
/// along the sum are reduced as columns, several together.
pub fn dot(
    site: &mut Site<'_>,
    operands: &[Value],
    attrs: &Attrs,
    ty: &Type,
) -> Option<Result<Value, String>> {
    let ints = |name: &str| attrs.get(name).and_then(Attr::as_ints).unwrap_or_default();
    if attrs.get("class").and_then(Attr::as_word) == Some("seq") {
        return None;
    }
    let types = [0, 1].map(|i| site.func.ty(operands[i]).clone());
    let said = attrs.get("accum").and_then(Attr::as_word).and_then(DType::parse);
    let (accum, _) = tessera_graph::ops::dot::dtypes(&types[0], &types[1], said, None).ok()?;
    let dtypes = [types[0].dtype(), types[1].dtype(), ty.dtype()];
    if !matches!(accum, DType::F32 | DType::F64) || dtypes != [accum; 3] {
        return None;
    }
    let dims = [0, 1].map(|i| dims_of(site.func, operands[i]));
    let batch = ints("batch_a").len();
    // Batch axes first, and the contracted axes in one order on both sides.
    let leads = |list: &[i64]| list.iter().enumerate().all(|(i, &a)| a == i as i64);
    let contract = [ints("contract_a"), ints("contract_b")];
    let ascends = |list: &[i64]| list.windows(2).all(|w| w[0] < w[1]);
    if !leads(&ints("batch_a")) || !leads(&ints("batch_b")) || !contract.iter().all(|c| ascends(c))
    {
        return None;
    }
    let pairs: i64 = dims[0][..batch].iter().product();
    // One matmul is a kernel of its own, which reads the matrix as fast.
    if pairs == 1 && site.block == site.func.body {
        return None;
    }
    let depth: i64 = contract[0].iter().map(|&a| dims[0][a as usize]).product();
    let free = |i: usize| dims[i].iter().product::<i64>() / (pairs * depth).max(1);
    let matrix = (0..2).find(|&i| free(1 - i) == 1)?;
    // Where the contracted axes come last, rows are as long as the sums.
    let first = dims[matrix].len() - contract[matrix].len();
    let ends = contract[matrix].iter().enumerate().all(|(k, &a)| a == (first + k) as i64);
    let along_rows = ends == rows_lie_so(site, operands[matrix]);
    if depth < SHORTEST || (!along_rows && free(matrix) < NARROWEST) {
        return None;
    }
    Some((|| {
        let (x, shape) = (operands[matrix], dims[matrix].clone());
        let tail: Vec<i64> = contract[matrix].iter().map(|&a| shape[a as usize]).collect();
        let own: Vec<i64> = shape[..batch].iter().chain(&tail).copied().collect();
        let v = site.reshape(operands[1 - matrix], &own)?;
        let places = (0..batch as i64).chain(contract[matrix].iter().copied());
        let sizes = shape.iter().map(|&d| Dim::Static(d)).collect();
        let stretched = tensor(sizes, elem(site.func.ty(v)));
        let spec = OpSpec::new(GraphOp::Broadcast, &[v]).attr("dims", Attr::ints(places));
        let v = site.op(spec.result(stretched))?;
        let products = site.ew(ScalarFn::Mul, &[x, v])?;
        let sums = OpSpec::new(GraphOp::Reduce, &[products])
            .attr("op", Attr::word(ReduceOp::Sum.name()))
            .attr("axes", Attr::ints(contract[matrix].iter().copied()));
        let sums = site.op(sums)?;
        site.reshape(sums, &ty.static_shape().unwrap_or_default())
    })())
}
