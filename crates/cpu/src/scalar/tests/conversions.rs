//! Every cast, decoding of every short code, encoding of edges, ties and random values.

use super::{Case, Lanes, Lies, check};
use tessera_conformance::values::{edges, from_carriers, pairs, sources};
use tessera_numerics::{DType, Rounding, Scalar, cast_with, decode, encode};

fn cast_case(from: DType, to: DType, round: Rounding, saturate: bool) -> Case {
    let inputs = sources(from, to, 200);
    let carrier = from.carrier();
    let one = |&b: &u64| cast_with(decode(carrier, b), from, to, round, saturate).bits();
    let wanted = inputs.iter().map(one).collect();
    Case {
        label: format!("cast {from} {to} {round} {saturate}"),
        operands: vec![Lies::Carried(from)],
        result: Lies::Carried(to),
        emit: Box::new(move |s, args| s.cast(args[0], from, to, round, saturate)),
        inputs: vec![inputs],
        wanted,
        // A cast that changes nothing is none.
        any_nan: from == to,
    }
}

#[test]
fn casts_agree_with_their_meaning() {
    let one =
        |(from, to): (DType, DType)| cast_case(from, to, Rounding::Rne, to.saturates_by_default());
    check(&pairs().map(one).collect::<Vec<_>>(), Lanes::Full);
    check(&from_carriers().map(one).collect::<Vec<_>>(), Lanes::Other);
}

#[test]
fn casts_with_the_other_saturation_agree_with_their_meaning() {
    let one =
        |(from, to): (DType, DType)| cast_case(from, to, Rounding::Rne, !to.saturates_by_default());
    let known = [(DType::BF16, DType::F32), (DType::U8, DType::I4), (DType::I8, DType::F16)];
    check(&from_carriers().chain(known).map(one).collect::<Vec<_>>(), Lanes::Full);
}

#[test]
fn casts_in_other_roundings_agree_with_their_meaning() {
    let rounds = [Rounding::Rtz, Rounding::Up, Rounding::Down];
    let sources = [DType::F32, DType::F64];
    let all = sources.into_iter().flat_map(|from| DType::ALL.iter().map(move |&to| (from, to)));
    let all = all.flat_map(|(from, to)| rounds.map(|r| (from, to, r)));
    let all = all.flat_map(|(from, to, r)| [false, true].map(|sat| cast_case(from, to, r, sat)));
    check(&all.collect::<Vec<_>>(), Lanes::Full);
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
            result: Lies::Carried(dtype),
            emit: Box::new(move |s, args| s.decode(args[0], dtype)),
            inputs: vec![codes],
            wanted,
            any_nan: true,
        }
    };
    check(&DType::ALL.iter().map(one).collect::<Vec<_>>(), Lanes::Any);
}

#[test]
fn values_encode_to_their_codes() {
    let one = |dtype: DType, round: Rounding, saturate: bool| {
        let carrier = dtype.carrier();
        let inputs = sources(carrier, dtype, 200);
        let code = |&b: &u64| encode(dtype, decode(carrier, b), round, saturate);
        let wanted = inputs.iter().map(code).collect();
        Case {
            label: format!("encode {dtype} {round} {saturate}"),
            operands: vec![Lies::Carried(carrier)],
            result: Lies::Coded(dtype),
            emit: Box::new(move |s, args| s.encode_with(args[0], dtype, round, saturate)),
            inputs: vec![inputs],
            wanted,
            any_nan: false,
        }
    };
    let all = DType::ALL.iter().flat_map(|&dtype| {
        let default = dtype.saturates_by_default();
        let rounds = [Rounding::Rtz, Rounding::Up, Rounding::Down];
        let plain = [false, true].map(|sat| one(dtype, Rounding::Rne, sat));
        plain.into_iter().chain(rounds.map(|r| one(dtype, r, default)))
    });
    check(&all.collect::<Vec<_>>(), Lanes::Any);
}

#[test]
fn bitcasts_agree_with_their_meaning() {
    let same_width = pairs().filter(|(from, to)| from.bits() == to.bits());
    let one = |(from, to): (DType, DType)| {
        let inputs = sources(from, from, 200);
        let value = |&b: &u64| -> u64 {
            let x: Scalar = decode(from.carrier(), b);
            let code = encode(from, x, Rounding::Rne, from.saturates_by_default());
            decode(to, code).bits()
        };
        let wanted = inputs.iter().map(value).collect();
        Case {
            label: format!("bitcast {from} {to}"),
            operands: vec![Lies::Carried(from)],
            result: Lies::Carried(to),
            emit: Box::new(move |s, args| s.bitcast(args[0], from, to)),
            inputs: vec![inputs],
            wanted,
            any_nan: true,
        }
    };
    check(&same_width.map(one).collect::<Vec<_>>(), Lanes::Any);
}
