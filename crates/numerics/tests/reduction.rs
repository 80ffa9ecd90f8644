//! The canonical reduction against a naive transcription of LANGUAGE 14.

use tessera_numerics::{
    CHUNK, DType, ReduceOp, Scalar, canonical_reduce, canonical_reduce_scalars, canonical_sum_f32,
    eval,
};

fn naive<T: Copy>(xs: &[T], init: T, join: &dyn Fn(T, T) -> T) -> T {
    if xs.len() > 65536 {
        let parts: Vec<T> = xs.chunks(65536).map(|c| naive(c, init, join)).collect();
        return naive(&parts, init, join);
    }
    let mut lane = [init; 64];
    for i in 0..xs.len() {
        lane[i % 64] = join(lane[i % 64], xs[i]);
    }
    for h in [32, 16, 8, 4, 2, 1] {
        for j in 0..h {
            lane[j] = join(lane[j], lane[j + h]);
        }
    }
    lane[0]
}

/// Values whose sum depends on the order.
fn noise(n: usize) -> Vec<f32> {
    let mut s = 0x9E37_79B9u32;
    let step = |s: &mut u32| {
        *s = s.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (*s >> 8) as f32 / 1e5 - 80.0
    };
    (0..n).map(|_| step(&mut s)).collect()
}

#[test]
fn sum_matches_the_transcription_at_every_boundary() {
    let sizes =
        [0, 1, 2, 63, 64, 65, 1000, CHUNK - 1, CHUNK, CHUNK + 1, CHUNK * 2, CHUNK * 65 + 17];
    let all = noise(CHUNK * 65 + 17);
    for n in sizes {
        let xs = &all[..n];
        let want = naive(xs, -0.0f32, &|a, b| a + b);
        assert_eq!(canonical_sum_f32(xs.iter().copied()).to_bits(), want.to_bits(), "n = {n}");
        let general = canonical_reduce(ReduceOp::Sum, xs.iter().copied()).unwrap();
        assert_eq!(general.to_bits(), want.to_bits(), "n = {n}");
    }
    let plain: f32 = all.iter().sum();
    assert_ne!(
        plain.to_bits(),
        canonical_sum_f32(all.iter().copied()).to_bits(),
        "order matters here"
    );
}

#[test]
fn padding_with_the_identity_changes_nothing() {
    let xs = noise(100);
    let padded = xs.iter().copied().chain(std::iter::repeat_n(-0.0, 156));
    assert_eq!(
        canonical_sum_f32(padded).to_bits(),
        canonical_sum_f32(xs.iter().copied()).to_bits()
    );
    assert_eq!(canonical_sum_f32([-0.0f32].into_iter()).to_bits(), (-0.0f32).to_bits());
}

#[test]
fn every_operator_matches_the_transcription_on_every_type() {
    for &op in ReduceOp::ALL {
        assert_eq!(ReduceOp::from_name(op.name()), Some(op));
        let ints: Vec<i64> = noise(300).iter().map(|x| (x * 1e6) as i64).collect();
        for &dt in DType::ALL {
            let Some(init) = op.identity(dt) else {
                assert!(!op.combine().accepts(dt));
                continue;
            };
            let xs: Vec<Scalar> =
                ints.iter().map(|&i| tessera_numerics::cast(i.into(), DType::I64, dt)).collect();
            let join = |a, b| eval(op.combine(), &[a, b]).unwrap();
            xs.iter().for_each(|&x| assert_eq!(join(init, x), x, "{op} {dt}: identity"));
            let want = naive(&xs, init, &join);
            assert_eq!(canonical_reduce_scalars(op, dt, xs.into_iter()), Some(want), "{op} {dt}");
        }
    }
    assert_eq!(ReduceOp::from_name("add"), Some(ReduceOp::Sum));
    assert_eq!(canonical_reduce(ReduceOp::And, [1.0f32].into_iter()), None);
    assert_eq!(canonical_reduce(ReduceOp::Or, [false, true].into_iter()), Some(true));
    let mixed = [Scalar::I32(1), Scalar::I64(1)];
    assert_eq!(canonical_reduce_scalars(ReduceOp::Sum, DType::I32, mixed.into_iter()), None);
}

#[test]
fn maximum_over_nan_is_nan() {
    let got = canonical_reduce(ReduceOp::Max, [1.0f32, f32::NAN, 3.0].into_iter()).unwrap();
    assert!(got.is_nan());
    assert_eq!(canonical_reduce(ReduceOp::Max, std::iter::empty::<f32>()), Some(f32::NEG_INFINITY));
}
