//! Every op of Graph IR on a GPU in software, against its definition. The table beside says how many
//! launches each is; none is left to the host. `TESSERA_BLESS=1` writes it anew.

use super::check::{agree, arguments, check_emulated, emulated, module, noise};
use std::fmt::Write;
use tessera_driver::graph::PlanOptions;
use tessera_graph::GraphOp;
use tessera_interp::{HostArray, NoKernels, run_graph};
use tessera_ir::Opcode;
use tessera_numerics::{DType, ScalarFn};

const PARAMS: &str = "%x: tensor<[4, 8], f32>, %y: tensor<[4, 8], f32>, %z: tensor<[6], f32>, \
    %r8: tensor<[8], f32>, %p: tensor<[], bool>, %i: tensor<[], i64>, %j: tensor<[], i64>, \
    %f: tensor<[], f32>, %ix: tensor<[3, 1], i32>";

/// An elementwise function on a dtype that it takes.
fn elementwise(f: ScalarFn) -> String {
    let dtype = [DType::F32, DType::I32, DType::Bool].into_iter().find(|&d| f.accepts(d));
    let t = format!("tensor<[4, 8], {}>", dtype.unwrap_or(DType::F32));
    let names = ["%a", "%b", "%c"];
    let params: Vec<String> = names[..f.arity()].iter().map(|n| format!("{n}: {t}")).collect();
    let args = names[..f.arity()].join(", ");
    let name = f.name();
    format!("func @f({}) {{\n%r = graph.{name} {args}\ngraph.return %r\n}}", params.join(", "))
}

fn text(op: GraphOp) -> String {
    let example = op.info().example;
    let named = format!("= graph.{}", op.mnemonic());
    let line = example.lines().find(|l| l.contains(&named)).unwrap_or_default();
    let results = line.split(" =").next().unwrap_or_default();
    let body = match op {
        GraphOp::Ew(f) => return elementwise(f),
        GraphOp::Return => example.to_string(),
        GraphOp::Yield => format!(
            "%r = graph.cond %p : tensor<[4, 8], f32> do {{\n{example}\n}} do {{\n{example}\n}}\ngraph.return %r"
        ),
        GraphOp::Dim => "%r = graph.reduce %x {op = max, axes = [0]}\ngraph.return %r".into(),
        _ => format!("{example}\ngraph.return {results}"),
    };
    let callee = "\n\nfunc @f(%a: tensor<[4, 8], f32>, %b: tensor<[4, 8], f32>) {\n%c = graph.add %a, %b\ngraph.return %c\n}";
    let more = if op == GraphOp::Call { callee } else { "" };
    let example = body.replace("tensor<[n], f32>", "tensor<[6], f32>");
    format!("func @example({PARAMS}) {{\n{example}\n}}{more}")
}

