//! A process among others.

use super::fault::{Fault, What};
use super::in_flight::InFlight;
use super::report;
use super::segment::Segment;
use crate::control::{Event, Member, Place};
use crate::{Call, Waiting};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostic};
use tessera_target::Poll;

/// Limits of a session, and a fault for tests.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a collective may take.
    pub limit: Duration,
    /// How long it takes before a warning says who is missing.
    pub warns: Duration,
    pub fault: Option<Fault>,
}

impl Default for Options {
    fn default() -> Self {
        let (limit, warns) = (Duration::from_secs(300), Duration::from_secs(30));
        Self { limit, warns, fault: None }
    }
}

/// What the thread of the connection tells.
struct News {
    segment: Segment,
    me: usize,
    any: AtomicBool,
    lost: Mutex<Option<(Option<usize>, String)>>,
    left: Vec<AtomicBool>,
}

pub struct Session {
    pub(super) in_flight: Mutex<InFlight>,
    /// Whether every process has a core.
    pub(super) spins: bool,
    segment: Arc<Segment>,
    news: Arc<News>,
    member: Mutex<Option<Member>>,
    place: Place,
    options: Options,
    /// Collectives that ranks of this process have started.
    started: AtomicU64,
    corrupts: AtomicBool,
    /// When it was last said what this process does.
    said: Mutex<Option<Instant>>,
    poll: Mutex<Poll>,
}

impl Session {
    /// Joins the other processes, which all have to be there within `limit`.
    pub fn join(
        place: &Place,
        version: &str,
        limit: Duration,
        options: Options,
    ) -> Result<Arc<Session>, Diagnostic> {
        let (me, world) = (place.rank, place.world);
        let map = |name: &str, bytes: u64| {
            // Two mappings: the news' own is not moved with the session.
            let (segment, again) =
                (Segment::open(name, bytes, world)?, Segment::open(name, bytes, world)?);
            let left = (0..world).map(|_| AtomicBool::new(false)).collect();
            let news = News {
                segment: again,
                me,
                any: AtomicBool::new(false),
                lost: Mutex::new(None),
                left,
            };
            Ok((Arc::new(segment), Arc::new(news)))
        };
        let heard = |(_, news): &(Arc<Segment>, Arc<News>)| -> Box<dyn Fn(Event) + Send> {
            let news = news.clone();
            Box::new(move |event| news.hear(event))
        };
        let (member, (segment, news)) = Member::join(place, version, limit, map, heard)?;
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Ok(Arc::new(Session {
            in_flight: Mutex::new(InFlight::new(segment.clone(), me)),
            spins: cores >= world,
            segment,
            news,
            member: Mutex::new(Some(member)),
            place: place.clone(),
            options,
            started: AtomicU64::new(0),
            corrupts: AtomicBool::new(false),
            said: Mutex::new(None),
            poll: Mutex::new(Poll::start()),
        }))
    }

    /// The number of this process.
    pub fn rank(&self) -> usize {
        self.place.rank
    }

