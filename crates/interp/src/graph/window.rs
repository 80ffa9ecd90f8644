//! Reductions over moving windows.

use super::array::{Array, NOWHERE, count, positions, store};
use super::fold::{accumulator, in_accumulator, join};
use super::reduce::{better, collect};
use crate::shape::strides_of;
use crate::value::Data;
use std::sync::Arc;
use tessera_numerics::{DType, ReduceOp};

pub struct Window {
    pub extent: Vec<usize>,
    pub strides: Vec<i64>,
    pub lo: Vec<i64>,
    pub dilate: Vec<i64>,
}

impl Window {
    /// For each window of the result, the positions of its elements in `x`, row-major;
    /// [`NOWHERE`] in the padding.
    fn elements(&self, x: &Array, dims: &[usize]) -> Vec<Vec<usize>> {
        let strides = strides_of(&x.dims);
        let mut out = Vec::with_capacity(count(dims));
        positions(dims, |p| {
            let mut one = Vec::with_capacity(count(&self.extent));
            positions(&self.extent, |q| {
                let mut sum = 0;
                for axis in 0..p.len() {
                    let place = p[axis] as i64 * self.strides[axis]
                        + q[axis] as i64 * self.dilate[axis]
                        - self.lo[axis];
                    if place < 0 || place >= x.dims[axis] as i64 {
                        one.push(NOWHERE);
                        return;
                    }
                    sum += place as usize * strides[axis];
                }
                one.push(sum);
            });
            out.push(one);
        });
        out
    }

    pub fn reduce(&self, x: &Array, op: ReduceOp, dims: &[usize]) -> Option<Array> {
        let accum = accumulator(x, op);
        let data = in_accumulator(x, accum)?;
        let identity = op.identity(accum.carrier())?;
        let mut out = Vec::with_capacity(count(dims));
        for window in self.elements(x, dims) {
            let mut sum = identity;
            for place in window {
                sum = join(op, accum, sum, data.at(place).unwrap_or(identity))?;
            }
            out.push(sum);
        }
        let done = collect(&out, accum.carrier())?;
        let clamp = matches!(op, ReduceOp::Max | ReduceOp::Min);
        let data = store(Arc::new(done), accum, x.elem, clamp)?;
        Some(Array { dims: dims.to_vec(), elem: x.elem, data })
    }

    pub fn arg_reduce(&self, x: &Array, max: bool, dims: &[usize]) -> Option<Array> {
        let mut out = Vec::with_capacity(count(dims));
        for window in self.elements(x, dims) {
            let mut best: Option<(usize, usize)> = None;
            for (place, &at) in window.iter().enumerate().filter(|(_, at)| **at != NOWHERE) {
                if best.is_none_or(|(_, before)| better(&x.data, before, at, max)) {
                    best = Some((place, at));
                }
            }
            out.push(best.map_or(0, |(place, _)| place as i64));
        }
        Some(Array::new(dims.to_vec(), DType::I64.into(), Data::I64(out)))
    }
}
