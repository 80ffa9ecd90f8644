//! How the arrays of a launch lie in memory, as far as GPUs generate code for it.

use crate::BufferArg;
use crate::frame::{Frame, ParamKind};
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::Privilege;

/// How an array lies in memory, as far as code is generated for it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ArrayClass {
    /// Axes along which neighbours lie side by side, one bit each.
    pub contiguous: u32,
    /// The address and the strides of all other axes are multiples of this many bytes, at most 16.
    pub align: u32,
    /// Copy engines can move tma_compatible of it: neighbours lie side by side along one axis alone, the
    /// address and all other strides are multiples of 16 bytes, and the strides go forward.
    pub tma_compatible: bool,
}

/// One for each parameter; scalars have the default.
pub type Classes = Vec<ArrayClass>;

/// How arrays are said to lie where there are none yet, by the names of their parameters.
pub type Said = BTreeMap<String, ArrayClass>;

/// The widest access.
pub const WIDEST: u32 = 16;

/// The most axes that copy engines know.
pub const BOX_RANK: usize = 5;
/// Positions along an axis must fit their signed coordinates, and strides the tensor cores's tables.
const BOX_EXTENT: i64 = 1 << 31;
const BOX_STRIDE: i64 = 1 << 40;

/// What tma_compatible request beside alignment. No map can say that an array is empty, and what lies at the
/// first position of such a one may not be read.
fn is_tma_compatible(b: &BufferArg, contiguous: u32) -> bool {
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
        // Along an axis of one position nothing has a neighbour, so any stride will do, and libraries
        // put there what they like: it is taken for what it most often is, so that such arrays need
        // no code of their own.
        let side_by_side = |axis: usize| match b.dims[axis] {
            ..=1 => axis + 1 == rank,
            _ => b.strides[axis] == bytes,
        };
        let contiguous =
            (0..rank).filter(|&axis| side_by_side(axis)).map(|axis| 1 << axis).sum::<u32>();
        let mut all = b.data as u64 | u64::from(WIDEST);
        for axis in 0..rank {
            if contiguous & 1 << axis == 0 && b.dims[axis] > 1 {
                all |= b.strides[axis] as u64;
            }
        }
        let align = 1 << all.trailing_zeros();
        let tma_compatible =
            align == WIDEST && contiguous.count_ones() == 1 && is_tma_compatible(b, contiguous);
        Self { contiguous, align, tma_compatible }
    }

    /// That of an argument of a parameter. On an H200 a copy of a box into a row of 2 bytes was seen to write 16: arrays
    /// whose rows end inside of such a piece are written otherwise.
    pub fn of_param(kind: &ParamKind, b: &BufferArg) -> Self {
        let mut class = Self::of(b);
        let is_read = matches!(kind, ParamKind::Array { privilege: Privilege::Read, .. });
        if class.tma_compatible && !is_read {
            let row = b.dims[class.contiguous.trailing_zeros() as usize] * b.dtype.bytes() as i64;
            class.tma_compatible = row % i64::from(WIDEST) == 0;
        }
        class
    }

    /// That of arrays of so many axes whose neighbours lie side by side along one of them, or along
    /// none, and whose address and other strides are multiples of `align` bytes; the strides go
    /// forward.
    pub fn said(rank: usize, axis: Option<usize>, align: u32) -> Self {
        let contiguous = axis.map_or(0, |axis| 1 << axis);
        let tma_compatible = axis.is_some() && align == WIDEST && rank <= BOX_RANK;
        Self { contiguous, align, tma_compatible }
    }

    pub fn is_contiguous(self, axis: usize) -> bool {
        self.contiguous >> axis & 1 == 1
    }
}

/// Why code that reads whole elements cannot take an array: they are not at multiples of their size.
pub fn misaligned(name: &str, b: &BufferArg, loc: Loc) -> Option<Diagnostic> {
    let size = b.dtype.bytes();
    if ArrayClass::of(b).align as usize >= size || b.dims.contains(&0) {
        return None;
    }
    let strides: Vec<_> = b.strides.iter().map(i64::to_string).collect();
    let message = format!(
        "`{name}`: expected {} elements at multiples of {size} bytes, got an array that begins at \
         {:#x} with strides of ({}) bytes",
        b.dtype,
        b.data as u64,
        strides.join(", ")
    );
    let help = format!("copy the array to memory of its own: `{name} = {name}.copy()`");
    Some(Diagnostic::new(Code::E_LAUNCH_BAD_LAYOUT, message).at(loc).help(help))
}

