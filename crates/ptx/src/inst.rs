//! The PTX instructions that are used, as typed data: what has no representation here is not
//! emitted.
//!
//! Registers have a width and no number type; an instruction says how it reads them. A kernel is
//! valid when `verify` accepts it for its target.

use tessera_tile::ops::asm::Piece;

/// The width of a register.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    Pred,
    B16,
    B32,
    B64,
}

/// A virtual register: numbered within its class.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reg {
    pub class: Class,
    pub id: u32,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Label(pub u32);

/// How an instruction interprets the bits of its operands.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ty {
    Pred,
    B8,
    B16,
    B32,
    B64,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    Tf32,
    F32,
    F64,
    E4M3,
    E5M2,
    E4M3x2,
    E5M2x2,
    /// The next four exist from sm_100 on.
    E2M1x2,
    E2M3x2,
    E3M2x2,
    UE8M0x2,
    /// Only for MMA operands: several share a register.
    U4,
    S4,
    E2M1,
    E2M3,
    E3M2,
}

impl Ty {
    pub fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::U4 | Ty::S4 | Ty::E2M1 => 4,
            // Six-bit elements take a byte each.
            Ty::E2M3 | Ty::E3M2 => 8,
            Ty::B8 | Ty::U8 | Ty::S8 | Ty::E4M3 | Ty::E5M2 | Ty::E2M1x2 => 8,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::BF16 | Ty::E4M3x2 | Ty::E5M2x2 => 16,
            Ty::E2M3x2 | Ty::E3M2x2 | Ty::UE8M0x2 => 16,
            Ty::B32 | Ty::U32 | Ty::S32 | Ty::F16x2 | Ty::BF16x2 | Ty::Tf32 | Ty::F32 => 32,
            Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => 64,
        }
    }

    /// The registers that hold it. Bytes are held in 16 bits.
    pub fn class(self) -> Class {
        match self.bits() {
            1 => Class::Pred,
            4 | 8 | 16 => Class::B16,
            32 => Class::B32,
            _ => Class::B64,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Ty::F16 | Ty::F16x2 | Ty::BF16 | Ty::BF16x2 | Ty::Tf32 | Ty::F32 | Ty::F64)
    }

    pub fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }
}

/// Special registers.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Special {
    TidX,
    NtidX,
    CtaidX,
    CtaidY,
    CtaidZ,
    NctaidX,
    NctaidY,
    NctaidZ,
    LaneId,
    /// The block's rank in the cluster, and the cluster size; the cluster's index, and their
    /// number.
    ClusterCtaRank,
    ClusterNctaRank,
    ClusterIdX,
    NclusterIdX,
    SmId,
    /// 64 bits; the others have 32.
    Clock64,
    GlobalTimer,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Opnd {
    Reg(Reg),
    /// An integer, by its low bits.
    Int(i64),
    /// A float, by its bits.
    F32(u32),
    F64(u64),
    Special(Special),
}

impl From<Reg> for Opnd {
    fn from(r: Reg) -> Self {
        Opnd::Reg(r)
    }
}

