//! Ranks as streams of one device: an index launch forks from its caller's stream and joins it, whatever the order in which streams run.

use super::rig::{Rig, Row, scaled};
use super::waits::every_wait_is_needed;
use tessera_diag::Diagnostics;
use tessera_driver::Streams;
use tessera_driver::device::Stream;
use tessera_driver::dist::Branch;
use tessera_fake_device::Call;

/// One launch: each task multiplies a row by 3 into another, on the stream of its rank. As the package `dist` does it.
fn launch(rig: &Rig, caller: u64, tasks: &[(u64, &Row, &Row)]) -> Result<(), Diagnostics> {
    let streams = Streams { on: caller, ..Streams::default() };
    let kernel = scaled();
    let mut branches = Vec::new();
    for &(rank, x, y) in tasks {
        let branch = Branch::new(rig.id, rank, &streams)?.expect("nothing is recorded");
        branch.begin()?;
        let on = branch.queue().stream;
        assert_ne!(on, caller, "a rank has a stream of its own");
        rig.launch(&kernel, (x, y), Streams { on, ..Streams::default() })?;
        branches.push((branch, x, y));
    }
    for (branch, x, y) in branches {
        branch.join()?;
        // What comes next uses them on the caller's stream.
        x.memory.used_on(branch.after());
        y.memory.used_on(branch.after());
    }
    Ok(())
}

fn rows(rig: &Rig, caller: u64, count: usize) -> Result<Vec<Row>, Diagnostics> {
    let made: Vec<Row> = (0..count).map(|_| rig.row(2, caller)).collect::<Result<_, _>>()?;
    for (at, row) in made.iter().enumerate() {
        row.write(&[at as f32 + 1.0, 10.0], rig.queue(caller))?;
    }
    Ok(made)
}

#[test]
fn a_launch_waits_for_its_caller_and_its_caller_for_it() {
    let program = |rig: &Rig| {
        let caller = Stream::new(rig.id)?;
        let c = caller.handle();
        let (x, y) = (rows(rig, c, 3)?, rows(rig, c, 3)?);
        launch(rig, c, &[(0, &x[0], &y[0]), (1, &x[1], &y[1]), (2, &x[2], &y[2])])?;
        let mut out = Vec::new();
        for row in &y {
            out.extend(row.read(rig.queue(c))?);
        }
        Ok(out)
    };
    every_wait_is_needed(program, &[3.0, 30.0, 6.0, 30.0, 9.0, 30.0]);
}

#[test]
fn a_launch_that_reads_what_other_ranks_wrote() {
    let program = |rig: &Rig| {
        let caller = Stream::new(rig.id)?;
        let c = caller.handle();
        let (x, y, z) = (rows(rig, c, 2)?, rows(rig, c, 2)?, rows(rig, c, 2)?);
        launch(rig, c, &[(0, &x[0], &y[0]), (1, &x[1], &y[1])])?;
        // Each reads what its neighbour's stream wrote.
        launch(rig, c, &[(0, &y[1], &z[0]), (1, &y[0], &z[1])])?;
        let mut out = z[0].read(rig.queue(c))?;
        out.extend(z[1].read(rig.queue(c))?);
        Ok(out)
    };
    every_wait_is_needed(program, &[18.0, 90.0, 9.0, 90.0]);
}

#[test]
fn ranks_that_share_a_stream_run_in_order() {
    let program = |rig: &Rig| {
        let caller = Stream::new(rig.id)?;
        let c = caller.handle();
        let x = rows(rig, c, 3)?;
        // 33 ranks on 32 streams: the first and the last have one.
        launch(rig, c, &[(0, &x[0], &x[1])])?;
        launch(rig, c, &[(32, &x[1], &x[2])])?;
        x[2].read(rig.queue(c))
    };
    let rig = Rig::new(tessera_fake_device::Order::Late);
    assert_eq!(program(&rig).unwrap_or_else(|e| panic!("{e}")), [9.0, 90.0]);
    assert_eq!(rig.fake.hazards(), [""; 0]);
    assert!(rig.fake.calls_of(Call::Wait) > 0);
}

#[test]
fn streams_are_made_once_for_each_rank() {
    let rig = Rig::new(tessera_fake_device::Order::Early);
    let of = |rank| {
        let branch = Branch::new(rig.id, rank, &Streams::default());
        branch.unwrap_or_else(|e| panic!("{e}")).expect("nothing is recorded").queue().stream
    };
    let streams: Vec<u64> = (0..40).map(of).collect();
    assert_eq!(streams, (0..40).map(of).collect::<Vec<_>>());
    let mut different = streams.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 32);
}
