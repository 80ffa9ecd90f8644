//! Stopping a launch from outside. The host's check may be expensive (it takes Python's lock), so
//! it is called at intervals and not at every step.

use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostic, Diagnostics};

static CHECK: RwLock<Option<fn() -> bool>> = RwLock::new(None);

/// The message of an interrupted launch. It has no code: it is not an error of the program, and the
/// host raises its own exception.
const MESSAGE: &str = "the launch was interrupted";

const EVERY: Duration = Duration::from_millis(20);

/// Sets the function that says whether a running launch must stop. It is called about every 20 ms,
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

    /// Whether the launch must stop; calls the host's check when it is due.
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

    /// Calls the host's check now, for a backend with a clock of its own.
    pub fn ask(&self) -> bool {
        self.check.is_some_and(|check| check())
    }
}
