//! What comes before what.

use tessera_interp::inner::Order;

const LOCK: (usize, usize) = (0, 0);

#[test]
fn owners_of_a_lock_see_all_that_came_before() {
    let mut order = Order::default();
    for group in 0..100 {
        order.next_group(group, 1);
        assert!(group == 0 || !order.is_before(group - 1, 0, 0));
        order.acquire(0, LOCK, true);
        assert!((0..group).all(|earlier| order.is_before(earlier, 0, 0)));
        // Accesses after the release are not seen.
        assert!((0..group).all(|earlier| !order.is_before(earlier, 1, 0)));
        order.release(0, LOCK, true);
    }
    assert!(order.released[&LOCK].wide.rest.len() <= 2);
}

#[test]
fn other_locations_and_plain_stores_order_nothing() {
    let mut order = Order::default();
    order.next_group(0, 1);
    order.release(0, LOCK, true);
    order.next_group(1, 1);
    order.acquire(0, (0, 1), true);
    assert!(!order.is_before(0, 0, 0));
    order.overwritten(0, 0);
    order.acquire(0, LOCK, true);
    assert!(!order.is_before(0, 0, 0));
}

#[test]
fn lanes_synchronise_at_barriers_and_a_narrow_release_stays_in_its_group() {
    let mut order = Order::default();
    order.next_group(0, 4);
    assert!(order.is_before(2, 0, 2) && !order.is_before(3, 0, 2));
    order.release(3, LOCK, false);
    order.acquire(2, LOCK, false);
    assert!(order.is_before(3, 0, 2) && !order.is_before(3, 1, 2));
    order.barrier();
    assert!((0..4).all(|a| order.is_before(a, 0, 0)));
    order.next_group(4, 4);
    order.acquire(0, LOCK, true);
    assert!(!order.is_before(3, 0, 0));
}
