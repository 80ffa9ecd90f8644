//! Which forms of the instructions exist, and which features each needs.
//!
//! Only forms are checked here: types, modifiers, vector widths. `verify` checks registers,
//! constants and the surrounding code. `tests/judge` compares every answer with an assembler's.

use crate::caps::{Feature, first_version, mma_feature};
use crate::inst::*;
use crate::module::{Kernel, Module, Target, Version};
use std::collections::BTreeSet;

/// The features of a form, or why there is no such form.
pub type Needs = Result<Vec<Feature>, String>;

/// The features an instruction needs of its target.
pub fn requires(inst: &Inst) -> Needs {
    let mut needs = form(inst)?;
    if scope(inst) == Some(Scope::Cluster) && !needs.contains(&Feature::Cluster) {
        needs.push(Feature::Cluster);
    }
    Ok(needs)
}

/// The scope of a memory access.
fn scope(inst: &Inst) -> Option<Scope> {
    match inst {
        Inst::Ld { sem, scope, .. }
        | Inst::St { sem, scope, .. }
        | Inst::Atom { sem, scope, .. }
        | Inst::Red { sem, scope, .. }
        | Inst::Fence { sem, scope } => (*sem != Sem::Weak).then_some(*scope),
        _ => None,
    }
}

fn form(inst: &Inst) -> Needs {
    match inst {
        Inst::Mov { ty, .. } | Inst::Selp { ty, .. } => match ty {
            Ty::Pred if matches!(inst, Inst::Selp { .. }) => no("predicates cannot be selected"),
            Ty::U4 | Ty::S4 | Ty::E2M1 => no("half bytes are held by no register"),
            _ => special(inst),
        },
        Inst::Pack { d, parts } => parts_fit(*d, parts),
        Inst::Unpack { a, parts } => parts_fit(*a, parts),
        Inst::AddressOf { d, .. } => match d.class {
            Class::B32 => plain(),
            Class::B64 => has(Feature::ParamAddress),
            Class::Pred | Class::B16 => no("an address has 32 or 64 bits"),
        },
        Inst::Alu { op, ty, round, ftz, sat, .. } => alu(*op, *ty, *round, *ftz, *sat),
        Inst::Cvt { to, b, from, round, ftz, sat, .. } => {
            cvt(*to, *from, b.is_some(), *round, *ftz, *sat)
        }
        Inst::Setp { cmp, ty, ftz, .. } => setp(*cmp, *ty, *ftz),
        Inst::Ld { space, ty, d, cache, sem, .. } => {
            let read_only = matches!(cache, Cache::ReadOnly | Cache::ReadOnlyStream);
            if matches!(sem, Sem::Release | Sem::AcqRel) {
                return no("a load cannot release");
            }
            if read_only && (*space != Space::Global || *sem != Sem::Weak) {
                return no("only plain loads of global memory can be read-only");
            }
            access(*space, *ty, d.len(), *cache, *sem)
        }
        Inst::St { space, ty, a, cache, sem, .. } => {
            if matches!(sem, Sem::Acquire | Sem::AcqRel) {
                return no("a store cannot acquire");
            }
            if matches!(cache, Cache::ReadOnly | Cache::ReadOnlyStream) {
                return no("a store is not read-only");
            }
            if *space == Space::Param {
                return no("parameters cannot be written");
            }
            access(*space, *ty, a.len(), *cache, *sem)
        }
        Inst::Atom { space, op, ty, b, .. } => {
            if b.is_some() != (*op == AtomOp::Cas) {
                return no("a second value belongs to `cas` alone");
            }
            atom(*space, *op, *ty)
        }
        Inst::Red { space, op, ty, a, .. } => red(*space, *op, *ty, a.len()),
        Inst::Redux { op, ty, .. } => redux(*op, *ty),
        Inst::Fence { sem, .. } => match sem {
            Sem::AcqRel => plain(),
            Sem::Acquire | Sem::Release => has(Feature::FenceOneWay),
            Sem::Weak | Sem::Relaxed => no("a fence orders"),
        },
        Inst::CpAsync { bytes, .. } => match bytes {
            4 | 8 | 16 => has(Feature::CpAsync),
            _ => no("a copy takes 4, 8 or 16 bytes"),
        },
        Inst::CpCommit | Inst::CpWait { .. } => has(Feature::CpAsync),
        Inst::CpAsyncArrive { .. } => has(Feature::Mbarrier),
        Inst::Ldmatrix { d: regs, .. } => matrices(regs, Feature::Ldmatrix),
        Inst::Stmatrix { a: regs, .. } => matrices(regs, Feature::Stmatrix),
        Inst::Mma { row, d, a, b, c } => match mma_feature(row) {
            Some(_) if [a.len(), b.len(), c.len()] != row.regs() || d.len() != c.len() => {
                no("a fragment has another number of registers")
            }
            Some(feature) => has(feature),
            None => no("there is no such MMA"),
        },
        Inst::Mapa { .. } => has(Feature::Cluster),
        Inst::ClusterArrive { .. } | Inst::ClusterWait { .. } => has(Feature::ClusterBarrier),
        Inst::MbarInit { .. } | Inst::MbarInval { .. } => has(Feature::Mbarrier),
        Inst::MbarArrive { space, count, .. } => match (space, count) {
            (Space::Shared, None) => has(Feature::MbarrierArrive),
            (Space::Shared, Some(_)) => has(Feature::MbarrierWait),
            (Space::SharedCluster, _) => has(Feature::MbarrierBytes),
            _ => no("barriers are in shared memory"),
        },
        Inst::MbarArriveExpect { space, .. } => match space {
            Space::Shared | Space::SharedCluster => has(Feature::MbarrierBytes),
            _ => no("barriers are in shared memory"),
        },
        Inst::MbarExpect { .. } => has(Feature::MbarrierBytes),
        Inst::MbarWait { block, .. } => {
            has(if *block { Feature::MbarrierWait } else { Feature::MbarrierArrive })
        }
        Inst::TmaLoad { coords, .. }
        | Inst::TmaStore { coords, .. }
        | Inst::TmaPrefetch { coords, .. } => tensor(coords),
        Inst::TmaReduce { op, coords, .. } => match op {
            AtomOp::Exch | AtomOp::Cas => no("a copy cannot exchange"),
            _ => tensor(coords),
        },
        Inst::BulkReduce { op, ty, .. } => bulk_reduce(*op, *ty),
        Inst::BulkLoad { .. }
        | Inst::BulkStore { .. }
        | Inst::BulkSend { .. }
        | Inst::BulkPrefetch { .. }
        | Inst::BulkCommit
        | Inst::BulkWait { .. }
        | Inst::PrefetchMap { .. }
        | Inst::FenceProxyAsync
        | Inst::FenceProxyAsyncGlobal
        | Inst::FenceMbarInit => has(Feature::Tma),
        Inst::StAsync { ty, a, .. } => match (ty.in_memory().bits(), a.len()) {
            (32, 1 | 2 | 4) | (64, 1 | 2) => has(Feature::StAsync),
            _ => no("words are stored, one, two or four of them"),
        },
        Inst::RedAsync { op, ty, .. } => red_async(*op, *ty),
        Inst::Wgmma { row, d, a, trans_a, trans_b, neg_a, neg_b, .. } => {
            let registers = matches!(a, WgmmaA::Regs(_));
            let half = matches!(row.a, Ty::F16 | Ty::BF16);
            if (*trans_a || *trans_b) && !half || *trans_a && registers {
                return no("only 16-bit elements in shared memory can be transposed");
            }
            if (*neg_a || *neg_b) && row.c == Ty::S32 {
                return no("integers cannot be negated");
            }
            if d.len() != row.regs() {
                return no("the accumulator has another number of registers");
            }
            wgmma(row)
        }
        Inst::WgmmaFence | Inst::WgmmaCommit | Inst::WgmmaWait { .. } => has(Feature::Wgmma),
        Inst::SetMaxRegs { .. } => has(Feature::SetMaxRegs),
        Inst::Elect { .. } => has(Feature::Elect),
        Inst::GridWait | Inst::GridLaunchNext => has(Feature::GridControl),
        Inst::Shfl { .. }
        | Inst::Vote { .. }
        | Inst::Activemask { .. }
        | Inst::BarSync { .. }
        | Inst::BarArrive { .. }
        | Inst::BarRedOr { .. }
        | Inst::WarpSync { .. }
        | Inst::Bra { .. }
        | Inst::Ret
        | Inst::Trap
        | Inst::Nanosleep { .. }
        | Inst::Text { .. }
        | Inst::Event { .. }
        | Inst::Prefetch { .. } => plain(),
    }
}

