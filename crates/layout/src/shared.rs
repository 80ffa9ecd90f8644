//! Layouts of tiles in shared memory: order, swizzle, padding, panels.

use crate::layout::{LANES, Layout};
use std::collections::BTreeSet;

/// The widest access of one thread, in bytes.
pub(crate) const WIDEST: u32 = 16;

/// A swizzle: bits `base .. base + bits` of a byte address are XORed with the bits `shift`
/// positions above them, so that neighbours in a column are in different banks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Swizzle {
    /// At least the bits of a byte inside an element, which stay together.
    pub base: u32,
    pub bits: u32,
    /// At least 1.
    pub shift: u32,
}

impl Swizzle {
    pub fn apply(self, address: u32) -> u32 {
        address ^ (address >> self.shift & ((1 << self.bits) - 1) << self.base)
    }
}

/// The layout of a tile's elements in shared memory.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Shared {
    pub shape: Vec<u32>,
    /// Dims in memory order, fastest first.
    pub order: Vec<usize>,
    /// A power of two.
    pub elem_bytes: u32,
    pub swizzle: Option<Swizzle>,
    /// Elements added to each row of the fastest dim, or of a panel of it.
    pub pad: u32,
    /// Rows are cut into panels of this many elements, one panel of all rows after the other: the
    /// form of TMA and WGMMA when a row is longer than the swizzled span.
    pub panel: Option<u32>,
    /// CTAs of a cluster that divide the fastest dim, a power of two: each has its own part in its
    /// own memory, at the same offsets.
    pub blocks: u32,
}

impl Shared {
    /// Contiguous elements, the last dim fastest.
    pub fn row_major(shape: &[u32], elem_bytes: u32) -> Shared {
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        Shared::ordered(shape, &order, elem_bytes)
    }

    /// Contiguous elements in any order of dims, fastest first.
    pub fn ordered(shape: &[u32], order: &[usize], elem_bytes: u32) -> Shared {
        assert!(elem_bytes.is_power_of_two(), "elements of {elem_bytes} bytes");
        assert_eq!(order.len(), shape.len(), "one place in the order for each dim");
        let (shape, order) = (shape.to_vec(), order.to_vec());
        Shared { shape, order, elem_bytes, swizzle: None, pad: 0, panel: None, blocks: 1 }
    }

    /// The 32, 64 or 128-byte swizzles of TMA and WGMMA: 16-byte pieces are permuted within spans
    /// of that many bytes, by address bits 7 and up. Rows longer than the span are cut into panels
    /// of it.
    pub fn swizzled(shape: &[u32], order: &[usize], elem_bytes: u32, span: u32) -> Shared {
        assert!([32, 64, 128].contains(&span), "a span of {span} bytes");
        let mut shared = Shared::ordered(shape, order, elem_bytes);
        shared.swizzle = Some(Swizzle { base: 4, bits: span.ilog2() - 4, shift: 3 });
        let panel = span / elem_bytes;
        shared.panel = order.first().filter(|&&dim| shape[dim] > panel).map(|_| panel);
        shared
    }

    /// The same dims in the same order, whole rows one after another.
    pub fn plain(self) -> Shared {
        Shared { swizzle: None, panel: None, pad: 0, ..self }
    }

    /// The same memory divided between `blocks` CTAs along its fastest dim, where each gets whole
    /// panels.
    pub fn divided(self, blocks: u32) -> Option<Shared> {
        let extent = *self.order.first().map(|&fast| &self.shape[fast])?;
        let each = self.panel.unwrap_or(1);
        let even = blocks.is_power_of_two() && extent.is_multiple_of(blocks * each);
        even.then_some(Shared { blocks, ..self })
    }

    /// Elements of the fastest dim that one block has.
    pub fn part(&self) -> u32 {
        self.order.first().map_or(1, |&fast| self.shape[fast] / self.blocks)
    }

    /// The byte of an element, from the start of the tile in its block, which is aligned to [`Shared::align`].
    pub fn offset(&self, coords: &[u32]) -> u32 {
        self.places().offset(coords)
    }

