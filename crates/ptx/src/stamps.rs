//! Loop clocks that a kernel records among its printed output (see `reports`). A record is its
//! number of bytes, the loop and role, the block index and the number of iterations; then the
//! clocks at the loop's start and end. A launch passes them to the collector of its own thread.

use crate::code::context;
use std::cell::RefCell;

/// A loop that is timed.
#[derive(Clone, Debug)]
pub struct Stamp {
    pub role: String,
    pub replica: u32,
    pub line: u32,
    pub least: u64,
}

/// The first loop number: those of prints are far below.
pub const FIRST: u32 = 1 << 31;
/// Bytes of a record.
pub const BYTES: u32 = 32;

/// Collects the records of a launch.
pub fn hand_over(stamps: &[Stamp], records: &[u8], printed: u32) {
    if stamps.is_empty() {
        return;
    }
    let word = |at: usize| {
        let bytes = records.get(at..at + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let long = |at: usize| Some(u64::from(word(at)?) | u64::from(word(at + 4)?) << 32);
    let mut list = Vec::new();
    let mut at = 0;
    while let (Some(bytes), Some(which)) = (word(at), word(at + 4)) {
        // After the last record is nothing.
        if bytes < 16 || at as u32 >= printed {
            break;
        }
        let known = which.checked_sub(FIRST).and_then(|n| stamps.get(n as usize));
        if let (Some(s), Some(block), Some(iterations)) = (known, word(at + 8), word(at + 12))
            && let (Some(begin), Some(end)) = (long(at + 16), long(at + 24))
        {
            let (role, replica, line, least) = (s.role.clone(), s.replica, s.line, s.least);
            list.push(Stamped { role, replica, line, least, block, iterations, begin, end });
        }
        at += bytes as usize;
    }
    let lost = u64::from(printed.saturating_sub(context::ROOM)).div_ceil(BYTES.into());
    stamp(list, lost);
}

/// One execution of a loop by one role's threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// The role, and which of its replicas.
    pub role: String,
    pub replica: u32,
    /// The loop's line in the source, 0 where it has none.
    pub line: u32,
    /// Tensor core clocks that the MMAs of an iteration take at least; 0 where it has none.
    pub least: u64,
    pub block: u32,
    pub iterations: u32,
    /// Clocks of the multiprocessor, before the first iteration and after the last.
    pub begin: u64,
    pub end: u64,
}

/// What was collected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    pub list: Vec<Stamped>,
    /// Records that did not fit.
    pub left_out: u64,
}

thread_local! {
    static OPEN: RefCell<Option<Stamps>> = const { RefCell::new(None) };
}

/// Starts collecting on this thread; what was collected before is dropped.
pub fn begin() {
    OPEN.set(Some(Stamps::default()));
}

/// Ends it, and returns all records.
pub fn end() -> Stamps {
    OPEN.take().unwrap_or_default()
}

/// Adds the records of a launch.
pub fn stamp(list: Vec<Stamped>, left_out: u64) {
    OPEN.with_borrow_mut(|open| {
        if let Some(stamps) = open {
            stamps.list.extend(list);
            stamps.left_out += left_out;
        }
    });
}
