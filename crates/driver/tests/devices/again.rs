//! Runs that differ from earlier ones only in addresses: packed launches, graphs, threads.

use super::rig::{Rig, Row};
use super::waits::{ORDERS, arrays, softmax, wanted};
use tessera_diag::Diagnostics;
use tessera_driver::device::{self, Stream};
use tessera_driver::graph::{GraphProgram, HostKernels};
use tessera_driver::{NoKernels, Streams};
use tessera_fake_device::{Call, Order};

fn again(
    rig: &Rig,
    program: &GraphProgram,
    (x, y): &(Row, Row),
    on: u64,
    captured: bool,
) -> Result<Vec<f32>, Diagnostics> {
    let at = [x.view.data as u64, y.view.data as u64];
    let streams = Streams { on, ..Streams::default() };
    let mut none = NoKernels;
    program.run_again(&at, rig.id, &streams, &mut HostKernels(&mut none), captured)?;
    y.read(rig.queue(on))
}

/// The arrays, the argument that many elements behind the begin of its memory.
fn behind(rig: &Rig, on: u64, count: usize) -> Result<(Row, Row), Diagnostics> {
    let (x, y) = arrays(rig, on)?;
    let mut whole = rig.row(32 + count, on)?;
    let values: Vec<f32> =
        (0..32 + count).map(|i| ((i + 11 * 9 - count) * 7 % 11) as f32).collect();
    whole.write(&values, rig.queue(on))?;
    (whole.view.dims, whole.view.strides) = (x.view.dims, x.view.strides);
    whole.view.data = whole.view.data.wrapping_add(4 * count);
    Ok((whole, y))
}

#[test]
fn each_run_uses_its_own_arrays_on_its_own_stream() -> Result<(), Diagnostics> {
    for (order, captured) in ORDERS.into_iter().flat_map(|o| [(o, false), (o, true)]) {
        let rig = Rig::new(order);
        let program = softmax(&rig)?;
        let streams = [Stream::new(rig.id)?, Stream::new(rig.id)?];
        let mut held = Vec::new();
        // Aligned as the first, as none before, and as the first again.
        for (run, count) in [0, 4, 1, 0, 1, 3, 8, 0, 0].into_iter().enumerate() {
            let on = streams[run % 2].handle();
            let given = behind(&rig, on, count)?;
            let out = again(&rig, &program, &given, on, captured)?;
            assert_eq!(out, wanted(), "{order:?}, captured: {captured}, run {run}");
            held.push(given);
        }
        assert_eq!(rig.fake.hazards(), [""; 0], "{order:?}, captured: {captured}");
    }
    Ok(())
}

/// The driver calls of a run that is like the one before are its launches, or the launch of its graph.
#[test]
fn nothing_but_launches_is_called() -> Result<(), Diagnostics> {
    for captured in [false, true] {
        let rig = Rig::new(Order::Early);
        let program = softmax(&rig)?;
        let given = arrays(&rig, 0)?;
        for _ in 0..3 {
            assert_eq!(again(&rig, &program, &given, 0, captured)?, wanted());
        }
        let before = device::launches().0;
        rig.fake.fail(None);
        let at = [given.0.view.data as u64, given.1.view.data as u64];
        let (streams, mut none) = (Streams::default(), NoKernels);
        program.run_again(&at, rig.id, &streams, &mut HostKernels(&mut none), captured)?;
        let launches = if captured { 1 } else { program.stats().launches as u64 };
        let kind = if captured { Call::GraphLaunch } else { Call::Launch };
        assert_eq!((rig.fake.calls_of(kind), rig.fake.calls()), (launches, launches));
        // Other tests launch too.
        assert!(device::launches().0 >= before + launches);
    }
    Ok(())
}

#[test]
fn threads_run_one_program_at_a_time_of_their_own() -> Result<(), Diagnostics> {
    for captured in [false, true] {
        let rig = Rig::new(Order::Late);
        let program = softmax(&rig)?;
        std::thread::scope(|scope| {
            let one = || -> Result<(), Diagnostics> {
                let stream = Stream::new(rig.id)?;
                for _ in 0..6 {
                    let given = arrays(&rig, stream.handle())?;
                    let out = again(&rig, &program, &given, stream.handle(), captured)?;
                    assert_eq!(out, wanted());
                }
                Ok(())
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(one)).collect();
            for thread in threads {
                let done = thread.join();
                done.unwrap_or_else(|_| panic!("a thread failed"))
                    .unwrap_or_else(|e| panic!("{e}"));
            }
        });
        assert_eq!(rig.fake.hazards(), [""; 0], "captured: {captured}");
    }
    Ok(())
}
