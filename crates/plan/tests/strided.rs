//! Values that are parts of others.

use tessera_graph::Graph;
use tessera_ir::parse_module;
use tessera_plan::inner::strided;

fn of(text: &str) -> Option<(String, i64, Vec<i64>)> {
    let text = format!("module @m : graph {{version = 1}}\n\n{text}");
    let module = parse_module::<Graph>(&text, "<test>").unwrap_or_else(|e| panic!("{e}"));
    let func = &module.funcs[0];
    let v = tessera_graph::walk::returned(func)[0];
    let found = strided(func, v, func.body)?;
    Some((func.name_of(found.root)?.to_string(), found.offset, found.strides))
}

#[test]
fn heads_of_a_projection_are_parts_of_it() {
    let text = "func @f(%x: tensor<[2, 5, 24], f32>) {
  %w = graph.reshape %x : tensor<[2, 5, 3, 2, 4], f32>
  %s = graph.slice %w {start = [0, 0, 1, 0, 0], limit = [2, 5, 2, 2, 4]} : tensor<[2, 5, 1, 2, 4], f32>
  %r = graph.reshape %s : tensor<[2, 5, 2, 4], f32>
  %t = graph.transpose %r {perm = [0, 2, 1, 3]} : tensor<[2, 2, 5, 4], f32>
  graph.return %t
}";
    assert_eq!(of(text), Some(("w".into(), 8, vec![120, 4, 24, 1])));
}

#[test]
fn what_is_not_contiguous_is_copied() {
    let turned = "func @f(%x: tensor<[4, 6], f32>) {
  %t = graph.transpose %x {perm = [1, 0]} : tensor<[6, 4], f32>
  graph.return %t
}";
    assert_eq!(of(turned), None);
    let joined = "func @f(%x: tensor<[4, 6, 2], f32>) {
  %t = graph.transpose %x {perm = [1, 0, 2]} : tensor<[6, 4, 2], f32>
  %r = graph.reshape %t : tensor<[24, 2], f32>
  graph.return %r
}";
    // Two axes that are not adjacent are one axis of the value.
    assert_eq!(of(joined), None);
    assert_eq!(of("func @f(%x: tensor<[4], f32>) {\ngraph.return %x\n}"), None);
}
