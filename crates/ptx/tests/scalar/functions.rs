//! Every function on every type it takes, the random words, and identities.

use super::{Case, Lies, check, newest, targets};
use tessera_conformance::values::{Random, edges, operands};
use tessera_numerics::{
    DType, Profile, ReduceOp, Scalar, ScalarFn, cast, decode, eval, expansion, philox4,
};
use tessera_ptx::inst::Reg;
use tessera_ptx::scalar::operand;

const CARRIERS: [DType; 7] =
    [DType::F32, DType::F64, DType::I32, DType::I64, DType::U32, DType::U64, DType::Bool];

/// Whether strict code exists: real functions of f64 have no expansions, and some of f32 have none.
fn exact(f: ScalarFn, d: DType) -> bool {
    f.real().is_none() || (d == DType::F32 && expansion(f).is_some()) || (f == ScalarFn::Rsqrt)
}

pub fn apply_case(f: ScalarFn, d: DType, inputs: Vec<Vec<u64>>) -> Case {
    let one = |i: usize| {
        let args: Vec<Scalar> = inputs.iter().map(|x| decode(d, x[i])).collect();
        eval(f, &args).unwrap().bits()
    };
    let wanted = (0..inputs[0].len()).map(one).collect();
    Case {
        label: format!("{f} {d}"),
        operands: vec![Lies::Carried(d); f.arity()],
        results: vec![Lies::Carried(f.result(d))],
        emit: Box::new(move |s, args| s.apply(f, d, args).map(|r| vec![r])),
        inputs,
        wanted,
        any_nan: true,
    }
}

/// A constant second operand has other code.
#[test]
fn functions_of_a_constant_agree_with_their_meaning() {
    let fs = [ScalarFn::FloorDiv, ScalarFn::Mod, ScalarFn::Shl, ScalarFn::Shr, ScalarFn::Maximum];
    let mut constants = vec![0, 1, -1, 2, 3, 5, 6, 7, 8, 10, 12, 25, 31, 32, 60, 63, 64, 65, 100];
    constants.extend([127, 641, 1000, 1024, 12_345, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001]);
    constants.extend([0xFFFF_FFFE, 0xFFFF_FFFF, 1 << 32, (1 << 33) - 9, 999_999_999_989]);
    constants.extend([i64::MAX, i64::MIN, i64::MIN + 1, -2, -7, -8, 6_700_417, 3 << 61]);
    let all = CARRIERS[2..6].iter().flat_map(|&d| constants.iter().map(move |&c| (d, c)));
    let all = all.flat_map(|(d, c)| fs.map(|f| (f, d, decode(d, c as u64))));
    let one = |(f, d, c): (ScalarFn, DType, Scalar)| {
        let mut inputs = operands(d, 1, 7, 4000);
        // Around multiples of the constant.
        let step = c.as_int().unwrap_or(1);
        let near = (-40i128..40).flat_map(|k| [-1, 0, 1].map(|e| (k * step + e) as u64));
        let mask = u64::MAX >> (64 - d.bits());
        inputs[0].extend(near.map(|x| x & mask));
        let value = |&x: &u64| eval(f, &[decode(d, x), c]).unwrap().bits();
        Case {
            label: format!("{f} {d} by {c:?}"),
            operands: vec![Lies::Carried(d)],
            results: vec![Lies::Carried(d)],
            emit: Box::new(move |s, x| {
                s.apply(f, d, &[x[0].into(), operand(d, c)]).map(|r| vec![r])
            }),
            wanted: inputs[0].iter().map(value).collect(),
            inputs,
            any_nan: true,
        }
    };
    check(&all.map(one).collect::<Vec<_>>(), &[newest()], Profile::Default);
}

/// Every operand but one is constant.
#[test]
fn functions_of_constants_agree_with_their_meaning() {
    let constants = [0.0, 1.0, -1.0, 3.0, -2.5, 1e9, f64::INFINITY, f64::NAN];
    let fs = ScalarFn::ALL.iter().copied().filter(|f| f.arity() > 1);
    let all = fs.flat_map(|f| CARRIERS[..6].iter().map(move |&d| (f, d)));
    let all = all.filter(|(f, d)| f.accepts(*d) && exact(*f, *d));
    let all = all.flat_map(|(f, d)| constants.map(|c| (f, d, cast(c.into(), DType::F64, d))));
    let all = all.flat_map(|(f, d, c)| (0..f.arity()).map(move |free| (f, d, c, free)));
    let one = |(f, d, c, free): (ScalarFn, DType, Scalar, usize)| {
        let place = move |x| (0..f.arity()).map(|i| if i == free { x } else { c }).collect();
        let inputs = edges(d);
        let value = |&x: &u64| {
            let args: Vec<Scalar> = place(decode(d, x));
            eval(f, &args).unwrap().bits()
        };
        Case {
            label: format!("{f} {d} of {c:?} and operand {free}"),
            operands: vec![Lies::Carried(d)],
            results: vec![Lies::Carried(f.result(d))],
            emit: Box::new(move |s, x| {
                let c = s.constant(d, c);
                let args: Vec<Reg> =
                    (0..f.arity()).map(|i| if i == free { x[0] } else { c }).collect();
                s.apply(f, d, &args).map(|r| vec![r])
            }),
            wanted: inputs.iter().map(value).collect(),
            inputs: vec![inputs],
            any_nan: true,
        }
    };
    check(&all.map(one).collect::<Vec<_>>(), &targets()[..2], Profile::Strict);
}

