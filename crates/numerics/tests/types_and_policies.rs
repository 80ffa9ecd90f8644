//! Names, promotion, and the policy grammar.

use proptest::prelude::*;
use tessera_numerics::{
    Accum, DType, NumType, PolicyError, PolicyItem, Profile, Rounding, Scalar, ScaleMode,
    unknown_dtype_suggestions,
};

#[test]
fn dtype_names_round_trip_and_aliases_resolve() {
    for &dt in DType::ALL {
        assert_eq!(dt.name().parse(), Ok(dt));
        assert_eq!(NumType::parse(dt.name()), Ok(dt.into()));
        assert_eq!(dt.is_storage_only(), dt.compute() != dt && dt != DType::Tf32, "{dt}");
        assert_eq!(Scalar::zero(dt).dtype(), dt.carrier());
        assert!(dt.is_float() as u8 + dt.is_int() as u8 + (dt == DType::Bool) as u8 == 1);
    }
    let same = [
        ("fp32", "f32"),
        ("float64", "f64"),
        ("bfloat16", "bf16"),
        ("int4", "i4"),
        ("uint16", "u16"),
        ("i1", "bool"),
        ("fp6", "fp6_e3m2"),
        ("fp4", "fp4_e2m1"),
        ("float8_e4m3fn", "fp8_e4m3"),
    ];
    same.iter()
        .for_each(|(alias, name)| assert_eq!(DType::parse(alias), DType::parse(name), "{alias}"));
    assert_eq!(DType::parse("F32"), None);
    assert!(DType::ALL.is_sorted());
}

#[test]
fn promotion_follows_the_language() {
    use DType::*;
    let rows = [
        (F32, F64, Some(F64)),
        (I64, F32, Some(F32)),
        (BF16, Fp8E4M3, Some(F32)),
        (I8, BF16, Some(F32)),
        (Tf32, I32, Some(F32)),
        (I32, I64, Some(I64)),
        (I8, I16, Some(I32)),
        (Bool, Bool, Some(Bool)),
        (Bool, U64, Some(U64)),
        (Bool, I8, Some(I32)),
        (U8, U8, Some(I32)),
        (U8, I8, Some(I32)),
        (U8, U32, Some(U32)),
        (U16, U64, Some(U64)),
        (U32, U64, Some(U64)),
        (U32, I64, Some(I64)),
        (I32, U32, None),
        (I64, U64, None),
        (I32, U64, None),
        (I8, U32, None),
        (U64, F32, Some(F32)),
    ];
    for (a, b, want) in rows {
        assert_eq!(DType::join(a, b), want, "{a} {b}");
        assert_eq!(DType::join(b, a), want, "{b} {a}");
    }
    for &a in DType::ALL {
        assert_eq!(DType::join(a, a), Some(a.carrier()), "{a}");
    }
}

#[test]
fn policy_prints_in_one_order_whatever_order_was_written() {
    let text = "bf16 @accum(f32) @loss_scale(128.0)";
    for s in [
        text,
        "bf16@loss_scale(128)@accum(fp32)",
        "  bfloat16 @ loss_scale ( 1.28e2 ) @accum( \"f32\" ) ",
    ] {
        assert_eq!(NumType::parse(s).unwrap().to_string(), text, "{s}");
    }
    let full = "fp4 @packed @loss_scale(0.5) @scale('delayed') @saturate @stochastic_round @compute(bf16) @accum(fp32_fast)";
    let want = "fp4_e2m1 @accum(fp32_fast) @compute(bf16) @stochastic_round @saturate @scale(\"delayed\") @loss_scale(0.5) @packed";
    let t = NumType::parse(full).unwrap();
    assert_eq!(t.to_string(), want);
    assert_eq!(t.accum, Some(Accum::Fp32Fast));
    assert_eq!(t.scale, Some(ScaleMode::Delayed));
    assert_eq!(
        NumType::parse("f16 @round(\"stochastic\")"),
        NumType::parse("f16 @stochastic_round")
    );
    assert_eq!(NumType::parse("f16 @saturate(true)"), NumType::parse("f16 @saturate"));
}

