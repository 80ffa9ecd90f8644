//! A view of a value in memory as a strided array: kernels that take strides need no copy of it.

use crate::index::{Axis, Line, Map, Space, dims_of, is_view, strides, through};
use tessera_graph::ops::kernel::privileges;
use tessera_graph::{Graph, GraphFunc, GraphOp};
use tessera_ir::{Attr, BlockId, Op, Privilege, Value};

/// Where a value is inside another; offset and strides in elements.
#[derive(Debug, PartialEq)]
pub struct Strided {
    pub root: Value,
    pub offset: i64,
    pub strides: Vec<i64>,
}

/// The argument of a kernel call as a part of another value's memory, where the call takes strides and
/// there is something to gain.
pub fn argument(func: &GraphFunc, op: &Op<Graph>, place: usize) -> Option<Strided> {
    let takes = op.code == GraphOp::KernelCall
        && op.attr("views").and_then(Attr::as_bool) == Some(true)
        && privileges(op.attr("privileges")).get(place).copied().flatten() == Some(Privilege::Read);
    if takes { strided(func, op.operands[place], op.block) } else { None }
}

/// `None` for a value that is computed, that repeats elements, or whose last axis is not
/// contiguous. A captured value has memory itself, and what it is a view of need not.
pub fn strided(func: &GraphFunc, v: Value, block: BlockId) -> Option<Strided> {
    let dims = dims_of(func, v);
    if dims.contains(&0) {
        return None;
    }
    let mut space = Space::default();
    let axes: Vec<Option<Axis>> = dims.iter().map(|&d| (d != 1).then(|| space.add(d))).collect();
    let line = |axis: &Option<Axis>| axis.map_or(Line::at(0), |a| Line::along(vec![a]));
    let mut map: Map = axes.iter().map(line).collect();
    let mut root = v;
    while let Some(id) = func.def_id(root) {
        let op = &func.ops[id];
        if op.block != block || !is_view(op.code) || op.code == GraphOp::Broadcast {
            break;
        }
        let place = op.results.iter().position(|&r| r == root)?;
        let Some(next) = through(func, id, &map, &mut space) else { break };
        map = next;
        root = *op.operands.get(place)?;
    }
    if root == v {
        return None;
    }
    let (offset, found) = strides(&dims_of(func, root), &map, &space);
    let mut out = Vec::with_capacity(dims.len());
    for axis in axes {
        out.push(match axis {
            None => 1,
            Some(axis) => along(&space, axis, &found)?,
        });
    }
    let last = dims.iter().rposition(|&d| d != 1);
    let contiguous = last.is_none_or(|i| i + 1 == dims.len() && out[i] == 1);
    contiguous.then_some(Strided { root, offset, strides: out })
}

/// The stride of an axis, which may have been split: its parts must be adjacent.
fn along(space: &Space, axis: Axis, found: &[(Axis, i64)]) -> Option<i64> {
    let mut stride = None;
    for part in space.expand(&[axis]).into_iter().rev().filter(|&a| space.extents[a] != 1) {
        let own = found.iter().find(|(a, _)| *a == part)?.1;
        match stride {
            Some((first, next)) if next == own => {
                stride = Some((first, own * space.extents[part]));
            }
            Some(_) => return None,
            None => stride = Some((own, own * space.extents[part])),
        }
    }
    stride.map(|(first, _)| first).filter(|&s| s > 0)
}
