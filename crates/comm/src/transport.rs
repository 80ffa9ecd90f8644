//! The interface of transports.

use crate::{Call, Kind, Memory, Piece};
use std::ops::Range;
use std::sync::Arc;
use tessera_diag::{Code, Diagnostic};

/// Ranks that synchronise, in the order of their coordinates.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(pub u32);

/// A collective that a rank has started.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Token {
    pub group: GroupId,
    /// The position of the rank in the group.
    pub member: usize,
    /// The number of the collective among those of the group.
    pub sequence: u64,
}

/// The part of one rank in a collective.
///
/// | kind | `send` | `receive` |
/// |---|---|---|
/// | `all_reduce` | the contribution | the value |
/// | `reduce_scatter` | of the contribution, the block of each member | the own block |
/// | `all_gather` | the own block | the block of each member |
/// | `all_to_all` | what goes to each member | what comes from each |
/// | `broadcast` | the value; of others than the root it is not read and may be left out | the value |
/// | `permute` | the value | the value |
/// | `barrier` | none | none |
///
/// What is sent and what is received may be the same memory if they are the same bytes for each member (a combination in place, an
/// `all_gather` whose own block is in its place). Ranks that share memory for a result may give the same piece of it. Ranks of one program
/// give the same call and pieces, so these are shared.
#[derive(Clone, Debug)]
pub struct Request {
    pub group: GroupId,
    pub call: Arc<Call>,
    pub from: Memory,
    pub send: Arc<[Piece]>,
    pub to: Memory,
    pub receive: Arc<[Piece]>,
}

impl Request {
    /// An error where the pieces are not those of the call, in a group of `n` members with this one at `member`.
    pub fn check(&self, n: usize, member: usize) -> Result<(), Diagnostic> {
        let item = self.call.dtype.bytes() as u64;
        let (counts, kind) = (&self.call.counts, &self.call.kind);
        let wrong = |text: String| {
            let error = Diagnostic::new(Code::E_ARGUMENT, text).at(self.call.at.clone());
            Err(error.help("this is a fault of the program that calls the transport: report it"))
        };
        let (sent, received, counted) = match kind {
            Kind::AllReduce(_) | Kind::Permute(_) => (1, 1, 1),
            Kind::Broadcast { root } if *root != member => (self.send.len().min(1), 1, 1),
            Kind::Broadcast { .. } => (1, 1, 1),
            Kind::ReduceScatter(_) => (n, 1, n),
            Kind::AllGather => (1, n, n),
            Kind::AllToAll => (n, n, n),
            Kind::Barrier => (0, 0, 0),
        };
        if (self.send.len(), self.receive.len(), counts.len()) != (sent, received, counted) {
            return wrong(format!(
                "expected {sent} pieces to send, {received} to receive and {counted} counts for {} in a group of {n}, got {}, {} and {}",
                kind.name(),
                self.send.len(),
                self.receive.len(),
                counts.len()
            ));
        }
        let positions_fit = match kind {
            Kind::Broadcast { root } => *root < n,
            Kind::Permute(pairs) => pairs.iter().enumerate().all(|(i, &(s, t))| {
                s < n && t < n && pairs[..i].iter().all(|&(a, b)| a != s && b != t)
            }),
            Kind::AllReduce(_)
            | Kind::ReduceScatter(_)
            | Kind::AllGather
            | Kind::AllToAll
            | Kind::Barrier => true,
        };
        if !positions_fit {
            return wrong(format!(
                "expected positions of a group of {n}, each once, got {}",
                self.call
            ));
        }
        let of_one = |i: usize| counts[if counts.len() == 1 { 0 } else { i }];
        let own = |i: usize, many: usize| of_one(if many == 1 { member } else { i });
        let sizes_fit =
            self.send.iter().enumerate().all(|(i, p)| p.bytes() as u64 == own(i, sent) * item)
                && self.receive.iter().enumerate().all(|(i, p)| {
                    // What comes from the others is theirs to say.
                    *kind == Kind::AllToAll || p.bytes() as u64 == own(i, received) * item
                });
        let inside = self.send.iter().all(|p| p.fits(self.from.bytes()))
            && self.receive.iter().all(|p| p.fits(self.to.bytes()));
        if !sizes_fit || !inside {
            return wrong(format!("expected pieces of {} that are inside the memory", self.call));
        }
        Ok(())
    }
}

/// An error where these are not ranks of a mesh with `all`, each once.
pub(crate) fn check_group(ranks: &[usize], all: usize) -> Result<(), Diagnostic> {
    let apart = ranks.iter().enumerate().all(|(i, r)| *r < all && !ranks[..i].contains(r));
    if ranks.is_empty() || !apart {
        let text = format!("expected ranks of {all}, each once, got {ranks:?}");
        let help = "give the ranks along some axes of a mesh";
        return Err(Diagnostic::new(Code::E_ARGUMENT, text).help(help));
    }
    Ok(())
}

/// What a call of [`Transport::progress`] found.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// There was nothing to do.
    Nothing,
    /// Some work was done, and no collective is complete by it.
    Some,
    /// A collective may be complete: test those that ranks wait for.
    Complete,
}

/// What a rank of this process does next.
#[derive(Clone, Debug)]
pub enum Waiting {
    /// It waits for a collective; without a token for one that is behind another of its group.
    For { rank: usize, token: Option<Token>, call: Arc<Call> },
    /// Its program has ended.
    Ended { rank: usize },
}

impl Waiting {
    pub fn rank(&self) -> usize {
        match self {
            Waiting::For { rank, .. } | Waiting::Ended { rank } => *rank,
        }
    }
}

/// Moves bytes between ranks. The crate's page says how its calls are used.
pub trait Transport: Send + Sync {
    /// How many ranks there are in all processes.
    fn ranks(&self) -> usize;

    /// Those that this process plays.
    fn here(&self) -> Range<usize>;

    /// A group of ranks, in the order of their coordinates along the axes that they synchronise over. Every process makes the same groups
    /// in the same order, before a program that uses them runs. The same list gives the same group.
    fn group(&self, ranks: &[usize]) -> Result<GroupId, Diagnostic>;

    /// The ranks of a group.
    fn members(&self, group: GroupId) -> Vec<usize>;

    /// Whether it combines in the canonical order over positions. Otherwise [`crate::ordered`] does, over `all_to_all` and `all_gather`.
    fn combines(&self) -> bool;

    /// Starts the part of a rank of this process in the next collective of a group, which all members start in one order. Never waits.
    fn start(&self, rank: usize, request: Request) -> Result<Token, Diagnostic>;

    /// Whether a collective is complete for the rank that started it. After `true` the token is used up.
    fn test(&self, token: Token) -> Result<bool, Diagnostic>;

    /// Whether a call of [`Transport::progress`] would find some, as far as that is known without waiting.
    fn has_work(&self) -> bool {
        false
    }

    /// Does some of the work in flight. Any thread may call it, several may together.
    fn progress(&self) -> Result<Progress, Diagnostic>;

    /// No rank of this process can go on, and there was nothing to do: waits until something arrives. An error where nothing can arrive, or
    /// nothing did within the time limit. May return early.
    fn idle(&self, waiting: &[Waiting]) -> Result<(), Diagnostic>;

    /// Ends all collectives in flight: every later call gives this error. Returns when no thread uses memory of a request. Of several
    /// errors the first is kept.
    fn abort(&self, why: &Diagnostic);
}
