//! Making functions: typed errors at the op's place, regions, inlining, and what goes when unused.

use tessera_diag::{Code, Loc, SourceFile};
use tessera_graph::{
    Copier, Graph, GraphBuilder, GraphModule, clone_with, parse, tensor, verify_module, walk,
};
use tessera_ir::{Attr, Attrs, Dim, DimExpr, Type, Value, parse_module, verify};
use tessera_numerics::{DType, NumType};

fn f32s(dims: &[i64]) -> Type {
    tensor(dims.iter().map(|&d| Dim::Static(d)).collect(), NumType::plain(DType::F32))
}

fn none() -> Loc {
    Loc::unknown()
}

fn add(b: &mut GraphBuilder, x: Value, y: Value) -> Value {
    b.append("add", &[x, y], &[], Attrs::new(), None, none()).unwrap()[0]
}

#[test]
fn errors_have_a_code_a_place_and_both_shapes() {
    let mut b = GraphBuilder::new("f");
    let x = b.param("x", f32s(&[4, 8]));
    let y = b.param("y", f32s(&[3, 8]));
    let file = SourceFile::new("model.py", "", 1);
    let loc = Loc::span(&file, 7, 1, 7, 2);
    let e = b.append("add", &[x, y], &[], Attrs::new(), None, loc).unwrap_err();
    assert_eq!(e.code, Code::E_SHAPE_MISMATCH);
    assert_eq!(e.message, "add: expected operands of one shape, got [4, 8] and [3, 8]");
    assert_eq!(e.loc.line(), 7);
    let mut fails = |op: &str, operands: &[Value], attrs: Attrs| {
        let e = b.append(op, operands, &[], attrs, None, none()).unwrap_err();
        format!("{} {}", e.code, e.message)
    };
    let none = Attrs::new;
    assert_eq!(
        fails("softmax", &[x], none()),
        "E_NAME expected an op of level `graph`, got `softmax`"
    );
    assert_eq!(fails("add", &[x], none()), "E_GRAPH_INVALID add: expected 2 operands, got 1");
    assert_eq!(
        fails("reverse", &[x], none()),
        "E_GRAPH_INVALID reverse: expected attribute `axes`"
    );
    assert_eq!(
        fails("reverse", &[x], none().with("axes", Attr::Int(1))),
        "E_GRAPH_INVALID reverse: expected attribute `axes` to be a list of integers, got 1"
    );
    assert_eq!(
        fails("exp", &[x], none().with("fast", Attr::Bool(true))),
        "E_GRAPH_INVALID exp: expected an attribute of the op, got `fast`"
    );
    assert_eq!(
        fails("reshape", &[x], none()),
        "E_GRAPH_INVALID reshape: expected a result type, the op does not imply one"
    );
    assert_eq!(
        fails("cond", &[x], none()),
        "E_GRAPH_INVALID expected an op without regions, got `graph.cond`"
    );
    // Nothing of what failed is left behind.
    let func = b.finish(&[x], Loc::unknown()).unwrap();
    assert_eq!(func.walk().len(), 1);
}

#[test]
fn regions_open_and_close_and_keep_their_values() {
    let mut b = GraphBuilder::new("f");
    let x = b.param("x", f32s(&[8]));
    let p = b.param("p", tensor(vec![], NumType::plain(DType::Bool)));
    b.open("cond", &[p], &[], Attrs::new(), none()).unwrap();
    let inner = add(&mut b, x, x);
    b.next_region(&[inner]).unwrap();
    let e = b.append("add", &[inner, x], &[], Attrs::new(), None, none()).unwrap_err();
    assert_eq!(e.code, Code::E_NAME);
    assert!(e.help.is_some());
    let e = b.close(&[p]).unwrap_err();
    assert_eq!(
        e.message,
        "cond: expected the region to yield values of types (tensor<[8], f32>), got (tensor<[], bool>)"
    );
    let r = b.close(&[x]).unwrap();
    b.open("while", &[], &[("init", vec![r[0]])], Attrs::new(), none()).unwrap();
    add(&mut b, x, x);
    b.abandon();
    let attrs = Attrs::new().with("trip", Attr::Int(3));
    let e = b.open("loop", &[], &[("xs", vec![x])], attrs, none()).unwrap_err();
    assert_eq!(e.message, "loop: expected stacked values with a first axis of 3, got [8]");
    let attrs = Attrs::new().with("trip", Attr::Int(8));
    let args = b.open("loop", &[], &[("init", r.clone()), ("xs", vec![x])], attrs, none()).unwrap();
    let results = b.close(&[args[1], args[2], args[0]]).unwrap();
    assert_eq!(b.ty(results[1]), &f32s(&[8]));
    assert_eq!(b.ty(results[2]).dtype(), DType::I64);
    let func = b.finish(&results, none()).unwrap();
    assert_eq!(parse(&func.to_string()).unwrap().hash(), func.hash());
}

