//! Launches of a plan, captured once and replayed as a graph of the device.
//!
//! A graph contains the addresses of its arrays. A call with the addresses of an earlier call, as
//! in a training loop, replays its graph; a call with other addresses is captured too while there
//! are few graphs. After that, arrays that have been at several addresses, such as a batch or a
//! loss, are copied to arrays of the program and back; the others stay where they are.

use super::device::{DeviceRun, addresses};
use super::list::alignment;
use super::program::GraphProgram;
use super::run::GraphKernels;
use crate::device::{self, Graph, Memory};
use crate::launch::Streams;
use std::collections::BTreeSet;
use tessera_diag::Diagnostics;
use tessera_target::device::DeviceId;
use tessera_target::{BufferArg, Queue};

/// More are not worth the time that recording takes.
const GRAPHS: usize = 4;

#[derive(Default)]
pub struct Captured {
    // Graphs go before the memory that they use.
    graphs: Vec<(Vec<u64>, Graph)>,
    own: Option<Own>,
    run: Option<DeviceRun>,
    /// Alignments of arrays that all code was loaded for.
    warm: BTreeSet<Vec<u8>>,
}

/// So often the arrays that stay where they are may turn out to be fewer, before none is left to.
const MOVES: usize = 4;

/// A graph on arrays of the program's own, for caller's arrays whose addresses change.
struct Own {
    graph: Option<Graph>,
    /// Where the caller's arrays were when it was recorded.
    at: Vec<u64>,
    /// For each array whose address changes, one of ours.
    memory: Vec<Option<Memory>>,
    moves: usize,
}

impl Own {
    /// Whether these are the addresses of the graph, except for arrays whose addresses change.
    fn holds(&self, at: &[u64]) -> bool {
        let same = |((m, a), b): ((&Option<Memory>, &u64), &u64)| m.is_some() || a == b;
        self.memory.iter().zip(&self.at).zip(at).all(same)
    }
}

impl GraphProgram {
    /// How many graphs were recorded.
    pub fn graphs(&self) -> usize {
        let count = |captured: &Captured| {
            let own = captured.own.as_ref().is_some_and(|own| own.graph.is_some());
            captured.graphs.len() + usize::from(own)
        };
        self.everywhere().iter().map(|there| count(&there.captured.lock())).sum()
    }

    /// [`Self::run_on`], captured and replayed. The first call with these layouts runs as usual:
    /// code is loaded then.
    pub fn replay_on(
        &self,
        inputs: &[BufferArg],
        outputs: &[BufferArg],
        device: DeviceId,
        streams: &Streams,
        kernels: &mut dyn GraphKernels,
    ) -> Result<(), Diagnostics> {
        self.check_arrays(inputs, outputs)?;
        self.check_device(device)?;
        self.run_again(&addresses(inputs, outputs), device, streams, kernels, true)
    }

    pub(super) fn replay(
        &self,
        captured: &mut Captured,
        at: &[u64],
        queue: Queue,
        kernels: &mut dyn GraphKernels,
    ) -> Result<(), Diagnostics> {
        let Captured { graphs, own, run, warm } = captured;
        let run = match run {
            Some(run) => run,
            none => none.insert(self.device_run(queue, queue)?),
        };
        if let Some((_, graph)) = graphs.iter().find(|(known, _)| **known == *at) {
            return play(graph, run, queue);
        }
        let aligned = alignment(at);
        if !warm.contains(&aligned) {
            self.put(run, at, queue, kernels)?;
            warm.insert(aligned);
            return Ok(());
        }
        if graphs.len() < GRAPHS {
            let graph = self.recorded(run, at, queue.device, kernels)?;
            play(&graph, run, queue)?;
            graphs.push((at.to_vec(), graph));
            return Ok(());
        }
        if !own.as_ref().is_some_and(|own| own.holds(at)) {
            let before = own.take();
            let moves = before.as_ref().map_or(0, |own| own.moves + 1);
            let moved = |i: usize| {
                moves > MOVES
                    || graphs.iter().any(|(known, _)| known[i] != at[i])
                    || before.as_ref().is_some_and(|b| b.memory[i].is_some() || b.at[i] != at[i])
            };
            let memory = |(i, &bytes): (usize, &u64)| {
                moved(i).then(|| Memory::new(queue, bytes.max(1))).transpose()
            };
            let memory = self.bytes.iter().enumerate().map(memory);
            let memory = memory.collect::<Result<Vec<_>, Diagnostics>>()?;
            *own = Some(Own { graph: None, at: at.to_vec(), memory, moves });
        }
        let Some(own) = own else { return Ok(()) };
        let place = |(&at, own): (&u64, &Option<Memory>)| own.as_ref().map_or(at, Memory::address);
        let ours_at: Vec<u64> = at.iter().zip(&own.memory).map(place).collect();
        let ours = || own.memory.iter().flatten();
        let mut before: Vec<u64> = ours().map(Memory::last).collect();
        before.push(run.arena.last());
        before.sort_unstable();
        before.dedup();
        device::wait_for(queue, &before)?;
        ours().for_each(|memory| memory.used_on(queue.stream));
        run.arena.used_on(queue.stream);
        let inputs = self.plan.params.len();
        let moves = |i: &usize| self.bytes[*i] > 0 && at[*i] != ours_at[*i];
        for i in (0..inputs).filter(moves) {
            device::copy_on_device(ours_at[i], at[i], self.bytes[i], queue)?;
        }
        match &own.graph {
            Some(graph) => play(graph, run, queue)?,
            None => {
                // Code for arrays on such addresses may not be there yet.
                self.put(run, &ours_at, queue, kernels)?;
                own.graph = Some(self.recorded(run, &ours_at, queue.device, kernels)?);
            }
        }
        for i in (inputs..at.len()).filter(moves) {
            device::copy_on_device(at[i], ours_at[i], self.bytes[i], queue)?;
        }
        Ok(())
    }

    fn recorded(
        &self,
        run: &mut DeviceRun,
        at: &[u64],
        device: DeviceId,
        kernels: &mut dyn GraphKernels,
    ) -> Result<Graph, Diagnostics> {
        let stream = device::begin_recording(device)?;
        match self.put(run, at, Queue { device, stream }, kernels) {
            Ok(()) => device::end_recording(),
            Err(errors) => {
                device::drop_recording();
                Err(errors)
            }
        }
    }
}

/// A graph reads what all runs share too, which must outlast it where the program goes meanwhile.
fn play(graph: &Graph, run: &DeviceRun, queue: Queue) -> Result<(), Diagnostics> {
    run.begin(queue)?;
    graph.replay(queue.stream)
}
