//! What a layout is: which thread holds which element of a tile, in which register.

use std::fmt;

use crate::bits::{Span, ones};

/// Lanes of a warp, and the bits that number them.
pub const LANES: u32 = 32;
pub(crate) const LANE_BITS: usize = 5;

/// Bits of all inputs together: more would not fit the words used to solve for them.
const MOST_BITS: u32 = 60;
/// Bits of positions, and bits of register numbers.
const MOST_POSITION_BITS: u32 = 31;

/// The four numbers that say where an element is held.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum In {
    Reg,
    Lane,
    Warp,
    Cta,
}

/// One holder of an element: a register of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Place {
    pub cta: u32,
    pub warp: u32,
    pub lane: u32,
    pub reg: u32,
}

/// A register's own part of its coordinates: `coords = add + (xor ^ thread part)` in each dim.
/// `add` is a multiple of the box, so that the sum is also an XOR.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RegOffset {
    pub xor: Vec<u32>,
    pub add: Vec<u32>,
}

/// Which thread holds which element of a tile: a bit-linear atom, repeated along each dim.
///
/// The atom gives each bit of (register, lane, warp, cta) a vector of coordinates; the place of an
/// input is the XOR of the vectors of its set bits. It covers a box of powers of two. Repeats are
/// any positive integers and belong to registers: register `i * 2^(register bits) + r` is register
/// `r` of the `i`-th atom. Positions beyond the shape are padding.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Layout {
    shape: Vec<u32>,
    bases: [Vec<Vec<u32>>; 4],
    repeat: Vec<u32>,
    /// Dims in the order in which repeats are counted, fastest first. Always canonical, so that
    /// equal layouts compare equal: see [`canonical_order`].
    order: Vec<usize>,
    box_extents: Vec<u32>,
}

/// Why something is not a layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LayoutError {
    EmptyDim { dim: usize },
    Lanes { got: usize },
    Rank { expected: usize, got: usize },
    NotCovered { positions: u64, covered: u64 },
    Repeat { dim: usize, expected: u32, got: u32 },
    Order { rank: usize },
    TooLarge,
    Text { expected: String, got: String },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::EmptyDim { dim } => {
                write!(f, "expected positive extents, got 0 in dim {dim}")
            }
            LayoutError::Lanes { got } => write!(f, "expected 5 lane vectors, got {got}"),
            LayoutError::Rank { expected, got } => {
                write!(f, "expected one number for each of {expected} dims, got {got}")
            }
            LayoutError::NotCovered { positions, covered } => {
                write!(f, "expected all {positions} positions of the box held, got {covered}")
            }
            LayoutError::Repeat { dim, expected, got } => {
                write!(f, "expected {expected} repeats along dim {dim}, got {got}")
            }
            LayoutError::Order { rank } => {
                write!(f, "expected an order that names each of {rank} dims once")
            }
            LayoutError::TooLarge => write!(f, "expected a tile of at most 2^31 positions"),
            LayoutError::Text { expected, got } => write!(f, "expected {expected}, got `{got}`"),
        }
    }
}

impl std::error::Error for LayoutError {}

impl Layout {
    /// A layout from its atom and repeats, counted row-major: the last dim is the fastest.
    pub fn new(
        shape: &[u32],
        reg: Vec<Vec<u32>>,
        lane: Vec<Vec<u32>>,
        warp: Vec<Vec<u32>>,
        cta: Vec<Vec<u32>>,
        repeat: Vec<u32>,
    ) -> Result<Layout, LayoutError> {
        let layout = Layout::assemble(shape.to_vec(), [reg, lane, warp, cta], repeat, None)?;
        for (dim, &got) in layout.repeat.iter().enumerate() {
            let expected = shape[dim].div_ceil(layout.box_extents[dim]);
            if expected != got {
                return Err(LayoutError::Repeat { dim, expected, got });
            }
        }
        Ok(layout)
    }

    /// As [`Layout::new`], with as many repeats as the shape needs.
    pub fn tiled(
        shape: &[u32],
        reg: Vec<Vec<u32>>,
        lane: Vec<Vec<u32>>,
        warp: Vec<Vec<u32>>,
        cta: Vec<Vec<u32>>,
    ) -> Result<Layout, LayoutError> {
        let bases = [reg, lane, warp, cta];
        let extents = box_of(&bases, shape.len())?;
        let repeat = shape.iter().zip(extents).map(|(n, extent)| n.div_ceil(extent)).collect();
        Layout::assemble(shape.to_vec(), bases, repeat, None)
    }

