//! Hand-written kernels that together use most of what can be printed.

use tessera_ptx::*;

pub fn all() -> Vec<(&'static str, Module)> {
    vec![
        ("scale", module(80, false, scale())),
        ("sum", module(70, false, sum())),
        ("product", module(80, false, product())),
        ("pipeline", module(90, true, pipeline())),
    ]
}

fn module(sm: u32, exact: bool, kernel: Kernel) -> Module {
    let mut module = Module {
        version: Version { major: 0, minor: 0 },
        target: Target { sm, exact },
        files: vec!["kernels/sample.py".to_string()],
        kernels: vec![kernel],
    };
    module.version = module.minimum_version();
    module
}

const ALL: Opnd = Opnd::Int(-1);

fn args(kernel: &mut Kernel, bytes: u32) {
    kernel.params.push(Param { name: "args".to_string(), bytes, align: 8 });
}

fn arg(asm: &mut Asm, ty: Ty, offset: i64) -> Reg {
    asm.ld(Space::Param, ty, 1, Addr::name("args", offset), Cache::Usual)[0]
}

fn place(asm: &mut Asm, line: u32, column: u32) {
    asm.kernel.body.push(Stmt::Place { file: 1, line, column });
}

/// y = a x of bytes of fp16, four at a time, then one at a time.
fn scale() -> Kernel {
    let mut kernel = Kernel::new("scale", 256);
    args(&mut kernel, 24);
    let mut asm = Asm::new(kernel);
    place(&mut asm, 3, 5);
    let (x, y) = (arg(&mut asm, Ty::B64, 0), arg(&mut asm, Ty::B64, 8));
    let (n, a) = (arg(&mut asm, Ty::U32, 16), arg(&mut asm, Ty::F32, 20));
    asm.note("the place of this thread");
    let (block, thread) = (asm.special(Special::CtaidX), asm.special(Special::TidX));
    let i = asm.int(Alu::MadLo, Ty::U32, &[block.into(), Opnd::Int(256), thread.into()]);
    let first = asm.int(Alu::Shl, Ty::B32, &[i.into(), Opnd::Int(2)]);
    let bytes = asm.int(Alu::MulWide, Ty::U32, &[first.into(), Opnd::Int(2)]);
    let x = asm.int(Alu::Add, Ty::S64, &[x.into(), bytes.into()]);
    let y = asm.int(Alu::Add, Ty::S64, &[y.into(), bytes.into()]);
    let last = asm.int(Alu::Add, Ty::U32, &[first.into(), Opnd::Int(3)]);
    let whole = asm.setp(Cmp::Lt, Ty::U32, last, n);
    let (rest, end) = (asm.label(), asm.label());
    asm.bra_if(whole, false, rest);
    place(&mut asm, 4, 9);
    let words = asm.ld(Space::Global, Ty::B32, 2, Addr::reg(x, 0), Cache::ReadOnlyStream);
    let halves: Vec<Reg> = words.iter().flat_map(|w| asm.unpack(Class::B16, 2, *w)).collect();
    let scaled: Vec<Reg> = halves.iter().map(|h| scale_one(&mut asm, *h, a)).collect();
    let words: Vec<Opnd> = scaled.chunks(2).map(|pair| asm.pack(Class::B32, pair).into()).collect();
    asm.st(Space::Global, Ty::B32, &words, Addr::reg(y, 0), Cache::Stream);
    asm.bra(end);
    asm.place(rest);
    for k in 0..4 {
        let here = asm.int(Alu::Add, Ty::U32, &[first.into(), Opnd::Int(k)]);
        let inside = asm.setp(Cmp::Lt, Ty::U32, here, n);
        asm.when(inside, true, |asm| {
            let h = asm.ld(Space::Global, Ty::F16, 1, Addr::reg(x, 2 * k), Cache::Usual)[0];
            let h = scale_one(asm, h, a);
            asm.st(Space::Global, Ty::F16, &[h.into()], Addr::reg(y, 2 * k), Cache::Usual);
        });
    }
    asm.place(end);
    asm.emit(Inst::Ret);
    asm.kernel
}

fn scale_one(asm: &mut Asm, h: Reg, a: Reg) -> Reg {
    let f = asm.cvt(Ty::F32, Ty::F16, None, h);
    let f = asm.float(Alu::Fma, Ty::F32, &[f.into(), a.into(), Opnd::F32(0x8000_0000)]);
    asm.cvt(Ty::F16, Ty::F32, Some(Round::Rn), f)
}

