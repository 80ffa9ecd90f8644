//! Layouts and alignment of a launch's arrays, as far as GPU code is specialised for them.

use crate::frame::{Frame, ParamKind};
use crate::{BufferArg, CompileOptions};
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::Privilege;

/// The layout class of an array, as far as code is specialised for it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ArrayClass {
    /// Contiguous axes, one bit each.
    pub contiguous: u32,
    /// The address and the strides of all other axes are multiples of this many bytes, at most 16.
    pub align: u32,
    /// TMA compatible: exactly one axis of several positions is contiguous (the first of the
    /// contiguous ones), the address and all other strides are multiples of 16 bytes, and no stride
    /// is negative.
    pub tma_compatible: bool,
}

/// One for each parameter; scalars have the default.
pub type Classes = Vec<ArrayClass>;

/// The classes of arrays that do not exist yet, by the names of their parameters.
pub type Said = BTreeMap<String, ArrayClass>;

/// The widest access.
pub const WIDEST: u32 = 16;

/// The most axes of a TMA tensor map.
pub const BOX_RANK: usize = 5;
/// Extents must fit TMA's signed coordinates, and strides the fields of the tensor map.
const BOX_EXTENT: i64 = 1 << 31;
const BOX_STRIDE: i64 = 1 << 40;

/// TMA's conditions beside alignment. A tensor map cannot describe an empty array, whose first
/// position must not be read.
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
        // An axis of one position may have any stride, and libraries put anything there. It is
        // taken as the most common value, so that such arrays need no code of their own.
        let is_contiguous = |axis: usize| match b.dims[axis] {
            ..=1 => axis + 1 == rank,
            _ => b.strides[axis] == bytes,
        };
        let contiguous =
            (0..rank).filter(|&axis| is_contiguous(axis)).map(|axis| 1 << axis).sum::<u32>();
        let mut all = b.data as u64 | u64::from(WIDEST);
        for axis in 0..rank {
            if contiguous & 1 << axis == 0 && b.dims[axis] > 1 {
                all |= b.strides[axis] as u64;
            }
        }
        let align = 1 << all.trailing_zeros();
        // Of a vector with an axis of one position behind it, the first is the contiguous axis.
        let along = (0..rank).filter(|&axis| contiguous >> axis & 1 == 1 && b.dims[axis] > 1);
        let one_axis = match along.count() {
            0 => contiguous.count_ones() == 1,
            count => count == 1,
        };
        let tma_compatible = align == WIDEST && one_axis && is_tma_compatible(b, contiguous);
        Self { contiguous, align, tma_compatible }
    }

    /// The class of a parameter's argument. On an H200 a TMA store to a row of 2 bytes was seen to
    /// write 16 bytes: arrays whose rows end inside such a piece are stored by threads.
    pub fn of_param(kind: &ParamKind, b: &BufferArg) -> Self {
        let mut class = Self::of(b);
        let is_read = matches!(kind, ParamKind::Array { privilege: Privilege::Read, .. });
        if class.tma_compatible && !is_read {
            let row = b.dims[class.contiguous.trailing_zeros() as usize] * b.dtype.bytes() as i64;
            class.tma_compatible = row % i64::from(WIDEST) == 0;
        }
        class
    }

    /// The class of arrays with `rank` axes, of which one or none is contiguous, with address and
    /// other strides that are multiples of `align` bytes, and no negative strides.
    pub fn said(rank: usize, axis: Option<usize>, align: u32) -> Self {
        let contiguous = axis.map_or(0, |axis| 1 << axis);
        let tma_compatible = axis.is_some() && align == WIDEST && rank <= BOX_RANK;
        Self { contiguous, align, tma_compatible }
    }

    pub fn is_contiguous(self, axis: usize) -> bool {
        self.contiguous >> axis & 1 == 1
    }
}

/// Why code that reads whole elements cannot take an array: they are not aligned to their size.
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

/// The classes of aligned row-major arrays, the usual case.
pub fn usual_classes(frame: &Frame) -> Classes {
    let one = |kind: &ParamKind| match kind {
        ParamKind::Array { dims, .. } if !dims.is_empty() => {
            ArrayClass::said(dims.len(), Some(dims.len() - 1), WIDEST)
        }
        ParamKind::Array { .. } | ParamKind::Scalar(_) => ArrayClass::default(),
    };
    frame.params.iter().map(|p| one(&p.kind)).collect()
}

/// The stated classes, and the usual ones where nothing is stated.
pub fn classes_said(frame: &Frame, said: &Said) -> Classes {
    let mut out = usual_classes(frame);
    for (class, param) in out.iter_mut().zip(&frame.params) {
        if let (ParamKind::Array { .. }, Some(wanted)) = (&param.kind, said.get(&param.name)) {
            *class = *wanted;
        }
    }
    out
}

/// The classes to compile for first: those of the call's arrays, and without a call the stated ones.
pub fn classes_first(frame: &Frame, options: &CompileOptions) -> Classes {
    let mut out = classes_said(frame, &options.arrays);
    for ((class, param), array) in out.iter_mut().zip(&frame.params).zip(&options.call) {
        let (ParamKind::Array { .. }, Some(array)) = (&param.kind, array) else { continue };
        let own = ArrayClass::of_param(&param.kind, array);
        // The launch refuses others.
        if own.align as usize >= array.dtype.bytes() {
            *class = own;
        }
    }
    out
}
