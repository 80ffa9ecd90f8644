//! What the verifier says of clusters, by the functions of the text test.

use tessera_ir::verify;
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
