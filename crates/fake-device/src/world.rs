//! The state of a device: queues, events, memory, and what was found.

use crate::memory::{Memory, Use};
use crate::queue::{Clock, EventState, Order, Queue, Recorded, Work};
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_target::device::{DeviceError, Result};

/// The kinds of calls that a driver of devices has.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    MemoryInfo,
    Alloc,
    Trim,
    CopyIn,
    CopyOut,
    Copy,
    Fill,
    Stream,
    CheckStream,
    Synchronize,
    Query,
    Event,
    Record,
    Wait,
    Assemble,
    Load,
    Function,
    Launch,
    Workspace,
    Capture,
    EndCapture,
    GraphLaunch,
}

/// How many objects there are.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    pub memory: u64,
    pub streams: u64,
    pub events: u64,
    pub modules: u64,
    pub functions: u64,
    pub recordings: u64,
    pub graphs: u64,
}

/// Queries of an event that are answered no before its work is run: a host that polls must come to an end.
const POLLS: u64 = 8;

pub struct World {
    pub order: Order,
    pub memory: Memory,
    /// Bytes that allocations may have together.
    pub room: u64,
    pub live: Live,
    pub hazards: Vec<String>,
    pub calls: BTreeMap<Call, u64>,
    pub total: u64,
    /// The call that fails: of a kind or of any, by its number.
    pub failing: Option<(Option<Call>, u64)>,
    /// The wait that is left out.
    pub left_out: Option<u64>,
    /// The streams that are recorded, with the one that each recording began on.
    pub captures: BTreeMap<u64, u64>,
    /// What recordings hold, by that stream.
    pub recordings: BTreeMap<u64, Recorded>,
    pub workspaces: BTreeMap<u64, u64>,
    ordinal: u32,
    queues: BTreeMap<u64, Queue>,
    events: BTreeMap<u64, EventState>,
    polls: u64,
    host: Clock,
    /// Items that have run.
    time: u64,
    error: Option<DeviceError>,
    random: u64,
    next: u64,
}

fn wrong(code: Code, message: String, help: &str) -> DeviceError {
    Diagnostic::new(code, message).help(help).into()
}

impl World {
    pub fn new(ordinal: u32) -> Self {
        Self {
            order: Order::Late,
            memory: Memory::new(ordinal),
            room: 1 << 34,
            live: Live::default(),
            hazards: Vec::new(),
            calls: BTreeMap::new(),
            total: 0,
            failing: None,
            left_out: None,
            captures: BTreeMap::new(),
            recordings: BTreeMap::new(),
            workspaces: BTreeMap::new(),
            ordinal,
            queues: [(0, Queue::default())].into(),
            events: BTreeMap::new(),
            polls: 0,
            host: Clock::default(),
            time: 0,
            error: None,
            random: 0,
            next: 1,
        }
    }

    pub fn set_order(&mut self, order: Order) {
        self.order = order;
        if let Order::Random(seed) = order {
            self.random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        }
    }

