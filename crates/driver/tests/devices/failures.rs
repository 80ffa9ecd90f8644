//! Every driver call fails in turn: the error has a type, nothing is leaked, and the next call works.

use super::rig::{Rig, scaled};
use super::waits::{arrays, softmax};
use tessera_diag::{Code, Diagnostics};
use tessera_driver::device::{self, Mark, Stream};
use tessera_driver::graph::HostKernels;
use tessera_driver::{NoKernels, Streams};
use tessera_fake_device::{Live, Order};

/// A launch with waits, then its result by two streams.
fn launches(rig: &Rig) -> Result<(), Diagnostics> {
    let (a, b) = (Stream::new(rig.id)?, Stream::new(rig.id)?);
    let (x, y) = (rig.row(4, a.handle())?, rig.row(4, a.handle())?);
    x.write(&[1.0; 4], rig.queue(a.handle()))?;
    y.memory.fill(0, a.handle())?;
    let start = Mark::new(rig.queue(b.handle()), true)?;
    let streams = Streams { on: b.handle(), after: vec![a.handle()], then: vec![a.handle()] };
    let kernel = scaled();
    rig.launch(&kernel, (&x, &y), streams.clone())?;
    rig.launch(&kernel, (&x, &y), streams)?;
    let end = Mark::new(rig.queue(b.handle()), true)?;
    end.synchronize()?;
    end.seconds_since(&start)?;
    y.read(rig.queue(a.handle()))?;
    device::synchronize(rig.id, None)
}

/// A function that is compiled, run, captured and replayed.
fn functions(rig: &Rig) -> Result<(), Diagnostics> {
    let program = softmax(rig)?;
    let (x, y) = arrays(rig, 0)?;
    for _ in 0..3 {
        let (ins, outs) = ([x.view.clone()], [y.view.clone()]);
        let mut none = NoKernels;
        let mut kernels = HostKernels(&mut none);
        program.replay_on(&ins, &outs, rig.id, &Streams::default(), &mut kernels)?;
    }
    y.read(rig.queue(0)).map(|_| ())
}

/// Memory of launches: for one, and of a stream.
fn contexts(rig: &Rig) -> Result<(), Diagnostics> {
    let stream = Stream::new(rig.id)?;
    let queue = rig.queue(stream.handle());
    let fill = |address: u64| device::copy_on_device(address, address + 8, 8, queue);
    device::with_context(queue, 64, fill)?;
    device::with_workspace(queue, 16, fill)?;
    let recorded = device::begin_recording(rig.id)?;
    let done = device::with_workspace(rig.queue(recorded), 16, |address| {
        device::copy_on_device(address, address + 8, 8, rig.queue(recorded))
    });
    if done.is_err() {
        device::drop_recording();
    }
    done?;
    let graph = device::end_recording()?;
    graph.replay(stream.handle())?;
    device::synchronize(rig.id, Some(stream.handle()))
}

fn each_failure(program: impl Fn(&Rig) -> Result<(), Diagnostics>) {
    let rig = Rig::new(Order::Late);
    rig.fake.fail(None);
    program(&rig).unwrap_or_else(|e| panic!("{e}"));
    let calls = rig.fake.calls();
    let clean = |what: &str| {
        rig.fake.fail(None);
        device::synchronize(rig.id, None).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(!device::is_recording(), "{what}");
        assert_eq!((rig.fake.live(), rig.fake.bytes_in_use()), (Live::default(), 0), "{what}");
    };
    clean("as it is");
    assert!(calls > 5);
    for number in 0..calls {
        rig.fake.fail(Some((None, number)));
        let what = format!("call {number} of {calls}");
        // A call whose failure changes nothing but speed may be passed over.
        if let Err(errors) = program(&rig) {
            let code = errors.errors().next().map(|d| d.code);
            assert_eq!(code, Some(Code::E_DRIVER), "{what}: {errors}");
            assert!(errors.render().contains("failed on demand"), "{what}: {errors}");
        }
        clean(&what);
    }
    program(&rig).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(rig.fake.hazards(), [""; 0]);
}

#[test]
fn of_launches_leaves_nothing() {
    each_failure(launches);
}

#[test]
fn of_compiled_functions_leaves_nothing() {
    each_failure(functions);
}

#[test]
fn of_launches_with_memory_of_their_own_leaves_nothing() {
    each_failure(contexts);
}

#[test]
fn memory_that_runs_out_is_a_typed_error() {
    let rig = Rig::new(Order::Late);
    rig.fake.set_room(64);
    let codes: Vec<_> = (0..3)
        .map(|_| rig.row(10, 0))
        .map(|row| row.err().and_then(|e| e.errors().next().map(|d| d.code)))
        .collect();
    assert_eq!(codes, [None, None, None], "each row goes before the next is made");
    let kept: Vec<_> = (0..2).map(|_| rig.row(10, 0)).collect();
    let error = kept.into_iter().find_map(Result::err).expect("80 bytes do not fit");
    assert_eq!(error.errors().next().map(|d| d.code), Some(Code::E_OOM));
}
