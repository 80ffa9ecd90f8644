use proptest::prelude::*;
use tessera_layout::{Layout, Shared, Swizzle, draw, draw_shared};

use crate::random::{config, layouts};

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn layouts_read_back_as_themselves(layout in layouts()) {
        let text = layout.to_string();
        prop_assert_eq!(Layout::parse(&text, layout.shape()), Ok(layout), "{}", text);
    }
}

#[test]
fn shared_memory_reads_back_as_itself() {
    let plain = Shared::row_major(&[4, 8, 2], 2);
    let swizzled = Shared::swizzled(&[16, 128], &[1, 0], 2, 64);
    let padded = Shared { pad: 3, ..plain.clone() };
    let turned = Shared::ordered(&[4, 8, 2], &[1, 0, 2], 4);
    let both = Shared { swizzle: Some(Swizzle { base: 2, bits: 5, shift: 6 }), ..padded.clone() };
    let none = Shared::row_major(&[], 8);
    let divided = Shared::swizzled(&[4, 256], &[1, 0], 2, 128).divided(4).unwrap();
    for shared in [plain, swizzled, padded, turned, both, none, divided] {
        let text = shared.to_string();
        assert_eq!(Shared::parse(&text, &shared.shape, shared.elem_bytes), Ok(shared), "{text}");
    }
}

#[test]
fn texts_are_short() {
    let shared = Shared::swizzled(&[16, 128], &[1, 0], 2, 128);
    assert_eq!(shared.to_string(), "[order 1,0; swizzle 4,3,3; panel 64]");
    let text = "[reg 0,1 0,2; lane 0,4 0,8 1,0 2,0 4,0; warp 8,0; cta 16,0; repeat 2,3; order 0,1]";
    let layout = Layout::parse(text, &[64, 48]).unwrap();
    assert_eq!(layout.to_string(), text);
}

#[test]
fn texts_that_are_no_layout_say_what_was_expected() {
    let fault = |text: &str| Layout::parse(text, &[32]).unwrap_err().to_string();
    assert_eq!(fault("lane 1"), "expected a layout in brackets, got `lane 1`");
    assert_eq!(fault("[lane 1; lane 2]"), "expected `lane` once, got `[lane 1; lane 2]`");
    assert_eq!(
        fault("[thread 1]"),
        "expected one of reg, lane, warp, cta, repeat, order, got `thread 1`"
    );
    assert_eq!(fault("[lane 1 2 4 8]"), "expected 5 lane vectors, got 4");
    assert_eq!(fault("[lane 1 2 4 8 x]"), "expected a number, got `x`");
    assert_eq!(fault("[lane 1 2 4 8 0]"), "expected 2 repeats along dim 0, got 1");
    assert_eq!(
        fault("[lane 1 2 4 8 0; repeat 2 2]"),
        "expected one list after `repeat`, got `2 2`"
    );
    assert_eq!(
        fault("[lane 1 2 4 8 0; repeat 2; order 1]"),
        "expected an order that names each of 1 dims once"
    );
    let fault = |text: &str| Shared::parse(text, &[32], 2).unwrap_err().to_string();
    assert_eq!(fault("[pad 1]"), "expected an order of dims, got `[pad 1]`");
    let blocks = "expected a power of two of blocks that divide whole panels, got";
    assert_eq!(fault("[order 0; blocks 3]"), format!("{blocks} `[order 0; blocks 3]`"));
    assert_eq!(
        fault("[order 0; panel 16; blocks 4]"),
        format!("{blocks} `[order 0; panel 16; blocks 4]`")
    );
    assert_eq!(fault("[order 1]"), "expected an order that names each of 1 dims once");
    assert!(fault("[order 0; swizzle 4,3,0]").contains("a shift of at least 1"));
    assert!(fault("[order 0; pad 0]").contains("one positive number of `pad`"));
}

#[test]
fn pictures_show_threads_and_registers() {
    let layout = Layout::mma_acc(&[4, 8], [1, 1]);
    let expected = "\
T0:0  T0:1  T1:0  T1:1  T2:0  T2:1  T3:0  T3:1
T4:0  T4:1  T5:0  T5:1  T6:0  T6:1  T7:0  T7:1
T8:0  T8:1  T9:0  T9:1  T10:0 T10:1 T11:0 T11:1
T12:0 T12:1 T13:0 T13:1 T14:0 T14:1 T15:0 T15:1
";
    assert_eq!(draw(&layout), expected);
    // Copies are marked, ctas named, large tiles cut.
    let copied = Layout::parse("[lane 1 2 0 0 0; cta 4]", &[8]).unwrap();
    assert_eq!(
        draw(&copied),
        "C0.T0:0* C0.T1:0* C0.T2:0* C0.T3:0* C1.T0:0* C1.T1:0* C1.T2:0* C1.T3:0*\n"
    );
    let large = draw(&Layout::mma_acc(&[64, 64], [4, 1]));
    assert_eq!(large.lines().count(), 33);
    assert!(large.lines().next().unwrap().ends_with("T3:5  …") && large.ends_with("…\n"));
}

#[test]
fn pictures_of_memory_show_banks() {
    let shared = Shared::swizzled(&[10, 64], &[1, 0], 2, 128);
    let picture = draw_shared(&shared);
    let rows: Vec<&str> = picture.lines().collect();
    assert!(rows[0].starts_with("0+0  0+0  1+0  1+0  2+0"));
    assert!(rows[1].starts_with("4+1  4+1  5+1  5+1  6+1"));
    assert_eq!(rows.len(), 10);
}
