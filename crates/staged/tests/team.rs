//! Clusters: their blocks, and what the verifier says of them, by the functions of the text test.

use tessera_ir::verify;
use tessera_layout::Shared;
use tessera_staged::ops::team::{Team, part_of};
use tessera_staged::parse;

#[test]
fn blocks_of_a_cluster_must_agree() {
    let text = include_str!("../../../filetests/staged/verify/team.tir");
    let mut found = 0;
    for part in text.split("\nfunc ").skip(1) {
        let text = format!("func {part}");
        let mut wanted: Vec<&str> =
            text.lines().filter_map(|l| Some(l.split_once("; error: ")?.1)).collect();
        let func = parse(&text).unwrap_or_else(|e| panic!("{}\n{text}", e.render()));
        let errors = verify(&func).err();
        let mut got: Vec<String> = errors
            .iter()
            .flat_map(|e| e.iter())
            .map(|e| format!("{} {}", e.code, e.message))
            .collect();
        got.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(got, wanted, "{}", func.name);
        found += 1;
    }
    assert_eq!(found, 8);
}

#[test]
fn ranks_count_along_the_first_axis_first() {
    let team = Team { shape: [2, 4, 1] };
    assert_eq!((team.blocks(), team.coordinates(5)), (8, [1, 2, 0]));
    assert_eq!([team.bits(&[0]), team.bits(&[1]), team.bits(&[0, 1])], [1, 6, 7]);
}

#[test]
fn parts_are_whole_runs_of_memory() {
    // Rows of one span: by rows. Panels: by panels, and where there is one, by rows.
    let tall = Shared::swizzled(&[256, 64], &[1, 0], 2, 128);
    assert_eq!(part_of(&tall, 2), Some((0, 128)));
    let wide = Shared::swizzled(&[64, 256], &[1, 0], 2, 128);
    assert_eq!(part_of(&wide, 4), Some((1, 64)));
    assert_eq!(part_of(&Shared::swizzled(&[64, 64], &[1, 0], 2, 128), 2), Some((0, 32)));
    assert_eq!(part_of(&Shared::swizzled(&[8, 64], &[1, 0], 2, 128), 2), None);
}