    /// The same atom with its repeats counted in another order of dims, fastest first.
    pub fn with_order(mut self, order: &[usize]) -> Result<Layout, LayoutError> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.rank()) {
            return Err(LayoutError::Order { rank: self.rank() });
        }
        self.order = canonical_order(order, &self.repeat);
        Ok(self)
    }

    /// Checks everything but the number of repeats; `None` is row-major.
    pub(crate) fn assemble(
        shape: Vec<u32>,
        bases: [Vec<Vec<u32>>; 4],
        repeat: Vec<u32>,
        order: Option<&[usize]>,
    ) -> Result<Layout, LayoutError> {
        let rank = shape.len();
        if let Some(dim) = shape.iter().position(|&n| n == 0) {
            return Err(LayoutError::EmptyDim { dim });
        }
        if bases[1].len() != LANE_BITS {
            return Err(LayoutError::Lanes { got: bases[1].len() });
        }
        if repeat.len() != rank {
            return Err(LayoutError::Rank { expected: rank, got: repeat.len() });
        }
        let box_extents = box_of(&bases, rank)?;
        // Rounded up, so that repeats may become register bits.
        let bits = |numbers: &[u32]| -> u32 {
            numbers.iter().map(|&n| n.checked_next_power_of_two().map_or(32, u32::ilog2)).sum()
        };
        let [regs, lanes, warps, ctas] = bases.each_ref().map(|bases| bases.len() as u32);
        let regs = regs + bits(&repeat);
        if bits(&box_extents) + bits(&repeat) > MOST_POSITION_BITS
            || regs > MOST_POSITION_BITS
            || regs + lanes + warps + ctas > MOST_BITS
        {
            return Err(LayoutError::TooLarge);
        }
        let row_major: Vec<usize> = (0..rank).rev().collect();
        let order = canonical_order(order.unwrap_or(&row_major), &repeat);
        let layout = Layout { shape, bases, repeat, order, box_extents };
        let covered = 1u64 << layout.span().rank();
        let positions = layout.box_extents.iter().map(|&b| u64::from(b)).product();
        if covered != positions {
            return Err(LayoutError::NotCovered { positions, covered });
        }
        Ok(layout)
    }

    pub fn shape(&self) -> &[u32] {
        &self.shape
    }

    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The vectors of one input, lowest bit first.
    pub fn bases(&self, input: In) -> &[Vec<u32>] {
        &self.bases[input as usize]
    }

    pub(crate) fn all_bases(&self) -> &[Vec<Vec<u32>>; 4] {
        &self.bases
    }

    pub fn repeat(&self) -> &[u32] {
        &self.repeat
    }

    /// What the atom covers: a power of two in each dim.
    pub fn box_extents(&self) -> &[u32] {
        &self.box_extents
    }

    /// The dims in the order in which repeats are counted, fastest first.
    pub fn repeat_order(&self) -> &[usize] {
        &self.order
    }

    /// Registers of one atom.
    pub fn atom_regs(&self) -> u32 {
        1 << self.bases(In::Reg).len()
    }

    /// Registers of a thread.
    pub fn regs(&self) -> u32 {
        self.atom_regs() * self.repeat.iter().product::<u32>()
    }

    pub fn warps(&self) -> u32 {
        1 << self.bases(In::Warp).len()
    }

    pub fn ctas(&self) -> u32 {
        1 << self.bases(In::Cta).len()
    }

    /// Threads of one cta.
    pub fn threads(&self) -> u32 {
        LANES * self.warps()
    }

    /// The coordinates that a register of a thread holds. They may be padding.
    pub fn coords(&self, reg: u32, lane: u32, warp: u32, cta: u32) -> Vec<u32> {
        xor(self.reg_part(reg), &self.thread_part(lane, warp, cta))
    }

    /// The coordinates of a register in the thread whose numbers are all zero. XOR with
    /// [`Layout::thread_part`] gives the coordinates in any thread.
    pub fn reg_part(&self, reg: u32) -> Vec<u32> {
        let RegOffset { xor, add } = self.reg_offset(reg);
        xor.into_iter().zip(add).map(|(xor, add)| xor + add).collect()
    }

    /// The coordinates of a thread's register 0.
    pub fn thread_part(&self, lane: u32, warp: u32, cta: u32) -> Vec<u32> {
        let mut coords = vec![0; self.rank()];
        for (input, number) in [(In::Lane, lane), (In::Warp, warp), (In::Cta, cta)] {
            assert!(number >> self.bases(input).len() == 0, "{input:?} {number}");
            for bit in ones(number.into()) {
                coords = xor(coords, &self.bases(input)[bit]);
            }
        }
        coords
    }

    /// The register's own part of its coordinates.
    pub fn reg_offset(&self, reg: u32) -> RegOffset {
        assert!(reg < self.regs(), "register {reg} of {}", self.regs());
        let mut offset = RegOffset { xor: vec![0; self.rank()], add: vec![0; self.rank()] };
        for bit in ones(u64::from(reg % self.atom_regs())) {
            offset.xor = xor(offset.xor, &self.bases(In::Reg)[bit]);
        }
        let mut index = reg / self.atom_regs();
        for &dim in &self.order {
            offset.add[dim] = index % self.repeat[dim] * self.box_extents[dim];
            index /= self.repeat[dim];
        }
        offset
    }

    /// Every place that holds an element, sorted; threads with lower numbers first.
    pub fn holds(&self, coords: &[u32]) -> Vec<Place> {
        let Some((first, index)) = self.solve(coords) else { return Vec::new() };
        let span = self.span();
        let kernel = span.kernel();
        let mut places: Vec<Place> = (0..1u64 << kernel.len())
            .map(|pick| {
                let word = ones(pick).fold(first, |word, at| word ^ kernel[at]);
                self.place(word, index)
            })
            .collect();
        places.sort_unstable();
        places
    }

    /// The place that owns an element: of its holders the one in the thread that is an owner by
    /// [`Layout::replicas`]. `None` for coordinates outside the shape.
    pub fn owner(&self, coords: &[u32]) -> Option<Place> {
        let (word, index) = self.solve(coords)?;
        Some(self.place(word, index))
    }

    /// The input bits of the atom and the repeat that hold an element, dependent bits zero.
    fn solve(&self, coords: &[u32]) -> Option<(u64, u32)> {
        assert_eq!(coords.len(), self.rank(), "one coordinate for each dim");
        if coords.iter().zip(&self.shape).any(|(&at, &extent)| at >= extent) {
            return None;
        }
        let inside: Vec<u32> =
            coords.iter().zip(&self.box_extents).map(|(&at, &extent)| at % extent).collect();
        let mut index = 0;
        for &dim in self.order.iter().rev() {
            index = index * self.repeat[dim] + coords[dim] / self.box_extents[dim];
        }
        Some((self.span().solve(self.pack(&inside))?, index))
    }

    /// Cuts a word of input bits, registers lowest, into the four numbers.
    pub(crate) fn place(&self, mut word: u64, index: u32) -> Place {
        let mut take = |input: In| {
            let bits = self.bases(input).len();
            let number = (word & ((1 << bits) - 1)) as u32;
            word >>= bits;
            number
        };
        let reg = take(In::Reg) + index * self.atom_regs();
        let (lane, warp, cta) = (take(In::Lane), take(In::Warp), take(In::Cta));
        Place { cta, warp, lane, reg }
    }

    pub fn is_padding(&self, reg: u32, lane: u32, warp: u32, cta: u32) -> bool {
        self.coords(reg, lane, warp, cta).iter().zip(&self.shape).any(|(at, extent)| at >= extent)
    }

    pub fn has_padding(&self) -> bool {
        (0..self.rank()).any(|dim| self.box_extents[dim] * self.repeat[dim] > self.shape[dim])
    }

    /// Coordinates inside the box, concatenated in one word.
    pub(crate) fn pack(&self, coords: &[u32]) -> u64 {
        let mut word = 0;
        for (&at, &extent) in coords.iter().zip(&self.box_extents) {
            assert!(at < extent);
            word = word << extent.ilog2() | u64::from(at);
        }
        word
    }

    /// The span of all bases, in the order registers, lanes, warps, ctas: a bit is dependent when
    /// the bits before it already give its positions.
    pub(crate) fn span(&self) -> Span {
        Span::of(self.bases.iter().flatten().map(|basis| self.pack(basis)))
    }
}

