//! Plans with steps on several queues: their streams and events on a device.

use super::rig::{Rig, Row};
use super::waits::{ORDERS, every_wait_is_needed};
use crate::graph::check::module;
use tessera_diag::Diagnostics;
use tessera_driver::device::Stream;
use tessera_driver::graph::{
    GraphOptions, GraphProgram, HostKernels, PlanOptions, argument_type, compile_graph,
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

fn run(rig: &Rig, capture: bool, runs: usize) -> Result<Vec<f32>, Diagnostics> {
    let program = queued(rig)?;
    let stream = Stream::new(rig.id)?;
    let on = stream.handle();
    let square = |values: Option<Square>| -> Result<Row, Diagnostics> {
        let mut row = rig.row(64, on)?;
        if let Some(values) = values {
            row.write(&values.concat(), rig.queue(on))?;
        }
        (row.view.dims, row.view.strides) = (vec![8, 8], vec![32, 4]);
        Ok(row)
    };
    let (x, y) = (square(Some(argument(7)))?, square(Some(argument(3)))?);
    let mut out = square(None)?;
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
    every_wait_is_needed(|rig| run(rig, false, 1), &wanted());
}

#[test]
fn a_captured_plan_gives_the_same() {
    for order in ORDERS {
        let rig = Rig::new(order);
        let out = run(&rig, true, 3).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((out, rig.fake.hazards()), (wanted(), Vec::new()), "{order:?}");
        assert!(rig.fake.calls_of(Call::GraphLaunch) > 0);
    }
}
