//! References of bounded scores.

use tessera_lower::inner::{Base, Range, chosen, exponent};
use tessera_numerics::ScalarFn;

const E: Base = Base { f: ScalarFn::Exp, by: 1.0 };

fn ends(lo: f64, hi: f64) -> Range {
    Range { lo, hi, or_none: false }
}

#[test]
fn the_middle_where_it_can_be() {
    assert_eq!(chosen(E, ends(-30.0, 30.0)), Some(0.0));
    assert_eq!(chosen(E, ends(10.0, 20.0)), Some(15.0));
    // Weights of 2^72 are too large: 2^64 is the most.
    let high = chosen(E, ends(-50.0, 50.0)).unwrap();
    assert!((high - (50.0 - 64.0 * std::f64::consts::LN_2)).abs() < 1e-9);
    assert_eq!(chosen(E, ends(-70.0, 70.0)), None);
}

#[test]
fn exponents_are_of_two() {
    let (factor, shift) = exponent(Base { f: ScalarFn::Exp2, by: 2.0 }, 3.0);
    assert_eq!((factor, shift), (2.0, -6.0));
}
