//! The table of scalar functions and the meaning of those the language defines itself.

use std::f64::consts::{FRAC_2_SQRT_PI, PI};
use tessera_numerics::{DType, FnKind, Kernel, Real, Scalar, ScalarFn, eval, expansion};

const CARRIERS: &[DType] =
    &[DType::Bool, DType::I32, DType::I64, DType::U32, DType::U64, DType::F32, DType::F64];

fn call<T: Into<Scalar> + Copy>(name: &str, args: &[T]) -> Scalar {
    let args: Vec<Scalar> = args.iter().map(|&a| a.into()).collect();
    eval(ScalarFn::from_name(name).unwrap(), &args).unwrap_or_else(|| panic!("{name} {args:?}"))
}

#[test]
fn table_is_consistent_with_kernels_and_eval() {
    for &f in ScalarFn::ALL {
        assert_eq!(ScalarFn::from_name(f.name()), Some(f));
        assert!(f.doc().ends_with('.') && !f.bound().is_empty(), "{f}");
        assert!(!f.commutative() || f.arity() >= 2, "{f}");
        for &dt in DType::ALL {
            let kernel = f.kernel(dt);
            assert_eq!(kernel.is_some(), f.accepts(dt), "{f} {dt}");
            assert!(!f.accepts(dt) || CARRIERS.contains(&dt), "{f} {dt}");
            let Some(kernel) = kernel else { continue };
            let text = format!("{kernel:?}");
            let shape = text.split('(').next().unwrap().chars().last().unwrap();
            let arity = match shape {
                'U' | 'P' => 1,
                'B' | 'C' => 2,
                _ => 3,
            };
            assert_eq!(arity, f.arity(), "{f} {dt}");
            let args = vec![Scalar::zero(dt); f.arity()];
            assert_eq!(eval(f, &args).unwrap().dtype(), f.result(dt), "{f} {dt}");
            assert_eq!(eval(f, &args[1..]), None, "{f} {dt}");
        }
    }
    assert_eq!(eval(ScalarFn::Add, &[Scalar::I32(1), Scalar::I64(1)]), None);
    assert!(matches!(ScalarFn::Add.kernel(DType::F32), Some(Kernel::F32B(_))));
}

#[test]
fn commutative_functions_commute() {
    let floats = [0.0f32, -0.0, 1.5, -2.25, f32::INFINITY, 3e38, 1e-40];
    let ints = [0i32, 1, -1, i32::MIN, i32::MAX, 12345];
    for &f in ScalarFn::ALL.iter().filter(|f| f.commutative() && f.arity() == 2) {
        for (a, b) in ints.iter().flat_map(|a| ints.map(|b| (*a, b))) {
            assert_eq!(eval(f, &[a.into(), b.into()]), eval(f, &[b.into(), a.into()]), "{f}");
        }
        for (a, b) in floats.iter().flat_map(|a| floats.map(|b| (*a, b))) {
            let (x, y) = (eval(f, &[a.into(), b.into()]), eval(f, &[b.into(), a.into()]));
            let nan = x.is_some_and(|x| x.as_f64().is_nan());
            assert!(x == y || nan, "{f} {a} {b}");
        }
    }
}

#[test]
fn integer_division_floors_and_never_traps() {
    let rows = [
        (7, 2, 3, 1),
        (-7, 2, -4, 1),
        (7, -2, -4, -1),
        (-7, -2, 3, -1),
        (6, -3, -2, 0),
        (5, 0, 0, 0),
    ];
    for (a, b, q, r) in rows {
        assert_eq!(call("floordiv", &[a, b]), Scalar::I32(q), "{a} // {b}");
        assert_eq!(call("mod", &[a, b]), Scalar::I32(r), "{a} % {b}");
        assert_eq!(call("floordiv", &[a as i64, b as i64]), Scalar::I64(q as i64));
    }
    assert_eq!(call("floordiv", &[i32::MIN, -1]), Scalar::I32(i32::MIN));
    assert_eq!(call("mod", &[i64::MIN, -1]), Scalar::I64(0));
    assert_eq!(call("floordiv", &[u32::MAX, 0]), Scalar::U32(0));
    assert_eq!(call("mod", &[u64::MAX, 10]), Scalar::U64(5));
}

