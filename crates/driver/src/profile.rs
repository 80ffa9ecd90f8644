//! Profiling sessions: each launch with its begin, its time and its work.
//!
//! One session at a time holds for the process. While none does, a launch pays one relaxed load. On
//! a device the times are those of events around the launch on its own stream, so that nothing waits
//! for it until the session ends.

use crate::cost;
use crate::device::{self, Mark};
use crate::explain::{How, Record};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tessera_cost::Work;
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_support::ForkLock;
use tessera_target::Queue;
use tessera_target::device::DeviceId;

/// One thing that ran.
#[derive(Clone, Debug)]
pub struct Sample {
    pub name: String,
    /// `kernel`, or what a step of a compiled function is: `group`, `host`, `copy`, `collective`.
    pub kind: &'static str,
    /// The backend's name.
    pub on: String,
    /// Where it stands in the user's source: file and line.
    pub place: Option<(String, u32)>,
    /// Seconds since the session began.
    pub begin: f64,
    pub seconds: f64,
    pub thread: u64,
    pub device: Option<DeviceId>,
    /// Of a collective, the rank.
    pub stream: u64,
    pub work: Option<Work>,
    /// Bytes in use when it had run: of the device's pool, or of the function's own memory.
    pub memory: Option<u64>,
}

/// What is known when something has run; its work is counted when the session ends.
struct Noted {
    sample: Sample,
    record: Option<Arc<Record>>,
    marks: Option<(Mark, Mark)>,
}

struct Session {
    start: Instant,
    /// For each device the first event, and its time on the host: the offset of the two clocks.
    origins: BTreeMap<DeviceId, (Mark, f64)>,
    noted: Vec<Noted>,
}

static ON: AtomicBool = AtomicBool::new(false);
static SESSION: ForkLock<Option<Session>> = ForkLock::new(None);

/// Whether a session holds.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Begins a session.
pub fn begin() -> Result<(), Diagnostics> {
    let mut session = SESSION.lock();
    if session.is_some() {
        return Err(Diagnostic::new(Code::E_ARGUMENT, "a profile is being taken already")
            .help("leave the `with ts.profile():` block that holds, then begin the next")
            .into());
    }
    *session = Some(Session { start: Instant::now(), origins: BTreeMap::new(), noted: Vec::new() });
    ON.store(true, Ordering::Relaxed);
    Ok(())
}

/// Ends the session; gives what ran, in the order of the begins, and how long the session was. Waits
/// for devices.
pub fn end() -> Result<(Vec<Sample>, f64), Diagnostics> {
    ON.store(false, Ordering::Relaxed);
    let Some(session) = SESSION.lock().take() else {
        return Err(Diagnostic::new(Code::E_ARGUMENT, "no profile is being taken")
            .help("write `with ts.profile() as p:`")
            .into());
    };
    let Session { start, origins, noted } = session;
    let mut out = Vec::with_capacity(noted.len());
    for Noted { mut sample, record, marks } in noted {
        if let Some((before, after)) = marks {
            after.synchronize()?;
            sample.seconds = after.seconds_since(&before)?;
            if let Some((origin, at)) = sample.device.and_then(|d| origins.get(&d)) {
                sample.begin = at + before.seconds_since(origin)?;
            }
        }
        if let Some(launch) = record.as_ref().and_then(|r| r.launch.as_ref().map(|l| (&r.spec, l)))
        {
            // Work that cannot be counted (sizes that only the device knows) is left out.
            sample.work = cost::of_launch(launch.0, launch.1).ok().map(|c| c.work);
        }
        out.push(sample);
    }
    out.sort_by(|a, b| a.begin.total_cmp(&b.begin));
    Ok((out, start.elapsed().as_secs_f64()))
}

/// A launch that is being watched: made before it, finished after it.
pub(crate) struct Span {
    start: Instant,
    queue: Option<Queue>,
    before: Option<Mark>,
}

