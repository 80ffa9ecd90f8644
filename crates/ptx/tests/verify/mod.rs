//! Each error of the verifier, with its text: `errors.txt`, which `TESSERA_BLESS=1` rewrites. And
//! what it must accept.

use std::path::Path;
use std::{env, fs};
use tessera_ptx::*;

const HOPPER: Target = Target { sm: 90, exact: true };
const AMPERE: Target = Target { sm: 80, exact: false };

/// A kernel with a parameter, shared memory, and three registers of each class that have values.
fn kernel() -> Asm {
    let mut kernel = Kernel::new("k", 64);
    kernel.params.push(Param { name: "args".to_string(), bytes: 24, align: 8 });
    let mut asm = Asm::new(kernel);
    asm.shared("tile", 256, 16);
    for k in 0..3 {
        asm.ld(Space::Param, Ty::B64, 1, Addr::name("args", 8 * k), Cache::Usual);
        asm.ld(Space::Param, Ty::B32, 1, Addr::name("args", 8 * k), Cache::Usual);
        asm.ld(Space::Param, Ty::B16, 1, Addr::name("args", 8 * k), Cache::Usual);
        asm.setp(Cmp::Eq, Ty::B32, r(0), k);
    }
    asm
}

fn reg(class: Class, id: u32) -> Reg {
    Reg { class, id }
}
fn p(id: u32) -> Reg {
    reg(Class::Pred, id)
}
fn h(id: u32) -> Reg {
    reg(Class::B16, id)
}
fn r(id: u32) -> Reg {
    reg(Class::B32, id)
}
fn rd(id: u32) -> Reg {
    reg(Class::B64, id)
}

fn module(target: Target, mut asm: Asm) -> Module {
    asm.emit(Inst::Ret);
    let (files, kernels) = (vec!["k.py".to_string()], vec![asm.kernel]);
    let mut module = Module { version: Version { major: 0, minor: 0 }, target, files, kernels };
    module.version = module.minimum_version();
    module
}

fn words(module: &Module) -> String {
    match verify(module) {
        Ok(()) => "fine\n".to_string(),
        Err(errors) => errors.iter().map(|e| format!("{}: {}\n", e.loc, e.message)).collect(),
    }
}

