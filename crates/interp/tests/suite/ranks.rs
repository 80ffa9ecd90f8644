//! Programs of one rank, on all ranks.

use super::graph::{array, eval, refused};
use tessera_numerics::DType;

const MESH: &str = "axes = [dp, tp], sizes = [2, 3]";

fn program(ins: &str, outs: &str, args: &str, body: &str, result: &str) -> String {
    format!(
        "func @f(%x: tensor<[12], f32>) {{
  %r = graph.manual %x {{{MESH}, in = [[{ins}]], out = [{outs}]}} : {result} do ({args}) {{
{body}
  }}
  graph.return %r
}}
"
    )
}

fn twelve() -> tessera_interp::HostArray {
    array(&[12], DType::F32, &(0..12).map(f64::from).collect::<Vec<_>>())
}

#[test]
fn groups_synchronise_along_their_axes() {
    let block = "%b: tensor<[2], f32>";
    let split = "[dp, tp]";
    let sum = |axes: &str, sizes: &str| {
        format!(
            "    %s = graph.all_reduce %b {{axes = [{axes}], sizes = [{sizes}], op = sum}} : tensor<[2], f32>
    graph.yield %s"
        )
    };
    let text = program(split, "[[dp]]", block, &sum("tp", "3"), "tensor<[4], f32>");
    assert_eq!(eval(&text, &[twelve()]), ["[4] [6.0, 9.0, 24.0, 27.0]"]);
    let text = program(split, "[[tp]]", block, &sum("dp", "2"), "tensor<[6], f32>");
    assert_eq!(eval(&text, &[twelve()]), ["[6] [6.0, 8.0, 10.0, 12.0, 14.0, 16.0]"]);
    let text = program(split, "[[]]", block, &sum("tp, dp", "3, 2"), "tensor<[2], f32>");
    assert_eq!(eval(&text, &[twelve()]), ["[2] [30.0, 36.0]"]);
}

#[test]
fn positions_over_several_axes_are_row_major_in_the_order_that_is_named() {
    let body = "    %i = graph.axis_index {axes = [tp, dp], sizes = [3, 2]} : tensor<[], i64>
    %v = graph.reshape %i : tensor<[1], i64>
    graph.yield %v";
    let text = program("[]", "[[dp, tp]]", "%b: tensor<[12], f32>", body, "tensor<[6], i64>");
    assert_eq!(eval(&text, &[twelve()]), ["[6] [0, 2, 4, 1, 3, 5]"]);
}

#[test]
fn ranks_whose_condition_differs_take_their_own_branch_and_synchronise_again() {
    let body = "    %s = graph.reduce %b {op = sum, axes = [0]} : tensor<[], f32>
    %ten = graph.const {value = 10.0} : tensor<[], f32>
    %p = graph.lt %s, %ten : tensor<[], bool>
    %c = graph.cond %p : tensor<[2], f32> do {
      %n = graph.neg %b : tensor<[2], f32>
      graph.yield %n
    } do {
      graph.yield %b
    }
    %d = graph.while init(%c) : tensor<[2], f32> do (%w: tensor<[2], f32>) {
      %t = graph.reduce %w {op = sum, axes = [0]} : tensor<[], f32>
      %k = graph.const {value = 30.0} : tensor<[], f32>
      %a = graph.abs %t : tensor<[], f32>
      %g = graph.lt %a, %k : tensor<[], bool>
      graph.yield %g
    } do (%w: tensor<[2], f32>) {
      %h = graph.add %w, %w : tensor<[2], f32>
      graph.yield %h
    }
    %m = graph.all_reduce %d {axes = [tp], sizes = [3], op = max} : tensor<[2], f32>
    graph.yield %m";
    let text = program("[dp, tp]", "[[dp]]", "%b: tensor<[2], f32>", body, "tensor<[4], f32>");
    // Sums 1, 5, 9 and 13, 17, 21: the first three are negated; all are doubled until they pass 30.
    assert_eq!(eval(&text, &[twelve()]), ["[4] [-0.0, -20.0, 24.0, 28.0]"]);
}

#[test]
fn a_collective_outside_is_refused() {
    let text = "func @f(%x: tensor<[2], f32>) {
  %s = graph.all_reduce %x {axes = [tp], sizes = [3], op = sum} : tensor<[2], f32>
  graph.return %s
}
";
    let found = refused(text, &[array(&[2], DType::F32, &[1.0, 2.0])]);
    assert_eq!(found, "E_PLACEMENT expected `all_reduce` in the program of a rank, got it outside");
}
