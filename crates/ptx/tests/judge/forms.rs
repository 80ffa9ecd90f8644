//! Every form of every instruction: claimed or not, valid or not. Registers are any of the right
//! width; the assembler does not check that they were written.

use std::iter;
use tessera_ptx::caps::MMA_SHAPES;
use tessera_ptx::operands::alu_classes;
use tessera_ptx::*;
use tessera_tile::ops::asm::Piece;

pub const TYPES: &[Ty] = &[
    Ty::Pred,
    Ty::B8,
    Ty::B16,
    Ty::B32,
    Ty::B64,
    Ty::U8,
    Ty::U16,
    Ty::U32,
    Ty::U64,
    Ty::S8,
    Ty::S16,
    Ty::S32,
    Ty::S64,
    Ty::F16,
    Ty::F16x2,
    Ty::BF16,
    Ty::BF16x2,
    Ty::Tf32,
    Ty::F32,
    Ty::F64,
    Ty::E4M3,
    Ty::E5M2,
    Ty::E4M3x2,
    Ty::E5M2x2,
    Ty::E2M1x2,
    Ty::E2M3x2,
    Ty::E3M2x2,
    Ty::UE8M0x2,
];

const ALU: &[Alu] = &[
    Alu::Add,
    Alu::AddCc,
    Alu::Addc,
    Alu::Sub,
    Alu::Mul,
    Alu::MulLo,
    Alu::MulHi,
    Alu::MulWide,
    Alu::MadLo,
    Alu::MadWide,
    Alu::Fma,
    Alu::Div,
    Alu::Rem,
    Alu::Neg,
    Alu::Abs,
    Alu::Min,
    Alu::Max,
    Alu::MinNan,
    Alu::MaxNan,
    Alu::And,
    Alu::Or,
    Alu::Xor,
    Alu::Not,
    Alu::Shl,
    Alu::Shr,
    Alu::Sqrt,
    Alu::Rcp,
    Alu::SqrtApprox,
    Alu::RcpApprox,
    Alu::DivApprox,
    Alu::RsqrtApprox,
    Alu::Ex2Approx,
    Alu::Lg2Approx,
    Alu::SinApprox,
    Alu::CosApprox,
    Alu::TanhApprox,
    Alu::Popc,
    Alu::Clz,
    Alu::Brev,
    Alu::Bfe,
    Alu::Bfi,
    Alu::Prmt,
    Alu::ShfL,
    Alu::ShfR,
    Alu::Lop3(0xe8),
    Alu::Dp4a,
    Alu::CopySign,
];

const ROUNDS: &[Option<Round>] = &[
    None,
    Some(Round::Rn),
    Some(Round::Rz),
    Some(Round::Rm),
    Some(Round::Rp),
    Some(Round::Rna),
    Some(Round::Rni),
    Some(Round::Rzi),
    Some(Round::Rmi),
    Some(Round::Rpi),
];

const ATOMS: &[AtomOp] = &[
    AtomOp::Add,
    AtomOp::Min,
    AtomOp::Max,
    AtomOp::And,
    AtomOp::Or,
    AtomOp::Xor,
    AtomOp::Exch,
    AtomOp::Cas,
    AtomOp::Inc,
    AtomOp::Dec,
];

const CMPS: &[Cmp] = &[
    Cmp::Eq,
    Cmp::Ne,
    Cmp::Lt,
    Cmp::Le,
    Cmp::Gt,
    Cmp::Ge,
    Cmp::Equ,
    Cmp::Neu,
    Cmp::Ltu,
    Cmp::Leu,
    Cmp::Gtu,
    Cmp::Geu,
    Cmp::Num,
    Cmp::Nan,
];

const SPACES: &[Space] = &[Space::Global, Space::Shared, Space::SharedCluster];
const BOOLS: &[bool] = &[false, true];

/// Registers of each class that forms may name.
pub const REGISTERS: u32 = 160;
/// Names that forms may use.
pub const PARAM: &str = "args";
pub const SHARED: &str = "buffer";
pub const LABEL: Label = Label(0);

fn reg(class: Class, id: u32) -> Reg {
    Reg { class, id }
}

fn of(ty: Ty, id: u32) -> Reg {
    reg(ty.class(), id)
}

fn regs(class: Class, n: usize) -> Vec<Reg> {
    (0..n as u32).map(|id| reg(class, id)).collect()
}

fn words(n: usize) -> Vec<Reg> {
    regs(Class::B32, n)
}

fn word() -> Opnd {
    Opnd::Reg(reg(Class::B32, 3))
}