/// The feature of a special register, where one is read.
fn special(inst: &Inst) -> Needs {
    let Inst::Mov { a: Opnd::Special(s), .. } = inst else { return plain() };
    match s {
        Special::ClusterCtaRank
        | Special::ClusterNctaRank
        | Special::ClusterIdX
        | Special::NclusterIdX => has(Feature::Cluster),
        _ => plain(),
    }
}

fn plain() -> Needs {
    Ok(Vec::new())
}

fn has(feature: Feature) -> Needs {
    Ok(vec![feature])
}

fn no(why: &str) -> Needs {
    Err(why.to_string())
}

fn either(ok: bool, why: &str) -> Needs {
    if ok { plain() } else { no(why) }
}

fn parts_fit(whole: Reg, parts: &[Reg]) -> Needs {
    let bits = |class: Class| match class {
        Class::Pred => 0,
        Class::B16 => 16,
        Class::B32 => 32,
        Class::B64 => 64,
    };
    let sum: u32 = parts.iter().map(|p| bits(p.class)).sum();
    let same = parts.windows(2).all(|w| w[0].class == w[1].class);
    let fits = matches!(parts.len(), 2 | 4) && same && sum == bits(whole.class);
    either(fits, "parts of one width make up the whole, two or four of them")
}

/// Whether this is a rounding mode for float results.
fn directed(round: Option<Round>) -> bool {
    matches!(round, Some(Round::Rn | Round::Rz | Round::Rm | Round::Rp))
}

