//! Progress of a search, reported to the host. A report is expensive (it takes Python's lock), so
//! the rate is limited.

use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Compiling,
    Measuring,
    Done,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Compiling => "compiling",
            Phase::Measuring => "measuring",
            Phase::Done => "done",
        }
    }
}

/// How far a search is.
#[derive(Clone, Debug)]
pub struct Moment<'a> {
    pub kernel: &'a str,
    pub phase: Phase,
    /// From 0 to 1.
    pub part: f64,
    /// Candidates that are still in.
    pub left: usize,
    /// The best so far, with its time in seconds.
    pub best: Option<(&'a str, f64)>,
}

type Hook = fn(&Moment<'_>) -> bool;

static HOOK: RwLock<Option<Hook>> = RwLock::new(None);
static LAST: Mutex<Option<Instant>> = Mutex::new(None);
const EVERY: Duration = Duration::from_millis(50);

/// Sets the function that is called about every 50 ms. Where it returns false, the search ends as
/// by an interrupt.
pub fn set_progress(hook: Hook) {
    *HOOK.write().unwrap_or_else(PoisonError::into_inner) = Some(hook);
}

/// Gives whether to go on.
pub fn tell(moment: &Moment<'_>) -> bool {
    let Some(hook) = *HOOK.read().unwrap_or_else(PoisonError::into_inner) else { return true };
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let is_time = last.is_none_or(|last| now.duration_since(last) >= EVERY);
    if moment.phase != Phase::Done && !is_time {
        return true;
    }
    // The next search reports its first moment immediately.
    *last = (moment.phase != Phase::Done).then_some(now);
    drop(last);
    hook(moment)
}

/// Says that a search is over, and gives whether to go on.
pub fn done(kernel: &str) -> bool {
    tell(&Moment { kernel, phase: Phase::Done, part: 1.0, left: 0, best: None })
}