fn at(space: Space) -> Addr {
    match space {
        Space::Global => Addr::reg(reg(Class::B64, 1), 32),
        Space::Param => Addr::name(PARAM, 32),
        _ => Addr::reg(reg(Class::B32, 1), 32),
    }
}

fn shared() -> Addr {
    at(Space::Shared)
}

pub fn all() -> Vec<Inst> {
    let mut out = Vec::new();
    moves(&mut out);
    arithmetic(&mut out);
    conversions(&mut out);
    accesses(&mut out);
    atomics(&mut out);
    warps(&mut out);
    blocks(&mut out);
    products(&mut out);
    barriers(&mut out);
    copies(&mut out);
    warpgroups(&mut out);
    ends(&mut out);
    out
}

fn moves(out: &mut Vec<Inst>) {
    for &ty in TYPES {
        let (d, a, b) = (of(ty, 0), of(ty, 1).into(), of(ty, 2).into());
        out.push(Inst::Mov { ty, d, a });
        out.push(Inst::Selp { ty, d, a, b, p: reg(Class::Pred, 0) });
        if ty != Ty::Pred {
            out.push(Inst::Mov { ty, d, a: Opnd::Int(1) });
            out.push(Inst::Selp { ty, d, a: Opnd::Int(1), b, p: reg(Class::Pred, 0) });
        }
        for &cmp in CMPS {
            for &ftz in BOOLS {
                out.push(Inst::Setp { cmp, ty, ftz, d: reg(Class::Pred, 0), a, b });
            }
        }
    }
    out.push(Inst::Mov { ty: Ty::Pred, d: reg(Class::Pred, 0), a: Opnd::Int(1) });
    for (ty, a) in [(Ty::F32, Opnd::F32(0x3f80_0000)), (Ty::F64, Opnd::F64(0x3ff0 << 48))] {
        out.push(Inst::Mov { ty, d: of(ty, 0), a });
        out.push(Inst::Mov { ty: ty.untyped(), d: of(ty, 0), a });
    }
    for s in [
        Special::TidX,
        Special::NtidX,
        Special::CtaidX,
        Special::CtaidY,
        Special::CtaidZ,
        Special::NctaidX,
        Special::NctaidY,
        Special::NctaidZ,
        Special::LaneId,
        Special::ClusterCtaRank,
        Special::ClusterNctaRank,
        Special::ClusterIdX,
        Special::NclusterIdX,
        Special::SmId,
        Special::Clock64,
        Special::GlobalTimer,
    ] {
        out.push(Inst::Mov { ty: s.ty(), d: of(s.ty(), 0), a: Opnd::Special(s) });
    }
    for (whole, part, n) in
        [(Class::B32, Class::B16, 2), (Class::B64, Class::B32, 2), (Class::B64, Class::B16, 4)]
    {
        out.push(Inst::Pack { d: reg(whole, 9), parts: regs(part, n) });
        out.push(Inst::Unpack { parts: regs(part, n), a: reg(whole, 9) });
    }
    for (class, name) in [(Class::B32, SHARED), (Class::B64, PARAM)] {
        out.push(Inst::AddressOf { d: reg(class, 0), name: name.to_string() });
    }
}

fn arithmetic(out: &mut Vec<Inst>) {
    for &op in ALU {
        for &ty in TYPES {
            let (reads, write) = alu_classes(op, ty);
            let a: Vec<Opnd> = (1..).zip(reads).map(|(n, class)| reg(class, n).into()).collect();
            for &round in &ROUNDS[..6] {
                for (ftz, sat) in [(false, false), (false, true), (true, false), (true, true)] {
                    let (d, a) = (reg(write, 0), a.clone());
                    out.push(Inst::Alu { op, ty, round, ftz, sat, d, a });
                }
            }
        }
    }
}

fn conversions(out: &mut Vec<Inst>) {
    for &to in TYPES {
        for &from in TYPES {
            let named = |ty: Ty| ty != Ty::Pred && (ty != ty.untyped() || ty.is_integer());
            if !named(to) || !named(from) {
                continue;
            }
            for &round in ROUNDS {
                for bits in 0..8 {
                    let (ftz, sat, pair) = (bits & 1 != 0, bits & 2 != 0, bits & 4 != 0);
                    let (d, a) = (of(to, 0), of(from, 1).into());
                    let b = pair.then(|| of(from, 2).into());
                    out.push(Inst::Cvt { d, to, a, b, from, round, ftz, sat });
                }
            }
        }
    }
}

