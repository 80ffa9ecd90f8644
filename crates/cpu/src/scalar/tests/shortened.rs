//! Expansions made shorter against the published ones, each on a grid over all f32.

use super::super::shorten::Shortened;
use super::super::{Scalars, symbols};
use crate::isa::Isa;
use crate::llvm::{Ir, Loaded, Machine, Val};
use tessera_numerics::{DType, STRICT, ScalarFn, expansion};

/// Counts the arguments among `start, start + step, …` (as bits) for which the two differ.
fn emit(s: &Scalars, f: ScalarFn) {
    let ir = s.ir;
    let n = s.isa.lanes();
    let (ints, reals) = (ir.vec(ir.i32(), n), ir.vec(ir.f32(), n));
    let name = format!("differ_{f}");
    let fun = ir.function(&name, ir.i64(), &[ir.i64(), ir.i64(), ir.i64()]);
    let [start, step, count] = [0, 1, 2].map(|i| ir.param(fun, i));
    let lane = |v: Val| ir.splat(ir.trunc(v, ir.i32()), n);
    let steps = ir.mul(ir.const_steps(ints, 0, 1), lane(step));
    let first = ir.add(lane(start), steps);
    let stride = lane(ir.mul_const(step, n.into()));
    let e = expansion(f).unwrap();
    let carried = [first, ir.zero(ints)];
    let out = ir.for_range(ir.c64(0), count, 1, &carried, |ir, _, state| {
        // A second operand is of about the size of the first.
        let scrambled = ir.mul(state[0], ir.const_int(ints, 0x9E37_79B1));
        let near = ir.and(scrambled, ir.const_int(ints, 0x81FF_FFFF));
        let both = [state[0], ir.xor(state[0], near)].map(|bits| ir.bitcast(bits, reals));
        let inputs = &both[..e.arity];
        let bits = |y: Val| {
            let is_nan = s.apply(ScalarFn::IsNan, DType::F32, &[y]);
            ir.select(is_nan, ir.zero(ints), ir.bitcast(y, ints))
        };
        let short = bits(s.apply(f, DType::F32, inputs));
        let whole = bits(s.expand_ops(&Shortened::not(e), inputs));
        let differ = ir.zext(s.apply(ScalarFn::Ne, DType::I32, &[short, whole]), ints);
        vec![ir.add(state[0], stride), ir.add(state[1], differ)]
    });
    ir.ret(Some(ir.zext(ir.intrinsic("llvm.vector.reduce.add", &[ints], &[out[1]]), ir.i64())));
}

/// The functions that differ somewhere on the grid, and in how many places.
fn differences(isa: Isa, start: i64, step: i64, fs: &[ScalarFn]) -> Vec<(ScalarFn, i64)> {
    let ir = Ir::new("shortened");
    fs.iter().for_each(|&f| emit(&Scalars { ir: &ir, isa, quick: false }, f));
    let (cpu, features) = isa.llvm();
    let machine = Machine::new(cpu, features).unwrap();
    machine.verify(&ir).unwrap();
    let loaded = Loaded::new(&machine.object(&ir).unwrap(), &symbols()).unwrap();
    let vectors = (1 << 32) / step / i64::from(isa.lanes());
    let one = |&f: &ScalarFn| {
        let address = loaded.address(&format!("differ_{f}")).unwrap();
        // SAFETY: the function was emitted with this signature.
        let f_of: extern "C" fn(i64, i64, i64) -> i64 = unsafe { std::mem::transmute(address) };
        (f, f_of(start, step, vectors))
    };
    fs.iter().map(one).filter(|&(_, count)| count > 0).collect()
}

#[test]
fn shortened_expansions_give_the_same_bits() {
    let isa = Isa::host();
    if isa.has_fma() {
        // A step of 1 tries every number; the odd one here is prime, so that all bits vary.
        assert_eq!(differences(isa, 1, 1009, STRICT), []);
    }
}
