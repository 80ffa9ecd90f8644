//! Functions on a GPU in software, against their definition. `crates/filetest/tests/coverage/graph.rs`
//! runs every op of Graph IR there.

use super::check::{check_emulated, noise};
use tessera_driver::graph::GraphProgram;
use tessera_numerics::DType;

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

/// What launches say of themselves, by name.
fn said(program: &GraphProgram, name: &str) -> Vec<String> {
    let all = program.resources().into_iter().flatten();
    all.filter(|(n, _)| *n == name).map(|(_, value)| value).collect()
}

fn product(m: i64, n: i64, k: i64) -> String {
    format!(
        "func @f(%a: tensor<[{m}, {k}], bf16>, %b: tensor<[{k}, {n}], bf16>) {{
  %r = graph.dot %a, %b {{contract_a = [1], contract_b = [0], out = f32}} : tensor<[{m}, {n}], f32>
  graph.return %r
}}"
    )
}

#[test]
fn operands_with_odd_rows_are_copied_first_as_for_the_library() {
    let args = |m, n, k| [noise(&[m, k], DType::BF16, 1), noise(&[k, n], DType::BF16, 2)];
    let program = check_emulated(&product(40, 33, 129), &args(40, 33, 129));
    assert_eq!(said(&program, "copied_to_aligned_rows"), ["x0, x1"], "{}", program.kernels_text());
    // The rows of one operand are aligned, and those of the other too few bytes apart to matter.
    let program = check_emulated(&product(40, 32, 128), &args(40, 32, 128));
    assert_eq!(said(&program, "copied_to_aligned_rows"), [""; 0]);
}

#[test]
fn a_depth_without_equal_chunks_is_divided_at_the_launch() {
    let (m, n, k) = (16, 64, 4104);
    let args = [noise(&[m, k], DType::BF16, 1), noise(&[k, n], DType::BF16, 2)];
    let program = check_emulated(&product(m, n, k), &args);
    assert_eq!(program.stats().launches, 1, "{}", program.plan_text());
    assert_eq!(said(&program, "k_splits"), ["8"], "{}", program.kernels_text());
}

#[test]
fn vectors_are_read_as_they_are() {
    for (m, n, k) in [(1, 64, 256), (64, 1, 256), (1, 1, 512)] {
        let args = [noise(&[m, k], DType::BF16, 1), noise(&[k, n], DType::BF16, 2)];
        let program = check_emulated(&product(m, n, k), &args);
        assert_eq!(said(&program, "copied_to_aligned_rows"), [""; 0], "{m} {n}");
    }
}
