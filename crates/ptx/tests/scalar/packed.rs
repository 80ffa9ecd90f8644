//! Words of several elements.

use super::{Case, Lies, check, targets};
use tessera_conformance::values::{Random, to_encode};
use tessera_numerics::{DType, Profile, Rounding, decode, encode};

/// Those of which a word holds several.
fn short() -> impl Iterator<Item = DType> {
    DType::ALL.iter().copied().filter(|d| d.bytes() <= 2)
}

#[test]
fn words_decode_to_their_elements() {
    let one = |dtype: DType| {
        let (n, bits) = (4 / dtype.bytes(), dtype.bytes() * 8);
        let all = 1u64 << bits;
        // Every code in every place, beside other ones.
        let count = all.max(1024);
        let word = |i: u64| {
            let code = |k: u64| (i + k * (all / 2 + 37)) % all;
            (0..n as u64).fold(0, |w, k| w | code(k) << (k as usize * bits))
        };
        let words: Vec<u64> = (0..count).map(word).collect();
        let value = |w: u64, k: usize| decode(dtype, w >> (k * bits) & (all - 1)).bits();
        Case {
            label: format!("decode words of {dtype}"),
            operands: vec![Lies::Word],
            results: vec![Lies::Carried(dtype); n],
            emit: Box::new(move |s, args| Ok(s.decode_packed(dtype, args[0]))),
            wanted: words.iter().flat_map(|&w| (0..n).map(move |k| value(w, k))).collect(),
            inputs: vec![words],
            any_nan: true,
        }
    };
    check(&short().map(one).collect::<Vec<_>>(), &targets(), Profile::Default);
}

#[test]
fn elements_encode_to_words() {
    let one = |dtype: DType| {
        let (n, bits) = (4 / dtype.bytes(), dtype.bytes() * 8);
        let carrier = dtype.carrier();
        let values = to_encode(dtype);
        let mut r = Random::new(dtype as u64);
        // The first operand is every value, the others any.
        let column = |k: usize, r: &mut Random| -> Vec<u64> {
            let any = |(i, &x): (usize, &u64)| {
                if k == i % n { x } else { values[r.next() as usize % values.len()] }
            };
            values.iter().enumerate().map(any).collect()
        };
        let inputs: Vec<Vec<u64>> = (0..n).map(|k| column(k, &mut r)).collect();
        let saturate = dtype.saturates_by_default();
        let code = |b: u64| encode(dtype, decode(carrier, b), Rounding::Rne, saturate);
        let word = |i: usize| (0..n).fold(0, |w, k| w | code(inputs[k][i]) << (k * bits));
        Case {
            label: format!("encode words of {dtype}"),
            operands: vec![Lies::Carried(carrier); n],
            results: vec![Lies::Word],
            emit: Box::new(move |s, args| Ok(vec![s.encode_packed(dtype, args)])),
            wanted: (0..values.len()).map(word).collect(),
            inputs,
            any_nan: false,
        }
    };
    check(&short().map(one).collect::<Vec<_>>(), &targets(), Profile::Strict);
}
