use super::*;
use tessera_numerics::DType;

#[repr(align(128))]
#[derive(Copy, Clone)]
pub struct Line(pub [u8; 128]);

/// Bytes with the alignment that any copy needs.
pub fn lines(bytes: &[u8]) -> Vec<Line> {
    let fill = |c: &[u8]| {
        let mut line = [0; 128];
        line[..c.len()].copy_from_slice(c);
        Line(line)
    };
    bytes.chunks(128).map(fill).collect()
}

pub fn flat(lines: &[Line]) -> Vec<u8> {
    lines.iter().flat_map(|l| l.0).collect()
}

pub fn all_options() -> Vec<Options> {
    let copies = [Copies::Late, Copies::Early, Copies::Random];
    (0..6)
        .flat_map(|seed| copies.map(|copies| (seed, copies)))
        .map(|(seed, copies)| Options { seed, copies, races: true, ..Options::default() })
        .collect()
}

/// Waits for a phase of an mbarrier.
pub fn wait(asm: &mut Asm, bar: Addr, parity: impl Into<Opnd>) {
    let again = asm.label();
    asm.place(again);
    let p = asm.reg(Class::Pred);
    asm.emit(Inst::MbarWait { d: p, addr: bar, parity: parity.into(), block: true });
    asm.bra_if(p, false, again);
}

/// A two-stage pipeline: warp 0 issues copies of 128 bytes, warp 1 adds 1 and stores them.
fn pipeline(stages: i64, steps: i64, arrive: bool) -> Asm {
    let mut asm = kernel(64, 2);
    let data = asm.shared("data", 128 * stages as u32, 128);
    let bars = asm.shared("bars", 16 * stages as u32, 8);
    let tid = asm.special(Special::TidX);
    let lane = asm.special(Special::LaneId);
    let first = asm.setp(Cmp::Eq, Ty::U32, tid, 0);
    asm.when(first, true, |asm| {
        for s in 0..stages {
            let full = Addr::name(&bars, 16 * s);
            asm.emit(Inst::MbarInit { addr: full, count: 1.into() });
            let empty = Addr::name(&bars, 16 * s + 8);
            asm.emit(Inst::MbarInit { addr: empty, count: 1.into() });
        }
        asm.emit(Inst::FenceMbarInit);
    });
    asm.barrier();
    let bars = asm.address_of(&bars);
    let data = asm.address_of(&data);
    let leader = asm.setp(Cmp::Eq, Ty::U32, lane, 0);
    let step = asm.mov(Ty::U32, 0);
    let (consumer, end) = (asm.label(), asm.label());
    let is_consumer = asm.setp(Cmp::Ge, Ty::U32, tid, 32);
    let place = |asm: &mut Asm| {
        let stage = asm.int(Alu::Rem, Ty::U32, &[step.into(), stages.into()]);
        let round = asm.int(Alu::Div, Ty::U32, &[step.into(), stages.into()]);
        let parity = asm.int(Alu::And, Ty::B32, &[round.into(), 1.into()]);
        let bar = asm.int(Alu::MadLo, Ty::U32, &[stage.into(), 16.into(), bars.into()]);
        let at = asm.int(Alu::MadLo, Ty::U32, &[stage.into(), 128.into(), data.into()]);
        (bar, at, parity)
    };
    let next = |asm: &mut Asm, head: Label| {
        let more = asm.int(Alu::Add, Ty::U32, &[step.into(), 1.into()]);
        asm.mov_to(Ty::U32, step, more);
        let p = asm.setp(Cmp::Lt, Ty::U32, step, steps);
        asm.bra_if(p, true, head);
    };
    asm.bra_if(is_consumer, true, consumer);
    asm.bra_if(leader, false, end);
    let from = arg(&mut asm, 0);
    let head = asm.label();
    asm.place(head);
    let (bar, at, parity) = place(&mut asm);
    let other = asm.int(Alu::Xor, Ty::B32, &[parity.into(), 1.into()]);
    wait(&mut asm, Addr::reg(bar, 8), other);
    let bytes = 128.into();
    asm.emit(Inst::MbarArriveExpect { space: Space::Shared, addr: Addr::reg(bar, 0), bytes });
    let src = asm.int(Alu::MadWide, Ty::U32, &[step.into(), 128.into(), from.into()]);
    let (dst, src, bar_at) = (Addr::reg(at, 0), Addr::reg(src, 0), Addr::reg(bar, 0));
    asm.emit(Inst::BulkLoad { dst, src, bytes, bar: bar_at, multicast: None, hint: None });
    next(&mut asm, head);
    asm.bra(end);

    asm.place(consumer);
    let to = arg(&mut asm, 1);
    let head = asm.label();
    asm.place(head);
    let (bar, at, parity) = place(&mut asm);
    wait(&mut asm, Addr::reg(bar, 0), parity);
    let here = asm.int(Alu::MadLo, Ty::U32, &[lane.into(), 4.into(), at.into()]);
    let x = asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(here, 0), Cache::Usual)[0];
    asm.emit(Inst::WarpSync { mask: Opnd::Int(-1) });
    if arrive {
        asm.when(leader, true, |asm| {
            let addr = Addr::reg(bar, 8);
            asm.emit(Inst::MbarArrive { space: Space::Shared, addr, count: None });
        });
    }
    let y = asm.int(Alu::Add, Ty::U32, &[x.into(), 1.into()]);
    let out = asm.int(Alu::MadLo, Ty::U32, &[step.into(), 32.into(), lane.into()]);
    let out = asm.int(Alu::MadWide, Ty::U32, &[out.into(), 4.into(), to.into()]);
    asm.st(Space::Global, Ty::B32, &[y.into()], Addr::reg(out, 0), Cache::Usual);
    next(&mut asm, head);
    asm.place(end);
    asm
}

