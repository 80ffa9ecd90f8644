use super::*;

fn shuffle(kind: Shfl, b: i64, c: i64) -> [u32; 32] {
    map(std::array::from_fn(|i| i as u32), |asm, x| {
        let (d, p) = (asm.reg(Class::B32), asm.reg(Class::Pred));
        let (a, mask) = (x.into(), Opnd::Int(-1));
        asm.emit(Inst::Shfl { kind, d, ok: Some(p), a, b: b.into(), c: c.into(), mask });
        let outside = asm.int(Alu::Or, Ty::B32, &[d.into(), 0x100.into()]);
        asm.selp(Ty::B32, p, d, outside)
    })
}

#[test]
fn shuffles_stay_in_their_segments() {
    let of = |f: &dyn Fn(u32) -> u32| std::array::from_fn(|i| f(i as u32));
    assert_eq!(shuffle(Shfl::Bfly, 5, 0x1F), of(&|i| i ^ 5));
    assert_eq!(shuffle(Shfl::Idx, 7, 0x1F), of(&|_| 7));
    assert_eq!(shuffle(Shfl::Down, 3, 0x1F), of(&|i| if i < 29 { i + 3 } else { i | 0x100 }));
    assert_eq!(shuffle(Shfl::Up, 3, 0), of(&|i| if i >= 3 { i - 3 } else { i | 0x100 }));
    // Segments of eight lanes: the mask of the segment is 0x18.
    let c = 0x181F;
    assert_eq!(shuffle(Shfl::Idx, 2, c), of(&|i| i & 0x18 | 2));
    let down = of(&|i| if i % 8 < 6 { i + 2 } else { i | 0x100 });
    assert_eq!(shuffle(Shfl::Down, 2, c), down);
    let up = of(&|i| if i % 8 >= 2 { i - 2 } else { i | 0x100 });
    assert_eq!(shuffle(Shfl::Up, 2, 0x1800), up);
    assert_eq!(shuffle(Shfl::Bfly, 8, c), of(&|i| if i & 8 != 0 { i ^ 8 } else { i | 0x100 }));
}

#[test]
fn lanes_vote_and_reduce() {
    let input: [u32; 32] = std::array::from_fn(|i| i as u32);
    let all = Opnd::Int(-1);
    let ballot = map(input, |asm, x| {
        let p = asm.setp(Cmp::Lt, Ty::U32, x, 5);
        let d = asm.reg(Class::B32);
        let p = tessera_ptx::Guard { reg: p, negated: true };
        asm.emit(Inst::Vote { kind: Vote::Ballot, d, p, mask: all });
        d
    });
    assert_eq!(ballot, [!0x1F; 32]);
    for (kind, limit, want) in [
        (Vote::Any, 1, 1),
        (Vote::Any, 0, 0),
        (Vote::All, 32, 1),
        (Vote::All, 31, 0),
        (Vote::Uni, 0, 1),
        (Vote::Uni, 3, 0),
    ] {
        let out = map(input, |asm, x| {
            let p = asm.setp(Cmp::Lt, Ty::U32, x, limit);
            let d = asm.reg(Class::Pred);
            let p = tessera_ptx::Guard { reg: p, negated: false };
            asm.emit(Inst::Vote { kind, d, p, mask: all });
            asm.selp(Ty::B32, d, 1, 0)
        });
        assert_eq!(out, [want; 32], "{kind:?} {limit}");
    }
    let redux = |op, ty, input: [u32; 32]| {
        map(input, |asm, x| {
            let d = asm.reg(Class::B32);
            asm.emit(Inst::Redux { op, ty, d, a: x.into(), mask: all });
            d
        })[9]
    };
    assert_eq!(redux(AtomOp::Add, Ty::U32, input), 496);
    let signed = std::array::from_fn(|i| (i as i32 - 16) as u32);
    assert_eq!(redux(AtomOp::Min, Ty::S32, signed), -16i32 as u32);
    assert_eq!(redux(AtomOp::Max, Ty::U32, signed), u32::MAX);
    assert_eq!(redux(AtomOp::Or, Ty::B32, input), 31);
    let elected = map(input, |asm, _| {
        let p = asm.reg(Class::Pred);
        asm.emit(Inst::Elect { p, mask: all });
        asm.selp(Ty::B32, p, 1, 0)
    });
    assert_eq!(elected.iter().sum::<u32>(), 1);
}