/// A block's sum, then an atomic: what the oldest target has.
fn sum() -> Kernel {
    let mut kernel = Kernel::new("sum", 128);
    args(&mut kernel, 16);
    kernel.max_registers = Some(32);
    let mut asm = Asm::new(kernel);
    let parts = asm.shared("parts", 16, 4);
    let (x, out) = (arg(&mut asm, Ty::B64, 0), arg(&mut asm, Ty::B64, 8));
    let thread = asm.special(Special::TidX);
    let at = asm.int(Alu::MadWide, Ty::U32, &[thread.into(), Opnd::Int(4), x.into()]);
    let mut v = asm.ld(Space::Global, Ty::F32, 1, Addr::reg(at, 0), Cache::ReadOnly)[0];
    for distance in [16, 8, 4, 2, 1] {
        let d = asm.reg(Class::B32);
        let (b, c) = (Opnd::Int(distance), Opnd::Int(31));
        let kind = Shfl::Bfly;
        asm.emit(Inst::Shfl { kind, d, ok: None, a: v.into(), b, c, mask: ALL });
        v = asm.float(Alu::Add, Ty::F32, &[v.into(), d.into()]);
    }
    let warp = asm.int(Alu::Shr, Ty::U32, &[thread.into(), Opnd::Int(5)]);
    let lane = asm.int(Alu::And, Ty::B32, &[thread.into(), Opnd::Int(31)]);
    let first = asm.setp(Cmp::Eq, Ty::B32, lane, 0);
    let base = asm.address_of(&parts);
    let mine = asm.int(Alu::MadLo, Ty::U32, &[warp.into(), Opnd::Int(4), base.into()]);
    asm.when(first, true, |asm| {
        asm.st(Space::Shared, Ty::F32, &[v.into()], Addr::reg(mine, 0), Cache::Usual);
    });
    asm.barrier();
    let end = asm.label();
    let leader = asm.setp(Cmp::Ne, Ty::U32, thread, 0);
    asm.bra_if(leader, true, end);
    let mut total = asm.mov(Ty::F32, Opnd::F32(0));
    for k in 0..4 {
        let v = asm.ld(Space::Shared, Ty::F32, 1, Addr::name(&parts, 4 * k), Cache::Usual)[0];
        total = asm.float(Alu::Add, Ty::F32, &[total.into(), v.into()]);
    }
    asm.emit(Inst::Red {
        space: Space::Global,
        sem: Sem::Relaxed,
        scope: Scope::Gpu,
        op: AtomOp::Add,
        ty: Ty::F32,
        addr: Addr::reg(out, 0),
        a: vec![total.into()],
    });
    asm.place(end);
    asm.emit(Inst::Ret);
    asm.kernel
}

/// A software-pipelined loop over tiles, with a warp-level MMA.
fn product() -> Kernel {
    let mut kernel = Kernel::new("product", 32);
    args(&mut kernel, 32);
    kernel.dynamic_shared = 4096;
    let mut asm = Asm::new(kernel);
    let (a, b) = (arg(&mut asm, Ty::B64, 0), arg(&mut asm, Ty::B64, 8));
    let (out, n) = (arg(&mut asm, Ty::B64, 16), arg(&mut asm, Ty::U32, 24));
    let lane = asm.special(Special::LaneId);
    let tile = asm.address_of(DYNAMIC_SHARED);
    let own = asm.int(Alu::MadLo, Ty::U32, &[lane.into(), Opnd::Int(16), tile.into()]);
    let row = MmaRow { m: 16, n: 8, k: 16, a: Ty::BF16, b: Ty::BF16, c: Ty::F32, sat: false };
    let acc: Vec<Reg> = (0..4).map(|_| asm.mov(Ty::F32, Opnd::F32(0))).collect();
    let i = asm.mov(Ty::U32, 0);
    let (again, end) = (asm.label(), asm.label());
    let none = asm.setp(Cmp::Eq, Ty::U32, n, 0);
    asm.bra_if(none, true, end);
    asm.place(again);
    let at = asm.int(Alu::MulWide, Ty::U32, &[i.into(), Opnd::Int(512)]);
    for (k, from) in [a, b].into_iter().enumerate() {
        let from = asm.int(Alu::Add, Ty::U64, &[from.into(), at.into()]);
        let (dst, src) = (Addr::reg(own, 512 * k as i64), Addr::reg(from, 0));
        asm.emit(Inst::CpAsync { dst, src, bytes: 16, src_bytes: None });
    }
    asm.emit(Inst::CpCommit);
    asm.emit(Inst::CpWait { groups: 0 });
    asm.emit(Inst::WarpSync { mask: ALL });
    let (fa, fb): (Vec<Reg>, Vec<Reg>) = (
        (0..4).map(|_| asm.reg(Class::B32)).collect(),
        (0..2).map(|_| asm.reg(Class::B32)).collect(),
    );
    asm.emit(Inst::Ldmatrix { d: fa.clone(), trans: false, addr: Addr::reg(own, 0) });
    asm.emit(Inst::Ldmatrix { d: fb.clone(), trans: true, addr: Addr::reg(own, 512) });
    asm.emit(Inst::Mma { row, d: acc.clone(), a: fa, b: fb, c: acc.clone() });
    asm.emit(Inst::WarpSync { mask: ALL });
    asm.emit(Inst::Alu {
        op: Alu::Add,
        ty: Ty::U32,
        round: None,
        ftz: false,
        sat: false,
        d: i,
        a: vec![i.into(), Opnd::Int(1)],
    });
    let more = asm.setp(Cmp::Lt, Ty::U32, i, n);
    asm.bra_if(more, true, again);
    asm.place(end);
    let at = asm.int(Alu::MadWide, Ty::U32, &[lane.into(), Opnd::Int(16), out.into()]);
    let all: Vec<Opnd> = acc.iter().map(|r| Opnd::Reg(*r)).collect();
    asm.st(Space::Global, Ty::F32, &all, Addr::reg(at, 0), Cache::Usual);
    asm.emit(Inst::Ret);
    asm.kernel
}

