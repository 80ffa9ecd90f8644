use super::*;
use tessera_numerics::{DType, decode};

/// Row and column of element `i` of a thread's fragment of the first operand, as the ISA lists
/// them.
fn place_a(row: MmaRow, lane: usize, i: usize) -> (usize, usize) {
    let (group, thread) = (lane / 4, lane % 4);
    let bits = row.a.bits();
    let r = |high: bool| if high { group + 8 } else { group };
    match (row.m, row.k, bits) {
        (16, 8, 16) => (r(i >= 2), thread * 2 + (i & 1)),
        (16, 16, 16) => {
            (r(matches!(i, 2 | 3 | 6 | 7)), thread * 2 + (i & 1) + if i >= 4 { 8 } else { 0 })
        }
        (16, 4, 32 | 64) => (r(i == 1), thread),
        (16, 8, 32 | 64) => (r(i == 1 || i == 3), thread + if i >= 2 { 4 } else { 0 }),
        (16, 16, 64) => (r(i % 2 == 1), i / 2 * 4 + thread),
        (8, 4, 64) => (group, thread),
        (8, 16, 8) => (group, thread * 4 + i),
        (16, 16, 8) => (r(i >= 4), thread * 4 + (i & 3)),
        (16, 32, 8) => {
            (r(matches!(i, 4..8 | 12..)), thread * 4 + (i & 3) + if i >= 8 { 16 } else { 0 })
        }
        (8, 32, 4) => (group, thread * 8 + i),
        (16, 32, 4) => (r(i >= 8), thread * 8 + (i & 7)),
        (16, 64, 4) => {
            (r(matches!(i, 8..16 | 24..)), thread * 8 + (i & 7) + if i >= 16 { 32 } else { 0 })
        }
        _ => panic!("{row:?}"),
    }
}

fn place_b(row: MmaRow, lane: usize, i: usize) -> (usize, usize) {
    let (group, thread) = (lane / 4, lane % 4);
    let k = match row.b.bits() {
        16 => thread * 2 + (i & 1) + if i >= 2 { 8 } else { 0 },
        32 | 64 => thread + 4 * i,
        8 => thread * 4 + (i & 3) + if i >= 4 { 16 } else { 0 },
        _ => thread * 8 + (i & 7) + if i >= 8 { 32 } else { 0 },
    };
    (k, group)
}

fn place_c(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + if i >= 2 { 8 } else { 0 }, lane % 4 * 2 + (i & 1))
}

/// Codes packed into registers, `[register][lane]`.
fn pack(codes: impl Fn(usize, usize) -> u64, regs: usize, bits: u32) -> Vec<u64> {
    let per = (32 / bits).max(1) as usize;
    (0..regs * 32)
        .map(|at| {
            let (reg, lane) = (at / 32, at % 32);
            (0..per).fold(0, |word, i| word | codes(lane, reg * per + i) << (i as u32 * bits))
        })
        .collect()
}

fn run_mma(row: MmaRow, a: &[u64], b: &[u64], c: &[u64]) -> Vec<u64> {
    let [na, nb, nc] = row.regs();
    let mut asm = kernel(32, 4);
    let load = |asm: &mut Asm, word: i64, n: usize, ty: Ty| -> Vec<Reg> {
        let at = element(asm, word, 8);
        let ty = if ty == Ty::F64 { Ty::B64 } else { Ty::B32 };
        (0..n)
            .map(|i| asm.ld(Space::Global, ty, 1, Addr::reg(at, 256 * i as i64), Cache::Usual)[0])
            .collect()
    };
    let ra = load(&mut asm, 0, na, row.a);
    let rb = load(&mut asm, 1, nb, row.b);
    let rc = load(&mut asm, 2, nc, row.c);
    let wide = row.c == Ty::F64;
    let d: Vec<Reg> =
        (0..nc).map(|_| asm.reg(if wide { Class::B64 } else { Class::B32 })).collect();
    asm.emit(Inst::Mma { row, d: d.clone(), a: ra, b: rb, c: rc });
    let at = element(&mut asm, 3, 8);
    for (i, d) in d.iter().enumerate() {
        let ty = if wide { Ty::B64 } else { Ty::B32 };
        asm.st(Space::Global, ty, &[(*d).into()], Addr::reg(at, 256 * i as i64), Cache::Usual);
    }
    let mut out = vec![0u64; nc * 32];
    let mut memory = Memory::new();
    let words = [memory.share(a), memory.share(b), memory.share(c), memory.lend(&mut out)];
    launch(asm, 1, &words, &memory, &Options::default()).unwrap_or_else(|f| panic!("{f}"));
    drop(memory);
    out
}

