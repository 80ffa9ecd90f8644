//! Malformed IR that text cannot express but a pass can build.

use std::collections::BTreeSet;
use tessera_diag::Loc;
use tessera_ir::{
    Attr, Builder, DimExpr, DimOp, OpSpec, PrintOptions, Rewriter, Type, module_level,
    parse_module, parse_module_as, verify,
};
use tessera_numerics::{DType, ScalarFn};
use tessera_tile::{
    Atom, Linear, Polynomial, Tile, TileBuild, TileFunc, TileOp, dim_expr_of, distance,
    launch_extent_of, linear_of, parse,
};

fn func(body: &str) -> TileFunc {
    parse(&format!("func @f(%x: f32, %n: i64) {{kind = group}} {{\n{body}\n  tile.return\n}}\n"))
        .unwrap()
}

fn errors(func: &TileFunc) -> String {
    verify(func).unwrap_err().iter().map(|d| format!("{} {}\n", d.code, d.message)).collect()
}

#[test]
fn use_before_definition_is_reported() {
    let mut f = func("  %a = tile.exp %x : f32\n  %b = tile.exp %a : f32");
    f.blocks[f.body].ops.swap(0, 1);
    assert_eq!(errors(&f), "E_NAME %a is not defined before this use\n");
}

#[test]
fn missing_regions_and_results_are_reported() {
    let mut f = func("  tile.for %n, %n, %n do (%i: i64) {\n    tile.yield\n  }");
    let id = f.walk()[0];
    f.ops[id].regions.clear();
    assert_eq!(errors(&f), "E_GRAPH_INVALID expected 1 regions, got 0\n");
    let mut f = func("  %a = tile.exp %x : f32");
    let id = f.walk()[0];
    f.ops[id].results.clear();
    assert_eq!(errors(&f), "E_GRAPH_INVALID expected 1 results, got 0\n");
}

#[test]
fn builder_refuses_a_group_the_op_does_not_have() {
    let mut f = func("");
    let x = f.params()[0];
    let body = f.body;
    let mut b = Builder::at_end(&mut f, body, Loc::unknown());
    let spec = OpSpec::new(TileOp::Select, &[x, x, x]).group("mask", &[x]).result(Type::BOOL);
    assert_eq!(b.op(spec).unwrap_err(), "expected a group of `tile.select`, got `mask`");
    // Inference does not look at operands that are not there.
    for code in [TileOp::Load, TileOp::Transpose, TileOp::Expand, TileOp::Reduce, TileOp::Gather] {
        assert!(b.op(OpSpec::new(code, &[]).attr("extent", Attr::ints([1]))).is_err());
    }
}

#[test]
fn rewriter_shows_a_value_it_was_never_reported_of() {
    let old = func("  %a = tile.exp %x : f32\n  %b = tile.exp %a : f32");
    let ops = old.walk();
    let mut r = Rewriter::new(&old);
    let body = r.new.body;
    // The pass forgets the first op: its id is that of another value in the new function.
    r.copy_op(ops[1], body);
    r.copy_op(ops[2], body);
    assert!(errors(&r.new).contains("E_NAME %nowhere is not defined before this use"), "{}", r.new);
    assert!(r.new.to_string().contains("tile.exp"));
}

#[test]
fn target_modules_have_a_level_name_of_their_own() {
    let text =
        "module @k : target.interp {version = 1}\n\nfunc @k() {kind = group} {\n  tile.return\n}\n";
    assert_eq!(module_level(text).as_deref(), Some("target.interp"));
    assert!(parse_module::<Tile>(text, "k").is_err());
    let module = parse_module_as::<Tile>(text, "k", "target.interp").unwrap();
    assert_eq!(module.to_text_as("target.interp", PrintOptions::default()), text);
}

