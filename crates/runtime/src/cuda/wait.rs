//! Waiting for the device; the host can interrupt the wait.

use super::api::Failure;
use super::error::{CudaError, NOT_READY};
use std::time::{Duration, Instant};
use tessera_target::Poll;

/// How long the device is polled without pause: most kernels end sooner.
const SPIN: Duration = Duration::from_micros(200);
/// How long polls yield to other threads, after that.
const YIELD: Duration = Duration::from_millis(2);
/// The longest pause; before it pauses are a sixteenth of what was waited.
const PAUSE: Duration = Duration::from_millis(1);
/// Polls of the device between two reads of the clock.
const ROUND: u32 = 8;

/// Polls until `done`. The device goes on when the host stops waiting.
pub(crate) fn until(mut done: impl FnMut() -> Result<bool, CudaError>) -> Result<(), CudaError> {
    if done()? {
        return Ok(());
    }
    let (mut poll, start) = (Poll::start(), Instant::now());
    loop {
        for _ in 0..ROUND {
            if done()? {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        if poll.is_interrupted() {
            return Err(CudaError::interrupted());
        }
        match start.elapsed() {
            waited if waited < SPIN => {}
            waited if waited < YIELD => std::thread::yield_now(),
            waited => std::thread::sleep((waited / 16).min(PAUSE)),
        }
    }
}

/// The answer of a driver's query.
pub(crate) fn answer(requested: Result<(), Failure>) -> Result<bool, CudaError> {
    match requested {
        Ok(()) => Ok(true),
        Err(Failure { result: NOT_READY, .. }) => Ok(false),
        Err(failure) => Err(failure.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_work_or_its_error() {
        let mut left = 3000;
        until(|| {
            left -= 1;
            Ok(left == 0)
        })
        .unwrap();
        let lost = Failure { call: "cuStreamQuery", result: 700 };
        assert!(until(|| answer(Err(lost))).unwrap_err().sticky);
        assert!(!answer(Err(Failure { call: "cuStreamQuery", result: NOT_READY })).unwrap());
    }
}