#[test]
fn float_division_follows_python() {
    // Printed by Python 3: `a // b` and `a % b`.
    let rows: [(f64, f64, f64, f64); 10] = [
        (7.0, 2.0, 3.0, 1.0),
        (-7.0, 2.0, -4.0, 1.0),
        (7.0, -2.0, -4.0, -1.0),
        (-7.5, -2.0, 3.0, -1.5),
        (1.0, 0.1, 9.0, 0.09999999999999995),
        (-1.0, f64::INFINITY, -1.0, f64::INFINITY),
        (1.0, f64::INFINITY, 0.0, 1.0),
        (-0.0, 3.0, -0.0, 0.0),
        (0.0, -3.0, -0.0, -0.0),
        (6.0, -3.0, -2.0, -0.0),
    ];
    for (a, b, q, r) in rows {
        assert_eq!(call("floordiv", &[a, b]), Scalar::F64(q), "{a} // {b}");
        assert_eq!(call("mod", &[a, b]), Scalar::F64(r), "{a} % {b}");
    }
    assert_eq!(call("floordiv", &[1.0f32, 0.1]), Scalar::F32(9.0));
    assert_eq!(call("floordiv", &[1.0f32, 0.0]), Scalar::F32(f32::INFINITY));
    assert!(call("mod", &[1.0f32, 0.0]).as_f64().is_nan());
    assert!(call("floordiv", &[f64::INFINITY, 2.0]).as_f64().is_nan());
}

#[test]
fn maximum_and_minimum_propagate_nan_and_order_zeros() {
    for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN), (f32::NAN, f32::INFINITY)] {
        assert!(
            call("maximum", &[a, b]).as_f64().is_nan()
                && call("minimum", &[a, b]).as_f64().is_nan()
        );
    }
    for (a, b) in [(0.0f64, -0.0), (-0.0, 0.0)] {
        assert_eq!(call("maximum", &[a, b]), Scalar::F64(0.0));
        assert_eq!(call("minimum", &[a, b]), Scalar::F64(-0.0));
    }
    assert_eq!(call("maximum", &[-0.0f32, -0.0]), Scalar::F32(-0.0));
    assert_eq!(call("maximum", &[-3i32, 2]), Scalar::I32(2));
    assert_eq!(call("clamp", &[5i32, 3, 1]), Scalar::I32(1), "crossed bounds give the upper one");
    assert!(call("clamp", &[f32::NAN, 0.0, 1.0]).as_f64().is_nan());
}

#[test]
fn integers_wrap_and_shifts_take_any_count() {
    assert_eq!(call("add", &[i32::MAX, 1]), Scalar::I32(i32::MIN));
    assert_eq!(call("mul", &[u32::MAX, 2]), Scalar::U32(u32::MAX - 1));
    assert_eq!(call("neg", &[i64::MIN]), Scalar::I64(i64::MIN));
    assert_eq!(call("abs", &[i32::MIN]), Scalar::I32(i32::MIN));
    assert_eq!(call("neg", &[1u32]), Scalar::U32(u32::MAX));
    assert_eq!(call("fma", &[i32::MAX, 2, 3]), Scalar::I32(1));
    for n in [32, 33, i32::MAX, -1] {
        assert_eq!(call("shl", &[-5, n]), Scalar::I32(0));
        assert_eq!(call("shr", &[-5, n]), Scalar::I32(-1));
        assert_eq!(call("shr", &[5, n]), Scalar::I32(0));
    }
    assert_eq!(call("shr", &[u64::MAX, 1 << 40]), Scalar::U64(0));
    assert_eq!(call("shl", &[1u64, 63]), Scalar::U64(1 << 63));
    assert_eq!(call("shr", &[-8i64, 1]), Scalar::I64(-4));
}

#[test]
fn float_functions_hold_their_special_cases() {
    let f = |name, x: f32| call(name, &[x]);
    assert_eq!(
        [0.5, 1.5, 2.5, -0.5].map(|x| f("round", x)),
        [0.0, 2.0, 2.0, -0.0].map(Scalar::F32)
    );
    assert_eq!(
        [-2.5, 0.0, -0.0, 9.0].map(|x| f("sign", x)),
        [-1.0, 0.0, -0.0, 1.0].map(Scalar::F32)
    );
    assert_eq!(f("sigmoid", 0.0), Scalar::F32(0.5));
    assert_eq!(f("sigmoid", f32::NEG_INFINITY), Scalar::F32(0.0));
    assert_eq!(f("sigmoid", -100.0), Scalar::F32((-100.0f64).exp() as f32));
    assert!(f("sigmoid", f32::NAN).as_f64().is_nan());
    assert_eq!(f("exp", 1000.0), Scalar::F32(f32::INFINITY));
    assert_eq!(f("log", 0.0), Scalar::F32(f32::NEG_INFINITY));
    assert!(f("log", -1.0).as_f64().is_nan() && f("sqrt", -1.0).as_f64().is_nan());
    assert_eq!(f("rsqrt", 0.0), Scalar::F32(f32::INFINITY));
    assert_eq!(f("exp2", -149.0), Scalar::F32(f32::from_bits(1)));
    assert_eq!(call("pow", &[2.0f32, 10.0]), Scalar::F32(1024.0));
    assert_eq!(call("atan2", &[1.0f64, 0.0]), Scalar::F64(std::f64::consts::FRAC_PI_2));
    // One rounding: the product's low half survives the cancellation.
    let e = f32::EPSILON;
    assert_eq!(call("fma", &[1.0 + e, 1.0 - e, -1.0]), Scalar::F32(-e * e));
    assert_eq!(call("isnan", &[f32::NAN]), Scalar::Bool(true));
    assert_eq!(call("isfinite", &[f64::INFINITY]), Scalar::Bool(false));
    assert_eq!(call("lt", &[f32::NAN, 1.0]), Scalar::Bool(false));
    assert_eq!(call("ne", &[f32::NAN, f32::NAN]), Scalar::Bool(true));
}