/// Two halves of a warp shuffle separately, in the branches of one condition.
#[test]
fn parts_of_a_warp_synchronise_by_their_masks() {
    let out = map(std::array::from_fn(|i| i as u32), |asm, x| {
        let p = asm.setp(Cmp::Lt, Ty::U32, x, 16);
        let (low, end) = (asm.label(), asm.label());
        let d = asm.reg(Class::B32);
        let sync = |asm: &mut Asm, mask: i64| {
            let (a, b, c, mask) = (x.into(), 3.into(), 0x1F.into(), Opnd::Int(mask));
            asm.emit(Inst::Shfl { kind: Shfl::Bfly, d, ok: None, a, b, c, mask });
        };
        asm.bra_if(p, true, low);
        sync(asm, 0xFFFF_0000);
        asm.bra(end);
        asm.place(low);
        sync(asm, 0xFFFF);
        asm.place(end);
        d
    });
    assert_eq!(out, std::array::from_fn(|i| i as u32 ^ 3));
}

#[test]
fn a_block_learns_whether_any_thread_has_it() {
    for limit in [100i64, 10] {
        let mut asm = kernel(64, 1);
        let tid = asm.special(Special::TidX);
        let p = asm.setp(Cmp::Gt, Ty::U32, tid, limit);
        let d = asm.reg(Class::Pred);
        asm.emit(Inst::BarRedOr { id: 0, d, p });
        let x = asm.selp(Ty::B32, d, 1, 0);
        store(&mut asm, Ty::B32, 0, x);
        let mut out = [7u32; 64];
        let mut memory = Memory::new();
        let words = [memory.lend(&mut out)];
        launch(asm, 1, &words, &memory, &Options::default()).unwrap_or_else(|f| panic!("{f}"));
        drop(memory);
        assert_eq!(out, [(limit < 64) as u32; 64]);
    }
}

/// Lanes of a warp that exchange words through shared memory must synchronise.
#[test]
fn lanes_race_without_a_warp_barrier() {
    let build = |sync: bool| {
        let mut asm = kernel(32, 1);
        let words = asm.shared("words", 128, 4);
        let tid = asm.special(Special::TidX);
        let base = asm.address_of(&words);
        let at = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), base.into()]);
        asm.st(Space::Shared, Ty::B32, &[tid.into()], Addr::reg(at, 0), Cache::Usual);
        if sync {
            asm.emit(Inst::WarpSync { mask: Opnd::Int(-1) });
        }
        let other = asm.int(Alu::Xor, Ty::B32, &[at.into(), 4.into()]);
        asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(other, 0), Cache::Usual);
        asm
    };
    let options = Options { races: true, ..Options::default() };
    launch(build(true), 1, &[0], &Memory::new(), &options).unwrap_or_else(|f| panic!("{f}"));
    let f = fault(build(false), &[0], &Memory::new(), &options);
    assert_eq!(f.kind, FaultKind::Race, "{f}");
    assert!(f.notes[0].contains("thread 1 did so at `st.shared"), "{f}");
    launch(build(false), 1, &[0], &Memory::new(), &Options::default())
        .unwrap_or_else(|f| panic!("{f}"));
}

/// A write after others have read is a race too, and concurrent writes of one value are not.
#[test]
fn writes_after_reads_race() {
    let build = |own: bool| {
        let mut asm = kernel(64, 1);
        let word = asm.shared("word", 4, 4);
        let tid = asm.special(Special::TidX);
        let here = || Addr::name(&word, 0);
        let first = asm.setp(Cmp::Lt, Ty::U32, tid, 32);
        asm.when(first, true, |asm| {
            asm.st(Space::Shared, Ty::B32, &[9.into()], here(), Cache::Usual);
        });
        asm.barrier();
        asm.ld(Space::Shared, Ty::B32, 1, here(), Cache::Usual);
        if !own {
            asm.when(first, true, |asm| {
                asm.st(Space::Shared, Ty::B32, &[tid.into()], here(), Cache::Usual);
            });
        }
        asm
    };
    let options = Options { races: true, ..Options::default() };
    launch(build(true), 1, &[0], &Memory::new(), &options).unwrap_or_else(|f| panic!("{f}"));
    let f = fault(build(false), &[0], &Memory::new(), &options);
    assert_eq!(f.kind, FaultKind::Race, "{f}");
}