#[test]
fn a_pipeline_of_barriers_and_copies_runs_in_every_order() {
    let steps = 7;
    let input: Vec<u8> = (0..32 * steps as u32).flat_map(|i| (i * 3).to_le_bytes()).collect();
    let input = lines(&input);
    for options in all_options() {
        let mut out = vec![0u32; 32 * steps];
        let mut memory = Memory::new();
        let words = [memory.share(&input), memory.lend(&mut out)];
        launch(pipeline(2, steps as i64, true), 1, &words, &memory, &options)
            .unwrap_or_else(|f| panic!("{options:?} {f}"));
        drop(memory);
        assert!(out.iter().enumerate().all(|(i, x)| *x == i as u32 * 3 + 1), "{options:?}");
    }
    let mut out = vec![0u32; 32 * steps];
    let mut memory = Memory::new();
    let words = [memory.share(&input), memory.lend(&mut out)];
    let f = fault(pipeline(2, steps as i64, false), &words, &memory, &Options::default());
    assert_eq!(f.kind, FaultKind::Deadlock, "{f}");
    assert!(f.to_string().contains("waits for 1 of 1 arrivals and 0 bytes"), "{f}");
}

/// A consumer that does not wait reads bytes in flight, or races.
#[test]
fn a_copy_that_is_not_waited_for_is_found() {
    for options in all_options() {
        let mut asm = kernel(32, 1);
        let data = asm.shared("data", 128, 128);
        let bar = asm.shared("bar", 8, 8);
        let tid = asm.special(Special::TidX);
        let first = asm.setp(Cmp::Eq, Ty::U32, tid, 0);
        let from = arg(&mut asm, 0);
        asm.when(first, true, |asm| {
            asm.emit(Inst::MbarInit { addr: Addr::name(&bar, 0), count: 1.into() });
            let (space, addr) = (Space::Shared, Addr::name(&bar, 0));
            asm.emit(Inst::MbarArriveExpect { space, addr, bytes: 128.into() });
            let (dst, src, bar) = (Addr::name(&data, 0), Addr::reg(from, 0), Addr::name(&bar, 0));
            let bytes = 128.into();
            asm.emit(Inst::BulkLoad { dst, src, bytes, bar, multicast: None, hint: None });
        });
        let base = asm.address_of(&data);
        let here = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), base.into()]);
        asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(here, 0), Cache::Usual);
        let input = lines(&[1; 128]);
        let mut memory = Memory::new();
        let words = [memory.share(&input)];
        let f = fault(asm, &words, &memory, &options);
        assert!(matches!(f.kind, FaultKind::InFlight | FaultKind::Race), "{f}");
    }
}

