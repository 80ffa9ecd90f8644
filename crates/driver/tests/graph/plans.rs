//! Plans: what is fused, how the text explains it, and what options change.

use super::check::{agree, arguments, compile, module};
use tessera_diag::Diagnostics;
use tessera_driver::graph::{GraphOptions, HostKernels, PlanOptions, argument_type, compile_graph};
use tessera_driver::{Backends, BufferArg};
use tessera_interp::{HostArray, KernelCall, Kernels, NoKernels, run_graph};

const NORM: &str =
    "func @f(%x: tensor<[64, 48], f32>, %w: tensor<[48, 32], f32>, %b: tensor<[32], f32>) {
  %m = graph.reduce %x {op = max, axes = [1]} : tensor<[64], f32>
  %mb = graph.broadcast %m {dims = [0]} : tensor<[64, 48], f32>
  %c = graph.sub %x, %mb : tensor<[64, 48], f32>
  %e = graph.exp %c : tensor<[64, 48], f32>
  %s = graph.reduce %e {op = sum, axes = [1]} : tensor<[64], f32>
  %sb = graph.broadcast %s {dims = [0]} : tensor<[64, 48], f32>
  %p = graph.div %e, %sb : tensor<[64, 48], f32>
  %d = graph.dot %p, %w {contract_a = [1], contract_b = [0]} : tensor<[64, 32], f32>
  %bb = graph.broadcast %b {dims = [1]} : tensor<[64, 32], f32>
  %y = graph.add %d, %bb : tensor<[64, 32], f32>
  %z = graph.tanh %y : tensor<[64, 32], f32>
  graph.return %z
}";

#[test]
fn a_softmax_and_a_product_are_two_kernels() {
    let module = module(NORM);
    let args = arguments(&module, "f");
    let program = compile(&module, &args, PlanOptions::default());
    assert_eq!(
        (program.stats().launches, program.stats().host_ops),
        (2, 0),
        "{}",
        program.plan_text()
    );
}