fn alu(op: Alu, ty: Ty, round: Option<Round>, ftz: bool, sat: bool) -> Needs {
    let half = matches!(ty, Ty::F16 | Ty::F16x2);
    let bf16 = matches!(ty, Ty::BF16 | Ty::BF16x2);
    let bits = matches!(ty, Ty::B16 | Ty::B32 | Ty::B64);
    let wide = ty.bits() == 32 || ty.bits() == 64;
    let int = (ty.is_integer() || bits) && ty.bits() > 8;
    let (rn, none) = (round == Some(Round::Rn), round.is_none());
    let bare = none && !ftz && !sat;
    // Operations that round: of f32, f64 and half precision.
    let rounding = match ty {
        Ty::F32 => directed(round),
        Ty::F64 => directed(round) && !ftz && !sat,
        Ty::F16 | Ty::F16x2 => rn,
        _ => false,
    };
    let wrong = "there is no such operation of this type";
    match op {
        Alu::Add | Alu::Sub if int => {
            either(none && !ftz && (!sat || ty == Ty::S32), "only 32 signed bits are clamped")
        }
        Alu::Add | Alu::Sub | Alu::Mul if bf16 && rn && !ftz && !sat => has(Feature::Bf16Arith),
        Alu::Fma if bf16 && rn && !ftz && !sat => has(Feature::Bf16),
        Alu::Add | Alu::Sub | Alu::Mul | Alu::Fma => either(rounding, wrong),
        Alu::AddCc | Alu::Addc => either(int && wide && bare, wrong),
        Alu::MulLo | Alu::MulHi | Alu::MadLo => either(int && bare, wrong),
        Alu::MulWide | Alu::MadWide => either(int && ty.bits() < 64 && bare, wrong),
        Alu::Div if int && !bits => either(bare, wrong),
        Alu::Div | Alu::Sqrt | Alu::Rcp => {
            either(matches!(ty, Ty::F32 | Ty::F64) && rounding && !sat, wrong)
        }
        Alu::Rem => either(int && !bits && bare, wrong),
        Alu::Neg | Alu::Abs if int => either(bare, wrong),
        Alu::Neg | Alu::Abs if bf16 && bare => has(Feature::Bf16),
        Alu::Abs if half && none && !sat => has(Feature::HalfAbs),
        Alu::Neg | Alu::Abs => {
            let flushes = ty == Ty::F32 || half;
            either((flushes || ty == Ty::F64 && !ftz) && none && !sat, wrong)
        }
        Alu::Min | Alu::Max if int && !bits => either(bare, wrong),
        Alu::Min | Alu::Max if ty == Ty::F32 || ty == Ty::F64 && !ftz => {
            either(none && !sat, wrong)
        }
        Alu::Min | Alu::Max | Alu::MinNan | Alu::MaxNan if none && !sat => match ty {
            Ty::F32 | Ty::F16 | Ty::F16x2 => has(Feature::MinMaxNan),
            Ty::BF16 | Ty::BF16x2 if !ftz => has(Feature::Bf16),
            _ => no(wrong),
        },
        Alu::Min | Alu::Max | Alu::MinNan | Alu::MaxNan => no(wrong),
        Alu::And | Alu::Or | Alu::Xor | Alu::Not => either((int || ty == Ty::Pred) && bare, wrong),
        Alu::Shl | Alu::Shr => either(int && bare, wrong),
        Alu::RcpApprox if ty == Ty::F64 => either(ftz && none && !sat, wrong),
        Alu::RsqrtApprox if ty == Ty::F64 => either(none && !sat, wrong),
        Alu::Ex2Approx if half && bare => has(Feature::TanhApprox),
        Alu::Ex2Approx if bf16 && ftz && none && !sat => has(Feature::Bf16Arith),
        Alu::TanhApprox if (half || ty == Ty::F32) && bare => has(Feature::TanhApprox),
        Alu::TanhApprox if bf16 && bare => has(Feature::Bf16Arith),
        Alu::TanhApprox => no(wrong),
        Alu::SqrtApprox | Alu::RcpApprox | Alu::DivApprox | Alu::RsqrtApprox | Alu::Ex2Approx => {
            either(ty == Ty::F32 && none && !sat, wrong)
        }
        Alu::Lg2Approx | Alu::SinApprox | Alu::CosApprox => {
            either(ty == Ty::F32 && none && !sat, wrong)
        }
        Alu::Popc | Alu::Clz | Alu::Brev | Alu::Bfe | Alu::Bfi => {
            either(int && wide && bare, wrong)
        }
        Alu::Prmt | Alu::ShfL | Alu::ShfR | Alu::Lop3(_) | Alu::Dp4a => {
            either(int && ty.bits() == 32 && bare, wrong)
        }
        Alu::CopySign => either(matches!(ty, Ty::F32 | Ty::F64) && bare, wrong),
    }
}

