//! Lengths of loops over tiles.

use tessera_lower::inner::{Length, Trend};

#[test]
fn equal_trends_have_no_length_and_opposite_ends_are_unknown() {
    use Trend::*;
    assert_eq!(Length::of(Level, Up), Length::Grows);
    assert_eq!(Length::of(Up, Level), Length::Shrinks);
    assert_eq!(Length::of(Up, Up), Length::Moves);
    assert_eq!(Length::of(Any, Up), Length::Unknown);
    assert_eq!(Length::Grows.and(Length::Moves), Length::Grows);
    assert_eq!(Length::Grows.and(Length::Shrinks), Length::Unknown);
    assert_eq!(Length::Unknown.and(Length::Grows), Length::Unknown);
}
