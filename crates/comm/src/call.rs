//! What members of a group must agree on, and the header of a message.

use std::fmt;
use std::sync::Arc;
use tessera_diag::Loc;
use tessera_numerics::{DType, ReduceOp};
use tessera_support::StableHasher;

/// A collective. Ranks are positions in the group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The contributions of all members, combined, for all.
    AllReduce(ReduceOp),
    /// The contributions of all members, combined; each member gets its block.
    ReduceScatter(ReduceOp),
    /// The blocks of all members, for all.
    AllGather,
    /// A block from each member for each.
    AllToAll,
    /// The value of one member, for all.
    Broadcast { root: usize },
    /// Values along pairs (source, target); a member that receives nothing gets zeros.
    Permute(Arc<[(usize, usize)]>),
    /// Every member arrives.
    Barrier,
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Kind::AllReduce(_) => "all_reduce",
            Kind::ReduceScatter(_) => "reduce_scatter",
            Kind::AllGather => "all_gather",
            Kind::AllToAll => "all_to_all",
            Kind::Broadcast { .. } => "broadcast",
            Kind::Permute(_) => "permute",
            Kind::Barrier => "barrier",
        }
    }

    /// The operator of a combination.
    pub fn combines(&self) -> Option<ReduceOp> {
        match self {
            Kind::AllReduce(op) | Kind::ReduceScatter(op) => Some(*op),
            Kind::AllGather
            | Kind::AllToAll
            | Kind::Broadcast { .. }
            | Kind::Permute(_)
            | Kind::Barrier => None,
        }
    }

    pub(crate) fn number(&self) -> u8 {
        match self {
            Kind::AllReduce(_) => 1,
            Kind::ReduceScatter(_) => 2,
            Kind::AllGather => 3,
            Kind::AllToAll => 4,
            Kind::Broadcast { .. } => 5,
            Kind::Permute(_) => 6,
            Kind::Barrier => 7,
        }
    }

    /// The name of the kind with this number.
    pub(crate) fn named(number: u8) -> &'static str {
        const NAMES: [&str; 8] = [
            "no collective",
            "all_reduce",
            "reduce_scatter",
            "all_gather",
            "all_to_all",
            "broadcast",
            "permute",
            "barrier",
        ];
        NAMES.get(usize::from(number)).unwrap_or(&NAMES[0])
    }
}

/// One collective, as each member calls it.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    pub kind: Kind,
    /// Of the elements in memory. Contributions have an accumulation dtype.
    pub dtype: DType,
    /// Elements of the block of each member, where members have blocks (`all_gather`, `reduce_scatter`); of `all_to_all`, what this
    /// member sends to each; else one number, or none of a barrier.
    pub counts: Vec<u64>,
    /// The user's line.
    pub at: Loc,
    /// The combination that this moves data for.
    pub part_of: Option<Arc<Call>>,
}

impl Call {
    /// The elements that a member sends or holds in all.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// What the program calls.
    pub fn shown(&self) -> &Kind {
        self.part_of.as_ref().map_or(&self.kind, |whole| &whole.kind)
    }

    /// Equal of calls that belong together. What `all_to_all` sends differs between members, and is compared pair by pair; of a part of
    /// a combination the sizes of that count.
    pub fn hash(&self) -> u64 {
        let mut hasher = StableHasher::new();
        hasher.write_str(self.dtype.name());
        let whole = self.part_of.as_deref();
        for kind in [Some(&self.kind), whole.map(|w| &w.kind)].into_iter().flatten() {
            hasher.write_u64(u64::from(kind.number()));
            match kind {
                Kind::AllReduce(op) | Kind::ReduceScatter(op) => hasher.write_str(op.name()),
                Kind::Broadcast { root } => hasher.write_u64(*root as u64),
                Kind::Permute(pairs) => pairs.iter().for_each(|&(source, target)| {
                    hasher.write_u64(source as u64);
                    hasher.write_u64(target as u64);
                }),
                Kind::AllGather | Kind::AllToAll | Kind::Barrier => {}
            }
        }
        if self.kind != Kind::AllToAll || whole.is_some() {
            whole.unwrap_or(self).counts.iter().for_each(|&n| hasher.write_u64(n));
        }
        let bytes = hasher.finish().0;
        u64::from_le_bytes(bytes[..8].try_into().unwrap_or_default())
    }
}