#[test]
fn analyses_end_on_values_used_twice_over_and_over() {
    let mut f = func("");
    let n = f.params()[1];
    let body = f.body;
    let mut b = Builder::at_end(&mut f, body, Loc::unknown());
    let (mut sum, mut product) = (n, n);
    for _ in 0..64 {
        sum = b.ew(ScalarFn::Add, &[sum, sum]);
        product = b.ew(ScalarFn::Mul, &[product, product]);
    }
    assert_eq!(dim_expr_of(&f, sum), None);
    let _ = (linear_of(&f, sum), linear_of(&f, product));
}

#[test]
fn analyses_see_through_casts_that_keep_the_number() {
    let mut f = func("");
    let n = f.params()[1];
    let body = f.body;
    let mut b = Builder::at_end(&mut f, body, Loc::unknown());
    let two = b.constant(Type::Scalar(DType::I32), Attr::Int(2));
    let wide = b.cast(two, DType::I64);
    let narrow = b.cast(n, DType::I32);
    let unsigned = b.cast(two, DType::U32);
    assert_eq!(linear_of(&f, wide), Linear::constant(2));
    assert_eq!(linear_of(&f, narrow), Linear::atom(Atom::Value(narrow)));
    assert_eq!(linear_of(&f, unsigned), Linear::atom(Atom::Value(unsigned)));
    assert_eq!(dim_expr_of(&f, wide).map(|e| e.to_string()).as_deref(), Some("2"));
    assert_eq!(dim_expr_of(&f, narrow), None);
}

#[test]
fn narrow_arithmetic_is_taken_apart_where_it_does_not_wrap() {
    let text =
        "func @f(%y: view<[n], f32, write>, %b: u8, %i: i32, %u: u32, %l: u64) {kind = lane} {
  %b1 = tile.cast %b : i32
  %ci = tile.const {value = 1} : i32
  %cu = tile.const {value = 1} : u32
  %cl = tile.const {value = 1} : u64
  %c = tile.const {value = 1} : i64
  %byte = tile.sub %b1, %ci : i32
  %int = tile.sub %i, %ci : i32
  %unsigned = tile.sub %u, %cu : u32
  %long = tile.sub %l, %cl : u64
  %byte1 = tile.cast %byte : i64
  %int1 = tile.cast %int : i64
  %unsigned1 = tile.cast %unsigned : i64
  %long1 = tile.cast %long : i64
  %bw = tile.cast %b : i64
  %iw = tile.cast %i : i64
  %uw = tile.cast %u : i64
  %lw = tile.cast %l : i64
  %byte2 = tile.sub %bw, %c : i64
  %int2 = tile.sub %iw, %c : i64
  %unsigned2 = tile.sub %uw, %c : i64
  %long2 = tile.sub %lw, %c : i64
  tile.return
}";
    let f = parse(text).unwrap();
    let named = |name: &str| f.values.ids().find(|&v| f.name_of(v) == Some(name)).unwrap();
    let apart = |name: &str| {
        let [narrow, wide] = [1, 2].map(|i| named(&format!("{name}{i}")));
        let of = |v| Polynomial::of(&f, v, &BTreeSet::new()).unwrap();
        (of(narrow) == of(wide), distance(&f, narrow, wide, &BTreeSet::new()))
    };
    let zero = Some(DimExpr::Const(0));
    assert_eq!(apart("byte"), (true, zero.clone()));
    // The extent of a slice is what is written.
    for name in ["int", "unsigned", "long"] {
        assert_eq!(apart(name), (false, zero.clone()), "{name}");
        assert_eq!(dim_expr_of(&f, named(name)), None);
    }
    // An extent of the launch wraps as the kernel's u32 does.
    let less = |name: &str| DimExpr::bin(DimOp::Sub, DimExpr::sym(name), DimExpr::Const(1));
    assert_eq!(launch_extent_of(&f, named("int")), Some(less("i")));
    let wrapped = DimExpr::bin(DimOp::Mod, less("u"), DimExpr::Const(1 << 32));
    assert_eq!(launch_extent_of(&f, named("unsigned")), Some(wrapped));
}
