//! What a tensor map describes, and the rules for it: those of `cuTensorMapEncodeTiled` in the
//! driver's manual. Each violation has a name, and is found before the driver is called.

use crate::cuda::error::CudaError;
use std::fmt;
use tessera_diag::{Code, Diagnostic};

pub(crate) const MAX_RANK: usize = 5;

/// Element types of TMA. The packed kinds hold 16 numbers of 4 or 6 bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MapDType {
    U8,
    U16,
    U32,
    I32,
    U64,
    I64,
    F16,
    F32,
    F64,
    BF16,
    F32Ftz,
    TF32,
    TF32Ftz,
    /// 4 bits, packed in shared memory too.
    U4Packed,
    /// 4 bits, a byte each in shared memory.
    U4Spread,
    /// 6 bits, a byte each in shared memory.
    U6Spread,
}

impl MapDType {
    fn bits(self) -> u32 {
        match self {
            Self::U4Packed | Self::U4Spread => 4,
            Self::U6Spread => 6,
            Self::U8 => 8,
            Self::U16 | Self::F16 | Self::BF16 => 16,
            Self::U32 | Self::I32 | Self::F32 | Self::F32Ftz | Self::TF32 | Self::TF32Ftz => 32,
            Self::U64 | Self::I64 | Self::F64 => 64,
        }
    }

    fn shared_bits(self) -> u32 {
        if self.is_spread() { 8 } else { self.bits() }
    }

    fn is_spread(self) -> bool {
        matches!(self, Self::U4Spread | Self::U6Spread)
    }

    fn is_float(self) -> bool {
        use MapDType::*;
        matches!(self, F16 | F32 | F64 | BF16 | F32Ftz | TF32 | TF32Ftz)
    }
}

/// The swizzle of a box in shared memory. The number is the span in bytes within which pieces are
/// permuted; pieces have 16 bytes unless the name says otherwise.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Swizzle {
    #[default]
    None,
    B32,
    B64,
    B128,
    B128Atom32,
    B128Atom32Flip8,
    B128Atom64,
}

impl Swizzle {
    pub fn span(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::B32 => Some(32),
            Self::B64 => Some(64),
            Self::B128 | Self::B128Atom32 | Self::B128Atom32Flip8 | Self::B128Atom64 => Some(128),
        }
    }
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interleave {
    #[default]
    None,
    B16,
    B32,
}

/// How many bytes the L2 cache fetches for one request.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum L2Promotion {
    None,
    B64,
    #[default]
    B128,
    B256,
}

/// The fill value of elements outside the array.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum OobFill {
    #[default]
    Zero,
    Nan,
}

/// An array in device memory and the box that is copied of it. The innermost axis comes first.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TensorMapSpec {
    pub(crate) dtype: MapDType,
    pub(crate) address: u64,
    pub(crate) rank: usize,
    pub(crate) dims: [u64; MAX_RANK],
    /// In bytes, of all axes but the innermost.
    pub(crate) strides: [u64; MAX_RANK],
    pub(crate) extents: [u32; MAX_RANK],
    pub(crate) steps: [u32; MAX_RANK],
    pub(crate) interleave: Interleave,
    pub(crate) swizzle: Swizzle,
    pub(crate) promotion: L2Promotion,
    pub(crate) fill: OobFill,
}

/// A rule that a tensor map does not keep. A caller can copy by other means.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TensorMapFault {
    Rank { got: usize },
    InterleaveRank { got: usize },
    Lengths { rank: usize, strides: usize, extents: usize },
    Address { align: u64, got: u64 },
    Dim { axis: usize, got: u64 },
    PackedDim { multiple: u64, got: u64 },
    Stride { axis: usize, multiple: u64, got: u64 },
    StrideSize { axis: usize, got: u64 },
    Box { axis: usize, got: u32 },
    BoxBytes { got: u32 },
    PackedBox { got: u32 },
    SwizzleSpan { span: u32, got: u32 },
    PackedSwizzle,
    PackedInterleave,
    Step { axis: usize, got: u32 },
    NanFill,
}

