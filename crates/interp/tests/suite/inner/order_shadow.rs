//! Accesses by the order of groups.

use tessera_interp::inner::{Now, Order, OrderShadow, Touch};

fn touch(site: usize) -> Touch {
    [Touch::Write, Touch::Atomic][site]
}

fn at(order: &Order, site: usize) -> Now<'_> {
    Now { order, lane: 0, site, op: 0 }
}

#[test]
fn a_chain_of_releases_orders_plain_accesses_and_leaves_one_entry() {
    let (mut order, mut shadow) = (Order::default(), OrderShadow::default());
    for group in 0..10 {
        order.next_group(group, 1);
        order.acquire(0, (9, 0), true);
        assert_eq!(shadow.read(3, at(&order, 0)), None);
        assert_eq!(shadow.write(3, at(&order, 0), touch, |_| false), None);
        order.release(0, (9, 0), true);
    }
    assert_eq!(shadow.0[&3].writes.len(), 1);
    order.next_group(10, 1);
    let found = shadow.read(3, at(&order, 0));
    assert_eq!(found.map(|e| (e.agent, e.wrote)), Some((9, true)));
}

#[test]
fn a_plain_write_before_an_ordered_atomic_is_not_forgotten() {
    let (mut order, mut shadow) = (Order::default(), OrderShadow::default());
    order.next_group(0, 1);
    assert_eq!(shadow.write(0, at(&order, 0), touch, |_| false), None);
    order.release(0, (9, 0), true);
    order.next_group(1, 1);
    order.acquire(0, (9, 0), true);
    assert_eq!(shadow.write(0, at(&order, 1), touch, |_| false), None);
    order.next_group(2, 1);
    let found = shadow.write(0, at(&order, 1), touch, |_| false);
    assert_eq!(found.map(|e| e.agent), Some(0));
}
