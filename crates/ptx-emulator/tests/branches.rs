use super::*;

/// Threads loop as often as their input says, and sum the index.
#[test]
fn loops_of_different_length_reconverge() {
    let input = std::array::from_fn(|i| i as u32 % 7);
    let out = map(input, |asm, x| {
        let sum = asm.mov(Ty::U32, 0);
        let i = asm.mov(Ty::U32, 0);
        let (head, end) = (asm.label(), asm.label());
        asm.place(head);
        let done = asm.setp(Cmp::Ge, Ty::U32, i, x);
        asm.bra_if(done, true, end);
        let s = asm.int(Alu::Add, Ty::U32, &[sum.into(), i.into()]);
        asm.mov_to(Ty::U32, sum, s);
        let next = asm.int(Alu::Add, Ty::U32, &[i.into(), 1.into()]);
        asm.mov_to(Ty::U32, i, next);
        asm.bra(head);
        asm.place(end);
        // All lanes have reconverged: a shuffle needs them.
        let d = asm.reg(Class::B32);
        let (a, b, c, mask) = (sum.into(), 1.into(), 31.into(), Opnd::Int(-1));
        asm.emit(Inst::Shfl { kind: Shfl::Bfly, d, ok: None, a, b, c, mask });
        d
    });
    let sum = |n: u32| (0..n).sum::<u32>();
    assert_eq!(out, std::array::from_fn(|i| sum(input[i ^ 1])));
}

#[test]
fn guards_switch_single_lanes() {
    let out = map(std::array::from_fn(|i| i as u32), |asm, x| {
        let p = asm.setp(Cmp::Lt, Ty::U32, x, 5);
        let y = asm.mov(Ty::U32, 100);
        asm.when(p, true, |asm| asm.mov_to(Ty::U32, y, 7));
        asm.when(p, false, |asm| asm.mov_to(Ty::U32, y, x));
        asm.selp(Ty::U32, p, y, 3)
    });
    assert_eq!(out, std::array::from_fn(|i| if i < 5 { 7 } else { 3 }));
}

/// Broadcasts the last thread's word through shared memory.
fn broadcast(threads: u32, barrier: bool) -> Asm {
    let mut asm = kernel(threads, 1);
    let word = asm.shared("word", 4, 4);
    let tid = asm.special(Special::TidX);
    let last = asm.setp(Cmp::Eq, Ty::U32, tid, threads as i64 - 1);
    asm.when(last, true, |asm| {
        asm.st(Space::Shared, Ty::U32, &[tid.into()], Addr::name(&word, 0), Cache::Usual);
    });
    if barrier {
        asm.barrier();
    }
    let x = asm.ld(Space::Shared, Ty::U32, 1, Addr::name(&word, 0), Cache::Usual)[0];
    store(&mut asm, Ty::U32, 0, x);
    asm
}

#[test]
fn barriers_order_warps_whatever_their_iterations() {
    for seed in 0..20 {
        let mut out = vec![0u32; 512];
        let mut memory = Memory::new();
        let words = [memory.lend(&mut out)];
        let options = Options { seed, races: true, ..Options::default() };
        let stats = launch(broadcast(256, true), 2, &words, &memory, &options);
        let stats = stats.unwrap_or_else(|f| panic!("{f}"));
        assert_eq!((stats.blocks, stats.barriers), (2, 2));
        drop(memory);
        assert!(out.iter().all(|x| *x == 255));
    }
}

#[test]
fn a_missing_barrier_is_an_uninitialised_read_or_a_race() {
    let mut out = vec![0u32; 256];
    let mut memory = Memory::new();
    let words = [memory.lend(&mut out)];
    let f = fault(broadcast(256, false), &words, &memory, &Options::default());
    assert_eq!(f.kind, FaultKind::Uninitialised);
    let mut raced = false;
    for seed in 1..200 {
        let options = Options { seed, races: true, ..Options::default() };
        let f = fault(broadcast(64, false), &words, &memory, &options);
        raced |= f.kind == FaultKind::Race;
        if f.kind == FaultKind::Race {
            assert!(f.address == Some(0) && f.message.contains("thread 63 writes"), "{f}");
        }
    }
    assert!(raced);
}

