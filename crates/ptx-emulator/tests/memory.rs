use super::*;

fn one_access(access: impl FnOnce(&mut Asm, Reg)) -> Asm {
    let mut asm = kernel(32, 1);
    let at = element(&mut asm, 0, 4);
    access(&mut asm, at);
    asm
}

fn read(asm: &mut Asm, ty: Ty, at: Reg, offset: i64) -> Reg {
    asm.ld(Space::Global, ty, 1, Addr::reg(at, offset), Cache::Usual)[0]
}

#[test]
fn accesses_outside_are_found() {
    let data = [0u32; 31];
    let mut memory = Memory::new();
    let words = [memory.share(&data)];
    let asm = one_access(|asm, at| {
        read(asm, Ty::U32, at, 0);
    });
    let f = fault(asm, &words, &memory, &Options::default());
    assert_eq!((f.kind, f.thread), (FaultKind::OutOfBounds, Some(31)), "{f}");
    assert_eq!(f.address, Some(words[0] + 124));
    assert!(f.notes[0].contains("byte 124"), "{f}");
    assert!(f.inst.as_ref().unwrap().contains("ld.global.u32"), "{f}");
}

#[test]
fn misaligned_and_read_only_accesses_are_found() {
    let data = [0u32; 64];
    let mut memory = Memory::new();
    let words = [memory.share(&data)];
    let asm = one_access(|asm, at| {
        read(asm, Ty::U32, at, 2);
    });
    let f = fault(asm, &words, &memory, &Options::default());
    assert_eq!((f.kind, f.thread), (FaultKind::Misaligned, Some(0)), "{f}");
    // A vector is aligned as a whole.
    let asm = one_access(|asm, at| {
        asm.ld(Space::Global, Ty::B32, 4, Addr::reg(at, 0), Cache::Usual);
    });
    let f = fault(asm, &words, &memory, &Options::default());
    assert_eq!(f.kind, FaultKind::Misaligned, "{f}");
    let asm = one_access(|asm, at| {
        asm.st(Space::Global, Ty::U32, &[1.into()], Addr::reg(at, 0), Cache::Usual);
    });
    let f = fault(asm, &words, &memory, &Options::default());
    assert_eq!(f.kind, FaultKind::ReadOnly, "{f}");
}

/// Bytes and halves are extended to the registers that take them.
#[test]
fn narrow_loads_extend() {
    let mut asm = kernel(32, 2);
    let base = arg(&mut asm, 0);
    let at = element(&mut asm, 1, 32);
    let put = |asm: &mut Asm, ty: Ty, class: Class, offset: i64| {
        let d = asm.reg(class);
        let (cache, sem, scope) = (Cache::Usual, Sem::Weak, Scope::Gpu);
        let addr = Addr::reg(base, 0);
        asm.emit(Inst::Ld { space: Space::Global, ty, d: vec![d], addr, cache, sem, scope });
        let ty = if class == Class::B64 { Ty::B64 } else { Ty::B32 };
        let wide = match class {
            Class::B16 => asm.cvt(Ty::U32, Ty::U16, None, d),
            _ => d,
        };
        asm.st(Space::Global, ty, &[wide.into()], Addr::reg(at, offset), Cache::Usual);
    };
    put(&mut asm, Ty::S8, Class::B16, 0);
    put(&mut asm, Ty::U8, Class::B32, 4);
    put(&mut asm, Ty::S8, Class::B32, 8);
    put(&mut asm, Ty::S16, Class::B64, 16);
    put(&mut asm, Ty::B16, Class::B64, 24);
    let data = [0x80u8, 0x90, 0, 0];
    let aligned = [u32::from_le_bytes(data)];
    let mut out = [0u32; 32 * 8];
    let mut memory = Memory::new();
    let words = [memory.share(&aligned), memory.lend(&mut out)];
    launch(asm, 1, &words, &memory, &Options::default()).unwrap_or_else(|f| panic!("{f}"));
    drop(memory);
    assert_eq!(out[..8], [0xFF80, 0x80, 0xFFFF_FF80, 0, 0xFFFF_9080, 0xFFFF_FFFF, 0x9080, 0]);
}

