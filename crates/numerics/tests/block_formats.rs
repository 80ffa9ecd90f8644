//! Block formats against a second transcription of LANGUAGE 16, written on f64 and tables of
//! values.

use tessera_numerics::{BlockFormat, DType, Quantized, Scalar, decode, dequantize, quantize};

/// Non-negative values of the element formats, from SPEC 4.1: e exponent bits, m fraction bits,
/// largest value.
fn values(exp_bits: i32, man_bits: i32, max: f64) -> Vec<f64> {
    let bias = (1 << (exp_bits - 1)) - 1;
    let codes = 0..1 << (exp_bits + man_bits);
    let value = |c: i32| {
        let (e, m) = (c >> man_bits, (c & ((1 << man_bits) - 1)) as f64);
        let fraction = m / 2f64.powi(man_bits);
        if e == 0 { fraction * 2f64.powi(1 - bias) } else { (1.0 + fraction) * 2f64.powi(e - bias) }
    };
    codes.map(value).filter(|v| *v <= max).collect()
}

/// Nearest value, ties to the even code, saturating; sign in the bit above the magnitude.
fn nearest(table: &[f64], width: u32, x: f64) -> u8 {
    let magnitude = x.abs();
    let mut best = 0;
    for (i, v) in table.iter().enumerate() {
        let (now, then) = ((v - magnitude).abs(), (table[best] - magnitude).abs());
        if now < then || (now == then && i % 2 == 0) {
            best = i;
        }
    }
    best as u8 | (x.is_sign_negative() as u8) << (width - 1)
}

struct Rule {
    format: BlockFormat,
    table: Vec<f64>,
    width: u32,
    emax: i32,
    /// Code of a NaN element.
    nan: u8,
}

fn rules() -> Vec<Rule> {
    let rule = |name, e, m, max: f64, emax, nan| Rule {
        format: BlockFormat::from_name(name).unwrap(),
        table: values(e, m, max),
        width: (1 + e + m) as u32,
        emax,
        nan,
    };
    vec![
        rule("mxfp8_e4m3", 4, 3, 448.0, 8, 0x7F),
        rule("mxfp8_e5m2", 5, 2, 57344.0, 15, 0x7E),
        rule("mxfp6_e3m2", 3, 2, 28.0, 4, 0x1F),
        rule("mxfp6_e2m3", 2, 3, 7.5, 2, 0x1F),
        rule("mxfp4", 2, 1, 6.0, 2, 0x7),
        rule("nvfp4", 2, 1, 6.0, 2, 0x7),
    ]
}

fn finite(x: f32) -> f64 {
    (x as f64).clamp(-f32::MAX as f64, f32::MAX as f64)
}

fn expected(rule: &Rule, x: &[f32], last: usize) -> Quantized {
    let format = rule.format;
    let nv = format == BlockFormat::NvFp4;
    let largest =
        |v: &[f32]| v.iter().filter(|v| !v.is_nan()).map(|&v| finite(v).abs()).fold(0.0, f64::max);
    let tensor = (largest(x) as f32) / 2688.0;
    let (mut data, mut scales) = (vec![], vec![]);
    for row in x.chunks(last) {
        for block in row.chunks(if nv { 16 } else { 32 }) {
            let (amax, any_nan) = (largest(block), block.iter().any(|v| v.is_nan()));
            let scale = if nv {
                let e4m3 = values(4, 3, 448.0);
                let code = match (any_nan, tensor == 0.0) {
                    (true, _) => 0x7F,
                    (_, true) => 0,
                    _ => nearest(&e4m3, 8, ((amax as f32) / (6.0 * tensor)) as f64),
                };
                scales.push(code);
                if any_nan { f64::NAN } else { (e4m3[code as usize] as f32 * tensor) as f64 }
            } else {
                let shared = if amax == 0.0 {
                    -127
                } else {
                    // Largest e with 2^e <= amax, by search.
                    let e = (-149..=127).rev().find(|e| 2f64.powi(*e) <= amax).unwrap();
                    (e - rule.emax).clamp(-127, 127)
                };
                scales.push(if any_nan { 255 } else { (shared + 127) as u8 });
                if any_nan { f64::NAN } else { 2f64.powi(shared) }
            };
            for &v in block {
                let quotient =
                    if nv { (finite(v) as f32 / scale as f32) as f64 } else { finite(v) / scale };
                data.push(if scale == 0.0 {
                    0
                } else if quotient.is_nan() {
                    rule.nan
                } else {
                    nearest(&rule.table, rule.width, quotient)
                });
            }
        }
    }
    Quantized { format, last, data, scales, tensor_scale: nv.then_some(tensor) }
}

fn random() -> impl FnMut() -> u32 {
    let mut s = 1u64;
    move || {
        s = s.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((s >> 22) ^ s) as u32 ^ (s >> 40) as u32
    }
}

