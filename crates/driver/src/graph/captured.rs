//! Launches of a plan, captured once and replayed as a graph of the device.
//!
//! A graph contains the addresses of its arrays. A call with the addresses of an earlier call, as
//! in a training loop, replays its graph; a call with other addresses is captured too while there
//! are few graphs. After that, arrays that have been at several addresses, such as a batch or a
//! loss, are copied to arrays of the program and back; the others stay where they are.

use super::device::DeviceRun;
use super::list::alignment;
use super::program::GraphProgram;
use super::run::{GraphKernels, bytes_of};
use crate::device::{self, Graph, Memory, UsedByGraph};
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

fn addresses(inputs: &[BufferArg], outputs: &[BufferArg]) -> Vec<u64> {
    inputs.iter().chain(outputs).map(|b| b.data as u64).collect()
}

fn size(b: &BufferArg) -> u64 {
    bytes_of(&b.dims, b.dtype) as u64
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
        if device::is_recording() {
            // A part of the graph that the caller records.
            return self.run_on(inputs, outputs, device, streams, kernels);
        }
        self.check_arrays(inputs, outputs)?;
        self.check_device(device)?;
        let (queue, there) = (Queue { device, stream: streams.on }, self.on(device));
        device::wait_for(queue, &streams.after)?;
        let mut captured = there.captured.lock();
        let done = self.replay(&mut captured, inputs, outputs, queue, kernels);
        drop(captured);
        let done = done.and_then(|()| device::hold_back(queue, &streams.then));
        device::or_wait(queue, done)
    }

    fn replay(
        &self,
        captured: &mut Captured,
        inputs: &[BufferArg],
        outputs: &[BufferArg],
        queue: Queue,
        kernels: &mut dyn GraphKernels,
    ) -> Result<(), Diagnostics> {
        let Captured { graphs, own, run, warm } = captured;
        let run = match run {
            Some(run) => run,
            none => none.insert(self.device_run(queue)?),
        };
        let at = addresses(inputs, outputs);
        if let Some((_, graph)) = graphs.iter().find(|(known, _)| *known == at) {
            return self.play(graph, run, queue);
        }
        let aligned = alignment(inputs, outputs);
        if !warm.contains(&aligned) {
            self.put(run, inputs, outputs, queue, kernels)?;
            warm.insert(aligned);
            return Ok(());
        }
        if graphs.len() < GRAPHS {
            let graph = self.recorded(run, inputs, outputs, queue.device, kernels)?;
            self.play(&graph, run, queue)?;
            graphs.push((at, graph));
            return Ok(());
        }
        if !own.as_ref().is_some_and(|own| own.holds(&at)) {
            let before = own.take();
            let moves = before.as_ref().map_or(0, |own| own.moves + 1);
            let moved = |i: usize| {
                moves > MOVES
                    || graphs.iter().any(|(known, _)| known[i] != at[i])
                    || before.as_ref().is_some_and(|b| b.memory[i].is_some() || b.at[i] != at[i])
            };
            let all = inputs.iter().chain(outputs).enumerate();
            let memory = all
                .map(|(i, b)| moved(i).then(|| Memory::new(queue, size(b).max(1))).transpose())
                .collect::<Result<Vec<_>, Diagnostics>>()?;
            *own = Some(Own { graph: None, at, memory, moves });
        }
        let Some(own) = own else { return Ok(()) };
        let (ours_in, ours_out) = own.memory.split_at(inputs.len());
        let moved = |list: &[BufferArg], to: &[Option<Memory>]| -> Vec<BufferArg> {
            let one = |(b, m): (&BufferArg, &Option<Memory>)| match m {
                Some(m) => BufferArg { data: m.address() as *mut u8, ..b.clone() },
                None => b.clone(),
            };
            list.iter().zip(to).map(one).collect()
        };
        let (ins, outs) = (moved(inputs, ours_in), moved(outputs, ours_out));
        let ours = || own.memory.iter().flatten();
        let mut before: Vec<u64> = ours().map(Memory::last).collect();
        before.push(run.arena.last());
        before.sort_unstable();
        before.dedup();
        device::wait_for(queue, &before)?;
        ours().for_each(|memory| memory.used_on(queue.stream));
        run.arena.used_on(queue.stream);
        let moves = |from: &BufferArg, to: &BufferArg| size(from) > 0 && from.data != to.data;
        for (from, to) in inputs.iter().zip(&ins).filter(|(a, b)| moves(a, b)) {
            device::copy_on_device(to.data as u64, from.data as u64, size(from), queue)?;
        }
        match &own.graph {
            Some(graph) => self.play(graph, run, queue)?,
            None => {
                // Code for arrays on such addresses may not be there yet.
                self.put(run, &ins, &outs, queue, kernels)?;
                own.graph = Some(self.recorded(run, &ins, &outs, queue.device, kernels)?);
            }
        }
        for (from, to) in outs.iter().zip(outputs).filter(|(a, b)| moves(a, b)) {
            device::copy_on_device(to.data as u64, from.data as u64, size(from), queue)?;
        }
        Ok(())
    }

    fn play(&self, graph: &Graph, run: &DeviceRun, queue: Queue) -> Result<(), Diagnostics> {
        device::wait_for(queue, &[run.arena.last()])?;
        run.arena.used_on(queue.stream);
        // It reads what all runs share too, which must outlast it where the program goes meanwhile.
        self.kept(queue, &run.list.trips)?.used_on(queue.stream);
        graph.replay(queue.stream)
    }

    fn recorded(
        &self,
        run: &mut DeviceRun,
        inputs: &[BufferArg],
        outputs: &[BufferArg],
        device: DeviceId,
        kernels: &mut dyn GraphKernels,
    ) -> Result<Graph, Diagnostics> {
        let stream = device::begin_recording(device)?;
        match self.put(run, inputs, outputs, Queue { device, stream }, kernels) {
            Ok(()) => device::end_recording(),
            Err(errors) => {
                device::drop_recording();
                Err(errors)
            }
        }
    }
}