fn accesses(out: &mut Vec<Inst>) {
    let caches = [Cache::Usual, Cache::Stream, Cache::ReadOnly, Cache::ReadOnlyStream];
    let sems = [Sem::Weak, Sem::Relaxed, Sem::Acquire, Sem::Release, Sem::AcqRel];
    for &space in &[SPACES, &[Space::Param]].concat() {
        for &ty in TYPES {
            for n in [1, 2, 4, 8] {
                for (cache, sem) in caches.iter().flat_map(|c| sems.iter().map(|s| (*c, *s))) {
                    let (addr, scope, d) = (at(space), Scope::Gpu, regs(ty.class(), n));
                    let a = d.iter().map(|r| Opnd::Reg(*r)).collect();
                    out.push(Inst::Ld { space, ty, d, addr, cache, sem, scope });
                    let addr = at(space);
                    out.push(Inst::St { space, ty, a, addr, cache, sem, scope });
                }
            }
        }
    }
    for scope in [Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys] {
        let (space, ty, addr, cache) = (Space::Global, Ty::B32, at(Space::Global), Cache::Usual);
        out.push(Inst::Ld { space, ty, d: words(1), addr, cache, sem: Sem::Acquire, scope });
        for sem in sems {
            out.push(Inst::Fence { sem, scope });
        }
    }
    out.push(Inst::Prefetch { addr: at(Space::Global) });
}

fn atomics(out: &mut Vec<Inst>) {
    let (sem, scope) = (Sem::Relaxed, Scope::Gpu);
    for &space in SPACES {
        for &op in ATOMS {
            for &ty in TYPES {
                let (d, a) = (of(ty, 0), of(ty, 1).into());
                let b = (op == AtomOp::Cas).then(|| of(ty, 2).into());
                out.push(Inst::Atom { space, sem, scope, op, ty, d, addr: at(space), a, b });
                for n in [1, 2, 4, 8] {
                    let a = regs(ty.class(), n).into_iter().map(Opnd::Reg).collect();
                    out.push(Inst::Red { space, sem, scope, op, ty, addr: at(space), a });
                }
            }
        }
    }
    for sem in [Sem::Acquire, Sem::Release, Sem::AcqRel] {
        let (space, op, ty) = (Space::Global, AtomOp::Add, Ty::U32);
        let (d, a, addr) = (of(ty, 0), of(ty, 1).into(), at(space));
        out.push(Inst::Atom { space, sem, scope, op, ty, d, addr, a, b: None });
    }
}

fn warps(out: &mut Vec<Inst>) {
    let mask = Opnd::Int(-1);
    let (d, p) = (reg(Class::B32, 0), reg(Class::Pred, 0));
    for kind in [Shfl::Up, Shfl::Down, Shfl::Bfly, Shfl::Idx] {
        for ok in [None, Some(p)] {
            let (b, c) = (Opnd::Int(1), Opnd::Int(31));
            out.push(Inst::Shfl { kind, d, ok, a: word(), b, c, mask });
        }
    }
    for (kind, d) in [(Vote::Any, p), (Vote::All, p), (Vote::Uni, p), (Vote::Ballot, d)] {
        for &negated in BOOLS {
            let p = Guard { reg: reg(Class::Pred, 1), negated };
            out.push(Inst::Vote { kind, d, p, mask });
        }
    }
    for &op in ATOMS {
        for &ty in TYPES {
            out.push(Inst::Redux { op, ty, d: of(ty, 0), a: of(ty, 1).into(), mask });
        }
    }
    out.push(Inst::Activemask { d });
    out.push(Inst::Elect { p, mask });
    out.push(Inst::WarpSync { mask });
}

fn blocks(out: &mut Vec<Inst>) {
    out.push(Inst::BarSync { id: 0.into(), count: None });
    out.push(Inst::BarSync { id: 15.into(), count: Some(64) });
    out.push(Inst::BarArrive { id: 1.into(), count: 64 });
    let (d, p) = (reg(Class::Pred, 0), reg(Class::Pred, 1));
    out.push(Inst::BarRedOr { id: 0, d, p });
    for bytes in [1, 2, 4, 8, 16, 32] {
        for src_bytes in [None, Some(word())] {
            let (dst, src) = (shared(), at(Space::Global));
            out.push(Inst::CpAsync { dst, src, bytes, src_bytes });
        }
    }
    out.push(Inst::CpCommit);
    out.push(Inst::CpWait { groups: 2 });
    for n in [1, 2, 3, 4] {
        for &trans in BOOLS {
            out.push(Inst::Ldmatrix { d: words(n), trans, addr: shared() });
            out.push(Inst::Stmatrix { a: words(n), trans, addr: shared() });
        }
    }
    out.push(Inst::Mapa { d: reg(Class::B32, 0), a: reg(Class::B32, 1), rank: Opnd::Int(1) });
    for &order in BOOLS {
        out.push(Inst::ClusterArrive { release: order });
        out.push(Inst::ClusterWait { acquire: order });
    }
    out.push(Inst::Nanosleep { ns: 100 });
    let text = |t: &str| Piece::Text(t.to_string());
    let pieces =
        vec![text("{ mov.b32 "), Piece::Register(0), text(", "), Piece::Register(1), text("; }")];
    out.push(Inst::Text { pieces, d: words(1), a: words(1) });
    out.push(Inst::Event { number: 0 });
    out.push(Inst::GridWait);
    out.push(Inst::GridLaunchNext);
}

