//! Accesses of lanes.

use tessera_interp::inner::{LaneEarlier as Earlier, LaneShadow, Touch};

const AT: (usize, usize, usize) = (3, 1000, 999);

fn touch(site: usize) -> Touch {
    if site == 9 { Touch::Atomic } else { Touch::Write }
}

#[test]
fn accesses_conflict_until_a_barrier() {
    let mut s = LaneShadow::default();
    s.next_op();
    assert_eq!(s.write(AT, 0, 1, touch, |_| false), None);
    assert_eq!(s.write(AT, 0, 1, touch, |_| false), None);
    s.next_op();
    let wrote = Earlier { lane: 0, site: 1, wrote: true, together: false };
    assert_eq!(s.read(AT, 1, 2), Some(wrote));
    s.barrier();
    s.next_op();
    assert_eq!((s.read(AT, 1, 2), s.read(AT, 0, 2)), (None, None));
    let read = Earlier { lane: 1, site: 2, wrote: false, together: true };
    assert_eq!(s.write(AT, 0, 3, touch, |_| false), Some(read));
    s.next_group();
    s.next_op();
    assert_eq!(s.read(AT, 5, 2), None);
    assert_eq!((s.pages.len(), s.used.len()), (1, 1));
    s.forget(3);
    assert_eq!((s.free.len(), s.used.len()), (1, 0));
}

#[test]
fn every_reader_and_every_kind_of_writer_counts() {
    let mut s = LaneShadow::default();
    s.next_op();
    assert!(s.read(AT, 0, 1).is_none() && s.read(AT, 1, 1).is_none());
    assert_eq!(s.write(AT, 0, 2, touch, |_| false).map(|e| e.lane), Some(1));
    s.barrier();
    s.next_op();
    assert_eq!(s.write(AT, 0, 9, touch, |_| false), None);
    assert_eq!(s.write(AT, 1, 9, touch, |_| false), None);
    assert_eq!(s.write(AT, 0, 2, touch, |_| true).map(|e| e.lane), Some(1));
    assert_eq!(s.write(AT, 1, 9, touch, |_| true).map(|e| e.site), Some(2));
    s.barrier();
    s.next_op();
    assert_eq!(s.write(AT, 0, 2, touch, |_| true), None);
    assert_eq!(s.write(AT, 1, 2, touch, |_| true), None);
    assert_eq!(s.write(AT, 1, 2, touch, |_| false).map(|e| e.lane), Some(0));
}