fn value(ty: Ty, code: u64) -> f64 {
    let dt = match ty {
        Ty::F16 => DType::F16,
        Ty::BF16 => DType::BF16,
        Ty::E4M3 => DType::Fp8E4M3,
        Ty::E5M2 => DType::Fp8E5M2,
        Ty::S8 => DType::I8,
        Ty::U8 => DType::U8,
        Ty::S4 => DType::I4,
        Ty::U4 => return code as f64,
        Ty::F64 => return f64::from_bits(code),
        Ty::S32 => DType::I32,
        _ => return f32::from_bits(code as u32) as f64,
    };
    decode(dt, code).as_f64()
}

/// A code of a small number, so that most sums are exact, and some are not.
fn small(draw: &mut Draw, ty: Ty) -> u64 {
    let x = (draw.next() % 33) as f64 / 8.0 - 2.0;
    let x = if draw.next() & 7 == 0 { x * 1.125 } else { x };
    match ty {
        Ty::F16 => tessera_numerics::encode(DType::F16, x.into(), Rounding::Rne, false),
        Ty::BF16 => tessera_numerics::encode(DType::BF16, x.into(), Rounding::Rne, false),
        Ty::E4M3 => tessera_numerics::encode(DType::Fp8E4M3, x.into(), Rounding::Rne, true),
        Ty::E5M2 => tessera_numerics::encode(DType::Fp8E5M2, x.into(), Rounding::Rne, true),
        Ty::Tf32 | Ty::F32 => (x as f32).to_bits() as u64,
        Ty::F64 => (x / 3.0).to_bits(),
        Ty::S32 => draw.next() & 0xFFFF_FFFF,
        _ => draw.next() & tessera_ptx_emulator::inner::alu::mask(ty.bits()),
    }
}

use tessera_numerics::Rounding;

fn check_mma(row: MmaRow) {
    let mut draw = Draw(row.k as u64 + row.a as u64 * 31);
    let (m, k) = (row.m as usize, row.k as usize);
    let mut fill =
        |n: usize, ty: Ty| -> Vec<u64> { (0..n).map(|_| small(&mut draw, ty)).collect() };
    let (a, b, c) = (fill(m * k, row.a), fill(k * 8, row.b), fill(m * 8, row.c));
    let [na, nb, nc] = row.regs();
    let at_a = |lane, i| {
        let (r, c) = place_a(row, lane, i);
        a[r * k + c]
    };
    let at_b = |lane, i| {
        let (r, c) = place_b(row, lane, i);
        b[r * 8 + c]
    };
    let at_c = |lane, i| {
        let (r, col) = place_c(lane, i);
        c[r * 8 + col]
    };
    let fragments =
        (pack(at_a, na, row.a.bits()), pack(at_b, nb, row.b.bits()), pack(at_c, nc, row.c.bits()));
    let got = run_mma(row, &fragments.0, &fragments.1, &fragments.2);
    let want = |lane: usize, i: usize| {
        let (r, col) = place_c(lane, i);
        let pairs = (0..k).map(|x| (value(row.a, a[r * k + x]), value(row.b, b[x * 8 + col])));
        let start = value(row.c, c[r * 8 + col]);
        match row.c {
            Ty::F64 => pairs.fold(start, |s, (x, y)| x.mul_add(y, s)).to_bits(),
            Ty::S32 => {
                let sum = pairs.fold(start, |s, (x, y)| s + x * y) as i64;
                let sum = if row.sat { sum.clamp(i32::MIN as i64, i32::MAX as i64) } else { sum };
                sum as u32 as u64
            }
            _ => {
                let sum = pairs.fold(start as f32, |s, (x, y)| (x as f32).mul_add(y as f32, s));
                match row.c {
                    Ty::F16 => {
                        tessera_numerics::encode(DType::F16, sum.into(), Rounding::Rne, false)
                    }
                    _ => sum.to_bits() as u64,
                }
            }
        }
    };
    assert_eq!(got, pack(want, nc, row.c.bits()), "{row:?}");
}

