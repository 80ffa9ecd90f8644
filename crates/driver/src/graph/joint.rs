//! A collective of a program of ranks, as the transport takes it.

use super::run::bytes_of;
use std::sync::Arc;
use tessera_comm::{Call, GroupId, Kind, Piece};
use tessera_plan::{Array, Collective, Together};

/// What is alike of a collective for all ranks, and the group of each.
pub struct Joint {
    pub groups: Vec<GroupId>,
    pub call: Arc<Call>,
    pub send: Arc<[Piece]>,
    pub receive: Arc<[Piece]>,
}

impl Joint {
    /// `n` ranks take part in it.
    pub fn new(how: &Collective, from: &Array, to: &Array, n: usize, groups: Vec<GroupId>) -> Self {
        let item = from.dtype.bytes();
        let extents =
            |a: &Array| -> Vec<usize> { a.dims.iter().map(|&d| d.max(0) as usize).collect() };
        let elements = |a: &Array| extents(a).iter().product::<usize>();
        let whole = |a: &Array| vec![Piece::contiguous(0, bytes_of(&a.dims, a.dtype))];
        let cut = |a: &Array, dim: usize| -> Vec<Piece> {
            let dims = extents(a);
            let each = dims[dim] / n;
            (0..n).map(|m| Piece::along(&dims, dim, m * each, each, item)).collect()
        };
        let count = |elements: usize| elements as u64;
        let (kind, counts, send, receive) = match &how.kind {
            Together::AllReduce(op) => {
                (Kind::AllReduce(*op), vec![count(elements(from))], whole(from), whole(to))
            }
            Together::ReduceScatter { op, dim } => {
                let counts = vec![count(elements(to)); n];
                (Kind::ReduceScatter(*op), counts, cut(from, *dim), whole(to))
            }
            Together::AllGather { dim } => {
                (Kind::AllGather, vec![count(elements(from)); n], whole(from), cut(to, *dim))
            }
            Together::AllToAll { split, concat } => {
                let counts = vec![count(elements(from) / n); n];
                (Kind::AllToAll, counts, cut(from, *split), cut(to, *concat))
            }
            Together::Permute(pairs) => {
                let kind = Kind::Permute(Arc::from(&pairs[..]));
                (kind, vec![count(elements(from))], whole(from), whole(to))
            }
            Together::FromRank { root } => {
                let kind = Kind::Broadcast { root: *root };
                (kind, vec![count(elements(from))], whole(from), whole(to))
            }
        };
        let call = Call { kind, dtype: from.dtype, counts, at: how.loc.clone(), part_of: None };
        Self { groups, call: call.into(), send: send.into(), receive: receive.into() }
    }
}
