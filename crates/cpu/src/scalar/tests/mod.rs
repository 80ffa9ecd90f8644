//! Generated code against `tessera_numerics`: each case is a loop over arrays, compiled for every
//! instruction set of the host and several numbers of lanes, and compared bit by bit.

mod conversions;
mod functions;
mod shortened;

use super::{Scalars, symbols};
use crate::isa::Isa;
use crate::llvm::{Ir, Loaded, Machine, Ty, Val};
use tessera_numerics::DType;

/// The memory layout of an operand or the result.
#[derive(Copy, Clone, PartialEq)]
enum Lies {
    /// In the carrier of the type, a bool as a byte.
    Carried(DType),
    /// As the code of the type.
    Coded(DType),
}

impl Lies {
    fn bytes(self) -> usize {
        match self {
            Lies::Carried(d) => d.carrier().bytes(),
            Lies::Coded(d) => d.bytes(),
        }
    }

    fn ty(self, s: &Scalars, lanes: u32) -> Ty {
        match self {
            Lies::Carried(d) if d != DType::Bool => s.carrier(d, lanes),
            Lies::Carried(d) | Lies::Coded(d) => s.stored(d, lanes),
        }
    }

    fn load(self, s: &Scalars, p: Val, lanes: u32) -> Val {
        let v = s.ir.load(self.ty(s, lanes), p, 1);
        let is_bool = self == Lies::Carried(DType::Bool);
        if is_bool { s.ir.trunc(v, s.carrier(DType::Bool, lanes)) } else { v }
    }

    fn store(self, s: &Scalars, v: Val, p: Val, lanes: u32) {
        let is_bool = self == Lies::Carried(DType::Bool);
        let v = if is_bool { s.ir.zext(v, self.ty(s, lanes)) } else { v };
        s.ir.store(v, p, 1);
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

type Emit = Box<dyn Fn(&Scalars, &[Val]) -> Val>;

/// One function with its operands and results, as bits.
struct Case {
    label: String,
    operands: Vec<Lies>,
    result: Lies,
    emit: Emit,
    inputs: Vec<Vec<u64>>,
    wanted: Vec<u64>,
    /// Whether one NaN is as good as another.
    any_nan: bool,
}

/// Which of the numbers of lanes are tried.
#[derive(Copy, Clone, PartialEq)]
enum Lanes {
    /// That of the vectors of an instruction set.
    Full,
    /// One, an odd number, and a vector that fills half a register.
    Other,
    Any,
}

/// The instruction sets that can run here with numbers of lanes. AMX differs from AVX-512 in
/// nothing that scalars use but the processor it is scheduled for.
fn configurations(lanes: Lanes) -> Vec<(Isa, u32)> {
    let isas = Isa::ALL.into_iter().filter(|&isa| isa <= Isa::host());
    let all = isas.flat_map(|isa| {
        let (full, other) = (vec![isa.lanes()], vec![1, 3]);
        let wanted = match (lanes, isa) {
            (Lanes::Full, _) => full,
            (Lanes::Any, Isa::Amx) => [full, vec![isa.lanes() / 2]].concat(),
            (_, Isa::Amx) => vec![],
            (Lanes::Other, _) => other,
            (Lanes::Any, _) => [full, other].concat(),
        };
        wanted.into_iter().map(move |n| (isa, n))
    });
    all.collect()
}

fn pack(values: &[u64], lies: Lies, lanes: u32) -> Vec<u8> {
    let padding = values.len().next_multiple_of(lanes as usize) - values.len();
    let bits = values.iter().chain(values.iter().cycle().take(padding));
    bits.flat_map(|v| v.to_le_bytes()[..lies.bytes()].to_vec()).collect()
}

fn unpack(bytes: &[u8], lies: Lies) -> Vec<u64> {
    let one = |b: &[u8]| b.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b));
    bytes.chunks_exact(lies.bytes()).map(one).collect()
}

