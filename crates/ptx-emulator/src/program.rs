//! A decoded kernel: labels are step indices, registers and constants are rows of a register file,
//! and every instruction has chosen the code that executes it.

use super::alu::AluSpec;
use super::cvt::CvtSpec;
use super::fast::{CmpRow, Row};
use std::collections::{BTreeMap, BTreeSet};
use tessera_ptx::inst::*;

/// A row of the register file: 32 or 64 bits a lane, or one bit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Slot {
    N(u32),
    W(u32),
    P(u32),
}

impl Slot {
    pub fn row(self) -> u32 {
        match self {
            Slot::N(r) | Slot::W(r) | Slot::P(r) => r,
        }
    }
}

/// An address: an optional register plus a constant.
#[derive(Copy, Clone, Debug)]
pub(super) struct Where {
    pub base: Option<Slot>,
    pub offset: i64,
}

/// A load or a store of one to eight values.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub space: Space,
    /// Of one value.
    pub bytes: u32,
    pub signed: bool,
    pub at: Where,
    pub regs: Box<[Slot]>,
    /// Relaxed or stronger: such accesses do not race with each other.
    pub strong: bool,
    /// Rows below this one are 16-bit registers.
    pub halves: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Atomic {
    pub space: Space,
    pub op: AtomOp,
    pub ty: Ty,
    pub at: Where,
    /// The destination of the old value.
    pub d: Option<Slot>,
    pub a: Box<[Slot]>,
    pub b: Option<Slot>,
}

#[derive(Clone, Debug)]
pub(super) struct Shuffle {
    pub kind: Shfl,
    pub d: Slot,
    pub ok: Option<u32>,
    pub a: Slot,
    pub b: Slot,
    pub c: Slot,
    pub mask: Slot,
}

#[derive(Clone, Debug)]
pub(super) struct WarpMma {
    pub row: MmaRow,
    pub d: Box<[Slot]>,
    pub a: Box<[Slot]>,
    pub b: Box<[Slot]>,
    pub c: Box<[Slot]>,
}

/// An asynchronous bulk copy.
#[derive(Clone, Debug)]
pub(super) enum Bulk {
    Load { dst: Where, src: Where, bytes: Slot, bar: Where, multicast: Option<Slot> },
    TensorLoad { dst: Where, map: Slot, coords: Box<[Slot]>, bar: Where, multicast: Option<Slot> },
    Store { dst: Where, src: Where, bytes: Slot, reduce: Option<(AtomOp, Ty)> },
    TensorStore { map: Slot, coords: Box<[Slot]>, src: Where, reduce: Option<AtomOp> },
    Send { dst: Where, src: Where, bytes: Slot, bar: Where },
    Put { addr: Where, a: Box<[Slot]>, bytes: u32, bar: Where, reduce: Option<(AtomOp, Ty)> },
    CopyArrive { bar: Where },
}

#[derive(Clone, Debug)]
pub(super) enum GroupA {
    Shared(Slot),
    Regs([Slot; 4]),
}

#[derive(Clone, Debug)]
pub(super) struct GroupMma {
    pub row: WgmmaRow,
    pub d: Box<[Slot]>,
    pub a: GroupA,
    pub b: Slot,
    /// A predicate.
    pub add: Slot,
    pub neg_a: bool,
    pub neg_b: bool,
    pub trans_a: bool,
    pub trans_b: bool,
}