#[test]
fn bools_may_be_constants() {
    let all = [ScalarFn::And, ScalarFn::Or, ScalarFn::Lt].map(|f| Case {
        label: format!("{f} bool by true"),
        operands: vec![Lies::Carried(DType::Bool)],
        results: vec![Lies::Carried(DType::Bool)],
        emit: Box::new(move |s, x| {
            let one = operand(DType::Bool, true.into());
            s.apply(f, DType::Bool, &[x[0].into(), one]).map(|r| vec![r])
        }),
        inputs: vec![vec![0, 1]],
        wanted: [false, true].map(|a| eval(f, &[a.into(), true.into()]).unwrap().bits()).to_vec(),
        any_nan: false,
    });
    check(&all, &[newest()], Profile::Default);
}

#[test]
fn functions_without_an_expansion_say_so_under_strict() {
    for f in [ScalarFn::Asin, ScalarFn::Exp] {
        let case = apply_case(f, DType::F64, operands(DType::F64, 1, 1, 4000));
        let why = super::kernel(&case, newest(), Profile::Strict).unwrap_err();
        assert!(why.reason.starts_with(&format!("`{f}` of f64 under the strict profile")), "{why}");
    }
}

#[test]
fn random_words_agree_with_their_meaning() {
    let mut r = Random::new(9);
    let counters: Vec<u64> = (0..500).map(|i| if i < 100 { i } else { r.next() }).collect();
    let seed = 0x1234_5678_9ABC_DEF0u64;
    let case = Case {
        label: "philox".into(),
        operands: vec![Lies::Carried(DType::I64); 2],
        results: vec![Lies::Carried(DType::U32); 4],
        emit: Box::new(|s, args| Ok((0..4).map(|w| s.philox(args[0], args[1], w)).collect())),
        inputs: vec![vec![seed; counters.len()], counters.clone()],
        wanted: counters.iter().flat_map(|&c| philox4(seed, c).map(u64::from)).collect(),
        any_nan: false,
    };
    let narrow = Case {
        label: "philox of i32".into(),
        operands: vec![Lies::Carried(DType::I32), Lies::Carried(DType::I64)],
        results: vec![Lies::Carried(DType::U32)],
        emit: Box::new(|s, args| Ok(vec![s.philox(args[0], args[1], 0)])),
        inputs: vec![vec![-5i32 as u32 as u64; counters.len()], counters.clone()],
        wanted: counters.iter().map(|&c| philox4(-5i64 as u64, c)[0].into()).collect(),
        any_nan: false,
    };
    check(&[case, narrow], &[newest()], Profile::Strict);
}

#[test]
fn identities_change_nothing() {
    let pairs = ReduceOp::ALL.iter().flat_map(|&op| CARRIERS.map(|d| (op, d)));
    let all = pairs.filter(|(op, d)| op.identity(*d).is_some()).map(|(op, d)| {
        let inputs = operands(d, 1, 3, 4000);
        let same = op.identity(d).unwrap();
        let value = |&x: &u64| eval(op.combine(), &[same, decode(d, x)]).unwrap().bits();
        let wanted = inputs[0].iter().map(value).collect();
        Case {
            label: format!("{op} {d} with its identity"),
            operands: vec![Lies::Carried(d)],
            results: vec![Lies::Carried(d)],
            emit: Box::new(move |s, args| {
                let same = s.identity(op, d);
                s.combine(op, d, same, args[0]).map(|r| vec![r])
            }),
            inputs,
            wanted,
            any_nan: true,
        }
    });
    check(&all.collect::<Vec<_>>(), &[newest()], Profile::Strict);
}

#[test]
fn selection_takes_the_first_where_the_condition_holds() {
    let all = CARRIERS.map(|d| {
        let mut inputs = operands(d, 2, 5, 4000);
        let conds: Vec<u64> = (0..inputs[0].len() as u64).map(|i| (i % 3) & 1).collect();
        let rows = conds.iter().zip(&inputs[0]).zip(&inputs[1]);
        let wanted = rows.map(|((&p, &a), &b)| if p == 1 { a } else { b }).collect();
        inputs.insert(0, conds);
        Case {
            label: format!("select {d}"),
            operands: vec![Lies::Carried(DType::Bool), Lies::Carried(d), Lies::Carried(d)],
            results: vec![Lies::Carried(d)],
            emit: Box::new(move |s, a| Ok(vec![s.select(d, a[0], a[1], a[2])])),
            inputs,
            wanted,
            any_nan: false,
        }
    });
    check(&all, &[newest()], Profile::Strict);
}