/// A function `(out, operands…, vectors)` for one case.
fn emit(s: &Scalars, index: usize, case: &Case, lanes: u32) {
    let ir = s.ir;
    let mut params = vec![ir.ptr(); case.operands.len() + 1];
    params.push(ir.i64());
    let f = ir.function(&format!("case_{index}"), ir.void(), &params);
    let count = ir.param(f, params.len() as u32 - 1);
    let step = |lies: Lies| i64::from(lanes) * lies.bytes() as i64;
    ir.for_range(ir.c64(0), count, 1, &[], |ir, at, _| {
        let place = |param: usize, lies: Lies| {
            ir.offset(ir.param(f, param as u32), ir.mul_const(at, step(lies)))
        };
        let operands = case.operands.iter().enumerate();
        let args: Vec<Val> =
            operands.map(|(i, &lies)| lies.load(s, place(i + 1, lies), lanes)).collect();
        case.result.store(s, (case.emit)(s, &args), place(0, case.result), lanes);
        vec![]
    });
    ir.ret(None);
}

/// Compiles the cases for `isa` and compares what they give.
fn check_on(isa: Isa, lanes: u32, cases: &[Case]) -> Vec<String> {
    let ir = Ir::new("scalars");
    let s = Scalars { ir: &ir, isa, quick: false };
    cases.iter().enumerate().for_each(|(i, case)| emit(&s, i, case, lanes));
    let (cpu, features) = isa.llvm();
    let machine = Machine::new(cpu, features).unwrap();
    machine.verify(&ir).unwrap();
    let loaded = Loaded::new(&machine.object(&ir).unwrap(), &symbols()).unwrap();
    cases
        .iter()
        .enumerate()
        .filter_map(|(i, case)| {
            let address = loaded.address(&format!("case_{i}")).unwrap();
            let got = call(address, case, lanes);
            let wrong = got.iter().zip(&case.wanted).position(|(&got, &wanted)| {
                let both_nan =
                    case.any_nan && case.result.is_nan(got) && case.result.is_nan(wanted);
                got != wanted && !both_nan
            })?;
            let operands: Vec<_> = case.inputs.iter().map(|x| format!("{:#x}", x[wrong])).collect();
            let (got, wanted) = (got[wrong], case.wanted[wrong]);
            let (label, operands) = (&case.label, operands.join(", "));
            Some(format!("{isa} x{lanes} {label}({operands}) = {got:#x}, not {wanted:#x}"))
        })
        .collect()
}

fn call(address: usize, case: &Case, lanes: u32) -> Vec<u64> {
    let inputs: Vec<Vec<u8>> =
        case.inputs.iter().zip(&case.operands).map(|(x, &l)| pack(x, l, lanes)).collect();
    let vectors = case.wanted.len().div_ceil(lanes as usize);
    let mut out = vec![0u8; vectors * lanes as usize * case.result.bytes()];
    let p = |i: usize| inputs[i].as_ptr();
    let (o, n) = (out.as_mut_ptr(), vectors as i64);
    // SAFETY: the function was emitted for this case: its number of operands and of vectors of
    // each.
    unsafe {
        use std::mem::transmute;
        type P = *const u8;
        match inputs.len() {
            1 => transmute::<usize, extern "C" fn(*mut u8, P, i64)>(address)(o, p(0), n),
            2 => transmute::<usize, extern "C" fn(*mut u8, P, P, i64)>(address)(o, p(0), p(1), n),
            _ => transmute::<usize, extern "C" fn(*mut u8, P, P, P, i64)>(address)(
                o,
                p(0),
                p(1),
                p(2),
                n,
            ),
        }
    }
    let mut got = unpack(&out, case.result);
    got.truncate(case.wanted.len());
    got
}

/// The cases on every instruction set.
fn check(cases: &[Case], lanes: Lanes) {
    let configurations = configurations(lanes).into_iter();
    let faults: Vec<String> = configurations.flat_map(|(isa, n)| check_on(isa, n, cases)).collect();
    assert!(faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}
