//! Plans: what is fused, how the text explains it, and what options change.

use super::check::{agree, arguments, compile, module};
use tessera_diag::Diagnostics;
use tessera_driver::graph::{
    GraphOptions, GraphProgram, HostKernels, PlanOptions, argument_type, compile_graph,
};
use tessera_driver::{Backends, BufferArg};
use tessera_interp::{HostArray, KernelCall, Kernels, NoKernels, QueueOrder, run_graph};
use tessera_numerics::DType;

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

/// Four matmuls; the first depends on none of the next two.
const FOUR: &str = "func @f(%x: tensor<[48, 48], f32>, %y: tensor<[48, 48], f32>) {
  %p = graph.dot %x, %y {contract_a = [1], contract_b = [0]} : tensor<[48, 48], f32>
  %q = graph.dot %y, %x {contract_a = [1], contract_b = [0]} : tensor<[48, 48], f32>
  %t = graph.dot %q, %x {contract_a = [1], contract_b = [0]} : tensor<[48, 48], f32>
  %c = graph.dot %p, %t {contract_a = [1], contract_b = [0]} : tensor<[48, 48], f32>
  graph.return %c
}";

fn given(text: &str) -> Result<GraphProgram, Diagnostics> {
    let types = [argument_type(&[48, 48], DType::F32), argument_type(&[48, 48], DType::F32)];
    let plan = PlanOptions::from_text(text)?;
    let options = GraphOptions { backend: Some("cpu".into()), plan, ..GraphOptions::default() };
    compile_graph(&module(FOUR), "f", &types, &Backends::default(), &options)
}

#[test]
fn the_order_queues_and_places_of_a_plan_are_changed() {
    let module = module(FOUR);
    let args = arguments(&module, "f");
    let first = compile(&module, &args, PlanOptions::default());
    let text = first.plan_text();
    let wanted = first.run(&args).unwrap();
    assert_eq!(given(&text).unwrap_or_else(|e| panic!("{e}")).plan_text(), text);
    let lines: Vec<&str> = text.lines().collect();
    let at = |what: &str| lines.iter().position(|l| l.contains(what)).expect("the line");
    let launches: Vec<usize> =
        (0..lines.len()).filter(|&i| lines[i].contains("sched.launch")).collect();
    let [p, q, t, c] = launches[..] else { panic!("{text}") };
    let swapped = |i: usize, j: usize| {
        let mut lines = lines.clone();
        lines.swap(i, j);
        lines.join("\n") + "\n"
    };
    // Another order, another place, and a queue of its own with its events.
    let begin = "  %begin = sched.record : event\n  sched.wait %begin {queue = 3}";
    let beside = lines[p].replace("writes", "queue = 3, writes");
    let done = "  %done = sched.record {queue = 3} : event";
    let queued = text
        .replace(lines[p], &format!("{begin}\n{beside}\n{done}"))
        .replace(lines[c], &format!("  sched.wait %done\n{}", lines[c]));
    let moved = text.replace("at = 0}", "at = 65536}");
    for changed in [swapped(p, q), queued.clone(), moved] {
        assert_ne!(changed, text);
        let program = given(&changed).unwrap_or_else(|e| panic!("{e}\n{changed}"));
        assert_eq!(program.run(&args).unwrap(), wanted, "{changed}");
        for seed in 0..8 {
            let mut none = NoKernels;
            let mut kernels = HostKernels(&mut none);
            let got = program.interpret(&args, &mut kernels, QueueOrder::Random(seed)).unwrap();
            assert_eq!(got, wanted, "{changed}");
        }
        assert_eq!(program.donations(), []);
        let again = program.plan_text();
        assert_eq!(given(&again).unwrap_or_else(|e| panic!("{e}\n{again}")).plan_text(), again);
    }
    // What changes the results, or may, is refused at its line.
    let refused = |text: String, line: usize, why: &str| {
        let Err(error) = given(&text) else { panic!("expected {why}:\n{text}") };
        let first = error.iter().next().expect("an error");
        assert!(first.message.contains(why), "{error}\n{text}");
        assert_eq!(first.loc.line() as usize, line + 1, "{error}\n{text}");
        assert!(first.help.is_some(), "{error}");
    };
    refused(swapped(t, c), t, "expected %t to be written before it is read");
    let lost = queued.replace("  sched.wait %done\n", "");
    let late = lost.lines().position(|l| l == lines[c]).expect("the launch");
    refused(lost, late, "expected queue 0 to wait for queue 3, which writes %p");
    let other = text.replace(lines[q], &lines[q].replace("of = \"dot\"", "of = \"add\""));
    refused(other, q, "got `sched.launch");
    refused(text.replace("{at = 0}", "{at = 65540}"), at("at = 0}"), "a multiple of 64 bytes");
    let place = lines[at("%q = sched.store")];
    let (before, _) = place.split_once("at = ").expect("a place");
    let over = format!("{before}at = 0}} : view<[48, 48], f32, read_write>");
    refused(text.replace(place, &over), q, "expected the place of %q to be free, got %p there");
    let device = text.replace(lines[q], &lines[q].replace("writes", "device = 1, writes"));
    refused(device, q, "expected a device of the plan, 0 to 0, got 1");
}

/// The call may only write its array, as far as the plan says: in another order it would be memory
/// that is written twice, which is no race.
#[test]
fn steps_that_access_the_same_memory_stay_in_order() {
    let text = "func @f(%x: tensor<[6], f32>, %z: tensor<[6], f32>) {
  %e = graph.neg %z : tensor<[6], f32>
  %z1 = graph.kernel_call %x, %e {kernel = @k, privileges = [read, read_write]} : tensor<[6], f32>
  %y = graph.add %z1, %x : tensor<[6], f32>
  graph.return %y
}";
    let module = module(text);
    let args = arguments(&module, "f");
    let text = compile(&module, &args, PlanOptions::default()).plan_text();
    let mut lines: Vec<&str> = text.lines().collect();
    let call = lines.iter().position(|l| l.contains("sched.call")).expect("the call");
    let before = lines[..call]
        .iter()
        .rposition(|l| l.contains("sched.launch") || l.contains("sched.copy"))
        .expect("the step before");
    let line = lines.remove(call);
    lines.insert(before, line);
    let types: Vec<_> = args.iter().map(|a| argument_type(&a.dims, a.dtype)).collect();
    let plan = PlanOptions::from_text(&lines.join("\n")).unwrap_or_else(|e| panic!("{e}"));
    let options = GraphOptions { backend: Some("cpu".into()), plan, ..GraphOptions::default() };
    let Err(error) = compile_graph(&module, "f", &types, &Backends::default(), &options) else {
        panic!("{lines:#?}")
    };
    let first = error.iter().next().expect("an error");
    assert!(first.message.contains("both access %"), "{error}");
    assert_eq!(first.loc.line() as usize, before + 2, "{error}\n{lines:#?}");
}
