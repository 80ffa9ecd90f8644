//! Arrays as other libraries describe them: nothing of a description is used before it is known that
//! every address that it names can be computed in 64 bits.

use crate::args::shape;
use crate::pack::row_major;
use tessera_numerics::DType;
use tessera_target::BufferArg;

/// What is said of an array.
#[derive(Clone, Debug)]
pub struct Described {
    /// The address of its memory, and the offset of the first element in bytes.
    pub address: u64,
    pub offset: u64,
    pub dims: Vec<i64>,
    /// In units of `unit` bytes; `None` for a row-major contiguous array.
    pub strides: Option<Vec<i64>>,
    pub unit: i64,
    pub dtype: DType,
    pub writable: bool,
}

/// The most axes that a description may have, as in NumPy.
pub const MOST_AXES: usize = 64;

impl Described {
    /// The array, or what is wrong with its description.
    pub fn checked(self) -> Result<BufferArg, String> {
        let Described { address, offset, dims, strides, unit, dtype, writable } = self;
        if dims.len() > MOST_AXES {
            return Err(format!("expected at most {MOST_AXES} axes, got {}", dims.len()));
        }
        if let Some(bad) = dims.iter().find(|&&d| d < 0) {
            return Err(format!("expected extents of at least 0, got {bad} in {}", shape(&dims)));
        }
        if let Some(strides) = strides.as_ref().filter(|s| s.len() != dims.len()) {
            return Err(format!("expected {} strides, got {}", dims.len(), strides.len()));
        }
        if dims.contains(&0) {
            // Without elements nothing is reached, whatever the strides and the address are.
            let strides = row_major(&dims, dtype);
            let data = address.wrapping_add(offset) as *mut u8;
            return Ok(BufferArg { data, dims, strides, dtype, writable });
        }
        let size = dtype.bytes() as i64;
        let bytes = dims.iter().try_fold(size, |n, &d| n.checked_mul(d));
        if bytes.is_none() {
            return Err(format!(
                "expected fewer than 2^63 bytes, got an array of {}",
                shape(&dims)
            ));
        }
        let strides = match strides {
            None => row_major(&dims, dtype),
            Some(strides) => in_bytes(&dims, &strides, unit)?,
        };
        if address == 0 {
            return Err(format!("expected memory of {}, got a null pointer", shape(&dims)));
        }
        let first = address.checked_add(offset).filter(|&at| i64::try_from(at).is_ok());
        let Some(first) = first else {
            return Err(format!("expected an offset inside memory, got {offset} bytes"));
        };
        let (mut low, mut high) = (i128::from(first), i128::from(first) + i128::from(size));
        for (&n, &stride) in dims.iter().zip(&strides) {
            let far = i128::from(n - 1) * i128::from(stride);
            if far < 0 { low += far } else { high += far }
        }
        if low < 0 || high > i128::from(i64::MAX) {
            let strides: Vec<_> = strides.iter().map(i64::to_string).collect();
            return Err(format!(
                "expected elements at addresses of memory, got {} with strides of ({}) bytes",
                shape(&dims),
                strides.join(", ")
            ));
        }
        Ok(BufferArg { data: first as *mut u8, dims, strides, dtype, writable })
    }
}

/// Along an axis of one position any stride will do, and libraries put there what they like.
fn in_bytes(dims: &[i64], strides: &[i64], unit: i64) -> Result<Vec<i64>, String> {
    let one = |(&n, &stride): (&i64, &i64)| match stride.checked_mul(unit) {
        Some(bytes) => Ok(bytes),
        None if n <= 1 => Ok(0),
        None => Err(format!("expected strides of less than 2^63 bytes, got {stride} elements")),
    };
    dims.iter().zip(strides).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(dims: &[i64], strides: Option<&[i64]>) -> Described {
        Described {
            address: 1 << 20,
            offset: 0,
            dims: dims.into(),
            strides: strides.map(<[i64]>::to_vec),
            unit: 4,
            dtype: DType::F32,
            writable: true,
        }
    }

    #[test]
    fn usual_arrays_are_taken_as_they_are() {
        let found = array(&[2, 3], None).checked().unwrap();
        assert_eq!((found.data as usize, found.strides), (1 << 20, vec![12, 4]));
        let found = array(&[2, 3], Some(&[1, -2])).checked().unwrap();
        assert_eq!(found.strides, [4, -8]);
        let found = Described { offset: 8, ..array(&[], None) }.checked().unwrap();
        assert_eq!(found.data as usize, (1 << 20) + 8);
        // An array that repeats one element takes little memory.
        assert!(array(&[1 << 40], Some(&[0])).checked().is_ok());
        // No element, no address.
        let empty = Described { address: 0, ..array(&[0, i64::MAX], Some(&[i64::MAX, 1])) };
        assert!(empty.checked().is_ok());
        // One position has no neighbour.
        assert!(array(&[1, 3], Some(&[i64::MAX, 1])).checked().is_ok());
    }

    #[test]
    fn what_cannot_be_is_refused_and_nothing_overflows() {
        let big = i64::MAX;
        for (wrong, why) in [
            (array(&[-1], None), "at least 0, got -1 in (-1,)"),
            (array(&[i64::MIN, 2], None), "at least 0"),
            (array(&[1 << 62, 4], None), "2^63 bytes"),
            (array(&[1 << 40, 1 << 40], Some(&[0, 0])), "2^63 bytes"),
            (array(&[2], Some(&[1 << 62])), "less than 2^63 bytes, got 4611686018427387904"),
            (array(&[3], Some(&[1 << 60])), "addresses of memory"),
            (array(&[3], Some(&[-(1 << 20)])), "addresses of memory"),
            (array(&[2, 2], Some(&[1])), "expected 2 strides, got 1"),
            (array(&[1; 65], None), "at most 64 axes, got 65"),
            (Described { address: 0, ..array(&[8], None) }, "a null pointer"),
            (Described { address: 0, ..array(&[], None) }, "a null pointer"),
            (Described { offset: u64::MAX, ..array(&[8], None) }, "an offset inside"),
            (Described { offset: big as u64, ..array(&[8], None) }, "an offset inside"),
            (Described { address: u64::MAX, ..array(&[8], None) }, "an offset inside"),
            (Described { address: big as u64 - 8, ..array(&[8], None) }, "addresses of memory"),
        ] {
            let found = wrong.clone().checked().unwrap_err();
            assert!(found.contains(why), "{wrong:?}: {found}");
        }
    }
}