/// The classes of arrays that lie row by row on good addresses, as most do.
pub fn usual_classes(frame: &Frame) -> Classes {
    let one = |kind: &ParamKind| match kind {
        ParamKind::Array { dims, .. } if !dims.is_empty() => {
            ArrayClass::said(dims.len(), Some(dims.len() - 1), WIDEST)
        }
        ParamKind::Array { .. } | ParamKind::Scalar(_) => ArrayClass::default(),
    };
    frame.params.iter().map(|p| one(&p.kind)).collect()
}

/// The classes of arrays that lie as is said, and as most do where nothing is.
pub fn classes_said(frame: &Frame, said: &Said) -> Classes {
    let mut out = usual_classes(frame);
    for (class, param) in out.iter_mut().zip(&frame.params) {
        if let (ParamKind::Array { .. }, Some(wanted)) = (&param.kind, said.get(&param.name)) {
            *class = *wanted;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;
    use tessera_numerics::{DType, NumType};

    #[test]
    fn rows_that_end_inside_of_a_piece_are_read_in_boxes_and_not_written_so() {
        let param = |privilege| ParamKind::Array {
            dims: vec![None; 2],
            symbols: vec![None; 2],
            elem: NumType::plain(DType::BF16),
            privilege,
        };
        for (dims, whole) in [([1, 1], false), ([4, 7], false), ([4, 8], true)] {
            let b = buffer(1 << 20, &dims, &[16, 2]);
            assert!(ArrayClass::of_param(&param(Privilege::Read), &b).tma_compatible, "{dims:?}");
            for privilege in [Privilege::Write, Privilege::ReadWrite, Privilege::ReduceSum] {
                assert_eq!(
                    ArrayClass::of_param(&param(privilege), &b).tma_compatible,
                    whole,
                    "{dims:?}"
                );
            }
        }
    }

    fn buffer(address: usize, dims: &[i64], strides: &[i64]) -> BufferArg {
        BufferArg {
            data: null_mut::<u8>().wrapping_add(address),
            dims: dims.to_vec(),
            strides: strides.to_vec(),
            dtype: DType::BF16,
            writable: true,
        }
    }

    fn class(address: usize, dims: &[i64], strides: &[i64]) -> ArrayClass {
        ArrayClass::of(&buffer(address, dims, strides))
    }

    #[test]
    fn arrays_on_good_addresses_have_boxes_in_any_order_of_axes() {
        for (dims, strides, axis) in [
            (vec![64, 96], vec![192, 2], 1),
            (vec![64, 96], vec![2, 128], 0),
            (vec![3, 8, 96], vec![4096, 208, 2], 2),
            (vec![96], vec![2], 0),
            // Along an axis of one position no stride matters.
            (vec![1, 96], vec![6, 2], 1),
            (vec![1, 96], vec![0, 2], 1),
            (vec![1, 96], vec![2, 2], 1),
            (vec![1, 1], vec![2, 2], 1),
            (vec![1, 1], vec![0, 0], 1),
        ] {
            let found = class(1 << 20, &dims, &strides);
            assert_eq!(found, ArrayClass::said(dims.len(), Some(axis), 16), "{dims:?} {strides:?}");
            assert!(found.tma_compatible);
        }
    }

    #[test]
    fn arrays_that_no_map_describes_have_none() {
        let even = [192, 2];
        for (address, dims, strides) in [
            (1 << 20 | 8, vec![64, 96], even.to_vec()),
            (1 << 20, vec![64, 96], vec![194, 2]),
            (1 << 20, vec![64, 96], vec![-192, 2]),
            (1 << 20, vec![64, 96], vec![0, 2]),
            (1 << 20, vec![64, 96], vec![192, 16]),
            (1 << 20, vec![64, 1], vec![2, 2]),
            (1 << 20, vec![0, 96], even.to_vec()),
            (1 << 20, vec![64, 0], even.to_vec()),
            (1 << 20, vec![2, 96], vec![1 << 40, 2]),
            (1 << 20, vec![1 << 31], vec![2]),
            (1 << 20, vec![2; 6], vec![512, 256, 128, 64, 32, 2]),
            (1 << 20, vec![], vec![]),
        ] {
            assert!(
                !class(address, &dims, &strides).tma_compatible,
                "{address:#x} {dims:?} {strides:?}"
            );
        }
    }
}
