//! Every function on every type it takes, the random words, and identities.

use super::{Case, Lanes, Lies, check};
use tessera_conformance::values::{Random, operands};
use tessera_numerics::{DType, Scalar, ScalarFn, cast, decode, eval, philox4};

const CARRIERS: [DType; 7] =
    [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::U64, DType::Bool];

fn cases(dtypes: &[DType]) -> Vec<Case> {
    let pairs = ScalarFn::ALL.iter().flat_map(|&f| dtypes.iter().map(move |&d| (f, d)));
    let accepted = pairs.filter(|(f, d)| f.accepts(*d));
    accepted
        .map(|(f, d)| {
            let inputs = operands(d, f.arity(), f as u64 + 1, 600);
            let one = |i: usize| {
                let args: Vec<Scalar> = inputs.iter().map(|x| decode(d, x[i])).collect();
                eval(f, &args).unwrap().bits()
            };
            let wanted = (0..inputs[0].len()).map(one).collect();
            Case {
                label: format!("{f} {d}"),
                operands: vec![Lies::Carried(d); f.arity()],
                result: Lies::Carried(f.result(d)),
                emit: Box::new(move |s, args| s.apply(f, d, args)),
                inputs,
                wanted,
                any_nan: true,
            }
        })
        .collect()
}

#[test]
fn float_functions_agree_with_their_meaning() {
    check(&cases(&[DType::F32, DType::F64]), Lanes::Any);
}

#[test]
fn integer_functions_agree_with_their_meaning() {
    check(&cases(&CARRIERS[2..]), Lanes::Any);
}

/// A second operand that is constant at compile time takes other paths.
#[test]
fn functions_of_a_constant_agree_with_their_meaning() {
    let fs = [
        ScalarFn::FloorDiv,
        ScalarFn::Mod,
        ScalarFn::Shl,
        ScalarFn::Shr,
        ScalarFn::Maximum,
        ScalarFn::Minimum,
    ];
    let constants = [0.0, -1.0, 7.0, 8.0, 32.0, -0.0, f64::NAN];
    // An integer has one zero and no NaN.
    let of = |d: DType| if d.is_float() { &constants[..] } else { &constants[..5] };
    let pairs = CARRIERS[..6].iter().flat_map(|&d| of(d).iter().map(move |&c| (d, c)));
    let pairs = pairs.map(|(d, c)| (d, cast(c.into(), DType::F64, d)));
    let all = pairs.flat_map(|(d, c)| fs.map(|f| (f, d, c))).filter(|(f, d, _)| f.accepts(*d));
    let one = |(f, d, c): (ScalarFn, DType, Scalar)| {
        let inputs = operands(d, 1, 7, 600);
        let value = |&x: &u64| eval(f, &[decode(d, x), c]).unwrap().bits();
        let wanted = inputs[0].iter().map(value).collect();
        Case {
            label: format!("{f} {d} by {c:?}"),
            operands: vec![Lies::Carried(d)],
            result: Lies::Carried(d),
            emit: Box::new(move |s, x| s.apply(f, d, &[x[0], s.constant(c, s.lanes(x[0]))])),
            inputs,
            wanted,
            any_nan: true,
        }
    };
    check(&all.map(one).collect::<Vec<_>>(), Lanes::Any);
}

#[test]
fn random_words_agree_with_their_meaning() {
    let mut r = Random::new(9);
    let counters: Vec<u64> = (0..500).map(|i| if i < 100 { i } else { r.next() }).collect();
    let one = |word: usize, dtype: DType, seed: i64| {
        let inputs: Vec<u64> =
            counters.iter().map(|c| c & u64::MAX >> (64 - dtype.bits())).collect();
        let wide = |c: u64| decode(dtype, c).as_int().unwrap() as u64;
        let wanted = inputs.iter().map(|&c| philox4(seed as u64, wide(c))[word].into()).collect();
        Case {
            label: format!("philox {word} {dtype}"),
            operands: vec![Lies::Carried(dtype)],
            result: Lies::Carried(DType::U32),
            emit: Box::new(move |s, args| s.philox(s.ir.c64(seed), args[0], word)),
            inputs: vec![inputs],
            wanted,
            any_nan: false,
        }
    };
    let words = (0..4).map(|w| one(w, DType::I64, 0x1234_5678_9ABC_DEF0 ^ w as i64));
    check(&words.chain([one(0, DType::I32, -5)]).collect::<Vec<_>>(), Lanes::Any);
}
