//! Plans with steps on several queues: their streams and events on a device.

use super::rig::{Rig, Row};
use super::waits::{ORDERS, every_wait_is_needed};
use crate::graph::check::module;
use tessera_diag::Diagnostics;
use tessera_driver::device::{self, Stream};
use tessera_driver::graph::{
    GraphOptions, GraphProgram, HostKernels, MadeKernel, PlanOptions, argument_type, compile_graph,
};
use tessera_driver::{NoKernels, Streams};
use tessera_fake_device::Call;
use tessera_numerics::DType;

/// Four matmuls; the first depends on none of the next two.
const TEXT: &str = "func @f(%x: tensor<[8, 8], f32>, %y: tensor<[8, 8], f32>) {
  %p = graph.dot %x, %y {contract_a = [1], contract_b = [0]} : tensor<[8, 8], f32>
  %q = graph.dot %y, %x {contract_a = [1], contract_b = [0]} : tensor<[8, 8], f32>
  %t = graph.dot %q, %x {contract_a = [1], contract_b = [0]} : tensor<[8, 8], f32>
  %c = graph.dot %p, %t {contract_a = [1], contract_b = [0]} : tensor<[8, 8], f32>
  graph.return %c
}";

fn compiled(rig: &Rig, plan: PlanOptions) -> Result<GraphProgram, Diagnostics> {
    let options = GraphOptions { device: Some(rig.id), plan, ..GraphOptions::default() };
    let types = [argument_type(&[8, 8], DType::F32), argument_type(&[8, 8], DType::F32)];
    compile_graph(&module(TEXT), "f", &types, &rig.backends, &options)
}

/// The plan with its first launch on a queue of its own.
fn queued(rig: &Rig) -> Result<GraphProgram, Diagnostics> {
    let text = compiled(rig, PlanOptions::default())?.plan_text();
    let launches: Vec<&str> = text.lines().filter(|l| l.contains("sched.launch")).collect();
    let [first, _, _, last] = launches[..] else { panic!("{text}") };
    let beside = first.replace("writes", "queue = 1, writes");
    let begin = "  %begin = sched.record : event\n  sched.wait %begin {queue = 1}";
    let done = "  %done = sched.record {queue = 1} : event";
    let text = text
        .replace(first, &format!("{begin}\n{beside}\n{done}"))
        .replace(last, &format!("  sched.wait %done\n{last}"));
    let program = compiled(rig, PlanOptions::from_text(&text)?)?;
    assert!(program.plan_text().contains("queue = 1"), "{}", program.plan_text());
    Ok(program)
}

type Square = [[f32; 8]; 8];

fn argument(seed: usize) -> Square {
    std::array::from_fn(|r| std::array::from_fn(|c| ((8 * r + c) * seed % 5) as f32))
}

fn dot(a: &Square, b: &Square) -> Square {
    let one = |r: usize, c: usize| (0..8).map(|k| a[r][k] * b[k][c]).sum();
    std::array::from_fn(|r| std::array::from_fn(|c| one(r, c)))
}

fn wanted() -> Vec<f32> {
    let (x, y) = (argument(7), argument(3));
    dot(&dot(&x, &y), &dot(&dot(&y, &x), &x)).concat()
}

/// The plan on as many queues as its steps can use.
fn scheduled(rig: &Rig) -> Result<GraphProgram, Diagnostics> {
    let program = compiled(rig, PlanOptions { queues: Some(3), ..PlanOptions::default() })?;
    assert!(program.plan_text().contains("queue = 1"), "{}", program.plan_text());
    Ok(program)
}

fn square(rig: &Rig, on: u64, values: Option<Square>) -> Result<Row, Diagnostics> {
    let mut row = rig.row(64, on)?;
    if let Some(values) = values {
        row.write(&values.concat(), rig.queue(on))?;
    }
    (row.view.dims, row.view.strides) = (vec![8, 8], vec![32, 4]);
    Ok(row)
}

type Made = fn(&Rig) -> Result<GraphProgram, Diagnostics>;

fn run(rig: &Rig, made: Made, capture: bool, runs: usize) -> Result<Vec<f32>, Diagnostics> {
    let program = made(rig)?;
    let stream = Stream::new(rig.id)?;
    let on = stream.handle();
    let (x, y) = (square(rig, on, Some(argument(7)))?, square(rig, on, Some(argument(3)))?);
    let mut out = square(rig, on, None)?;
    for _ in 0..runs {
        let streams = Streams { on, ..Streams::default() };
        let (ins, outs) = ([x.view.clone(), y.view.clone()], [out.view.clone()]);
        let mut none = NoKernels;
        let mut kernels = HostKernels(&mut none);
        match capture {
            true => program.replay_on(&ins, &outs, rig.id, &streams, &mut kernels)?,
            false => program.run_on(&ins, &outs, rig.id, &streams, &mut kernels)?,
        }
    }
    (out.view.dims, out.view.strides) = (vec![64], vec![4]);
    out.read(rig.queue(on))
}

