//! The program of a rank for functions that people know. `TESSERA_BLESS=1` writes the texts.

use crate::{module, run, types};
use std::fmt::Write;
use std::path::Path;
use tessera_interp::HostArray;
use tessera_ir::Type;
use tessera_shard::partition;

const TP: &str = "axes = [tp], sizes = [2]";
const BOTH: &str = "axes = [dp, tp], sizes = [2, 2]";

/// `Y = X·W` with both operands placed.
fn product(mesh: &str, x: &str, w: &str) -> String {
    format!(
        "func @f(%x: tensor<[8, 4], f32>, %w: tensor<[4, 16], f32>) {{
  %a = graph.shard %x {{{mesh}, split = {x}}} : tensor<[8, 4], f32>
  %b = graph.shard %w {{{mesh}, split = {w}}} : tensor<[4, 16], f32>
  %y = graph.dot %a, %b {{contract_a = [1], contract_b = [0]}} : tensor<[8, 16], f32>
  graph.return %y
}}
"
    )
}

/// The table of the specification: how a product is placed, and the collectives of it; then whole functions.
fn cases() -> Vec<(&'static str, String)> {
    let mlp = |batch: &str, hidden: &str| {
        format!(
            "func @f(%x: tensor<[8, 4], f32>, %up: tensor<[4, 16], f32>, %down: tensor<[16, 4], f32>) {{
  %a = graph.shard %x {{{BOTH}, split = [[{batch}], []]}} : tensor<[8, 4], f32>
  %b = graph.shard %up {{{BOTH}, split = [[], [{hidden}]]}} : tensor<[4, 16], f32>
  %c = graph.shard %down {{{BOTH}, split = [[{hidden}], []]}} : tensor<[16, 4], f32>
  %h = graph.dot %a, %b {{contract_a = [1], contract_b = [0]}} : tensor<[8, 16], f32>
  %g = graph.tanh %h : tensor<[8, 16], f32>
  %y = graph.dot %g, %c {{contract_a = [1], contract_b = [0]}} : tensor<[8, 4], f32>
  %z = graph.add %y, %a : tensor<[8, 4], f32>
  graph.return %z
}}
"
        )
    };
    let softmax = |split: &str| {
        format!(
            "func @f(%x: tensor<[4, 8], f32>) {{
  %a = graph.shard %x {{{TP}, split = {split}}} : tensor<[4, 8], f32>
  %y = graph.composite %a {{name = softmax, decomposition = @softmax}} : tensor<[4, 8], f32>
  graph.return %y
}}

