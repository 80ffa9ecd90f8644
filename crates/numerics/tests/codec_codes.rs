//! Every code of every narrow type, and the facts of SPEC 4.1 and 4.4.

use tessera_numerics::{
    CANONICAL_NAN_F32, DType, Rounding, Scalar, cast, cast_with, decode, decode_slice_f32,
    decode_slice_i32, encode, encode_drawn, encode_slice_f32, encode_slice_i32,
};

fn narrow() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|d| d.bits() <= 16)
}

fn codes(dt: DType) -> std::ops::Range<u64> {
    0..1 << dt.bits()
}

fn value(dt: DType, code: u64) -> f64 {
    decode(dt, code).as_f64()
}

#[test]
fn decode_encode_decode_is_the_identity_on_every_code() {
    for dt in narrow() {
        for code in codes(dt) {
            let v = decode(dt, code);
            assert_eq!(v.dtype(), dt.carrier());
            for r in Rounding::ALL {
                for sat in [false, true] {
                    let back = encode(dt, v, *r, sat);
                    let inf = v.as_f64().is_infinite();
                    if inf && sat {
                        continue;
                    }
                    assert_eq!(decode(dt, back), v, "{dt} {code:#x}");
                    // NaN codes become the canonical one; every other code comes back itself.
                    assert!(back == code || v.as_f64().is_nan(), "{dt} {code:#x}");
                }
            }
            let drawn = encode_drawn(dt, v, 0, false);
            assert_eq!(decode(dt, drawn), v, "{dt} {code:#x}: an exact value never moves");
        }
    }
}

#[test]
fn decode_ignores_bits_above_the_width() {
    for dt in narrow() {
        for code in codes(dt) {
            assert_eq!(decode(dt, code | !0 << dt.bits()), decode(dt, code), "{dt}");
        }
    }
}

#[test]
fn slices_agree_with_the_codec_on_every_code() {
    for dt in narrow() {
        let bytes: Vec<u8> =
            codes(dt).flat_map(|c| c.to_le_bytes()[..dt.bytes()].to_vec()).collect();
        let n = codes(dt).count();
        let mut floats = vec![0.0f32; n + 3];
        assert_eq!(decode_slice_f32(dt, &bytes, &mut floats), n);
        for (code, got) in codes(dt).zip(&floats) {
            let want = decode(dt, code).as_f64() as f32;
            assert_eq!(got.to_bits(), want.to_bits(), "{dt} {code:#x}");
        }
        let mut ints = vec![0; n];
        let taken = decode_slice_i32(dt, &bytes, &mut ints);
        if dt.is_float() {
            assert_eq!(taken, 0);
            continue;
        }
        assert!(codes(dt).zip(&ints).all(|(c, i)| value(dt, c) == *i as f64), "{dt}");
        let mut back = vec![0; bytes.len()];
        assert_eq!(encode_slice_i32(dt, &ints, &mut back), n);
        assert_eq!(back, bytes, "{dt}");
    }
}

#[test]
fn decode_agrees_with_half_crate() {
    for code in 0..=0xFFFFu16 {
        let (f, b) = (half::f16::from_bits(code).to_f32(), half::bf16::from_bits(code).to_f32());
        let canonical = |x: f32| if x.is_nan() { CANONICAL_NAN_F32 } else { x.to_bits() } as u64;
        assert_eq!(decode(DType::F16, code as u64).bits(), canonical(f));
        assert_eq!(decode(DType::BF16, code as u64).bits(), canonical(b));
    }
}

#[test]
fn format_limits_are_those_of_the_spec() {
    // Largest finite, smallest normal, smallest subnormal (SPEC 4.1).
    let p = |e| 2f64.powi(e);
    let rows = [
        (DType::F16, 65504.0, p(-14), p(-24)),
        (DType::BF16, (2.0 - p(-7)) * p(127), p(-126), p(-133)),
        (DType::Fp8E4M3, 448.0, p(-6), p(-9)),
        (DType::Fp8E5M2, 57344.0, p(-14), p(-16)),
        (DType::Fp6E3M2, 28.0, p(-2), p(-4)),
        (DType::Fp6E2M3, 7.5, 1.0, 0.125),
        (DType::Fp4E2M1, 6.0, 1.0, 0.5),
    ];
    for (dt, max, normal, sub) in rows {
        let f = dt.float_format().unwrap();
        assert_eq!(value(dt, f.max_code()), max, "{dt}");
        assert_eq!(value(dt, 1 << f.man_bits), normal, "{dt}");
        assert_eq!(value(dt, 1), sub, "{dt}");
        assert_eq!(f.width(), dt.bits());
    }
    let nans = |dt| codes(dt).filter(|c| value(dt, *c).is_nan()).count();
    let infs = |dt| codes(dt).filter(|c| value(dt, *c).is_infinite()).count();
    let counts: Vec<_> = narrow().filter(|d| d.is_float()).map(|d| (nans(d), infs(d))).collect();
    assert_eq!(counts, [(2046, 2), (254, 2), (2, 0), (6, 2), (0, 0), (0, 0), (0, 0), (1, 0)]);
    assert_eq!((value(DType::E8M0, 0), value(DType::E8M0, 254)), (p(-127), p(127)));
}

