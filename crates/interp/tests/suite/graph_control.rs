//! Graph IR: regions, calls, symbols, kernels, and what is refused when sizes become known.

use super::graph::{array, eval, refused};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_graph::{GraphBuilder, GraphModule, GraphOp, Windows, tensor};
use tessera_interp::{HostArray, KernelCall, Kernels, NoKernels, run_graph};
use tessera_ir::{Attr, DimExpr, OpSpec};
use tessera_numerics::{DType, NumType};

fn f32s(values: &[f64]) -> HostArray {
    array(&[values.len() as i64], DType::F32, values)
}

#[test]
fn branches_run_one_region() {
    let text = "func @f(%p: tensor<[], bool>, %x: tensor<[n], f32>) {
  %r, %s = graph.cond %p : tensor<[n], f32>, tensor<[n], f32> do {
    %a = graph.neg %x : tensor<[n], f32>
    graph.yield %a, %x
  } do {
    graph.yield %x, %x
  }
  graph.return %r
}
";
    let x = f32s(&[1.0, 2.0]);
    let p = |v| array(&[], DType::Bool, &[v]);
    assert_eq!(eval(text, &[p(1.0), x.clone()]), ["[2] [-1.0, -2.0]"]);
    assert_eq!(eval(text, &[p(0.0), x]), ["[2] [1.0, 2.0]"]);
}

#[test]
fn loops_carry_step_and_stack() {
    let text = |reverse: bool| {
        format!(
            "func @f(%x: tensor<[n, 2], i32>, %z: tensor<[2], i32>) {{
  %last, %before, %at = graph.loop init(%z) xs(%x) {{trip = n, reverse = {reverse}}} : tensor<[2], i32>, tensor<[n, 2], i32>, tensor<[n], i64> do (%i: tensor<[], i64>, %c: tensor<[2], i32>, %row: tensor<[2], i32>) {{
    %next = graph.add %c, %row : tensor<[2], i32>
    graph.yield %next, %c, %i
  }}
  graph.return %last, %before, %at
}}
"
        )
    };
    let x = array(&[3, 2], DType::I32, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let z = array(&[2], DType::I32, &[0.0, 0.0]);
    assert_eq!(
        eval(&text(false), &[x.clone(), z.clone()]),
        ["[2] [9, 12]", "[3, 2] [0, 0, 1, 2, 4, 6]", "[3] [0, 1, 2]"]
    );
    assert_eq!(
        eval(&text(true), &[x, z.clone()]),
        ["[2] [9, 12]", "[3, 2] [8, 10, 5, 6, 0, 0]", "[3] [0, 1, 2]"]
    );
    let none = array(&[0, 2], DType::I32, &[]);
    assert_eq!(eval(&text(false), &[none, z]), ["[2] [0, 0]", "[0, 2] []", "[0] []"]);
    let halves = "func @f(%x: tensor<[], i64>, %two: tensor<[], i64>) {
  %n, %r = graph.while init(%two, %x) : tensor<[], i64>, tensor<[], i64> do (%a: tensor<[], i64>, %b: tensor<[], i64>) {
    %k = graph.gt %b, %two : tensor<[], bool>
    graph.yield %k
  } do (%c: tensor<[], i64>, %d: tensor<[], i64>) {
    %h = graph.floordiv %d, %two : tensor<[], i64>
    %m = graph.mul %c, %two : tensor<[], i64>
    graph.yield %m, %h
  }
  graph.return %n, %r
}
";
    let int = |v| array(&[], DType::I64, &[v]);
    assert_eq!(eval(halves, &[int(100.0), int(2.0)]), ["[] [128]", "[] [1]"]);
}

const CALLS: &str = "module @m : graph {version = 1}

func @twice(%x: tensor<[n], f32>) {
  %y = graph.add %x, %x : tensor<[n], f32>
  %n = graph.dim {name = (n + 1)} : tensor<[], i64>
  graph.return %y, %n
}

func @f(%x: tensor<[a], f32>) {
  %j = graph.concat %x, %x {axis = 0} : tensor<[(2 * a)], f32>
  %y, %n = graph.call %j {callee = @twice, kind = checkpoint} : tensor<[(2 * a)], f32>, tensor<[], i64>
  %s = graph.stop_gradient %y : tensor<[(2 * a)], f32>
  %b, %c = graph.opt_barrier %s, %n : tensor<[(2 * a)], f32>, tensor<[], i64>
  graph.return %b, %c
}
";

#[test]
fn calls_bind_the_symbols_of_the_callee() {
    assert_eq!(eval(CALLS, &[f32s(&[1.0, 2.0])]), ["[4] [2.0, 4.0, 2.0, 4.0]", "[] [5]"]);
}

