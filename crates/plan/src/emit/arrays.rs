//! The arrays that a kernel takes, each once, with the elements it reads or writes.

use crate::index::Axis;
use crate::nodes::{Access, Body, Node, NodeId, Write};
use crate::shape::Shape;
use tessera_ir::Value;
use tessera_numerics::DType;

/// An array that a launch takes: whose memory, and which elements. Strides are in elements.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ArrayUse {
    pub value: Value,
    pub offset: i64,
    pub dims: Vec<i64>,
    pub strides: Vec<i64>,
    pub dtype: DType,
    pub writes: bool,
}

/// The arrays of a kernel, each once, those that are written last.
pub(super) fn params(body: &Body, shape: &Shape) -> Vec<ArrayUse> {
    let mut out: Vec<ArrayUse> = Vec::new();
    let mut add = |one: ArrayUse| {
        if !out.contains(&one) {
            out.push(one);
        }
    };
    for node in &body.nodes {
        match node {
            Node::Load { access, dtype, moved, window } => {
                add(within(
                    array(access, body, shape, *dtype, false, moved),
                    access,
                    shape,
                    window,
                ));
            }
            Node::Gather { value, dims, dtype, .. } => add(plain_array(*value, dims, *dtype)),
            _ => {}
        }
    }
    if body.product.is_some() {
        let [a, b] = operand_arrays(body, shape);
        add(a);
        add(b);
    }
    for write in &body.writes {
        add(written(write, body, shape));
    }
    out
}

pub(super) fn written(write: &Write, body: &Body, shape: &Shape) -> ArrayUse {
    let mut one = array(&write.access, body, shape, write.dtype, true, &write.moved);
    if let Some((row, column)) = shape.matrix {
        // Rows and columns exist even where there is only one.
        one = with_axes(&write.access, body, &output_axes(&write.access, shape, row, column));
        one.dtype = write.dtype;
        one.writes = true;
    }
    one
}

pub(super) fn output_axes(access: &Access, shape: &Shape, row: Axis, column: Axis) -> Vec<Axis> {
    let has = |a: &Axis| access.strides.iter().any(|(b, _)| b == a);
    let mut axes: Vec<Axis> =
        shape.order.iter().copied().filter(|a| has(a) && *a != row && *a != column).collect();
    axes.extend([row, column]);
    axes
}

/// The arrays of a matmul's operands: other axes first, then m and k, or k and n.
pub(super) fn operand_arrays(body: &Body, shape: &Shape) -> [ArrayUse; 2] {
    let (Some(product), Some((row, column))) = (&body.product, shape.matrix) else {
        return [0, 1].map(|_| plain_array(body.writes[0].access.value, &[1], DType::F32));
    };
    let depth = shape.depth;
    [(&product.a, [row, depth], 0), (&product.b, [depth, column], 1)].map(|(access, last, side)| {
        let has = |a: &Axis| access.strides.iter().any(|(b, _)| b == a);
        let mut axes: Vec<Axis> =
            shape.order.iter().copied().filter(|a| has(a) && !last.contains(a)).collect();
        axes.extend(last);
        let mut one = with_axes(access, body, &axes);
        one.dtype = product.types[side];
        one
    })
}

fn with_axes(access: &Access, body: &Body, axes: &[Axis]) -> ArrayUse {
    let stride = |a: Axis| access.strides.iter().find(|(b, _)| *b == a).map_or(0, |(_, s)| *s);
    ArrayUse {
        value: access.value,
        offset: access.offset,
        dims: axes.iter().map(|&a| body.space.extents[a]).collect(),
        strides: axes.iter().map(|&a| stride(a)).collect(),
        dtype: DType::F32,
        writes: false,
    }
}

pub fn plain_array(value: Value, dims: &[i64], dtype: DType) -> ArrayUse {
    let strides = (0..dims.len()).map(|i| dims[i + 1..].iter().product()).collect();
    ArrayUse { value, offset: 0, dims: dims.to_vec(), strides, dtype, writes: false }
}

/// An access as an array: its axes in the kernel's order. An access that is moved at run time has
/// one more contiguous axis in front.
pub(super) fn array(
    access: &Access,
    body: &Body,
    shape: &Shape,
    dtype: DType,
    writes: bool,
    moved: &[(NodeId, i64, i64)],
) -> ArrayUse {
    let mut one = with_axes(access, body, &axes_of(access, shape));
    if !moved.is_empty() {
        let reach: i64 = moved.iter().map(|(_, stride, most)| stride * most).sum();
        one.dims.insert(0, reach + 1);
        one.strides.insert(0, 1);
    }
    if one.dims.is_empty() {
        (one.dims, one.strides) = (vec![1], vec![1]);
    }
    ArrayUse { dtype, writes, ..one }
}

/// The elements of an array without moves that are in a window: what a load reads outside them is
/// not used.
pub(super) fn within(
    mut one: ArrayUse,
    access: &Access,
    shape: &Shape,
    window: &[(Axis, i64, i64)],
) -> ArrayUse {
    let axes = axes_of(access, shape);
    for &(axis, lo, hi) in window {
        if let Some(place) = axes.iter().position(|&a| a == axis) {
            one.offset += lo * one.strides[place];
            one.dims[place] = hi - lo;
        }
    }
    one
}

pub(super) fn axes_of(access: &Access, shape: &Shape) -> Vec<Axis> {
    let has = |a: &Axis| access.strides.iter().any(|(b, _)| b == a);
    shape.order.iter().copied().filter(has).collect()
}