#[test]
fn vectors_go_through_shared_memory() {
    for ty in [Ty::B8, Ty::B16, Ty::B32, Ty::B64] {
        let bytes = ty.bits() as i64 / 8;
        let n = (16 / bytes).min(4) as usize;
        let whole = bytes * n as i64;
        let mut asm = kernel(64, 2);
        let buffer = asm.shared("buffer", 64 * whole as u32, 16);
        let tid = asm.special(Special::TidX);
        let at = element(&mut asm, 0, whole);
        let x = asm.ld(Space::Global, ty, n, Addr::reg(at, 0), Cache::ReadOnly);
        let base = asm.address_of(&buffer);
        let here = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), whole.into(), base.into()]);
        let x: Vec<Opnd> = x.into_iter().map(Opnd::Reg).collect();
        asm.st(Space::Shared, ty, &x, Addr::reg(here, 0), Cache::Usual);
        asm.barrier();
        let back = asm.int(Alu::Sub, Ty::U32, &[63.into(), tid.into()]);
        let there = asm.int(Alu::MadLo, Ty::U32, &[back.into(), whole.into(), base.into()]);
        let y = asm.ld(Space::Shared, ty, n, Addr::reg(there, 0), Cache::Usual);
        let y: Vec<Opnd> = y.into_iter().map(Opnd::Reg).collect();
        let at = element(&mut asm, 1, whole);
        asm.st(Space::Global, ty, &y, Addr::reg(at, 0), Cache::Stream);
        let mut draw = Draw(1);
        let words = 64 * whole as usize / 4;
        let input: Vec<u32> = (0..words).map(|_| draw.next() as u32).collect();
        let mut out = vec![0u32; words];
        let mut memory = Memory::new();
        let args = [memory.share(&input), memory.lend(&mut out)];
        let options = Options { races: true, ..Options::default() };
        launch(asm, 1, &args, &memory, &options).unwrap_or_else(|f| panic!("{f}"));
        drop(memory);
        let per = words / 64;
        for t in 0..64 {
            assert_eq!(out[t * per..(t + 1) * per], input[(63 - t) * per..(64 - t) * per]);
        }
    }
}

#[test]
fn shared_memory_begins_unwritten_and_ends_somewhere() {
    let build = |offset: i64| {
        let mut asm = kernel(32, 1);
        let a = asm.shared("a", 100, 4);
        asm.kernel.dynamic_shared = 64;
        let d = asm.address_of(tessera_ptx::DYNAMIC_SHARED);
        asm.st(Space::Shared, Ty::B32, &[d.into()], Addr::name(&a, 0), Cache::Usual);
        asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(d, offset), Cache::Usual);
        asm
    };
    let memory = Memory::new();
    let f = fault(build(0), &[0], &memory, &Options::default());
    assert_eq!((f.kind, f.address), (FaultKind::Uninitialised, Some(1024)), "{f}");
    let f = fault(build(64), &[0], &memory, &Options::default());
    assert_eq!((f.kind, f.address), (FaultKind::OutOfBounds, Some(1088)), "{f}");
    launch(build(-1024), 1, &[0], &memory, &Options::default()).unwrap_or_else(|f| panic!("{f}"));
}

#[test]
fn local_memory_is_not_declared_and_not_used() {
    let at = Addr { base: Base::None, offset: 16 };
    let f = try_map([0; 32], &Options::default(), |asm, x| {
        asm.st(Space::Local, Ty::B32, &[x.into()], at.clone(), Cache::Usual);
        x
    });
    assert_eq!(f.err().map(|f| f.kind), Some(FaultKind::Invalid));
}

#[test]
fn parameters_are_read_by_name_alone() {
    let mut asm = kernel(32, 2);
    let x = asm.ld(Space::Param, Ty::U32, 1, Addr::name("args", 8), Cache::Usual)[0];
    let y = asm.ld(Space::Param, Ty::U32, 1, Addr::name("args", 12), Cache::Usual)[0];
    let z = asm.int(Alu::Add, Ty::U32, &[x.into(), y.into()]);
    store(&mut asm, Ty::U32, 0, z);
    let mut out = [0u32; 32];
    let mut memory = Memory::new();
    let words = [memory.lend(&mut out), 5 | 7 << 32];
    launch(asm, 1, &words, &memory, &Options::default()).unwrap_or_else(|f| panic!("{f}"));
    // Their address is for TMA.
    let mut asm = kernel(32, 2);
    let d = asm.reg(Class::B64);
    asm.emit(Inst::AddressOf { d, name: "args".to_string() });
    asm.ld(Space::Param, Ty::U32, 1, Addr::reg(d, 0), Cache::Usual);
    assert_eq!(fault(asm, &words, &memory, &Options::default()).kind, FaultKind::Invalid);
    let mut asm = kernel(32, 2);
    let d = asm.reg(Class::B64);
    asm.emit(Inst::AddressOf { d, name: "args".to_string() });
    asm.ld(Space::Global, Ty::U32, 1, Addr::reg(d, 0), Cache::Usual);
    assert_eq!(fault(asm, &words, &memory, &Options::default()).kind, FaultKind::OutOfBounds);
    drop(memory);
    assert_eq!(out, [12; 32]);
}

