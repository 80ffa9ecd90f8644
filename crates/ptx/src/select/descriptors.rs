//! Shared memory matrix descriptors of WGMMA operands (PTX ISA, "wgmma matrix descriptor"): rows of
//! 16, 32, 64 or 128 bytes whose 16-byte chunks are permuted by address bits 7 and up (the
//! swizzle), in groups of eight rows.
//!
//! An operand has two axes: that of the accumulator (m or n) and k. K-major: k is contiguous, and
//! eight rows are eight positions along m or n. MN-major (transposed): m or n is contiguous, and
//! eight rows are eight positions along k.

use tessera_layout::Shared;

/// An operand in shared memory, in a layout that WGMMA descriptors can express.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// MN-major: m or n is contiguous, not k.
    pub transposed: bool,
    elem: u32,
    /// Bytes of a row, and of a panel of all rows.
    pitch: u32,
    panel: u32,
    swizzled: bool,
}

/// Bytes along k that one instruction reads of each row, for every element type.
pub const STEP: u32 = 32;
/// Rows that follow each other in every layout.
const ROWS: u32 = 8;

impl Matrix {
    /// `sums` is the dim along the accumulator. None where no descriptor can express the layout.
    pub fn of(shared: &Shared, sums: usize) -> Option<Self> {
        let elem = shared.elem_bytes;
        let (&fast, rank) = (shared.order.first()?, shared.shape.len());
        if rank != 2 || shared.pad != 0 || sums > 1 {
            return None;
        }
        let pitch = shared.panel.unwrap_or(shared.shape[fast]) * elem;
        let span = match shared.swizzle {
            None => 16,
            Some(s) if s.base == 4 && s.shift == 3 && (1..=3).contains(&s.bits) => 16 << s.bits,
            Some(_) => return None,
        };
        let (_, panel) = shared.strides();
        let matrix = Self {
            transposed: fast == sums,
            elem,
            pitch,
            panel: panel * elem,
            swizzled: shared.swizzle.is_some(),
        };
        // Only 16-bit elements can be MN-major; k is a multiple of the instruction's step.
        let major = !matrix.transposed || elem == 2;
        let whole = elem <= 4 && shared.shape[1 - sums].is_multiple_of(STEP / elem);
        let fits = matrix.panel >> 4 < 1 << 14;
        (pitch == span && major && whole && fits && shared.shape[sums].is_multiple_of(ROWS))
            .then_some(matrix)
    }

    /// The byte offset of an instruction's operand before the swizzle: `at` along m or n, a
    /// multiple of eight, and `k` a multiple of the step.
    pub fn bytes(&self, at: u32, k: u32) -> u32 {
        let (fast, slow) = if self.transposed { (at, k) } else { (k, at) };
        let along = fast * self.elem;
        along / self.pitch * self.panel + along % self.pitch + slow * self.pitch
    }

    /// How many positions along m or n, from `at` on, one instruction can take.
    pub fn run(&self, at: u32) -> u32 {
        let wide = self.pitch / self.elem;
        match self.transposed {
            true if !at.is_multiple_of(wide) => wide - at % wide,
            _ => u32::MAX,
        }
    }

    /// The constant halves of the descriptor: the lower one takes the address.
    pub fn words(&self) -> [u32; 2] {
        let eight = ROWS * self.pitch;
        let (leading, stride) = match (self.swizzled, self.transposed) {
            // Ignored by the hardware: one row holds a whole step.
            (true, false) => (16, eight),
            (true, true) => (self.panel, eight),
            (false, false) => (self.panel, eight),
            (false, true) => (eight, self.panel),
        };
        let form = match self.pitch {
            128 => 1,
            64 => 2,
            32 => 3,
            _ => 0,
        };
        [leading >> 4 << 16, stride >> 4 | form << 30]
    }
}