#[test]
fn every_op_has_kernels() {
    let mut table = String::new();
    for op in GraphOp::all() {
        let module = module(&text(op));
        let name = module.funcs[0].name.clone();
        let mut args = arguments(&module, &name);
        if let [_, _, _, _, _, i, j, ..] = &mut args[..] {
            // Positions and counts: a loop from one to the other ends.
            *i = HostArray::new(&[], DType::I64, &[1.0]);
            *j = HostArray::new(&[], DType::I64, &[3.0]);
        }
        let program = emulated(&module, &args, PlanOptions::default());
        assert!(program.host_ops().is_empty(), "{op:?}: {:?}", program.host_ops());
        writeln!(table, "{} {}", op.mnemonic(), program.stats().launches).unwrap();
        // A kernel of the user's is not there.
        if op == GraphOp::KernelCall {
            continue;
        }
        let wanted =
            run_graph(&module, &name, &args, &mut NoKernels).unwrap_or_else(|e| panic!("{e}"));
        let got = program.run(&args).unwrap_or_else(|e| panic!("{op:?}\n{e}"));
        for (g, w) in got.iter().zip(&wanted) {
            agree(g, w, &format!("{op:?}\n{module}"));
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/graph/device_ops.txt");
    if std::env::var_os("TESSERA_BLESS").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let known = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(table, known, "the table is not {path}: write it anew with TESSERA_BLESS=1");
}

#[test]
fn long_sums_are_taken_in_parts() {
    for (dims, axes, left, launches) in [
        ("3, 5000", "1", "3", 2),
        ("700, 6", "0", "6", 2),
        ("20, 37, 3", "0, 1", "3", 2),
        ("4999", "0", "", 2),
        ("40, 8", "0", "8", 1),
    ] {
        for op in ["sum", "max"] {
            let text = format!(
                "func @f(%x: tensor<[{dims}], f32>) {{\n%r = graph.reduce %x {{op = {op}, axes = [{axes}]}} : tensor<[{left}], f32>\ngraph.return %r\n}}"
            );
            let dims: Vec<i64> = dims.split(", ").map(|d| d.parse().unwrap()).collect();
            let program = check_emulated(&text, &[noise(&dims, DType::F32, 3)]);
            assert!(program.stats().launches >= launches, "{text}\n{}", program.plan_text());
        }
    }
}

#[test]
fn deep_products_are_summed_in_chunks() {
    let text = "func @f(%a: tensor<[2048, 64], bf16>, %b: tensor<[2048, 64], bf16>) {
  %r = graph.dot %a, %b {contract_a = [0], contract_b = [0], out = f32} : tensor<[64, 64], f32>
  graph.return %r
}";
    let args = [noise(&[2048, 64], DType::BF16, 1), noise(&[2048, 64], DType::BF16, 2)];
    let program = check_emulated(text, &args);
    assert_eq!(program.stats().launches, 2, "{}", program.plan_text());
}

#[test]
fn a_depth_of_several_axes_is_summed_in_chunks() {
    let text = "func @f(%a: tensor<[2, 1024, 64], bf16>, %b: tensor<[2, 1024, 64], bf16>) {
  %r = graph.dot %a, %b {contract_a = [0, 1], contract_b = [0, 1], out = f32} : tensor<[64, 64], f32>
  graph.return %r
}";
    let dims = [2, 1024, 64];
    let args = [noise(&dims, DType::BF16, 1), noise(&dims, DType::BF16, 2)];
    let program = check_emulated(text, &args);
    assert_eq!(program.stats().launches, 2, "{}", program.plan_text());
}

#[test]
fn what_crowds_the_sums_of_a_product_is_a_kernel_of_its_own() {
    let product = |more: &str| {
        format!(
            "func @f(%a: tensor<[256, 64], bf16>, %b: tensor<[64, 256], bf16>, %c: tensor<[256, 256], f32>, %d: tensor<[256, 256], f32>, %e: tensor<[256, 256], f32>) {{
  %s = graph.dot %a, %b {{contract_a = [1], contract_b = [0], out = f32}} : tensor<[256, 256], f32>
  {more}
}}"
        )
    };
    let side = |seed| noise(&[256, 256], DType::F32, seed);
    let args = [
        noise(&[256, 64], DType::BF16, 1),
        noise(&[64, 256], DType::BF16, 2),
        side(3),
        side(4),
        side(5),
    ];
    let light = product("%r = graph.add %s, %c\n  graph.return %r");
    let program = check_emulated(&light, &args);
    assert_eq!(program.stats().launches, 1, "{}", program.plan_text());
    // An optimiser's update: three arrays are read and three are written.
    let heavy = product(
        "%m = graph.add %s, %c
  %v = graph.mul %s, %d
  %r = graph.sub %e, %m
  %t = graph.exp %v
  %u = graph.tanh %r
  %w = graph.exp %u
  graph.return %m, %t, %w",
    );
    let program = check_emulated(&heavy, &args);
    assert_eq!(program.stats().launches, 2, "{}", program.plan_text());
}