#[test]
fn a_plan_is_read_back_and_changed() {
    let module = module(NORM);
    let args = arguments(&module, "f");
    let wanted = run_graph(&module, "f", &args, &mut NoKernels).unwrap();
    let first = compile(&module, &args, PlanOptions::default());
    let text = first.plan_text();
    assert!(text.contains("%p = sched.store {at = 0} : view<[64, 48], f32, read_write>"), "{text}");
    let again = compile(&module, &args, PlanOptions::from_text(&text).unwrap());
    assert_eq!(again.plan_text(), text);
    let changed: String = text
        .lines()
        .map(|line| {
            match line.trim_start().starts_with("%e =") || line.trim_start().starts_with("%d =") {
                true => line.replace("sched.fused", "sched.store") + "\n",
                false => format!("{line}\n"),
            }
        })
        .collect();
    assert_ne!(changed, text);
    let more = compile(&module, &args, PlanOptions::from_text(&changed).unwrap());
    let text = more.plan_text();
    assert!(text.contains("%e = sched.store") && text.contains("%d = sched.store"), "{text}");
    agree(&more.run(&args).unwrap()[0], &wanted[0], &text);
    for (wrong, why) in [
        ("", "one function"),
        ("func @f() {\n  %x = sched.store : view<[4], f32, read>\n  sched.return\n}", "read_write"),
        ("func @f() {\n  sched.fuse\n  sched.return\n}", "`sched.fuse`"),
    ] {
        let error = PlanOptions::from_text(wrong).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_plan_runs_on_the_interpreter_of_tiles_too() {
    let module = module(NORM);
    let args = arguments(&module, "f");
    let wanted = run_graph(&module, "f", &args, &mut NoKernels).unwrap();
    let types: Vec<_> = args.iter().map(|a| argument_type(&a.dims, a.dtype)).collect();
    let options = GraphOptions { backend: Some("interp".into()), ..GraphOptions::default() };
    let program = compile_graph(&module, "f", &types, &Backends::default(), &options).unwrap();
    assert_eq!(program.backend(), "interp");
    agree(&program.run(&args).unwrap()[0], &wanted[0], "interp");
}

#[test]
fn memory_is_shared_between_values_that_are_never_live_together() {
    let mut text =
        String::from("func @f(%x: tensor<[64, 64], f32>, %y: tensor<[64, 64], f32>) {\n");
    for i in 0..8 {
        let from = if i == 0 { "%y".into() } else { format!("%d{}", i - 1) };
        text += &format!(
            "  %d{i} = graph.dot {from}, %x {{contract_a = [1], contract_b = [0]}} : tensor<[64, 64], f32>\n"
        );
    }
    text += "  graph.return %d7\n}";
    let module = module(&text);
    let program = compile(&module, &arguments(&module, "f"), PlanOptions::default());
    let stats = program.stats();
    assert_eq!(stats.launches, 8);
    assert_eq!(stats.kernels, 1, "products of one form are one kernel");
    assert_eq!(stats.scratch_bytes, 2 * 64 * 64 * 4, "two buffers in turn");
}

#[test]
fn a_donated_argument_is_written_over() {
    let text = "func @f(%p: tensor<[300], f32>, %g: tensor<[300], f32>, %q: tensor<[300], f32>) {
  %s = graph.mul %g, %g : tensor<[300], f32>
  %n = graph.sub %p, %s : tensor<[300], f32>
  %t = graph.reduce %q {op = sum, axes = [0]} : tensor<[], f32>
  graph.return %n, %t
}";
    let module = module(text);
    let args = arguments(&module, "f");
    let wanted = run_graph(&module, "f", &args, &mut NoKernels).unwrap();
    let program = compile(&module, &args, PlanOptions::default());
    assert_eq!(program.donations(), [(0, 0)], "{}", program.plan_text());
    let mut held = args.clone();
    let mut total = HostArray::zeros(&[], wanted[1].dtype);
    let of = |a: &mut HostArray| BufferArg {
        data: a.bytes.as_mut_ptr(),
        dims: a.dims.clone(),
        strides: a.strides(),
        dtype: a.dtype,
        writable: true,
    };
    let inputs: Vec<BufferArg> = held.iter_mut().map(of).collect();
    let outputs = [inputs[0].clone(), of(&mut total)];
    program.run_into(&inputs, &outputs, &mut HostKernels(&mut NoKernels)).unwrap();
    agree(&held[0], &wanted[0], "in place");
    agree(&total, &wanted[1], "beside it");
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    let module = module(NORM);
    let args = arguments(&module, "f");
    let program = compile(&module, &args, PlanOptions::default());
    let error = program.run(&args[..2]).unwrap_err().to_string();
    assert!(error.contains("expected 3 arguments, got 2"), "{error}");
    let mut wrong = args.clone();
    wrong[2] = HostArray::zeros(&[31], wrong[2].dtype);
    let error = program.run(&wrong).unwrap_err().to_string();
    assert!(error.contains("tensor<[32], f32>") && error.contains("[31]"), "{error}");
}

/// Doubles what it may write.
struct Doubles;

impl Kernels for Doubles {
    fn call(&mut self, call: &KernelCall<'_>, args: &mut [HostArray]) -> Result<(), Diagnostics> {
        assert_eq!(call.kernel, "k");
        for (a, p) in args.iter_mut().zip(call.privileges) {
            if p.writes() {
                let twice: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
                *a = HostArray::new(&a.dims, a.dtype, &twice);
            }
        }
        Ok(())
    }
}

#[test]
fn kernels_of_the_user_are_called_on_versions_of_their_own() {
    let text = "func @f(%x: tensor<[6], f32>, %z: tensor<[6], f32>) {
  %e = graph.neg %z : tensor<[6], f32>
  %z1 = graph.kernel_call %x, %e {kernel = @k, privileges = [read, read_write]} : tensor<[6], f32>
  %y = graph.add %z1, %x : tensor<[6], f32>
  graph.return %y
}";
    let module = module(text);
    let args = arguments(&module, "f");
    let wanted = run_graph(&module, "f", &args, &mut Doubles).unwrap();
    let program = compile(&module, &args, PlanOptions::default());
    let got = program.run_with(&args, &mut HostKernels(&mut Doubles)).unwrap();
    agree(&got[0], &wanted[0], &program.plan_text());
    assert!(program.run(&args).unwrap_err().to_string().contains("@k"));
}
