//! What derivatives and batches look like, one text for each family of rules, and how long they take
//! to make. `TESSERA_BLESS=1` writes the texts.

use crate::common::{func, module};
use std::fmt::Write;
use std::path::Path;
use tessera_autodiff::{jvp, vjp, vmap};
use tessera_graph::{GraphBuilder, GraphModule, tensor};
use tessera_ir::Dim;
use tessera_numerics::{DType, NumType, ScalarFn};

/// Functions of one family, each with its argument places to differentiate by.
fn families() -> Vec<(&'static str, String)> {
    let m = "tensor<[2, 3], f32>";
    vec![
        (
            "elementwise",
            func(
                &format!("%x: {m}, %y: {m}"),
                &format!(
                    "  %a = graph.mul %x, %y : {m}\n  %b = graph.tanh %a : {m}\n  %c = graph.div %b, %y : {m}\n  graph.return %c"
                ),
            ),
        ),
        (
            "shape",
            func(
                &format!("%x: {m}, %y: tensor<[3], f32>"),
                &format!(
                    "  %b = graph.broadcast %y {{dims = [1]}} : {m}\n  %a = graph.add %x, %b : {m}\n  %t = graph.transpose %a {{perm = [1, 0]}} : tensor<[3, 2], f32>\n  %s = graph.slice %t {{start = [0, 0], limit = [3, 2], stride = [2, 1]}} : tensor<[2, 2], f32>\n  graph.return %s"
                ),
            ),
        ),
        (
            "index",
            func(
                "%x: tensor<[4, 3], f32>, %y: tensor<[2, 3], f32>, %i: tensor<[2, 1], i32>",
                "  %g = graph.gather %x, %i {axes = [0]} : tensor<[2, 3], f32>\n  %p = graph.mul %g, %y : tensor<[2, 3], f32>\n  %s = graph.scatter %x, %i, %p {op = sum, axes = [0]} : tensor<[4, 3], f32>\n  graph.return %s",
            ),
        ),
        (
            "reduce",
            func(
                &format!("%x: {m}, %y: {m}"),
                &format!(
                    "  %a = graph.reduce %x {{op = max, axes = [1]}} : tensor<[2], f32>\n  %b = graph.scan %y {{op = sum, axis = 1}} : {m}\n  %c = graph.reduce %b {{op = sum, axes = [1]}} : tensor<[2], f32>\n  %d = graph.mul %a, %c : tensor<[2], f32>\n  graph.return %d"
                ),
            ),
        ),
        (
            "dot",
            func(
                "%x: tensor<[4, 2, 3], f32>, %y: tensor<[3, 5], f32>",
                "  %a = graph.dot %x, %y {contract_a = [2], contract_b = [0]} : tensor<[4, 2, 5], f32>\n  graph.return %a",
            ),
        ),
        (
            "dot_accum",
            func(
                "%x: tensor<[2, 3], f16>, %y: tensor<[3, 5], f16>",
                "  %a = graph.dot %x, %y {contract_a = [1], contract_b = [0], accum = f32} : tensor<[2, 5], f16>\n  graph.return %a",
            ),
        ),
        (
            "conv",
            func(
                "%x: tensor<[1, 2, 6], f32>, %y: tensor<[3, 2, 3], f32>",
                "  %a = graph.conv %x, %y {strides = [2], lo = [1], hi = [1]} : tensor<[1, 3, 3], f32>\n  graph.return %a",
            ),
        ),
        (
            "window",
            func(
                "%x: tensor<[6], f32>, %y: tensor<[3], f32>",
                "  %a = graph.window_reduce %x {op = max, window = [2], strides = [2]} : tensor<[3], f32>\n  %b = graph.mul %a, %y : tensor<[3], f32>\n  graph.return %b",
            ),
        ),
        (
            "loop",
            func(
                "%x: tensor<[2], f32>, %y: tensor<[4, 2], f32>",
                "  %r = graph.loop init(%x) xs(%y) {trip = 4} : tensor<[2], f32> do (%i: tensor<[], i64>, %c: tensor<[2], f32>, %s: tensor<[2], f32>) {\n    %m = graph.mul %c, %s : tensor<[2], f32>\n    %n = graph.sin %m : tensor<[2], f32>\n    graph.yield %n\n  }\n  graph.return %r",
            ),
        ),
        (
            "cond",
            func(
                "%x: tensor<[2], f32>, %y: tensor<[2], f32>, %p: tensor<[], bool>",
                "  %r = graph.cond %p : tensor<[2], f32> do {\n    %a = graph.exp %x : tensor<[2], f32>\n    graph.yield %a\n  } do {\n    %b = graph.mul %x, %y : tensor<[2], f32>\n    graph.yield %b\n  }\n  graph.return %r",
            ),
        ),
        (
            "call",
            format!(
                "func @g(%a: tensor<[n], f32>, %b: tensor<[n], f32>) {{\n  %c = graph.mul %a, %b : tensor<[n], f32>\n  %d = graph.exp %c : tensor<[n], f32>\n  graph.return %d\n}}\n\n{}",
                func(
                    "%x: tensor<[2], f32>, %y: tensor<[2], f32>",
                    "  %r = graph.call %x, %y {callee = @g, kind = checkpoint} : tensor<[2], f32>\n  %s = graph.call %r, %y {callee = @g} : tensor<[2], f32>\n  graph.return %s"
                )
            ),
        ),
        (
            "placement",
            func(
                &format!("%x: {m}, %y: {m}"),
                &format!(
                    "  %p = graph.shard %x {{axes = [dp, tp], sizes = [2, 3], split = [[dp], []], open = [1]}} : {m}\n  %s = graph.mul %p, %y : {m}\n  graph.return %s"
                ),
            ),
        ),
    ]
}

