//! The code of every scalar operation, run on the interpreter, against `tessera_numerics`: each
//! case is a kernel with one thread per element.

mod conversions;
mod double;
mod functions;
mod packed;
mod quick;
mod sizes;

use tessera_conformance::values;
use tessera_numerics::{DType, Profile};
use tessera_ptx::asm::Asm;
use tessera_ptx::caps::PtxCaps;
use tessera_ptx::inst::{Addr, Cache, Class, Opnd, Reg, Space, Special, Ty};
use tessera_ptx::module::{Kernel, Module, Param, Version};
use tessera_ptx::scalar::{Scalars, Unsupported, carrier, stored};
use tessera_ptx::verify::verify;
use tessera_ptx_emulator::{Grid, Memory, Options, run};

/// The storage of an operand or a result.
#[derive(Copy, Clone, PartialEq)]
enum Lies {
    /// In the carrier of the type, a bool as a byte.
    Carried(DType),
    /// As the code of the type.
    Coded(DType),
    /// A word of several codes.
    Word,
}

impl Lies {
    fn bytes(self) -> usize {
        match self {
            Lies::Carried(d) => d.carrier().bytes(),
            Lies::Coded(d) => d.bytes(),
            Lies::Word => 4,
        }
    }

    fn ty(self) -> Ty {
        match self.bytes() {
            1 => Ty::U8,
            2 => Ty::U16,
            4 => Ty::U32,
            _ => Ty::U64,
        }
    }

    fn is_bool(self) -> bool {
        self == Lies::Carried(DType::Bool)
    }

    fn class(self) -> Class {
        match self {
            Lies::Carried(d) => carrier(d),
            Lies::Coded(d) => stored(d),
            Lies::Word => Class::B32,
        }
    }

    /// Whether these bits are a NaN.
    fn is_nan(self, bits: u64) -> bool {
        match self {
            Lies::Carried(d) if d.carrier() == DType::F32 => f32::from_bits(bits as u32).is_nan(),
            Lies::Carried(d) if d.carrier() == DType::F64 => f64::from_bits(bits).is_nan(),
            _ => false,
        }
    }
}

