//! Copies of the arrays that a launch writes, for one that must leave the caller's alone.

use crate::specialise::Specialised;
use tessera_target::{ArgValue, BufferArg, LaunchArgs};

/// The copies, which must outlive the launch.
pub struct Copies {
    _bytes: Vec<Vec<u64>>,
}

impl Copies {
    /// Puts copies in the place of the written arrays.
    pub fn of_written(spec: &Specialised, args: &mut LaunchArgs) -> Self {
        let mut bytes = Vec::new();
        for (place, arg) in args.params.iter_mut().enumerate() {
            if let ArgValue::Buffer(buffer) = arg
                && spec.privilege(place).writes()
            {
                bytes.push(copy(buffer));
            }
        }
        Self { _bytes: bytes }
    }
}

/// The elements side by side in memory of their own, to which the argument then points.
fn copy(buffer: &mut BufferArg) -> Vec<u64> {
    let size = buffer.dtype.bytes();
    let count = buffer.dims.iter().map(|&d| d.max(0) as usize).product::<usize>();
    // Words, so that every element is aligned.
    let mut words = vec![0u64; (count * size).div_ceil(8)];
    let to = words.as_mut_ptr().cast::<u8>();
    let mut at = vec![0i64; buffer.dims.len()];
    for i in 0..count {
        let offset: i64 = at.iter().zip(&buffer.strides).map(|(i, s)| i * s).sum();
        // SAFETY: the positions are those of the caller's view, and `i` is below `count`.
        unsafe {
            let from = buffer.data.offset(offset as isize);
            std::ptr::copy_nonoverlapping(from, to.add(i * size), size);
        }
        for (position, &dim) in at.iter_mut().zip(&buffer.dims).rev() {
            *position += 1;
            if *position < dim {
                break;
            }
            *position = 0;
        }
    }
    buffer.data = to;
    buffer.strides.fill(size as i64);
    for axis in (1..buffer.dims.len()).rev() {
        buffer.strides[axis - 1] = buffer.strides[axis] * buffer.dims[axis];
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_numerics::DType;

    #[test]
    fn a_view_is_copied_element_by_element() {
        let mut x: Vec<i16> = (0..12).collect();
        // Every other column of a 3 x 4 array, backwards.
        let mut view = BufferArg {
            data: x.as_mut_ptr().wrapping_add(3).cast(),
            dims: vec![3, 2],
            strides: vec![8, -4],
            dtype: DType::I16,
            writable: true,
        };
        let words = copy(&mut view);
        assert_eq!(view.strides, [4, 2]);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let copied: Vec<i16> =
            bytes.chunks(2).take(6).map(|b| i16::from_le_bytes([b[0], b[1]])).collect();
        assert_eq!(copied, [3, 1, 7, 5, 11, 9]);
    }
}
