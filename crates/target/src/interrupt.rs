//! Stopping a launch from outside. The host's check may be dear (it takes Python's lock), so it is
//! requested by the clock and not at every step.

use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostic, Diagnostics};

static CHECK: RwLock<Option<fn() -> bool>> = RwLock::new(None);

/// The message of an interrupted launch. There is no code for it: it is no fault of a program, and
/// the host raises its own exception.
const MESSAGE: &str = "the launch was interrupted";

const EVERY: Duration = Duration::from_millis(20);

/// Names the function that says whether a running launch is to stop. It is requested about every 20 ms,
/// on the thread of the launch.
pub fn set_interrupt_check(check: fn() -> bool) {
    *CHECK.write().unwrap_or_else(PoisonError::into_inner) = Some(check);
}

/// The error of a launch that the check ended.
pub fn interruption() -> Diagnostic {
    Diagnostic::new(Code::E_UNKNOWN, MESSAGE)
}

/// Whether a launch failed because the check said so, and not through any error.
pub fn is_interrupt(diagnostics: &Diagnostics) -> bool {
    diagnostics.iter().any(|d| d.code == Code::E_UNKNOWN && d.message == MESSAGE)
}

/// The clock of one launch.
pub struct Poll {
    check: Option<fn() -> bool>,
    next: Instant,
}

impl Poll {
    pub fn start() -> Self {
        let check = *CHECK.read().unwrap_or_else(PoisonError::into_inner);
        Self { check, next: Instant::now() + EVERY }
    }

    /// Whether the launch is to stop; the host is requested when it is time.
    pub fn is_interrupted(&mut self) -> bool {
        if self.check.is_none() {
            return false;
        }
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.next = now + EVERY;
        self.ask()
    }

    /// Asks the host now, for a backend with a clock of its own.
    pub fn ask(&self) -> bool {
        self.check.is_some_and(|check| check())
    }
}