type Emit = Box<dyn Fn(&mut Scalars<'_>, &[Reg]) -> Result<Vec<Reg>, Unsupported>>;

/// One function with its operands and results, as bits.
struct Case {
    label: String,
    operands: Vec<Lies>,
    /// Several results are contiguous.
    results: Vec<Lies>,
    emit: Emit,
    inputs: Vec<Vec<u64>>,
    /// For each element all results.
    wanted: Vec<u64>,
    /// Whether any NaN is accepted.
    any_nan: bool,
}

const THREADS: u32 = 128;

fn pack(values: &[u64], lies: Lies) -> Vec<u8> {
    let padding = values.len().next_multiple_of(THREADS as usize) - values.len();
    let bits = values.iter().chain(values.iter().cycle().take(padding));
    bits.flat_map(|v| v.to_le_bytes()[..lies.bytes()].to_vec()).collect()
}

/// The kernel `(out, operands…)` of a case.
fn kernel(case: &Case, caps: &PtxCaps, profile: Profile) -> Result<Kernel, Unsupported> {
    let mut kernel = Kernel::new("case", THREADS);
    let words = case.operands.len() + case.results.len();
    kernel.params = vec![Param { name: "args".into(), bytes: 8 * words as u32, align: 8 }];
    let mut asm = Asm::new(kernel);
    let tid = asm.special(Special::TidX);
    let block = asm.special(Special::CtaidX);
    let at = asm.int(
        tessera_ptx::Alu::MadLo,
        Ty::U32,
        &[block.into(), (THREADS as i64).into(), tid.into()],
    );
    let place = |asm: &mut Asm, word: usize, bytes: usize| {
        let from = Addr::name("args", 8 * word as i64);
        let base = asm.ld(Space::Param, Ty::U64, 1, from, Cache::Usual)[0];
        let scale = Opnd::Int(bytes as i64);
        let out = asm.int(tessera_ptx::Alu::MadWide, Ty::U32, &[at.into(), scale, base.into()]);
        Addr::reg(out, 0)
    };
    let mut args = Vec::new();
    for (i, lies) in case.operands.iter().enumerate() {
        let addr = place(&mut asm, case.results.len() + i, lies.bytes());
        let v = asm.ld(Space::Global, lies.ty(), 1, addr, Cache::Usual)[0];
        args.push(if lies.is_bool() { asm.setp(tessera_ptx::Cmp::Ne, Ty::U16, v, 0) } else { v });
    }
    let mut scalars = Scalars { asm: &mut asm, caps, profile };
    let results = (case.emit)(&mut scalars, &args)?;
    assert_eq!(results.len(), case.results.len(), "{}", case.label);
    for (i, (&r, lies)) in results.iter().zip(&case.results).enumerate() {
        assert_eq!(r.class, lies.class(), "{}", case.label);
        let r = if lies.is_bool() { asm.selp(Ty::U16, r, 1, 0) } else { r };
        let addr = place(&mut asm, i, lies.bytes());
        asm.st(Space::Global, lies.ty(), &[r.into()], addr, Cache::Usual);
    }
    asm.emit(tessera_ptx::Inst::Ret);
    Ok(asm.kernel)
}

/// The instructions of a case between its loads and stores.
fn body(case: &Case, caps: &PtxCaps, profile: Profile) -> usize {
    let whole = kernel(case, caps, profile).unwrap().instructions().count();
    let io = case.operands.iter().chain(&case.results);
    whole - 4 - io.map(|l| if l.is_bool() { 4 } else { 3 }).sum::<usize>()
}

/// What the kernel of a case gives, all results of an element contiguous.
fn outputs(case: &Case, caps: &PtxCaps, profile: Profile) -> Vec<u64> {
    let kernel = kernel(case, caps, profile).unwrap();
    let n = case.inputs[0].len();
    let blocks = n.div_ceil(THREADS as usize);
    let inputs: Vec<Vec<u8>> =
        case.inputs.iter().zip(&case.operands).map(|(x, &l)| pack(x, l)).collect();
    let size = blocks * THREADS as usize;
    let mut outs: Vec<Vec<u8>> = case.results.iter().map(|l| vec![0; size * l.bytes()]).collect();
    let mut memory = Memory::new();
    let mut words: Vec<u8> = Vec::new();
    for out in &mut outs {
        words.extend(memory.lend(&mut out[..]).to_le_bytes());
    }
    for x in &inputs {
        words.extend(memory.share(&x[..]).to_le_bytes());
    }
    let version = Version { major: 8, minor: 7 };
    let module = Module { version, target: caps.target, files: vec![], kernels: vec![kernel] };
    let checked = verify(&module);
    assert!(checked.is_ok(), "{} on {}: {checked:?}", case.label, caps.target);
    let grid = Grid { grid: [blocks as u32, 1, 1], dynamic_shared: 0 };
    run(&module, "case", &grid, &[&words], &memory, &Options::default())
        .unwrap_or_else(|fault| panic!("{}: {fault:?}", case.label));
    drop(memory);
    let one = |b: &[u8]| b.iter().rev().fold(0u64, |v, &b| v << 8 | u64::from(b));
    let columns: Vec<Vec<u64>> = outs
        .iter()
        .zip(&case.results)
        .map(|(out, l)| out.chunks_exact(l.bytes()).map(one).collect())
        .collect();
    (0..n).flat_map(|i| columns.iter().map(move |c| c[i])).collect()
}

/// How many elements differ from what is wanted, and the first.
fn faults(case: &Case, caps: &PtxCaps, profile: Profile) -> Option<String> {
    let got = outputs(case, caps, profile);
    assert_eq!(got.len(), case.wanted.len(), "{}", case.label);
    let k = case.results.len();
    let wrong = |(i, (&got, &wanted)): (usize, (&u64, &u64))| {
        let lies = case.results[i % k];
        let both_nan = case.any_nan && lies.is_nan(got) && lies.is_nan(wanted);
        (got != wanted && !both_nan).then_some(i)
    };
    let all: Vec<usize> = got.iter().zip(&case.wanted).enumerate().filter_map(wrong).collect();
    let first = *all.first()?;
    let operands: Vec<_> = case.inputs.iter().map(|x| format!("{:#x}", x[first / k])).collect();
    let (label, operands, target) = (&case.label, operands.join(", "), caps.target);
    let (got, wanted) = (got[first], case.wanted[first]);
    let count = all.len();
    Some(format!("{target} {label}({operands}) = {got:#x}, not {wanted:#x}; {count} such"))
}

/// Targets that differ in what scalars use.
fn targets() -> [&'static PtxCaps; 4] {
    [(70, false), (80, false), (90, false), (100, true)].map(|(sm, a)| PtxCaps::of(sm, a).unwrap())
}

fn newest() -> &'static PtxCaps {
    PtxCaps::of(90, false).unwrap()
}

fn check(cases: &[Case], targets: &[&PtxCaps], profile: Profile) {
    let all = targets.iter().flat_map(|caps| cases.iter().map(move |case| (case, *caps)));
    let faults: Vec<String> = all.filter_map(|(case, caps)| faults(case, caps, profile)).collect();
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}
