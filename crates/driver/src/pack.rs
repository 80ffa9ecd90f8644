//! Strided views, and their elements packed into contiguous memory.

use tessera_numerics::DType;
use tessera_target::BufferArg;

/// The strides in bytes of a row-major contiguous array. Those of an array without elements may
/// exceed 64 bits, and are then clamped: they are never used.
pub fn row_major(dims: &[i64], dtype: DType) -> Vec<i64> {
    let mut strides = vec![dtype.bytes() as i64; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(dims[axis].max(1));
    }
    strides
}

/// Bytes of all elements of a view.
pub fn packed_bytes(view: &BufferArg) -> usize {
    let count = view.dims.iter().map(|&d| d.max(0) as usize);
    count.fold(view.dtype.bytes(), usize::saturating_mul)
}

pub fn is_packed(view: &BufferArg) -> bool {
    let strides = row_major(&view.dims, view.dtype);
    let same = |axis: usize| view.dims[axis] <= 1 || view.strides[axis] == strides[axis];
    view.dims.contains(&0) || (0..view.dims.len()).all(same)
}

/// Bytes from the first element to the lowest address of the view, and to the end of the highest;
/// both zero for a view without elements.
pub fn reach(view: &BufferArg) -> (i64, i64) {
    if view.dims.contains(&0) {
        return (0, 0);
    }
    let (mut low, mut high) = (0, view.dtype.bytes() as i64);
    for (&n, &stride) in view.dims.iter().zip(&view.strides) {
        let far = (n - 1) * stride;
        if far < 0 { low += far } else { high += far }
    }
    (low, high)
}

/// Packs the elements of a view, whose first is at `view`, into contiguous memory.
///
/// # Safety
/// All positions of the view are memory that may be read, and `to` has room for all elements.
pub unsafe fn gather(view: *const u8, dims: &[i64], strides: &[i64], size: usize, to: *mut u8) {
    each(dims, strides, size, |offset, at, bytes| {
        // SAFETY: as the caller promises.
        unsafe { view.offset(offset).copy_to_nonoverlapping(to.add(at), bytes) };
    });
}

/// The opposite of [`gather`].
///
/// # Safety
/// All positions of the view are memory that may be written, and `from` holds all elements.
pub unsafe fn scatter(view: *mut u8, dims: &[i64], strides: &[i64], size: usize, from: *const u8) {
    each(dims, strides, size, |offset, at, bytes| {
        // SAFETY: as the caller promises.
        unsafe { view.offset(offset).copy_from_nonoverlapping(from.add(at), bytes) };
    });
}

/// Calls `f` with the offset in the view, the offset in packed memory and the bytes of each run
/// that is contiguous in both.
fn each(dims: &[i64], strides: &[i64], size: usize, mut f: impl FnMut(isize, usize, usize)) {
    if dims.iter().any(|&d| d <= 0) {
        return;
    }
    let (mut outer, mut run) = (dims.len(), size);
    while outer > 0 && (strides[outer - 1] == run as i64 || dims[outer - 1] == 1) {
        outer -= 1;
        run *= dims[outer] as usize;
    }
    let (mut position, mut packed) = (vec![0i64; outer], 0);
    loop {
        let offset: i64 = position.iter().zip(strides).map(|(i, s)| i * s).sum();
        f(offset as isize, packed, run);
        packed += run;
        let mut axis = outer;
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            position[axis] += 1;
            if position[axis] < dims[axis] {
                break;
            }
            position[axis] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_gathered_and_scattered_in_row_major_order() {
        let x: Vec<i16> = (0..24).collect();
        // Every other column of a 3 x 8 array, backwards: and the same with rows of two neighbours.
        for (first, dims, strides, expected) in [
            (7, vec![3, 2], vec![16, -4], vec![7, 5, 15, 13, 23, 21]),
            (2, vec![3, 2], vec![16, 2], vec![2, 3, 10, 11, 18, 19]),
            (0, vec![1, 3, 1], vec![999, 2, 5], vec![0, 1, 2]),
            (0, vec![0, 3], vec![2, 2], vec![]),
        ] {
            let mut packed = vec![0i16; expected.len()];
            let mut back = vec![-1i16; 24];
            // SAFETY: the positions are inside the 24 elements.
            unsafe {
                let view = x.as_ptr().add(first).cast();
                gather(view, &dims, &strides, 2, packed.as_mut_ptr().cast());
                let view = back.as_mut_ptr().add(first).cast();
                scatter(view, &dims, &strides, 2, packed.as_ptr().cast());
            }
            assert_eq!(packed, expected);
            for (i, &v) in back.iter().enumerate() {
                assert_eq!(v, if expected.contains(&(i as i16)) { i as i16 } else { -1 });
            }
        }
    }

    #[test]
    fn views_know_how_far_they_reach() {
        let view = |dims: &[i64], strides: &[i64]| BufferArg {
            data: std::ptr::null_mut(),
            dims: dims.into(),
            strides: strides.into(),
            dtype: DType::F32,
            writable: true,
        };
        assert_eq!(reach(&view(&[3, 2], &[16, -4])), (-4, 36));
        assert_eq!(reach(&view(&[0, 2], &[16, -4])), (0, 0));
        assert!(is_packed(&view(&[3, 2], &[8, 4])) && !is_packed(&view(&[3, 2], &[16, 4])));
        assert!(is_packed(&view(&[1, 2], &[99, 4])));
        assert_eq!(row_major(&[2, 3, 4], DType::F32), [48, 16, 4]);
    }
}
