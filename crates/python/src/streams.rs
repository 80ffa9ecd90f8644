//! The streams of one call: which it runs on, and which it must be ordered with.

use std::cell::Cell;
use tessera_driver::Streams;

thread_local! {
    /// The stream that `ts.runtime.stream` names on this thread.
    static NAMED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The stream that the user names, if one is.
pub fn named() -> Option<u64> {
    NAMED.get()
}

/// Names one, or none; gives what was named before.
pub fn name(stream: Option<u64>) -> Option<u64> {
    NAMED.replace(stream)
}

/// The stream of work on arrays that belong to no other library.
pub fn own() -> u64 {
    named().unwrap_or(0)
}

/// 1 is another name of the default stream.
pub fn canonical(stream: u64) -> u64 {
    if stream == 1 { 0 } else { stream }
}

/// What the arrays of a call say of their streams.
#[derive(Default)]
pub struct Found {
    /// Current streams of the libraries whose arrays there are, in the order they came.
    current: Vec<u64>,
    /// Streams on which arrays were made: their work goes before.
    made: Vec<u64>,
}

impl Found {
    /// A library's current stream.
    pub fn current(&mut self, stream: u64) {
        add(&mut self.current, canonical(stream));
    }

    /// A stream that an array's contents come from.
    pub fn made(&mut self, stream: u64) {
        add(&mut self.made, canonical(stream));
    }

    /// All of them.
    pub fn all(self) -> Vec<u64> {
        let mut all = self.current;
        self.made.into_iter().for_each(|s| add(&mut all, s));
        all
    }

    /// The call runs on the stream that the user names, else on the first library's own. Where a
    /// stream is named, the user keeps the order among the libraries' streams.
    pub fn settle(self) -> Streams {
        let named = named();
        let on = named.or_else(|| self.current.first().copied()).unwrap_or(0);
        let then = if named.is_some() { Vec::new() } else { self.current };
        let then: Vec<u64> = then.into_iter().filter(|&s| s != on).collect();
        let mut after = then.clone();
        self.made.into_iter().filter(|&s| s != on).for_each(|s| add(&mut after, s));
        Streams { on, after, then }
    }
}

fn add(list: &mut Vec<u64>, stream: u64) {
    if !list.contains(&stream) {
        list.push(stream);
    }
}
