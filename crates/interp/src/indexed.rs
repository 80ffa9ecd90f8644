//! Access by one position for each element: gather and scatter, and everything in lane kernels.

use crate::memory::{Memory, Unwritten};
use crate::program::Fold;
use crate::value::{Data, Tile};
use tessera_numerics::{DType, Scalar, cast, cast_with, eval};

/// A position along each axis for each element.
pub(crate) struct Indices {
    axes: Vec<Vec<i64>>,
    len: usize,
}

impl Indices {
    /// `None` when an axis is not of integers. Scalars beside index tiles hold for every element;
    /// where there are no axes, there are as many elements as lanes.
    pub fn new(axes: Vec<Tile>, width: usize) -> Option<Self> {
        let axes: Option<Vec<_>> = axes.iter().map(|a| Some(a.positions()?.into_owned())).collect();
        let axes = axes?;
        let len = axes.iter().map(Vec::len).max().unwrap_or(width);
        axes.iter().all(|a| a.len() == len || a.len() == 1).then_some(Self { axes, len })
    }

    pub fn offset(&self, memory: &Memory, i: usize) -> Option<i64> {
        memory.offset(self.axes.iter().map(|a| if a.len() == 1 { a[0] } else { a[i] }))
    }
}

/// Outside reads `other` (a scalar, or one for each lane) or zero; so does what is masked off.
pub(crate) fn read_each(
    memory: &Memory,
    at: &Indices,
    mask: Option<&[bool]>,
    other: Option<&Data>,
    dtype: DType,
) -> Result<Data, Unwritten> {
    let width = dtype.bytes();
    let mut bytes = vec![0; at.len * width];
    let mut outside = Vec::new();
    for (i, code) in bytes.chunks_exact_mut(width).enumerate() {
        match at.offset(memory, i).filter(|_| mask.is_none_or(|m| m[i])) {
            Some(offset) => code.copy_from_slice(memory.element(offset)?),
            None => outside.push(i),
        }
    }
    let zero = Data::fill(Scalar::zero(dtype), 1);
    let mut data = Data::decode(dtype, &bytes);
    // Zero bytes are zero in every dtype but e8m0, so it is said here as well.
    overwrite(&mut data, &outside, other.unwrap_or(&zero));
    Ok(data)
}

fn overwrite(data: &mut Data, places: &[usize], other: &Data) {
    fn typed<T: crate::value::Elem>(xs: &mut [T], places: &[usize], other: &Data) {
        let Some(other) = T::of(other) else { return };
        for &i in places {
            xs[i] = if other.len() == 1 { other[0] } else { other[i] };
        }
    }
    crate::value::each_data!(data, xs => typed(xs, places, other));
}

/// In ascending order, so that of two values for one element the last stays.
pub(crate) fn write_each(memory: &mut Memory, at: &Indices, mask: &[bool], value: &Data) {
    let codes = value.encode(memory.dtype);
    for (i, code) in codes.chunks_exact(memory.dtype.bytes()).enumerate() {
        if mask[i]
            && let Some(offset) = at.offset(memory, i)
        {
            memory.set_element(offset, code);
        }
    }
}

/// In ascending order, each contribution by itself: two of one element both count. `None` when the
/// operands are not of the operator's type.
pub(crate) fn fold_each(
    memory: &mut Memory,
    at: &Indices,
    mask: &[bool],
    value: &Data,
    fold: Fold,
) -> Option<Result<(), Unwritten>> {
    let dtype = memory.dtype;
    for (i, &m) in mask.iter().enumerate() {
        let Some(offset) = at.offset(memory, i).filter(|_| m) else { continue };
        let old = match memory.element(offset) {
            Ok(code) => Data::decode(dtype, code).at(0)?,
            Err(e) => return Some(Err(e)),
        };
        let new = eval(fold.f, &[cast(old, dtype, fold.compute), value.at(i)?])?;
        let new = cast_with(new, fold.compute, dtype, fold.round, fold.saturate);
        memory.set_element(offset, &Data::fill(new, 1).encode(dtype));
    }
    Some(Ok(()))
}
