//! How matrix engines find an operand in shared memory: rows of 16, 32, 64 or 128 bytes, whose pieces
//! of 16 bytes are exchanged by address bits 7 and up, eight rows after eight rows.
//!
//! An operand has two axes: that of the sums (m or n) and k. Where k lies side by side (k-major),
//! eight rows are eight m or n; where the other one does, eight rows are eight k.

use tessera_layout::Shared;

/// An operand in memory of a form that engines know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Neighbours along m or n lie side by side, not those along k.
    pub transposed: bool,
    elem: u32,
    /// Bytes of a row, and of a panel of all rows.
    pitch: u32,
    panel: u32,
    swizzled: bool,
}

/// Bytes along k that one instruction takes of each row, whatever the elements are.
pub const STEP: u32 = 32;
/// Rows that lie one after another in every form.
const ROWS: u32 = 8;

impl Matrix {
    /// `sums` is the dim that goes along the sums. None where engines do not know the form.
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
        // Only pairs of bytes can be turned around; k comes in whole steps.
        let iterations = !matrix.transposed || elem == 2;
        let whole = elem <= 4 && shared.shape[1 - sums].is_multiple_of(STEP / elem);
        let fits = matrix.panel >> 4 < 1 << 14;
        (pitch == span && iterations && whole && fits && shared.shape[sums].is_multiple_of(ROWS))
            .then_some(matrix)
    }

    /// The bytes from the start to where an instruction begins, before the exchange of pieces: `at`
    /// along m or n, in eights, and `k` in whole steps.
    pub fn bytes(&self, at: u32, k: u32) -> u32 {
        let (fast, slow) = if self.transposed { (at, k) } else { (k, at) };
        let along = fast * self.elem;
        along / self.pitch * self.panel + along % self.pitch + slow * self.pitch
    }

    /// How many m or n, from `at` on, one instruction can take.
    pub fn run(&self, at: u32) -> u32 {
        let wide = self.pitch / self.elem;
        match self.transposed {
            true if !at.is_multiple_of(wide) => wide - at % wide,
            _ => u32::MAX,
        }
    }

    /// The constant halves of the descriptor: what the address is put into, and what stands above.
    pub fn words(&self) -> [u32; 2] {
        let eight = ROWS * self.pitch;
        let (leading, stride) = match (self.swizzled, self.transposed) {
            // Not looked at: one row holds all of a step.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn swizzled(shape: [u32; 2], order: [usize; 2], elem: u32, span: u32) -> Shared {
        Shared::swizzled(&shape, &order, elem, span)
    }

    #[test]
    fn the_widest_form_of_both_kinds() {
        // 128 x 64 of 16 bits with k side by side: eight rows are 1024 bytes, a step of k is 32.
        let a = Matrix::of(&swizzled([128, 64], [1, 0], 2, 128), 0).unwrap();
        assert_eq!((a.transposed, a.bytes(64, 0), a.bytes(0, 16)), (false, 8192, 32));
        assert_eq!(a.words(), [1 << 16, 64 | 1 << 30]);
        // 64 x 256 with n side by side: panels of 64 columns, 64 rows of k each.
        let b = Matrix::of(&swizzled([64, 256], [1, 0], 2, 128), 1).unwrap();
        assert_eq!((b.transposed, b.bytes(64, 0), b.bytes(0, 16)), (true, 8192, 2048));
        assert_eq!(b.words(), [8192 >> 4 << 16, 64 | 1 << 30]);
        assert_eq!([b.run(0), b.run(64), b.run(40)], [u32::MAX, u32::MAX, 24]);
    }

    #[test]
    fn panels_along_k_are_stepped_over() {
        // 256 bytes of k are two panels of 64 rows of 128 bytes.
        let a = Matrix::of(&swizzled([64, 256], [1, 0], 1, 128), 0).unwrap();
        assert_eq!(
            [a.bytes(0, 96), a.bytes(0, 128), a.bytes(8, 160)],
            [96, 8192, 8192 + 1024 + 32]
        );
    }

    #[test]
    fn narrow_spans_have_their_own_marks() {
        for (span, form) in [(64, 2), (32, 3)] {
            let a = Matrix::of(&swizzled([64, span / 2], [1, 0], 2, span), 0).unwrap();
            assert_eq!(a.words()[1], (8 * span) >> 4 | form << 30);
        }
    }

    #[test]
    fn other_forms_are_not_for_engines() {
        let plain = Shared::row_major(&[64, 64], 2);
        assert_eq!(Matrix::of(&plain, 0), None);
        // A row shorter than the span, bytes turned around, padding.
        assert_eq!(Matrix::of(&swizzled([64, 32], [1, 0], 2, 128), 0), None);
        assert_eq!(Matrix::of(&swizzled([64, 128], [0, 1], 1, 64), 0), None);
        let padded = Shared { pad: 8, ..swizzled([64, 64], [1, 0], 2, 128) };
        assert_eq!(Matrix::of(&padded, 0), None);
    }
}
