//! Collectives as steps of the plan of a rank.

use tessera_diag::{Code, Diagnostic, Loc};
use tessera_graph::ops::collective::{MeshAxes, pairs};
use tessera_graph::{Graph, GraphOp};
use tessera_ir::{Attr, Attrs, Op, Opcode};
use tessera_numerics::ReduceOp;

/// What ranks do together; positions are those along the axes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Together {
    AllReduce(ReduceOp),
    ReduceScatter { op: ReduceOp, dim: usize },
    AllGather { dim: usize },
    AllToAll { split: usize, concat: usize },
    Permute(Vec<(usize, usize)>),
    FromRank { root: usize },
}

#[derive(Clone, PartialEq, Debug)]
pub struct Collective {
    pub kind: Together,
    pub axes: MeshAxes,
    pub loc: Loc,
    /// As in the text of a plan.
    pub attrs: Attrs,
    /// The collectives that it is, where several were joined (`buckets`).
    pub members: Vec<Member>,
}

/// A collective of the program that is a part of another one of the plan.
#[derive(Clone, PartialEq, Debug)]
pub struct Member {
    pub loc: Loc,
    /// Of its operand on a rank.
    pub bytes: i64,
}

/// The queue of collectives: steps of queue 0 run beside them.
pub const QUEUE: usize = 1;

impl Collective {
    /// Such as `all_reduce`.
    pub fn name(&self) -> &str {
        self.attrs.get("kind").and_then(Attr::as_word).unwrap_or_default()
    }

    /// What a collective of Graph IR does; None of another op.
    pub fn of(op: &Op<Graph>) -> Result<Option<Collective>, Diagnostic> {
        use GraphOp::*;
        let axes = || MeshAxes::of(&op.attrs).map_err(|r| r.at(op.loc.clone()));
        let int = |name: &str| op.attr(name).and_then(Attr::as_int).unwrap_or(0).max(0) as usize;
        let word = op.attr("op").and_then(Attr::as_word).unwrap_or_default();
        let operator = || {
            ReduceOp::from_name(word).ok_or_else(|| {
                let why = format!("expected an operator of `{}`, got `{word}`", op.code.mnemonic());
                Diagnostic::new(Code::E_UNKNOWN, why).at(op.loc.clone())
            })
        };
        let kind = match op.code {
            AllReduce => Together::AllReduce(operator()?),
            ReduceScatter => Together::ReduceScatter { op: operator()?, dim: int("dim") },
            AllGather => Together::AllGather { dim: int("dim") },
            AllToAll => Together::AllToAll { split: int("split"), concat: int("concat") },
            FromRank => Together::FromRank { root: int("root") },
            Permute => {
                let attr = op.attr("pairs").cloned().unwrap_or(Attr::List(Vec::new()));
                let pairs = pairs(&attr, &axes()?).map_err(|r| r.at(op.loc.clone()))?;
                Together::Permute(pairs.iter().map(|&(s, t)| (s as usize, t as usize)).collect())
            }
            _ => return Ok(None),
        };
        let attrs = Attrs::new().with("kind", Attr::word(op.code.mnemonic()));
        let attrs = op.attrs.iter().fold(attrs, |all, (name, value)| all.with(name, value.clone()));
        let (loc, members) = (op.loc.clone(), Vec::new());
        Ok(Some(Collective { kind, axes: axes()?, loc, attrs, members }))
    }
}
