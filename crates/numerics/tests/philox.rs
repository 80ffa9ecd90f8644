//! The counter generator against its published vectors, the dropout rule, and packed nibbles.

use tessera_numerics::{
    DType, Dropout, Rounding, Scalar, decode, encode, nibble, pack_nibbles, philox, philox4,
    philox4x32, set_nibble, unpack_nibbles,
};

#[test]
fn philox_gives_the_known_answers_of_random123() {
    let zeros = philox4x32([0; 4], [0; 2]);
    assert_eq!(zeros, [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
    let ones = philox4x32([u32::MAX; 4], [u32::MAX; 2]);
    assert_eq!(ones, [0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd]);
    let pi = philox4x32([0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344], [0xa4093822, 0x299f31d0]);
    assert_eq!(pi, [0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1]);
}

#[test]
fn seed_and_counter_fill_the_words_from_the_low_end() {
    let (seed, counter) = (0x0123_4567_89AB_CDEF, 0xFEDC_BA98_7654_3210);
    let want = philox4x32([0x7654_3210, 0xFEDC_BA98, 0, 0], [0x89AB_CDEF, 0x0123_4567]);
    assert_eq!(philox4(seed, counter), want);
    assert_eq!(philox(seed, counter), want[0]);
    assert_eq!(philox4(0, 0), [0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8]);
}

#[test]
fn dropout_keeps_words_at_or_above_the_threshold() {
    assert_eq!(Dropout::new(0.0), Some(Dropout { threshold: 0, scale: 1.0 }));
    assert_eq!(Dropout::new(1.0), Some(Dropout { threshold: 1 << 32, scale: 1.0 }));
    assert_eq!(Dropout::new(0.5), Some(Dropout { threshold: 1 << 31, scale: 2.0 }));
    // Ties to even: 2.5 and 3.5 units of 2^-32.
    let units = |u: f64| Dropout::new(u / 4_294_967_296.0).unwrap().threshold;
    assert_eq!((units(2.5), units(3.5), units(2.6)), (2, 4, 3));
    for p in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        assert_eq!(Dropout::new(p), None);
    }
    let d = Dropout::new(0.3).unwrap();
    let mut kept = 0;
    for at in 0..100_000u64 {
        let keeps = philox4(7, at)[0] as f64 >= (0.3f64 * 2f64.powi(32)).round();
        assert_eq!(d.keeps(7, at), keeps);
        assert_eq!(d.apply(2.0, 7, at), if keeps { 2.0 * (1.0 / 0.7f64) as f32 } else { 0.0 });
        kept += keeps as i32;
    }
    // Five standard deviations.
    assert!((kept - 70_000).abs() < 725, "{kept}");
    assert!((0..1000).all(|at| Dropout::new(0.0).unwrap().keeps(1, at)));
    assert!((0..1000).all(|at| !Dropout::new(1.0).unwrap().keeps(1, at)));
}

#[test]
fn nibbles_have_the_low_index_in_the_low_half() {
    assert_eq!(pack_nibbles(&[1, 2, 15, 0, 7]), [0x21, 0x0F, 0x07]);
    assert_eq!(pack_nibbles(&[0xF8, 0x17]), [0x78], "bits above the code are dropped");
    assert_eq!(unpack_nibbles(&[0x21, 0x0F, 0x07], 5), [1, 2, 15, 0, 7]);
    assert_eq!(unpack_nibbles(&[0x21], 9), [1, 2]);
    let mut bytes = pack_nibbles(&[1, 2, 3, 4]);
    assert!(
        set_nibble(&mut bytes, 1, 9)
            && set_nibble(&mut bytes, 2, 0xFA)
            && !set_nibble(&mut bytes, 4, 1)
    );
    assert_eq!(bytes, [0x91, 0x4A]);
    assert_eq!(
        (nibble(&bytes, 1), nibble(&bytes, 2), nibble(&bytes, 4)),
        (Some(9), Some(10), None)
    );
    // int4 values through codes and back.
    let codes: Vec<u8> =
        (-8..8).map(|v| encode(DType::I4, Scalar::I32(v), Rounding::Rne, false) as u8).collect();
    let back = unpack_nibbles(&pack_nibbles(&codes), 16);
    let values: Vec<Scalar> = back.iter().map(|&c| decode(DType::I4, c as u64)).collect();
    assert_eq!(values, (-8..8).map(Scalar::I32).collect::<Vec<_>>());
}
