//! Matmuls of class `seq`: one fused multiply-add for each position of k, ascending, from zero.

use super::array::{Array, convert, positions, store};
use super::fold::{fused, is_narrow};
use super::reduce::collect;
use super::shape::{pad, transpose};
use crate::mma::mma;
use crate::shape::strides_of;
use crate::value::{Data, Tile};
use std::sync::Arc;
use tessera_numerics::{DType, NumType, Scalar};

/// The axes of one operand: batch, free and contracted.
pub struct Sides {
    pub batch: [Vec<usize>; 2],
    pub contract: [Vec<usize>; 2],
}

pub fn dot(a: &Array, b: &Array, sides: &Sides, accum: DType, out: NumType) -> Option<Array> {
    let free = |x: &Array, side: usize| -> Vec<usize> {
        let taken =
            |axis: &usize| sides.batch[side].contains(axis) || sides.contract[side].contains(axis);
        (0..x.dims.len()).filter(|axis| !taken(axis)).collect()
    };
    let (free_a, free_b) = (free(a, 0), free(b, 1));
    let size = |x: &Array, axes: &[usize]| axes.iter().map(|&i| x.dims[i]).product::<usize>();
    let (batch, k) = (size(a, &sides.batch[0]), size(a, &sides.contract[0]));
    let (m, n) = (size(a, &free_a), size(b, &free_b));
    let order = |parts: [&[usize]; 3]| parts.concat();
    let left = transpose(a, &order([&sides.batch[0], &free_a, &sides.contract[0]]))?;
    let right = transpose(b, &order([&sides.batch[1], &sides.contract[1], &free_b]))?;
    let left = convert(&left.data, a.dtype(), accum)?;
    let right = convert(&right.data, b.dtype(), accum)?;
    let sums = products(&left, &right, batch, (m, k, n), accum)?;
    let axes = sides.batch[0].iter().chain(&free_a).map(|&i| a.dims[i]);
    let dims = axes.chain(free_b.iter().map(|&i| b.dims[i])).collect();
    Some(Array { dims, elem: out, data: store(sums, accum, out, false)? })
}

/// `batch` matmuls of m×k by k×n, in the accumulator.
fn products(
    a: &Data,
    b: &Data,
    batch: usize,
    (m, k, n): (usize, usize, usize),
    accum: DType,
) -> Option<Tile> {
    let zero = Scalar::zero(accum.carrier());
    let mut out: Option<Data> = None;
    if m * n * k != 0 {
        for i in 0..batch {
            let (x, y) = (part(a, i * m * k, m * k)?, part(b, i * k * n, k * n)?);
            let sums = match is_narrow(accum) {
                false => mma(&x, &y, Arc::new(Data::fill(zero, m * n)), k, n),
                true => None,
            };
            let sums = match sums {
                Some(sums) => (*sums).clone(),
                None => general(&x, &y, (m, k, n), accum)?,
            };
            out = Some(match out {
                None => sums,
                Some(before) => super::shape::append(before, &sums)?,
            });
        }
    }
    Some(Arc::new(out.unwrap_or_else(|| Data::fill(zero, batch * m * n))))
}

fn part(x: &Data, start: usize, len: usize) -> Option<Data> {
    super::array::take(x, &(start..start + len).collect::<Vec<_>>(), None)
}

/// Any carrier, and accumulators that are rounded at every step.
fn general(a: &Data, b: &Data, (m, k, n): (usize, usize, usize), accum: DType) -> Option<Data> {
    let zero = Scalar::zero(accum.carrier());
    let mut out = Vec::with_capacity(m * n);
    for row in 0..m {
        for column in 0..n {
            let mut sum = zero;
            for i in 0..k {
                sum = fused(accum, a.at(row * k + i)?, b.at(i * n + column)?, sum)?;
            }
            out.push(sum);
        }
    }
    collect(&out, accum.carrier())
}

/// How the window of a convolution moves, for each axis after the first two.
pub struct Moves {
    pub strides: Vec<i64>,
    pub lo: Vec<i64>,
    pub hi: Vec<i64>,
    pub dilate_x: Vec<i64>,
    pub dilate_w: Vec<i64>,
    pub groups: usize,
}

/// Pads `x` with zeros around and between its elements, then multiplies, for each group, the
/// weights by the matrix of all windows (im2col).
pub fn conv(
    x: &Array,
    w: &Array,
    moves: &Moves,
    dims: &[usize],
    accum: DType,
    out: NumType,
) -> Option<Array> {
    let padded = spread_out(x, moves)?;
    let strides = strides_of(&padded.dims);
    let (inputs, outputs) = (w.dims[1], w.dims[0] / moves.groups);
    let (window, places) = (&w.dims[2..], &dims[2..]);
    let k = inputs * window.iter().product::<usize>();
    let n = places.iter().product::<usize>();
    let left = convert(&w.data, w.dtype(), accum)?;
    let values = convert(&padded.data, x.dtype(), accum)?;
    let mut sums: Option<Data> = None;
    for image in 0..dims[0] {
        for group in 0..moves.groups {
            let mut at = Vec::with_capacity(k * n);
            for channel in group * inputs..(group + 1) * inputs {
                let base = image * strides[0] + channel * strides[1];
                positions(window, |q| {
                    positions(places, |p| {
                        let along = (0..p.len()).map(|i| {
                            let step = p[i] as i64 * moves.strides[i];
                            (step + q[i] as i64 * moves.dilate_w[i]) as usize * strides[i + 2]
                        });
                        at.push(base + along.sum::<usize>());
                    });
                });
            }
            let windows = super::array::take(&values, &at, None)?;
            let weights = part(&left, group * outputs * k, outputs * k)?;
            let done = products(&weights, &windows, 1, (outputs, k, n), accum)?;
            sums = Some(match sums {
                None => (*done).clone(),
                Some(before) => super::shape::append(before, &done)?,
            });
        }
    }
    let empty = || Data::fill(Scalar::zero(accum.carrier()), dims.iter().product());
    let data = store(Arc::new(sums.unwrap_or_else(empty)), accum, out, false)?;
    Some(Array { dims: dims.to_vec(), elem: out, data })
}

fn spread_out(x: &Array, moves: &Moves) -> Option<Array> {
    let mut dims = x.dims.clone();
    let (mut lo, mut interior) = (vec![0; 2], vec![0; 2]);
    for i in 0..moves.strides.len() {
        let extent = x.dims[i + 2] as i64;
        let spread = extent + (extent - 1).max(0) * (moves.dilate_x[i] - 1);
        dims[i + 2] = (spread + moves.lo[i] + moves.hi[i]).max(0) as usize;
        lo.push(moves.lo[i]);
        interior.push(moves.dilate_x[i] - 1);
    }
    pad(x, &dims, &lo, &interior, Scalar::zero(x.dtype()))
}
