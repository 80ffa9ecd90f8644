//! Slices, gathers and scatters at computed positions.

use super::array::{Array, NOWHERE, count, offset, positions, store};
use super::fold::{accumulator, in_accumulator, join};
use crate::shape::strides_of;
use crate::value::{Data, each_data};
use std::sync::Arc;
use tessera_numerics::{Carrier, DType, ReduceOp, Scalar};

/// Where a slice of these extents begins, clamped to be inside.
pub fn inside(starts: &[i64], part: &[usize], whole: &[usize]) -> Vec<i64> {
    let last = |i: usize| whole[i].saturating_sub(part[i]) as i64;
    starts.iter().enumerate().map(|(i, &s)| s.clamp(0, last(i))).collect()
}

pub fn update(x: &Array, part: &Array, starts: &[i64]) -> Option<Array> {
    let starts = inside(starts, &part.dims, &x.dims);
    let (strides, own) = (strides_of(&x.dims), strides_of(&part.dims));
    let mut at: Vec<usize> = (0..x.len()).collect();
    positions(&part.dims, |p| {
        let place = p.iter().zip(&starts).map(|(&p, &s)| p + s as usize).collect::<Vec<_>>();
        at[offset(&place, &strides)] = x.len() + offset(p, &own);
    });
    let both = super::shape::append((*x.data).clone(), &part.data)?;
    Array::new(vec![both.len()], x.elem, both).take(&x.dims, &at, None)
}

/// The axes of an indexed array.
pub struct Indexing {
    pub axes: Vec<usize>,
    pub batch: usize,
    pub clamp: bool,
}

impl Indexing {
    /// For every element that is read or written, in row-major order of the indexed shape, its
    /// position in `x`; [`NOWHERE`] where an index is outside.
    pub fn places(&self, x: &Array, indices: &Array, dims: &[usize]) -> Option<Vec<usize>> {
        let values = indices.data.positions()?;
        let strides = strides_of(&x.dims);
        let lead = indices.dims.len() - 1;
        let rest: Vec<_> =
            (self.batch..x.dims.len()).filter(|axis| !self.axes.contains(axis)).collect();
        let lead_strides = strides_of(&indices.dims);
        let mut out = Vec::with_capacity(count(dims));
        positions(dims, |p| {
            let row = offset(&p[..lead], &lead_strides[..lead]);
            let mut sum = offset(&p[..self.batch], &strides[..self.batch]);
            sum += rest.iter().zip(&p[lead..]).map(|(&axis, &q)| q * strides[axis]).sum::<usize>();
            for (k, &axis) in self.axes.iter().enumerate() {
                let (index, extent) = (values[row + k], x.dims[axis] as i64);
                let index = if self.clamp { index.clamp(0, (extent - 1).max(0)) } else { index };
                if index < 0 || index >= extent {
                    out.push(NOWHERE);
                    return;
                }
                sum += index as usize * strides[axis];
            }
            out.push(sum);
        });
        Some(out)
    }
}

pub fn scatter(
    x: &Array,
    updates: &Array,
    places: &[usize],
    op: Option<ReduceOp>,
) -> Option<Array> {
    let Some(op) = op else {
        let mut at: Vec<usize> = (0..x.len()).collect();
        for (i, &place) in places.iter().enumerate() {
            if let Some(slot) = at.get_mut(place) {
                *slot = x.len() + i;
            }
        }
        let both = super::shape::append((*x.data).clone(), &updates.data)?;
        return Array::new(vec![both.len()], x.elem, both).take(&x.dims, &at, None);
    };
    let accum = accumulator(x, op);
    let mut sums = in_accumulator(x, accum)?;
    let more = super::array::convert(&updates.data, updates.dtype(), accum)?;
    let data: &mut Data = Arc::make_mut(&mut sums);
    for (i, &place) in places.iter().enumerate() {
        if let Some(before) = data.at(place) {
            put(data, place, join(op, accum, before, more.at(i)?)?)?;
        }
    }
    let clamp = matches!(op, ReduceOp::Max | ReduceOp::Min);
    Some(Array { data: store(sums, accum, x.elem, clamp)?, ..x.clone() })
}

fn put(data: &mut Data, place: usize, value: Scalar) -> Option<()> {
    each_data!(data, xs => xs[place] = Carrier::from_scalar(value)?);
    Some(())
}

/// Integers of any dtype as positions.
pub fn ints(x: &Array) -> Option<Vec<i64>> {
    if x.dtype() == DType::Bool {
        return None;
    }
    Some(x.data.positions()?.into_owned())
}