fn products(out: &mut Vec<Inst>) {
    for row in MMA_SHAPES.iter().flat_map(|s| s.rows()) {
        // The MMAs that exist, and others beside them.
        for (k, c) in [(row.k, row.c), (row.k * 4, row.c), (row.k, Ty::BF16)] {
            let row = MmaRow { k, c, ..row };
            let [a, b, c] = row.regs();
            let class = |ty| if ty == Ty::F64 { Class::B64 } else { Class::B32 };
            let (d, c) = (regs(class(row.c), c), regs(class(row.c), c));
            let (a, b) = (regs(class(row.a), a), regs(class(row.b), b));
            out.push(Inst::Mma { row, d, a, b, c });
        }
    }
}

fn barriers(out: &mut Vec<Inst>) {
    let count = Opnd::Int(4);
    out.push(Inst::MbarInit { addr: shared(), count });
    out.push(Inst::MbarInit { addr: shared(), count: word() });
    out.push(Inst::MbarInval { addr: shared() });
    for space in [Space::Shared, Space::SharedCluster] {
        for count in [None, Some(count), Some(word())] {
            out.push(Inst::MbarArrive { space, addr: shared(), count });
        }
        out.push(Inst::MbarArriveExpect { space, addr: shared(), bytes: Opnd::Int(1024) });
        out.push(Inst::MbarArriveExpect { space, addr: shared(), bytes: word() });
    }
    out.push(Inst::MbarExpect { addr: shared(), bytes: word() });
    for &block in BOOLS {
        let d = reg(Class::Pred, 0);
        out.push(Inst::MbarWait { d, addr: shared(), parity: word(), block });
        out.push(Inst::MbarWait { d, addr: shared(), parity: Opnd::Int(1), block });
    }
    out.push(Inst::FenceMbarInit);
    out.push(Inst::CpAsyncArrive { addr: shared() });
}

fn copies(out: &mut Vec<Inst>) {
    let map = reg(Class::B64, 4);
    let hints = [None, Some(reg(Class::B64, 5))];
    let masks = [None, Some(Opnd::Int(3)), Some(Opnd::Reg(reg(Class::B16, 0)))];
    let (global, bytes) = (|| at(Space::Global), Opnd::Int(1024));
    for hint in hints {
        for n in 1..=5 {
            let coords: Vec<Opnd> =
                (0..n).map(|i| if i == 0 { word() } else { i.into() }).collect();
            for multicast in masks {
                let (dst, bar, coords) = (shared(), shared(), coords.clone());
                out.push(Inst::TmaLoad { dst, map, coords, bar, multicast, hint });
            }
            let src = shared();
            out.push(Inst::TmaStore { map, coords: coords.clone(), src, hint });
            for &op in ATOMS {
                let src = shared();
                out.push(Inst::TmaReduce { op, map, coords: coords.clone(), src, hint });
            }
            out.push(Inst::TmaPrefetch { map, coords });
        }
        for multicast in masks {
            let (dst, src, bar) = (shared(), global(), shared());
            out.push(Inst::BulkLoad { dst, src, bytes, bar, multicast, hint });
        }
        out.push(Inst::BulkStore { dst: global(), src: shared(), bytes: word(), hint });
        for &op in ATOMS {
            for &ty in TYPES {
                let (dst, src) = (global(), shared());
                out.push(Inst::BulkReduce { op, ty, dst, src, bytes, hint });
            }
        }
    }
    out.push(Inst::BulkSend { dst: shared(), src: shared(), bytes, bar: shared() });
    out.push(Inst::BulkPrefetch { src: global(), bytes });
    out.push(Inst::BulkCommit);
    for &read in BOOLS {
        out.push(Inst::BulkWait { groups: 1, read });
    }
    out.push(Inst::PrefetchMap { map });
    out.push(Inst::FenceProxyAsync);
    out.push(Inst::FenceProxyAsyncGlobal);
    for &ty in TYPES {
        for n in [1, 2, 4] {
            let a = regs(ty.class(), n).into_iter().map(Opnd::Reg).collect();
            out.push(Inst::StAsync { ty, addr: shared(), a, bar: shared() });
        }
        for &op in ATOMS {
            let a = of(ty, 1).into();
            out.push(Inst::RedAsync { op, ty, addr: shared(), a, bar: shared() });
        }
    }
}

