//! Accesses of groups.

use tessera_interp::inner::{GroupEarlier as Earlier, GroupShadow, Touch};

#[test]
fn conflicts_are_between_groups_and_with_a_plain_access() {
    let touch = |site: usize| [Touch::Write, Touch::Atomic][site];
    let mut s = GroupShadow::new(1);
    assert_eq!(s.write(0, 1, 1, touch, || false), None);
    assert_eq!(s.write(0, 2, 1, touch, || false), None);
    let first = Earlier { group: 1, site: 1, wrote: true };
    assert_eq!(s.write(0, 2, 0, touch, || false), Some(first));
    assert_eq!(s.read(0, 2, 5), Some(first));

    let mut s = GroupShadow::new(1);
    assert_eq!(s.write(0, 1, 1, touch, || false), None);
    assert_eq!(s.write(0, 1, 0, touch, || false), None);
    assert_eq!(s.write(0, 1, 1, touch, || false), None);
    let plain = Earlier { group: 1, site: 0, wrote: true };
    assert_eq!(s.write(0, 2, 1, touch, || false), Some(plain));

    let mut s = GroupShadow::new(1);
    assert_eq!((s.read(0, 1, 7), s.read(0, 2, 7)), (None, None));
    let read = Earlier { group: 1, site: 7, wrote: false };
    assert_eq!(s.write(0, 2, 0, touch, || false), Some(read));
}
