//! The family of Tile IR's ops: their rows as rows of Staged IR, derived once from those of Tile
//! IR. Two things differ: tiles have layouts, so loads and shape ops infer other types; and loops
//! carry values that Tile IR does not have.

use crate::ops::family::{
    infer_expand, infer_reduce, infer_transpose, verify_for, verify_if, verify_slow_path,
    verify_tile, verify_while,
};
use crate::{Staged, StagedOp};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use tessera_ir::{GroupSpec, InferFn, OpInfo, Opcode, TypeClass};
use tessera_tile::TileOp;

/// Whether an op of Tile IR is one of Staged IR too. Implicit origins are gone here, copies into
/// buffers are loads and stores, `block_barrier` is the barrier, and concatenations and elements by
/// position are expanded.
pub fn in_family(op: TileOp) -> bool {
    !matches!(
        op,
        TileOp::Origin
            | TileOp::CopyAsync
            | TileOp::CopyCommit
            | TileOp::CopyWait
            | TileOp::Barrier
            | TileOp::Concat
            | TileOp::Take
    )
}

pub(crate) fn all() -> Vec<TileOp> {
    TileOp::all().into_iter().filter(|&op| in_family(op)).collect()
}

pub(crate) fn name(op: TileOp) -> &'static str {
    op.mnemonic()
}

/// By the op's own name: other spellings are for text that users write.
pub(crate) fn parse(text: &str) -> Option<TileOp> {
    TileOp::from_mnemonic(text).filter(|&op| in_family(op) && op.mnemonic() == text)
}

pub(crate) fn info(op: TileOp) -> &'static OpInfo<Staged> {
    static ROWS: LazyLock<BTreeMap<TileOp, OpInfo<Staged>>> =
        LazyLock::new(|| TileOp::all().into_iter().map(|op| (op, row(op))).collect());
    &ROWS[&op]
}

/// Types that a loop carries here: also pending tiles and pipeline counters.
const INIT: &[GroupSpec] =
    &[GroupSpec { name: "init", class: TypeClass::Any, min: 0, max: usize::MAX }];
const VALUES: &[GroupSpec] =
    &[GroupSpec { name: "values", class: TypeClass::Any, min: 0, max: usize::MAX }];

fn row(op: TileOp) -> OpInfo<Staged> {
    let of = op.info();
    OpInfo {
        number: of.number,
        since: "0.2",
        doc: of.doc,
        example: "",
        operands: of.operands,
        groups: match op {
            TileOp::For | TileOp::While => INIT,
            TileOp::Yield => VALUES,
            _ => of.groups,
        },
        attrs: of.attrs,
        regions: of.regions,
        results: of.results,
        effects: of.effects,
        infer: infer(op),
        verify: Some(match op {
            TileOp::For => verify_for,
            TileOp::If => verify_if,
            TileOp::While => verify_while,
            TileOp::SlowPath => verify_slow_path,
            _ => verify_tile,
        }),
    }
}

/// How result types follow from the operands'; `None` where the layout may be any.
#[deny(clippy::wildcard_enum_match_arm)]
fn infer(op: TileOp) -> Option<InferFn> {
    match op {
        // These give an operand's type, with another dtype or not: its layout stays.
        TileOp::Ew(_) | TileOp::Select | TileOp::Philox | TileOp::Scan | TileOp::Mma => {
            op.info().infer
        }
        // These give indices or scalars.
        TileOp::ProgramId
        | TileOp::NumPrograms
        | TileOp::LinearId
        | TileOp::LocalId
        | TileOp::GroupSize
        | TileOp::WarpSize
        | TileOp::Dim
        | TileOp::Origin
        | TileOp::GroupReduce
        | TileOp::GroupScan
        | TileOp::GroupBroadcast
        | TileOp::GroupShuffle => op.info().infer,
        TileOp::Transpose => Some(infer_transpose),
        TileOp::Expand => Some(infer_expand),
        TileOp::Reduce => Some(infer_reduce),
        TileOp::ArgReduce => Some(crate::ops::family::infer_argreduce),
        // The layout of what comes from memory or from nothing is chosen.
        TileOp::Load | TileOp::Gather | TileOp::Atomic | TileOp::Const | TileOp::Iota => None,
        TileOp::Cast | TileOp::Bitcast | TileOp::Reshape | TileOp::Broadcast => None,
        TileOp::For
        | TileOp::If
        | TileOp::While
        | TileOp::SlowPath
        | TileOp::Yield
        | TileOp::Return => None,
        TileOp::Store
        | TileOp::Scatter
        | TileOp::Accumulate
        | TileOp::BufAlloc
        | TileOp::CopyAsync
        | TileOp::CopyCommit
        | TileOp::CopyWait
        | TileOp::Barrier
        | TileOp::Print
        | TileOp::Assert => None,
        TileOp::Slice
        | TileOp::Concat
        | TileOp::Take
        | TileOp::ReduceBy
        | TileOp::ScanBy
        | TileOp::Sort
        | TileOp::Histogram
        | TileOp::Owned
        | TileOp::Asm
        | TileOp::AsmEffect => None,
    }
}

/// The op of Tile IR that an op is, if it is one.
impl StagedOp {
    pub fn as_tile(self) -> Option<TileOp> {
        match self {
            StagedOp::Tile(op) => Some(op),
            _ => None,
        }
    }
}