#[test]
fn a_collective_without_its_lanes_is_found() {
    let shuffle = |asm: &mut Asm, x: Reg| {
        let d = asm.reg(Class::B32);
        let (a, b, c, mask) = (x.into(), 0.into(), 31.into(), Opnd::Int(-1));
        asm.emit(Inst::Shfl { kind: Shfl::Idx, d, ok: None, a, b, c, mask });
        d
    };
    let f = try_map(std::array::from_fn(|i| i as u32), &Options::default(), |asm, x| {
        let p = asm.setp(Cmp::Lt, Ty::U32, x, 8);
        let end = asm.label();
        asm.bra_if(p, true, end);
        let d = shuffle(asm, x);
        asm.place(end);
        asm.emit(Inst::WarpSync { mask: Opnd::Int(-1) });
        d
    });
    let f = f.err().unwrap();
    assert_eq!(f.kind, FaultKind::Divergent, "{f}");
    assert!(f.message.contains("lanes 8-31"), "{f}");
    assert!(f.notes.iter().any(|n| n.contains("lanes 0-7")), "{f}");
}

#[test]
fn lanes_that_return_are_not_waited_for() {
    let mut asm = kernel(64, 1);
    let x = asm.special(Special::TidX);
    let p = asm.setp(Cmp::Ge, Ty::U32, x, 40);
    asm.when(p, true, |asm| asm.emit(Inst::Ret));
    asm.barrier();
    asm.emit(Inst::WarpSync { mask: Opnd::Int(-1) });
    store(&mut asm, Ty::U32, 0, x);
    let mut out = [7u32; 64];
    let mut memory = Memory::new();
    let words = [memory.lend(&mut out)];
    launch(asm, 1, &words, &memory, &Options::default()).unwrap_or_else(|f| panic!("{f}"));
    drop(memory);
    assert_eq!(out, std::array::from_fn(|i| if i < 40 { i as u32 } else { 7 }));
}

#[test]
fn a_barrier_under_a_lane_condition_is_found() {
    let mut asm = kernel(32, 1);
    let x = asm.special(Special::TidX);
    let p = asm.setp(Cmp::Ge, Ty::U32, x, 4);
    asm.when(p, true, |asm| asm.barrier());
    let memory = Memory::new();
    // The lanes that skip it return, so those that stay are all there are.
    launch(asm, 1, &[0], &memory, &Options::default()).unwrap_or_else(|f| panic!("{f}"));
    let mut asm = kernel(32, 1);
    let x = asm.special(Special::TidX);
    let p = asm.setp(Cmp::Ge, Ty::U32, x, 4);
    asm.when(p, true, |asm| asm.barrier());
    asm.emit(Inst::WarpSync { mask: Opnd::Int(-1) });
    let f = fault(asm, &[0], &memory, &Options::default());
    assert_eq!(f.kind, FaultKind::Divergent, "{f}");
}

#[test]
fn a_deadlock_says_who_waits_where() {
    let mut asm = kernel(64, 1);
    let x = asm.special(Special::TidX);
    let p = asm.setp(Cmp::Ge, Ty::U32, x, 32);
    let (other, end) = (asm.label(), asm.label());
    asm.bra_if(p, true, other);
    asm.emit(Inst::BarSync { id: 1.into(), count: Some(64) });
    asm.bra(end);
    asm.place(other);
    asm.emit(Inst::BarSync { id: 2.into(), count: Some(64) });
    asm.place(end);
    let f = fault(asm, &[0], &Memory::new(), &Options::default());
    assert_eq!(f.kind, FaultKind::Deadlock);
    let text = f.to_string();
    assert!(text.contains("warp 0 lanes 0-31 wait at barrier 1"), "{text}");
    assert!(text.contains("warp 1 lanes 0-31 wait at barrier 2"), "{text}");
}