#[test]
fn bool_functions_have_their_truth_tables() {
    let table = |name| {
        [(false, false), (false, true), (true, false), (true, true)]
            .map(|(a, b)| call(name, &[a, b]) == Scalar::Bool(true))
    };
    assert_eq!(table("and"), [false, false, false, true]);
    assert_eq!(table("xor"), [false, true, true, false]);
    assert_eq!(table("lt"), [false, true, false, false]);
    assert_eq!(table("le"), [true, true, false, true]);
    assert_eq!(table("ge"), [true, false, true, true]);
    assert_eq!(call("not", &[true]), Scalar::Bool(false));
}

/// Distance in representable steps.
fn ulps(a: f32, b: f32) -> i64 {
    let key =
        |x: f32| if x < 0.0 { -((x.to_bits() & 0x7FFF_FFFF) as i64) } else { x.to_bits() as i64 };
    (key(a) - key(b)).abs()
}

#[test]
fn kinds_agree_with_classes_and_expansions() {
    for &f in ScalarFn::ALL {
        match f.kind() {
            FnKind::Real(real) => {
                assert_eq!(ScalarFn::from(real), f);
                assert!(f.accepts(DType::F32) && !f.accepts(DType::I32), "{f}");
                let expanded = f.bound().contains("by its expansion");
                assert_eq!(expansion(f).is_some(), expanded, "{f}");
            }
            FnKind::Basic(_) => assert!(expansion(f).is_none(), "{f}"),
        }
    }
}

/// A value to compare with: the system's library, or a formula.
enum Reference {
    One(fn(f64) -> f64),
    Two(fn(f64, f64) -> f64),
}

fn reference(f: Real) -> Reference {
    use Reference::{One, Two};
    match f {
        Real::Rsqrt => One(|x| 1.0 / x.sqrt()),
        Real::Exp => One(f64::exp),
        Real::Exp2 => One(f64::exp2),
        Real::Log => One(f64::ln),
        Real::Log2 => One(f64::log2),
        Real::Log10 => One(f64::log10),
        Real::Log1p => One(f64::ln_1p),
        Real::Expm1 => One(f64::exp_m1),
        Real::Sin => One(f64::sin),
        Real::Cos => One(f64::cos),
        Real::Tan => One(f64::tan),
        Real::Asin => One(f64::asin),
        Real::Acos => One(f64::acos),
        Real::Atan => One(f64::atan),
        Real::Atan2 => Two(f64::atan2),
        Real::Sinh => One(f64::sinh),
        Real::Cosh => One(f64::cosh),
        Real::Tanh => One(f64::tanh),
        Real::Sigmoid => One(|x| 1.0 / (1.0 + (-x).exp())),
        Real::Erf => One(erf),
        Real::Pow => Two(f64::powf),
    }
}

/// The error function: its series near zero, else the continued fraction of its complement.
fn erf(x: f64) -> f64 {
    let z = x.abs();
    let value = if z < 2.5 {
        let (mut term, mut sum) = (z, z);
        for n in 1..80 {
            term *= -z * z / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        FRAC_2_SQRT_PI * sum
    } else {
        let tail = (1..60).rev().fold(0.0, |t, n| f64::from(n) / 2.0 / (z + t));
        1.0 - (-z * z).exp() / PI.sqrt() / (z + tail)
    };
    value.copysign(x)
}

#[test]
fn real_functions_of_f32_are_within_an_ulp_of_their_references() {
    let grid = |i: i32| (i as f32 - 10_000.0) * 0.00123;
    for &f in Real::ALL {
        for i in 1..20_000 {
            let x = grid(i);
            let (args, want) = match reference(f) {
                Reference::One(reference) => (vec![x], reference(x.into())),
                Reference::Two(reference) => {
                    let y = grid(i * 7919 % 20_000);
                    (vec![x, y], reference(x.into(), y.into()))
                }
            };
            let name = ScalarFn::from(f).name();
            let (got, want) = (call(name, &args).as_f64() as f32, want as f32);
            assert!(
                got.is_nan() && want.is_nan() || ulps(got, want) <= 1,
                "{name}({args:?}): {got} {want}"
            );
        }
    }
}
