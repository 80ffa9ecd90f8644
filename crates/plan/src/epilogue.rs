//! Which matmuls get a kernel of their own on GPUs: a fused epilogue needs registers beside the
//! accumulator.

use crate::class::is_light_fn;
use crate::group::{Grouping, Kind};
use crate::index::Axis;
use crate::machine::{Machine, Matrix};
use crate::nodes::{Body, Node, trace};
use std::collections::BTreeSet;
use tessera_graph::GraphFunc;
use tessera_ir::Value;
use tessera_target::speed::LINE;

/// Registers of a thread that the accumulator and its epilogue may take.
const ROOM: i64 = 256;

/// Matmuls whose fused kernels would need more registers than there are.
pub fn crowded(func: &GraphFunc, grouping: &Grouping, machine: Machine) -> BTreeSet<Value> {
    let each = grouping.groups.iter().enumerate();
    each.filter(|(_, g)| matches!(g.kind, Kind::Nest))
        .filter_map(|(place, g)| Some((place, g.product?)))
        .filter(|&(place, _)| is_crowded(&trace(func, grouping, place), machine))
        .map(|(_, product)| product)
        .collect()
}

/// Every array of the tile's extents that is read, every result after the first and every long
/// function counts as one more tile beside the accumulator.
fn is_crowded(body: &Body, machine: Machine) -> bool {
    let Some(product) = &body.product else { return false };
    let axes = |list: &[Axis]| body.space.expand(list);
    let (rows, columns, depth) =
        (axes(&product.rows), axes(&product.columns), axes(&product.depth));
    let all = |node: &&Node| match node {
        Node::Load { access, .. } => [&rows, &columns].iter().all(|side| {
            side.iter().all(|a| body.space.extents[*a] == 1)
                || access.strides.iter().any(|(a, _)| side.contains(a))
        }),
        Node::Gather { .. } | Node::Philox { .. } => true,
        Node::Apply { f, .. } => !is_light_fn(*f),
        Node::Splat { .. }
        | Node::Position { .. }
        | Node::Select { .. }
        | Node::Cast { .. }
        | Node::Bitcast { .. }
        | Node::Reduce { .. }
        | Node::ArgReduce { .. }
        | Node::Scan { .. }
        | Node::Sums { .. } => false,
    };
    let beside = body.nodes.iter().filter(all).count() + body.writes.len().saturating_sub(1);
    if beside <= 1 {
        return false;
    }
    let used: BTreeSet<Axis> = body
        .writes
        .iter()
        .flat_map(|w| w.access.strides.iter().map(|(a, _)| *a))
        .filter(|a| !rows.contains(a) && !columns.contains(a) && !depth.contains(a))
        .collect();
    let tiles = machine.matrix(&Matrix {
        rows: body.space.size(&rows),
        columns: body.space.size(&columns),
        depth: body.space.size(&depth),
        batch: used.iter().map(|&a| body.space.extents[a]).product(),
        of: product.types[0],
        out_bytes: body.writes.first().map_or(1, |w| w.dtype.bytes() as i64),
        rows_on: [LINE; 2],
        may_split: false,
    });
    // Two warpgroups share a tile of 128 rows.
    let threads = if tiles.rows >= 128 { 256 } else { 128 };
    tiles.rows * tiles.columns / threads * (1 + beside as i64) > ROOM
}