pub(crate) fn xor(mut a: Vec<u32>, b: &[u32]) -> Vec<u32> {
    for (a, b) in a.iter_mut().zip(b) {
        *a ^= b;
    }
    a
}

/// The box that the bases reach: one above the highest bit in each dim.
fn box_of(bases: &[Vec<Vec<u32>>; 4], rank: usize) -> Result<Vec<u32>, LayoutError> {
    let mut reach = vec![0u32; rank];
    for basis in bases.iter().flatten() {
        if basis.len() != rank {
            return Err(LayoutError::Rank { expected: rank, got: basis.len() });
        }
        reach.iter_mut().zip(basis).for_each(|(reach, part)| *reach |= part);
    }
    if reach.iter().any(|&reach| reach >= 1 << 31) {
        return Err(LayoutError::TooLarge);
    }
    Ok(reach.into_iter().map(|reach| (reach + 1).next_power_of_two()).collect())
}

/// The position of dims that do not repeat in an order is arbitrary; this makes it unique.
/// Row-major where that is the same, else the dims that repeat, then the others, last dim first.
fn canonical_order(order: &[usize], repeat: &[u32]) -> Vec<usize> {
    let repeats: Vec<usize> = order.iter().copied().filter(|&dim| repeat[dim] > 1).collect();
    let all = (0..order.len()).rev();
    if repeats.is_sorted_by(|a, b| a > b) {
        return all.collect();
    }
    let others = all.filter(|dim| !repeats.contains(dim));
    repeats.iter().copied().chain(others).collect()
}