impl From<i64> for Opnd {
    fn from(v: i64) -> Self {
        Opnd::Int(v)
    }
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Round {
    /// To nearest even, towards zero, down, up; `Na` to nearest, ties away (tf32 alone).
    Rn,
    Rz,
    Rm,
    Rp,
    Rna,
    /// The same to an integer.
    Rni,
    Rzi,
    Rmi,
    Rpi,
}

/// Operations on one to three numbers. Float operations need a rounding mode.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Alu {
    Add,
    /// With and from the carry flag: for sums wider than a register.
    AddCc,
    Addc,
    Sub,
    /// Of floats.
    Mul,
    /// Of integers: the low half, the high half, the whole product.
    MulLo,
    MulHi,
    MulWide,
    MadLo,
    MadWide,
    Fma,
    Div,
    Rem,
    Neg,
    Abs,
    Min,
    Max,
    /// Of floats: NaN is propagated.
    MinNan,
    MaxNan,
    And,
    Or,
    Xor,
    Not,
    Shl,
    Shr,
    Sqrt,
    Rcp,
    /// Approximations.
    SqrtApprox,
    RcpApprox,
    DivApprox,
    RsqrtApprox,
    Ex2Approx,
    Lg2Approx,
    SinApprox,
    CosApprox,
    TanhApprox,
    Popc,
    Clz,
    Brev,
    /// a, position, length.
    Bfe,
    /// a into b at position, length.
    Bfi,
    /// Bytes of a and b by a selector.
    Prmt,
    /// a:b shifted by c, the low or high word: `.wrap`.
    ShfL,
    ShfR,
    /// Any function of three words, by its truth table.
    Lop3(u8),
    /// The dot product of four bytes, plus c.
    Dp4a,
    /// The sign of a with the magnitude of b.
    CopySign,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    /// Floats: true also where an operand is NaN.
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    /// Floats: whether both are numbers; whether one is NaN.
    Num,
    Nan,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Space {
    Global,
    Shared,
    /// Shared memory of any block of the cluster.
    SharedCluster,
    Param,
    Local,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Base {
    Reg(Reg),
    /// A parameter block or a shared variable by its name.
    Name(String),
    /// An absolute shared address.
    None,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Addr {
    pub base: Base,
    pub offset: i64,
}

impl Addr {
    pub fn reg(base: Reg, offset: i64) -> Self {
        Self { base: Base::Reg(base), offset }
    }

    pub fn name(name: &str, offset: i64) -> Self {
        Self { base: Base::Name(name.to_string()), offset }
    }
}

/// Cache hints of a global access.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cache {
    /// None.
    Usual,
    /// Read once: not allocated in L1 (`.L1::no_allocate`), evicted first.
    Stream,
    /// Read-only for the whole kernel (`.nc`).
    ReadOnly,
    /// Both of the above.
    ReadOnlyStream,
}

/// The memory order of an access.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Sem {
    Weak,
    Relaxed,
    Acquire,
    Release,
    AcqRel,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scope {
    Cta,
    Cluster,
    Gpu,
    Sys,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AtomOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Inc,
    Dec,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Shfl {
    Up,
    Down,
    Bfly,
    Idx,
}

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Vote {
    Any,
    All,
    Uni,
    /// Gives the mask of all lanes' votes.
    Ballot,
}

/// A row of the table of warp-level MMAs.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MmaRow {
    pub m: u32,
    pub n: u32,
    pub k: u32,
    pub a: Ty,
    pub b: Ty,
    /// Of the accumulator and the result.
    pub c: Ty,
    /// Integers: saturate instead of wrap.
    pub sat: bool,
}

/// A row of the table of WGMMAs; m is 64.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WgmmaRow {
    pub n: u32,
    pub k: u32,
    pub a: Ty,
    pub b: Ty,
    /// Of the accumulator, which is also the result.
    pub c: Ty,
    /// Integers: saturate instead of wrap.
    pub sat: bool,
}

/// The first operand of a WGMMA.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WgmmaA {
    /// In shared memory, by a descriptor in a 64-bit register.
    Shared(Reg),
    Regs([Reg; 4]),
}