impl fmt::Display for TensorMapFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use TensorMapFault::*;
        match *self {
            Rank { got } => write!(f, "expected 1 to {MAX_RANK} axes, got {got}"),
            InterleaveRank { got } => write!(f, "expected 3 axes or more to interleave, got {got}"),
            Lengths { rank, strides, extents } => write!(
                f,
                "expected {} strides and {rank} extents of the box for {rank} axes, got {strides} and {extents}",
                rank.saturating_sub(1)
            ),
            Address { align, got } => {
                write!(f, "expected an address that is a multiple of {align}, got {got:#x}")
            }
            Dim { axis, got } => write!(f, "expected axis {axis} to have 1 to 2^32 elements, got {got}"),
            PackedDim { multiple, got } => {
                write!(f, "expected a multiple of {multiple} packed elements in a row, got {got}")
            }
            Stride { axis, multiple, got } => write!(
                f,
                "expected the stride of axis {axis} to be a multiple of {multiple} bytes, got {got}"
            ),
            StrideSize { axis, got } => {
                write!(f, "expected the stride of axis {axis} to be below 2^40 bytes, got {got}")
            }
            Box { axis, got } => {
                write!(f, "expected the box to have 1 to 256 elements along axis {axis}, got {got}")
            }
            BoxBytes { got } => {
                write!(f, "expected the box's rows to be a multiple of 16 bytes, got {got}")
            }
            PackedBox { got } => {
                write!(f, "expected the box's rows to have 128 packed elements, got {got}")
            }
            SwizzleSpan { span, got } => {
                write!(f, "expected the box's rows to fit the swizzle of {span} bytes, got {got}")
            }
            PackedSwizzle => {
                f.write_str("expected no swizzle or one of 128 bytes in pieces of 16 or 32 for these packed elements")
            }
            PackedInterleave => f.write_str("these packed elements cannot be interleaved"),
            Step { axis, got } => write!(f, "expected a step of 1 to 8 along axis {axis}, got {got}"),
            NanFill => f.write_str("only elements that are floats can be filled with NaN"),
        }
    }
}

impl From<TensorMapFault> for CudaError {
    fn from(fault: TensorMapFault) -> Self {
        use TensorMapFault::*;
        // Either the array is wrong, or the tile.
        let code = match fault {
            Address { .. } | Dim { .. } | PackedDim { .. } | Stride { .. } | StrideSize { .. } => {
                Code::E_LAUNCH_BAD_LAYOUT
            }
            _ => Code::E_TILE_LOWERING,
        };
        CudaError::refused(Diagnostic::new(code, format!("tensor map: {fault}")))
    }
}

impl TensorMapSpec {
    /// A box of a dense or strided array, without swizzle; the innermost axis comes first, and has
    /// no stride. `strides` are in bytes.
    pub fn tiled(
        dtype: MapDType,
        address: u64,
        dims: &[u64],
        strides: &[u64],
        extents: &[u32],
    ) -> Result<Self, TensorMapFault> {
        let rank = dims.len();
        if !(1..=MAX_RANK).contains(&rank) {
            return Err(TensorMapFault::Rank { got: rank });
        }
        if strides.len() != rank - 1 || extents.len() != rank {
            let (strides, extents) = (strides.len(), extents.len());
            return Err(TensorMapFault::Lengths { rank, strides, extents });
        }
        let mut spec = Self {
            dtype,
            address,
            rank,
            dims: [0; MAX_RANK],
            strides: [0; MAX_RANK],
            extents: [0; MAX_RANK],
            steps: [1; MAX_RANK],
            interleave: Interleave::default(),
            swizzle: Swizzle::default(),
            promotion: L2Promotion::default(),
            fill: OobFill::default(),
        };
        spec.dims[..rank].copy_from_slice(dims);
        spec.strides[..rank - 1].copy_from_slice(strides);
        spec.extents[..rank].copy_from_slice(extents);
        Ok(spec)
    }

