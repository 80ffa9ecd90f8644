//! The strict functions: the expansion and the fast function are one, within 1 ulp of the true
//! value.

#[path = "../examples/sweep/reference.rs"]
mod reference;

use tessera_numerics::{
    BASIC, DType, ExpOp, ExpansionEval, Kernel, QUICK, STRICT, ScalarFn, eval_expansion, expansion,
    quick_expansion, quick_f32,
};

/// Numbers at which something changes: specials, powers of two, thresholds of the formulas, each
/// with its neighbours, of both signs.
fn hard_numbers() -> Vec<f32> {
    let mut base = vec![0.0, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, 1.0, 3.0, 0.1];
    base.extend((-149..128).map(|e| 2f64.powi(e) as f32));
    base.extend((1..40).map(|k| (k as f64 * std::f64::consts::FRAC_PI_4) as f32));
    base.extend([
        0.6,
        std::f32::consts::FRAC_1_SQRT_2,
        std::f32::consts::SQRT_2,
        0.41421357,
        88.72284,
        87.33655,
        103.97208,
    ]);
    base.extend([
        16777216.0, 16777217.0, 8388607.5, 2.5, 4.0, 9.01, 10.0, 104.0, 127.5, 149.5, 150.5,
    ]);
    // The f32 numbers nearest to multiples of π/2: 2^-29.9, 2^-29.5 and 2^-28.5 of a quarter iteration
    // away.
    base.extend([0x6f79be45, 0x50a3e87f, 0x437ce5f1].map(f32::from_bits));
    let mut out = vec![f32::NAN, -f32::NAN];
    for x in base {
        for y in [x.next_down(), x, x.next_up()] {
            out.extend([y, -y]);
        }
    }
    out
}