// One line per instruction.
#[rustfmt::skip]
#[derive(Clone, PartialEq, Debug)]
pub enum Inst {
    Mov { ty: Ty, d: Reg, a: Opnd },
    /// Packs several narrow registers into one wide one, the first lowest; and unpacks.
    Pack { d: Reg, parts: Vec<Reg> },
    Unpack { parts: Vec<Reg>, a: Reg },
    /// The address of a shared variable (`dynamic_shared` too) or parameter.
    AddressOf { d: Reg, name: String },
    Alu { op: Alu, ty: Ty, round: Option<Round>, ftz: bool, sat: bool, d: Reg, a: Vec<Opnd> },
    /// `b` is the second number of a packed result, which goes to the low half.
    Cvt { d: Reg, to: Ty, a: Opnd, b: Option<Opnd>, from: Ty, round: Option<Round>, ftz: bool, sat: bool },
    Setp { cmp: Cmp, ty: Ty, ftz: bool, d: Reg, a: Opnd, b: Opnd },
    Selp { ty: Ty, d: Reg, a: Opnd, b: Opnd, p: Reg },
    Ld { space: Space, ty: Ty, d: Vec<Reg>, addr: Addr, cache: Cache, sem: Sem, scope: Scope },
    St { space: Space, ty: Ty, a: Vec<Opnd>, addr: Addr, cache: Cache, sem: Sem, scope: Scope },
    /// `b` is the new value of `Cas`.
    Atom { space: Space, sem: Sem, scope: Scope, op: AtomOp, ty: Ty, d: Reg, addr: Addr, a: Opnd, b: Option<Opnd> },
    /// The same without the old value; a vector where the target has it.
    Red { space: Space, sem: Sem, scope: Scope, op: AtomOp, ty: Ty, addr: Addr, a: Vec<Opnd> },
    /// `c` holds the segment and the clamp, as PTX packs them.
    Shfl { kind: Shfl, d: Reg, ok: Option<Reg>, a: Opnd, b: Opnd, c: Opnd, mask: Opnd },
    Vote { kind: Vote, d: Reg, p: Guardless, mask: Opnd },
    /// A reduction over all lanes: integers from sm_80 on.
    Redux { op: AtomOp, ty: Ty, d: Reg, a: Opnd, mask: Opnd },
    Activemask { d: Reg },
    /// All threads of the block, or `count` of them, synchronise at named barrier `id`, which is
    /// uniform over a warp.
    BarSync { id: Opnd, count: Option<u32> },
    BarArrive { id: Opnd, count: u32 },
    /// Synchronises the block and gives every thread whether any (`or`) has `p`.
    BarRedOr { id: u32, d: Reg, p: Reg },
    WarpSync { mask: Opnd },
    Fence { sem: Sem, scope: Scope },
    /// Makes writes of threads to shared memory visible to the async proxy (TMA, WGMMA).
    FenceProxyAsync,
    CpAsync { dst: Addr, src: Addr, bytes: u32, src_bytes: Option<Opnd> },
    CpCommit,
    CpWait { groups: u32 },
    Ldmatrix { d: Vec<Reg>, trans: bool, addr: Addr },
    Stmatrix { a: Vec<Reg>, trans: bool, addr: Addr },
    Mma { row: MmaRow, d: Vec<Reg>, a: Vec<Reg>, b: Vec<Reg>, c: Vec<Reg> },
    /// The address of the same variable in another block of the cluster.
    Mapa { d: Reg, a: Reg, rank: Opnd },
    ClusterArrive { release: bool },
    /// Always acquires: PTX has no other.
    ClusterWait { acquire: bool },
    Bra { to: Label, uniform: bool },
    Ret,
    Trap,
    Nanosleep { ns: u32 },
    /// Text of the user's: its registers are those of `d`, then those of `a`. Nothing is known of it
    /// but what it reads and writes.
    Text { pieces: Vec<Piece>, d: Vec<Reg>, a: Vec<Reg> },
    /// Marks an event for a profiler. The assembler moves nothing across it.
    Event { number: u32 },

    /// mbarriers, 8 bytes each. `count` arrivals (and the expected bytes) complete a phase.
    MbarInit { addr: Addr, count: Opnd },
    MbarInval { addr: Addr },
    /// `space` is `Shared`, or `SharedCluster` where `addr` comes from `Mapa`.
    MbarArrive { space: Space, addr: Addr, count: Option<Opnd> },
    /// Arrives and makes the phase expect `bytes` more.
    MbarArriveExpect { space: Space, addr: Addr, bytes: Opnd },
    /// Expects bytes without arriving.
    MbarExpect { addr: Addr, bytes: Opnd },
    /// Whether the phase of this parity is complete; `block` lets the hardware wait a while for it.
    MbarWait { d: Reg, addr: Addr, parity: Opnd, block: bool },
    /// Makes initialised mbarriers visible to the cluster and to asynchronous copies.
    FenceMbarInit,
    /// This thread's `CpAsync` copies arrive when they complete; `MbarInit` counted them.
    CpAsyncArrive { addr: Addr },

