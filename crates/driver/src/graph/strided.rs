//! Copies between arrays of one shape that are not contiguous: as copies of the runs that are contiguous in both.

use tessera_plan::Array;

/// Calls `with(offset in one, offset in the other, bytes)` for each run, in row-major order.
pub fn runs<E>(
    from: &Array,
    to: &Array,
    with: &mut dyn FnMut(i64, i64, usize) -> Result<(), E>,
) -> Result<(), E> {
    let mut bytes = to.dtype.bytes() as i64;
    let mut rank = to.dims.len();
    if to.dims.contains(&0) {
        return Ok(());
    }
    while let Some(axis) = rank.checked_sub(1) {
        let dense = from.strides[axis] == bytes && to.strides[axis] == bytes;
        if to.dims[axis] != 1 && !dense {
            break;
        }
        bytes *= to.dims[axis];
        rank = axis;
    }
    let mut index = vec![0i64; rank];
    loop {
        let offset = |a: &Array| -> i64 { index.iter().zip(&a.strides).map(|(i, s)| i * s).sum() };
        with(offset(from), offset(to), bytes as usize)?;
        let Some(axis) = (0..rank).rev().find(|&axis| index[axis] + 1 < to.dims[axis]) else {
            return Ok(());
        };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_numerics::DType;

    fn array(dims: &[i64], strides: &[i64]) -> Array {
        let (dims, strides) = (dims.to_vec(), strides.to_vec());
        let (buffer, offset, dtype) = (0, 0, DType::F32);
        Array { buffer, offset, dims, strides, dtype, writes: false, iterations: Vec::new() }
    }

    fn all(from: &Array, to: &Array) -> Vec<(i64, i64, usize)> {
        let mut out = Vec::new();
        let done: Result<(), ()> = runs(from, to, &mut |a, b, n| {
            out.push((a, b, n));
            Ok(())
        });
        assert!(done.is_ok());
        out
    }

    #[test]
    fn runs_are_as_long_as_both_arrays_allow() {
        let rows = array(&[2, 3, 4], &[48, 16, 4]);
        assert_eq!(all(&rows, &rows), [(0, 0, 96)]);
        let apart = array(&[2, 3, 4], &[100, 16, 4]);
        assert_eq!(all(&rows, &apart), [(0, 0, 48), (48, 100, 48)]);
        let turned = array(&[2, 2], &[4, 8]);
        let plain = array(&[2, 2], &[8, 4]);
        assert_eq!(all(&turned, &plain), [(0, 0, 4), (8, 4, 4), (4, 8, 4), (12, 12, 4)]);
        // The stride of an axis of extent 1 says nothing.
        let column = array(&[3, 1], &[4, 400]);
        assert_eq!(all(&column, &array(&[3, 1], &[4, 4])), [(0, 0, 12)]);
        assert_eq!(all(&array(&[], &[]), &array(&[], &[])), [(0, 0, 4)]);
        assert_eq!(all(&array(&[0, 2], &[8, 4]), &array(&[0, 2], &[8, 4])), []);
    }
}
