//! Memory, streams, events, code, recordings and graphs, each counted while it lives.

use crate::code::Kernel;
use crate::device::FakeDevice;
use crate::queue::{Recorded, Work};
use crate::world::Call;
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use tessera_diag::{Code, Diagnostic};
use tessera_target::device::{
    self as hal, Device, DeviceId, FunctionFacts, Kept, LaunchShape, Result,
};

pub struct Memory {
    pub device: Arc<FakeDevice>,
    pub address: u64,
    pub bytes: u64,
    pub home: u64,
    /// Streams besides its own that used it.
    pub others: Mutex<Vec<u64>>,
}

impl hal::Memory for Memory {
    fn address(&self) -> u64 {
        self.address
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn device(&self) -> DeviceId {
        self.device.id()
    }

    fn used_on(&self, stream: u64) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if stream != self.home && !others.contains(&stream) {
            others.push(stream);
        }
    }
}

impl Drop for Memory {
    /// The memory goes back in the order of its stream, behind what others did.
    fn drop(&mut self) {
        let others =
            std::mem::take(&mut *self.others.lock().unwrap_or_else(PoisonError::into_inner));
        let mut world = self.device.world();
        world.live.memory -= 1;
        for stream in others {
            // Nothing of a recording that was given up runs.
            if world.captures.contains_key(&stream) {
                continue;
            }
            let event = world.new_event();
            let _ = world.record(event, stream).and_then(|()| world.wait(event, self.home));
        }
        let _ = world.give(self.home, Work::Free { address: self.address });
    }
}

pub struct Stream {
    pub device: Arc<FakeDevice>,
    pub handle: u64,
}

impl hal::Stream for Stream {
    fn handle(&self) -> u64 {
        self.handle
    }

    fn device(&self) -> DeviceId {
        self.device.id()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.device.world().live.streams -= 1;
    }
}

pub struct Event {
    pub device: Arc<FakeDevice>,
    pub number: u64,
    pub timed: bool,
}

impl hal::Event for Event {
    fn record(&self, stream: u64) -> Result<()> {
        let mut world = self.device.world();
        world.enter(Call::Record)?;
        world.record(self.number, stream)
    }

    fn block(&self, stream: u64) -> Result<()> {
        let mut world = self.device.world();
        world.enter(Call::Wait)?;
        if world.leaves_out(Call::Wait) {
            return Ok(());
        }
        world.wait(self.number, stream)
    }

    fn is_past(&self) -> Result<bool> {
        let mut world = self.device.world();
        world.enter(Call::Query)?;
        Ok(world.is_past(self.number))
    }

    fn synchronize(&self) -> Result<()> {
        let mut world = self.device.world();
        world.enter(Call::Synchronize)?;
        world.synchronize_event(self.number)
    }

    fn seconds_since(&self, earlier: &dyn hal::Event) -> Result<f64> {
        let mut world = self.device.world();
        world.enter(Call::Query)?;
        let earlier = earlier.any().downcast_ref::<Event>();
        let same = |e: &&Event| e.timed && self.timed && Arc::ptr_eq(&e.device, &self.device);
        let times = earlier
            .filter(same)
            .and_then(|e| Some((world.time_of(e.number)?, world.time_of(self.number)?)));
        match times {
            Some((before, now)) => Ok(now.saturating_sub(before) as f64 * 1e-6),
            None => {
                let message = "expected two timed events of one device that are past";
                let error = Diagnostic::new(Code::E_ARGUMENT, message);
                Err(error.help("wait for both before the time between them is read").into())
            }
        }
    }

    fn any(&self) -> &dyn Any {
        self
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.device.world().live.events -= 1;
    }
}

pub struct Module {
    pub device: Arc<FakeDevice>,
    pub kernel: Arc<Kernel>,
}

impl hal::Module for Module {
    fn function(self: Arc<Self>, name: &str) -> Result<Arc<dyn hal::Function>> {
        let mut world = self.device.world();
        world.enter(Call::Function)?;
        if self.kernel.func.name != name {
            let message = format!("the code has no kernel `{name}`");
            return Err(Diagnostic::new(Code::E_TARGET_CODEGEN, message).into());
        }
        world.live.functions += 1;
        drop(world);
        Ok(Arc::new(Function { module: self }))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        self.device.world().live.modules -= 1;
    }
}

struct Function {
    module: Arc<Module>,
}

impl hal::Function for Function {
    fn name(&self) -> &str {
        &self.module.kernel.func.name
    }

    fn facts(&self) -> FunctionFacts {
        FunctionFacts { max_threads: 1024, ..FunctionFacts::default() }
    }

    fn resident_blocks(&self, _threads: u32, _shared: u32) -> Result<u32> {
        Ok(1)
    }

    fn resident_clusters(&self, _shape: &LaunchShape) -> Result<u32> {
        Ok(1)
    }

    unsafe fn launch(
        &self,
        shape: &LaunchShape,
        params: &[u8],
        _starts: &[usize],
        stream: u64,
    ) -> Result<()> {
        if shape.grid.contains(&0) {
            return Ok(());
        }
        let Module { device, kernel } = &*self.module;
        let mut world = device.world();
        world.enter(Call::Launch)?;
        let words: Vec<u64> = params
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
            .collect();
        if words.len() < kernel.words() {
            let (wanted, got) = (kernel.words(), words.len());
            let message = format!("expected {wanted} words of parameters, got {got}");
            return Err(Diagnostic::new(Code::E_UNKNOWN, message).into());
        }
        world.give(stream, Work::Launch { kernel: kernel.clone(), words })
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        self.module.device.world().live.functions -= 1;
    }
}

pub struct Recording {
    pub device: Arc<FakeDevice>,
    pub stream: u64,
}

impl hal::Recording for Recording {
    fn stream(&self) -> u64 {
        self.stream
    }

    fn end(self: Box<Self>, kept: Kept) -> Result<Box<dyn hal::Graph>> {
        let mut world = self.device.world();
        world.enter(Call::EndCapture)?;
        let recorded = world.end_capture(self.stream);
        if !recorded.is_joined(self.stream) {
            let message = "a recording ends with work on a stream that its first does not wait for";
            let error = Diagnostic::new(Code::E_CAPTURE, message);
            return Err(error.help("wait for an event behind that work").into());
        }
        world.live.graphs += 1;
        drop(world);
        let (device, origin, streams) = (self.device.clone(), self.stream, Mutex::default());
        Ok(Box::new(Graph { device, recorded, origin, kept, streams }))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let mut world = self.device.world();
        world.end_capture(self.stream);
        world.live.recordings -= 1;
    }
}

struct Graph {
    device: Arc<FakeDevice>,
    recorded: Recorded,
    /// The stream that it was recorded on first.
    origin: u64,
    kept: Kept,
    /// The streams it was launched on.
    streams: Mutex<Vec<u64>>,
}

impl hal::Graph for Graph {
    fn nodes(&self) -> usize {
        self.recorded.nodes()
    }

    unsafe fn launch(&self, stream: u64) -> Result<()> {
        let mut world = self.device.world();
        world.enter(Call::GraphLaunch)?;
        world.not_capturing(stream, "the launch of a graph")?;
        world.replay(&self.recorded, self.origin, stream)?;
        drop(world);
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if !streams.contains(&stream) {
            streams.push(stream);
        }
        Ok(())
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        for &stream in self.streams.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            self.kept.memory.iter().for_each(|memory| memory.used_on(stream));
        }
        self.device.world().live.graphs -= 1;
    }
}
