//! Views, slices, pads and concats: each result element comes from one position.

use super::array::{Array, NOWHERE, count, offset, positions};
use crate::shape::strides_of;
use crate::value::Data;
use tessera_numerics::Scalar;

/// Axis `i` of `x` is axis `axes[i]` of the result.
pub fn broadcast(x: &Array, dims: &[usize], axes: &[i64]) -> Option<Array> {
    let strides = strides_of(&x.dims);
    let mut at = Vec::with_capacity(count(dims));
    positions(dims, |p| {
        let own = axes.iter().zip(&x.dims).zip(&strides);
        at.push(own.map(|((&a, &d), s)| if d == 1 { 0 } else { p[a as usize] * s }).sum());
    });
    x.take(dims, &at, None)
}

pub fn transpose(x: &Array, perm: &[usize]) -> Option<Array> {
    let old = strides_of(&x.dims);
    let dims: Vec<_> = perm.iter().map(|&p| x.dims[p]).collect();
    let strides: Vec<_> = perm.iter().map(|&p| old[p]).collect();
    let mut at = Vec::with_capacity(x.len());
    positions(&dims, |p| at.push(offset(p, &strides)));
    x.take(&dims, &at, None)
}

/// Position `p` of the result is `start + p · step` of `x`, per axis; `fill` where that is outside.
pub fn strided(
    x: &Array,
    dims: &[usize],
    start: &[i64],
    step: &[i64],
    fill: Option<Scalar>,
) -> Option<Array> {
    let strides = strides_of(&x.dims);
    let mut at = Vec::with_capacity(count(dims));
    positions(dims, |p| {
        let mut sum = 0;
        for axis in 0..p.len() {
            let place = start[axis] + p[axis] as i64 * step[axis];
            if place < 0 || place >= x.dims[axis] as i64 {
                at.push(NOWHERE);
                return;
            }
            sum += place as usize * strides[axis];
        }
        at.push(sum);
    });
    x.take(dims, &at, fill)
}

/// `lo` places before the first element and `interior` between any two.
pub fn pad(x: &Array, dims: &[usize], lo: &[i64], interior: &[i64], fill: Scalar) -> Option<Array> {
    let strides = strides_of(&x.dims);
    let mut at = Vec::with_capacity(count(dims));
    positions(dims, |p| {
        let mut sum = 0;
        for axis in 0..p.len() {
            let (place, step) = (p[axis] as i64 - lo[axis], interior[axis] + 1);
            if place < 0 || place % step != 0 || place / step >= x.dims[axis] as i64 {
                at.push(NOWHERE);
                return;
            }
            sum += (place / step) as usize * strides[axis];
        }
        at.push(sum);
    });
    x.take(dims, &at, Some(fill))
}

pub fn reverse(x: &Array, axes: &[usize]) -> Option<Array> {
    let turned = |axis: usize| axes.contains(&axis);
    let n = x.dims.len();
    let start: Vec<_> = (0..n).map(|i| if turned(i) { x.dims[i] as i64 - 1 } else { 0 }).collect();
    let step: Vec<_> = (0..n).map(|i| if turned(i) { -1 } else { 1 }).collect();
    strided(x, &x.dims, &start, &step, None)
}

/// All arrays have one shape but along `axis`.
pub fn concat(all: &[&Array], dims: &[usize], axis: usize) -> Option<Array> {
    let first = all.first()?;
    let mut joined = Data::fill(Scalar::zero(first.dtype()), 0);
    // Every array's elements one after another, then each in its place.
    let mut at = vec![NOWHERE; count(dims)];
    let strides = strides_of(dims);
    let (mut begin, mut along) = (0, 0);
    for x in all {
        let mut i = begin;
        positions(&x.dims, |p| {
            at[offset(p, &strides) + along * strides[axis]] = i;
            i += 1;
        });
        begin = i;
        along += x.dims[axis];
        joined = append(joined, &x.data)?;
    }
    Array::new(vec![begin], first.elem, joined).take(dims, &at, None)
}

/// One array's elements after another's; `None` where they are of two carriers.
pub fn append(mut data: Data, more: &Data) -> Option<Data> {
    use Data::{Bool, F32, F64, I32, I64, U32, U64};
    match (&mut data, more) {
        (Bool(a), Bool(b)) => a.extend_from_slice(b),
        (I32(a), I32(b)) => a.extend_from_slice(b),
        (I64(a), I64(b)) => a.extend_from_slice(b),
        (U32(a), U32(b)) => a.extend_from_slice(b),
        (U64(a), U64(b)) => a.extend_from_slice(b),
        (F32(a), F32(b)) => a.extend_from_slice(b),
        (F64(a), F64(b)) => a.extend_from_slice(b),
        _ => return None,
    }
    Some(data)
}