func @softmax(%x: tensor<[4, 8], f32>) {{
  %e = graph.exp %x : tensor<[4, 8], f32>
  %s = graph.reduce %e {{op = sum, axes = [1]}} : tensor<[4], f32>
  %t = graph.broadcast %s {{dims = [0]}} : tensor<[4, 8], f32>
  %y = graph.div %e, %t : tensor<[4, 8], f32>
  graph.return %y
}}
"
        )
    };
    vec![
        ("a composite on blocks", softmax("[[tp], []]")),
        ("a composite whose rows are split", softmax("[[], [tp]]")),
        ("n over tp", product(TP, "[[], []]", "[[], [tp]]")),
        ("k over tp in both", product(TP, "[[], [tp]]", "[[tp], []]")),
        ("m over dp, n over tp", product(BOTH, "[[dp], []]", "[[], [tp]]")),
        ("k over tp in w", product(TP, "[[], []]", "[[tp], []]")),
        ("k over tp in x", product(TP, "[[], [tp]]", "[[], []]")),
        ("m and n over one axis", product(TP, "[[tp], []]", "[[], [tp]]")),
        ("m over dp", product(BOTH, "[[dp], []]", "[[], []]")),
        ("mlp, tensor parallel", mlp("dp", "tp")),
        ("mlp, data parallel", mlp("dp", "")),
        (
            "weights over dp",
            format!(
                "func @f(%x: tensor<[8, 4], f32>, %w: tensor<[4, 16], f32>) {{
  %a = graph.shard %x {{{BOTH}, split = [[dp], []]}} : tensor<[8, 4], f32>
  %b = graph.shard %w {{{BOTH}, split = [[dp], []], priority = 2}} : tensor<[4, 16], f32>
  %y = graph.dot %a, %b {{contract_a = [1], contract_b = [0]}} : tensor<[8, 16], f32>
  %g = graph.dot %a, %y {{contract_a = [0], contract_b = [0]}} : tensor<[4, 16], f32>
  %h = graph.shard %g {{{BOTH}, split = [[dp], []], priority = 2}} : tensor<[4, 16], f32>
  graph.return %h
}}
"
            ),
        ),
        (
            "two products of one value, backwards",
            format!(
                "func @f(%x: tensor<[8, 4], bf16>, %y: tensor<[8, 4], bf16>, %w: tensor<[4, 8], bf16>, %v: tensor<[4, 8], bf16>) {{
  %a = graph.shard %x {{{TP}, split = [[], [tp]]}} : tensor<[8, 4], bf16>
  %b = graph.shard %y {{{TP}, split = [[], [tp]]}} : tensor<[8, 4], bf16>
  %c = graph.shard %w {{{TP}, split = [[tp], []]}} : tensor<[4, 8], bf16>
  %d = graph.shard %v {{{TP}, split = [[tp], []]}} : tensor<[4, 8], bf16>
  %p = graph.dot %a, %c {{contract_a = [1], contract_b = [0]}} : tensor<[8, 8], bf16>
  %q = graph.dot %b, %d {{contract_a = [1], contract_b = [0]}} : tensor<[8, 8], bf16>
  %s = graph.add %p, %q : tensor<[8, 8], bf16>
  graph.return %s
}}
"
            ),
        ),
        (
            "blocks that are not equal",
            "func @f(%x: tensor<[7, 4], f32>, %w: tensor<[4, 9], f32>) {
  %a = graph.shard %x {axes = [dp, tp], sizes = [2, 3], split = [[dp], []]} : tensor<[7, 4], f32>
  %b = graph.shard %w {axes = [dp, tp], sizes = [2, 3], split = [[], [tp, dp]]} : tensor<[4, 9], f32>
  %y = graph.dot %a, %b {contract_a = [1], contract_b = [0]} : tensor<[7, 9], f32>
  %s = graph.reduce %y {op = sum, axes = [0]} : tensor<[9], f32>
  graph.return %y, %s
}
"
            .to_string(),
        ),
        (
            "softmax of split rows",
            format!(
                "func @f(%x: tensor<[4, 8], f32>) {{
  %a = graph.shard %x {{{TP}, split = [[], [tp]]}} : tensor<[4, 8], f32>
  %m = graph.reduce %a {{op = max, axes = [1]}} : tensor<[4], f32>
  %n = graph.broadcast %m {{dims = [0]}} : tensor<[4, 8], f32>
  %d = graph.sub %a, %n : tensor<[4, 8], f32>
  %e = graph.exp %d : tensor<[4, 8], f32>
  %s = graph.reduce %e {{op = sum, axes = [1]}} : tensor<[4], f32>
  %t = graph.broadcast %s {{dims = [0]}} : tensor<[4, 8], f32>
  %y = graph.div %e, %t : tensor<[4, 8], f32>
  graph.return %y
}}
"
            ),
        ),
        (
            "words over two axes, in blocks that are not equal",
            "func @f(%table: tensor<[6, 3], f32>, %words: tensor<[10, 1], i32>) {
  %t = graph.shard %table {axes = [dp, tp], sizes = [2, 2], split = [[dp, tp], []]} : tensor<[6, 3], f32>
  %w = graph.shard %words {axes = [dp, tp], sizes = [2, 2], split = [[], []]} : tensor<[10, 1], i32>
  %x = graph.gather %t, %w {axes = [0], oob = clamp} : tensor<[10, 3], f32>
  graph.return %x
}
"
            .to_string(),
        ),
        (
            "rows of a table that are set, in blocks that are not equal",
            "func @f(%table: tensor<[6, 3], f32>, %words: tensor<[10, 1], u8>, %rows: tensor<[10, 3], f32>) {
  %t = graph.shard %table {axes = [dp, tp], sizes = [2, 2], split = [[dp, tp], []]} : tensor<[6, 3], f32>
  %x = graph.scatter %t, %words, %rows {op = set, axes = [0], oob = clamp} : tensor<[6, 3], f32>
  graph.return %x
}
"
            .to_string(),
        ),
        (
            "the gradient of a table whose rows are split, and the words too",
            format!(
                "func @f(%words: tensor<[8, 1], i32>, %rows: tensor<[8, 3], f32>) {{
  %r = graph.shard %rows {{{BOTH}, split = [[dp], []]}} : tensor<[8, 3], f32>
  %zero = graph.const {{value = 0.0}} : tensor<[6, 3], f32>
  %x = graph.scatter %zero, %words, %r {{op = sum, axes = [0]}} : tensor<[6, 3], f32>
  %y = graph.shard %x {{{BOTH}, split = [[tp], []]}} : tensor<[6, 3], f32>
  graph.return %y
}}
"
            ),
        ),
        (
            "iota and a loop",
            format!(
                "func @f(%x: tensor<[8], f32>) {{
  %a = graph.shard %x {{{TP}, split = [[tp]]}} : tensor<[8], f32>
  %i = graph.iota {{axis = 0}} : tensor<[8], f32>
  %z = graph.loop init(%a) {{trip = 3}} : tensor<[8], f32> do (%k: tensor<[], i64>, %c: tensor<[8], f32>) {{
    %n = graph.add %c, %i : tensor<[8], f32>
    graph.yield %n
  }}
  graph.return %z
}}
"
            ),
        ),
    ]
}

