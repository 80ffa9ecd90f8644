//! The plan that brings an array from one placement to another: which rank sends which elements to whom.

use crate::intervals::Piece;
use crate::mesh::Mesh;
use crate::placement::{Placed, State};
use crate::spec::Combine;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic};

/// Places of a dim. Moves between many blocks share them.
pub type Pieces = Arc<[Piece]>;

/// Elements that one rank sends to another: the elements at all combinations of places of the dims.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Move {
    pub from: u64,
    pub to: u64,
    /// Which contribution it is part of.
    pub contribution: u64,
    /// By dim: the places in the sender's block, and in the receiver's.
    pub dims: Vec<Pieces>,
}

/// What happens to the contributions of the array that is moved.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It holds values, and so does the other; or only contribution 0 of the other, whose other blocks are the identity of its operator.
    Values,
    /// Contributions stay what they are.
    Kept,
    /// Contributions are combined, in order; then as values.
    Combined(Combine),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    pub kind: Kind,
    /// By receiver, and then by contribution.
    pub moves: Vec<Move>,
}

/// Elements that go from one block to another, both by their places in [`Placed::blocks`].
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct BlockMove {
    pub source: usize,
    pub target: usize,
    /// Which contribution it is part of.
    pub contribution: u64,
    /// Where its pieces are among those of all moves.
    place: usize,
}

/// A block that has the elements of one move alone.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Aside {
    Source(usize),
    Target(usize),
}

/// What goes between the blocks of two placements, by target and then by contribution. Between many blocks there are many moves and few
/// different pieces, which moves name by number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockMoves {
    pub kind: Kind,
    pub moves: Vec<BlockMove>,
    ndim: usize,
    numbers: Vec<u32>,
    pieces: Vec<Pieces>,
}

impl BlockMoves {
    /// By dim: the places in the source and in the target.
    pub fn dims(&self, of: &BlockMove) -> impl ExactSizeIterator<Item = &Pieces> {
        let numbers = &self.numbers[of.place..of.place + self.ndim];
        numbers.iter().map(|number| &self.pieces[*number as usize])
    }

    /// Some of the moves, by their places and in their order. The elements of a move with an `aside` are packed there: the block with that
    /// number has them in the order of its dims and nothing else, as source or as target.
    pub fn some(&self, which: &[(usize, Option<Aside>)]) -> BlockMoves {
        let mut made = BlockMoves {
            kind: self.kind,
            moves: Vec::new(),
            ndim: self.ndim,
            numbers: Vec::new(),
            pieces: Vec::new(),
        };
        for &(at, aside) in which {
            let mut of = self.moves[at];
            let place = made.numbers.len();
            for pieces in self.dims(&of) {
                let mut packed = 0;
                let mut moved = |p: &Piece| {
                    let at = packed;
                    packed += p.count;
                    match aside {
                        None => *p,
                        Some(Aside::Source(_)) => Piece { from: at, from_step: 1, ..*p },
                        Some(Aside::Target(_)) => Piece { to: at, to_step: 1, ..*p },
                    }
                };
                let pieces: Vec<Piece> = pieces.iter().map(&mut moved).collect();
                made.numbers.push(made.pieces.len() as u32);
                made.pieces.push(pieces.into());
            }
            of.place = place;
            match aside {
                None => {}
                Some(Aside::Source(block)) => of.source = block,
                Some(Aside::Target(block)) => of.target = block,
            }
            made.moves.push(of);
        }
        made
    }

    fn number(&mut self, pieces: Vec<Piece>) -> u32 {
        if pieces.is_empty() {
            return NONE;
        }
        self.pieces.push(pieces.into());
        self.pieces.len() as u32 - 1
    }
}

/// The number of pieces that are none.
const NONE: u32 = u32::MAX;

/// What goes between the blocks of two placements.
pub fn between(from: &Placed, to: &Placed) -> Result<BlockMoves, Diagnostic> {
    if from.shape() != to.shape() {
        let (a, b) = (from.shape(), to.shape());
        let text = format!("expected placements of one shape, got {a:?} and {b:?}");
        return Err(Diagnostic::new(Code::E_SHAPE_MISMATCH, text)
            .help("an exchange does not change the shape"));
    }
    let kept = from.mesh() == to.mesh()
        && from.placement().combine() == to.placement().combine()
        && from.placement().contributed() == to.placement().contributed();
    let kind = match from.placement().combine() {
        Some(_) if kept => Kind::Kept,
        Some(op) => Kind::Combined(op),
        None => Kind::Values,
    };
    let (sources, ndim) = (from.blocks(), from.shape().len());
    let mut tables: Vec<Table> = (0..ndim).map(|_| Table::default()).collect();
    let mut found =
        BlockMoves { kind, moves: Vec::new(), ndim, numbers: Vec::new(), pieces: Vec::new() };
    for (target, there) in to.blocks().iter().enumerate() {
        if there.index.iter().any(|set| set.is_empty())
            || kind != Kind::Kept && there.contribution > 0
        {
            continue;
        }
        let begin = found.moves.len();
        let mut rows: Vec<&mut Row> =
            tables.iter_mut().zip(&there.places).map(|(t, place)| t.row(*place)).collect();
        for (source, here) in sources
            .iter()
            .enumerate()
            .filter(|(_, s)| kind != Kind::Kept || s.contribution == there.contribution)
        {
            let place = found.numbers.len();
            for (dim, row) in rows.iter_mut().enumerate() {
                let at = here.places[dim];
                if row.len() <= at {
                    row.resize(at + 1, None);
                }
                let number = *row[at]
                    .get_or_insert_with(|| found.number(here.index[dim].pieces(&there.index[dim])));
                if number == NONE {
                    break;
                }
                found.numbers.push(number);
            }
            if found.numbers.len() == place + ndim {
                let contribution = here.contribution;
                found.moves.push(BlockMove { source, target, contribution, place });
            } else {
                found.numbers.truncate(place);
            }
        }
        found.moves[begin..].sort_by_key(|m| m.contribution);
    }
    Ok(found)
}

