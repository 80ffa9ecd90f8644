//! Hashes are the same in every process and build, and know nothing of names and places.

use std::process::Command;
use tessera_ir::{Attr, Module, parse_module};
use tessera_tile::{Tile, parse};

const TEXT: &str = r#"module @pinned : tile {version = 1}

func @scale(%x: view<[n], bf16 @accum(f32), read_write>, %alpha: f32) {kind = group, grid = [cdiv(n, 64)], config = {B = 64}} {
  %p = tile.program_id {axis = 0} : i64
  %b = tile.const {value = 64} : i64
  %i = tile.mul %p, %b : i64
  %t = tile.load %x at(%i) {extent = [64], bounds = [checked]} : tile<64xbf16>
  %f = tile.cast %t : tile<64xf32>
  %a = tile.broadcast %alpha : tile<64xf32>
  %r = tile.mul %f, %a : tile<64xf32>
  %s = tile.cast %r {round = rne} : tile<64xbf16>
  tile.store %x, %s at(%i) {extent = [64]}
  tile.return
}
"#;

fn module(text: &str) -> Module<Tile> {
    parse_module(text, "pinned.tir").unwrap()
}

/// If this changes, every cache key changes: do it knowingly, with `IR_VERSION` or the hasher's key.
const PINNED: &str = "68a468f0e1d8fce0a1469e940f4580d8";

#[test]
fn hash_is_pinned() {
    assert_eq!(module(TEXT).hash().to_string(), PINNED);
}

/// Run by `hash_is_the_same_in_other_processes`; by itself it prints the hash.
#[test]
fn show_hash() {
    println!("hash = {}", module(TEXT).hash());
}

#[test]
fn hash_is_the_same_in_other_processes() {
    let show = || {
        let exe = std::env::current_exe().unwrap();
        let out =
            Command::new(exe).args(["--exact", "hash::show_hash", "--nocapture"]).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let at = text.find("hash = ").unwrap_or_else(|| panic!("no hash in {text}"));
        text[at + 7..at + 7 + 32].to_string()
    };
    let here = module(TEXT).hash().to_string();
    assert_eq!((show(), show()), (here.clone(), here));
}

#[test]
fn hash_ignores_names_and_places() {
    let renamed =
        TEXT.replace("%alpha", "%beta").replace("%r ", "%result ").replace("%r {", "%result {");
    let moved = format!("; moved down\n\n\n{}", renamed.replace("\n  ", "\n      "));
    assert_ne!(moved, TEXT);
    assert_eq!(module(&moved).hash(), module(TEXT).hash());
}

#[test]
fn hash_sees_everything_else() {
    let hash = module(TEXT).hash();
    let edits = [
        ("@pinned", "@other"),
        ("@scale", "@scaled"),
        ("kind = group, grid = [cdiv(n, 64)]", "kind = group, grid = [cdiv(n, 32)]"),
        ("B = 64", "B = 32"),
        ("@accum(f32)", "@accum(f64)"),
        ("read_write", "write"),
        ("axis = 0", "axis = 1"),
        ("value = 64", "value = 65"),
        ("tile.mul %p, %b", "tile.mul %b, %p"),
        ("tile.mul %f, %a", "tile.add %f, %a"),
        ("round = rne", "round = rtz"),
        ("[checked]", "[inside]"),
    ];
    for (from, to) in edits {
        assert!(TEXT.contains(from), "{from}");
        assert_ne!(module(&TEXT.replacen(from, to, 1)).hash(), hash, "{from} -> {to}");
    }
}

#[test]
fn hash_knows_which_parameter_an_expression_names() {
    let text = |a: &str, b: &str| {
        parse(&format!("func @f(%{a}: i64, %{b}: i64) {{kind = group, grid = [(N + 1)]}} {{\n  tile.return\n}}\n")).unwrap()
    };
    assert_ne!(text("N", "M").hash(), text("M", "N").hash());
    assert_eq!(text("N", "M").hash(), text("N", "other").hash());
}

#[test]
fn order_in_which_attributes_were_set_is_not_seen() {
    let text = "func @f(%x: f32) {kind = group, grid = [1]} {\n  %c = tile.cast %x {saturate = true} : i8\n  tile.return\n}\n";
    let mut a = parse(text).unwrap();
    let op = a.walk()[0];
    a.ops[op].attrs.set("round", Attr::word("rtz"));
    a.attrs.remove("kind");
    a.attrs.set("kind", Attr::word("group"));
    let text = a.to_string();
    assert!(
        text.contains("{kind = group, grid = [1]}")
            && text.contains("{round = rtz, saturate = true}"),
        "{text}"
    );
    assert_eq!(parse(&text).unwrap().hash(), a.hash());
}
