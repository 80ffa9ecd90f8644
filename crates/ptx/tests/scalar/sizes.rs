//! How many instructions each operation takes, so that a change shows. Machine code has about as
//! many, but for divisions and square roots, which the assembler expands, and sign changes, which
//! are free.

use super::{Case, Lies, body, newest, targets};
use std::fmt::Write;
use tessera_numerics::{DType, Profile, Rounding, STRICT, ScalarFn};
use tessera_ptx::caps::PtxCaps;

fn apply(f: ScalarFn, d: DType) -> Case {
    Case {
        label: format!("{f}.{d}"),
        operands: vec![Lies::Carried(d); f.arity()],
        results: vec![Lies::Carried(f.result(d))],
        emit: Box::new(move |s, args| s.apply(f, d, args).map(|r| vec![r])),
        inputs: vec![],
        wanted: vec![],
        any_nan: true,
    }
}

fn decode(d: DType) -> Case {
    let n = 4 / d.bytes();
    Case {
        label: format!("decode {n} {d}"),
        operands: vec![Lies::Word],
        results: vec![Lies::Carried(d); n],
        emit: Box::new(move |s, args| Ok(s.decode_packed(d, args[0]))),
        ..apply(ScalarFn::Neg, DType::F32)
    }
}

fn encode(d: DType) -> Case {
    let n = 4 / d.bytes();
    Case {
        label: format!("encode {n} {d}"),
        operands: vec![Lies::Carried(d.carrier()); n],
        results: vec![Lies::Word],
        emit: Box::new(move |s, args| Ok(vec![s.encode_packed(d, args)])),
        ..apply(ScalarFn::Neg, DType::F32)
    }
}

fn cast(from: DType, to: DType) -> Case {
    Case {
        label: format!("cast {from} {to}"),
        operands: vec![Lies::Carried(from)],
        results: vec![Lies::Carried(to)],
        emit: Box::new(move |s, args| {
            s.cast(from, to, Rounding::Rne, to.saturates_by_default(), args[0]).map(|r| vec![r])
        }),
        ..apply(ScalarFn::Neg, DType::F32)
    }
}

fn line(text: &mut String, title: &str, cases: Vec<Case>, caps: &PtxCaps, profile: Profile) {
    write!(text, "{title}:").unwrap();
    for case in cases {
        write!(text, " {} {};", case.label, body(&case, caps, profile)).unwrap();
    }
    text.push('\n');
}

#[test]
fn sizes_are_as_they_were() {
    let mut text = String::new();
    let real: Vec<ScalarFn> =
        ScalarFn::ALL.iter().copied().filter(|f| f.bound().starts_with('2')).collect();
    let of = |fs: &[ScalarFn], d: DType| fs.iter().map(|&f| apply(f, d)).collect::<Vec<_>>();
    let other = [
        ScalarFn::Div,
        ScalarFn::Sqrt,
        ScalarFn::Maximum,
        ScalarFn::Sign,
        ScalarFn::FloorDiv,
        ScalarFn::Mod,
    ];
    let narrow = [
        DType::F16,
        DType::BF16,
        DType::Fp8E4M3,
        DType::Fp8E5M2,
        DType::Fp6E3M2,
        DType::Fp6E2M3,
        DType::Fp4E2M1,
        DType::E8M0,
        DType::I8,
        DType::U8,
        DType::I16,
        DType::Bool,
    ];
    let (new, old) = (newest(), targets()[0]);
    let (default, strict) = (Profile::Default, Profile::Strict);
    line(&mut text, "default", of(&real, DType::F32), new, default);
    line(&mut text, "default", of(&real, DType::F64), new, default);
    line(&mut text, "strict", of(STRICT, DType::F32), new, strict);
    line(&mut text, "exact", of(&other, DType::F32), new, default);
    line(&mut text, "exact", of(&other[4..], DType::I32), new, default);
    for caps in [new, old, targets()[3]] {
        let title = format!("{}", caps.target);
        line(&mut text, &title, narrow.map(decode).into(), caps, default);
        line(&mut text, &title, narrow.map(encode).into(), caps, default);
        line(
            &mut text,
            &title,
            narrow[..8].iter().map(|&d| cast(DType::F32, d)).collect(),
            caps,
            default,
        );
    }
    line(&mut text, "strict", narrow[..8].iter().map(|&d| encode(d)).collect(), new, strict);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scalar/sizes.txt");
    if std::env::var_os("TESSERA_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), text, "TESSERA_BLESS=1 accepts");
}
