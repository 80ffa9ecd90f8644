//! Every driver call fails in turn: the error has a type, nothing is leaked, and the next call works.

use super::rig::{Rig, scaled};
use super::waits::{arrays, softmax, wanted};
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

/// Everything that copies: packed and strided, in both directions, on the device and between streams.
fn copies(rig: &Rig) -> Result<(), Diagnostics> {
    let (a, b) = (Stream::new(rig.id)?, Stream::new(rig.id)?);
    let (x, mut y) = (rig.row(4, a.handle())?, rig.row(8, b.handle())?);
    x.write(&[1.0, 2.0, 3.0, 4.0], rig.queue(a.handle()))?;
    y.memory.fill(0, b.handle())?;
    (y.view.dims, y.view.strides) = (vec![4], vec![8]);
    y.write(&[5.0; 4], rig.queue(b.handle()))?;
    device::wait_for(rig.queue(b.handle()), &[a.handle()])?;
    x.memory.used_on(b.handle());
    let queue = rig.queue(b.handle());
    device::copy_on_device(y.memory.address(), x.memory.address(), 16, queue)?;
    device::hold_back(queue, &[a.handle()])?;
    y.memory.used_on(a.handle());
    let got = y.read(rig.queue(a.handle()))?;
    assert_eq!(got, [1.0, 3.0, 5.0, 5.0]);
    device::memory_stats(rig.id)?;
    device::trim(rig.id)?;
    device::synchronize(rig.id, Some(b.handle()))
}

/// A function that runs on one stream after another.
fn runs(rig: &Rig) -> Result<(), Diagnostics> {
    let program = softmax(rig)?;
    let (a, b) = (Stream::new(rig.id)?, Stream::new(rig.id)?);
    for on in [a.handle(), b.handle(), a.handle()] {
        let (x, y) = arrays(rig, 0)?;
        let streams = Streams { on, after: vec![0], then: vec![0] };
        let (ins, outs) = ([x.view.clone()], [y.view.clone()]);
        let mut none = NoKernels;
        program.run_on(&ins, &outs, rig.id, &streams, &mut HostKernels(&mut none))?;
        x.memory.used_on(on);
        y.memory.used_on(on);
        assert_eq!(y.read(rig.queue(0))?, wanted());
    }
    Ok(())
}

/// A recording by the caller, of launches and of a function, done again on two streams.
fn recordings(rig: &Rig) -> Result<(), Diagnostics> {
    let (program, kernel) = (softmax(rig)?, scaled());
    let ((x, y), (u, v)) = (arrays(rig, 0)?, (rig.row(4, 0)?, rig.row(4, 0)?));
    u.write(&[2.0; 4], rig.queue(0))?;
    let put = |on: u64| -> Result<(), Diagnostics> {
        let streams = Streams { on, ..Streams::default() };
        rig.launch(&kernel, (&u, &v), streams.clone())?;
        let (ins, outs) = ([x.view.clone()], [y.view.clone()]);
        let mut none = NoKernels;
        program.replay_on(&ins, &outs, rig.id, &streams, &mut HostKernels(&mut none))
    };
    put(0)?;
    let graph = match put(device::begin_recording(rig.id)?) {
        Ok(()) => device::end_recording()?,
        Err(errors) => {
            device::drop_recording();
            return Err(errors);
        }
    };
    let stream = Stream::new(rig.id)?;
    y.memory.fill(0, 0)?;
    graph.replay(0)?;
    device::wait_for(rig.queue(stream.handle()), &[0])?;
    graph.replay(stream.handle())?;
    for row in [&x, &y, &u, &v] {
        row.memory.used_on(stream.handle());
    }
    assert_eq!(y.read(rig.queue(stream.handle()))?, wanted());
    assert_eq!(v.read(rig.queue(stream.handle()))?, [6.0; 4]);
    Ok(())
}

/// Captured runs of one program on arrays that are elsewhere each time. A run that fails leaves the program whole: all
/// others are right.
fn captured(rig: &Rig) -> Result<(), Diagnostics> {
    let program = softmax(rig)?;
    let streams = [Stream::new(rig.id)?, Stream::new(rig.id)?];
    let mut first = Ok(());
    let mut held = Vec::new();
    for run in 0..9 {
        let on = streams[run % 2].handle();
        let mut once = || -> Result<(), Diagnostics> {
            let (x, y) = arrays(rig, 0)?;
            let waits = Streams { on, after: vec![0], then: vec![0] };
            let (ins, outs) = ([x.view.clone()], [y.view.clone()]);
            let mut none = NoKernels;
            let mut kernels = HostKernels(&mut none);
            program.replay_on(&ins, &outs, rig.id, &waits, &mut kernels)?;
            x.memory.used_on(on);
            y.memory.used_on(on);
            assert_eq!(y.read(rig.queue(0))?, wanted(), "run {run}");
            held.push((x, y));
            Ok(())
        };
        let done = once();
        assert!(first.is_ok() || done.is_ok(), "run {run} failed too: {done:?}");
        first = first.and(done);
    }
    first
}

fn each_failure(program: impl Fn(&Rig) -> Result<(), Diagnostics>) {
    let count = |rig: &Rig| {
        rig.fake.fail(None);
        program(rig).unwrap_or_else(|e| panic!("{e}"));
        rig.fake.calls()
    };
    let rig = Rig::new(Order::Late);
    let calls = count(&rig);
    // Code of compiled functions may be kept for the next function that has the kernel: it must not become more.
    let kept = rig.fake.live();
    let clean = |rig: &Rig, what: &str| {
        rig.fake.fail(None);
        device::synchronize(rig.id, None).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(!device::is_recording(), "{what}");
        let live = rig.fake.live();
        let fits = live.modules <= kept.modules && live.functions <= kept.functions;
        assert!(fits, "{what}: {live:?}, {kept:?}");
        let rest = Live { modules: 0, functions: 0, ..live };
        assert_eq!((rest, rig.fake.bytes_in_use()), (Live::default(), 0), "{what}");
        assert_eq!(rig.fake.hazards(), [""; 0], "{what}");
    };
    clean(&rig, "as it is");
    assert!(calls > 5);
    for number in 0..calls {
        let rig = Rig::new(Order::Late);
        rig.fake.fail(Some((None, number)));
        let what = format!("call {number} of {calls}");
        // A call whose failure changes nothing but speed may be passed over.
        if let Err(errors) = program(&rig) {
            let code = errors.errors().next().map(|d| d.code);
            assert_eq!(code, Some(Code::E_DRIVER), "{what}: {errors}");
            assert!(errors.render().contains("failed on demand"), "{what}: {errors}");
        }
        clean(&rig, &what);
        // The device is as before.
        program(&rig).unwrap_or_else(|e| panic!("after {what}: {e}"));
        clean(&rig, &format!("after {what}"));
    }
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
fn of_copies_leaves_nothing() {
    each_failure(copies);
}

#[test]
fn of_runs_on_several_streams_leaves_nothing() {
    each_failure(runs);
}

#[test]
fn of_recordings_leaves_nothing() {
    each_failure(recordings);
}

#[test]
fn of_captured_runs_leaves_nothing_and_the_program_whole() {
    each_failure(captured);
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