fn warpgroups(out: &mut Vec<Inst>) {
    let types = [Ty::F16, Ty::BF16, Ty::Tf32, Ty::E4M3, Ty::E5M2, Ty::S8, Ty::U8];
    let mut rows = Vec::new();
    for a in types {
        for b in types {
            for c in [Ty::F16, Ty::F32, Ty::S32] {
                for (n, sat) in [(64, false), (64, true), (40, false)] {
                    let k = 256 / a.bits();
                    rows.push(WgmmaRow { n, k, a, b, c, sat });
                }
            }
        }
    }
    for n in (8..=256).step_by(8) {
        rows.push(WgmmaRow { n, k: 16, a: Ty::BF16, b: Ty::BF16, c: Ty::F32, sat: false });
        rows.push(WgmmaRow { n, k: 32, a: Ty::S8, b: Ty::S8, c: Ty::S32, sat: false });
    }
    let (desc, fragment) = (reg(Class::B64, 2), words(4));
    let sources = [WgmmaA::Shared(desc), WgmmaA::Regs(std::array::from_fn(|i| fragment[i]))];
    let p = Opnd::Reg(reg(Class::Pred, 0));
    for row in rows {
        for a in sources {
            let flags: &[u32] = if row.n == 64 { &[0, 1, 2, 4, 8, 16] } else { &[0] };
            for flags in flags {
                // Accumulators separate from the fragment.
                let d = (10..).take(row.regs()).map(|id| reg(Class::B32, id)).collect();
                let [neg_a, neg_b, trans_a, trans_b] = [1, 2, 4, 8].map(|bit| flags & bit != 0);
                let add = if flags & 17 != 0 { Opnd::Int(1) } else { p };
                let b = desc;
                out.push(Inst::Wgmma { row, d, a, b, add, neg_a, neg_b, trans_a, trans_b });
            }
        }
    }
    out.push(Inst::WgmmaFence);
    out.push(Inst::WgmmaCommit);
    out.push(Inst::WgmmaWait { groups: 1 });
    out.push(Inst::SetMaxRegs { more: false, count: 40 });
    out.push(Inst::SetMaxRegs { more: true, count: 232 });
}

/// What ends the code: last, so that all before is reached.
fn ends(out: &mut Vec<Inst>) {
    for &uniform in BOOLS {
        out.push(Inst::Bra { to: LABEL, uniform });
    }
    out.push(Inst::Trap);
    out.push(Inst::Ret);
}

/// The same with a constant in place of each operand, one at a time.
pub fn with_constants(inst: &Inst) -> Vec<(Inst, Class)> {
    let count = numbers(&mut inst.clone()).len();
    let mut out = Vec::new();
    for n in 0..count {
        for constant in [Opnd::Int(1), Opnd::F32(0x3f80_0000), Opnd::F64(0x3ff0 << 48)] {
            let mut inst = inst.clone();
            let place = numbers(&mut inst).swap_remove(n);
            let Opnd::Reg(reg) = *place else { continue };
            *place = constant;
            out.push((inst, reg.class));
        }
    }
    out
}

fn numbers(inst: &mut Inst) -> Vec<&mut Opnd> {
    match inst {
        Inst::Mov { a, .. } | Inst::Redux { a, .. } | Inst::RedAsync { a, .. } => vec![a],
        Inst::Alu { a, .. } | Inst::St { a, .. } | Inst::StAsync { a, .. } => {
            a.iter_mut().collect()
        }
        Inst::Red { a, .. } => a.iter_mut().collect(),
        Inst::Setp { a, b, .. } | Inst::Selp { a, b, .. } => vec![a, b],
        Inst::Cvt { a, b, .. } | Inst::Atom { a, b, .. } => iter::once(a).chain(b).collect(),
        Inst::Shfl { a, b, c, mask, .. } => vec![a, b, c, mask],
        _ => Vec::new(),
    }
}