/// The number of the common places of one set of the target with those of the source, by the place of these.
type Row = Vec<Option<u32>>;

/// Common places of the sets that a dim is split into, on both sides: blocks are combinations of few of them.
#[derive(Default)]
struct Table(BTreeMap<usize, Row>);

impl Table {
    /// More rows than this are not kept: sets of two placements may have as many pairs as the blocks.
    const KEPT: usize = 256;

    fn row(&mut self, target: usize) -> &mut Row {
        if self.0.len() >= Self::KEPT && !self.0.contains_key(&target) {
            self.0.clear();
        }
        self.0.entry(target).or_default()
    }
}

impl Exchange {
    /// To every rank, or (`once`) only to the lowest rank of those that hold copies of a block. A rank that has elements itself sends
    /// them to itself; others are taken in turn.
    pub fn new(from: &Placed, to: &Placed, once: bool) -> Result<Exchange, Diagnostic> {
        let found = between(from, to)?;
        let (sources, targets) = (from.blocks(), to.blocks());
        let mut moves = Vec::new();
        for of_target in found.moves.chunk_by(|a, b| a.target == b.target) {
            let target = &targets[of_target[0].target];
            let receivers = if once { &target.ranks[..1] } else { &target.ranks[..] };
            for (place, receiver) in receivers.iter().enumerate() {
                for of in of_target {
                    let source = &sources[of.source];
                    let own = from.mesh() == to.mesh() && source.ranks.contains(receiver);
                    let sender =
                        if own { *receiver } else { source.ranks[place % source.ranks.len()] };
                    let (contribution, dims) = (of.contribution, found.dims(of).cloned().collect());
                    moves.push(Move { from: sender, to: *receiver, contribution, dims });
                }
            }
        }
        Ok(Exchange { kind: found.kind, moves })
    }
}

/// A line for each move: `1 -> 0: [0:2, 0:3] to [2:4, 0:3]`, places in the blocks of sender and receiver.
impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slices = |dims: &[Pieces], of: fn(&Piece) -> (u64, u64)| {
            let slice = |p: &Piece| {
                let (start, step) = of(p);
                let end = start + (p.count - 1) * step + 1;
                if step == 1 { format!("{start}:{end}") } else { format!("{start}:{end}:{step}") }
            };
            let dim = |pieces: &Pieces| pieces.iter().map(slice).collect::<Vec<_>>().join(" + ");
            dims.iter().map(dim).collect::<Vec<_>>().join(", ")
        };
        match self.kind {
            Kind::Values => f.write_str("values")?,
            Kind::Kept => f.write_str("contributions")?,
            Kind::Combined(op) => write!(f, "{} of contributions", op.name())?,
        }
        for m in &self.moves {
            write!(f, "\n{} -> {}", m.from, m.to)?;
            if self.kind != Kind::Values {
                write!(f, " ({})", m.contribution)?;
            }
            write!(
                f,
                ": [{}] to [{}]",
                slices(&m.dims, |p| (p.from, p.from_step)),
                slices(&m.dims, |p| (p.to, p.to_step))
            )?;
        }
        Ok(())
    }
}

/// What the change along axes of one mesh is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Collective {
    pub kind: &'static str,
    pub axes: Vec<String>,
}

/// The collectives that a change of placement is, axis by axis; axes of one rank need none.
pub fn collectives(mesh: &Mesh, from: &Placed, to: &Placed) -> Vec<Collective> {
    let (before, after) = (from.placement().states(mesh), to.placement().states(mesh));
    let mut found: Vec<Collective> = Vec::new();
    for (axis, name) in
        mesh.axes().into_iter().enumerate().filter(|(axis, _)| mesh.extents()[*axis] > 1)
    {
        let kind = match (before[axis], after[axis]) {
            (State::Partial(a), State::Partial(b)) if a == b => None,
            (State::Partial(_), State::Split(_)) => Some("reduce_scatter"),
            (State::Partial(_), State::Replicated | State::Partial(_)) => Some("all_reduce"),
            (State::Split(_), State::Replicated | State::Partial(_)) => Some("all_gather"),
            (State::Split(a), State::Split(b)) if a == b => {
                let same = from.placement().dims()[a] == to.placement().dims()[b];
                (!same).then_some("exchange")
            }
            (State::Split(_), State::Split(_)) => Some("all_to_all"),
            (State::Replicated, State::Replicated | State::Split(_) | State::Partial(_)) => None,
        };
        let Some(kind) = kind else { continue };
        match found.iter_mut().find(|c| c.kind == kind) {
            Some(known) => known.axes.push(name.to_owned()),
            None => found.push(Collective { kind, axes: vec![name.to_owned()] }),
        }
    }
    found
}
