//! Clocks of agents.

use tessera_interp::inner::Clock;

#[test]
fn joining_takes_what_either_knows() {
    let (mut a, mut b) = (Clock::default(), Clock::default());
    a.raise(3, 2);
    b.raise(0, 1);
    b.raise(3, 1);
    a.join(&b);
    assert_eq!((a.at(0), a.at(1), a.at(3), a.at(9)), (1, 0, 2, 0));
}
