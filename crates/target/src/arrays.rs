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
    /// Copy engines can move boxes of it: neighbours lie side by side along one axis alone, the
    /// address and all other strides are multiples of 16 bytes, and the strides go forward.
    pub boxes: bool,
}

/// One for each parameter; scalars have the default.
pub type Classes = Vec<ArrayClass>;

/// The widest access.
pub const WIDEST: u32 = 16;

/// The most axes that copy engines know.
pub const BOX_RANK: usize = 5;
/// Positions along an axis must fit their signed coordinates, and strides the engine's tables.
const BOX_EXTENT: i64 = 1 << 31;
const BOX_STRIDE: i64 = 1 << 40;

/// What boxes ask for beside alignment. No map can say that an array is empty, and what lies at the
/// first position of such a one may not be read.
fn has_boxes(b: &BufferArg, contiguous: u32) -> bool {
    let forward = |axis: usize| {
        contiguous >> axis & 1 == 1
            || b.dims[axis] <= 1
            || (1..BOX_STRIDE).contains(&b.strides[axis])
    };
    (1..=BOX_RANK).contains(&b.dims.len())
        && b.dims.iter().all(|&n| (1..BOX_EXTENT).contains(&n))
        && (0..b.dims.len()).all(forward)
}

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
        let align = 1 << all.trailing_zeros();
        let boxes = align == WIDEST && contiguous.count_ones() == 1 && has_boxes(b, contiguous);
        Self { contiguous, align, boxes }
    }

    pub fn is_contiguous(self, axis: usize) -> bool {
        self.contiguous >> axis & 1 == 1
    }
}

/// The classes of arrays that lie row by row on good addresses, as most do.
pub fn usual_classes(frame: &Frame) -> Classes {
    let one = |kind: &ParamKind| match kind {
        ParamKind::Array { dims, .. } if !dims.is_empty() => {
            let boxes = dims.len() <= BOX_RANK;
            ArrayClass { contiguous: 1 << (dims.len() - 1), align: WIDEST, boxes }
        }
        ParamKind::Array { .. } | ParamKind::Scalar(_) => ArrayClass::default(),
    };
    frame.params.iter().map(|p| one(&p.kind)).collect()
}