/// Whether every number of `a`, zeros' signs included, is a value of `b`.
fn embeds(a: DType, b: DType) -> bool {
    codes(a).map(|c| decode(a, c)).filter(|v| !v.as_f64().is_nan()).all(|v| {
        let back = decode(b, encode(b, v, Rounding::Rtz, false));
        back.as_f64().to_bits() == v.as_f64().to_bits()
    })
}

#[test]
fn exact_embedding_chain_holds() {
    use DType::{BF16, F16, F32, Fp4E2M1, Fp6E2M3, Fp6E3M2, Fp8E4M3, Fp8E5M2};
    let yes = [
        (Fp4E2M1, Fp8E4M3),
        (Fp6E2M3, Fp8E4M3),
        (Fp6E3M2, Fp8E4M3),
        (Fp8E4M3, F16),
        (Fp8E4M3, BF16),
        (Fp8E5M2, F16),
        (Fp8E5M2, BF16),
        (F16, F32),
        (BF16, F32),
        (Fp4E2M1, Fp8E5M2),
        (Fp6E3M2, Fp8E5M2),
    ];
    let no = [(Fp6E2M3, Fp8E5M2), (Fp8E4M3, Fp8E5M2), (Fp8E5M2, Fp8E4M3), (BF16, F16), (F16, BF16)];
    yes.iter().for_each(|&(a, b)| assert!(embeds(a, b), "{a} in {b}"));
    no.iter().for_each(|&(a, b)| assert!(!embeds(a, b), "{a} not in {b}"));
}

#[test]
fn saturation_and_missing_specials_follow_the_language() {
    let put = |dt, x: f32, sat| value(dt, encode(dt, x.into(), Rounding::Rne, sat));
    assert_eq!(put(DType::Fp8E4M3, 1e9, true), 448.0);
    assert!(put(DType::Fp8E4M3, 1e9, false).is_nan());
    assert_eq!(
        put(DType::Fp8E4M3, 464.0, false),
        448.0,
        "a tie goes to the even code, the largest"
    );
    assert_eq!(put(DType::Fp8E5M2, f32::NEG_INFINITY, true), -57344.0);
    assert_eq!(put(DType::Fp8E5M2, 1e9, false), f64::INFINITY);
    assert_eq!(put(DType::Fp4E2M1, f32::NAN, false), 6.0);
    assert_eq!(put(DType::Fp6E3M2, -f32::NAN, true), 28.0);
    assert_eq!(put(DType::Fp6E2M3, -1e9, false), -7.5);
    assert_eq!(put(DType::F16, 65520.0, false), f64::INFINITY);
    assert_eq!(put(DType::F16, 65519.9, false), 65504.0);
    assert_eq!(put(DType::F16, 1e9, true), 65504.0);
    assert_eq!(encode(DType::F16, (1e9f32).into(), Rounding::Rtz, false), 0x7BFF);
    assert_eq!(encode(DType::F16, (-1e9f32).into(), Rounding::Up, false), 0xFBFF);
    for dt in [DType::F32, DType::F64, DType::F16, DType::BF16, DType::Fp8E5M2, DType::Fp8E4M3] {
        let codes = [f32::NAN, -f32::NAN, f32::from_bits(0xFF80_0001)]
            .map(|x| encode(dt, x.into(), Rounding::Rne, false));
        assert!(
            codes.iter().all(|c| *c == dt.float_format().unwrap().nan_code()),
            "{dt}: {codes:x?}"
        );
    }
}