    /// For each register of a layout, the first bytes of the lowest and the highest of its elements in all threads; the lowest is above the
    /// highest where no thread has one.
    pub fn reach(&self, layout: &Layout) -> Vec<(u32, u32)> {
        let places = self.places();
        // Each place that several threads hold is one.
        let threads: BTreeSet<Vec<u32>> = (0..layout.ctas())
            .flat_map(|cta| (0..layout.warps()).map(move |warp| (cta, warp)))
            .flat_map(|(cta, warp)| (0..LANES).map(move |lane| layout.thread_part(lane, warp, cta)))
            .collect();
        let mut coords = vec![0; layout.rank()];
        let reach = |reg| {
            let own = layout.reg_part(reg);
            let mut reach = (u32::MAX, 0);
            for thread in &threads {
                for (dim, at) in coords.iter_mut().enumerate() {
                    *at = own[dim] ^ thread[dim];
                }
                if coords.iter().zip(layout.shape()).all(|(at, extent)| at < extent) {
                    let offset = places.offset(&coords);
                    reach = (reach.0.min(offset), reach.1.max(offset));
                }
            }
            reach
        };
        (0..layout.regs()).map(reach).collect()
    }

    /// The strides of each dim in elements, in memory order; and the stride of panels.
    pub fn strides(&self) -> (Vec<u32>, u32) {
        let Places { strides, end, .. } = self.places();
        (self.order.iter().map(|&dim| strides[dim]).collect(), end)
    }

    pub(crate) fn places(&self) -> Places {
        let (elem_bytes, swizzle) = (self.elem_bytes, self.swizzle);
        let mut strides = vec![1; self.shape.len()];
        let Some((&fast, slower)) = self.order.split_first() else {
            return Places { strides, panels: None, part: None, end: 1, elem_bytes, swizzle };
        };
        let mut end = self.panel.unwrap_or(self.part()) + self.pad;
        for &dim in slower {
            strides[dim] = end;
            end *= self.shape[dim];
        }
        let panels = self.panel.map(|panel| (fast, panel));
        let part = (self.blocks > 1).then(|| (fast, self.part()));
        Places { strides, panels, part, end, elem_bytes, swizzle }
    }

    /// Bytes that the tile takes in a block, with padding and whole swizzled spans.
    pub fn bytes(&self) -> u32 {
        let Places { panels, end, .. } = self.places();
        let count = panels.map_or(1, |(_, panel)| self.part().div_ceil(panel));
        let bytes = count * end * self.elem_bytes;
        self.swizzle.map_or(bytes, |s| bytes.next_multiple_of(1 << (s.base + s.bits)))
    }

    /// The alignment of the tile's start, in bytes. Offsets are right for any start that is aligned
    /// for the widest access; TMA and WGMMA swizzle absolute addresses, and need the bits that they
    /// read to be zero there, at most 1024 bytes.
    pub fn align(&self) -> u32 {
        let reads = self.swizzle.map_or(0, |s| s.base + s.bits + s.shift);
        WIDEST.max(1 << reads.min(10))
    }

    /// The most elements of a thread that one instruction can access: consecutive registers with
    /// contiguous and aligned elements, at most 16 bytes. A power of two.
    pub fn vector(&self, layout: &Layout) -> u32 {
        let Some(&fast) = self.order.first() else { return 1 };
        let row = self.panel.unwrap_or(self.part());
        let one_row = self.shape.len() == 1 && self.panel.is_none();
        let aligned = |vector: u32| {
            let rows = one_row || (row.is_multiple_of(vector) && self.pad.is_multiple_of(vector));
            rows && self.swizzle.is_none_or(|s| vector * self.elem_bytes <= 1 << s.base)
        };
        let mut vector = layout.run_along(fast).min(WIDEST / self.elem_bytes).max(1);
        while vector > 1 && !aligned(vector) {
            vector /= 2;
        }
        vector
    }
}

/// The factors of an offset.
pub(crate) struct Places {
    /// The stride of each dim, in elements.
    strides: Vec<u32>,
    /// The fastest dim and the elements of a panel of it.
    panels: Option<(usize, u32)>,
    /// The fastest dim and the elements of it that one block has.
    part: Option<(usize, u32)>,
    /// The stride of panels, or the end of the only one.
    end: u32,
    elem_bytes: u32,
    swizzle: Option<Swizzle>,
}

impl Places {
    pub fn offset(&self, coords: &[u32]) -> u32 {
        let mut at = 0;
        for (dim, (&coord, stride)) in coords.iter().zip(&self.strides).enumerate() {
            let coord = match self.part {
                Some((fast, part)) if dim == fast => coord % part,
                _ => coord,
            };
            at += match self.panels {
                Some((fast, panel)) if dim == fast => coord / panel * self.end + coord % panel,
                _ => coord * stride,
            };
        }
        let address = at * self.elem_bytes;
        self.swizzle.map_or(address, |swizzle| swizzle.apply(address))
    }
}