#[test]
fn sizes_that_do_not_fit_are_refused_at_the_op() {
    let text = "func @f(%x: tensor<[n], f32>, %y: tensor<[?], f32>, %z: tensor<[(2 * n)], f32>) {
  %s = graph.slice %x {start = [0], limit = [(n - 2)]} : tensor<[(n - 2)], f32>
  %r = graph.add %x, %y : tensor<[n], f32>
  graph.return %r
}
";
    let x = |n: usize| f32s(&vec![1.0; n]);
    assert_eq!(eval(text, &[x(3), x(3), x(6)]), ["[3] [2.0, 2.0, 2.0]"]);
    assert_eq!(
        refused(text, &[x(3), x(4), x(6)]),
        "E_SHAPE_MISMATCH expected operands of one shape, got [3] and [4]"
    );
    assert_eq!(
        refused(text, &[x(3), x(3), x(5)]),
        "E_LAUNCH_INVALID_SHAPE expected %z to be tensor<[(2 * n)], f32>, got tensor<[5], f32>"
    );
    assert_eq!(
        refused(text, &[x(1), x(1), x(2)]),
        "E_SHAPE_MISMATCH expected a range inside axis 0 of [1], got 0 to -1"
    );
    assert_eq!(refused(text, &[x(1)]), "E_ARGUMENT expected 3 arguments for @f, got 1");
    let kernel = "func @f(%x: tensor<[n], f32>) {
  %r = graph.kernel_call %x {kernel = @k, privileges = [read_write]} : tensor<[n], f32>
  graph.return %r
}
";
    assert_eq!(
        refused(kernel, &[x(1)]),
        "E_UNSUPPORTED expected a function that calls no kernel, got a call of @k"
    );
}

/// Adds its scalar to its array.
struct Shift;

impl Kernels for Shift {
    fn call(&mut self, call: &KernelCall<'_>, args: &mut [HostArray]) -> Result<(), Diagnostics> {
        if call.kernel != "shift" {
            return Err(Diagnostic::new(Code::E_NAME, call.kernel).into());
        }
        let by = args[1].values()[0];
        let moved: Vec<f64> = args[0].values().iter().map(|v| v + by).collect();
        args[0] = HostArray::new(&args[0].dims.clone(), args[0].dtype, &moved);
        Ok(())
    }
}

#[test]
fn kernels_give_new_versions_and_leave_the_old() {
    let text = "func @f(%x: tensor<[n], f32>, %a: f32) {
  %y = graph.add %x, %x : tensor<[n], f32>
  %z = graph.kernel_call %y, %a {kernel = @shift, privileges = [read_write, read]} : tensor<[n], f32>
  graph.return %z, %x
}
";
    let args = [f32s(&[1.0, 2.0]), array(&[], DType::F32, &[0.5])];
    let module = tessera_ir::parse_module(text, "f").unwrap();
    let out = run_graph(&module, "f", &args, &mut Shift).unwrap();
    assert_eq!([out[0].text(), out[1].text()], ["[2.5, 4.5]", "[1.0, 2.0]"]);
    let module = tessera_ir::parse_module(&text.replace("@shift", "@other"), "f").unwrap();
    let errors = run_graph(&module, "f", &args, &mut Shift).unwrap_err();
    assert_eq!(errors.iter().map(|d| d.code).collect::<Vec<_>>(), [Code::E_NAME]);
}

/// Reading where the largest elements are gives the largest elements, padding left out.
#[test]
fn window_positions_index_what_the_window_chose() {
    let at = Loc::unknown();
    let mut b = GraphBuilder::new("f");
    let x = b.param("x", tensor(vec![5.into(), 7.into()], NumType::plain(DType::F32)));
    let (window, strides, dilate) = (vec![2, 3], vec![2, 1], vec![1, 2]);
    let lo = vec![DimExpr::Const(1), DimExpr::Const(2)];
    let ints = |v: &[i64]| Attr::ints(v.iter().copied());
    let mut pooled = |code| {
        let spec = OpSpec::new(code, &[x])
            .attr("op", Attr::word("max"))
            .attr("window", ints(&window))
            .attr("strides", ints(&strides))
            .attr("lo", Attr::exprs(lo.clone()))
            .attr("hi", ints(&[0, 1]))
            .attr("dilate", ints(&dilate));
        b.value(spec, at.clone()).unwrap()
    };
    let (largest, chosen) = (pooled(GraphOp::WindowReduce), pooled(GraphOp::WindowArgReduce));
    let windows = Windows { window, strides, dilate, lo };
    let indices = b.window_indices(chosen, &windows, &at).unwrap();
    let read = OpSpec::new(GraphOp::Gather, &[x, indices])
        .attr("axes", ints(&[0, 1]))
        .attr("oob", Attr::word("fill"));
    let read = b.value(read, at.clone()).unwrap();
    let func = b.finish(&[largest, read], at).unwrap();
    let mut module = GraphModule::new("m");
    module.funcs.push(func);
    let values: Vec<f64> = (0..35).map(|i| ((i * 17) % 31) as f64 - 40.0).collect();
    let x = array(&[5, 7], DType::F32, &values);
    let out = run_graph(&module, "f", &[x], &mut NoKernels).unwrap();
    assert_eq!(out[0].dims, [3, 6]);
    assert_eq!(out[0].text(), out[1].text());
}
