//! Launches, streams, events and graphs.

use crate::{Checked, Rig, STOP, ensure, median, refuses, words};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostics};
use tessera_runtime::cuda::*;
use tessera_target::is_interrupt;

/// The time of one launch on the host, in nanoseconds: the median of batches that the launch queue
/// has room for.
fn per_launch(
    rig: &Rig,
    mut launch: impl FnMut() -> Result<(), CudaError>,
) -> Result<f64, CudaError> {
    const BATCH: u32 = 500;
    let mut times = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        for _ in 0..BATCH {
            launch()?;
        }
        times.push(start.elapsed().as_nanos() as f64 / f64::from(BATCH));
        rig.stream.synchronize()?;
    }
    Ok(median(times))
}

pub fn overhead(rig: &Rig) -> Checked {
    use cudarc::driver::sys;
    use std::ptr::null_mut;
    let (nothing, stream) = (rig.module.function("nothing")?, rig.stream.handle());
    let (params, plain) = (words(&[0]), LaunchShape::new([1, 1, 1], 32));
    let serial = LaunchShape { programmatic: true, ..plain };
    let (function, handle) = (nothing.raw() as sys::CUfunction, stream.raw() as sys::CUstream);
    let mut argument = params.clone();
    let mut pointers = [argument.as_mut_ptr().cast()];
    let _current = rig.device.make_current()?;
    let mut raw = || {
        let p = pointers.as_mut_ptr();
        // SAFETY: one parameter of eight bytes, as the kernel has.
        let result =
            unsafe { sys::cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, handle, p, null_mut()) };
        assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
        Ok(())
    };
    // SAFETY: the kernel looks at nothing.
    let ours = || unsafe { nothing.launch(&plain, &params, &[], stream) };
    // SAFETY: as above.
    let extended = || unsafe { nothing.launch(&serial, &params, &[], stream) };
    let mut rounds = [const { Vec::new() }; 3];
    for _ in 0..5 {
        rounds[0].push(per_launch(rig, &mut raw)?);
        rounds[1].push(per_launch(rig, ours)?);
        rounds[2].push(per_launch(rig, extended)?);
    }
    drop(_current);
    let other = std::thread::scope(|scope| {
        // A thread that has no context: each launch makes it current.
        scope.spawn(|| per_launch(rig, ours)).join().map_err(|_| "panicked")
    })??;
    let [raw, ours, extended] = rounds.map(median);
    let more = ours - raw;
    let text = format!(
        "raw {raw:.0} ns, ours {ours:.0} ns ({more:+.0}), with attributes {extended:.0} ns, from a thread without context {other:.0} ns"
    );
    ensure(more < 500.0, format!("expected less than 500 ns more: {text}"))?;
    Ok(text)
}

pub fn launch_attributes(rig: &Rig) -> Checked {
    if !rig.device.info().clusters {
        return Ok("skipped: this device has no clusters".into());
    }
    let (nothing, params) = (rig.module.function("nothing")?, words(&[0]));
    let plain = LaunchShape::new([64, 2, 1], 128);
    let mut clusters = Vec::new();
    for cluster in [[2, 1, 1], [4, 2, 1], [8, 2, 1]] {
        let shape = LaunchShape { cluster: Some(cluster), ..plain };
        // SAFETY: the kernel looks at nothing.
        unsafe { nothing.launch(&shape, &params, &[], rig.stream.handle()) }?;
        clusters.push(nothing.max_clusters(&shape)?);
    }
    let together = LaunchShape { cooperative: true, ..plain };
    // SAFETY: as above.
    unsafe { nothing.launch(&together, &params, &[], rig.stream.handle()) }?;
    rig.stream.synchronize()?;
    Ok(format!("clusters of 2, 8, 16 blocks (resident: {clusters:?}) and a cooperative launch"))
}

pub fn shared_memory(rig: &Rig) -> Checked {
    let (nothing, params) = (rig.module.function("nothing")?, words(&[0]));
    let most = rig.device.info().shared_per_block_opt_in;
    let with = |shared| LaunchShape { shared, ..LaunchShape::new([4, 1, 1], 128) };
    for shared in [0, 48 << 10, 64 << 10, most] {
        // SAFETY: the kernel looks at nothing.
        unsafe { nothing.launch(&with(shared), &params, &[], rig.stream.handle()) }?;
    }
    rig.stream.synchronize()?;
    // SAFETY: as above.
    let more = unsafe { nothing.launch(&with(most + 1), &params, &[], rig.stream.handle()) };
    let error = refuses(Code::E_TILE_LOWERING, more)?;
    Ok(format!("up to {most} bytes; {}", error.diagnostic().message))
}

pub fn refused(rig: &Rig) -> Checked {
    let (nothing, stream) = (rig.module.function("nothing")?, rig.stream.handle());
    let plain = LaunchShape::new([1, 1, 1], 32);
    let mut said = Vec::new();
    for shape in [
        LaunchShape { block: 4096, ..plain },
        LaunchShape { grid: [1, 100_000, 1], ..plain },
        LaunchShape { cluster: Some([2, 1, 1]), ..plain },
    ] {
        // SAFETY: the kernel looks at nothing.
        let result = unsafe { nothing.launch(&shape, &words(&[0]), &[], stream) };
        said.push(refuses(Code::E_LAUNCH_GEOMETRY, result)?.diagnostic().message.clone());
    }
    // SAFETY: as above.
    unsafe {
        nothing.launch(&LaunchShape { grid: [0, 1, 1], ..plain }, &words(&[0]), &[], stream)
    }?;
    // SAFETY: as above.
    let short = unsafe { nothing.launch(&plain, &[], &[], stream) };
    ensure(short.is_err(), "no parameters were taken for eight bytes")?;
    rig.stream.synchronize()?;
    Ok(said.join("; "))
}

