//! Clocks of loops that a kernel leaves in memory, among what it prints (see `reported`). A record is its
//! number of bytes, which loop of which role it is of, the number of its block and that of its iterations;
//! then the clocks at its begin and its end. A launch hands them over on its own thread, to whoever
//! collects them there.

use crate::code::context;
use std::cell::RefCell;

/// A loop whose visits leave records.
#[derive(Clone, Debug)]
pub struct Stamp {
    pub role: String,
    pub replica: u32,
    pub line: u32,
    pub least: u64,
}

/// What the numbers of loops begin with: those of prints are far below.
pub const FIRST: u32 = 1 << 31;
/// Bytes of a record.
pub const BYTES: u32 = 32;

/// Hands over the records of a launch.
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
        // Behind the last record is nothing.
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

/// One visit of one role's threads to a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Who: the role, and which of its replicas.
    pub role: String,
    pub replica: u32,
    /// The loop's line in the source, 0 where it has none.
    pub line: u32,
    /// Clocks of the matrix units that the products of an iteration take at least; 0 where it has none.
    pub least: u64,
    pub block: u32,
    pub iterations: u32,
    /// Clocks of the multiprocessor, when the first iteration began and when the last had ended.
    pub begin: u64,
    pub end: u64,
}

/// What was collected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    pub list: Vec<Stamped>,
    /// Visits that there was no room for.
    pub left_out: u64,
}

thread_local! {
    static OPEN: RefCell<Option<Stamps>> = const { RefCell::new(None) };
}

/// Begins to collect on this thread; what was open before is dropped.
pub fn begin() {
    OPEN.set(Some(Stamps::default()));
}

/// Ends it, with all that came.
pub fn end() -> Stamps {
    OPEN.take().unwrap_or_default()
}

/// Hands over what a launch left.
pub fn stamp(list: Vec<Stamped>, left_out: u64) {
    OPEN.with_borrow_mut(|open| {
        if let Some(stamps) = open {
            stamps.list.extend(list);
            stamps.left_out += left_out;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_among_others() {
        let mut all: Vec<u8> =
            [24u32, 0, 4, 0, 1, 2].iter().flat_map(|w| w.to_le_bytes()).collect();
        let words = [BYTES, FIRST + 1, 7, 3, 100, 0, 400, 1];
        all.extend(words.iter().flat_map(|w: &u32| w.to_le_bytes()));
        all.extend([0; 64]);
        let stamp = |role: &str, least| Stamp { role: role.into(), replica: 0, line: 9, least };
        begin();
        hand_over(&[stamp("producer", 0), stamp("consumer", 512)], &all, 56);
        let found = end();
        assert_eq!(found.left_out, 0);
        let [one] = &found.list[..] else { panic!("{found:?}") };
        assert_eq!(
            (one.role.as_str(), one.block, one.iterations, one.least),
            ("consumer", 7, 3, 512)
        );
        assert_eq!((one.begin, one.end), (100, 400 + (1 << 32)));
    }

    #[test]
    fn only_who_asks_gets_them() {
        let one = Stamped {
            role: "consumer".into(),
            replica: 0,
            line: 3,
            least: 64,
            block: 1,
            iterations: 2,
            begin: 5,
            end: 9,
        };
        stamp(vec![one.clone()], 0);
        assert_eq!(end(), Stamps::default());
        begin();
        stamp(vec![one.clone()], 1);
        stamp(vec![], 2);
        assert_eq!(end(), Stamps { list: vec![one], left_out: 3 });
    }
}
