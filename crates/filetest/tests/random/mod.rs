//! Random choices, and text damaged at random, for the fuzzers.

/// xorshift64*: a seed gives the same cases on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n.max(1)
    }

    pub fn pick<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.below(items.len())]
    }

    #[allow(dead_code)] // Not every fuzzer asks.
    pub fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// The text with a few bytes taken out, pieces put in, and parts moved about.
pub fn damaged(text: &str, pieces: &[&str], r: &mut Random) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..1 + r.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = r.below(bytes.len());
        let end = (at + r.below(40)).min(bytes.len());
        match r.below(5) {
            0 => {
                bytes.remove(at);
            }
            1 => bytes[at] = r.below(256) as u8,
            2 => {
                let piece = r.pick(pieces);
                bytes.splice(at..at, piece.bytes());
            }
            3 => {
                bytes.drain(at..end);
            }
            _ => {
                let copy = bytes[at..end].to_vec();
                let to = r.below(bytes.len());
                bytes.splice(to..to, copy);
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
