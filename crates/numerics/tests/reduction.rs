//! The canonical reduction against a naive transcription of LANGUAGE 14.

use tessera_numerics::{
    CHUNK, Carrier, DType, ReduceOp, Scalar, canonical_reduce, canonical_reduce_scalars,
    canonical_sum_f32, combine_arrays, eval,
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

/// Arrays of any count and length, against the reduction of each element.
#[test]
fn arrays_are_combined_as_their_elements_are() {
    fn check<T: Carrier + PartialEq, const N: usize>(
        of: impl Fn(u64) -> T,
        bytes: fn(T) -> [u8; N],
        value: fn([u8; N]) -> T,
    ) {
        let mut state = 7u64;
        let mut next = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state >> 20
        };
        for (count, len) in
            [(1, 5), (2, 1025), (3, 0), (7, 33), (63, 9), (64, 2048), (65, 3), (200, 1030)]
        {
            let values: Vec<Vec<T>> =
                (0..count).map(|_| (0..len).map(|_| of(next())).collect()).collect();
            let as_bytes: Vec<Vec<u8>> =
                values.iter().map(|v| v.iter().flat_map(|x| bytes(*x)).collect()).collect();
            let given: Vec<&[u8]> = as_bytes.iter().map(Vec::as_slice).collect();
            for op in ReduceOp::ALL {
                let mut made = vec![0; len * N];
                let done = combine_arrays(*op, T::DTYPE, &given, &mut made);
                let element = |i: usize| canonical_reduce(*op, values.iter().map(|v| v[i]));
                if !done {
                    assert!(
                        canonical_reduce(*op, std::iter::empty::<T>()).is_none(),
                        "{op:?} {:?}",
                        T::DTYPE
                    );
                    continue;
                }
                for i in 0..len {
                    let Some(expected) = element(i) else { continue };
                    let found = made[i * N..(i + 1) * N].try_into().expect("N bytes");
                    // Which NaN a sum has is open.
                    #[allow(clippy::eq_op)]
                    let nan = expected != expected && value(found) != value(found);
                    assert!(nan || found == bytes(expected), "{op:?} of {count} {:?}", T::DTYPE);
                }
            }
        }
    }
    let special = [f32::NAN, -0.0, 0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1e-40];
    let float = move |n: u64| match n % 11 {
        at @ 0..7 => special[at as usize],
        _ => (n % 4001) as f32 / 7.0 - 280.0,
    };
    check(float, f32::to_ne_bytes, f32::from_ne_bytes);
    check(move |n| f64::from(float(n)), f64::to_ne_bytes, f64::from_ne_bytes);
    check(|n| n as i32, i32::to_ne_bytes, i32::from_ne_bytes);
    check(|n| (n as i64).wrapping_mul(77_777_777), i64::to_ne_bytes, i64::from_ne_bytes);
    check(|n| n as u32, u32::to_ne_bytes, u32::from_ne_bytes);
    check(|n| n.wrapping_mul(99_999_999), u64::to_ne_bytes, u64::from_ne_bytes);
    check(|n| n % 3 == 0, |x| [u8::from(x)], |x| x[0] != 0);
}

#[test]
fn what_cannot_be_combined_is_left_as_it_is() {
    let mut out = [9u8; 4];
    assert!(!combine_arrays(ReduceOp::Sum, DType::BF16, &[&[0; 4]], &mut out));
    assert!(!combine_arrays(ReduceOp::And, DType::F32, &[&[0; 4]], &mut out));
    assert!(!combine_arrays(ReduceOp::Sum, DType::F32, &[&[0; 8]], &mut out));
    assert!(!combine_arrays(ReduceOp::Sum, DType::F32, &[], &mut out));
    assert_eq!(out, [9; 4]);
}