#[test]
fn policy_defaults_are_those_of_the_spec() {
    let t = NumType::plain(DType::Fp8E4M3);
    assert!(t.is_plain() && t.saturates() && t.rounding() == Rounding::Rne);
    assert_eq!((t.compute_dtype(), t.accumulator()), (DType::F32, Accum::Type(DType::F32)));
    assert!(!NumType::plain(DType::BF16).saturates());
    assert!(!NumType::parse("fp8_e5m2 @saturate(false)").unwrap().saturates());
    assert_eq!(NumType::plain(DType::I8).accumulator(), Accum::Type(DType::I32));
    assert_eq!(Profile::from_name("strict"), Some(Profile::Strict));
    assert_eq!(Profile::default().name(), "default");
}

#[test]
fn policy_errors_are_typed_and_say_both_sides() {
    let rows = [
        ("fp7", "expected a dtype (did you mean `fp6`, `fp4`?), got `fp7`"),
        ("f32 @accum(fp7)", "expected a dtype (did you mean `fp6`, `fp4`?), got `fp7`"),
        ("f32 @acum(f32)", "expected a policy item (did you mean `@accum`?), got `@acum`"),
        ("f32 @accum(f32) @accum(f64)", "expected `@accum` at most once, got it twice"),
        ("f32 @stochastic_round @round(\"rne\")", "expected `@round` at most once, got it twice"),
        ("fp4 @packed @packed", "expected `@packed` at most once, got it twice"),
        ("f32 @packed", "expected a 4-bit type (i4 or fp4_e2m1) for `@packed`, got `f32`"),
        ("f32 @accum", "expected an accumulator type for `@accum`, got `no argument`"),
        (
            "f32 @loss_scale(-1)",
            "expected a finite number above zero for `@loss_scale`, got `-1.0`",
        ),
        (
            "f32 @loss_scale(nan)",
            "expected a finite number above zero for `@loss_scale`, got `NaN`",
        ),
        ("f32 @loss_scale(x)", "expected a finite number above zero for `@loss_scale`, got `x`"),
        ("f32 @stochastic_round(1)", "expected no argument for `@stochastic_round`, got `1`"),
        ("f32 @scale(\"max\")", "expected \"amax_dynamic\" or \"delayed\" for `@scale`, got `max`"),
        ("f32 @accum(f32", "expected `)` at byte 14, got the end"),
        ("f32 accum", "expected `@` or the end at byte 4, got `accum`"),
        ("", "expected a dtype name at byte 0, got the end"),
        ("f32 @", "expected a policy item at byte 5, got the end"),
        ("f32 @round(\"rne", "expected a closing quote at byte 15, got the end"),
        ("f32 @accum()", "expected an argument at byte 11, got `)`"),
    ];
    for (text, want) in rows {
        assert_eq!(NumType::parse(text).unwrap_err().to_string(), want, "{text}");
    }
    assert!(matches!(
        NumType::parse("f32 @accum(i8)"),
        Err(PolicyError::BadArgument { item: "accum", .. })
    ));
    assert!(matches!(
        NumType::parse("f32 @zzzzz"),
        Err(PolicyError::UnknownItem { suggestion: None, .. })
    ));
}

fn num_type() -> impl Strategy<Value = NumType> {
    let any_of = |list: &'static [DType]| prop::sample::select(list);
    let accum = prop_oneof![
        any_of(&[DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32])
            .prop_map(Accum::Type),
        Just(Accum::Fp32Fast),
    ];
    let compute = any_of(&[DType::F32, DType::BF16, DType::I32, DType::Tf32]);
    (
        any_of(DType::ALL),
        prop::option::of(accum),
        prop::option::of(compute),
        prop::option::of(prop::sample::select(Rounding::ALL)),
        prop::option::of(any::<bool>()),
        prop::option::of(prop::sample::select(ScaleMode::ALL)),
        prop::option::of(prop::num::f64::ANY.prop_map(f64::abs)),
        any::<bool>(),
    )
        .prop_map(|(storage, accum, compute, round, saturate, scale, loss_scale, packed)| {
            let loss_scale = loss_scale.filter(|x| x.is_finite() && *x > 0.0);
            let packed = packed && storage.bits() == 4;
            NumType { storage, accum, compute, round, saturate, scale, loss_scale, packed }
        })
}