    /// Counts a call, which fails where that is requested, or where the device is lost.
    pub fn enter(&mut self, call: Call) -> Result<()> {
        let count = self.calls.entry(call).or_default();
        let now = (*count, self.total);
        *count += 1;
        self.total += 1;
        let fails = match self.failing {
            Some((Some(kind), number)) => kind == call && now.0 == number,
            Some((None, number)) => now.1 == number,
            None => false,
        };
        if fails {
            let message = format!("the driver call {call:?} failed on demand");
            return Err(wrong(Code::E_DRIVER, message, "let it succeed"));
        }
        match &self.error {
            Some(error) if error.lost => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Whether the call that was just counted is one to leave out.
    pub fn leaves_out(&self, call: Call) -> bool {
        let number = self.calls.get(&call).map(|count| count - 1);
        number.is_some() && number == self.left_out
    }

    pub fn new_stream(&mut self) -> u64 {
        let handle = self.number();
        self.queues.insert(handle, Queue::default());
        handle
    }

    pub fn new_event(&mut self) -> u64 {
        let number = self.number();
        self.events.insert(number, EventState::default());
        number
    }

    /// A handle that no other device has either.
    fn number(&mut self) -> u64 {
        self.next += 1;
        u64::from(self.ordinal + 1) << 32 | self.next
    }

    pub fn known(&self, stream: u64) -> Result<()> {
        if self.queues.contains_key(&stream) {
            return Ok(());
        }
        let message = format!("expected a stream of fake:{}, got {stream:#x}", self.ordinal);
        let help = "pass a stream of the device that the arrays are on";
        Err(wrong(Code::E_LAUNCH_DEVICE_MISMATCH, message, help))
    }

    /// An error where the stream is being recorded, which `what` cannot be.
    pub fn not_capturing(&self, stream: u64, what: &str) -> Result<()> {
        self.known(stream)?;
        if !self.captures.contains_key(&stream) {
            return Ok(());
        }
        let message = format!("{what} cannot be recorded into a graph");
        Err(wrong(Code::E_CAPTURE, message, "do it before the recording begins"))
    }

    /// Puts work on a stream, or into the recording of it.
    pub fn give(&mut self, stream: u64, work: Work) -> Result<()> {
        self.known(stream)?;
        if let Some(recorded) = self.recording(stream) {
            recorded.work.push((stream, work));
            return Ok(());
        }
        self.note(stream, &work);
        if let Some(queue) = self.queues.get_mut(&stream) {
            queue.items.push_back(work);
        }
        match self.order {
            Order::Early => self.drain(stream, usize::MAX),
            Order::Late => {}
            Order::Random(_) => self.run_some(),
        }
        Ok(())
    }

    /// The recording that a stream is part of.
    fn recording(&mut self, stream: u64) -> Option<&mut Recorded> {
        self.recordings.get_mut(self.captures.get(&stream)?)
    }

    /// Records an event behind the stream's work so far.
    pub fn record(&mut self, event: u64, stream: u64) -> Result<()> {
        self.known(stream)?;
        self.recordings.values_mut().for_each(|recorded| {
            recorded.events.remove(&event);
        });
        if let Some(recorded) = self.recording(stream) {
            recorded.record(event, stream);
            return Ok(());
        }
        let state = self.events.entry(event).or_default();
        state.version += 1;
        let version = state.version;
        self.give(stream, Work::Record { event, version })
    }

    /// Lets a stream wait for the event as it was recorded last. A stream that waits for one of a
    /// recording becomes a part of that.
    pub fn wait(&mut self, event: u64, stream: u64) -> Result<()> {
        self.known(stream)?;
        let of = self.recordings.iter().find(|(_, recorded)| recorded.events.contains_key(&event));
        if let Some((&origin, _)) = of {
            if *self.captures.entry(stream).or_insert(origin) != origin {
                let message = "a stream cannot wait for an event of another recording";
                return Err(wrong(Code::E_CAPTURE, message.into(), "end the first before"));
            }
            if let Some(recorded) = self.recording(stream) {
                recorded.wait(event, stream);
            }
            return Ok(());
        }
        self.not_capturing(stream, "waiting for an event from before the recording")?;
        let version = self.events.entry(event).or_default().version;
        self.give(stream, Work::Wait { event, version })
    }

    pub fn begin_capture(&mut self) -> u64 {
        let stream = self.new_stream();
        self.captures.insert(stream, stream);
        self.recordings.insert(stream, Recorded::default());
        stream
    }

    /// Ends a recording, on all of its streams.
    pub fn end_capture(&mut self, origin: u64) -> Recorded {
        self.captures.retain(|_, of| *of != origin);
        self.recordings.remove(&origin).unwrap_or_default()
    }

    /// Gives recorded work to a stream. Other streams of the recording become ones of this launch,
    /// which run beside it as far as the recorded events let them.
    pub fn replay(&mut self, recorded: &Recorded, origin: u64, on: u64) -> Result<()> {
        let (mut streams, mut events) = (BTreeMap::from([(origin, on)]), BTreeMap::new());
        for (stream, work) in &recorded.work {
            let stream = match streams.get(stream) {
                Some(stream) => *stream,
                None => {
                    let new = self.new_stream();
                    streams.insert(*stream, new);
                    new
                }
            };
            match work {
                Work::Record { event, version } => {
                    let new = self.new_event();
                    events.insert((*event, *version), new);
                    self.record(new, stream)?;
                }
                Work::Wait { event, version } => {
                    if let Some(event) = events.get(&(*event, *version)) {
                        self.wait(*event, stream)?;
                    }
                }
                work => self.give(stream, work.clone())?,
            }
        }
        Ok(())
    }

    /// What the program's order says of an item, before it runs.
    fn note(&mut self, stream: u64, work: &Work) {
        let Some(queue) = self.queues.get_mut(&stream) else { return };
        queue.clock.join(&self.host);
        if let Work::Wait { event, .. } = work
            && let Some(state) = self.events.get(event)
        {
            queue.clock.join(&state.clock);
        }
        let number = queue.clock.step(stream);
        if let Work::Record { event, .. } = work
            && let Some(state) = self.events.get_mut(event)
        {
            state.clock = queue.clock.clone();
        }
        let clock = &queue.clock;
        for one in uses(work) {
            self.hazards.extend(self.memory.access(&one, stream, number, clock));
        }
    }

    /// Reads bytes after the stream's work so far.
    pub fn read(&mut self, stream: u64, from: u64, to: &mut [u8]) -> Result<()> {
        let Some(queue) = self.queues.get_mut(&stream) else { return self.known(stream) };
        queue.clock.join(&self.host);
        let number = queue.clock.step(stream);
        let bytes = to.len() as u64;
        let one = Use { what: "a copy to the host", address: from, bytes, writes: false };
        self.hazards.extend(self.memory.access(&one, stream, number, &queue.clock));
        self.synchronize(stream)?;
        let at = self.memory.at(from, bytes)?;
        // SAFETY: `at` has found these bytes.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(at, to.len()) };
        Ok(())
    }

    pub fn synchronize(&mut self, stream: u64) -> Result<()> {
        self.known(stream)?;
        self.drain(stream, usize::MAX);
        if let Some(queue) = self.queues.get(&stream) {
            self.host.join(&queue.clock);
        }
        self.report()
    }

    pub fn synchronize_all(&mut self) -> Result<()> {
        self.settle();
        self.report()
    }

    /// Runs all work that there is.
    pub fn settle(&mut self) {
        for stream in self.queues.keys().copied().collect::<Vec<_>>() {
            self.drain(stream, usize::MAX);
            if let Some(queue) = self.queues.get(&stream) {
                self.host.join(&queue.clock);
            }
        }
    }

    pub fn is_idle(&self, stream: u64) -> Result<bool> {
        self.known(stream)?;
        Ok(self.queues.get(&stream).is_some_and(|queue| queue.items.is_empty()))
    }

    pub fn is_past(&mut self, event: u64) -> bool {
        self.polls += 1;
        if self.polls.is_multiple_of(POLLS) {
            self.reach(event);
        } else if matches!(self.order, Order::Random(_)) {
            self.run_some();
        }
        let Some(state) = self.events.get(&event) else { return true };
        let is_past = state.reached >= state.version;
        if is_past {
            self.host.join(&state.clock);
        }
        is_past
    }

    pub fn synchronize_event(&mut self, event: u64) -> Result<()> {
        self.reach(event);
        if let Some(state) = self.events.get(&event) {
            self.host.join(&state.clock);
        }
        self.report()
    }

    /// When an event was passed, where it was.
    pub fn time_of(&self, event: u64) -> Option<u64> {
        let state = self.events.get(&event)?;
        (state.version > 0 && state.reached >= state.version).then_some(state.time)
    }

    /// An error of work that has run.
    fn report(&mut self) -> Result<()> {
        match &self.error {
            None => Ok(()),
            Some(error) if error.lost => Err(error.clone()),
            Some(_) => self.error.take().map_or(Ok(()), Err),
        }
    }

    /// Runs what an event stands behind.
    fn reach(&mut self, event: u64) {
        if let Some((version, reached)) = self.events.get(&event).map(|s| (s.version, s.reached))
            && reached < version
        {
            self.run_to(event, version);
        }
    }

    /// Runs the stream that records the event up to there.
    fn run_to(&mut self, event: u64, version: u64) {
        let is_it = |work: &Work| matches!(work, Work::Record { event: e, version: v } if (*e, *v) == (event, version));
        let place = self.queues.iter().find_map(|(&stream, queue)| {
            queue.items.iter().position(is_it).map(|at| (stream, at + 1))
        });
        if let Some((stream, count)) = place {
            self.drain(stream, count);
        }
    }

    /// Runs a number of items of a stream, and what they wait for.
    fn drain(&mut self, stream: u64, count: usize) {
        for _ in 0..count {
            let front = self.queues.get(&stream).and_then(|queue| queue.items.front());
            match front {
                None => return,
                Some(&Work::Wait { event, version }) if !self.has_reached(event, version) => {
                    self.run_to(event, version);
                }
                Some(_) => {}
            }
            let next = self.queues.get_mut(&stream).and_then(|queue| queue.items.pop_front());
            if let Some(work) = next {
                self.run(work);
            }
        }
    }

    fn has_reached(&self, event: u64, version: u64) -> bool {
        self.events.get(&event).is_none_or(|state| state.reached >= version)
    }

    /// Runs a few items of random streams, as far as waits allow.
    fn run_some(&mut self) {
        for _ in 0..self.draw(4) {
            let ready: Vec<u64> = self
                .queues
                .iter()
                .filter(|(_, queue)| match queue.items.front() {
                    None => false,
                    Some(&Work::Wait { event, version }) => self.has_reached(event, version),
                    Some(_) => true,
                })
                .map(|(&stream, _)| stream)
                .collect();
            if ready.is_empty() {
                return;
            }
            let one = ready[self.draw(ready.len() as u64) as usize];
            self.drain(one, 1);
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below.max(1)
    }

    fn run(&mut self, work: Work) {
        self.time += 1;
        if self.error.as_ref().is_some_and(|error| error.lost) {
            return;
        }
        if let Err(error) = self.execute(work) {
            self.error.get_or_insert(error);
        }
    }

    fn execute(&mut self, work: Work) -> Result<()> {
        match work {
            Work::CopyIn { to, data } => {
                let at = self.memory.at(to, data.len() as u64)?;
                // SAFETY: `at` has found these bytes.
                unsafe { at.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
            }
            Work::Copy { to, from, bytes } => {
                let (from, to) = (self.memory.at(from, bytes)?, self.memory.at(to, bytes)?);
                // SAFETY: `at` has found these bytes of both.
                unsafe { to.copy_from(from, bytes as usize) };
            }
            Work::Fill { to, value, bytes } => {
                // SAFETY: as above.
                unsafe { self.memory.at(to, bytes)?.write_bytes(value, bytes as usize) };
            }
            Work::Launch { kernel, words } => {
                let memory = &mut self.memory;
                kernel
                    .run(&words, |address, bytes| memory.at(address, bytes).map_err(Fault::Device))
                    .map_err(|fault| match fault {
                        Fault::Device(error) => error.note(format!("in `{}`", kernel.func.name)),
                        Fault::Kernel(errors) => first(errors),
                    })?;
            }
            Work::Record { event, version } => {
                let time = self.time;
                if let Some(state) = self.events.get_mut(&event) {
                    state.reached = state.reached.max(version);
                    state.time = time;
                }
            }
            Work::Wait { .. } => {}
            Work::Free { address } => self.memory.free(address),
        }
        Ok(())
    }
}

/// Why a kernel did not run to its end: its memory, or what it found itself.
enum Fault {
    Device(DeviceError),
    Kernel(Diagnostics),
}

impl From<Diagnostics> for Fault {
    fn from(errors: Diagnostics) -> Self {
        Fault::Kernel(errors)
    }
}

fn first(errors: Diagnostics) -> DeviceError {
    let found = errors.into_iter().next();
    found.unwrap_or_else(|| Diagnostic::new(Code::E_DRIVER, "a kernel failed")).into()
}

/// What an item reads and writes.
fn uses(work: &Work) -> Vec<Use> {
    let one = |what, address, bytes, writes| Use { what, address, bytes, writes };
    match work {
        Work::CopyIn { to, data } => {
            vec![one("a copy from the host", *to, data.len() as u64, true)]
        }
        Work::Copy { to, from, bytes } => {
            vec![
                one("a copy's read", *from, *bytes, false),
                one("a copy's write", *to, *bytes, true),
            ]
        }
        Work::Fill { to, bytes, .. } => vec![one("a fill", *to, *bytes, true)],
        Work::Launch { kernel, words } => kernel.uses(words),
        // The pool may give the memory to others from here on.
        Work::Free { address } => vec![one("the pool's next use", *address, 1, true)],
        Work::Record { .. } | Work::Wait { .. } => Vec::new(),
    }
}