/// Small whole numbers: sums of them are exact. Some are outside the dim that they index.
fn numbers(ty: &Type) -> HostArray {
    let dims = ty.static_shape().unwrap();
    let count: i64 = dims.iter().product();
    let values: Vec<f64> = (0..count).map(|i| (i * 7 % 11 - 2) as f64).collect();
    HostArray::new(&dims, ty.dtype(), &values)
}

/// The bits of one device where sums keep their order.
fn agree(found: &[HostArray], wanted: &[HostArray], ordered: bool, name: &str) {
    for (found, wanted) in found.iter().zip(wanted) {
        let near = |(a, b): (&f64, &f64)| a == b || !ordered && (a - b).abs() <= 1e-2 * b.abs();
        assert!(found.values().iter().zip(&wanted.values()).all(near), "{name}, ordered {ordered}");
    }
}

#[test]
fn programs_of_ranks() {
    let mut out = String::new();
    for (name, text) in cases() {
        let source = module(&text);
        for (profile, ordered) in [("default", false), ("strict", true)] {
            let made = partition(&source, "f", &types(&source), ordered).unwrap().unwrap();
            let args: Vec<HostArray> = types(&source).iter().map(numbers).collect();
            agree(&run(&made.module, &args), &run(&source, &args), ordered, name);
            let listed: Vec<String> = made
                .collectives
                .iter()
                .map(|c| format!("{} over {}: {} bytes", c.kind, c.axes.join(" "), c.nbytes))
                .collect();
            let funcs = made.module.funcs.iter().map(ToString::to_string);
            let text = funcs.collect::<Vec<_>>().join("\n");
            writeln!(out, "# {name}, {profile}: [{}]\n{text}", listed.join(", ")).unwrap();
            if !ordered {
                writeln!(out, "{}", made.explained.replace(" (test:", " (").trim_end()).unwrap();
            }
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/programs.txt");
    if std::env::var_os("TESSERA_BLESS").is_some() {
        std::fs::write(&file, &out).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(known == out, "texts differ (TESSERA_BLESS=1 writes them)\n{out}");
}

/// Two meshes in one function.
#[test]
fn another_mesh_is_refused() {
    let source = module(
        "func @f(%x: tensor<[8], f32>) {
  %a = graph.shard %x {axes = [tp], sizes = [2], split = [[tp]]} : tensor<[8], f32>
  %b = graph.shard %a {axes = [tp], sizes = [4], split = [[tp]]} : tensor<[8], f32>
  graph.return %b
}
",
    );
    let error = partition(&source, "f", &types(&source), false).err().unwrap().to_string();
    assert!(error.contains("E_PLACEMENT"), "{error}");
    assert!(error.contains("(tp=2) and (tp=4)"), "{error}");
}
