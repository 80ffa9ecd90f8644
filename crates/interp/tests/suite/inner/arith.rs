//! Exact results.

use tessera_interp::inner::exact;
use tessera_numerics::ScalarFn;

#[test]
fn quotients_of_the_least_number_do_not_fit() {
    let least = i128::from(i32::MIN);
    assert_eq!(exact(ScalarFn::FloorDiv, least, -1, 0), Some(-least));
    assert_eq!(exact(ScalarFn::FloorDiv, least, 2, 0), None);
    assert_eq!(exact(ScalarFn::Mod, least, -1, 0), None);
}
