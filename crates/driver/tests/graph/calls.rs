//! Kernels that belong to the code of a function: their calls are launches of its plan, on every machine.

use super::check::{module, noise};
use std::sync::Arc;
use tessera_driver::graph::{
    GraphOptions, GraphProgram, MadeKernel, MadeKernels, PlanOptions, argument_type,
    compile_graph_for,
};
use tessera_driver::{Backends, Choice};
use tessera_interp::HostArray;
use tessera_ir::Type;
use tessera_numerics::DType;
use tessera_ptx::PtxCaps;
use tessera_ptx_emulator::Emulated;

/// `y = x * s + t`, lane by lane.
const LANES: &str = "func @k(%x: view<[6], f32, read>, %s: f32, %t: f32, %y: view<[6], f32, write>) {kind = lane, domain = 6} {
  %i = tile.linear_id : i64
  %v = tile.load %x at(%i) {extent = [0]} : f32
  %w = tile.mul %v, %s : f32
  %u = tile.add %w, %t : f32
  tile.store %y, %u at(%i) {extent = [0]}
  tile.return
}";

/// The same, block by block, added to what is there.
const GROUPS: &str = "func @k(%x: view<[6], f32, read>, %s: f32, %t: f32, %y: view<[6], f32, read_write>) {kind = group, grid = [3]} {
  %p = tile.program_id {axis = 0} : i64
  %two = tile.const {value = 2} : i64
  %at = tile.mul %p, %two : i64
  %v = tile.load %x at(%at) {extent = [2]} : tile<2xf32>
  %o = tile.load %y at(%at) {extent = [2]} : tile<2xf32>
  %ss = tile.broadcast %s : tile<2xf32>
  %tt = tile.broadcast %t : tile<2xf32>
  %w = tile.mul %v, %ss : tile<2xf32>
  %u = tile.add %w, %tt : tile<2xf32>
  %z = tile.add %u, %o : tile<2xf32>
  tile.store %y, %z at(%at) {extent = [2]}
  tile.return
}";

fn compiled(text: &str, kernel: &str, args: &[HostArray], emulated: bool) -> GraphProgram {
    let module = module(text);
    let func = tessera_tile::parse(kernel).unwrap_or_else(|e| panic!("{e}"));
    let kernels: MadeKernels =
        [("k".to_string(), MadeKernel { func, args: vec![0, 1, 2, 3], required: true })].into();
    let types: Vec<Type> = args.iter().map(|a| argument_type(&a.dims, a.dtype)).collect();
    let choice = match emulated {
        true => {
            let caps = PtxCaps::of(90, true).expect("sm_90a").clone();
            Choice { backend: Arc::new(Emulated::new(caps)), why: "the test" }
        }
        false => Backends::default().to_compile(Some("interp")).unwrap_or_else(|e| panic!("{e}")),
    };
    let options = GraphOptions { plan: PlanOptions::default(), kernels, ..GraphOptions::default() };
    compile_graph_for(&module, "f", &types, choice, &options).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn numbers_are_parts_of_the_code_or_read_from_memory() {
    // 2.0 is known, the other number is an argument.
    let text = |privilege: &str, fresh: &str| {
        format!(
            "func @f(%x: tensor<[6], f32>, %t: tensor<[], f32>) {{
  %s = graph.const {{data = \"00000040\"}} : tensor<[], f32>
  %one = graph.const {{value = 1.0}} : tensor<[6], f32>
  %y = graph.kernel_call %x, %s, %t, %one {{kernel = @k, privileges = [read, read, read, {privilege}]{fresh}}} : tensor<[6], f32>
  %z = graph.add %y, %x
  graph.return %z
}}"
        )
    };
    let args = [noise(&[6], DType::F32, 1), HostArray::new(&[], DType::F32, &[0.5])];
    for emulated in [false, true] {
        for (kernel, text, more) in
            [(LANES, text("write", ", fresh = [3]"), 0.0), (GROUPS, text("read_write", ""), 1.0)]
        {
            let program = compiled(&text, kernel, &args, emulated);
            let plan = program.plan_text();
            assert!(!plan.contains("sched.call"), "{plan}");
            // An unused value is not computed.
            assert_eq!(plan.contains("of = \"const\""), more == 1.0, "{plan}");
            let got = program.run(&args).unwrap_or_else(|e| panic!("{e}\n{plan}"));
            for (g, x) in got[0].values().iter().zip(args[0].values()) {
                let wanted = (x as f32 * 2.0 + 0.5 + more) + x as f32;
                assert!((g - f64::from(wanted)).abs() < 1e-5, "{g} is not {wanted}");
            }
        }
    }
}

#[test]
fn a_kernel_that_nobody_knows_stays_a_call() {
    let text = "func @f(%x: tensor<[6], f32>) {
  %y = graph.kernel_call %x {kernel = @other, privileges = [read_write]} : tensor<[6], f32>
  graph.return %y
}";
    let program = compiled(text, LANES, &[noise(&[6], DType::F32, 1)], false);
    assert!(program.plan_text().contains("kernel = @other"), "{}", program.plan_text());
}

/// A call that only reads is made for its side effects: such calls keep the order of the text,
/// whatever they depend on.
#[test]
fn calls_that_only_read_keep_their_order() {
    let text = "func @f(%x: tensor<[6], f32>) {
  %s = graph.reduce %x {op = sum, axes = [0]} : tensor<[], f32>
  graph.kernel_call %s {kernel = @first, privileges = [read]}
  %r = graph.loop init(%s) {trip = 2} : tensor<[], f32> do (%i: tensor<[], i64>, %c: tensor<[], f32>) {
    graph.kernel_call %c {kernel = @second, privileges = [read]}
    %d = graph.add %c, %s : tensor<[], f32>
    graph.yield %d
  }
  graph.kernel_call %x {kernel = @third, privileges = [read]}
  graph.kernel_call %r {kernel = @fourth, privileges = [read]}
  graph.kernel_call {kernel = @fifth, privileges = []}
  graph.return %x
}";
    let plan = compiled(text, LANES, &[noise(&[6], DType::F32, 1)], false).plan_text();
    let places: Vec<Option<usize>> = ["first", "second", "third", "fourth", "fifth"]
        .iter()
        .map(|name| plan.find(&format!("@{name}")))
        .collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{plan}");
}