#[test]
fn e8m0_rounds_to_powers_of_two() {
    let put = |x: f64, r| encode(DType::E8M0, x.into(), r, true);
    assert_eq!([1.0, 1.49, 1.5, 3.0].map(|x| put(x, Rounding::Rne)), [127, 127, 128, 128]);
    assert_eq!([1.99, 4.0].map(|x| put(x, Rounding::Rtz)), [127, 129]);
    assert_eq!([0.0, -0.0, 2f64.powi(-140)].map(|x| put(x, Rounding::Rne)), [0, 0, 0]);
    assert_eq!([-1.0, f64::NAN, f64::NEG_INFINITY].map(|x| put(x, Rounding::Rne)), [255, 255, 255]);
    assert_eq!([1e300, f64::INFINITY].map(|x| put(x, Rounding::Rne)), [254, 254]);
    assert_eq!(encode(DType::E8M0, (1e300f64).into(), Rounding::Rne, false), 255);
}

#[test]
fn stochastic_rounding_goes_up_for_the_fraction_of_draws() {
    // A quarter of the way from 1 to the next f16: exactly the draws below 2^30 go up.
    let x: Scalar = (1.0 + 2f64.powi(-12)).into();
    let up = |draw| encode_drawn(DType::F16, x, draw, false) == 0x3C01;
    assert!(up(0) && up((1 << 30) - 1) && !up(1 << 30) && !up(u32::MAX));
    let neg: Scalar = (-1.0 - 2f64.powi(-12)).into();
    assert_eq!(encode_drawn(DType::F16, neg, 0, false), 0xBC01);
    // Far below the smallest subnormal no 32-bit draw is small enough.
    assert_eq!(encode_drawn(DType::F16, (1e-300f64).into(), 0, false), 0);
}

#[test]
fn casts_follow_the_language() {
    let to = |x: f64, dt| cast(x.into(), DType::F64, dt);
    assert_eq!(to(-7.9, DType::I32), Scalar::I32(-7));
    assert_eq!(to(300.0, DType::I8), Scalar::I32(127));
    assert_eq!(to(-300.0, DType::U8), Scalar::I32(0));
    assert_eq!(to(9.0, DType::I4), Scalar::I32(7));
    assert_eq!(to(f64::NAN, DType::I64), Scalar::I64(0));
    assert_eq!(to(f64::INFINITY, DType::U64), Scalar::U64(u64::MAX));
    assert_eq!(to(1e30, DType::I64), Scalar::I64(i64::MAX));
    assert_eq!(to(0.25, DType::Bool), Scalar::Bool(true));
    assert_eq!(to(1e9, DType::Fp8E4M3), Scalar::F32(448.0));
    assert_eq!(to(f64::NAN, DType::Fp4E2M1), Scalar::F32(6.0));
    let int = |x: i64, dt| cast(x.into(), DType::I64, dt);
    assert_eq!(int(300, DType::I8), Scalar::I32(44));
    assert_eq!(int(-1, DType::U8), Scalar::I32(255));
    assert_eq!(int(-1, DType::U64), Scalar::U64(u64::MAX));
    assert_eq!(int(9, DType::I4), Scalar::I32(-7));
    assert_eq!(int((1 << 40) + 5, DType::I32), Scalar::I32(5));
    assert_eq!(int(2, DType::Bool), Scalar::Bool(true));
    let sat = cast_with(Scalar::I64(300), DType::I64, DType::I8, Rounding::Rne, true);
    assert_eq!(sat, Scalar::I32(127));
    let sat = cast_with(Scalar::U64(u64::MAX), DType::U64, DType::I64, Rounding::Rne, true);
    assert_eq!(sat, Scalar::I64(i64::MAX));
    // A value not held in the carrier of its type is brought there first.
    assert_eq!(cast(Scalar::I64(300), DType::I8, DType::F32), Scalar::F32(44.0));
}

#[test]
fn encode_slice_agrees_with_the_codec_on_every_type() {
    let xs = [0.0f32, -0.0, 1.5, -1.5, 300.7, -300.7, 1e30, -1e30, f32::NAN, f32::INFINITY, 1e-42];
    for &dt in DType::ALL {
        let mut bytes = vec![0u8; xs.len() * dt.bytes()];
        assert_eq!(encode_slice_f32(dt, &xs, &mut bytes), xs.len());
        for (x, got) in xs.iter().zip(bytes.chunks(dt.bytes())) {
            let want = encode(dt, (*x).into(), Rounding::Rne, dt.saturates_by_default());
            assert_eq!(got, &want.to_le_bytes()[..dt.bytes()], "{dt} {x:e}");
        }
        // A short buffer takes what fits.
        assert_eq!(encode_slice_f32(dt, &xs, &mut bytes[..dt.bytes()]), 1);
        assert_eq!(decode_slice_f32(dt, &bytes, &mut []), 0);
    }
}
