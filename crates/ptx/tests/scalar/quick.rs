//! Functions outside the strict profile, against `libm` in f64. The interpreter's approximations
//! are rounded to nearest; those of the hardware may be off by 1 (rcp) or 2 ulp (ex2, lg2, rsqrt,
//! sqrt), so the bounds here leave room for them. `docs/numerics/nvidia.md` has results of
//! hardware.

use super::values::{Random, edges, random};
use super::{Case, Emit, Lies, newest, outputs};
use tessera_numerics::{DType, Profile, Real, Scalar, ScalarFn, eval};
use tessera_ptx::scalar::operand;

/// The error, in ulp, that a function may have where the error is also above 2^-21.
fn bound(f: Real) -> f64 {
    match f {
        Real::Rsqrt | Real::Exp2 | Real::Log2 => 0.51,
        Real::Exp => 1.1,
        Real::Log => 1.3,
        Real::Tan => 3.0,
        _ => 2.0,
    }
}

/// Arguments: edges, a grid over all bits, numbers of moderate size.
fn arguments(arity: usize, seed: u64) -> Vec<Vec<u64>> {
    let mut r = Random::new(seed);
    let all = edges(DType::F32);
    if arity == 1 {
        let grid = (0..1u64 << 32).step_by(500_009);
        let moderate = (0..20_000).map(|_| random(DType::F32, &mut r));
        return vec![all.into_iter().chain(grid).chain(moderate).collect()];
    }
    let some: Vec<u64> = all.iter().copied().step_by(3).collect();
    let mut rows: Vec<[u64; 2]> =
        some.iter().flat_map(|&a| some.iter().map(move |&b| [a, b])).collect();
    rows.extend((0..30_000).map(|_| [(); 2].map(|()| random(DType::F32, &mut r))));
    // Powers whose results are in range.
    rows.extend((0..10_000).map(|_| {
        let x = f32::from_bits((r.next() >> 33) as u32);
        let y = (r.next() >> 40) as f32 / (1 << 24) as f32 * 256.5 - 128.25;
        [x, y / x.log2()].map(|v| u64::from(v.to_bits()))
    }));
    (0..2).map(|i| rows.iter().map(|row| row[i]).collect()).collect()
}

/// One unit in the last place at `truth`.
fn ulp(truth: f64) -> f64 {
    let exponent = (truth.abs().to_bits() >> 52) as i32 - 1023;
    2f64.powi(exponent.clamp(-126, 127) - 23)
}

/// The error in ulp and in absolute terms. A NaN or infinity must be one, with the right sign.
fn error(got: f32, truth: f64) -> (f64, f64) {
    let wrong = (f64::INFINITY, f64::INFINITY);
    if got.is_nan() || truth.is_nan() {
        return if got.is_nan() == truth.is_nan() { (0.0, 0.0) } else { wrong };
    }
    // Infinity stands for the first number that is out of range.
    let whole = |x: f64| if x.abs() > f32::MAX.into() { 2f64.powi(128).copysign(x) } else { x };
    let (got, truth) = (whole(got.into()), whole(truth));
    if truth == 0.0 && (got != 0.0 || got.is_sign_negative() != truth.is_sign_negative()) {
        return wrong;
    }
    let off = (got - truth).abs();
    (off / ulp(truth), off)
}

struct Worst {
    ulp: f64,
    /// Where the absolute error is beyond what is allowed in its place.
    counted: f64,
    at: Vec<u64>,
    got: f32,
    truth: f64,
}

fn worst(f: ScalarFn) -> Worst {
    let inputs = arguments(f.arity(), f as u64);
    let emit: Emit = Box::new(move |s, args| s.apply(f, DType::F32, args).map(|r| vec![r]));
    worst_of(f, inputs, emit)
}

/// Of code for `f` on these arguments; what is not an operand of the code is a constant in it.
fn worst_of(f: ScalarFn, inputs: Vec<Vec<u64>>, emit: Emit) -> Worst {
    let case = Case {
        label: format!("{f}"),
        operands: vec![Lies::Carried(DType::F32); f.arity()],
        results: vec![Lies::Carried(DType::F32)],
        emit,
        wanted: vec![],
        inputs,
        any_nan: true,
    };
    let mut worst = Worst { ulp: 0.0, counted: -1.0, at: vec![], got: 0.0, truth: 0.0 };
    for (i, bits) in outputs(&case, newest(), Profile::Default).into_iter().enumerate() {
        let at: Vec<u64> = case.inputs.iter().map(|x| x[i]).collect();
        let real = |&b: &u64| Scalar::F64(f32::from_bits(b as u32).into());
        let args: Vec<Scalar> = at.iter().map(real).collect();
        let truth = eval(f, &args).unwrap().as_f64();
        let got = f32::from_bits(bits as u32);
        let (ulp, off) = error(got, truth);
        let counted = if off <= 2f64.powi(-21) { 0.0 } else { ulp };
        worst.ulp = worst.ulp.max(ulp);
        if counted > worst.counted {
            worst = Worst { counted, at, got, truth, ..worst };
        }
    }
    worst
}

#[test]
fn functions_of_the_default_profile_are_within_their_bounds() {
    let mut faults = vec![];
    for &f in Real::ALL {
        let (bound, f) = (bound(f), ScalarFn::from(f));
        let Worst { ulp, counted, at, got, truth } = worst(f);
        println!("{:8} {ulp:12.3} ulp, {counted:.3} beyond 2^-21", f.name());
        if counted > bound {
            let at: Vec<f32> = at.iter().map(|&b| f32::from_bits(b as u32)).collect();
            faults.push(format!("{f}({at:?}) = {got:e}, not {truth:e}: {counted} ulp"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Constant exponents, some of them products or roots.
#[test]
fn known_powers_are_within_their_bounds() {
    for y in [0.0, 1.0, 2.0, 3.0, 4.0, -1.0, 0.5, -0.5, 2.5, -3.0] {
        let mut inputs = arguments(1, 77);
        inputs.push(vec![u64::from((y as f32).to_bits()); inputs[0].len()]);
        let emit: Emit = Box::new(move |s, args| {
            let y = operand(DType::F32, Scalar::F32(y as f32));
            s.apply(ScalarFn::Pow, DType::F32, &[args[0].into(), y]).map(|r| vec![r])
        });
        let Worst { counted, at, got, truth, .. } = worst_of(ScalarFn::Pow, inputs, emit);
        let at = at.first().map_or(f32::NAN, |&b| f32::from_bits(b as u32));
        assert!(counted <= 2.5, "{at:e} to the {y} = {got:e}, not {truth:e}: {counted} ulp");
    }
}