/// One warpgroup loads by TMA, another issues WGMMAs, in a cluster of two.
fn pipeline() -> Kernel {
    let mut kernel = Kernel::new("pipeline", 256);
    for name in ["map_a", "map_b", "map_c"] {
        kernel.params.push(Param { name: name.to_string(), bytes: 128, align: 64 });
    }
    args(&mut kernel, 8);
    kernel.cluster = 2;
    kernel.min_blocks = Some(1);
    kernel.dynamic_shared = 2 * 16384;
    let mut asm = Asm::new(kernel);
    let bars = asm.shared("bars", 16, 8);
    let (full, empty) = (Addr::name(&bars, 0), Addr::name(&bars, 8));
    let maps = ["map_a", "map_b", "map_c"].map(|name| asm.param_address(name));
    let n = arg(&mut asm, Ty::U32, 0);
    let tile = asm.address_of(DYNAMIC_SHARED);
    let thread = asm.special(Special::TidX);
    let first = asm.setp(Cmp::Eq, Ty::U32, thread, 0);
    asm.when(first, true, |asm| {
        asm.emit(Inst::MbarInit { addr: full.clone(), count: Opnd::Int(1) });
        asm.emit(Inst::MbarInit { addr: empty.clone(), count: Opnd::Int(2) });
        asm.emit(Inst::FenceMbarInit);
        asm.emit(Inst::PrefetchMap { map: maps[0] });
    });
    asm.emit(Inst::ClusterArrive { release: false });
    asm.emit(Inst::ClusterWait { acquire: true });
    let (consume, end) = (asm.label(), asm.label());
    let group = asm.int(Alu::Shr, Ty::U32, &[thread.into(), Opnd::Int(7)]);
    let consumer = asm.setp(Cmp::Ne, Ty::U32, group, 0);
    asm.bra_if(consumer, true, consume);
    produce(&mut asm, n, &maps, tile, &full, &empty, end);
    asm.place(consume);
    consume_all(&mut asm, n, maps[2], tile, &full, &bars);
    asm.place(end);
    asm.emit(Inst::ClusterArrive { release: true });
    asm.emit(Inst::ClusterWait { acquire: true });
    asm.emit(Inst::Ret);
    asm.kernel
}

fn wait(asm: &mut Asm, bar: &Addr, parity: Reg) {
    let (again, d) = (asm.label(), asm.reg(Class::Pred));
    asm.place(again);
    asm.emit(Inst::MbarWait { d, addr: bar.clone(), parity: parity.into(), block: true });
    asm.bra_if(d, false, again);
}

fn step(asm: &mut Asm, op: Alu, d: Reg) {
    let a = vec![d.into(), Opnd::Int(1)];
    asm.emit(Inst::Alu { op, ty: Ty::B32, round: None, ftz: false, sat: false, d, a });
}