#[derive(Clone)]
pub(super) enum Op {
    Mov {
        d: Slot,
        a: Slot,
    },
    Row {
        f: Row,
        d: u32,
        a: u32,
        b: u32,
        c: u32,
    },
    Alu {
        spec: AluSpec,
        d: Slot,
        a: Box<[Slot; 4]>,
    },
    /// Addition with the carry flag, of 32 or 64 bits.
    Carry {
        from: bool,
        to: bool,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Cvt {
        spec: CvtSpec,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    CmpRow {
        f: CmpRow,
        d: u32,
        a: u32,
        b: u32,
    },
    Cmp {
        cmp: Cmp,
        ty: Ty,
        ftz: bool,
        d: u32,
        a: Slot,
        b: Slot,
    },
    Select {
        d: Slot,
        a: Slot,
        b: Slot,
        p: u32,
    },
    /// And, or, xor of predicates.
    Pred {
        op: Alu,
        d: u32,
        a: u32,
        b: u32,
    },
    Pack {
        d: Slot,
        parts: Box<[Slot]>,
        bits: u32,
    },
    Unpack {
        parts: Box<[Slot]>,
        a: Slot,
        bits: u32,
    },
    Clock {
        d: Slot,
    },
    Ld(Box<Access>),
    St(Box<Access>),
    Atom(Box<Atomic>),
    Shfl(Box<Shuffle>),
    Vote {
        kind: Vote,
        d: Slot,
        p: u32,
        negated: bool,
        mask: Slot,
    },
    Redux {
        op: AtomOp,
        signed: bool,
        d: Slot,
        a: Slot,
        mask: Slot,
    },
    Elect {
        p: u32,
        mask: Slot,
    },
    Activemask {
        d: Slot,
    },
    WarpSync {
        mask: Slot,
    },
    BarSync {
        id: Slot,
        count: Option<u32>,
    },
    BarArrive {
        id: Slot,
        count: u32,
    },
    BarRedOr {
        id: u32,
        d: u32,
        p: u32,
    },
    Copy {
        dst: Where,
        src: Where,
        bytes: u32,
        src_bytes: Option<Slot>,
    },
    CopyCommit,
    CopyWait {
        groups: u32,
    },
    Ldmatrix {
        d: Box<[Slot]>,
        trans: bool,
        at: Where,
    },
    Stmatrix {
        a: Box<[Slot]>,
        trans: bool,
        at: Where,
    },
    Mma(Box<WarpMma>),
    Mapa {
        d: Slot,
        a: Slot,
        rank: Slot,
    },
    ClusterArrive,
    ClusterWait,
    Bra {
        to: u32,
    },
    Ret,
    Trap,
    /// Without visible effect here: fences, prefetches, `nanosleep`.
    Nothing,
    MbarInit {
        at: Where,
        count: Slot,
    },
    MbarInval {
        at: Where,
    },
    /// Expects `bytes`, then arrives `count` times if `arrives`.
    Mbar {
        space: Space,
        at: Where,
        count: Option<Slot>,
        bytes: Option<Slot>,
        arrives: bool,
    },
    MbarWait {
        d: u32,
        at: Where,
        parity: Slot,
        block: bool,
    },
    Bulk(Box<Bulk>),
    BulkCommit,
    BulkWait {
        groups: u32,
    },
    FenceProxy,
    Wgmma(Box<GroupMma>),
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait {
        groups: u32,
    },
}

pub(super) struct Step {
    /// It touches WGMMA registers and is not a WGMMA.
    pub watched: bool,
    /// Twice the predicate, odd where it is negated; `ALWAYS` for none.
    pub guard: u32,
    pub op: Op,
}

pub(super) const ALWAYS: u32 = u32::MAX;

#[derive(Default)]
pub(super) struct Program {
    pub steps: Vec<Step>,
    /// The statement of the kernel's body that each step comes from.
    pub origin: Vec<u32>,
    /// Rows of each width.
    pub narrow: u32,
    pub wide: u32,
    pub preds: u32,
    /// Rows that hold constants.
    pub narrow_consts: BTreeMap<u32, u32>,
    pub wide_consts: BTreeMap<u64, u32>,
    pub pred_consts: BTreeMap<bool, u32>,
    pub specials: BTreeMap<Special, u32>,
    /// The offsets of shared variables, and the start of dynamic shared memory.
    pub shared: BTreeMap<String, u32>,
    pub shared_bytes: u32,
    /// Some asynchronous copy reads shared memory.
    pub async_copies: bool,
    /// Registers of WGMMAs.
    pub group_regs: BTreeSet<u32>,
    /// Which of them a step touches that is not a WGMMA.
    pub watch: BTreeMap<u32, Vec<u32>>,
    /// The narrowest access to shared memory, at most a word: the granularity of race detection.
    pub grain: u32,
}
