//! How long a 10,000-op Tile function takes to verify, print, parse and hash; the budget is 100 ms
//! each. Run with `cargo run -p tessera-filetest --example ir_speed`.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Instant;
use tessera_ir::verify;
use tessera_tile::parse;

const OPS: usize = 10_000;
const BUDGET_MS: f64 = 100.0;

/// Loops with branches inside, five levels deep, and straight runs between them.
fn body(out: &mut String, depth: usize, count: &mut usize) {
    let pad = "  ".repeat(depth + 1);
    let mut last = "x".to_string();
    for _ in 0..40 {
        let n = *count;
        let (a, b) = (format!("a{n}"), format!("b{n}"));
        let _ = writeln!(
            out,
            "{pad}%{a} = tile.load %v at(%lo) {{extent = [64], bounds = [checked]}} : tile<64xf32>"
        );
        let _ = writeln!(out, "{pad}%{b} = tile.reduce %{a} {{op = sum, axis = 0}} : f32");
        let _ = writeln!(out, "{pad}%acc{n} = tile.fma %{b}, %{last}, %x : f32");
        last = format!("acc{n}");
        *count += 3;
    }
    if depth < 5 && *count < OPS {
        let n = *count;
        *count += 4;
        let _ = writeln!(
            out,
            "{pad}%f{n} = tile.for %lo, %hi, %step init(%{last}) : f32 do (%i{n}: i64, %p{n}: f32) {{"
        );
        body(out, depth + 1, count);
        let _ = writeln!(out, "{pad}  tile.yield %p{n}\n{pad}}}");
        let _ = writeln!(out, "{pad}%r{n} = tile.if %c : f32 do {{");
        body(out, depth + 1, count);
        let _ =
            writeln!(out, "{pad}  tile.yield %f{n}\n{pad}}} do {{\n{pad}  tile.yield %x\n{pad}}}");
    }
}

fn median(mut f: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..15)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let mut text = String::new();
    let mut count = 0;
    while count < OPS {
        body(&mut text, 0, &mut count);
    }
    let head = "func @big(%v: view<[n], f32, read>, %x: f32, %c: bool, %lo: i64, %hi: i64, %step: i64) {kind = group} {\n";
    let func = parse(&format!("{head}{text}  tile.return\n}}\n")).expect("the text is well formed");
    let mut same = func.clone();
    for value in same.values.ids() {
        same.set_name(value, "t");
    }
    verify(&func).expect("the function is valid");
    let text = func.to_string();
    println!("{} ops, {} bytes of text", func.walk().len(), text.len());
    let rows = [
        ("verify", median(|| verify(black_box(&func)).expect("valid"))),
        ("print", median(|| drop(black_box(func.to_string())))),
        ("print, one name for all", median(|| drop(black_box(same.to_string())))),
        ("parse", median(|| drop(black_box(parse(&text).expect("parses"))))),
        ("hash", median(|| _ = black_box(func.hash()))),
    ];
    for (what, ms) in rows {
        let word = if ms <= BUDGET_MS { "within" } else { "OVER" };
        println!("{what:<24} {ms:>8.2} ms  ({word} {BUDGET_MS} ms)");
    }
}