/// A producer warp arrives, a consumer warp waits: only two of four warps take part.
#[test]
fn named_barriers_bring_some_warps_together() {
    for seed in 0..10 {
        let mut asm = kernel(128, 1);
        let word = asm.shared("word", 4, 4);
        let tid = asm.special(Special::TidX);
        let warp = asm.int(Alu::Shr, Ty::U32, &[tid.into(), 5.into()]);
        let (consumer, end) = (asm.label(), asm.label());
        let p = asm.setp(Cmp::Eq, Ty::U32, warp, 2);
        asm.bra_if(p, true, consumer);
        let p = asm.setp(Cmp::Ne, Ty::U32, warp, 1);
        asm.bra_if(p, true, end);
        let first = asm.setp(Cmp::Eq, Ty::U32, tid, 32);
        asm.when(first, true, |asm| {
            asm.st(Space::Shared, Ty::U32, &[42.into()], Addr::name(&word, 0), Cache::Usual);
        });
        asm.emit(Inst::BarArrive { id: 3.into(), count: 64 });
        asm.bra(end);
        asm.place(consumer);
        asm.emit(Inst::BarSync { id: 3.into(), count: Some(64) });
        let x = asm.ld(Space::Shared, Ty::U32, 1, Addr::name(&word, 0), Cache::Usual)[0];
        store(&mut asm, Ty::U32, 0, x);
        asm.place(end);
        let mut out = [0u32; 128];
        let mut memory = Memory::new();
        let words = [memory.lend(&mut out)];
        let options = Options { seed, races: true, ..Options::default() };
        launch(asm, 1, &words, &memory, &options).unwrap_or_else(|f| panic!("{f}"));
        drop(memory);
        assert_eq!(out, std::array::from_fn(|i| if i / 32 == 2 { 42 } else { 0 }));
    }
}

#[test]
fn endless_loops_end_at_the_step_limit() {
    let mut asm = kernel(32, 1);
    let head = asm.label();
    asm.place(head);
    asm.bra(head);
    let options = Options { step_limit: 100_000, ..Options::default() };
    let f = fault(asm, &[0], &Memory::new(), &options);
    assert_eq!(f.kind, FaultKind::StepLimit);
}

#[test]
fn a_trap_names_its_place() {
    let mut asm = kernel(32, 1);
    asm.kernel.body.push(tessera_ptx::Stmt::Place { file: 1, line: 12, column: 3 });
    asm.emit(Inst::Trap);
    let f = fault(asm, &[0], &Memory::new(), &Options::default());
    assert_eq!((f.kind, f.block), (FaultKind::Trap, Some([0, 0, 0])));
    let place = Place { file: "k.py".to_string(), line: 12, column: 3 };
    assert_eq!(f.place, Some(place));
    assert_eq!(tessera_diag::Diagnostic::from(&f).loc.line(), 12);
}

#[test]
fn blocks_of_a_cluster_share_memory_and_a_barrier() {
    let mut ended = 0;
    for (seed, stay) in (0..10).flat_map(|s| [(s, true), (s, false)]) {
        let mut asm = kernel(32, 1);
        asm.kernel.cluster = 2;
        let word = asm.shared("word", 128, 4);
        let tid = asm.special(Special::TidX);
        let rank = asm.special(Special::ClusterCtaRank);
        let base = asm.address_of(&word);
        let at = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), base.into()]);
        let x = asm.int(Alu::MadLo, Ty::U32, &[rank.into(), 100.into(), tid.into()]);
        asm.st(Space::Shared, Ty::U32, &[x.into()], Addr::reg(at, 0), Cache::Usual);
        asm.emit(Inst::ClusterArrive { release: true });
        asm.emit(Inst::ClusterWait { acquire: true });
        let other = asm.int(Alu::Xor, Ty::B32, &[rank.into(), 1.into()]);
        let d = asm.reg(Class::B32);
        asm.emit(Inst::Mapa { d, a: at, rank: other.into() });
        let y = asm.ld(Space::SharedCluster, Ty::U32, 1, Addr::reg(d, 0), Cache::Usual)[0];
        // A block must not exit while others read its memory.
        if stay {
            asm.emit(Inst::ClusterArrive { release: false });
            asm.emit(Inst::ClusterWait { acquire: false });
        }
        store(&mut asm, Ty::U32, 0, y);
        let mut out = [0u32; 128];
        let mut memory = Memory::new();
        let words = [memory.lend(&mut out)];
        let options = Options { seed, races: true, ..Options::default() };
        match launch(asm, 4, &words, &memory, &options) {
            Err(f) if !stay => {
                assert!(f.message.contains("has ended"), "{f}");
                ended += 1;
                continue;
            }
            result => result.unwrap_or_else(|f| panic!("{f}")),
        };
        drop(memory);
        let want = |i: u32| if i & 32 == 0 { 100 + i % 32 } else { i % 32 };
        assert_eq!(out, std::array::from_fn(|i| want(i as u32)));
    }
    assert!(ended > 0);
}
