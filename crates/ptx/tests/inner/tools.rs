//! What the assembler says.

use tessera_ptx::tools::refused;

#[test]
fn refused_lines_are_read_from_errors_only() {
    let words = "ptxas a.ptx, line 7; warning : x\n\
        ptxas a.ptx, line 9; error   : Unknown modifier '.f8'\n\
        ptxas a.ptx, line 9; error   : Unexpected types\n\
        ptxas a.ptx, line 11; fatal   : Parsing error near ';': syntax error\n\
        ptxas fatal   : Ptx assembly aborted due to errors\n";
    let expected = [
        (9, "Unknown modifier '.f8'".to_string()),
        (11, "Parsing error near ';': syntax error".to_string()),
    ];
    assert_eq!(refused(words), (expected.to_vec(), Some(11)));
}
