//! Layout conversions: how data moves from one layout to another, and what that costs.

use crate::best::best_shared_for;
use crate::bits::Span;
use crate::layout::{In, Layout, xor};
use crate::shuffle::{Round, plan};

/// A conversion from one layout to another.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Move {
    /// Every register already holds its element.
    Nothing,
    /// Inside each thread: for each register of the result the register that holds its element.
    Registers(Vec<u32>),
    /// Inside each warp, by exchanges between lanes.
    Shuffle { rounds: Vec<Round> },
    /// Through shared memory, see [`best_shared_for`]. `across` says which threads synchronise: the
    /// lanes of a warp, the warps of a cta, or the ctas of a cluster.
    Shared { across: In },
}

/// What a conversion does in one cta.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Cost {
    /// Exchanges of a word between the lanes of a warp, all warps together.
    pub shuffles: u32,
    /// Choices between registers by lane, all warps together.
    pub selects: u32,
    /// Shared memory taken.
    pub bytes: u32,
    /// Wavefronts of shared memory, written and read, all warps together.
    pub wavefronts: u32,
    /// The most extra wavefronts of one access.
    pub conflicts: u32,
    /// Barriers of all warps.
    pub barriers: u32,
}

impl Cost {
    /// One number to compare by: about the cycles of a multiprocessor for which the conversion
    /// keeps its busiest unit busy. A shuffle costs one wavefront, four selects one cycle, a
    /// barrier about 32 wavefronts.
    pub fn cycles(&self) -> u32 {
        self.shuffles + self.selects / 4 + self.wavefronts + 32 * self.barriers
    }
}

/// The conversion that moves data the least: nothing, else registers of a thread, else lanes of a
/// warp, else shared memory.
///
/// # Panics
/// When the layouts are of tiles of different shapes or of different numbers of threads.
pub fn conversion(from: &Layout, to: &Layout) -> Move {
    let sizes = |layout: &Layout| (layout.shape().to_vec(), layout.warps(), layout.ctas());
    assert_eq!(sizes(from), sizes(to), "a conversion keeps the shape and the threads");
    if is_same(from, to) {
        Move::Nothing
    } else if let Some(map) = Layout::reg_map(from, to) {
        Move::Registers(map)
    } else if let Some(rounds) = plan(from, to) {
        Move::Shuffle { rounds }
    } else {
        Move::Shared { across: across(from, to) }
    }
}

/// The conversion of least [`Cost::cycles`]: as [`conversion`], or shared memory where that needs
/// fewer wavefronts than shuffling many registers.
pub fn cheapest(from: &Layout, to: &Layout, elem_bytes: u32) -> Move {
    let near = conversion(from, to);
    if !matches!(near, Move::Shuffle { .. }) {
        return near;
    }
    let far = Move::Shared { across: across(from, to) };
    let cycles = |way: &Move| cost_of(way, from, to, elem_bytes).cycles();
    if cycles(&far) < cycles(&near) { far } else { near }
}

/// What [`conversion`] costs.
pub fn cost(from: &Layout, to: &Layout, elem_bytes: u32) -> Cost {
    cost_of(&conversion(from, to), from, to, elem_bytes)
}

/// The cost of one conversion.
pub fn cost_of(way: &Move, from: &Layout, to: &Layout, elem_bytes: u32) -> Cost {
    match way {
        // Copies between registers are renamed away.
        Move::Nothing | Move::Registers(_) => Cost::default(),
        Move::Shuffle { rounds } => {
            let words = elem_bytes.div_ceil(4) * from.warps();
            let exchanged = rounds.iter().filter(|round| !round.stays()).count() as u32;
            let selects = rounds.iter().map(|r| r.send.choices() + r.into.choices()).sum::<u32>();
            Cost { shuffles: exchanged * words, selects: selects * words, ..Cost::default() }
        }
        Move::Shared { across } => {
            let shared = best_shared_for(from, to, elem_bytes);
            let ends = [from, to].map(|layout| {
                let vector = shared.vector(layout);
                (shared.wavefronts(layout, vector), shared.conflicts(layout, vector))
            });
            let [written, read] = ends;
            Cost {
                bytes: shared.bytes(),
                wavefronts: written.0 + read.0,
                conflicts: written.1.max(read.1),
                // One between writing and reading, one before the memory is used again.
                barriers: if *across == In::Lane { 0 } else { 2 },
                ..Cost::default()
            }
        }
    }
}

/// Whether every register of every thread holds the same position in both.
fn is_same(from: &Layout, to: &Layout) -> bool {
    let threads = [In::Lane, In::Warp, In::Cta].iter().all(|&i| from.bases(i) == to.bases(i));
    let regs = || (0..to.regs()).all(|reg| from.reg_part(reg) == to.reg_part(reg));
    threads && from.regs() == to.regs() && regs()
}

/// The nearest level (thread, warp, cta) in which every element of `to` is found in `from`.
fn across(from: &Layout, to: &Layout) -> In {
    let inside = |coords: &[u32]| -> u64 {
        let extents = from.box_extents();
        from.pack(&coords.iter().zip(extents).map(|(at, extent)| at % extent).collect::<Vec<_>>())
    };
    let within = |near: &[In], far: &[In]| {
        let span = Span::of(near.iter().flat_map(|&i| from.bases(i)).map(|basis| inside(basis)));
        let spans = |coords: &[u32]| span.solve(inside(coords)).is_some();
        let moved = far.iter().flat_map(|&i| from.bases(i).iter().zip(to.bases(i)));
        (0..to.regs()).all(|reg| spans(&to.reg_part(reg)))
            && near[1..].iter().flat_map(|&i| to.bases(i)).all(|basis| spans(basis))
            && moved.into_iter().all(|(a, b)| spans(&xor(a.clone(), b)))
    };
    if within(&[In::Reg, In::Lane], &[In::Warp, In::Cta]) {
        In::Lane
    } else if within(&[In::Reg, In::Lane, In::Warp], &[In::Cta]) {
        In::Warp
    } else {
        In::Cta
    }
}