proptest! {
    #[test]
    fn policy_text_round_trips(t in num_type()) {
        let text = t.to_string();
        let back = NumType::parse(&text).unwrap();
        prop_assert_eq!(back, t);
        prop_assert_eq!(back.to_string(), text);
    }

    #[test]
    fn policy_items_in_any_order_are_one_type(t in num_type(), seed in any::<u64>()) {
        let mut items: Vec<PolicyItem> = t.items().collect();
        items.sort_by_key(|i| (i.kind().len() as u64 * 31).wrapping_mul(seed | 1));
        let text: String = items.iter().map(|i| format!(" {i}")).collect();
        prop_assert_eq!(NumType::parse(&format!("{}{text}", t.storage)), Ok(t));
        let built = items.iter().try_fold(NumType::plain(t.storage), |acc, i| acc.with(*i));
        prop_assert_eq!(built, Ok(t));
        for item in items {
            let again = t.with(item);
            prop_assert_eq!(again, Err(PolicyError::Duplicate { item: item.kind() }));
        }
    }

    #[test]
    fn any_text_parses_or_fails_in_one_line(s in "\\PC{0,60}|[a-z0-9_@(). \"']{0,60}") {
        if let Err(e) = NumType::parse(&s) {
            let text = e.to_string();
            prop_assert!(text.starts_with("expected ") && !text.contains('\n'), "{}", text);
        }
    }
}

/// What a fix quotes is read.
#[test]
fn every_text_that_a_fix_quotes_parses() {
    let wrong = [
        "fp7",
        "half",
        "complex64",
        "matrix",
        "bf16 @acum(f32)",
        "bf16 @zzz",
        "bf16 @accum",
        "bf16 @compute(q)",
        "bf16 @round(odd)",
        "bf16 @stochastic_round(1)",
        "bf16 @saturate(3)",
        "bf16 @scale(x)",
        "bf16 @loss_scale(x)",
        "bf16 @packed",
        "bf16 accum(f32)",
        "",
        "bf16 @",
        "i4 @packed(2)",
        "bf16 @accum(f32) @accum(f32)",
    ];
    for text in wrong {
        let help = NumType::parse(text).expect_err(text).help();
        let quoted: Vec<&str> = help.split('"').skip(1).step_by(2).collect();
        assert!(!help.is_empty());
        for q in quoted {
            assert!(NumType::parse(q).is_ok(), "{text}: the fix {help} quotes {q}");
        }
    }
}

#[test]
fn suggestions_name_the_near_types_only() {
    assert_eq!(unknown_dtype_suggestions("fp7"), ["fp6", "fp4"]);
    assert_eq!(unknown_dtype_suggestions("BF16"), ["bf16", "f16"]);
    assert!(unknown_dtype_suggestions("fp8_e4m4").starts_with(&["fp8_e4m3"]));
    assert!(unknown_dtype_suggestions("matrix").is_empty());
    assert!(unknown_dtype_suggestions(&"f".repeat(100_000)).is_empty());
}

#[test]
fn unknown_dtype_text_is_one_line_and_says_both_sides() {
    let text = "fp7".parse::<DType>().unwrap_err().to_string();
    assert_eq!(text, "expected a dtype (did you mean `fp6`, `fp4`?), got `fp7`");
    let text = "zzzzzz".parse::<DType>().unwrap_err().to_string();
    assert!(text.contains("fp8_e4m3") && !text.contains('\n'));
}
