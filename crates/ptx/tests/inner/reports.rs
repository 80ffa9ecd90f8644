//! What kernels print.

use tessera_numerics::DType;
use tessera_ptx::code::context;
use tessera_ptx::reports::{Printing, lines};

fn record(which: u32, group: u32, value: f32) -> Vec<u8> {
    let mut out: Vec<u8> = [24, which, group, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
    out.extend(value.to_le_bytes());
    out.resize(24, 0);
    out
}

#[test]
fn lines_are_in_the_order_of_groups() {
    let pieces = vec!["x = ".to_string(), String::new()];
    let prints = [Printing { pieces, shapes: vec![vec![]], dtypes: vec![DType::F32] }];
    let all = [record(0, 4, 1.0), record(0, 0, 2.0), record(0, 4, 0.5)].concat();
    let reported = lines("k", [2, 3, 1], &prints, &all, 72);
    assert_eq!(reported, ["k[0, 0]: x = 2.0", "k[1, 1]: x = 1.0", "k[1, 1]: x = 0.5"]);
    // A record that does not fit is counted, and leaves nothing after the last one.
    let mut cut = all.clone();
    cut.extend([0; 64]);
    let reported = lines("k", [2, 3, 1], &prints, &cut, context::ROOM + 100);
    assert_eq!(reported.len(), 4);
    assert!(reported[3].contains("the rest is left out"), "{}", reported[3]);
    assert!(lines("k", [1, 1, 1], &prints, &all[..10], 72).is_empty());
}