/// A box of a bf16 matrix with rows of 128 bytes, partly outside, is loaded, read with the swizzle
/// undone by hand, and stored by TMA.
#[test]
fn boxes_are_loaded_and_stored_swizzled() {
    for (swizzle, columns) in [(0, 64), (128, 64), (64, 32), (32, 16)] {
        let (rows, box_rows) = (20u64, 16u32);
        let row_bytes = columns as u64 * 2;
        let mut asm = kernel(32, 1);
        for name in ["from", "to"] {
            let name = name.to_string();
            asm.kernel.params.push(Param { name, bytes: 128, align: 64 });
        }
        let bytes = box_rows * row_bytes as u32;
        let data = asm.shared("data", bytes, 1024);
        let bar = asm.shared("bar", 8, 8);
        let tid = asm.special(Special::TidX);
        let first = asm.setp(Cmp::Eq, Ty::U32, tid, 0);
        let maps = ["from", "to"].map(|name| {
            let d = asm.reg(Class::B64);
            asm.emit(Inst::AddressOf { d, name: name.to_string() });
            d
        });
        let plain = arg(&mut asm, 0);
        let here = |name: &str| Addr::name(name, 0);
        let coords = vec![Opnd::Int(8), Opnd::Int(6)];
        asm.when(first, true, |asm| {
            asm.emit(Inst::MbarInit { addr: here(&bar), count: 1.into() });
            let (space, bytes) = (Space::Shared, Opnd::Int(bytes as i64));
            asm.emit(Inst::MbarArriveExpect { space, addr: here(&bar), bytes });
            let (dst, bar, coords) = (here(&data), here(&bar), coords.clone());
            asm.emit(Inst::TmaLoad { dst, map: maps[0], coords, bar, multicast: None, hint: None });
        });
        asm.emit(Inst::WarpSync { mask: Opnd::Int(-1) });
        wait(&mut asm, here(&bar), 0);
        let base = asm.address_of(&data);
        for i in 0..bytes as i64 / 128 {
            let at = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), base.into()]);
            let x = asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(at, 128 * i), Cache::Usual)[0];
            let to = asm.int(Alu::MadWide, Ty::U32, &[tid.into(), 4.into(), plain.into()]);
            asm.st(Space::Global, Ty::B32, &[x.into()], Addr::reg(to, 128 * i), Cache::Usual);
        }
        asm.emit(Inst::WarpSync { mask: Opnd::Int(-1) });
        asm.when(first, true, |asm| {
            asm.emit(Inst::TmaStore { map: maps[1], coords, src: here(&data), hint: None });
            asm.emit(Inst::BulkCommit);
            asm.emit(Inst::BulkWait { groups: 0, read: false });
        });
        let size = (rows * row_bytes) as usize;
        let source: Vec<u8> = (0..size).map(|i| (i * 7 + i / 256) as u8).collect();
        let input = lines(&source);
        let mut back = lines(&vec![0xEE; size]);
        let mut seen = vec![0u32; bytes as usize / 4];
        let mut memory = Memory::new();
        let base = memory.share(&input);
        // SAFETY: `back` outlives the run.
        unsafe { memory.allow(back.as_ptr().cast(), size, true) };
        let map = |base: u64| TensorMap {
            base,
            dtype: DType::BF16,
            dims: vec![columns as u64, rows],
            strides: vec![row_bytes],
            tile: vec![columns, box_rows],
            swizzle,
        };
        let maps = [map(base).encode(), map(back.as_mut_ptr() as u64).encode()];
        let word = memory.lend(&mut seen).to_le_bytes();
        let module = module(asm);
        let grid = Grid { grid: [1, 1, 1], dynamic_shared: 0 };
        let params: [&[u8]; 3] = [&word, &maps[0], &maps[1]];
        let options = Options { races: true, ..Options::default() };
        run(&module, "k", &grid, &params, &memory, &options).unwrap_or_else(|f| panic!("{f}"));
        drop(memory);
        let seen: Vec<u8> = seen.iter().flat_map(|x| x.to_le_bytes()).collect();
        for (i, byte) in seen.iter().enumerate() {
            // Undo the swizzle: 16-byte pieces within the span, by the row of 128 bytes.
            let piece = (i / 128 % 8) & (swizzle as usize / 16).saturating_sub(1);
            let at = i ^ piece << 4;
            let (row, column) = (at / row_bytes as usize + 6, at % row_bytes as usize + 16);
            let inside = row < rows as usize && column < row_bytes as usize;
            let want = if inside { source[row * row_bytes as usize + column] } else { 0 };
            assert_eq!(*byte, want, "swizzle {swizzle} byte {i}");
        }
        let back = flat(&back);
        for (i, byte) in back[..size].iter().enumerate() {
            let (row, column) = (i / row_bytes as usize, i % row_bytes as usize);
            let moved = row >= 6 && column >= 16;
            assert_eq!(*byte, if moved { source[i] } else { 0xEE }, "swizzle {swizzle} byte {i}");
        }
    }
}