/// A case: its name, its target, and what is wrong.
type Case = (&'static str, Target, fn(&mut Asm));

fn alu(op: Alu, ty: Ty, d: Reg, a: &[Opnd]) -> Inst {
    Inst::Alu { op, ty, round: None, ftz: false, sat: false, d, a: a.to_vec() }
}

fn int(v: i64) -> Opnd {
    Opnd::Int(v)
}

const CASES: &[Case] = &[
    ("a register of another width", AMPERE, |asm| {
        asm.emit(alu(Alu::Add, Ty::U32, r(0), &[rd(0).into(), int(1)]));
    }),
    ("a register that is not declared", AMPERE, |asm| asm.emit(Inst::Activemask { d: r(99) })),
    ("a guard that is no predicate", AMPERE, |asm| {
        asm.when(r(0), true, |asm| asm.emit(Inst::Trap));
    }),
    ("a barrier under a guard", AMPERE, |asm| asm.when(p(0), false, |asm| asm.barrier())),
    ("a shuffle of all under a guard", AMPERE, |asm| {
        let (kind, a, b, c) = (Shfl::Idx, r(0).into(), int(0), int(31));
        let mask = int(-1);
        let shfl = Inst::Shfl { kind, d: r(1), ok: None, a, b, c, mask };
        asm.when(p(0), true, |asm| asm.emit(shfl));
    }),
    ("too few operands", AMPERE, |asm| asm.emit(alu(Alu::Add, Ty::U32, r(0), &[r(1).into()]))),
    ("an operation that does not exist", AMPERE, |asm| {
        asm.emit(alu(Alu::Add, Ty::S8, h(0), &[h(1).into(), h(2).into()]));
    }),
    ("a sum that may be fused", AMPERE, |asm| {
        asm.emit(alu(Alu::Add, Ty::F32, r(0), &[r(1).into(), r(2).into()]));
    }),
    ("a feature that the target lacks", AMPERE, |asm| {
        asm.emit(Inst::Elect { p: p(0), mask: int(-1) });
    }),
    ("an MMA that does not exist", AMPERE, |asm| {
        let row = MmaRow { m: 16, n: 8, k: 8, a: Ty::F16, b: Ty::BF16, c: Ty::F32, sat: false };
        asm.emit(Inst::Mma { row, d: vec![], a: vec![], b: vec![], c: vec![] });
    }),
    ("a fragment of another size", AMPERE, |asm| {
        let row = MmaRow { m: 16, n: 8, k: 8, a: Ty::F16, b: Ty::F16, c: Ty::F32, sat: false };
        let four = vec![r(0); 4];
        asm.emit(Inst::Mma { row, d: four.clone(), a: four.clone(), b: vec![r(0)], c: four });
    }),
    ("a shift by too much", AMPERE, |asm| {
        asm.emit(alu(Alu::Shl, Ty::B32, r(0), &[r(1).into(), int(32)]));
    }),
    ("a constant that does not fit", AMPERE, |asm| {
        asm.emit(alu(Alu::Add, Ty::U16, h(0), &[h(1).into(), int(1 << 16)]));
    }),
    ("a constant of half precision", AMPERE, |asm| {
        asm.float(Alu::Add, Ty::F16, &[h(0).into(), int(0x3c00)]);
    }),
    ("a float of another width", AMPERE, |asm| {
        asm.float(Alu::Add, Ty::F32, &[r(0).into(), Opnd::F64(0)]);
    }),
    ("a hardware register outside a move", AMPERE, |asm| {
        asm.emit(alu(Alu::Add, Ty::U32, r(0), &[Opnd::Special(Special::TidX), int(1)]));
    }),
    ("a copy of three bytes", AMPERE, |asm| {
        let (dst, src) = (Addr::name("tile_0", 0), Addr::reg(rd(0), 0));
        asm.emit(Inst::CpAsync { dst, src, bytes: 3, src_bytes: None });
    }),
    ("a vector of 32 bytes", AMPERE, |asm| {
        asm.ld(Space::Global, Ty::B64, 4, Addr::reg(rd(0), 0), Cache::Usual);
    }),
    ("a vector of three", AMPERE, |asm| {
        asm.ld(Space::Global, Ty::B32, 3, Addr::reg(rd(0), 0), Cache::Usual);
    }),
    ("a name that is not there", AMPERE, |asm| {
        asm.ld(Space::Shared, Ty::B32, 1, Addr::name("none", 0), Cache::Usual);
        asm.address_of("none");
    }),
    ("dynamic memory that is not requested", AMPERE, |asm| {
        asm.address_of(DYNAMIC_SHARED);
    }),
    ("an access past the end", AMPERE, |asm| {
        asm.ld(Space::Shared, Ty::B32, 4, Addr::name("tile_0", 248), Cache::Usual);
    }),
    ("an access that is not aligned", AMPERE, |asm| {
        asm.ld(Space::Param, Ty::B64, 2, Addr::name("args", 8), Cache::Usual);
    }),
    ("an address that is a number", AMPERE, |asm| {
        let addr = Addr { base: Base::None, offset: 16 };
        asm.ld(Space::Shared, Ty::B32, 1, addr, Cache::Usual);
    }),
    ("a parameter by a register", AMPERE, |asm| {
        asm.ld(Space::Param, Ty::B32, 1, Addr::reg(rd(0), 0), Cache::Usual);
    }),
    ("a label that is placed twice", AMPERE, |asm| {
        let label = asm.label();
        asm.place(label);
        asm.place(label);
    }),
    ("a jump to nowhere", AMPERE, |asm| {
        let label = asm.label();
        asm.bra_if(p(0), true, label);
    }),
    ("a register without a value", AMPERE, |asm| {
        asm.kernel.body.push(Stmt::Place { file: 1, line: 7, column: 3 });
        let fresh = asm.reg(Class::B32);
        asm.int(Alu::Add, Ty::U32, &[fresh.into(), int(1)]);
    }),
    ("a register with a value on one path", AMPERE, |asm| {
        let (fresh, skip) = (asm.reg(Class::B32), asm.label());
        asm.bra_if(p(0), true, skip);
        asm.mov_to(Ty::B32, fresh, 1);
        asm.place(skip);
        asm.int(Alu::Add, Ty::U32, &[fresh.into(), int(1)]);
    }),
    ("a register with a value under another guard", AMPERE, |asm| {
        let fresh = asm.reg(Class::B32);
        asm.when(p(0), true, |asm| asm.mov_to(Ty::B32, fresh, 1));
        asm.when(p(1), true, |asm| asm.mov_to(Ty::B32, r(0), fresh));
    }),
    ("a guard that changed", AMPERE, |asm| {
        let fresh = asm.reg(Class::B32);
        asm.when(p(0), true, |asm| asm.mov_to(Ty::B32, fresh, 1));
        asm.mov_to(Ty::Pred, p(0), p(1));
        asm.when(p(0), true, |asm| asm.mov_to(Ty::B32, r(0), fresh));
    }),
    ("a value of a later iteration", AMPERE, |asm| {
        let (fresh, again) = (asm.reg(Class::B32), asm.label());
        asm.place(again);
        asm.mov_to(Ty::B32, r(0), fresh);
        asm.mov_to(Ty::B32, fresh, 1);
        asm.bra_if(p(0), true, again);
    }),
    ("a barrier of too many threads", AMPERE, |asm| {
        asm.emit(Inst::BarSync { id: 1.into(), count: Some(128) });
        asm.emit(Inst::BarSync { id: 16.into(), count: None });
    }),
    ("registers that nothing divides", HOPPER, |asm| {
        asm.emit(Inst::SetMaxRegs { more: true, count: 240 });
    }),
    ("a transposed WGMMA of bytes", HOPPER, |asm| {
        let row = WgmmaRow { n: 8, k: 32, a: Ty::E4M3, b: Ty::E4M3, c: Ty::F32, sat: false };
        let (d, a, b) = (vec![r(0); 4], WgmmaA::Shared(rd(0)), rd(1));
        let (neg_a, neg_b, trans_a, trans_b, add) = (false, false, false, true, int(1));
        asm.emit(Inst::Wgmma { row, d, a, b, add, neg_a, neg_b, trans_a, trans_b });
    }),
    ("a run of eight bytes", HOPPER, |asm| {
        let (dst, src) = (Addr::reg(rd(0), 0), Addr::name("tile_0", 0));
        asm.emit(Inst::BulkStore { dst, src, bytes: int(8), hint: None });
    }),
    ("too many threads and too much memory", AMPERE, |asm| {
        asm.kernel.threads = 2048;
        asm.kernel.cluster = 2;
        asm.kernel.dynamic_shared = 166 * 1024;
        asm.kernel.max_registers = Some(300);
        asm.kernel.min_blocks = Some(64);
        asm.shared("large", 48 * 1024, 3);
    }),
];

#[test]
fn what_is_wrong_is_refused_in_these_words() {
    let mut text = String::new();
    for (name, target, wrong) in CASES {
        let mut asm = kernel();
        wrong(&mut asm);
        let said = words(&module(*target, asm));
        assert_ne!(said, "fine\n", "{name}");
        text += &format!("# {name}\n{said}\n");
    }
    let mut odd = module(AMPERE, kernel());
    odd.version = Version { major: 6, minor: 5 };
    odd.kernels.push(odd.kernels[0].clone());
    text += &format!("# an old version, and a name twice\n{}\n", words(&odd));
    odd.target.sm = 81;
    text += &format!("# a target that is not known\n{}\n", words(&odd));
    let mut open = module(AMPERE, kernel());
    open.kernels[0].body.pop();
    text += &format!("# code without an end\n{}", words(&open));

    let package = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it for tests");
    let file = Path::new(&package).join("tests").join("verify").join("errors.txt");
    if env::var_os("TESSERA_BLESS").is_some_and(|v| v == "1") {
        fs::write(&file, &text).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, expected, "{}: TESSERA_BLESS=1 accepts what is", file.display());
}

/// Forms of definite assignment that later code may rely on.
const FINE: &[Case] = &[
    ("written and read under one guard", AMPERE, |asm| {
        let fresh = asm.reg(Class::B32);
        asm.when(p(0), false, |asm| {
            asm.mov_to(Ty::B32, fresh, 1);
            asm.mov_to(Ty::B32, r(0), fresh);
        });
    }),
    ("written under a guard and under its opposite", AMPERE, |asm| {
        let fresh = asm.reg(Class::B32);
        asm.when(p(0), true, |asm| asm.mov_to(Ty::B32, fresh, 1));
        asm.when(p(0), false, |asm| asm.mov_to(Ty::B32, fresh, 2));
        asm.mov_to(Ty::B32, r(0), fresh);
    }),
    ("chosen by the guard it was written under", AMPERE, |asm| {
        let fresh = asm.reg(Class::B32);
        asm.when(p(0), true, |asm| asm.mov_to(Ty::B32, fresh, 1));
        asm.selp(Ty::B32, p(0), fresh, 0);
    }),
    ("written on both paths", AMPERE, |asm| {
        let (fresh, other, end) = (asm.reg(Class::B32), asm.label(), asm.label());
        asm.bra_if(p(0), true, other);
        asm.mov_to(Ty::B32, fresh, 1);
        asm.bra(end);
        asm.place(other);
        asm.mov_to(Ty::B32, fresh, 2);
        asm.place(end);
        asm.mov_to(Ty::B32, r(0), fresh);
    }),
    ("written behind a jump, read under the jump's opposite", AMPERE, |asm| {
        let (fresh, skip) = (asm.reg(Class::B32), asm.label());
        asm.bra_if(p(0), true, skip);
        asm.mov_to(Ty::B32, fresh, 1);
        asm.place(skip);
        asm.when(p(0), false, |asm| asm.mov_to(Ty::B32, r(0), fresh));
    }),
    ("written before a loop", AMPERE, |asm| {
        let (i, again) = (asm.mov(Ty::B32, 0), asm.label());
        asm.place(again);
        asm.emit(alu(Alu::Add, Ty::U32, i, &[i.into(), int(1)]));
        let more = asm.setp(Cmp::Lt, Ty::U32, i, 9);
        asm.bra_if(more, true, again);
    }),
    ("code that is not reached", AMPERE, |asm| {
        let (fresh, end) = (asm.reg(Class::B32), asm.label());
        asm.bra(end);
        asm.mov_to(Ty::B32, r(0), fresh);
        asm.place(end);
    }),
    ("an accumulator that the first MMA replaces", HOPPER, |asm| {
        let row = WgmmaRow { n: 8, k: 16, a: Ty::F16, b: Ty::F16, c: Ty::F32, sat: false };
        let d: Vec<Reg> = (0..4).map(|_| asm.reg(Class::B32)).collect();
        let (a, b, add) = (WgmmaA::Shared(rd(0)), rd(1), p(0).into());
        let (neg_a, neg_b, trans_a, trans_b) = (false, false, false, false);
        asm.emit(Inst::Wgmma { row, d, a, b, add, neg_a, neg_b, trans_a, trans_b });
    }),
];

#[test]
fn what_is_right_is_not_refused() {
    for (name, target, right) in FINE {
        let mut asm = kernel();
        right(&mut asm);
        assert_eq!(words(&module(*target, asm)), "fine\n", "{name}");
    }
}
