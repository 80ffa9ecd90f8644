//! Layout conversions inside a warp with shuffles: in each round a lane sends one register and
//! reads one lane.

use crate::bits::{Span, ones};
use crate::layout::{In, LANE_BITS, LANES, Layout};

/// A number that depends on the lane: `base` XOR the `bits` of the lane's set bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LaneFn {
    pub base: u32,
    pub bits: [u32; LANE_BITS],
}

impl LaneFn {
    pub fn at(&self, lane: u32) -> u32 {
        self.base ^ sum(&self.bits, lane.into())
    }

    /// The number where it is the same in all lanes.
    pub fn constant(&self) -> Option<u32> {
        (self.bits == [0; LANE_BITS]).then_some(self.base)
    }

    /// The mask where the number is the lane XOR a mask: a butterfly.
    pub fn mask(&self) -> Option<u32> {
        (self.bits == UNITS).then_some(self.base)
    }

    /// The number of values, as a power of two, that the lanes choose from.
    pub fn choices(&self) -> u32 {
        Span::of(self.bits.iter().map(|&bits| bits.into())).rank()
    }
}

const UNITS: [u32; LANE_BITS] = [1, 2, 4, 8, 16];

/// One shuffle: each lane offers its register `send`, reads what lane `from` offers, and writes it
/// to its register `into`. All rounds read registers as they were before the first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Round {
    pub send: LaneFn,
    pub from: LaneFn,
    pub into: LaneFn,
}

impl Round {
    /// Whether each lane reads itself, so that nothing is exchanged.
    pub fn stays(&self) -> bool {
        self.from.mask() == Some(0)
    }
}

fn sum(bits: &[u32], word: u64) -> u32 {
    ones(word).fold(0, |sum, bit| sum ^ bits[bit])
}

/// Where the elements of one layout are in the other, seen from inside a warp.
struct Source {
    layout: Layout,
    /// Of the register bits, then the lane bits.
    span: Span,
}

#[derive(Clone, Copy)]
struct Held {
    reg: u32,
    lane: u32,
}

impl Source {
    fn new(layout: Layout) -> Source {
        let bases = layout.bases(In::Reg).iter().chain(layout.bases(In::Lane));
        let span = Span::of(bases.map(|basis| layout.pack(basis)));
        Source { layout, span }
    }

    /// Cuts a word of input bits.
    fn held(&self, word: u64) -> Held {
        let regs = self.layout.atom_regs();
        Held { reg: word as u32 & (regs - 1), lane: (word >> regs.ilog2()) as u32 }
    }

    /// The register bits and the lane that hold a place of the atom in warp 0.
    fn in_atom(&self, coords: &[u32]) -> Option<Held> {
        self.span.solve(self.layout.pack(coords)).map(|word| self.held(word))
    }

    /// The same for a place that may be outside the atom.
    fn in_box(&self, coords: &[u32]) -> Option<Held> {
        let inside = coords.iter().zip(self.layout.box_extents()).all(|(at, extent)| at < extent);
        if inside { self.in_atom(coords) } else { None }
    }

    /// The repeat that a place is in; `None` beyond all.
    fn repeat(&self, coords: &[u32]) -> Option<u32> {
        let layout = &self.layout;
        layout.repeat_order().iter().rev().try_fold(0, |index, &dim| {
            let at = coords[dim] / layout.box_extents()[dim];
            (at < layout.repeat()[dim]).then_some(index * layout.repeat()[dim] + at)
        })
    }
}

/// Rounds that convert one layout into another inside each warp, the same in all warps; one round
/// for each register of `to` that holds more than padding. `None` where data moves between warps,
/// or where the registers to choose are no sums of bits.
///
/// In the simplest plan round `k` would write register `k` in all lanes. That fails when two lanes
/// need different registers of the same lane in one round. Such lanes write different registers in
/// a round, or read different copies, so that their sources are different lanes.
pub(crate) fn plan(from: &Layout, to: &Layout) -> Option<Vec<Round>> {
    let same = |input: In| from.bases(input) == to.bases(input);
    if from.shape() != to.shape() || !same(In::Warp) || !same(In::Cta) {
        return None;
    }
    let (source, to) = (Source::new(from.folded()), to.folded());
    // How a bit of the reading lane changes the lane and the register that it reads.
    let held: Option<Vec<Held>> =
        to.bases(In::Lane).iter().map(|basis| source.in_box(basis)).collect();
    let held = held?;
    let mut lane = [0; LANE_BITS];
    let mut reg = [0; LANE_BITS];
    for (bit, held) in held.iter().enumerate() {
        // Of lanes with copies each reads the one like itself.
        let copies = source.layout.bases(In::Lane)[bit].iter().all(|&part| part == 0);
        lane[bit] = held.lane ^ if copies { 1 << bit } else { 0 };
        reg[bit] = held.reg;
    }
    let rotation = rotation(&lane, &reg, &source, &to)?;
    for (bit, (_, held)) in rotation.iter().enumerate() {
        lane[bit] ^= held.lane;
        reg[bit] ^= held.reg;
    }
    let send = through(&lane, &reg);
    let mut rounds = Vec::new();
    for into in 0..to.regs() {
        let place = to.reg_part(into);
        let Some(repeat) = source.repeat(&place) else { continue };
        let extents = source.layout.box_extents();
        let inside: Vec<u32> = place.iter().zip(extents).map(|(at, n)| at % n).collect();
        let held = source.in_atom(&inside)?;
        let first = repeat * source.layout.atom_regs() + held.reg;
        rounds.push(Round {
            send: LaneFn { base: first ^ sum(&send, held.lane.into()), bits: send },
            from: LaneFn { base: held.lane, bits: lane },
            into: LaneFn { base: into, bits: rotation.map(|(into, _)| into) },
        });
    }
    are_right(&rounds, &source.layout, &to).then_some(rounds)
}