fn printed(m: &GraphModule, from: usize) -> String {
    m.funcs[from..].iter().map(|f| f.to_string()).collect::<Vec<_>>().join("\n")
}

#[test]
fn each_family_as_text() {
    let bless = std::env::var_os("TESSERA_BLESS").is_some();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/texts");
    let mut faults = Vec::new();
    for (name, text) in families() {
        let mut out = String::new();
        let source = module(&text);
        let n = source.funcs.len();
        writeln!(out, "# source\n{}", printed(&source, 0)).unwrap();
        let mut m = source.clone();
        jvp(&mut m, "f", &[0, 1]).unwrap();
        writeln!(out, "# jvp\n{}", printed(&m, n)).unwrap();
        let mut m = source.clone();
        vjp(&mut m, "f", &[0, 1]).unwrap();
        writeln!(out, "# vjp\n{}", printed(&m, n)).unwrap();
        let mut m = source.clone();
        let axes: Vec<_> =
            (0..source.func("f").unwrap().params().len()).map(|i| (i == 0).then_some(0)).collect();
        vmap(&mut m, "f", &axes, &[], &Dim::Static(7)).unwrap();
        write!(out, "# vmap of %x\n{}", printed(&m, n)).unwrap();
        let file = folder.join(format!("{name}.txt"));
        if bless {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&file, &out).unwrap();
        } else if std::fs::read_to_string(&file).unwrap_or_default() != out {
            faults.push(format!("{name}:\n{out}"));
        }
    }
    assert!(faults.is_empty(), "texts differ (TESSERA_BLESS=1 writes them)\n{}", faults.join("\n"));
}

#[test]
fn transforms_are_the_same_every_time() {
    let make = || {
        let mut m = module(&families()[7].1);
        vjp(&mut m, "f", &[0, 1]).unwrap();
        m.to_string()
    };
    assert_eq!(make(), make());
}

/// A chain of about 5000 ops with matmuls, norms and reshapes, as in deep models.
fn deep() -> GraphModule {
    let f32 = NumType::plain(DType::F32);
    let mut b = GraphBuilder::new("f");
    let loc = tessera_diag::Loc::unknown();
    let ty = tensor(vec![8.into(), 16.into()], f32);
    let mut x = b.param("x", ty.clone());
    let ws: Vec<_> = (0..60)
        .map(|i| b.param(&format!("w{i}"), tensor(vec![16.into(), 16.into()], f32)))
        .collect();
    for layer in 0..240 {
        let axes = tessera_graph::DotAxes {
            contract_a: vec![1],
            contract_b: vec![0],
            ..Default::default()
        };
        let y = b.dot((x, ws[layer % 60]), &axes, None, &loc).unwrap();
        let s = b.reduce(tessera_numerics::ReduceOp::Sum, y, &[1], &loc).unwrap();
        let s = b.broadcast(s, &[8.into(), 16.into()], &[0], &loc).unwrap();
        let mut z = b.ew(ScalarFn::Sub, &[y, s], &loc).unwrap();
        for f in [ScalarFn::Tanh, ScalarFn::Exp, ScalarFn::Sigmoid, ScalarFn::Erf] {
            let a = b.ew(f, &[z], &loc).unwrap();
            let m = b.ew(ScalarFn::Mul, &[a, z], &loc).unwrap();
            let c = b.splat(0.5, &ty, &loc).unwrap();
            z = b.ew(ScalarFn::Mul, &[m, c], &loc).unwrap();
        }
        x = b.ew(ScalarFn::Add, &[z, x], &loc).unwrap();
    }
    let s = b.reduce(tessera_numerics::ReduceOp::Sum, x, &[0, 1], &loc).unwrap();
    let mut m = GraphModule::new("m");
    m.funcs.push(b.finish(&[s], loc).unwrap());
    m
}

#[test]
fn a_deep_model_is_differentiated_in_no_time() {
    let mut m = deep();
    let ops = m.funcs[0].walk().len();
    assert!(ops > 4900, "{ops}");
    let wrt: Vec<usize> = (0..m.funcs[0].params().len()).collect();
    let begin = std::time::Instant::now();
    vjp(&mut m, "f", &wrt).unwrap();
    let took = begin.elapsed();
    println!("vjp of {ops} ops: {took:?}");
    let begin = std::time::Instant::now();
    tessera_autodiff::gradient(&mut m, "f", &wrt).unwrap();
    println!("gradient of {ops} ops: {:?}", begin.elapsed());
    // Generous: a test machine may be busy and the build is not for speed.
    assert!(took.as_secs_f64() < 2.0, "{took:?}");
}