    /// TMA load of a box of the tensor that the map at `map` describes, into shared memory; its
    /// bytes are counted at `bar`. `multicast` is a 16-bit mask of blocks of the cluster, `hint` a
    /// cache policy.
    TmaLoad { dst: Addr, map: Reg, coords: Vec<Opnd>, bar: Addr, multicast: Option<Opnd>, hint: Option<Reg> },
    TmaStore { map: Reg, coords: Vec<Opnd>, src: Addr, hint: Option<Reg> },
    TmaReduce { op: AtomOp, map: Reg, coords: Vec<Opnd>, src: Addr, hint: Option<Reg> },
    TmaPrefetch { map: Reg, coords: Vec<Opnd> },
    /// Bulk copies of contiguous bytes from global to shared memory, and back.
    BulkLoad { dst: Addr, src: Addr, bytes: Opnd, bar: Addr, multicast: Option<Opnd>, hint: Option<Reg> },
    BulkStore { dst: Addr, src: Addr, bytes: Opnd, hint: Option<Reg> },
    BulkReduce { op: AtomOp, ty: Ty, dst: Addr, src: Addr, bytes: Opnd, hint: Option<Reg> },
    /// From this block's shared memory to another's; `dst` and `bar` come from `Mapa`.
    BulkSend { dst: Addr, src: Addr, bytes: Opnd, bar: Addr },
    BulkPrefetch { src: Addr, bytes: Opnd },
    BulkCommit,
    /// Until at most `groups` are in flight; `read`: until their sources may be overwritten.
    BulkWait { groups: u32, read: bool },
    PrefetchMap { map: Reg },
    /// Prefetches a line of global memory into L2.
    Prefetch { addr: Addr },
    /// Makes writes of threads to global memory visible to the async proxy.
    FenceProxyAsyncGlobal,

    /// Stores into another block's shared memory; their bytes are counted at `bar` there.
    StAsync { ty: Ty, addr: Addr, a: Vec<Opnd>, bar: Addr },
    RedAsync { op: AtomOp, ty: Ty, addr: Addr, a: Opnd, bar: Addr },

    /// `b` is a descriptor. `add`: a predicate, or 1 or 0: whether `d` is added to or replaced.
    /// Only 16-bit elements may be transposed, and `a` not in registers.
    Wgmma { row: WgmmaRow, d: Vec<Reg>, a: WgmmaA, b: Reg, add: Opnd, neg_a: bool, neg_b: bool, trans_a: bool, trans_b: bool },
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait { groups: u32 },
    /// Register reallocation: the warpgroup takes registers, or releases them.
    SetMaxRegs { more: bool, count: u32 },
    /// True in one thread of those in `mask`.
    Elect { p: Reg, mask: Opnd },
    /// Programmatic dependent launch: waits for the previous kernel; lets the next one start.
    GridWait,
    GridLaunchNext,
}

impl MmaRow {
    /// Registers of a thread for the first operand, the second, and the accumulator.
    pub fn regs(self) -> [usize; 3] {
        let of = |elements: u32, ty: Ty| {
            let bits = elements / 32 * ty.bits();
            (bits / if ty == Ty::F64 { 64 } else { 32 }) as usize
        };
        // In this form every element of 8 bits or less takes a byte.
        let (a, b) = match self.is_f8f6f4() {
            true => (Ty::B8, Ty::B8),
            false => (self.a, self.b),
        };
        [of(self.m * self.k, a), of(self.k * self.n, b), of(self.m * self.n, self.c)]
    }

    /// Whether it is the form of mixed 8, 6 and 4 bits (`kind::f8f6f4`).
    pub fn is_f8f6f4(self) -> bool {
        [self.a, self.b].iter().any(|t| matches!(t, Ty::E2M1 | Ty::E2M3 | Ty::E3M2))
    }
}

impl WgmmaRow {
    /// Registers of a thread for the accumulator.
    pub fn regs(self) -> usize {
        (64 * self.n / 128 * self.c.bits() / 32) as usize
    }
}

/// A predicate that may be read negated.
pub type Guardless = crate::module::Guard;
