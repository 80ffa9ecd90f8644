//! Stopping a launch from outside. The host's check may be dear (it takes Python's lock), so it is
//! asked by the clock and not at every block.

use crate::fault::{Fault, Outcome};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostic, Diagnostics};

static CHECK: RwLock<Option<fn() -> bool>> = RwLock::new(None);

/// The message of an interrupted launch. There is no code for it: it is no fault of a program, and
/// the host raises its own exception.
const MESSAGE: &str = "the launch was interrupted";

const EVERY: Duration = Duration::from_millis(20);

/// Names the function that says whether a running launch is to stop. It is asked about every 20 ms,
/// on the thread of the launch, between blocks of ops.
pub fn set_interrupt_check(check: fn() -> bool) {
    *CHECK.write().unwrap_or_else(PoisonError::into_inner) = Some(check);
}

/// Whether a launch failed because the check said so, and not through any error.
pub fn is_interrupt(diagnostics: &Diagnostics) -> bool {
    diagnostics.iter().any(|d| d.code == Code::E_UNKNOWN && d.message == MESSAGE)
}

/// The clock of one launch.
pub(crate) struct Poll {
    check: Option<fn() -> bool>,
    next: Instant,
}

impl Poll {
    pub fn start() -> Self {
        let check = *CHECK.read().unwrap_or_else(PoisonError::into_inner);
        Self { check, next: Instant::now() + EVERY }
    }

    pub fn poll(&mut self) -> Outcome<()> {
        let Some(check) = self.check else { return Ok(()) };
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        self.next = now + EVERY;
        if check() { Err(interruption()) } else { Ok(()) }
    }
}

pub(crate) fn interruption() -> Fault {
    Fault::new(Diagnostic::new(Code::E_UNKNOWN, MESSAGE))
}