/// Such as `all_reduce sum of 4 f32`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(whole) = &self.part_of {
            return whole.fmt(f);
        }
        let kind = &self.kind;
        f.write_str(kind.name())?;
        match kind {
            Kind::AllReduce(op) | Kind::ReduceScatter(op) => write!(f, " {}", op.name())?,
            Kind::Broadcast { root } => write!(f, " from position {root}")?,
            Kind::Permute(pairs) => {
                let each: Vec<String> = pairs.iter().map(|(s, t)| format!("{s} to {t}")).collect();
                write!(
                    f,
                    " {}",
                    if each.is_empty() { "along no pairs".into() } else { each.join(", ") }
                )?;
            }
            Kind::AllGather | Kind::AllToAll => {}
            Kind::Barrier => return Ok(()),
        }
        let even = self.counts.windows(2).all(|w| w[0] == w[1]);
        let dtype = self.dtype.name();
        match (&self.counts[..], even) {
            ([n], _) => write!(f, " of {n} {dtype}"),
            ([n, ..], true) => write!(f, " of {} × {n} {dtype}", self.counts.len()),
            (counts, _) => {
                let each: Vec<String> = counts.iter().map(u64::to_string).collect();
                write!(f, " of {} {dtype}", each.join(" + "))
            }
        }
    }
}

pub const HEADER_BYTES: usize = 40;

/// What goes in front of each message between processes, and is compared in one.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header {
    pub group: u32,
    /// Collectives of a group are numbered, by each member alike.
    pub sequence: u64,
    /// The position of the sender.
    pub from: u32,
    pub kind: u8,
    pub dtype: u8,
    /// Elements of the call; of a part of a combination, those of that.
    pub count: u64,
    /// [`Call::hash`].
    pub call: u64,
    /// CRC-32C of the payload.
    pub checksum: u32,
}

impl Header {
    pub fn new(group: u32, sequence: u64, from: u32, call: &Call) -> Self {
        let dtype = DType::ALL.iter().position(|d| *d == call.dtype).unwrap_or(0) as u8;
        let count = call.part_of.as_deref().unwrap_or(call).count();
        let kind = call.kind.number();
        Self { group, sequence, from, kind, dtype, count, call: call.hash(), checksum: 0 }
    }

    /// In the order of the fields, little-endian.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&self.group.to_le_bytes());
        put(&self.from.to_le_bytes());
        put(&self.sequence.to_le_bytes());
        put(&self.count.to_le_bytes());
        put(&self.call.to_le_bytes());
        put(&self.checksum.to_le_bytes());
        put(&[self.kind, self.dtype, VERSION, 0]);
        out
    }

    /// `None` of bytes that are no header of this version.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
        let wide = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let (kind, dtype, version, end) = (bytes[36], bytes[37], bytes[38], bytes[39]);
        let known = (1..=7).contains(&kind) && usize::from(dtype) < DType::ALL.len();
        (known && version == VERSION && end == 0).then(|| Self {
            group: word(0),
            from: word(4),
            sequence: wide(8),
            count: wide(16),
            call: wide(24),
            checksum: word(32),
            kind,
            dtype,
        })
    }

    /// Whether both are of one call. Counts of `all_to_all` may differ.
    pub fn agrees(&self, other: &Self) -> bool {
        (self.group, self.sequence, self.kind, self.dtype, self.call)
            == (other.group, other.sequence, other.kind, other.dtype, other.call)
    }
}

/// What a header says of a call that is not known: `all_reduce of 4 f32`.
impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtype = DType::ALL.get(usize::from(self.dtype)).map_or("", |d| d.name());
        write!(f, "{} of {} {dtype}", Kind::named(self.kind), self.count)
    }
}

/// Of the header's form. It changes with the form.
const VERSION: u8 = 1;