fn produce(
    asm: &mut Asm,
    n: Reg,
    maps: &[Reg; 3],
    tile: Reg,
    full: &Addr,
    empty: &Addr,
    end: Label,
) {
    asm.emit(Inst::SetMaxRegs { more: false, count: 40 });
    let one = asm.reg(Class::Pred);
    asm.emit(Inst::Elect { p: one, mask: ALL });
    asm.bra_if(one, false, end);
    let (parity, i) = (asm.mov(Ty::U32, 1), asm.mov(Ty::U32, 0));
    let hint = asm.mov(Ty::B64, 0x14F0_0000_0000_0000);
    let again = asm.label();
    asm.place(again);
    wait(asm, empty, parity);
    let (space, bytes) = (Space::Shared, Opnd::Int(2 * 8192));
    asm.emit(Inst::MbarArriveExpect { space, addr: full.clone(), bytes });
    let k = asm.int(Alu::Shl, Ty::B32, &[i.into(), Opnd::Int(6)]);
    let (coords, bar) = (vec![k.into(), Opnd::Int(0)], full.clone());
    let dst = Addr::reg(tile, 0);
    let load = Inst::TmaLoad { dst, map: maps[0], coords, bar, multicast: None, hint: Some(hint) };
    asm.emit(load);
    let (coords, bar, dst) = (vec![k.into(), Opnd::Int(0)], full.clone(), Addr::reg(tile, 8192));
    let multicast = Some(Opnd::Int(3));
    asm.emit(Inst::TmaLoad { dst, map: maps[1], coords, bar, multicast, hint: None });
    step(asm, Alu::Xor, parity);
    step(asm, Alu::Add, i);
    let more = asm.setp(Cmp::Lt, Ty::U32, i, n);
    asm.bra_if(more, true, again);
    asm.bra(end);
}

fn consume_all(asm: &mut Asm, n: Reg, map: Reg, tile: Reg, full: &Addr, bars: &str) {
    asm.emit(Inst::SetMaxRegs { more: true, count: 232 });
    let row = WgmmaRow { n: 64, k: 16, a: Ty::BF16, b: Ty::BF16, c: Ty::F32, sat: false };
    let d: Vec<Reg> = (0..row.regs()).map(|_| asm.reg(Class::B32)).collect();
    let (parity, i) = (asm.mov(Ty::U32, 0), asm.mov(Ty::U32, 0));
    let low = asm.int(Alu::Bfe, Ty::U32, &[tile.into(), Opnd::Int(4), Opnd::Int(14)]);
    let low = asm.int(Alu::Or, Ty::B32, &[low.into(), Opnd::Int(0x10000)]);
    let high = asm.mov(Ty::B32, 0x4000_0040);
    let a = asm.pack(Class::B64, &[low, high]);
    let b = asm.int(Alu::Add, Ty::U64, &[a.into(), Opnd::Int(8192 >> 4)]);
    let mine = asm.address_of(bars);
    let remote = asm.reg(Class::B32);
    asm.emit(Inst::Mapa { d: remote, a: mine, rank: Opnd::Int(0) });
    let again = asm.label();
    asm.place(again);
    wait(asm, full, parity);
    asm.emit(Inst::WgmmaFence);
    let later = asm.setp(Cmp::Ne, Ty::U32, i, 0);
    let (add, neg_a, neg_b, trans_a, trans_b) = (later.into(), false, false, false, false);
    let (a, d_) = (WgmmaA::Shared(a), d.clone());
    asm.emit(Inst::Wgmma { row, d: d_, a, b, add, neg_a, neg_b, trans_a, trans_b });
    asm.emit(Inst::WgmmaCommit);
    asm.emit(Inst::WgmmaWait { groups: 0 });
    let lane = asm.special(Special::LaneId);
    let one = asm.setp(Cmp::Eq, Ty::U32, lane, 0);
    asm.when(one, true, |asm| {
        let (space, addr) = (Space::SharedCluster, Addr::reg(remote, 8));
        asm.emit(Inst::MbarArrive { space, addr, count: None });
    });
    step(asm, Alu::Xor, parity);
    step(asm, Alu::Add, i);
    let more = asm.setp(Cmp::Lt, Ty::U32, i, n);
    asm.bra_if(more, true, again);
    let words: Vec<Reg> = d[..8]
        .chunks(2)
        .map(|pair| {
            let word = asm.reg(Class::B32);
            let (to, from, round) = (Ty::BF16x2, Ty::F32, Some(Round::Rn));
            let (a, b) = (pair[1].into(), Some(pair[0].into()));
            asm.emit(Inst::Cvt { d: word, to, a, b, from, round, ftz: false, sat: false });
            word
        })
        .collect();
    asm.emit(Inst::Stmatrix { a: words, trans: false, addr: Addr::reg(tile, 0) });
    asm.emit(Inst::FenceProxyAsync);
    asm.emit(Inst::BarSync { id: 1.into(), count: Some(128) });
    asm.when(one, true, |asm| {
        let (coords, src) = (vec![Opnd::Int(0); 2], Addr::reg(tile, 0));
        asm.emit(Inst::TmaStore { map, coords, src, hint: None });
        asm.emit(Inst::BulkCommit);
        asm.emit(Inst::BulkWait { groups: 0, read: true });
    });
}
