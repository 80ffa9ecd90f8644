//! How the arrays of a launch lie in memory, as far as GPUs generate code for it.

use crate::BufferArg;
use crate::frame::{Frame, ParamKind};

/// How an array lies in memory, as far as code is generated for it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ArrayClass {
    /// Axes along which neighbours lie side by side, one bit each.
    pub contiguous: u32,
    /// The address and the strides of all other axes are multiples of this many bytes, at most 16.
    pub align: u32,
}

/// One for each parameter; scalars have the default.
pub type Classes = Vec<ArrayClass>;

/// The widest access.
pub const WIDEST: u32 = 16;

impl ArrayClass {
    pub fn of(b: &BufferArg) -> Self {
        let bytes = b.dtype.bytes() as i64;
        let rank = b.dims.len().min(31);
        // Along an axis of one position nothing has a neighbour, so any stride will do.
        let side_by_side =
            |axis: usize| b.strides[axis] == bytes || (axis + 1 == rank && b.dims[axis] <= 1);
        let contiguous =
            (0..rank).filter(|&axis| side_by_side(axis)).map(|axis| 1 << axis).sum::<u32>();
        let mut all = b.data as u64 | u64::from(WIDEST);
        for axis in 0..rank {
            if contiguous & 1 << axis == 0 && b.dims[axis] > 1 {
                all |= b.strides[axis] as u64;
            }
        }
        Self { contiguous, align: 1 << all.trailing_zeros() }
    }

    pub fn is_contiguous(self, axis: usize) -> bool {
        self.contiguous >> axis & 1 == 1
    }
}

/// The classes of arrays that lie row by row on good addresses, as most do.
pub fn usual_classes(frame: &Frame) -> Classes {
    let one = |kind: &ParamKind| match kind {
        ParamKind::Array { dims, .. } if !dims.is_empty() => {
            ArrayClass { contiguous: 1 << (dims.len() - 1), align: WIDEST }
        }
        ParamKind::Array { .. } | ParamKind::Scalar(_) => ArrayClass::default(),
    };
    frame.params.iter().map(|p| one(&p.kind)).collect()
}
