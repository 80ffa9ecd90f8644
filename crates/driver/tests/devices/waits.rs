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
    every_wait_is_needed_after(|_| Ok(()), |rig, ()| program(rig), wanted);
}

/// The same for the waits of what comes after a part that has all of its own.
fn every_wait_is_needed_after<T>(
    before: impl Fn(&Rig) -> Result<T, Diagnostics>,
    program: impl Fn(&Rig, &T) -> Result<Vec<f32>, Diagnostics>,
    wanted: &[f32],
) {
    let run = |rig: &Rig, left_out| {
        let begun = before(rig).unwrap_or_else(|e| panic!("{e}"));
        rig.fake.fail(None);
        rig.fake.leave_out_wait(left_out);
        let out = program(rig, &begun).unwrap_or_else(|e| panic!("{e}"));
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

pub fn wanted() -> Vec<f32> {
    let x = |r: usize, c: usize| ((8 * r + c) * 7 % 11) as f32;
    let most = |r: usize| (0..8).map(|c| x(r, c)).fold(0.0, f32::max);
    (0..8).map(|c| (0..4).map(|r| x(r, c) - most(r)).sum()).collect()
}

/// A function with arrays of two streams.
struct OnTwoStreams {
    program: GraphProgram,
    sides: [(Stream, (Row, Row)); 2],
}

impl OnTwoStreams {
    fn new(rig: &Rig) -> Result<Self, Diagnostics> {
        let (a, b) = (Stream::new(rig.id)?, Stream::new(rig.id)?);
        let (first, second) = (arrays(rig, a.handle())?, arrays(rig, b.handle())?);
        Ok(Self { program: softmax(rig)?, sides: [(a, first), (b, second)] })
    }

    /// Puts runs on one stream after the other.
    fn put(&self, rig: &Rig, capture: bool, runs: usize) -> Result<(), Diagnostics> {
        for (on, (x, y)) in self.sides.iter().cycle().take(runs) {
            let streams = Streams { on: on.handle(), ..Streams::default() };
            let (ins, outs) = ([x.view.clone()], [y.view.clone()]);
            let mut none = NoKernels;
            let mut kernels = HostKernels(&mut none);
            match capture {
                true => self.program.replay_on(&ins, &outs, rig.id, &streams, &mut kernels)?,
                false => self.program.run_on(&ins, &outs, rig.id, &streams, &mut kernels)?,
            }
        }
        Ok(())
    }

    fn run(&self, rig: &Rig, capture: bool, runs: usize) -> Result<Vec<f32>, Diagnostics> {
        self.put(rig, capture, runs)?;
        let read = |(on, (_, y)): &(Stream, (Row, Row))| y.read(rig.queue(on.handle()));
        if runs > 1 {
            assert_eq!(read(&self.sides[1])?, wanted());
        }
        read(&self.sides[0])
    }
}

#[test]
fn those_between_runs_of_a_function_on_two_streams() {
    every_wait_is_needed(|rig| OnTwoStreams::new(rig)?.run(rig, false, 2), &wanted());
}

/// A recording waits for everything: what comes after the last has waits alone.
#[test]
fn those_between_captured_runs_on_two_streams() {
    let before = |rig: &Rig| {
        let begun = OnTwoStreams::new(rig)?;
        begun.run(rig, true, 3)?;
        assert_eq!(begun.program.graphs(), 2);
        Ok(begun)
    };
    let program = |rig: &Rig, begun: &OnTwoStreams| {
        let out = begun.run(rig, true, 4)?;
        assert_eq!(rig.fake.calls_of(Call::GraphLaunch), 4);
        Ok(out)
    };
    every_wait_is_needed_after(before, program, &wanted());
}

#[test]
fn captured_runs_give_the_same_in_every_order() {
    for order in ORDERS {
        let rig = Rig::new(order);
        let out = OnTwoStreams::new(&rig).and_then(|begun| begun.run(&rig, true, 6));
        assert_eq!((out, rig.fake.hazards()), (Ok(wanted()), Vec::new()), "{order:?}");
        assert!(rig.fake.calls_of(Call::GraphLaunch) > 0);
    }
}

/// Captured runs with arrays from another stream, which are elsewhere each time: the program copies them to its own.
struct Elsewhere {
    program: GraphProgram,
    streams: [Stream; 2],
    from: Stream,
}

/// The arrays of a run, and the stream that its result is read on.
struct Held {
    _x: Row,
    y: Row,
    to: Stream,
}

impl Elsewhere {
    fn new(rig: &Rig) -> Result<Self, Diagnostics> {
        let stream = || Stream::new(rig.id);
        let streams = [stream()?, stream()?];
        Ok(Self { program: softmax(rig)?, streams, from: stream()? })
    }

    /// Puts runs on the two streams in turn; gives their arrays.
    fn put(&self, rig: &Rig, runs: usize) -> Result<Vec<Held>, Diagnostics> {
        let mut held = Vec::new();
        for stream in self.streams.iter().cycle().take(runs) {
            let (x, y) = arrays(rig, self.from.handle())?;
            let (on, to) = (stream.handle(), Stream::new(rig.id)?);
            let streams = Streams { on, after: vec![self.from.handle()], then: vec![to.handle()] };
            let (ins, outs) = ([x.view.clone()], [y.view.clone()]);
            let mut none = NoKernels;
            let mut kernels = HostKernels(&mut none);
            self.program.replay_on(&ins, &outs, rig.id, &streams, &mut kernels)?;
            x.memory.used_on(on);
            y.memory.used_on(on);
            held.push(Held { _x: x, y, to });
        }
        Ok(held)
    }
}

#[test]
fn those_of_captured_runs_on_arrays_that_are_elsewhere_each_time() {
    let before = |rig: &Rig| {
        let begun = Elsewhere::new(rig)?;
        let held = begun.put(rig, 8)?;
        assert_eq!(begun.program.graphs(), 5);
        Ok((begun, held))
    };
    let program = |rig: &Rig, (begun, _): &(Elsewhere, Vec<Held>)| {
        let held = begun.put(rig, 3)?;
        assert_eq!((begun.program.graphs(), rig.fake.calls_of(Call::GraphLaunch)), (5, 3));
        let all: Result<Vec<_>, _> =
            held.iter().map(|held| held.y.read(rig.queue(held.to.handle()))).collect();
        Ok(all?.concat())
    };
    every_wait_is_needed_after(before, program, &wanted().repeat(3));
}

/// A caller's graph with a run of the function in it, beside runs of the function on another stream.
#[test]
fn a_run_in_a_callers_graph_has_memory_of_its_own() {
    for order in ORDERS {
        for capture in [false, true] {
            let rig = Rig::new(order);
            let go = || -> Result<(), Diagnostics> {
                let begun = OnTwoStreams::new(&rig)?;
                begun.run(&rig, capture, 1)?;
                let [(a, (_, y)), (b, (u, v))] = &begun.sides;
                let on = device::begin_recording(rig.id)?;
                let streams = Streams { on, ..Streams::default() };
                let (ins, outs) = ([u.view.clone()], [v.view.clone()]);
                let mut none = NoKernels;
                let mut kernels = HostKernels(&mut none);
                let program = &begun.program;
                match capture {
                    true => program.replay_on(&ins, &outs, rig.id, &streams, &mut kernels)?,
                    false => program.run_on(&ins, &outs, rig.id, &streams, &mut kernels)?,
                }
                let graph = device::end_recording()?;
                v.memory.fill(0, b.handle())?;
                for _ in 0..2 {
                    graph.replay(b.handle())?;
                    begun.put(&rig, capture, 1)?;
                }
                assert_eq!(y.read(rig.queue(a.handle()))?, wanted());
                assert_eq!(v.read(rig.queue(b.handle()))?, wanted());
                // The program goes before its graph, and that while it runs.
                v.memory.fill(0, b.handle())?;
                let OnTwoStreams { program, sides: [_, (b, (_u, v))] } = begun;
                drop(program);
                graph.replay(b.handle())?;
                drop(graph);
                assert_eq!(v.read(rig.queue(b.handle()))?, wanted());
                Ok(())
            };
            go().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(rig.fake.hazards(), [""; 0], "{order:?} {capture}");
        }
    }
}

/// A function with a constant and a loop: both have memory that all runs share.
fn looped(rig: &Rig) -> Result<GraphProgram, Diagnostics> {
    let text = "func @f(%x: tensor<[8], f32>) {
  %c = graph.const {data = \"0000803f000000400000404000008040\"} : tensor<[4], f32>
  %b = graph.broadcast %c {dims = [0]} : tensor<[4, 8], f32>
  %s = graph.reduce %b {op = sum, axes = [0]} : tensor<[8], f32>
  %l = graph.loop init(%x) {trip = 3} : tensor<[8], f32> do (%i: tensor<[], i64>, %acc: tensor<[8], f32>) {
    %f = graph.cast %i : tensor<[], f32>
    %g = graph.broadcast %f {dims = []} : tensor<[8], f32>
    %m = graph.add %acc, %g : tensor<[8], f32>
    %n = graph.add %m, %s : tensor<[8], f32>
    graph.yield %n
  }
  graph.return %l
}";
    let types = [argument_type(&[8], DType::F32)];
    let plan = PlanOptions { separate: true, ..PlanOptions::default() };
    let options = GraphOptions { device: Some(rig.id), plan, ..GraphOptions::default() };
    compile_graph(&module(text), "f", &types, &rig.backends, &options)
}

/// Captured on one stream, replayed on another, and dropped while that is in flight.
fn dropped_in_flight(rig: &Rig, capture: bool) -> Result<Vec<f32>, Diagnostics> {
    let program = looped(rig)?;
    let (a, b) = (Stream::new(rig.id)?, Stream::new(rig.id)?);
    let rows = |stream: &Stream| -> Result<(Row, Row), Diagnostics> {
        let (x, y) = (rig.row(8, stream.handle())?, rig.row(8, stream.handle())?);
        x.write(&[0.5; 8], rig.queue(stream.handle()))?;
        Ok((x, y))
    };
    let (first, second) = (rows(&a)?, rows(&b)?);
    let run = |(x, y): &(Row, Row), stream: &Stream| {
        let streams = Streams { on: stream.handle(), ..Streams::default() };
        let (ins, outs) = ([x.view.clone()], [y.view.clone()]);
        let mut none = NoKernels;
        let mut kernels = HostKernels(&mut none);
        match capture {
            true => program.replay_on(&ins, &outs, rig.id, &streams, &mut kernels),
            false => program.run_on(&ins, &outs, rig.id, &streams, &mut kernels),
        }
    };
    for _ in 0..3 {
        run(&first, &a)?;
    }
    // From here on nothing of the program's runs on the first stream.
    device::synchronize(rig.id, None)?;
    for _ in 0..2 {
        run(&second, &b)?;
    }
    drop(program);
    second.1.read(rig.queue(b.handle()))
}

#[test]
fn a_program_that_goes_while_its_graph_runs_keeps_its_memory_for_it() {
    for order in ORDERS {
        for capture in [false, true] {
            let rig = Rig::new(order);
            let out = dropped_in_flight(&rig, capture).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(out, [33.5; 8], "{order:?} {capture}");
            assert_eq!(rig.fake.hazards(), [""; 0], "{order:?} {capture}");
        }
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