/// A fixed stream of words, well mixed.
fn words() -> impl FnMut() -> u32 {
    let mut state = 0x243F_6A88_85A3_08D3u64;
    move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let a = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((a ^ (a >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 32) as u32
    }
}

fn call(f: ScalarFn, args: &[f32]) -> f32 {
    match (f.kernel(DType::F32), args) {
        (Some(Kernel::F32U(k)), &[x]) => k(x),
        (Some(Kernel::F32B(k)), &[x, y]) => k(x, y),
        other => panic!("{f}: {other:?}"),
    }
}

/// `count` operands: all pairs or singles of the hard numbers, then random ones. One in two random
/// pairs is of moderate numbers, where functions of two operands have moderate values.
fn for_samples(f: ScalarFn, count: usize, mut visit: impl FnMut(&[f32])) {
    let hard = hard_numbers();
    let mut next = words();
    if f.arity() == 1 {
        hard.iter().for_each(|&x| visit(&[x]));
        for i in hard.len()..count {
            let bits = next();
            // Every other sample has a magnitude between 2^-8 and 2^8, where most functions bend.
            let near = (bits & 0x807F_FFFF) | ((119 + (bits >> 3) % 16) << 23);
            visit(&[f32::from_bits(if i % 2 == 0 { bits } else { near })]);
        }
        return;
    }
    for (i, &x) in hard.iter().enumerate() {
        for &y in hard.iter().skip(i % 7).step_by(7) {
            visit(&[x, y]);
        }
    }
    for i in 0..count / 2 {
        let (a, b) = (next(), next());
        let moderate = |w: u32| f32::from_bits((w & 0x807F_FFFF) | ((123 + (w >> 5) % 8) << 23));
        if i % 2 == 0 {
            visit(&[f32::from_bits(a), f32::from_bits(b)]);
        } else {
            visit(&[moderate(a), moderate(b)]);
            visit(&[moderate(a).abs(), moderate(b) * 8.0]);
        }
    }
}

/// Each function on a thread of its own: there are minutes of work on one.
fn for_each_strict(check: fn(ScalarFn)) {
    std::thread::scope(|scope| {
        STRICT.iter().for_each(|&f| drop(scope.spawn(move || check(f))));
    });
}

#[test]
fn every_strict_function_is_within_one_ulp() {
    for_each_strict(|f| {
        let (mut worst, mut at) = (0.0, vec![]);
        for_samples(f, 1 << 20, |args| {
            let error = reference::error(call(f, args), reference::truth(f, args));
            if error > worst {
                (worst, at) = (error, args.to_vec());
            }
        });
        assert!(worst <= 0.85, "{f}: {worst} ulp at {at:?}: {} for {}", call(f, &at), {
            reference::truth(f, &at)
        });
    });
}

#[test]
fn fast_functions_equal_their_expansions() {
    for_each_strict(|f| {
        let e = expansion(f).unwrap();
        let mut data = ExpansionEval::new(e);
        for_samples(f, 1 << 20, |args| {
            let (fast, data) = (call(f, args), data.eval(args));
            let same = fast.to_bits() == data.to_bits() || (fast.is_nan() && data.is_nan());
            assert!(same, "{f}{args:?}: {fast:e} fast, {data:e} as data");
        });
        assert_eq!(
            eval_expansion(e, &[0.25, 1.5][..f.arity()]),
            call(f, &[0.25, 1.5][..f.arity()])
        );
    });
}

#[test]
fn quick_functions_are_within_two_ulp_and_equal_their_expansions() {
    for &f in QUICK {
        let (e, quick) = (quick_expansion(f).unwrap(), quick_f32(f).unwrap());
        let mut data = ExpansionEval::new(e);
        for_samples(f, 1 << 18, |args| {
            let got = quick(args[0]);
            let error = reference::error(got, reference::truth(f, args));
            assert!(error <= 2.0, "{f}{args:?}: {error} ulp");
            let data = data.eval(args);
            let same = got.to_bits() == data.to_bits() || (got.is_nan() && data.is_nan());
            assert!(same, "{f}{args:?}: {got:e} as a function, {data:e} as data");
        });
    }
}

#[test]
fn expansions_are_well_formed_and_use_basic_operations_only() {
    for &f in ScalarFn::ALL {
        assert_eq!(expansion(f).is_some(), STRICT.contains(&f), "{f}");
        let Some(e) = expansion(f) else { continue };
        assert_eq!((e.arity, e.ops.len()), (f.arity(), e.types.len()), "{f}");
        assert_eq!(e.types.last(), Some(&DType::F32), "{f}");
        for (i, op) in e.ops.iter().enumerate() {
            let ty = |s: usize| e.types[op.operands()[s].0 as usize];
            assert!(op.operands().iter().all(|s| (s.0 as usize) < i), "{f}: {op:?} reads ahead");
            match op {
                ExpOp::Input(n) => assert!((*n as usize) < e.arity && e.types[i] == DType::F32),
                ExpOp::Const(c) => assert_eq!(c.dtype(), e.types[i]),
                ExpOp::Apply { f: basic, args } => {
                    assert!(BASIC.contains(basic) && args.len() == basic.arity(), "{f}: {op:?}");
                    assert!((1..args.len()).all(|s| ty(s) == ty(0)), "{f}: {op:?}");
                    assert!(
                        basic.accepts(ty(0)) && basic.result(ty(0)) == e.types[i],
                        "{f}: {op:?}"
                    );
                    assert!(ty(0) != DType::F64, "{f}: no f64 in an expansion");
                }
                ExpOp::Select { .. } => {
                    assert!(ty(0) == DType::Bool && ty(1) == ty(2) && ty(1) == e.types[i], "{f}");
                }
                ExpOp::Cast { to, .. } => assert_eq!(*to, e.types[i]),
                ExpOp::Bitcast { to, .. } => {
                    assert_eq!((*to, to.bits()), (e.types[i], ty(0).bits()), "{f}");
                }
            }
        }
        assert!(e.to_string().lines().count() == e.ops.len() && e.ops.len() < 260, "{f}");
    }
}

#[test]
fn pow_and_atan2_have_the_special_cases_of_c() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let pow = |x: f32, y: f32| call(ScalarFn::Pow, &[x, y]);
    let rows = [
        (nan, 0.0, 1.0),
        (1.0, nan, 1.0),
        (-1.0, inf, 1.0),
        (-1.0, -inf, 1.0),
        (0.5, inf, 0.0),
        (0.5, -inf, inf),
        (-2.0, inf, inf),
        (-2.0, -inf, 0.0),
        (-0.0, -3.0, -inf),
        (-0.0, -2.0, inf),
        (-0.0, -2.5, inf),
        (-0.0, 3.0, -0.0),
        (-0.0, 0.5, 0.0),
        (-inf, 3.0, -inf),
        (-inf, 2.0, inf),
        (-inf, -3.0, -0.0),
        (-inf, 0.5, inf),
        (inf, -1.0, 0.0),
        (-2.0, 3.0, -8.0),
        (2.0, -149.0, f32::from_bits(1)),
        (2.0, 128.0, inf),
        (-2.0, 16777216.0, inf),
        (10.0, 10.0, 1e10),
    ];
    for (x, y, want) in rows {
        assert_eq!(pow(x, y).to_bits(), want.to_bits(), "pow({x}, {y}) = {}", pow(x, y));
    }
    for (x, y) in [(nan, 1.0), (2.0, nan), (-1.0, nan), (-2.0, 0.5), (-1e-30, -1.5)] {
        assert!(pow(x, y).is_nan(), "pow({x}, {y})");
    }
    let atan2 = |y: f32, x: f32| call(ScalarFn::Atan2, &[y, x]);
    use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, PI};
    let rows = [
        (0.0, 0.0, 0.0),
        (-0.0, 0.0, -0.0),
        (0.0, -0.0, PI),
        (-0.0, -0.0, -PI),
        (0.0, -1.0, PI),
        (1.0, 0.0, FRAC_PI_2),
        (-1.0, -0.0, -FRAC_PI_2),
        (inf, inf, FRAC_PI_4),
        (-inf, inf, -FRAC_PI_4),
        (inf, -inf, 3.0 * FRAC_PI_4),
        (1.0, inf, 0.0),
        (-1.0, -inf, -PI),
        (inf, 3e38, FRAC_PI_2),
        (f32::from_bits(1), 1.0, f32::from_bits(1)),
        (f32::from_bits(1), f32::from_bits(1), FRAC_PI_4),
        (f32::MAX, f32::MAX, FRAC_PI_4),
    ];
    for (y, x, want) in rows {
        assert_eq!(atan2(y, x).to_bits(), want.to_bits(), "atan2({y}, {x}) = {}", atan2(y, x));
    }
    assert!(atan2(nan, 1.0).is_nan() && atan2(1.0, nan).is_nan());
}