/// Threads write, and one of them issues a TMA reduction of the bytes into global memory.
fn fold(fence: bool, wait: bool) -> Asm {
    let mut asm = kernel(64, 1);
    let data = asm.shared("data", 256, 16);
    let tid = asm.special(Special::TidX);
    let base = asm.address_of(&data);
    let at = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), base.into()]);
    let x = asm.cvt(Ty::F32, Ty::U32, Some(Round::Rn), tid);
    asm.st(Space::Shared, Ty::B32, &[x.into()], Addr::reg(at, 0), Cache::Usual);
    if fence {
        asm.emit(Inst::FenceProxyAsync);
    }
    asm.barrier();
    let to = arg(&mut asm, 0);
    let first = asm.setp(Cmp::Eq, Ty::U32, tid, 5);
    asm.when(first, true, |asm| {
        let (dst, src) = (Addr::reg(to, 0), Addr::name(&data, 0));
        let (op, ty, bytes) = (AtomOp::Add, Ty::F32, 256.into());
        asm.emit(Inst::BulkReduce { op, ty, dst, src, bytes, hint: None });
        asm.emit(Inst::BulkCommit);
        if wait {
            asm.emit(Inst::BulkWait { groups: 0, read: true });
        }
    });
    asm
}

#[test]
fn async_copies_see_fenced_writes_and_are_waited_for() {
    let mut out = lines(&[0; 256]);
    let mut memory = Memory::new();
    let words = [out.as_mut_ptr() as u64];
    // SAFETY: `out` outlives the runs.
    unsafe { memory.allow(out.as_ptr().cast(), 256, true) };
    for _ in 0..2 {
        launch(fold(true, true), 1, &words, &memory, &Options::default())
            .unwrap_or_else(|f| panic!("{f}"));
    }
    let f = fault(fold(false, true), &words, &memory, &Options::default());
    assert_eq!(f.kind, FaultKind::Unfenced, "{f}");
    let f = fault(fold(true, false), &words, &memory, &Options::default());
    assert_eq!((f.kind, f.thread), (FaultKind::InFlight, Some(5)), "{f}");
    assert!(f.inst.as_ref().unwrap().contains("cp.reduce"), "{f}");
    let out = flat(&out);
    for (i, word) in out.chunks(4).enumerate() {
        let x = f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        assert_eq!(x, 2.0 * i as f32);
    }
}

