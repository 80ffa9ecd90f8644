//! Every elementwise op as text, on scalars and tiles of every dtype that it takes: printed as it was
//! read. The conformance suites run them.

use std::fmt::Write;
use tessera_filetest::{Outcome, Tools, run_text};
use tessera_numerics::{DType, ScalarFn};

#[test]
fn every_elementwise_op_is_printed_as_it_was_read() {
    let mut text = String::from("; test: roundtrip\n");
    for &dtype in DType::ALL {
        let functions: Vec<ScalarFn> =
            ScalarFn::ALL.iter().copied().filter(|f| f.accepts(dtype)).collect();
        if functions.is_empty() {
            continue;
        }
        if text.ends_with("}\n") {
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "func @of_{dtype}(%x: {dtype}, %t: tile<2x4x{dtype}>) {{kind = group}} {{"
        );
        for (i, f) in functions.iter().enumerate() {
            let result = f.result(dtype);
            let args = |v: &str| vec![v; f.arity()].join(", ");
            let _ = writeln!(text, "  %{} = tile.{f} {} : {result}", 2 * i, args("%x"));
            let _ =
                writeln!(text, "  %{} = tile.{f} {} : tile<2x4x{result}>", 2 * i + 1, args("%t"));
        }
        text.push_str("  tile.return\n}\n");
    }
    assert!(text.matches(" = tile.").count() > 2 * ScalarFn::ALL.len());
    match run_text("elementwise.tir", &text, &Tools::none()) {
        Outcome::Passed => {}
        other => panic!("{other:?}"),
    }
}