#[test]
fn signs_of_zero_and_ends_of_the_range_are_exact() {
    use ScalarFn::*;
    for f in [Sin, Tan, Atan, Tanh, Erf, Expm1, Log1p] {
        for x in [0.0, -0.0, f32::from_bits(1), -f32::from_bits(5)] {
            let want =
                if f == Erf { (x as f64 * std::f64::consts::FRAC_2_SQRT_PI) as f32 } else { x };
            assert_eq!(call(f, &[x]).to_bits(), want.to_bits(), "{f}({x:e})");
        }
    }
    let inf = f32::INFINITY;
    let rows = [
        (Exp, -inf, 0.0),
        (Exp, inf, inf),
        (Exp2, -150.0, 0.0),
        (Exp2, 127.0, 2f32.powi(127)),
        (Exp2, 128.0, inf),
        (Expm1, -inf, -1.0),
        (Expm1, inf, inf),
        (Log, 1.0, 0.0),
        (Log, inf, inf),
        (Log, -0.0, -inf),
        (Log2, f32::from_bits(1), -149.0),
        (Log2, 2f32.powi(100), 100.0),
        (Log1p, -1.0, -inf),
        (Log1p, inf, inf),
        (Tanh, inf, 1.0),
        (Tanh, -inf, -1.0),
        (Sigmoid, inf, 1.0),
        (Sigmoid, -inf, 0.0),
        (Erf, inf, 1.0),
        (Erf, -inf, -1.0),
        (Cos, 0.0, 1.0),
        (Rsqrt, 0.0, inf),
        (Rsqrt, -0.0, -inf),
        (Rsqrt, inf, 0.0),
        (Rsqrt, 2f32.powi(-148), 2f32.powi(74)),
    ];
    for (f, x, want) in rows {
        assert_eq!(call(f, &[x]).to_bits(), f32::to_bits(want), "{f}({x:e}) = {}", call(f, &[x]));
    }
    for (f, x) in [(Log, -1.0), (Log2, -inf), (Log1p, -1.5), (Sin, inf), (Cos, -inf), (Tan, inf)] {
        assert!(call(f, &[x]).is_nan(), "{f}({x})");
    }
}
