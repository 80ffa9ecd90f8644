//! The collectives that a function runs: how often, and how much of a rank's memory takes part.

use crate::ops::collective::MeshAxes;
use crate::states::is_collective;
use crate::{Graph, GraphFunc, GraphModule, GraphOp};
use tessera_diag::Loc;
use tessera_ir::{Attr, BlockId, OpId, Opcode, Type};

/// A collective of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Collective {
    /// Such as `all_reduce`.
    pub kind: &'static str,
    pub axes: Vec<String>,
    /// How many ranks take part.
    pub ranks: i64,
    /// Of the value on one rank that is combined, sent or gathered.
    pub nbytes: i64,
    /// How often it runs. Bodies of `while` count once, and both branches of a `cond`.
    pub times: i64,
    /// The op that requested it.
    pub loc: Loc,
    /// Whether the program says it: as a collective, or as a placement of a value. Otherwise the partitioner needs it for an op.
    pub is_written: bool,
    /// Those of one number run as one, where they were joined.
    pub bucket: Option<usize>,
}

impl Collective {
    /// The bytes that a rank sends each time, by the algorithms that send least.
    pub fn sent(&self) -> i64 {
        let others = self.nbytes / self.ranks.max(1) * (self.ranks - 1);
        match self.kind {
            "all_reduce" => 2 * others,
            "all_gather" | "reduce_scatter" | "all_to_all" => others,
            _ => self.nbytes,
        }
    }
}

/// The collectives that a function runs, in order; those that nobody needs are left out.
pub fn collectives(module: &GraphModule, func: &str) -> Vec<Collective> {
    let mut module = module.clone();
    crate::walk::dce_module(&mut module, &[func]);
    let mut out = Vec::new();
    if let Some(func) = module.func(func) {
        block(&module, func, func.body, 1, &mut out);
    }
    out
}

fn block(
    module: &GraphModule,
    func: &GraphFunc,
    at: BlockId,
    times: i64,
    out: &mut Vec<Collective>,
) {
    for &id in &func.blocks[at].ops {
        let op = &func.ops[id];
        if is_collective(op.code) {
            out.extend(one(func, id, times));
            continue;
        }
        if op.code == GraphOp::Call {
            let callee = op.attr("callee").and_then(Attr::as_ref_name);
            if let Some(callee) = callee.and_then(|name| module.func(name)) {
                block(module, callee, callee.body, times, out);
            }
        }
        let trips = match op.code {
            GraphOp::Loop => op.attr("trip").and_then(Attr::as_int).unwrap_or(1).max(0),
            _ => 1,
        };
        for &region in &op.regions {
            block(module, func, region, times.saturating_mul(trips), out);
        }
    }
}

fn one(func: &GraphFunc, id: OpId, times: i64) -> Option<Collective> {
    let op = &func.ops[id];
    let axes = MeshAxes::of(&op.attrs).ok()?;
    // What is gathered is the result, what is combined or sent the operand.
    let ty = match op.code {
        GraphOp::AllGather => func.ty(op.result()),
        _ => func.ty(*op.operands.first()?),
    };
    let kind = match op.code {
        GraphOp::FromRank => "broadcast",
        code => Opcode::<Graph>::mnemonic(code),
    };
    (times > 0).then(|| Collective {
        kind,
        ranks: axes.count(),
        axes: axes.names,
        nbytes: bytes(ty),
        times,
        loc: op.loc.clone(),
        is_written: true,
        bucket: None,
    })
}

fn bytes(ty: &Type) -> i64 {
    let count = ty.shape().iter().try_fold(1i64, |n, d| n.checked_mul(d.as_static()?));
    count.unwrap_or(0).saturating_mul(ty.dtype().bytes() as i64)
}
