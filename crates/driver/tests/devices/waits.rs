//! Each wait of the driver is needed: left out in turn, every one is found.

use super::rig::{Rig, Row, scaled};
use crate::graph::check::module;
use tessera_diag::Diagnostics;
use tessera_driver::device::{self, Stream};
use tessera_driver::graph::{
    GraphOptions, GraphProgram, HostKernels, PlanOptions, argument_type, compile_graph,
};
use tessera_driver::{NoKernels, Streams};
use tessera_fake_device::{Call, Order};
use tessera_numerics::DType;

pub const ORDERS: [Order; 4] = [Order::Early, Order::Late, Order::Random(1), Order::Random(2)];

/// Runs a program as it is, in every order, and then without each of its waits.
pub fn every_wait_is_needed(
    program: impl Fn(&Rig) -> Result<Vec<f32>, Diagnostics>,
    wanted: &[f32],
) {
    let run = |rig: &Rig, left_out| {
        rig.fake.fail(None);
        rig.fake.leave_out_wait(left_out);
        let out = program(rig).unwrap_or_else(|e| panic!("{e}"));
        rig.fake.leave_out_wait(None);
        out
    };
    for order in ORDERS {
        let rig = Rig::new(order);
        assert_eq!(run(&rig, None), wanted, "{order:?}");
        assert_eq!(rig.fake.hazards(), [""; 0], "{order:?}");
        let waits = rig.fake.calls_of(Call::Wait);
        assert!(waits > 0);
        for number in 0..waits {
            let rig = Rig::new(order);
            run(&rig, Some(number));
            assert!(!rig.fake.hazards().is_empty(), "{order:?}: wait {number} of {waits}");
        }
    }
}

#[test]
fn those_around_a_launch() {
    let program = |rig: &Rig| {
        let (a, b, c) = (Stream::new(rig.id)?, Stream::new(rig.id)?, Stream::new(rig.id)?);
        let (x, y) = (rig.row(5, a.handle())?, rig.row(5, b.handle())?);
        x.write(&[1.0, 2.0, 3.0, 4.0, 5.0], rig.queue(a.handle()))?;
        let streams = Streams { on: b.handle(), after: vec![a.handle()], then: vec![c.handle()] };
        rig.launch(&scaled(), (&x, &y), streams)?;
        y.read(rig.queue(c.handle()))
    };
    every_wait_is_needed(program, &[3.0, 6.0, 9.0, 12.0, 15.0]);
}

#[test]
fn those_of_copies_between_streams() {
    let program = |rig: &Rig| {
        let (a, b) = (Stream::new(rig.id)?, Stream::new(rig.id)?);
        let (x, y) = (rig.row(2, a.handle())?, rig.row(2, a.handle())?);
        let (qa, qb) = (rig.queue(a.handle()), rig.queue(b.handle()));
        x.write(&[7.0, 8.0], qa)?;
        device::wait_for(qb, &[x.memory.last()])?;
        x.memory.used_on(qb.stream);
        y.memory.used_on(qb.stream);
        device::copy_on_device(y.memory.address(), x.memory.address(), 8, qb)?;
        device::wait_for(qa, &[y.memory.last()])?;
        y.read(qa)
    };
    every_wait_is_needed(program, &[7.0, 8.0]);
}

/// A function with memory of its own between its kernels.
pub fn softmax(rig: &Rig) -> Result<GraphProgram, Diagnostics> {
    let text = "func @f(%x: tensor<[4, 8], f32>) {
  %m = graph.reduce %x {op = max, axes = [1]} : tensor<[4], f32>
  %mb = graph.broadcast %m {dims = [0]} : tensor<[4, 8], f32>
  %d = graph.sub %x, %mb : tensor<[4, 8], f32>
  %s = graph.reduce %d {op = sum, axes = [0]} : tensor<[8], f32>
  graph.return %s
}";
    let types = [argument_type(&[4, 8], DType::F32)];
    // Without fusion each op is a launch, and what is between them has memory.
    let plan = PlanOptions { separate: true, ..PlanOptions::default() };
    let options = GraphOptions { device: Some(rig.id), plan, ..GraphOptions::default() };
    compile_graph(&module(text), "f", &types, &rig.backends, &options)
}

/// Its arrays: the argument, written on a stream, and the result.
pub fn arrays(rig: &Rig, stream: u64) -> Result<(Row, Row), Diagnostics> {
    let (mut x, y) = (rig.row(32, stream)?, rig.row(8, stream)?);
    let values: Vec<f32> = (0..32).map(|i| (i * 7 % 11) as f32).collect();
    x.write(&values, rig.queue(stream))?;
    (x.view.dims, x.view.strides) = (vec![4, 8], vec![32, 4]);
    Ok((x, y))
}

fn wanted() -> Vec<f32> {
    let x = |r: usize, c: usize| ((8 * r + c) * 7 % 11) as f32;
    let most = |r: usize| (0..8).map(|c| x(r, c)).fold(0.0, f32::max);
    (0..8).map(|c| (0..4).map(|r| x(r, c) - most(r)).sum()).collect()
}

/// Runs a function on one stream after another, with arrays of each.
fn on_two_streams(rig: &Rig, capture: bool, runs: usize) -> Result<Vec<f32>, Diagnostics> {
    let program = softmax(rig)?;
    let (a, b) = (Stream::new(rig.id)?, Stream::new(rig.id)?);
    let (first, second) = (arrays(rig, a.handle())?, arrays(rig, b.handle())?);
    for run in 0..runs {
        let (on, (x, y)) = if run % 2 == 0 { (a.handle(), &first) } else { (b.handle(), &second) };
        let streams = Streams { on, ..Streams::default() };
        let (ins, outs) = ([x.view.clone()], [y.view.clone()]);
        let mut none = NoKernels;
        let mut kernels = HostKernels(&mut none);
        match capture {
            true => program.replay_on(&ins, &outs, rig.id, &streams, &mut kernels)?,
            false => program.run_on(&ins, &outs, rig.id, &streams, &mut kernels)?,
        }
    }
    assert_eq!(second.1.read(rig.queue(b.handle()))?, wanted());
    first.1.read(rig.queue(a.handle()))
}

#[test]
fn those_between_runs_of_a_function_on_two_streams() {
    every_wait_is_needed(|rig| on_two_streams(rig, false, 2), &wanted());
}

#[test]
fn captured_runs_give_the_same() {
    for order in ORDERS {
        let rig = Rig::new(order);
        let out = on_two_streams(&rig, true, 6).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((out, rig.fake.hazards()), (wanted(), Vec::new()), "{order:?}");
        assert!(rig.fake.calls_of(Call::GraphLaunch) > 0);
    }
}

#[test]
fn a_call_is_replayed_on_the_device() {
    let rig = Rig::new(Order::Late);
    let kernel = scaled();
    let (x, y) = (rig.row(3, 0).unwrap(), rig.row(3, 0).unwrap());
    for value in [1.0, 2.0] {
        x.write(&[value; 3], rig.queue(0)).unwrap();
        rig.launch(&kernel, (&x, &y), Streams::default()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(y.read(rig.queue(0)).unwrap(), [3.0 * value; 3]);
    }
    assert!(kernel.explain().text.contains("cache hit"));
    assert_eq!(rig.fake.hazards(), [""; 0]);
}