/// Block 0 multicasts to both blocks; block 1 stores words into block 0, and copies its memory
/// there.
#[test]
fn copies_reach_other_blocks_of_the_cluster() {
    for options in all_options() {
        let mut asm = kernel(32, 2);
        asm.kernel.cluster = 2;
        let data = asm.shared("data", 384, 128);
        let bar = asm.shared("bar", 8, 8);
        let tid = asm.special(Special::TidX);
        let rank = asm.special(Special::ClusterCtaRank);
        let first = asm.setp(Cmp::Eq, Ty::U32, tid, 0);
        let zero = asm.setp(Cmp::Eq, Ty::U32, rank, 0);
        let here = |name: &str, at: i64| Addr::name(name, at);
        asm.when(first, true, |asm| {
            asm.emit(Inst::MbarInit { addr: here(&bar, 0), count: 1.into() });
            asm.emit(Inst::FenceMbarInit);
        });
        let sync = |asm: &mut Asm| {
            asm.emit(Inst::ClusterArrive { release: true });
            asm.emit(Inst::ClusterWait { acquire: true });
        };
        sync(&mut asm);
        // 128 bytes go to both; the bytes of 128 words and 128 more only to block 0.
        let bytes = asm.selp(Ty::U32, zero, 384, 128);
        asm.when(first, true, |asm| {
            let (space, addr) = (Space::Shared, here(&bar, 0));
            asm.emit(Inst::MbarArriveExpect { space, addr, bytes: bytes.into() });
        });
        let from = arg(&mut asm, 0);
        let lead = asm.int(Alu::And, Ty::Pred, &[first.into(), zero.into()]);
        asm.when(lead, true, |asm| {
            let (dst, src, bar) = (here(&data, 0), Addr::reg(from, 0), here(&bar, 0));
            let (bytes, multicast) = (128.into(), Some(Opnd::Int(3)));
            asm.emit(Inst::BulkLoad { dst, src, bytes, bar, multicast, hint: None });
        });
        let end = asm.label();
        asm.bra_if(zero, true, end);
        wait(&mut asm, here(&bar, 0), 0);
        let map = |asm: &mut Asm, name: &str, at: i64| {
            let a = asm.address_of(name);
            let a = asm.int(Alu::Add, Ty::U32, &[a.into(), at.into()]);
            let d = asm.reg(Class::B32);
            asm.emit(Inst::Mapa { d, a, rank: 0.into() });
            d
        };
        let (words, far, far_bar) =
            (map(&mut asm, &data, 128), map(&mut asm, &data, 256), map(&mut asm, &bar, 0));
        let at = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), words.into()]);
        let (addr, bar_at) = (Addr::reg(at, 0), Addr::reg(far_bar, 0));
        asm.emit(Inst::StAsync { ty: Ty::B32, addr, a: vec![tid.into()], bar: bar_at.clone() });
        asm.when(first, true, |asm| {
            let (dst, src, bytes) = (Addr::reg(far, 0), here(&data, 0), 128.into());
            asm.emit(Inst::BulkSend { dst, src, bytes, bar: bar_at.clone() });
        });
        asm.place(end);
        let done = asm.label();
        asm.bra_if(zero, false, done);
        wait(&mut asm, here(&bar, 0), 0);
        let to = arg(&mut asm, 1);
        let base = asm.address_of(&data);
        let from = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), base.into()]);
        let to = asm.int(Alu::MadWide, Ty::U32, &[tid.into(), 4.into(), to.into()]);
        for i in 0..3 {
            let x = asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(from, 128 * i), Cache::Usual)[0];
            asm.st(Space::Global, Ty::B32, &[x.into()], Addr::reg(to, 128 * i), Cache::Usual);
        }
        asm.place(done);
        sync(&mut asm);
        let input: Vec<u8> = (0..128).collect();
        let source = lines(&input);
        let mut out = vec![0u32; 96];
        let mut memory = Memory::new();
        let args = [memory.share(&source), memory.lend(&mut out)];
        launch(asm, 2, &args, &memory, &options).unwrap_or_else(|f| panic!("{options:?} {f}"));
        drop(memory);
        let out: Vec<u8> = out.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(out[..128], input[..]);
        let words: Vec<u8> = (0..32u32).flat_map(|i| i.to_le_bytes()).collect();
        assert_eq!(out[128..256], words[..]);
        assert_eq!(out[256..], input[..]);
    }
}

/// `cp.async` copies of the threads arrive at an mbarrier.
#[test]
fn thread_copies_arrive_when_they_are_there() {
    for options in all_options() {
        let mut asm = kernel(64, 2);
        let data = asm.shared("data", 256, 16);
        let bar = asm.shared("bar", 8, 8);
        let tid = asm.special(Special::TidX);
        let first = asm.setp(Cmp::Eq, Ty::U32, tid, 0);
        asm.when(first, true, |asm| {
            asm.emit(Inst::MbarInit { addr: Addr::name(&bar, 0), count: 64.into() });
        });
        asm.barrier();
        let base = asm.address_of(&data);
        let to = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), base.into()]);
        let from = element(&mut asm, 0, 4);
        let (dst, src) = (Addr::reg(to, 0), Addr::reg(from, 0));
        asm.emit(Inst::CpAsync { dst, src, bytes: 4, src_bytes: None });
        asm.emit(Inst::CpAsyncArrive { addr: Addr::name(&bar, 0) });
        wait(&mut asm, Addr::name(&bar, 0), 0);
        let back = asm.int(Alu::Xor, Ty::B32, &[to.into(), 252.into()]);
        let x = asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(back, 0), Cache::Usual)[0];
        store(&mut asm, Ty::B32, 1, x);
        let input: Vec<u32> = (0..64).map(|i| i * 5).collect();
        let mut out = [0u32; 64];
        let mut memory = Memory::new();
        let words = [memory.share(&input), memory.lend(&mut out)];
        launch(asm, 1, &words, &memory, &options).unwrap_or_else(|f| panic!("{options:?} {f}"));
        drop(memory);
        assert_eq!(out, std::array::from_fn(|i| (63 - i as u32) * 5));
    }
}