#[test]
fn inlining_binds_symbols_and_keeps_both_places() {
    let text = "func @f(%x: tensor<[n, 4], f32>) {
  %s = graph.slice %x {start = [0, 1], limit = [n, 4]} : tensor<[n, 3], f32>
  %d = graph.dim {name = (2 * n)} : tensor<[], i64>
  %l = graph.loop xs(%s) {trip = n} : tensor<[n, 3], f32> do (%i: tensor<[], i64>, %r: tensor<[3], f32>) {
    graph.yield %r
  }
  graph.return %l, %d
}
";
    let callee = parse(text).unwrap();
    verify::<Graph>(&callee).unwrap();
    let mut b = GraphBuilder::new("g");
    let x = b.param("x", f32s(&[6, 4]));
    let file = SourceFile::new("model.py", "", 1);
    let results = b.inline(&callee, &[x], &Loc::span(&file, 9, 1, 9, 2)).unwrap();
    let func = b.finish(&results, none()).unwrap();
    let got = func.to_string();
    assert!(got.contains("limit = [6, 4]} : tensor<[6, 3], f32>"), "{got}");
    assert!(got.contains("graph.dim {name = 12}") && got.contains("{trip = 6}"), "{got}");
    assert_eq!(func.ops[func.walk()[0]].loc.call_site().unwrap().line(), 9);
    let mut b = GraphBuilder::new("g");
    let x = b.param("x", f32s(&[6, 5]));
    let e = b.inline(&callee, &[x], &none()).unwrap_err();
    assert_eq!(
        e.message,
        "expected an argument of type tensor<[n, 4], f32>, got tensor<[6, 5], f32>"
    );
    let symbols = [("n".into(), DimExpr::Const(5))].into();
    let five = clone_with(&callee, "five", &symbols);
    verify::<Graph>(&five).unwrap();
    assert_eq!(five.ty(five.params()[0]), &f32s(&[5, 4]));
    // Op by op, with what stands for a parameter chosen by the caller.
    let mut b = GraphBuilder::new("h");
    let y = b.param("y", f32s(&[5, 4]));
    let mut copier = Copier::new(&five);
    copier.set(five.params()[0], y);
    let sliced = b.copy_op(&mut copier, five.walk()[0]);
    assert_eq!(b.ty(sliced[0]), &f32s(&[5, 3]));
}

const CALLS: &str = "module @m : graph {version = 1}

func @f(%x: tensor<[n], f32>) {
  %y = graph.exp %x : tensor<[n], f32>
  %unused = graph.add %y, %y : tensor<[n], f32>
  graph.return %y
}

func @main(%x: tensor<[8], f32>, %p: tensor<[], bool>) {
  %a = graph.call %x {callee = @f} : tensor<[8], f32>
  %b = graph.call %x {callee = @f, kind = checkpoint} : tensor<[8], f32>
  %c = graph.cond %p : tensor<[8], f32> do {
    %e = graph.neg %x : tensor<[8], f32>
    graph.yield %e
  } do {
    graph.yield %a
  }
  graph.kernel_call %x {kernel = @look, privileges = [read]}
  graph.return %b
}

func @alone(%x: tensor<[n], f32>) {
  graph.return %x
}
";

#[test]
fn what_nobody_uses_goes_and_what_is_seen_stays() {
    let mut module: GraphModule = parse_module(CALLS, "m").unwrap();
    verify_module(&module).unwrap();
    let main = module.func("main").unwrap();
    let uses = walk::uses(main);
    assert_eq!(uses[main.params()[0]].len(), 4);
    let cond = main.walk()[2];
    assert_eq!(walk::captures(main, main.ops[cond].regions[0]), [main.params()[0]]);
    assert_eq!(walk::pure_functions(&module).into_iter().collect::<Vec<_>>(), ["alone", "f"]);
    assert!(walk::dce_module(&mut module, &["main"]));
    assert!(!walk::dce_module(&mut module, &["main"]));
    let text = module.to_string();
    assert!(
        !text.contains("unused") && !text.contains("cond") && !text.contains("alone"),
        "{text}"
    );
    assert_eq!(text.matches("graph.call").count(), 1);
    assert!(text.contains("kernel_call"));
    verify_module(&module).unwrap();
    assert_eq!(walk::fresh_name(&module, "f"), "f.1");
}

