//! Whether there is memory for the result of an op. The host's allocator ends the process where
//! there is none, so large allocations are tried before; small ones are assumed to succeed.

use crate::fault::{Outcome, fault};
use tessera_diag::{Code, Loc};

/// Smaller allocations are not tried.
pub const LARGE: usize = 1 << 20;

/// Refuses an op that needs this many bytes in one piece where the process cannot have them.
pub fn room(bytes: usize, loc: &Loc) -> Outcome<()> {
    // Nothing is written to it, so it costs a system call and no pages.
    if bytes < LARGE || Vec::<u8>::new().try_reserve_exact(bytes).is_ok() {
        return Ok(());
    }
    let mib = bytes >> 20;
    let why = format!("expected {mib} MiB of memory for an op and its operands, got less");
    Err(fault(Code::E_OOM, why, loc))
}

/// The bytes of as many elements as an array of these extents has, in the widest carrier and with a position for each.
pub fn bytes_of(elements: usize) -> usize {
    elements.saturating_mul(WIDEST)
}

/// A number of 64 bits and its position.
const WIDEST: usize = 16;
