//! Every cast, decoding of every short code, encoding of edges, ties and random values.

use super::{Case, Lies, check, newest, targets};
use tessera_conformance::values::{edges, from_carriers, pairs, sources, to_encode};
use tessera_numerics::{DType, Profile, Rounding, Scalar, cast_with, decode, encode};

fn cast_case(from: DType, to: DType, round: Rounding, saturate: bool) -> Case {
    let inputs = sources(from, to, 2000);
    let value = |&b: &u64| cast_with(decode(from.carrier(), b), from, to, round, saturate).bits();
    Case {
        label: format!("cast {from} to {to} {round} {saturate}"),
        operands: vec![Lies::Carried(from)],
        results: vec![Lies::Carried(to)],
        emit: Box::new(move |s, args| s.cast(from, to, round, saturate, args[0]).map(|r| vec![r])),
        wanted: inputs.iter().map(value).collect(),
        inputs: vec![inputs],
        // It is settled where the value leaves the carrier.
        any_nan: true,
    }
}

#[test]
fn casts_agree_with_their_meaning() {
    let one =
        |(from, to): (DType, DType)| cast_case(from, to, Rounding::Rne, to.saturates_by_default());
    check(&pairs().map(one).collect::<Vec<_>>(), &[newest()], Profile::Strict);
    check(&from_carriers().map(one).collect::<Vec<_>>(), &targets(), Profile::Default);
}

#[test]
fn casts_with_the_other_saturation_agree_with_their_meaning() {
    let one =
        |(from, to): (DType, DType)| cast_case(from, to, Rounding::Rne, !to.saturates_by_default());
    let known = [(DType::BF16, DType::F32), (DType::U8, DType::I4), (DType::I8, DType::F16)];
    let all: Vec<Case> = from_carriers().chain(known).map(one).collect();
    check(&all, &targets(), Profile::Strict);
}

#[test]
fn casts_in_other_roundings_agree_with_their_meaning() {
    let rounds = [Rounding::Rtz, Rounding::Up, Rounding::Down];
    let all = from_carriers().flat_map(|(from, to)| rounds.map(|r| (from, to, r)));
    let all = all.flat_map(|(from, to, r)| [false, true].map(|sat| cast_case(from, to, r, sat)));
    check(&all.collect::<Vec<_>>(), &targets()[..2], Profile::Strict);
}

#[test]
fn stochastic_rounding_is_refused() {
    let case = cast_case(DType::F32, DType::BF16, Rounding::Stochastic, false);
    let why = super::kernel(&case, newest(), Profile::Default).unwrap_err();
    assert!(why.reason.starts_with("stochastic rounding"), "{why}");
}

#[test]
fn codes_decode_to_their_values() {
    let one = |&dtype: &DType| {
        let codes: Vec<u64> = match dtype.bytes() {
            1 => (0..256).collect(),
            2 => (0..65536).collect(),
            _ => edges(if dtype == DType::Tf32 { DType::F32 } else { dtype }),
        };
        let wanted = codes.iter().map(|&c| decode(dtype, c).bits()).collect();
        Case {
            label: format!("decode {dtype}"),
            operands: vec![Lies::Coded(dtype)],
            results: vec![Lies::Carried(dtype)],
            emit: Box::new(move |s, args| Ok(vec![s.decode(dtype, args[0])])),
            inputs: vec![codes],
            wanted,
            any_nan: true,
        }
    };
    check(&DType::ALL.iter().map(one).collect::<Vec<_>>(), &targets(), Profile::Default);
}

#[test]
fn values_encode_to_their_codes() {
    let one = |dtype: DType, round: Rounding, saturate: bool, all: bool| {
        let carrier = dtype.carrier();
        let inputs = if all { to_encode(dtype) } else { sources(carrier, dtype, 2000) };
        let code = |&b: &u64| encode(dtype, decode(carrier, b), round, saturate);
        let wanted = inputs.iter().map(code).collect();
        Case {
            label: format!("encode {dtype} {round} {saturate}"),
            operands: vec![Lies::Carried(carrier)],
            results: vec![Lies::Coded(dtype)],
            emit: Box::new(move |s, args| {
                s.encode_with(dtype, round, saturate, args[0]).map(|r| vec![r])
            }),
            inputs: vec![inputs],
            wanted,
            any_nan: false,
        }
    };
    let all = DType::ALL.iter().flat_map(|&dtype| {
        let default = dtype.saturates_by_default();
        let rounds = [Rounding::Rtz, Rounding::Up, Rounding::Down];
        let plain = [false, true].map(|sat| one(dtype, Rounding::Rne, sat, sat == default));
        plain.into_iter().chain(rounds.map(|r| one(dtype, r, default, false)))
    });
    check(&all.collect::<Vec<_>>(), &targets(), Profile::Strict);
}

#[test]
fn bitcasts_agree_with_their_meaning() {
    let same_width = pairs().filter(|(from, to)| from.bits() == to.bits());
    let one = |(from, to): (DType, DType)| {
        let inputs = sources(from, from, 2000);
        let value = |&b: &u64| -> u64 {
            let x: Scalar = decode(from.carrier(), b);
            let code = encode(from, x, Rounding::Rne, from.saturates_by_default());
            decode(to, code).bits()
        };
        Case {
            label: format!("bitcast {from} {to}"),
            operands: vec![Lies::Carried(from)],
            results: vec![Lies::Carried(to)],
            emit: Box::new(move |s, args| Ok(vec![s.bitcast(from, to, args[0])])),
            wanted: inputs.iter().map(value).collect(),
            inputs: vec![inputs],
            any_nan: true,
        }
    };
    let all: Vec<Case> = same_width.map(one).collect();
    check(&all, &[targets()[0], newest()], Profile::Default);
}