#[test]
fn calls_must_fit_their_functions() {
    let broken = |from: &str, to: &str| {
        assert!(CALLS.contains(from));
        let module: GraphModule = parse_module(&CALLS.replacen(from, to, 1), "m").unwrap();
        let errors = verify_module(&module).unwrap_err();
        let all: Vec<_> = errors.iter().map(|d| format!("{} {}", d.code, d.message)).collect();
        all.join("\n")
    };
    assert_eq!(
        broken("{callee = @f}", "{callee = @g}"),
        "E_NAME expected a function of the module in `callee`, got @g"
    );
    assert_eq!(
        broken("%x: tensor<[8], f32>, %p", "%x: tensor<[8], f64>, %p").lines().next().unwrap(),
        "E_TYPE expected the result type tensor<[8], f64>, got tensor<[8], f32>"
    );
    assert_eq!(
        broken("%x: tensor<[n], f32>) {\n  %y", "%x: tensor<[4], f32>) {\n  %y").lines().next(),
        Some("E_TYPE expected the result type tensor<[4], f32>, got tensor<[n], f32>")
    );
    assert_eq!(
        broken(
            "%b = graph.call %x {callee = @f, kind = checkpoint} : tensor<[8], f32>",
            "%b = graph.call %x {callee = @f} : tensor<[9], f32>"
        ),
        "E_TYPE expected @f to give (tensor<[8], f32>), got (tensor<[9], f32>)"
    );
    assert_eq!(
        broken("graph.call %x {callee = @f}", "graph.call %x, %p {callee = @f}"),
        "E_GRAPH_INVALID expected 1 arguments for @f, got 2"
    );
    assert_eq!(
        broken(
            "%y = graph.exp %x : tensor<[n], f32>",
            "%y = graph.call %x {callee = @f} : tensor<[n], f32>"
        ),
        "E_GRAPH_INVALID expected functions that do not call themselves, got @f"
    );
    assert_eq!(
        broken("graph.call %x {callee = @f}", "graph.call %p {callee = @f}"),
        "E_SHAPE_MISMATCH expected an argument of type tensor<[n], f32> for @f, got tensor<[], bool>"
    );
}

#[test]
fn short_ways_give_what_the_rules_say() {
    use tessera_graph::DotAxes;
    use tessera_numerics::{ReduceOp, ScalarFn};
    let at = none();
    let mut b = GraphBuilder::new("f");
    let n = || Dim::Expr(DimExpr::sym("n"));
    let x = b.param("x", tensor(vec![n(), 8.into()], NumType::plain(DType::F32)));
    let zero = b.splat(0.0, &f32s(&[]), &at).unwrap();
    let padded = b
        .pad(
            (x, zero),
            &[DimExpr::Const(1), DimExpr::Const(0)],
            &[DimExpr::Const(0), DimExpr::Const(0)],
            &[0, 1],
            &at,
        )
        .unwrap();
    assert_eq!(b.ty(padded).to_string(), "tensor<[(n + 1), 15], f32>");
    let end = [DimExpr::sym("n"), DimExpr::Const(15)];
    let cut = b.slice(padded, &[DimExpr::Const(0), DimExpr::Const(0)], &end, &[1, 2], &at).unwrap();
    assert_eq!(b.ty(cut), b.ty(x));
    let turned = b.transpose(cut, &[1, 0], &at).unwrap();
    let axes = DotAxes { contract_a: vec![1], contract_b: vec![0], ..DotAxes::default() };
    let square = b.dot((x, turned), &axes, Some(DType::F64), &at).unwrap();
    assert_eq!(b.ty(square).to_string(), "tensor<[n, n], f64>");
    let sum = b.reduce(ReduceOp::Sum, square, &[1], &at).unwrap();
    let wide = b.broadcast(sum, &[n(), 8.into()], &[0], &at).unwrap();
    let back = b.cast(wide, DType::F32, &at).unwrap();
    let flat = b.reshape(back, &[tessera_graph::dims::count(&[n(), 8.into()])], &at).unwrap();
    assert_eq!(b.ty(flat).to_string(), "tensor<[(8 * n)], f32>");
    let more = b.ew(ScalarFn::Mul, &[back, x], &at).unwrap();
    let both = b.concat(&[more, x], 0, &at).unwrap();
    let mirrored = b.reverse(both, &[0], &at).unwrap();
    let positions = b.iota(&f32s(&[3]), 0, &at).unwrap();
    let three =
        b.dense(&[1, 0, 2, 0], &tensor(vec![2.into()], NumType::plain(DType::I16)), &at).unwrap();
    let size = b.extent(DimExpr::sym("n"), &at).unwrap();
    let truth = b.splat(1.0, &tensor(vec![], NumType::plain(DType::Bool)), &at).unwrap();
    let chosen = b.select(truth, x, back, &at).unwrap();
    let func = b.finish(&[flat, mirrored, positions, three, size, chosen], none()).unwrap();
    assert_eq!(parse(&func.to_string()).unwrap().hash(), func.hash());
}