/// Copies a tile in two groups and reads it; `wait` and `use_before` break it.
fn pipeline(wait: u32, use_before: bool, overwrite: bool) -> Asm {
    let mut asm = kernel(32, 2);
    let tile = asm.shared("tile", 256, 16);
    let tid = asm.special(Special::TidX);
    let base = asm.address_of(&tile);
    let to = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), base.into()]);
    let from = element(&mut asm, 0, 4);
    for stage in 0..2 {
        let (dst, src) = (Addr::reg(to, 128 * stage), Addr::reg(from, 128 * stage));
        asm.emit(Inst::CpAsync { dst, src, bytes: 4, src_bytes: None });
        asm.emit(Inst::CpCommit);
    }
    if overwrite {
        asm.st(Space::Shared, Ty::B32, &[0.into()], Addr::reg(to, 0), Cache::Usual);
    }
    if !use_before {
        asm.emit(Inst::CpWait { groups: wait });
        asm.barrier();
    }
    let x = asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(to, 0), Cache::Usual)[0];
    asm.emit(Inst::CpWait { groups: 0 });
    let y = asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(to, 128), Cache::Usual)[0];
    let z = asm.int(Alu::Add, Ty::U32, &[x.into(), y.into()]);
    store(&mut asm, Ty::B32, 1, z);
    asm
}

#[test]
fn copies_land_when_they_are_waited_for() {
    let input: Vec<u32> = (0..64).map(|i| i * i).collect();
    for copies in [Copies::Late, Copies::Early, Copies::Random] {
        let mut out = [0u32; 32];
        let mut memory = Memory::new();
        let words = [memory.share(&input), memory.lend(&mut out)];
        let options = Options { copies, seed: 3, races: true, ..Options::default() };
        launch(pipeline(1, false, false), 1, &words, &memory, &options)
            .unwrap_or_else(|f| panic!("{f}"));
        for (asm, kind) in [
            (pipeline(2, false, false), FaultKind::InFlight),
            (pipeline(1, true, false), FaultKind::InFlight),
            (pipeline(1, false, true), FaultKind::InFlight),
        ] {
            let f = fault(asm, &words, &memory, &options);
            assert_eq!(f.kind, kind, "{f}");
        }
        drop(memory);
        assert_eq!(out, std::array::from_fn(|i| input[i] + input[i + 32]));
    }
}

#[test]
fn copies_fill_with_zeros_beyond_the_source() {
    let mut asm = kernel(32, 2);
    let tile = asm.shared("tile", 128, 16);
    let tid = asm.special(Special::TidX);
    let base = asm.address_of(&tile);
    let to = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), base.into()]);
    let from = element(&mut asm, 0, 4);
    let inside = asm.setp(Cmp::Lt, Ty::U32, tid, 10);
    let n = asm.selp(Ty::U32, inside, 4, 0);
    let (dst, src) = (Addr::reg(to, 0), Addr::reg(from, 0));
    asm.emit(Inst::CpAsync { dst, src, bytes: 4, src_bytes: Some(n.into()) });
    asm.emit(Inst::CpCommit);
    asm.emit(Inst::CpWait { groups: 0 });
    let x = asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(to, 0), Cache::Usual)[0];
    store(&mut asm, Ty::B32, 1, x);
    let input = [7u32; 10];
    let mut out = [1u32; 32];
    let mut memory = Memory::new();
    let words = [memory.share(&input), memory.lend(&mut out)];
    launch(asm, 1, &words, &memory, &Options::default()).unwrap_or_else(|f| panic!("{f}"));
    drop(memory);
    assert_eq!(out, std::array::from_fn(|i| if i < 10 { 7 } else { 0 }));
}

#[test]
fn a_copy_waited_for_without_a_barrier_races() {
    let mut asm = kernel(64, 2);
    let tile = asm.shared("tile", 256, 16);
    let tid = asm.special(Special::TidX);
    let base = asm.address_of(&tile);
    let to = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), base.into()]);
    let from = element(&mut asm, 0, 4);
    asm.emit(Inst::CpAsync {
        dst: Addr::reg(to, 0),
        src: Addr::reg(from, 0),
        bytes: 4,
        src_bytes: None,
    });
    asm.emit(Inst::CpCommit);
    // The barrier comes before the wait: it orders the issue of the copies, not their completion.
    asm.barrier();
    asm.emit(Inst::CpWait { groups: 0 });
    let other = asm.int(Alu::Xor, Ty::B32, &[to.into(), 128.into()]);
    asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(other, 0), Cache::Usual);
    let input = [7u32; 64];
    let mut memory = Memory::new();
    let words = [memory.share(&input), 0];
    let options = Options { races: true, ..Options::default() };
    let f = fault(asm, &words, &memory, &options);
    assert!(matches!(f.kind, FaultKind::Race | FaultKind::InFlight), "{f}");
}

