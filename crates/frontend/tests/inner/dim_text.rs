//! Extents as text.

use tessera_frontend::{parse_dim, show_dim};
use tessera_ir::DimExpr;

#[test]
fn expressions_are_read_as_python_reads_them() {
    for (text, wanted) in [
        ("(N + 63) // 64", 3),
        ("N - 2 - 3", 125),
        ("N - (2 - 3)", 131),
        ("N // 4 * 4 % 7", 2),
        ("min(N, 7, M)", 5),
        ("max(N, M * 2)", 130),
        ("cdiv(N, 64)", 3),
        ("-N + 131", 1),
    ] {
        let dim = parse_dim(text).unwrap();
        let size = |name: &str| Some(if name == "N" { 130 } else { 5 });
        assert_eq!(dim.eval(&size), Ok(wanted), "{text}");
        // What is shown is read again as the same.
        assert_eq!(parse_dim(&show_dim(&dim)), Some(dim), "{text}");
    }
}

#[test]
fn what_is_shown_reads_as_written() {
    for text in ["(N + 63) // 64", "N - (M - 3)", "B*H", "2*B*H", "min(N, M)", "N % (M + 1)"] {
        assert_eq!(show_dim(&parse_dim(text).unwrap()), text);
    }
}

#[test]
fn what_is_no_expression_is_a_symbol_without_a_size() {
    for text in ["N +", "(N", "N)", "min(N)", "cdiv(N, 2, 3)", "N N", "1 2"] {
        assert_eq!(parse_dim(text), Some(DimExpr::sym(text)));
    }
    let deep = format!("{}N{}", "(".repeat(100), ")".repeat(100));
    assert_eq!(parse_dim(&deep), Some(DimExpr::sym(&deep)));
}
