//! Gates as quotients.

use tessera_graph::Graph;
use tessera_graph::walk;
use tessera_ir::parse_module;
use tessera_plan::inner::gate;

/// The ops of the function after the rewrite, dead ones gone.
fn rewritten(body: &str) -> String {
    let text = format!(
        "module @m : graph {{version = 1}}\n\nfunc @f(%x: tensor<[4], f32>, %t: tensor<[4], f32>) {{\n{body}}}\n"
    );
    let mut func = parse_module::<Graph>(&text, "<test>").unwrap().funcs.remove(0);
    gate(&mut func).unwrap();
    walk::dce(&mut func, &|_| true);
    let names: Vec<_> = func.walk().iter().map(|&id| func.ops[id].code).collect();
    names.iter().map(|c| tessera_ir::Opcode::mnemonic(*c)).collect::<Vec<_>>().join(" ")
}

#[test]
fn products_with_a_sigmoid_that_nobody_else_uses_are_quotients() {
    let sigmoid = "  %s = graph.sigmoid %t : tensor<[4], f32>\n";
    let [right, left] = ["%x, %s", "%s, %x"].map(|args| {
        format!("{sigmoid}  %y = graph.mul {args} : tensor<[4], f32>\n  graph.return %y\n")
    });
    for body in [right, left] {
        assert_eq!(rewritten(&body), "neg exp const add div return");
    }
    let both =
        format!("{sigmoid}  %y = graph.mul %x, %s : tensor<[4], f32>\n  graph.return %y, %s\n");
    assert_eq!(rewritten(&both), "sigmoid mul return");
    let square =
        format!("{sigmoid}  %y = graph.mul %s, %s : tensor<[4], f32>\n  graph.return %y\n");
    assert_eq!(rewritten(&square), "sigmoid mul return");
}
