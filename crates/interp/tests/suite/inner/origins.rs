//! Where a number that is not finite comes from.

use std::sync::Arc;
use tessera_interp::inner::{Birth, Data, Origins, PADDING, Tile};

#[test]
fn marks_hold_a_birth() {
    for value in [f64::INFINITY, f64::NEG_INFINITY] {
        let birth = Birth { site: 70000, i: 1 << 27, value };
        assert_eq!(Birth::of(birth.mark()), Some(birth));
    }
    assert!(Birth::of(Birth { site: 0, i: 0, value: f64::NAN }.mark()).unwrap().value.is_nan());
    assert_eq!((Birth::of(0), Birth::of(PADDING)), (None, None));
}

#[test]
fn marks_go_with_the_value_that_is_written_over() {
    let mut origins = Origins::default();
    let mut x: Tile = Arc::new(Data::I32(vec![1, 2]));
    origins.put(&x, vec![0, PADDING]);
    let y = x.clone();
    assert_eq!(origins.of(&y), Some(&[0, PADDING][..]));
    drop(y);
    if let Data::I32(xs) = Arc::make_mut(&mut x) {
        xs[1] = 3;
    }
    assert_eq!(origins.of(&x), None);
}