    /// The same for an array at another address.
    pub fn at(mut self, address: u64) -> Self {
        self.address = address;
        self
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn swizzle(mut self, swizzle: Swizzle) -> Self {
        self.swizzle = swizzle;
        self
    }

    pub fn interleave(mut self, interleave: Interleave) -> Self {
        self.interleave = interleave;
        self
    }

    pub fn promotion(mut self, promotion: L2Promotion) -> Self {
        self.promotion = promotion;
        self
    }

    pub fn fill(mut self, fill: OobFill) -> Self {
        self.fill = fill;
        self
    }

    /// Takes every n-th element along an axis.
    pub fn step(mut self, axis: usize, step: u32) -> Self {
        if let Some(place) = self.steps.get_mut(axis) {
            *place = step;
        }
        self
    }

    /// The bytes that one box takes in shared memory.
    pub fn box_bytes(&self) -> u64 {
        let along = |i: usize| u64::from(self.extents[i].div_ceil(self.steps[i].max(1)));
        (0..self.rank).map(along).product::<u64>() * u64::from(self.dtype.shared_bits()) / 8
    }

    /// Whether the driver takes it; the strides' order is left to it.
    pub fn check(&self) -> Result<(), TensorMapFault> {
        use TensorMapFault::*;
        let (spread, interleaved) = (self.dtype.is_spread(), self.interleave != Interleave::None);
        if interleaved && self.rank < 3 {
            return Err(InterleaveRank { got: self.rank });
        }
        if interleaved && self.dtype == MapDType::U6Spread {
            return Err(PackedInterleave);
        }
        let align = if spread || self.interleave == Interleave::B32 { 32 } else { 16 };
        if !self.address.is_multiple_of(align) {
            return Err(Address { align, got: self.address });
        }
        self.check_axes(align)?;
        let multiple = match self.dtype {
            MapDType::U4Packed => 2,
            _ if spread => 128,
            _ => 1,
        };
        if !self.dims[0].is_multiple_of(multiple) {
            return Err(PackedDim { multiple, got: self.dims[0] });
        }
        self.check_rows(interleaved)?;
        if self.fill == OobFill::Nan && !self.dtype.is_float() {
            return Err(NanFill);
        }
        Ok(())
    }

    fn check_axes(&self, multiple: u64) -> Result<(), TensorMapFault> {
        use TensorMapFault::*;
        for axis in 0..self.rank {
            let (dim, extent, step) = (self.dims[axis], self.extents[axis], self.steps[axis]);
            if !(1..=1 << 32).contains(&dim) {
                return Err(Dim { axis, got: dim });
            }
            if !(1..=256).contains(&extent) {
                return Err(Box { axis, got: extent });
            }
            if !(1..=8).contains(&step) {
                return Err(Step { axis, got: step });
            }
            if axis > 0 {
                let got = self.strides[axis - 1];
                if !got.is_multiple_of(multiple) {
                    return Err(Stride { axis, multiple, got });
                }
                if got >= 1 << 40 {
                    return Err(StrideSize { axis, got });
                }
            }
        }
        Ok(())
    }

    fn check_rows(&self, interleaved: bool) -> Result<(), TensorMapFault> {
        use TensorMapFault::*;
        if self.dtype.is_spread() {
            if self.extents[0] != 128 {
                return Err(PackedBox { got: self.extents[0] });
            }
            let fits = matches!(self.swizzle, Swizzle::None | Swizzle::B128 | Swizzle::B128Atom32);
            return if fits { Ok(()) } else { Err(PackedSwizzle) };
        }
        let bits = self.extents[0] * self.dtype.bits();
        let got = bits.div_ceil(8);
        if interleaved {
            return Ok(());
        }
        if !bits.is_multiple_of(16 * 8) {
            return Err(BoxBytes { got });
        }
        match self.swizzle.span() {
            Some(span) if got > span => Err(SwizzleSpan { span, got }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TensorMapFault::*;

    const BASE: u64 = 0x7f00_0000_0000;

    fn matrix(dtype: MapDType, cols: u64, stride: u64, extents: [u32; 2]) -> TensorMapSpec {
        TensorMapSpec::tiled(dtype, BASE, &[cols, 128], &[stride], &extents).unwrap()
    }

    #[test]
    fn what_the_manual_allows_passes() {
        let tile = matrix(MapDType::BF16, 4096, 8192, [64, 128]).swizzle(Swizzle::B128);
        assert_eq!((tile.check(), tile.box_bytes()), (Ok(()), 64 * 128 * 2));
        let row = TensorMapSpec::tiled(MapDType::F32, BASE, &[1 << 32], &[], &[256]).unwrap();
        assert_eq!(row.fill(OobFill::Nan).check(), Ok(()));
        let spread = matrix(MapDType::U4Spread, 256, 128, [128, 8]).swizzle(Swizzle::B128);
        assert_eq!((spread.check(), spread.box_bytes()), (Ok(()), 128 * 8));
        assert_eq!(matrix(MapDType::F32, 64, 256, [4, 8]).step(1, 8).box_bytes(), 4 * 4);
    }

    #[test]
    fn shapes_that_are_none_are_not_built() {
        let of = |dims: &[u64], strides: &[u64], extents: &[u32]| {
            TensorMapSpec::tiled(MapDType::F32, BASE, dims, strides, extents).map(|_| ())
        };
        assert_eq!(of(&[], &[], &[]), Err(Rank { got: 0 }));
        assert_eq!(of(&[1; 6], &[16; 5], &[4; 6]), Err(Rank { got: 6 }));
        let lengths = Lengths { rank: 2, strides: 2, extents: 2 };
        assert_eq!(of(&[4, 4], &[16, 64], &[4, 4]), Err(lengths));
    }

    #[test]
    fn every_rule_is_refused_by_its_own_name() {
        let good = matrix(MapDType::F32, 64, 256, [32, 8]);
        let with = |f: fn(&mut TensorMapSpec)| {
            let mut spec = good;
            f(&mut spec);
            spec.check().unwrap_err()
        };
        assert_eq!(good.check(), Ok(()));
        assert_eq!(with(|s| s.address += 8), Address { align: 16, got: BASE + 8 });
        assert_eq!(with(|s| s.dims[1] = 0), Dim { axis: 1, got: 0 });
        assert_eq!(with(|s| s.dims[0] = (1 << 32) + 1), Dim { axis: 0, got: (1 << 32) + 1 });
        assert_eq!(with(|s| s.strides[0] = 260), Stride { axis: 1, multiple: 16, got: 260 });
        assert_eq!(with(|s| s.strides[0] = 1 << 40), StrideSize { axis: 1, got: 1 << 40 });
        assert_eq!(with(|s| s.extents[1] = 257), Box { axis: 1, got: 257 });
        assert_eq!(with(|s| s.extents[0] = 0), Box { axis: 0, got: 0 });
        assert_eq!(with(|s| s.extents[0] = 5), BoxBytes { got: 20 });
        assert_eq!(with(|s| s.swizzle = Swizzle::B64), SwizzleSpan { span: 64, got: 128 });
        assert_eq!(with(|s| s.steps[1] = 9), Step { axis: 1, got: 9 });
        assert_eq!(with(|s| s.interleave = Interleave::B16), InterleaveRank { got: 2 });
        assert_eq!(with(|s| (s.dtype, s.fill) = (MapDType::U32, OobFill::Nan)), NanFill);
    }

    #[test]
    fn packed_elements_have_rules_of_their_own() {
        let good = matrix(MapDType::U6Spread, 256, 192, [128, 8]);
        let with = |f: fn(&mut TensorMapSpec)| {
            let mut spec = good;
            f(&mut spec);
            spec.check().unwrap_err()
        };
        assert_eq!(good.check(), Ok(()));
        assert_eq!(with(|s| s.address += 16), Address { align: 32, got: BASE + 16 });
        assert_eq!(with(|s| s.dims[0] = 200), PackedDim { multiple: 128, got: 200 });
        assert_eq!(with(|s| s.strides[0] = 208), Stride { axis: 1, multiple: 32, got: 208 });
        assert_eq!(with(|s| s.extents[0] = 64), PackedBox { got: 64 });
        assert_eq!(with(|s| s.swizzle = Swizzle::B64), PackedSwizzle);
        let odd = matrix(MapDType::U4Packed, 33, 32, [32, 8]);
        assert_eq!(odd.check(), Err(PackedDim { multiple: 2, got: 33 }));
    }

    #[test]
    fn faults_are_typed_errors() {
        let layout = CudaError::from(Address { align: 16, got: 8 });
        assert_eq!(layout.code(), Code::E_LAUNCH_BAD_LAYOUT);
        let tile = CudaError::from(SwizzleSpan { span: 64, got: 128 });
        assert_eq!(tile.code(), Code::E_TILE_LOWERING);
        assert!(tile.to_string().contains("fit the swizzle of 64 bytes, got 128"));
    }
}