fn cvt(to: Ty, from: Ty, pair: bool, round: Option<Round>, ftz: bool, sat: bool) -> Needs {
    let wrong = "there is no such conversion";
    if pair || to.is_packed() || from.is_packed() {
        return packed_cvt(to, from, pair, round, ftz, sat);
    }
    let none = round.is_none();
    let whole = matches!(round, Some(Round::Rni | Round::Rzi | Round::Rmi | Round::Rpi));
    let flushable = ftz && (to == Ty::F32 || from == Ty::F32);
    if ftz && !flushable {
        return no("only f32 is flushed");
    }
    // bf16 has conversions of its own.
    if to == Ty::BF16 || from == Ty::BF16 {
        return bf16_cvt(to, from, round, ftz, sat);
    }
    match (to, from) {
        (Ty::Tf32, Ty::F32) if !ftz => match round {
            Some(Round::Rna) if !sat => has(Feature::Tf32),
            Some(Round::Rn | Round::Rz) if !sat => has(Feature::Tf32Round),
            _ => no(wrong),
        },
        (Ty::Tf32, _) | (_, Ty::Tf32) => no("tf32 is rounded from f32 alone"),
        _ if to.is_integer() && from.is_integer() => {
            let clamps = narrows(to, from);
            either(none && !ftz && (!sat || clamps), wrong)
        }
        _ if to.is_integer() && from.is_float() => either(whole, "to an integer by a direction"),
        _ if to.is_float() && from.is_integer() => {
            either(directed(round) && (!ftz || to == Ty::F32), wrong)
        }
        _ if to.is_float() && from.is_float() => {
            let good = match to.bits().cmp(&from.bits()) {
                std::cmp::Ordering::Less => directed(round),
                std::cmp::Ordering::Equal => none || whole,
                std::cmp::Ordering::Greater => none,
            };
            either(good, wrong)
        }
        _ => no(wrong),
    }
}

/// Whether some number of `from` is outside the range of `to`.
fn narrows(to: Ty, from: Ty) -> bool {
    match (to.is_signed(), from.is_signed()) {
        (true, true) | (false, false) => to.bits() < from.bits(),
        (true, false) => to.bits() <= from.bits(),
        (false, true) => true,
    }
}