fn atomics(ty: Ty, op: AtomOp, space: Space, start: u64, values: [u64; 32]) -> (u64, Vec<u64>) {
    let mut asm = kernel(32, 3);
    let word = asm.shared("word", 8, 8);
    let at = arg(&mut asm, 0);
    let values_at = element(&mut asm, 1, 8);
    let v = asm.ld(Space::Global, ty, 1, Addr::reg(values_at, 0), Cache::Usual)[0];
    let addr = match space {
        Space::Global => Addr::reg(at, 0),
        _ => Addr::name(&word, 0),
    };
    if space == Space::Shared {
        let x = asm.ld(Space::Global, ty, 1, Addr::reg(at, 0), Cache::Usual)[0];
        asm.st(Space::Shared, ty, &[x.into()], addr.clone(), Cache::Usual);
        asm.emit(Inst::WarpSync { mask: Opnd::Int(-1) });
    }
    let d = asm.reg(ty.class());
    let (sem, scope) = (Sem::Relaxed, Scope::Gpu);
    let b = (op == AtomOp::Cas).then_some(Opnd::Int(99));
    asm.emit(Inst::Atom { space, sem, scope, op, ty, d, addr: addr.clone(), a: v.into(), b });
    let old_at = element(&mut asm, 2, 8);
    asm.st(Space::Global, ty, &[d.into()], Addr::reg(old_at, 0), Cache::Usual);
    if space == Space::Shared {
        asm.emit(Inst::WarpSync { mask: Opnd::Int(-1) });
        let x = asm.ld(Space::Shared, ty, 1, addr, Cache::Usual)[0];
        asm.st(Space::Global, ty, &[x.into()], Addr::reg(at, 0), Cache::Usual);
    }
    let (mut cell, mut old) = ([start], vec![0u64; 32]);
    let mut memory = Memory::new();
    let words = [memory.lend(&mut cell), memory.share(&values), memory.lend(&mut old)];
    let options = Options { races: true, ..Options::default() };
    launch(asm, 1, &words, &memory, &options).unwrap_or_else(|f| panic!("{f}"));
    drop(memory);
    (cell[0], old)
}

#[test]
fn atomics_come_one_after_another() {
    let ones = [1; 32];
    let ramp = std::array::from_fn(|i| i as u64);
    for space in [Space::Global, Space::Shared] {
        let of = |ty, op, start, values| atomics(ty, op, space, start, values);
        let (sum, old) = of(Ty::U32, AtomOp::Add, 10, ones);
        assert_eq!((sum, old), (42, (10..42).collect()));
        assert_eq!(of(Ty::U64, AtomOp::Add, u64::MAX, ones).0, 31);
        assert_eq!(of(Ty::S32, AtomOp::Min, 5, [0xFFFF_FFFF; 32]).0, 0xFFFF_FFFF);
        assert_eq!(of(Ty::U32, AtomOp::Max, 5, ramp).0, 31);
        assert_eq!(of(Ty::B32, AtomOp::Xor, 0, ramp).0, 0);
        assert_eq!(of(Ty::B64, AtomOp::Exch, 7, ramp).0, 31);
        assert_eq!(of(Ty::U32, AtomOp::Inc, 0, [9; 32]).0, 2);
        assert_eq!(of(Ty::U32, AtomOp::Dec, 0, [9; 32]).0, 8);
        assert_eq!(of(Ty::B32, AtomOp::Cas, 20, ramp).0, 99);
        assert_eq!(of(Ty::B16, AtomOp::Cas, 3, ramp).0, 99);
        let half = |x: f32| x.to_bits() as u64;
        assert_eq!(of(Ty::F32, AtomOp::Add, half(1.0), [half(0.5); 32]).0, half(17.0));
        assert_eq!(of(Ty::F64, AtomOp::Add, 0, [1.5f64.to_bits(); 32]).0, 48f64.to_bits());
        assert_eq!(of(Ty::F16x2, AtomOp::Add, 0x3C00_0000, [0x3C00_3800; 32]).0, 0x5020_4C00);
        assert_eq!(of(Ty::BF16x2, AtomOp::Add, 0, [0x3F80_3F00; 32]).0, 0x4200_4180);
    }
    // f32 sums in global memory flush subnormal numbers.
    assert_eq!(atomics(Ty::F32, AtomOp::Add, Space::Global, 1, [0; 32]).0, 0);
    assert_eq!(atomics(Ty::F32, AtomOp::Add, Space::Shared, 1, [0; 32]).0, 1);
}