/// For each bit of the reading lane the register bits by which it rotates from the round's
/// register, and how they change the source. `lane` and `reg` say what a bit changes without a
/// rotation.
fn rotation(
    lane: &[u32; LANE_BITS],
    reg: &[u32; LANE_BITS],
    source: &Source,
    to: &Layout,
) -> Option<[(u32, Held); LANE_BITS]> {
    // Differences between lanes that read the same lane; `clash` where the registers differ.
    let mut image = Span::of(lane.iter().map(|&bits| bits.into()));
    let same = image.kernel().to_vec();
    let mut registers = Span::default();
    let clash: Vec<u64> =
        same.iter().copied().filter(|&lanes| registers.insert(sum(reg, lanes).into())).collect();
    let fine = registers.kernel().iter().map(|&which| ones(which).fold(0, |l, at| l ^ same[at]));
    // Copies in other lanes, and register bits that lead to lanes which no lane reads yet.
    let copies = source.span.kernel().iter().map(|&word| (0, source.held(word)));
    let bits = to.bases(In::Reg).iter().enumerate();
    let bits = bits.filter_map(|(bit, basis)| Some((1 << bit, source.in_box(basis)?)));
    let mut rotations = Vec::new();
    for (into, held) in copies.chain(bits) {
        if rotations.len() < clash.len() && image.insert(held.lane.into()) {
            rotations.push((into, held));
        }
    }
    if rotations.len() < clash.len() {
        return None;
    }
    // A lane rotates by the clashing differences that it is a sum of.
    let units = UNITS.map(u64::from);
    let all = Span::of(clash.iter().copied().chain(fine).chain(units));
    let turned = units.map(|unit| {
        let parts = all.solve(unit).expect("all lanes are spanned");
        let mut turned = (0, Held { reg: 0, lane: 0 });
        for (into, held) in ones(parts).filter_map(|at| rotations.get(at)) {
            turned.0 ^= into;
            turned.1.reg ^= held.reg;
            turned.1.lane ^= held.lane;
        }
        turned
    });
    Some(turned)
}

/// The linear function from `lane` to `reg`: how a bit of the sending lane changes the register
/// that it sends.
fn through(lane: &[u32; LANE_BITS], reg: &[u32; LANE_BITS]) -> [u32; LANE_BITS] {
    let units = UNITS.map(u64::from);
    let span = Span::of(lane.iter().map(|&bits| bits.into()).chain(units));
    units.map(|unit| {
        let parts = span.solve(unit).expect("all lanes are spanned");
        sum(reg, parts & (LANES as u64 - 1))
    })
}

/// Whether each lane gets what its register should hold. It then holds in all warps, which add the
/// same to both sides.
fn are_right(rounds: &[Round], from: &Layout, to: &Layout) -> bool {
    let parts = |layout: &Layout| -> [Vec<Vec<u32>>; 2] {
        let regs = (0..layout.regs()).map(|reg| layout.reg_part(reg));
        let lanes = (0..LANES).map(|lane| layout.thread_part(lane, 0, 0));
        [regs.collect(), lanes.collect()]
    };
    let ([from_regs, from_lanes], [to_regs, to_lanes]) = (parts(from), parts(to));
    rounds.iter().all(|round| {
        (0..LANES).all(|lane| {
            let sender = round.from.at(lane);
            let sent = &from_regs[round.send.at(sender) as usize];
            let wanted = &to_regs[round.into.at(lane) as usize];
            let (there, here) = (&from_lanes[sender as usize], &to_lanes[lane as usize]);
            (0..to.rank()).all(|dim| sent[dim] ^ there[dim] == wanted[dim] ^ here[dim])
        })
    })
}
