//! The example of every row of the op table parses, verifies, and reads back as it prints.

use std::collections::BTreeSet;
use tessera_graph::{Graph, GraphOp, parse};
use tessera_ir::{Effects, Opcode, verify};

const PARAMS: &str = "%x: tensor<[4, 8], f32>, %y: tensor<[4, 8], f32>, %z: tensor<[n], f32>, \
    %r8: tensor<[8], f32>, %p: tensor<[], bool>, %i: tensor<[], i64>, %j: tensor<[], i64>, \
    %f: tensor<[], f32>, %ix: tensor<[3, 1], i32>";

/// The example in a function that may hold it.
fn wrapped(op: GraphOp) -> String {
    let example = op.info().example;
    let body = match op {
        GraphOp::Return => example.to_string(),
        GraphOp::Yield => format!(
            "%r = graph.cond %p : tensor<[4, 8], f32> do {{\n{example}\n}} do {{\n{example}\n}}\ngraph.return"
        ),
        _ => format!("{example}\ngraph.return"),
    };
    format!("func @example({PARAMS}) {{\n{body}\n}}\n")
}

#[test]
fn examples_parse_verify_and_round_trip() {
    for op in GraphOp::all() {
        let text = wrapped(op);
        let func = parse(&text).unwrap_or_else(|e| panic!("{op:?}\n{text}\n{e}"));
        verify::<Graph>(&func).unwrap_or_else(|e| panic!("{op:?}\n{text}\n{e}"));
        let printed = func.to_string();
        let again = parse(&printed).unwrap_or_else(|e| panic!("{op:?}\n{printed}\n{e}"));
        assert_eq!(again.to_string(), printed);
        assert_eq!(again.hash(), func.hash());
        let named = format!("graph.{}", op.mnemonic());
        let family = matches!(op, GraphOp::Ew(_));
        assert!(family || printed.contains(&named), "the example of {named} does not show it");
    }
}

/// Where a row infers, the types in its example are those it infers.
#[test]
fn examples_need_no_types_where_rows_infer() {
    for op in GraphOp::all().into_iter().filter(|op| op.info().infer.is_some()) {
        let text = wrapped(op);
        let mut bare = String::new();
        for line in text.lines() {
            let own = line.contains(&format!("graph.{} ", op.mnemonic()));
            bare.push_str(match own.then(|| line.rfind(" : ")).flatten() {
                Some(at) => &line[..at],
                None => line,
            });
            bare.push('\n');
        }
        let func = parse(&bare).unwrap_or_else(|e| panic!("{op:?}\n{bare}\n{e}"));
        assert_eq!(func.to_string(), parse(&text).unwrap().to_string(), "{op:?}");
    }
}

#[test]
fn rows_are_well_formed() {
    let mut numbers = BTreeSet::new();
    let mut names = BTreeSet::new();
    for op in GraphOp::all() {
        let info = op.info();
        let family = matches!(op, GraphOp::Ew(_));
        assert!(family || numbers.insert(info.number), "{op:?} has a number that is taken");
        assert!(names.insert(op.mnemonic()), "{op:?} has a name that is taken");
        assert_eq!(GraphOp::from_mnemonic(op.mnemonic()), Some(op));
        assert!(!info.doc.trim().is_empty() && !info.since.is_empty(), "{op:?} is not described");
        let terminator = info.effects == Effects::Terminator;
        assert!(!terminator || info.results == Some(0), "{op:?} ends a block and gives results");
    }
}

/// The files that show how ops print hold functions that are right.
#[test]
fn roundtrip_files_verify() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../filetests/graph/roundtrip_ops.tir");
    let text = std::fs::read_to_string(path).unwrap();
    let module = tessera_ir::parse_module::<Graph>(&text, path).unwrap_or_else(|e| panic!("{e}"));
    for func in &module.funcs {
        verify::<Graph>(func).unwrap_or_else(|e| panic!("{e}"));
    }
    for op in GraphOp::all().into_iter().filter(|op| !matches!(op, GraphOp::Ew(_))) {
        let shown = text.contains(&format!("graph.{} ", op.mnemonic()));
        assert!(shown || op == GraphOp::KernelCall, "{op:?} is not in {path}");
    }
}