fn check(rule: &Rule, x: &[f32], last: usize) {
    let got = quantize(x, last, rule.format).unwrap();
    let want = expected(rule, x, last);
    let bits = |q: &Quantized| q.tensor_scale.map(f32::to_bits);
    assert_eq!(got.scales, want.scales, "{} {x:?}", rule.format);
    assert_eq!(got.data, want.data, "{} {x:?}", rule.format);
    assert_eq!(bits(&got), bits(&want), "{}", rule.format);
    let back = dequantize(&got);
    assert_eq!(back.len(), x.len());
    let per_row = last.div_ceil(rule.format.block());
    for (i, &v) in back.iter().enumerate() {
        let scale = got.scales[i / last * per_row + i % last / rule.format.block()];
        let element = decode(rule.format.element(), got.data[i] as u64).as_f64();
        let exact = element * decode(rule.format.scale(), scale as u64).as_f64();
        let exact = (exact as f32) * got.tensor_scale.unwrap_or(1.0);
        assert!(v == exact || (v.is_nan() && exact.is_nan()), "{} {v} {exact}", rule.format);
    }
}

#[test]
fn random_tensors_follow_the_transcribed_rules() {
    let mut next = random();
    for rule in rules() {
        for (round, last) in [1, 5, 16, 32, 33, 70].into_iter().cycle().take(240).enumerate() {
            let centre = 20 + next() % 200;
            let x: Vec<f32> = (0..last * 3)
                .map(|_| {
                    let w = next();
                    // A spread of sixteen binades around a centre; sometimes any bits at all.
                    let near = (w & 0x807F_FFFF) | ((centre + (next() >> 8) % 16) << 23);
                    let v = f32::from_bits(if round % 5 == 0 { w } else { near });
                    if v.is_nan() && round % 10 != 0 { 1.0 } else { v }
                })
                .collect();
            check(&rule, &x, last);
        }
    }
}

#[test]
fn edge_cases_follow_the_transcribed_rules() {
    let tiny = f32::from_bits(1);
    let rows: [&[f32]; 12] = [
        &[0.0, -0.0, 0.0],
        &[tiny, -tiny, 0.0],
        &[f32::MIN_POSITIVE, tiny],
        &[f32::MAX, -1.0, 1e30],
        &[f32::INFINITY, 1.0, -2.0],
        &[f32::NEG_INFINITY, f32::INFINITY, 0.0],
        &[f32::NAN, 1.0, f32::INFINITY],
        &[f32::NAN, 0.0],
        &[448.0, 449.0, -464.0, 480.0],
        &[6.0, 5.0, 2.5, 3.5, -0.25, 0.75, -0.0],
        &[1e-42, 1e-38, 3e-39],
        &[1.0, 1e-30, -1e-44],
    ];
    for rule in rules() {
        rows.iter().for_each(|x| check(&rule, x, x.len()));
        // One tensor of many rows: for nvfp4 the small rows have a large tensor scale.
        let all: Vec<f32> =
            rows.iter().flat_map(|r| r.iter().copied().chain([0.0; 8]).take(8)).collect();
        check(&rule, &all, 8);
    }
}

#[test]
fn named_values_of_language_16() {
    let q = quantize(&[0.0; 40], 40, BlockFormat::MxFp4).unwrap();
    assert_eq!((q.scales, q.data, q.tensor_scale), (vec![0, 0], vec![0; 40], None));
    let q = quantize(&[1.0, f32::NAN], 2, BlockFormat::MxFp8E4M3).unwrap();
    assert_eq!(q.scales, [255]);
    assert!(dequantize(&q).iter().all(|v| v.is_nan()));
    // Zero scale: the second block is too small beside the first for e4m3.
    let mut x = vec![1e-9f32; 32];
    x[0] = 1000.0;
    let q = quantize(&x, 32, BlockFormat::NvFp4).unwrap();
    assert_eq!((q.scales[1], &q.data[16..]), (0, &[0u8; 16][..]));
    assert_eq!(dequantize(&q)[0], 1000.0);
    let q = quantize(&[0.0; 16], 16, BlockFormat::NvFp4).unwrap();
    assert_eq!((q.tensor_scale, q.scales), (Some(0.0), vec![0]));
    // Infinity saturates and stays finite.
    for &f in BlockFormat::ALL {
        let q = quantize(&[f32::NEG_INFINITY, 1.0], 2, f).unwrap();
        assert!(dequantize(&q)[0].is_finite() && dequantize(&q)[0] < -2e38, "{f}");
    }
}

#[test]
fn names_shapes_and_scalar_zero() {
    for &f in BlockFormat::ALL {
        assert_eq!(BlockFormat::from_name(f.name()), Some(f));
        assert_eq!(f.to_string(), f.name());
        assert_eq!(f.block(), if f.has_tensor_scale() { 16 } else { 32 });
        assert_eq!(quantize(&[1.0; 10], 4, f), None);
        assert_eq!(quantize(&[1.0; 10], 0, f), None);
        assert_eq!(quantize(&[], 0, f).unwrap().scales.len(), 0);
        assert_eq!(
            quantize(&[1.0; 66], 33, f).unwrap().scales.len(),
            2 * 33usize.div_ceil(f.block())
        );
    }
    assert_eq!(BlockFormat::from_name("mxfp7"), None);
    for &dt in DType::ALL {
        let stored =
            tessera_numerics::encode(dt, Scalar::zero(dt), tessera_numerics::Rounding::Rne, false);
        assert_eq!(
            (stored, decode(dt, 0)),
            (0, Scalar::zero(dt)),
            "{dt}: zero is what code 0 holds"
        );
    }
}
