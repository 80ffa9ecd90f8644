//! The example of every row of the op table parses, verifies, and reads back as it prints.

use std::collections::BTreeSet;
use tessera_ir::{Effects, Opcode, verify};
use tessera_tile::{Tile, TileOp, is_collective, parse};

const PARAMS: &str = "%x: f32, %y: f32, %c: bool, %lo: i64, %hi: i64, %step: i64, \
    %t: tile<8x2xf32>, %ix: tile<8xi32>, %v: view<[n], f32, read_write>";

/// The example in a function that may hold it.
fn wrapped(op: TileOp) -> String {
    let example = op.info().example;
    let lane = matches!(op, TileOp::LinearId | TileOp::LocalId) || is_collective(op);
    let kind = if lane { "lane" } else { "group" };
    let body = match op {
        TileOp::Return => example.to_string(),
        TileOp::Yield => {
            format!("%r = tile.if %c : f32 do {{\n{example}\n}} do {{\n{example}\n}}\ntile.return")
        }
        _ => format!("{example}\ntile.return"),
    };
    format!("func @example({PARAMS}) {{kind = {kind}}} {{\n{body}\n}}\n")
}

#[test]
fn examples_parse_verify_and_round_trip() {
    for op in TileOp::all() {
        let text = wrapped(op);
        let func = parse(&text).unwrap_or_else(|e| panic!("{op:?}\n{text}\n{e}"));
        verify::<Tile>(&func).unwrap_or_else(|e| panic!("{op:?}\n{text}\n{e}"));
        let printed = func.to_string();
        let again = parse(&printed).unwrap_or_else(|e| panic!("{op:?}\n{printed}\n{e}"));
        assert_eq!(again.to_string(), printed);
        assert_eq!(again.hash(), func.hash());
        let named = format!("tile.{}", op.mnemonic());
        let family = matches!(op, TileOp::Ew(_));
        assert!(family || printed.contains(&named), "the example of {named} does not show it");
    }
}

#[test]
fn rows_are_well_formed() {
    let mut numbers = BTreeSet::new();
    let mut names = BTreeSet::new();
    for op in TileOp::all() {
        let info = op.info();
        let family = matches!(op, TileOp::Ew(_));
        assert!(family || numbers.insert(info.number), "{op:?} has a number that is taken");
        assert!(names.insert(op.mnemonic()), "{op:?} has a name that is taken");
        assert_eq!(TileOp::from_mnemonic(op.mnemonic()), Some(op));
        assert!(!info.doc.trim().is_empty() && !info.since.is_empty(), "{op:?} is not described");
        let terminator = info.effects == Effects::Terminator;
        assert!(!terminator || info.results == Some(0), "{op:?} ends a block and gives results");
    }
}
