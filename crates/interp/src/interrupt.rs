//! A launch that the host stops ends like one that fails.

use crate::fault::{Fault, Outcome};

/// The clock of one launch.
pub(crate) struct Poll(tessera_target::Poll);

impl Poll {
    pub fn start() -> Self {
        Self(tessera_target::Poll::start())
    }

    pub fn poll(&mut self) -> Outcome<()> {
        if self.0.is_interrupted() { Err(interruption()) } else { Ok(()) }
    }
}

pub(crate) fn interruption() -> Fault {
    Fault::new(tessera_target::interruption())
}
