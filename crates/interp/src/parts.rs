//! Parts of tiles: slices, concatenation, elements by position.

use crate::value::{Data, Elem, each_data};
use tessera_numerics::Scalar;

/// The tile of `shape` whose element at `p` is the operand's at `first + Σ p·stride`.
pub(crate) fn slice(x: &Data, shape: &[usize], first: usize, strides: &[isize]) -> Data {
    each_data!(x, xs => Elem::wrap(walked(xs, shape, first, strides)))
}

fn walked<T: Copy>(xs: &[T], shape: &[usize], first: usize, strides: &[isize]) -> Vec<T> {
    let count: usize = shape.iter().product();
    let mut out = Vec::with_capacity(count);
    for number in 0..count {
        let (mut rest, mut place) = (number, first as isize);
        for (&extent, &stride) in shape.iter().zip(strides).rev() {
            place += (rest % extent) as isize * stride;
            rest /= extent;
        }
        out.push(xs[place as usize]);
    }
    out
}

/// Each part has the shape outer × its `len` × inner. `None` where they are of several types.
pub(crate) fn concat(parts: &[crate::value::Tile], lens: &[usize], inner: usize) -> Option<Data> {
    fn joined<T: Elem>(
        first: &[T],
        parts: &[crate::value::Tile],
        lens: &[usize],
        inner: usize,
    ) -> Option<Data> {
        let slices: Option<Vec<&[T]>> = parts.iter().map(|p| T::of(p)).collect();
        let slices = slices?;
        let outer = first.len() / (lens[0] * inner);
        let mut out = Vec::with_capacity(slices.iter().map(|s| s.len()).sum());
        for o in 0..outer {
            for (part, len) in slices.iter().zip(lens) {
                let slab = len * inner;
                out.extend_from_slice(&part[o * slab..(o + 1) * slab]);
            }
        }
        Some(T::wrap(out))
    }
    each_data!(&**parts.first()?, xs => joined(xs, parts, lens, inner))
}

/// `x` is outer × len × inner, `index` outer × count × inner; a position outside gives zero.
pub(crate) fn take(
    x: &Data,
    index: &[i64],
    len: usize,
    count: usize,
    inner: usize,
) -> Option<Data> {
    fn taken<T: Elem>(
        xs: &[T],
        index: &[i64],
        len: usize,
        count: usize,
        inner: usize,
    ) -> Option<Data> {
        let zero = T::from_scalar(Scalar::zero(T::DTYPE))?;
        let one = |(number, &at): (usize, &i64)| {
            let (outer, column) = (number / (count * inner), number % inner);
            let at = usize::try_from(at).ok().filter(|&at| at < len);
            at.map_or(zero, |at| xs[(outer * len + at) * inner + column])
        };
        Some(T::wrap(index.iter().enumerate().map(one).collect()))
    }
    each_data!(x, xs => taken(xs, index, len, count, inner))
}
