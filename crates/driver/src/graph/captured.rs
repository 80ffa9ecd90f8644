//! Launches of a plan recorded once and done again as one graph of the device.
//!
//! A graph has the addresses of its arrays in it. Arrays that come again at the addresses of an earlier
//! call, as those of a training loop do, replay its graph; others are recorded too while there are few
//! graphs, and after that are copied to arrays of the program's own and back.

use super::device::{DeviceRun, alignment};
use super::program::GraphProgram;
use super::run::{GraphKernels, bytes_of};
use crate::gpu::{self, Graph, Memory};
use crate::launch::Streams;
use std::collections::BTreeSet;
use tessera_diag::Diagnostics;
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

/// A graph on arrays of the program's own.
struct Own {
    graph: Option<Graph>,
    inputs: Vec<Memory>,
    outputs: Vec<Memory>,
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
        let captured = self.captured.lock();
        let own = captured.own.as_ref().is_some_and(|own| own.graph.is_some());
        captured.graphs.len() + usize::from(own)
    }

    /// [`Self::run_on`], recorded and replayed. The first call with arrays that lie as these do runs as
    /// usual: code is loaded then.
    pub fn replay_on(
        &self,
        inputs: &[BufferArg],
        outputs: &[BufferArg],
        device: u32,
        streams: &Streams,
        kernels: &mut dyn GraphKernels,
    ) -> Result<(), Diagnostics> {
        if gpu::is_recording() {
            // A part of the graph that the caller records.
            return self.run_on(inputs, outputs, device, streams, kernels);
        }
        self.check_arrays(inputs, outputs)?;
        let queue = Queue { device, stream: streams.on };
        gpu::wait_for(queue, &streams.after)?;
        let mut captured = self.captured.lock();
        self.replay(&mut captured, inputs, outputs, queue, kernels)?;
        drop(captured);
        gpu::hold_back(queue, &streams.then)
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
            return play(graph, run, queue);
        }
        let aligned = alignment(inputs, outputs);
        if !warm.contains(&aligned) {
            self.put(run, inputs, outputs, queue, kernels)?;
            warm.insert(aligned);
            return Ok(());
        }
        if graphs.len() < GRAPHS {
            let graph = self.recorded(run, inputs, outputs, queue.device, kernels)?;
            play(&graph, run, queue)?;
            graphs.push((at, graph));
            return Ok(());
        }
        let own = match own {
            Some(own) => own,
            none => {
                let all = |list: &[BufferArg]| -> Result<Vec<Memory>, Diagnostics> {
                    list.iter().map(|b| Memory::new(queue, size(b).max(1))).collect()
                };
                none.insert(Own { graph: None, inputs: all(inputs)?, outputs: all(outputs)? })
            }
        };
        let moved = |list: &[BufferArg], to: &[Memory]| -> Vec<BufferArg> {
            let each = list.iter().zip(to);
            each.map(|(b, m)| BufferArg { data: m.address() as *mut u8, ..b.clone() }).collect()
        };
        let (ins, outs) = (moved(inputs, &own.inputs), moved(outputs, &own.outputs));
        for memory in own.inputs.iter().chain(&own.outputs) {
            gpu::wait_for(queue, &[memory.last()])?;
            memory.used_on(queue.stream);
        }
        for (from, to) in inputs.iter().zip(&ins).filter(|(b, _)| size(b) > 0) {
            gpu::copy_on_device(to.data as u64, from.data as u64, size(from), queue)?;
        }
        match &own.graph {
            Some(graph) => play(graph, run, queue)?,
            None => {
                // Code for arrays on such addresses may not be there yet.
                self.put(run, &ins, &outs, queue, kernels)?;
                own.graph = Some(self.recorded(run, &ins, &outs, queue.device, kernels)?);
            }
        }
        for (from, to) in outs.iter().zip(outputs).filter(|(b, _)| size(b) > 0) {
            gpu::copy_on_device(to.data as u64, from.data as u64, size(from), queue)?;
        }
        Ok(())
    }

    fn recorded(
        &self,
        run: &mut DeviceRun,
        inputs: &[BufferArg],
        outputs: &[BufferArg],
        device: u32,
        kernels: &mut dyn GraphKernels,
    ) -> Result<Graph, Diagnostics> {
        let stream = gpu::begin_recording(device)?;
        match self.put(run, inputs, outputs, Queue { device, stream }, kernels) {
            Ok(()) => gpu::end_recording(),
            Err(errors) => {
                gpu::drop_recording();
                Err(errors)
            }
        }
    }
}

fn play(graph: &Graph, run: &DeviceRun, queue: Queue) -> Result<(), Diagnostics> {
    gpu::wait_for(queue, &[run.arena.last()])?;
    run.arena.used_on(queue.stream);
    graph.replay(queue.stream)
}
