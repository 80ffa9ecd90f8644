//! Tensor maps, which describe arrays to TMA. Code lists the maps it needs; a launch encodes them
//! from its arrays' addresses, extents and strides, and passes them after the argument words.

use crate::module::Kernel;
use tessera_diag::{Code as ErrorCode, Diagnostic};
use tessera_numerics::DType;
use tessera_target::arrays::BOX_RANK;
use tessera_target::frame::{Frame, ParamKind};

/// Bytes of a tensor map among the parameters.
pub const MAP_BYTES: u32 = 128;
/// Its alignment.
pub const MAP_ALIGN: u32 = 64;

const MAP_WORDS: usize = MAP_BYTES as usize / 8;

/// What a tensor map is made from, besides the address, extents and strides of its array, which are
/// known at launch. Code has maps only for arrays whose class is `tma_compatible`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MapRecipe {
    /// The kernel's parameter that is the array.
    pub param: usize,
    /// The array's axes in the order of coordinates: the contiguous one first.
    pub axes: Vec<usize>,
    /// The box along `axes`.
    pub extent: Vec<u32>,
    /// The swizzle span in bytes: 0 for none, 32, 64 or 128.
    pub span: u32,
    pub dtype: DType,
}

/// An array as a map describes it, in the order of the recipe's axes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    pub address: u64,
    pub rank: usize,
    dims: [u64; BOX_RANK],
    /// In bytes, of all axes but the first.
    strides: [u64; BOX_RANK],
}

impl Placed {
    pub fn dims(&self) -> &[u64] {
        &self.dims[..self.rank]
    }

    pub fn strides(&self) -> &[u64] {
        &self.strides[..self.rank.saturating_sub(1)]
    }
}

impl MapRecipe {
    /// The argument word of the array's address.
    pub fn word(&self, frame: &Frame) -> usize {
        frame.params[self.param].word
    }

    /// The array of a launch with these words.
    pub fn place(&self, frame: &Frame, words: &[u64]) -> Placed {
        let first = self.word(frame);
        let rank = match &frame.params[self.param].kind {
            ParamKind::Array { dims, .. } => dims.len(),
            ParamKind::Scalar(_) => 0,
        };
        let mut out = Placed {
            address: words[first],
            rank: self.axes.len(),
            dims: [0; BOX_RANK],
            strides: [0; BOX_RANK],
        };
        let mut beyond = self.dtype.bytes() as u64;
        for (i, &axis) in self.axes.iter().enumerate() {
            let (n, own) = (words[first + 1 + axis], words[first + 1 + rank + axis]);
            // The stride of an axis of one position does not matter: a valid one replaces it.
            let stride = match (i, n) {
                (0, _) => self.dtype.bytes() as u64,
                (_, 1) => beyond.next_multiple_of(16),
                _ => own,
            };
            out.dims[i] = n;
            if i > 0 {
                out.strides[i - 1] = stride;
            }
            beyond = stride.saturating_mul(n).min(LARGEST_STRIDE);
        }
        out
    }

    /// `a: boxes of 128x64 bf16, swizzled within 128 bytes`, the box in the order of the array's
    /// axes.
    pub fn text(&self, frame: &Frame) -> String {
        let mut along: Vec<_> = self.axes.iter().zip(&self.extent).collect();
        along.sort_unstable();
        let sizes: Vec<_> = along.iter().map(|(_, n)| n.to_string()).collect();
        let swizzle = match self.span {
            0 => String::new(),
            span => format!(", swizzled within {span} bytes"),
        };
        let name = &frame.params[self.param].name;
        format!("{name}: boxes of {} {}{swizzle}", sizes.join("x"), self.dtype)
    }

    /// What TMA never accepts: then the code is at fault, not the caller.
    fn check(&self, frame: &Frame) -> Result<(), String> {
        let bytes = self.dtype.bytes() as u32;
        let kind = frame.params.get(self.param).map(|p| &p.kind);
        let Some(ParamKind::Array { dims, elem, .. }) = kind else {
            return Err(format!("parameter {} is no array", self.param));
        };
        let mut seen = vec![false; dims.len()];
        for &axis in &self.axes {
            match seen.get_mut(axis) {
                Some(seen) if !*seen => *seen = true,
                _ => return Err(format!("axis {axis} is none of {} or stands twice", dims.len())),
            }
        }
        if !(1..=BOX_RANK).contains(&self.axes.len()) || self.extent.len() != self.axes.len() {
            return Err(format!("{} axes and a box of {:?}", self.axes.len(), self.extent));
        }
        if self.extent.iter().any(|n| !(1..=256).contains(n)) {
            return Err(format!("a box of {:?}, beyond 256 elements", self.extent));
        }
        let row = self.extent[0] * bytes;
        if !row.is_multiple_of(16) || !matches!(self.span, 0 | 32 | 64 | 128) {
            return Err(format!("rows of {row} bytes with a swizzle of {} bytes", self.span));
        }
        if self.span != 0 && row > self.span {
            return Err(format!("rows of {row} bytes in a swizzle of {} bytes", self.span));
        }
        if elem.storage.bytes() as u32 != bytes {
            return Err(format!("elements of {} for an array of {}", self.dtype, elem.storage));
        }
        Ok(())
    }
}

const LARGEST_STRIDE: u64 = (1 << 40) - 16;

/// The first word of a map among those of a launch; `words` are the arguments'.
pub fn map_word(words: usize, map: usize) -> usize {
    words.next_multiple_of(MAP_ALIGN as usize / 8) + map * MAP_WORDS
}

/// Appends a map to the words of a launch, aligned.
pub fn push_map(words: &mut Vec<u64>, map: &[u8; MAP_BYTES as usize]) {
    words.resize(map_word(words.len(), 0), 0);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, &b| all << 8 | u64::from(b));
    words.extend(map.chunks_exact(8).map(word));
}

/// Checks that a kernel's parameters are its argument words and these maps.
pub fn check(kernel: &Kernel, frame: &Frame, maps: &[MapRecipe]) -> Result<(), Diagnostic> {
    let wrong = |why: String| {
        let message = format!("`{}`: a tensor map that cannot be: {why}", kernel.name);
        Err(Diagnostic::new(ErrorCode::E_UNKNOWN, message))
    };
    if kernel.params.len() != maps.len() + 1 {
        let got = kernel.params.len();
        return wrong(format!("{} maps among {got} parameters", maps.len()));
    }
    if let Some(p) =
        kernel.params[1..].iter().find(|p| (p.bytes, p.align) != (MAP_BYTES, MAP_ALIGN))
    {
        return wrong(format!("`{}` has {} bytes at multiples of {}", p.name, p.bytes, p.align));
    }
    match maps.iter().find_map(|map| map.check(frame).err()) {
        Some(why) => wrong(why),
        None => Ok(()),
    }
}