#[test]
fn every_row_multiplies_as_plain_loops_do() {
    let row = |m, k, a, b, c| MmaRow { m, n: 8, k, a, b, c, sat: false };
    for k in [8, 16] {
        check_mma(row(16, k, Ty::F16, Ty::F16, Ty::F32));
        check_mma(row(16, k, Ty::F16, Ty::F16, Ty::F16));
        check_mma(row(16, k, Ty::BF16, Ty::BF16, Ty::F32));
        check_mma(row(16, k, Ty::F64, Ty::F64, Ty::F64));
    }
    for k in [4, 8] {
        check_mma(row(16, k, Ty::Tf32, Ty::Tf32, Ty::F32));
    }
    check_mma(row(16, 4, Ty::F64, Ty::F64, Ty::F64));
    check_mma(row(8, 4, Ty::F64, Ty::F64, Ty::F64));
    for k in [16, 32] {
        for (a, b) in [(Ty::E4M3, Ty::E5M2), (Ty::E5M2, Ty::E4M3), (Ty::E4M3, Ty::E4M3)] {
            check_mma(row(16, k, a, b, Ty::F32));
            check_mma(row(16, k, a, b, Ty::F16));
        }
        for (a, b) in [(Ty::S8, Ty::S8), (Ty::U8, Ty::S8), (Ty::S8, Ty::U8), (Ty::U8, Ty::U8)] {
            check_mma(row(16, k, a, b, Ty::S32));
            check_mma(MmaRow { sat: true, ..row(16, k, a, b, Ty::S32) });
        }
    }
    check_mma(row(8, 16, Ty::S8, Ty::U8, Ty::S32));
    for k in [32, 64] {
        check_mma(row(16, k, Ty::S4, Ty::U4, Ty::S32));
        check_mma(row(16, k, Ty::U4, Ty::S4, Ty::S32));
    }
    check_mma(row(8, 32, Ty::S4, Ty::S4, Ty::S32));
}

#[test]
fn a_row_that_does_not_exist_is_refused() {
    let mut asm = kernel(32, 1);
    let row = MmaRow { m: 16, n: 8, k: 24, a: Ty::F16, b: Ty::F16, c: Ty::F32, sat: false };
    asm.emit(Inst::Mma { row, d: vec![], a: vec![], b: vec![], c: vec![] });
    let f = fault(asm, &[0], &Memory::new(), &Options::default());
    assert_eq!(f.kind, FaultKind::Invalid, "{f}");
}

/// 32 x 32 x 32 in bf16 by four warps: copies, `ldmatrix`, plain for A and transposed for B, MMAs,
/// `stmatrix` of the rounded accumulators.
fn tiles() -> Asm {
    let (n, bytes) = (32i64, 64i64);
    let mut asm = kernel(128, 3);
    let names = ["a", "b", "c"].map(|name| asm.shared(name, 32 * 64, 16));
    let tid = asm.special(Special::TidX);
    let lane = asm.special(Special::LaneId);
    let warp = asm.int(Alu::Shr, Ty::U32, &[tid.into(), 5.into()]);
    for (word, name) in [(0, &names[0]), (1, &names[1])] {
        let from = element(&mut asm, word, 16);
        let base = asm.address_of(name);
        let to = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 16.into(), base.into()]);
        let (dst, src) = (Addr::reg(to, 0), Addr::reg(from, 0));
        asm.emit(Inst::CpAsync { dst, src, bytes: 16, src_bytes: None });
    }
    asm.emit(Inst::CpCommit);
    asm.emit(Inst::CpWait { groups: 0 });
    asm.barrier();
    // Warp w computes rows 16 (w / 2) and columns 16 (w % 2).
    let row = asm.int(Alu::Shr, Ty::U32, &[warp.into(), 1.into()]);
    let column = asm.int(Alu::And, Ty::B32, &[warp.into(), 1.into()]);
    let low = asm.int(Alu::And, Ty::B32, &[lane.into(), 15.into()]);
    let high = asm.int(Alu::Shr, Ty::U32, &[lane.into(), 4.into()]);
    let high = asm.int(Alu::Shl, Ty::B32, &[high.into(), 4.into()]);
    let at = |asm: &mut Asm, name: &str, row: Reg, column: Reg| {
        let base = asm.address_of(name);
        let r = asm.int(Alu::MadLo, Ty::U32, &[row.into(), 16.into(), low.into()]);
        let x = asm.int(Alu::MadLo, Ty::U32, &[r.into(), bytes.into(), base.into()]);
        let x = asm.int(Alu::MadLo, Ty::U32, &[column.into(), 32.into(), x.into()]);
        asm.int(Alu::Add, Ty::U32, &[x.into(), high.into()])
    };
    let zero = asm.mov(Ty::U32, 0);
    let a = at(&mut asm, &names[0], row, zero);
    let b = at(&mut asm, &names[1], zero, column);
    let sums: Vec<Reg> = (0..8).map(|_| asm.mov(Ty::F32, Opnd::F32(0))).collect();
    for step in 0..n / 16 {
        let ra: Vec<Reg> = (0..4).map(|_| asm.reg(Class::B32)).collect();
        let rb: Vec<Reg> = (0..4).map(|_| asm.reg(Class::B32)).collect();
        let addr = Addr::reg(a, 32 * step);
        asm.emit(Inst::Ldmatrix { d: ra.clone(), trans: false, addr });
        let addr = Addr::reg(b, 16 * bytes * step);
        asm.emit(Inst::Ldmatrix { d: rb.clone(), trans: true, addr });
        let row = MmaRow { m: 16, n: 8, k: 16, a: Ty::BF16, b: Ty::BF16, c: Ty::F32, sat: false };
        for half in 0..2 {
            let c = sums[4 * half..4 * half + 4].to_vec();
            let b = rb[2 * half..2 * half + 2].to_vec();
            asm.emit(Inst::Mma { row, d: c.clone(), a: ra.clone(), b, c });
        }
    }
    let packed: Vec<Reg> = (0..4)
        .map(|i| {
            let d = asm.reg(Class::B32);
            let (a, b) = (sums[2 * i + 1].into(), Some(sums[2 * i].into()));
            let (to, from, round) = (Ty::BF16x2, Ty::F32, Some(Round::Rn));
            asm.emit(Inst::Cvt { d, to, a, b, from, round, ftz: false, sat: false });
            d
        })
        .collect();
    let c = at(&mut asm, &names[2], row, column);
    asm.emit(Inst::Stmatrix { a: packed, trans: false, addr: Addr::reg(c, 0) });
    asm.barrier();
    let base = asm.address_of(&names[2]);
    let from = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 16.into(), base.into()]);
    let x = asm.ld(Space::Shared, Ty::B32, 4, Addr::reg(from, 0), Cache::Usual);
    let to = element(&mut asm, 2, 16);
    let x: Vec<Opnd> = x.into_iter().map(Opnd::Reg).collect();
    asm.st(Space::Global, Ty::B32, &x, Addr::reg(to, 0), Cache::Usual);
    asm
}