fn bf16_cvt(to: Ty, from: Ty, round: Option<Round>, ftz: bool, sat: bool) -> Needs {
    let wrong = "there is no such conversion of bf16";
    let none = round.is_none();
    let whole = matches!(round, Some(Round::Rni | Round::Rzi | Round::Rmi | Round::Rpi));
    let wide = |ty: Ty| ty.is_integer() && ty.bits() > 8;
    if sat {
        return no(wrong);
    }
    match (to, from) {
        (Ty::F32, _) if !ftz && none => has(Feature::Bf16ToF32),
        (Ty::BF16, Ty::F32) if !ftz && matches!(round, Some(Round::Rn | Round::Rz)) => {
            has(Feature::Bf16)
        }
        (Ty::BF16, Ty::BF16) if none || whole => has(Feature::Bf16Arith),
        (Ty::F64, _) if none => has(Feature::Bf16Arith),
        (Ty::F16, _) | (_, Ty::F16 | Ty::F64) if directed(round) => has(Feature::Bf16Arith),
        (_, Ty::BF16) if wide(to) && whole => has(Feature::Bf16Arith),
        (Ty::BF16, _) if wide(from) && directed(round) => has(Feature::Bf16Arith),
        _ => no(wrong),
    }
}

fn packed_cvt(to: Ty, from: Ty, pair: bool, round: Option<Round>, ftz: bool, sat: bool) -> Needs {
    let rn = round == Some(Round::Rn);
    let nearest_or_zero = rn || round == Some(Round::Rz);
    let (two, one) = (pair && !ftz, !pair && !ftz);
    match (to, from) {
        (Ty::F16x2 | Ty::BF16x2, Ty::F32) if two && nearest_or_zero && !sat => {
            has(Feature::PackedCvt)
        }
        (Ty::E4M3x2 | Ty::E5M2x2, Ty::F32) if two && rn && sat => has(Feature::Fp8Cvt),
        (Ty::E4M3x2 | Ty::E5M2x2, Ty::F16x2) if one && rn && sat => has(Feature::Fp8Cvt),
        (Ty::F16x2, Ty::E4M3x2 | Ty::E5M2x2) if one && rn && !sat => has(Feature::Fp8Cvt),
        (Ty::E2M1x2 | Ty::E2M3x2 | Ty::E3M2x2, Ty::F32) if two && rn && sat => has(Feature::Fp4Cvt),
        (Ty::F16x2, Ty::E2M1x2 | Ty::E2M3x2 | Ty::E3M2x2) if one && rn && !sat => {
            has(Feature::Fp4Cvt)
        }
        (Ty::UE8M0x2, Ty::F32 | Ty::BF16x2) => {
            let rounds = matches!(round, Some(Round::Rz | Round::Rp));
            match pair == (from == Ty::F32) && rounds && !ftz {
                true => has(Feature::Fp4Cvt),
                false => no("scales are rounded up or towards zero"),
            }
        }
        (Ty::BF16x2, Ty::UE8M0x2) if one && rn && !sat => has(Feature::Fp4Cvt),
        _ => no("there is no such conversion of packed numbers"),
    }
}

fn setp(cmp: Cmp, ty: Ty, ftz: bool) -> Needs {
    let ordered = matches!(cmp, Cmp::Eq | Cmp::Ne | Cmp::Lt | Cmp::Le | Cmp::Gt | Cmp::Ge);
    match ty {
        Ty::B16 | Ty::B32 | Ty::B64 => {
            either(matches!(cmp, Cmp::Eq | Cmp::Ne) && !ftz, "bits are equal or not")
        }
        _ if ty.is_integer() => {
            either(ordered && ty.bits() > 8 && !ftz, "integers of 16 bits and more are compared")
        }
        Ty::F16 | Ty::F32 => plain(),
        Ty::F64 => either(!ftz, "f64 is not flushed"),
        Ty::BF16 if !ftz => has(Feature::Bf16Arith),
        _ => no("numbers of this type cannot be compared"),
    }
}