    /// How many processes there are.
    pub fn world(&self) -> usize {
        self.place.world
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Ends the connection: others hear that this process has ended its part. Later collectives are errors.
    pub fn leave(&self) {
        let member = self.member.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(member);
        let mut in_flight = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        let why = Diagnostic::new(
            Code::E_COMM_INIT,
            "expected processes that are joined, got a collective after `dist.shutdown()`",
        );
        in_flight.fail(why.help("call `dist.shutdown()` at the end of the program"));
    }

    /// Whether a signal ends what waits.
    pub(super) fn is_interrupted(&self) -> bool {
        self.poll.lock().unwrap_or_else(PoisonError::into_inner).is_interrupted()
    }

    pub(super) fn is_over(&self) -> bool {
        self.news.any.load(Ordering::Acquire) || self.segment.poisoned().is_some()
    }

    /// The in_flight, unless something has ended all collectives.
    pub(super) fn checked<'a>(
        &self,
        mut in_flight: MutexGuard<'a, InFlight>,
    ) -> Result<MutexGuard<'a, InFlight>, Diagnostic> {
        if let Some(why) = &in_flight.failed {
            return Err(why.clone());
        }
        if let Some((who, code, text)) = self.segment.poisoned() {
            return Err(in_flight.fail(report::failed(who, code, &text)));
        }
        if self.news.any.load(Ordering::Acquire) {
            let lost = self.news.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some((who, text)) = lost {
                return Err(in_flight.fail(report::lost(who, self.rank(), &text)));
            }
        }
        Ok(in_flight)
    }

    /// Why ranks that wait will not go on; `None` where they may.
    pub(super) fn hopeless(
        &self,
        in_flight: &mut InFlight,
        waiting: &[Waiting],
    ) -> Option<Diagnostic> {
        if let Some(why) = report::stuck(in_flight, waiting) {
            return Some(why);
        }
        let missing = report::missing(in_flight, waiting);
        let left =
            |p: &usize| self.news.left[*p].load(Ordering::Acquire) && !in_flight.has_from(*p);
        if let Some(process) = missing.iter().copied().find(left) {
            return Some(report::left(process, waiting));
        }
        let since = *in_flight.still.get_or_insert_with(Instant::now);
        let still = since.elapsed();
        if still > self.options.limit {
            return Some(report::late(&self.segment, &missing, waiting, self.options.limit));
        }
        if still > self.options.warns && !in_flight.warned {
            in_flight.warned = true;
            eprintln!("{}", report::slow(&self.segment, &missing, waiting, self.options.warns));
        }
        if still > Duration::from_secs(1) {
            self.say(true, || report::waits(waiting));
        }
        None
    }

    /// Says what this process does, once a second.
    fn say(&self, waits: bool, text: impl FnOnce() -> String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|at| at.elapsed() > Duration::from_secs(1)) {
            *said = Some(Instant::now());
            self.segment.publish(self.rank(), waits, text().as_bytes());
        }
    }

    /// A rank of this process starts a collective.
    pub(super) fn before(&self, call: &Call) -> Result<(), Diagnostic> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        self.say(false, || format!("in {}{}", call, report::place(call)));
        let chosen = |f: &&Fault| (f.rank, f.at) == (self.rank(), number);
        let Some(fault) = self.options.fault.as_ref().filter(chosen) else { return Ok(()) };
        match fault.what {
            // SAFETY: a signal to this process.
            What::Kill => drop(unsafe { libc::kill(libc::getpid(), libc::SIGKILL) }),
            What::Hang => std::thread::sleep(Duration::from_secs(3600)),
            What::Slow => std::thread::sleep(fault.time),
            What::Drop => {
                let member = self.member.lock().unwrap_or_else(PoisonError::into_inner);
                member.iter().for_each(Member::disconnect);
            }
            What::Stop => {
                let member = self.member.lock().unwrap_or_else(PoisonError::into_inner);
                member.iter().for_each(Member::hush);
                drop(member);
                std::thread::sleep(fault.time);
            }
            What::Corrupt => self.corrupts.store(true, Ordering::Relaxed),
        }
        Ok(())
    }

    pub(super) fn corrupts(&self) -> bool {
        self.corrupts.load(Ordering::Relaxed) && self.corrupts.swap(false, Ordering::Relaxed)
    }

    /// Ends the collectives of all processes; not where this one has ended its part, and they go on without it.
    pub(super) fn poison(&self, why: &Diagnostic) {
        if self.member.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return;
        }
        self.segment.poison(self.rank(), why.code, &why.message);
    }
}

impl News {
    fn hear(&self, event: Event) {
        match event {
            Event::Lost(who, text) => {
                let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
                lost.get_or_insert((who, text));
                self.any.store(true, Ordering::Release);
            }
            Event::Left(who) => {
                if let Some(left) = self.left.get(who) {
                    left.store(true, Ordering::Release);
                }
            }
        }
        self.segment.strike_bell(self.me);
    }
}
