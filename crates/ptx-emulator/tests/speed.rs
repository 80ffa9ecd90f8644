//! Speed of the interpreter: printed, never asserted.
//! `cargo test -p tessera-ptx speed -- --ignored --nocapture`.

use super::*;
use std::io::Write;
use std::time::Instant;

fn report(what: &str, stats: Stats, seconds: f64) {
    let rate = stats.thread_steps as f64 / seconds / 1e6;
    let text = format!("{what}: {} thread steps, {rate:.0} M/s\n", stats.thread_steps);
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// A long loop of integer and float operations.
#[test]
#[ignore = "measures"]
fn alu_speed() {
    for (what, f32) in [("int", false), ("f32", true)] {
        let mut asm = kernel(256, 1);
        let x = asm.special(Special::TidX);
        let i = asm.mov(Ty::U32, 0);
        let head = asm.label();
        asm.place(head);
        for _ in 0..4 {
            let y = if f32 {
                asm.float(Alu::Fma, Ty::F32, &[x.into(), x.into(), x.into()])
            } else {
                asm.int(Alu::MadLo, Ty::U32, &[x.into(), x.into(), 3.into()])
            };
            let op = if f32 { Alu::Add } else { Alu::Xor };
            let z = match f32 {
                true => asm.float(op, Ty::F32, &[x.into(), y.into()]),
                false => asm.int(op, Ty::B32, &[x.into(), y.into()]),
            };
            asm.mov_to(Ty::B32, x, z);
        }
        let next = asm.int(Alu::Add, Ty::U32, &[i.into(), 1.into()]);
        asm.mov_to(Ty::U32, i, next);
        let more = asm.setp(Cmp::Lt, Ty::U32, i, 2000);
        asm.bra_if(more, true, head);
        store(&mut asm, Ty::U32, 0, x);
        let mut out = vec![0u32; 256 * 8];
        let mut memory = Memory::new();
        let words = [memory.lend(&mut out)];
        let begin = Instant::now();
        let stats = launch(asm, 8, &words, &memory, &Options::default());
        report(what, stats.unwrap_or_default(), begin.elapsed().as_secs_f64());
    }
}

/// Global loads and stores, and shared ones with and without race detection.
#[test]
#[ignore = "measures"]
fn memory_speed() {
    for (what, races) in [("memory", false), ("memory, races", true)] {
        let mut asm = kernel(256, 2);
        let buffer = asm.shared("buffer", 1024, 16);
        let tid = asm.special(Special::TidX);
        let base = asm.address_of(&buffer);
        let here = asm.int(Alu::MadLo, Ty::U32, &[tid.into(), 4.into(), base.into()]);
        let (from, to) = (element(&mut asm, 0, 4), element(&mut asm, 1, 4));
        let i = asm.mov(Ty::U32, 0);
        let head = asm.label();
        asm.place(head);
        let x = asm.ld(Space::Global, Ty::B32, 1, Addr::reg(from, 0), Cache::Usual);
        asm.st(Space::Shared, Ty::B32, &[x[0].into()], Addr::reg(here, 0), Cache::Usual);
        asm.barrier();
        let y = asm.ld(Space::Shared, Ty::B32, 1, Addr::reg(here, 0), Cache::Usual);
        asm.st(Space::Global, Ty::B32, &[y[0].into()], Addr::reg(to, 0), Cache::Usual);
        let next = asm.int(Alu::Add, Ty::U32, &[i.into(), 1.into()]);
        asm.mov_to(Ty::U32, i, next);
        let more = asm.setp(Cmp::Lt, Ty::U32, i, 1000);
        asm.bra_if(more, true, head);
        let input = vec![1u32; 256 * 8];
        let mut out = vec![0u32; 256 * 8];
        let mut memory = Memory::new();
        let words = [memory.share(&input), memory.lend(&mut out)];
        let options = Options { races, ..Options::default() };
        let begin = Instant::now();
        let stats = launch(asm, 8, &words, &memory, &options);
        report(what, stats.unwrap_or_default(), begin.elapsed().as_secs_f64());
    }
}

#[test]
#[ignore = "measures"]
fn mma_speed() {
    let mut asm = kernel(128, 1);
    let regs =
        |asm: &mut Asm, n: usize| -> Vec<Reg> { (0..n).map(|_| asm.mov(Ty::B32, 0)).collect() };
    let (a, b, c) = (regs(&mut asm, 4), regs(&mut asm, 2), regs(&mut asm, 4));
    let row = MmaRow { m: 16, n: 8, k: 16, a: Ty::F16, b: Ty::F16, c: Ty::F32, sat: false };
    for _ in 0..2000 {
        asm.emit(Inst::Mma { row, d: c.clone(), a: a.clone(), b: b.clone(), c: c.clone() });
    }
    let begin = Instant::now();
    let stats = launch(asm, 4, &[0], &Memory::new(), &Options::default());
    let (steps, seconds) = (stats.map_or(0, |s| s.warp_steps), begin.elapsed().as_secs_f64());
    let text = format!("mma: {:.2} us each\n", seconds * 1e6 / steps as f64);
    let _ = std::io::stderr().write_all(text.as_bytes());
}