/// Loads and stores: vector widths and cache hints.
fn access(space: Space, ty: Ty, n: usize, cache: Cache, sem: Sem) -> Needs {
    let mut needs = Vec::new();
    let streams = matches!(cache, Cache::Stream | Cache::ReadOnlyStream);
    if streams {
        if space != Space::Global || sem != Sem::Weak {
            return no("only plain accesses of global memory can pass the caches by");
        }
        needs.push(Feature::NoAllocate);
    }
    if sem != Sem::Weak && matches!(space, Space::Param | Space::Local) {
        return no("only memory that threads share has an order");
    }
    if space == Space::SharedCluster {
        needs.push(Feature::Cluster);
    }
    if ty == Ty::Pred || ty.bits() < 8 {
        return no("memory holds bytes");
    }
    match (n, ty.in_memory().bits() * n as u32) {
        (1, _) | (2 | 4, ..=128) => {}
        (8, 256) | (4, 256) if space == Space::Global && sem == Sem::Weak => {
            needs.push(Feature::Wide256);
        }
        _ => return no("an access takes 1, 2 or 4 elements, 16 bytes at most"),
    }
    Ok(needs)
}

/// What every memory operation needs besides its own features.
fn in_space(space: Space, own: Option<Feature>) -> Needs {
    let cluster = match space {
        Space::Global | Space::Shared => None,
        Space::SharedCluster => Some(Feature::Cluster),
        Space::Param | Space::Local => return no("only shared and global memory is shared"),
    };
    Ok([cluster, own].into_iter().flatten().collect())
}

fn atom(space: Space, op: AtomOp, ty: Ty) -> Needs {
    let words = matches!(ty.bits(), 32 | 64) && !ty.is_float();
    let wrong = "there is no such atomic operation of this type";
    match op {
        AtomOp::Add => match ty {
            Ty::F16 | Ty::F16x2 | Ty::F32 | Ty::F64 => in_space(space, None),
            Ty::BF16 | Ty::BF16x2 => in_space(space, Some(Feature::AtomBf16)),
            _ if words => in_space(space, None),
            _ => no(wrong),
        },
        AtomOp::Min | AtomOp::Max if ty.is_integer() && words => in_space(space, None),
        AtomOp::And | AtomOp::Or | AtomOp::Xor if words => in_space(space, None),
        // Bits are exchanged, whatever they mean.
        AtomOp::Exch if matches!(ty.bits(), 32 | 64) => in_space(space, None),
        AtomOp::Cas if matches!(ty.bits(), 16 | 32 | 64) => in_space(space, None),
        AtomOp::Inc | AtomOp::Dec if ty == Ty::U32 => in_space(space, None),
        _ => no(wrong),
    }
}

fn red(space: Space, op: AtomOp, ty: Ty, n: usize) -> Needs {
    if matches!(op, AtomOp::Exch | AtomOp::Cas) {
        return no("an exchange without its result is a store");
    }
    if n == 1 {
        return atom(space, op, ty);
    }
    let fits = matches!(n, 2 | 4 | 8) && ty.bits() * n as u32 <= 128;
    let add = op == AtomOp::Add && space == Space::Global;
    match ty {
        Ty::F32 | Ty::F16 | Ty::F16x2 | Ty::BF16 | Ty::BF16x2 if fits && add => {
            has(Feature::RedVector)
        }
        _ => no("only sums of floats in global memory take a vector"),
    }
}

fn redux(op: AtomOp, ty: Ty) -> Needs {
    let int = matches!(ty, Ty::U32 | Ty::S32);
    match op {
        AtomOp::Add | AtomOp::Min | AtomOp::Max if int => has(Feature::Redux),
        AtomOp::And | AtomOp::Or | AtomOp::Xor if int || ty == Ty::B32 => has(Feature::Redux),
        AtomOp::Min | AtomOp::Max if ty == Ty::F32 => has(Feature::ReduxF32),
        _ => no("a warp cannot combine this"),
    }
}

fn matrices(regs: &[Reg], feature: Feature) -> Needs {
    match regs.len() {
        1 | 2 | 4 => has(feature),
        _ => no("an instruction moves one, two or four matrices"),
    }
}

fn tensor(coords: &[Opnd]) -> Needs {
    match coords.len() {
        1..=5 => has(Feature::Tma),
        _ => no("a tensor has one to five axes"),
    }
}

fn bulk_reduce(op: AtomOp, ty: Ty) -> Needs {
    let words = matches!(ty.bits(), 32 | 64) && !ty.is_float();
    let half = matches!(ty, Ty::F16 | Ty::BF16);
    let good = match op {
        AtomOp::Add => half || words || matches!(ty, Ty::F32 | Ty::F64),
        AtomOp::Min | AtomOp::Max => half || words && ty.is_integer(),
        AtomOp::And | AtomOp::Or | AtomOp::Xor => words,
        AtomOp::Inc | AtomOp::Dec => ty == Ty::U32,
        AtomOp::Exch | AtomOp::Cas => false,
    };
    if good { has(Feature::Tma) } else { no("a copy cannot combine this") }
}