#[test]
fn every_event_of_a_plan_is_needed() {
    for made in [queued, scheduled] {
        every_wait_is_needed(|rig| run(rig, made, false, 1), &wanted());
    }
}

#[test]
fn runs_one_after_another_share_memory_and_streams() {
    for made in [queued, scheduled] {
        every_wait_is_needed(|rig| run(rig, made, false, 2), &wanted());
    }
}

/// A wait that is left out of a recording is an error when that ends, or a race when it is replayed.
#[test]
fn every_event_of_a_captured_plan_is_needed() {
    for (made, order) in [queued, scheduled].into_iter().flat_map(|m| ORDERS.map(|o| (m, o))) {
        let rig = Rig::new(order);
        let out = run(&rig, made, true, 3).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((out, rig.fake.hazards()), (wanted(), Vec::new()), "{order:?}");
        assert_eq!(rig.fake.calls_of(Call::GraphLaunch), 2);
        let waits = rig.fake.calls_of(Call::Wait);
        for number in 0..waits {
            let rig = Rig::new(order);
            rig.fake.leave_out_wait(Some(number));
            let done = run(&rig, made, true, 3);
            let found = done.is_err() || !rig.fake.hazards().is_empty();
            assert!(found, "{order:?}: wait {number} of {waits}");
        }
    }
}

/// A kernel of a user's with nothing to choose: no Python has to launch it.
#[test]
fn a_call_of_a_kernel_is_a_launch() {
    let text = "func @f(%x: tensor<[8], f32>) {
  %one = graph.const {value = 1.0} : tensor<[8], f32>
  %y = graph.kernel_call %x, %one {kernel = @k, privileges = [read, write], fresh = [1]} : tensor<[8], f32>
  %z = graph.add %y, %x : tensor<[8], f32>
  graph.return %z
}";
    let kernel =
        "func @k(%x: view<[8], f32, read>, %y: view<[8], f32, write>) {kind = lane, domain = 8} {
  %i = tile.linear_id : i64
  %v = tile.load %x at(%i) {extent = [0]} : f32
  %w = tile.mul %v, %v : f32
  tile.store %y, %w at(%i) {extent = [0]}
  tile.return
}";
    for order in ORDERS {
        let rig = Rig::new(order);
        let func = tessera_tile::parse(kernel).unwrap_or_else(|e| panic!("{e}"));
        let made = MadeKernel { func, args: vec![0, 1], required: false };
        let kernels = [("k".to_string(), made)].into();
        let options = GraphOptions { device: Some(rig.id), kernels, ..GraphOptions::default() };
        let types = [argument_type(&[8], DType::F32)];
        let program = compile_graph(&module(text), "f", &types, &rig.backends, &options)
            .unwrap_or_else(|e| panic!("{e}"));
        assert!(!program.plan_text().contains("sched.call"), "{}", program.plan_text());
        let run = || -> Result<Vec<f32>, Diagnostics> {
            let (x, y) = (rig.row(8, 0)?, rig.row(8, 0)?);
            x.write(&[3.0; 8], rig.queue(0))?;
            let (ins, outs) = ([x.view.clone()], [y.view.clone()]);
            let mut none = NoKernels;
            let mut kernels = HostKernels(&mut none);
            program.run_on(&ins, &outs, rig.id, &Streams::default(), &mut kernels)?;
            y.read(rig.queue(0))
        };
        assert_eq!(run(), Ok(vec![12.0; 8]), "{order:?}");
        assert_eq!(rig.fake.hazards(), [""; 0], "{order:?}");
    }
}

/// In a recording of the caller's, with a run in flight beside it.
#[test]
fn a_plan_in_a_graph_of_the_callers_gives_the_same() {
    for (made, order) in [queued, scheduled].into_iter().flat_map(|m| ORDERS.map(|o| (m, o))) {
        let rig = Rig::new(order);
        let out = inside(&rig, made).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((out, rig.fake.hazards()), (wanted(), Vec::new()), "{order:?}");
    }
}

fn inside(rig: &Rig, made: Made) -> Result<Vec<f32>, Diagnostics> {
    let program = made(rig)?;
    let stream = Stream::new(rig.id)?;
    let on = stream.handle();
    let (x, y) = (square(rig, on, Some(argument(7)))?, square(rig, on, Some(argument(3)))?);
    let (first, mut out) = (square(rig, on, None)?, square(rig, on, None)?);
    let ins = [x.view.clone(), y.view.clone()];
    let put = |to: &Row, on: u64| {
        let streams = Streams { on, ..Streams::default() };
        let mut none = NoKernels;
        let mut kernels = HostKernels(&mut none);
        program.run_on(&ins, std::slice::from_ref(&to.view), rig.id, &streams, &mut kernels)
    };
    put(&first, on)?;
    let recorded = device::begin_recording(rig.id)?;
    put(&out, recorded)?;
    let graph = device::end_recording()?;
    put(&first, on)?;
    graph.replay(on)?;
    drop(graph);
    (out.view.dims, out.view.strides) = (vec![64], vec![4]);
    out.read(rig.queue(on))
}
