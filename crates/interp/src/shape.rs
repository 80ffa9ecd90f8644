//! Rearranging elements.

use crate::value::{Data, Elem, each_data};

/// Row-major strides, in elements.
pub(crate) fn strides_of(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i];
    }
    strides
}

/// The tile of `shape` whose element at `p` is the operand's at `Σ p·stride`.
pub(crate) fn rearrange(x: &Data, shape: &[usize], strides: &[usize]) -> Data {
    each_data!(x, xs => Elem::wrap(strided(xs, shape, strides)))
}

/// The block of a tile of `shape` from `at` on.
pub(crate) fn part(x: &Data, shape: &[usize], at: &[usize], extent: &[usize]) -> Data {
    let strides = strides_of(shape);
    let first: usize = at.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
    each_data!(x, xs => Elem::wrap(strided(&xs[first..], extent, &strides)))
}

pub fn strided<T: Copy>(xs: &[T], shape: &[usize], strides: &[usize]) -> Vec<T> {
    let Some((&len, outer)) = shape.split_last() else { return xs.to_vec() };
    let (stride, outer_strides) = (strides[outer.len()], &strides[..outer.len()]);
    let mut out = Vec::with_capacity(shape.iter().product());
    let mut at = vec![0; outer.len()];
    let mut start = 0;
    loop {
        match stride {
            0 => out.extend(std::iter::repeat_n(xs[start], len)),
            1 => out.extend_from_slice(&xs[start..start + len]),
            _ => out.extend((0..len).map(|j| xs[start + j * stride])),
        }
        // Count the outer position up, like an odometer.
        let mut axis = outer.len();
        loop {
            if axis == 0 {
                return out;
            }
            axis -= 1;
            at[axis] += 1;
            start += outer_strides[axis];
            if at[axis] < outer[axis] {
                break;
            }
            start -= at[axis] * outer_strides[axis];
            at[axis] = 0;
        }
    }
}