impl Span {
    /// `None` where no session holds, or where the stream is being recorded and nothing runs.
    pub fn open(queue: Option<Queue>) -> Option<Self> {
        if !is_on() || (queue.is_some() && device::is_recording()) {
            return None;
        }
        let before = match queue {
            Some(queue) => {
                origin(queue)?;
                Some(Mark::new(queue, true).ok()?)
            }
            None => None,
        };
        Some(Self { start: Instant::now(), queue, before })
    }

    /// A launch of a kernel has been put on its stream, or is done.
    pub fn kernel(self, name: &str, loc: &Loc, record: &Arc<Record>) {
        let on = match record.launch.as_ref().map(|l| l.how) {
            Some(How::Checked | How::Watched) => "interp",
            _ => record.spec.choice.backend.name(),
        };
        let (kind, memory) = ("kernel", None);
        self.close(Reported {
            name,
            kind,
            on,
            loc,
            work: None,
            memory,
            record: Some(record.clone()),
        });
    }

    /// A step of a compiled function is done.
    pub fn step(
        self,
        (kind, name): (&'static str, &str),
        on: &str,
        loc: &Loc,
        work: Option<Work>,
        memory: Option<u64>,
    ) {
        self.close(Reported { name, kind, on, loc, work, memory, record: None });
    }

    /// A collective of a rank has been waited for.
    pub fn collective(self, name: &str, rank: usize, loc: &Loc, bytes: usize) {
        let mut session = SESSION.lock();
        let Some(session) = session.as_mut() else { return };
        let sample = Sample {
            name: name.into(),
            kind: "collective",
            on: "comm".into(),
            place: place(loc),
            begin: self.start.saturating_duration_since(session.start).as_secs_f64(),
            seconds: self.start.elapsed().as_secs_f64(),
            thread: thread(),
            device: None,
            stream: rank as u64,
            work: Some(Work::moved(bytes as u64)),
            memory: None,
        };
        session.noted.push(Noted { sample, record: None, marks: None });
    }

    fn close(self, reported: Reported<'_>) {
        let seconds = self.start.elapsed().as_secs_f64();
        let Reported { name, kind, on, loc, work, memory, record } = reported;
        let after = match (self.queue, &self.before) {
            (Some(queue), Some(_)) => Mark::new(queue, true).ok(),
            _ => None,
        };
        let on_device = self.queue.map(|q| q.device);
        let held = || on_device.and_then(|d| device::memory_stats(d).ok()).map(|m| m.in_use);
        let memory = memory.or_else(held);
        let mut session = SESSION.lock();
        let Some(session) = session.as_mut() else { return };
        let sample = Sample {
            name: name.into(),
            kind,
            on: on.into(),
            place: place(loc),
            begin: self.start.saturating_duration_since(session.start).as_secs_f64(),
            seconds,
            thread: thread(),
            device: on_device,
            stream: self.queue.map_or(0, |q| q.stream),
            work,
            memory,
        };
        session.noted.push(Noted { sample, record, marks: self.before.zip(after) });
    }
}

struct Reported<'a> {
    name: &'a str,
    kind: &'static str,
    on: &'a str,
    loc: &'a Loc,
    work: Option<Work>,
    memory: Option<u64>,
    record: Option<Arc<Record>>,
}

/// Records the first event of a device. It is waited for once, so that its time on the host is
/// known.
fn origin(queue: Queue) -> Option<()> {
    let mut session = SESSION.lock();
    let session = session.as_mut()?;
    if !session.origins.contains_key(&queue.device) {
        let mark = Mark::new(queue, true).ok()?;
        mark.synchronize().ok()?;
        let at = session.start.elapsed().as_secs_f64();
        session.origins.insert(queue.device, (mark, at));
    }
    Some(())
}

fn place(loc: &Loc) -> Option<(String, u32)> {
    // A library's own lines say little: the outermost call is the user's.
    let mut user = loc;
    while let Some(outer) = user.call_site() {
        user = outer;
    }
    user.file().map(|file| (file.name.to_string(), user.line()))
}

/// A small number for the thread.
fn thread() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    thread_local!(static MINE: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    MINE.with(|mine| *mine)
}