#[test]
fn tiles_multiply_through_ldmatrix() {
    let mut draw = Draw(9);
    let input = |draw: &mut Draw| -> Vec<u64> {
        // Four codes per word, so that rows are aligned for the copies.
        (0..256).map(|_| (0..4).fold(0, |w, i| w | small(draw, Ty::BF16) << (16 * i))).collect()
    };
    let (a, b) = (input(&mut draw), input(&mut draw));
    let code = |x: &[u64], i: usize| x[i / 4] >> (16 * (i % 4)) & 0xFFFF;
    #[repr(align(16))]
    #[derive(Copy, Clone)]
    struct Line([u64; 2]);
    let lines = |x: &[u64]| -> Vec<Line> { x.chunks(2).map(|c| Line([c[0], c[1]])).collect() };
    let (la, lb) = (lines(&a), lines(&b));
    for seed in 0..4 {
        let mut out = lines(&[0; 256]);
        let mut memory = Memory::new();
        let args = [memory.share(&la), memory.share(&lb), out.as_mut_ptr() as u64];
        // SAFETY: `out` outlives the run and nothing else uses it.
        unsafe { memory.allow(out.as_ptr().cast(), 2048, true) };
        let options = Options { seed, races: true, ..Options::default() };
        launch(tiles(), 1, &args, &memory, &options).unwrap_or_else(|f| panic!("{f}"));
        let out: Vec<u64> = out.iter().flat_map(|l| l.0).collect();
        for i in 0..1024 {
            let (r, c) = (i / 32, i % 32);
            let sum = (0..32).fold(0f32, |s, k| {
                let x = value(Ty::BF16, code(&a, r * 32 + k)) as f32;
                x.mul_add(value(Ty::BF16, code(&b, k * 32 + c)) as f32, s)
            });
            let want = tessera_numerics::encode(DType::BF16, sum.into(), Rounding::Rne, false);
            assert_eq!(code(&out, i), want, "{r} {c}");
        }
    }
}

#[test]
fn a_warp_that_is_not_whole_cannot_multiply() {
    let mut asm = kernel(32, 1);
    let buffer = asm.shared("buffer", 512, 16);
    let tid = asm.special(Special::TidX);
    let p = asm.setp(Cmp::Lt, Ty::U32, tid, 31);
    let d = vec![asm.reg(Class::B32)];
    let base = asm.address_of(&buffer);
    asm.when(p, true, |asm| {
        asm.emit(Inst::Ldmatrix { d, trans: false, addr: Addr::reg(base, 0) });
    });
    let f = fault(asm, &[0], &Memory::new(), &Options::default());
    assert_eq!(f.kind, FaultKind::Divergent, "{f}");
}