fn red_async(op: AtomOp, ty: Ty) -> Needs {
    let word = ty.bits() == 32 && !ty.is_float();
    let good = match op {
        AtomOp::Add => word || ty.bits() == 64 && !ty.is_float(),
        AtomOp::Min | AtomOp::Max => matches!(ty, Ty::U32 | Ty::S32),
        AtomOp::And | AtomOp::Or | AtomOp::Xor => word,
        AtomOp::Inc | AtomOp::Dec => ty == Ty::U32,
        AtomOp::Exch | AtomOp::Cas => false,
    };
    if good { has(Feature::StAsync) } else { no("a remote reduction cannot combine this") }
}

/// The features of a WGMMA.
pub fn wgmma(row: &WgmmaRow) -> Needs {
    let WgmmaRow { n, k, a, b, c, sat } = *row;
    let fp8 = |ty| matches!(ty, Ty::E4M3 | Ty::E5M2);
    let byte = |ty| matches!(ty, Ty::S8 | Ty::U8);
    let float = matches!(c, Ty::F32) && !sat;
    let half = c == Ty::F16 && !sat;
    let good = match a {
        Ty::F16 => b == Ty::F16 && k == 16 && (float || half),
        Ty::BF16 => b == Ty::BF16 && k == 16 && float,
        Ty::Tf32 => b == Ty::Tf32 && k == 8 && float,
        _ if fp8(a) => fp8(b) && k == 32 && (float || half),
        _ if byte(a) => byte(b) && k == 32 && c == Ty::S32,
        _ => false,
    };
    // Integers: multiples of 8 up to 32 columns, then of 16.
    let columns = n > 0 && n <= 256 && n % 8 == 0 && (!byte(a) || n <= 24 || n % 16 == 0);
    if !good || !columns {
        return no("there is no such WGMMA");
    }
    has(if byte(a) && a != b { Feature::WgmmaMixed } else { Feature::Wgmma })
}

impl Ty {
    pub fn is_packed(self) -> bool {
        let halves = matches!(self, Ty::F16x2 | Ty::BF16x2);
        let narrow = matches!(self, Ty::E4M3x2 | Ty::E5M2x2 | Ty::E2M1x2 | Ty::E2M3x2);
        halves || narrow || matches!(self, Ty::E3M2x2 | Ty::UE8M0x2)
    }
}

/// What a kernel needs beside its instructions.
pub fn kernel_requires(kernel: &Kernel) -> Vec<Feature> {
    let mut needs = Vec::new();
    if kernel.cluster > 1 || kernel.explicit_cluster {
        needs.push(Feature::Cluster);
    }
    let bytes: u32 = kernel.params.iter().map(|p| p.bytes).sum();
    if bytes > crate::caps::MAX_PARAM_BYTES.0 {
        needs.push(Feature::LargeParams);
    }
    needs
}

/// The version of PTX that features came with, on a target.
pub fn version_of(needs: &[Feature], target: Target) -> Option<Version> {
    let first = first_version(target)?;
    Some(needs.iter().map(|f| f.version(target)).fold(first, Version::max))
}

/// The version of PTX of modules with assembly text of users: that of CUDA 12.4, which has all
/// instructions of the targets up to sm_90a.
const TEXT_VERSION: Version = Version { major: 8, minor: 4 };

impl Module {
    /// The first version of PTX that has all features of the module.
    pub fn minimum_version(&self) -> Version {
        let mut needs = BTreeSet::new();
        for kernel in &self.kernels {
            needs.extend(kernel_requires(kernel));
            needs.extend(kernel.instructions().filter_map(|i| requires(i).ok()).flatten());
        }
        let needs: Vec<Feature> = needs.into_iter().collect();
        let least = version_of(&needs, self.target).unwrap_or(self.version);
        let has_text = |k: &Kernel| k.instructions().any(|i| matches!(i, Inst::Text { .. }));
        // What a text needs is not known.
        if self.kernels.iter().any(has_text) { least.max(TEXT_VERSION) } else { least }
    }
}
