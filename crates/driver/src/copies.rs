//! Copies of the arrays that a launch writes, for one that must leave the caller's alone.

use crate::pack::{gather, packed_bytes, row_major};
use crate::specialise::Specialised;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_target::{ArgValue, BufferArg, LaunchArgs};

/// The copies, which must outlive the launch.
pub struct Copies {
    _bytes: Vec<Vec<u64>>,
}

impl Copies {
    /// Puts copies in the place of the written arrays.
    pub fn of_written(spec: &Specialised, args: &mut LaunchArgs) -> Result<Self, Diagnostics> {
        let mut bytes = Vec::new();
        for (place, arg) in args.params.iter_mut().enumerate() {
            if let ArgValue::Buffer(buffer) = arg
                && spec.privilege(place).writes()
            {
                bytes.push(copy(buffer)?);
            }
        }
        Ok(Self { _bytes: bytes })
    }
}

/// Copies the elements to contiguous memory, to which the argument then points.
pub(crate) fn copy(buffer: &mut BufferArg) -> Result<Vec<u64>, Diagnostics> {
    let mut words = room(packed_bytes(buffer))?;
    let to = words.as_mut_ptr().cast::<u8>();
    let size = buffer.dtype.bytes();
    // SAFETY: the positions are those of the caller's view, and the room is for all elements.
    unsafe { gather(buffer.data, &buffer.dims, &buffer.strides, size, to) };
    buffer.data = to;
    buffer.strides = row_major(&buffer.dims, buffer.dtype);
    Ok(words)
}

/// Memory for `bytes` bytes: words, so that every element is aligned.
pub(crate) fn room(bytes: usize) -> Result<Vec<u64>, Diagnostics> {
    let (mut words, count) = (Vec::new(), bytes.div_ceil(8));
    words.try_reserve_exact(count).map_err(|_| {
        let why = format!("expected {bytes} bytes of memory for a copy of an array, got less");
        Diagnostic::new(Code::E_OOM, why)
    })?;
    words.resize(count, 0);
    Ok(words)
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
        let words = copy(&mut view).unwrap();
        assert_eq!(view.strides, [4, 2]);
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let copied: Vec<i16> =
            bytes.chunks(2).take(6).map(|b| i16::from_le_bytes([b[0], b[1]])).collect();
        assert_eq!(copied, [3, 1, 7, 5, 11, 9]);
    }
}
