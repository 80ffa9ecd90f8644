//! Functions of f64 outside the strict profile, against `libm`, which is itself within 1 ulp.

use super::values::{Random, edges, random};
use super::{Case, Lies, newest, outputs};
use tessera_numerics::{DType, Profile, Real, Scalar, ScalarFn, eval};

/// The largest difference in ulp that is allowed.
fn bound(f: Real) -> f64 {
    match f {
        Real::Exp | Real::Exp2 | Real::Log | Real::Log2 | Real::Log1p => 1.0,
        Real::Sin | Real::Cos | Real::Tan | Real::Pow | Real::Rsqrt => 1.0,
        Real::Tanh => 3.0,
        _ => 2.0,
    }
}

fn arguments(arity: usize, seed: u64) -> Vec<Vec<u64>> {
    let mut r = Random::new(seed);
    let all = edges(DType::F64);
    if arity == 1 {
        let grid = (0..8000u64).map(|i| i.wrapping_mul(0x0020_C49B_A5E3_53F7));
        let moderate = (0..20_000).map(|_| random(DType::F64, &mut r));
        return vec![all.into_iter().chain(grid).chain(moderate).collect()];
    }
    let some: Vec<u64> = all.iter().copied().step_by(3).collect();
    let mut rows: Vec<[u64; 2]> =
        some.iter().flat_map(|&a| some.iter().map(move |&b| [a, b])).collect();
    rows.extend((0..15_000).map(|_| [(); 2].map(|()| random(DType::F64, &mut r))));
    // Powers whose results are in range.
    rows.extend((0..10_000).map(|_| {
        let x = f64::from_bits(r.next() >> 1);
        let y = (r.next() >> 11) as f64 / 2f64.powi(53) * 2000.0 - 1000.0;
        [x, y / x.log2()].map(f64::to_bits)
    }));
    (0..2).map(|i| rows.iter().map(|row| row[i]).collect()).collect()
}

/// In units in the last place of the second.
fn difference(got: f64, wanted: f64) -> f64 {
    if got.is_nan() || wanted.is_nan() {
        return if got.is_nan() == wanted.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if wanted == 0.0 && (got != 0.0 || got.is_sign_negative() != wanted.is_sign_negative()) {
        return f64::INFINITY;
    }
    // Codes of numbers of one sign are in order, and infinity comes after the largest.
    let key =
        |x: f64| if x < 0.0 { -((x.to_bits() & !(1 << 63)) as i64) } else { x.to_bits() as i64 };
    (i128::from(key(got)) - i128::from(key(wanted))).abs() as f64
}

#[test]
fn functions_of_f64_are_near_libm() {
    let mut faults = vec![];
    for &f in Real::ALL {
        let (bound, f) = (bound(f), ScalarFn::from(f));
        let case = Case {
            label: format!("{f} f64"),
            operands: vec![Lies::Carried(DType::F64); f.arity()],
            results: vec![Lies::Carried(DType::F64)],
            emit: Box::new(move |s, args| s.apply(f, DType::F64, args).map(|r| vec![r])),
            inputs: arguments(f.arity(), f as u64),
            wanted: vec![],
            any_nan: true,
        };
        let mut worst = (-1.0, String::new());
        for (i, bits) in outputs(&case, newest(), Profile::Default).into_iter().enumerate() {
            let at: Vec<f64> = case.inputs.iter().map(|x| f64::from_bits(x[i])).collect();
            let args: Vec<Scalar> = at.iter().map(|&x| Scalar::F64(x)).collect();
            let (got, wanted) = (f64::from_bits(bits), eval(f, &args).unwrap().as_f64());
            let off = difference(got, wanted);
            if off > worst.0 {
                worst = (off, format!("{f}({at:?}) = {got:e}, not {wanted:e}: {off} ulp"));
            }
        }
        println!("{:8} {} ulp from libm", f.name(), worst.0);
        if worst.0 > bound {
            faults.push(worst.1);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
