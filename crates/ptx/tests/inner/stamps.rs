//! Times that kernels write.

use tessera_ptx::stamps::{BYTES, FIRST, Stamp, Stamped, Stamps, begin, end, hand_over, stamp};

#[test]
fn records_are_read_among_others() {
    let mut all: Vec<u8> = [24u32, 0, 4, 0, 1, 2].iter().flat_map(|w| w.to_le_bytes()).collect();
    let words = [BYTES, FIRST + 1, 7, 3, 100, 0, 400, 1];
    all.extend(words.iter().flat_map(|w: &u32| w.to_le_bytes()));
    all.extend([0; 64]);
    let stamp = |role: &str, least| Stamp { role: role.into(), replica: 0, line: 9, least };
    begin();
    hand_over(&[stamp("producer", 0), stamp("consumer", 512)], &all, 56);
    let found = end();
    assert_eq!(found.left_out, 0);
    let [one] = &found.list[..] else { panic!("{found:?}") };
    assert_eq!((one.role.as_str(), one.block, one.iterations, one.least), ("consumer", 7, 3, 512));
    assert_eq!((one.begin, one.end), (100, 400 + (1 << 32)));
}

#[test]
fn only_the_collecting_thread_gets_them() {
    let one = Stamped {
        role: "consumer".into(),
        replica: 0,
        line: 3,
        least: 64,
        block: 1,
        iterations: 2,
        begin: 5,
        end: 9,
    };
    stamp(vec![one.clone()], 0);
    assert_eq!(end(), Stamps::default());
    begin();
    stamp(vec![one.clone()], 1);
    stamp(vec![], 2);
    assert_eq!(end(), Stamps { list: vec![one], left_out: 3 });
}