pub fn events(rig: &Rig) -> Checked {
    let spin = rig.module.function("spin")?;
    let (from, to, order) =
        (Event::timed(&rig.device)?, Event::timed(&rig.device)?, Event::new(&rig.device)?);
    let other = Stream::new(&rig.device)?;
    from.record(rig.stream.handle())?;
    let shape = LaunchShape::new([1, 1, 1], 1);
    // SAFETY: the kernel takes a count of nanoseconds.
    unsafe { spin.launch(&shape, &words(&[5_000_000]), &[], rig.stream.handle()) }?;
    to.record(rig.stream.handle())?;
    order.record(rig.stream.handle())?;
    other.wait_event(&order)?;
    let busy = !other.is_idle()?;
    other.synchronize()?;
    ensure(busy && to.is_past()? && rig.stream.is_idle()?, "the other stream did not wait")?;
    let milliseconds = to.elapsed_since(&from)?;
    ensure((4.9..20.0).contains(&milliseconds), format!("5 ms took {milliseconds} ms"))?;
    Ok(format!("5 ms of work took {milliseconds:.3} ms; another stream waited for it"))
}

pub fn interrupt(rig: &Rig) -> Checked {
    let (spin, s) = (rig.module.function("spin")?, rig.stream.handle());
    // SAFETY: the kernel takes a count of nanoseconds.
    unsafe { spin.launch(&LaunchShape::new([1, 1, 1], 1), &words(&[500_000_000]), &[], s) }?;
    STOP.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let waited = rig.stream.synchronize();
    STOP.store(false, Ordering::Relaxed);
    let time = start.elapsed();
    let error = waited.err().ok_or("the wait was not stopped")?;
    ensure(is_interrupt(&Diagnostics::from(error)), "another error")?;
    ensure(time < Duration::from_millis(100), format!("stopped only after {time:?}"))?;
    rig.stream.synchronize()?;
    let whole = start.elapsed();
    ensure(whole > Duration::from_millis(400), "the work did not go on")?;
    Ok(format!("stopped after {time:?}, the work went on to {whole:?}"))
}

pub fn graph(rig: &Rig) -> Checked {
    const NODES: usize = 100;
    let (nothing, s) = (rig.module.function("nothing")?, rig.stream.handle());
    let capture = rig.stream.begin_capture()?;
    for _ in 0..NODES {
        // SAFETY: the kernel looks at nothing.
        unsafe { nothing.launch(&LaunchShape::new([1, 1, 1], 32), &words(&[0]), &[], s) }?;
    }
    let graph = capture.end()?;
    ensure(graph.nodes()? == NODES, format!("{} nodes", graph.nodes()?))?;
    let mut exec = graph.instantiate()?;
    exec.keep_buffer(Box::new(rig.alloc(1000)?));
    exec.keep(nothing);
    drop(graph);
    exec.upload(s)?;
    let (from, to) = (Event::timed(&rig.device)?, Event::timed(&rig.device)?);
    let mut times = Vec::new();
    for _ in 0..50 {
        from.record(s)?;
        // SAFETY: the kernels look at nothing.
        unsafe { exec.launch(s) }?;
        to.record(s)?;
        to.synchronize()?;
        times.push(f64::from(to.elapsed_since(&from)?) * 1e3 / NODES as f64);
    }
    let start = Instant::now();
    // SAFETY: as above.
    (0..20).try_for_each(|_| unsafe { exec.launch(s) })?;
    let host = start.elapsed() / 20;
    rig.stream.synchronize()?;
    Ok(format!("{NODES} nodes, {:.2} µs each, a launch takes the host {host:?}", median(times)))
}

pub fn capture_errors(rig: &Rig) -> Checked {
    let (nothing, stream) = (rig.module.function("nothing")?, Stream::new(&rig.device)?);
    let (s, kept) = (stream.handle(), rig.alloc(100)?);
    let capture = stream.begin_capture()?;
    refuses(Code::E_CAPTURE, rig.device.pool().alloc(100, s))?;
    refuses(Code::E_CAPTURE, kept.write(0, &[1], s))?;
    refuses(Code::E_CAPTURE, stream.synchronize())?;
    // Memory for another stream is no part of the recording.
    let fresh = rig.device.pool().alloc(77 << 20, rig.stream.handle())?;
    // SAFETY: the kernel looks at nothing.
    unsafe { nothing.launch(&LaunchShape::new([1, 1, 1], 32), &words(&[0]), &[], s) }?;
    let nodes = capture.end()?.nodes()?;
    ensure(nodes == 1, format!("{nodes} nodes: what was refused spoilt the recording"))?;
    drop(fresh);
    let capture = stream.begin_capture()?;
    drop(capture);
    ensure(!stream.is_capturing()? && stream.is_idle()?, "a dropped recording goes on")?;
    // SAFETY: the legacy default stream always exists.
    let legacy = unsafe { Stream::borrow(&rig.device, 0) }?;
    let refusal = refuses(Code::E_CAPTURE, legacy.begin_capture())?;
    Ok(refusal.diagnostic().message.clone())
}
