//! A ring buffer of bytes: pieces are allocated in order and freed in the same order.

use std::collections::VecDeque;
use std::ops::Range;

/// Alignment of pieces in bytes: aligned copies are fastest.
const ALIGN: usize = 256;

/// `T` says when a piece is free again, such as an event.
pub(crate) struct RingBuffer<T> {
    capacity: usize,
    head: usize,
    pieces: VecDeque<(usize, T)>,
}

impl<T> RingBuffer<T> {
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity - capacity % ALIGN, head: 0, pieces: VecDeque::new() }
    }

    /// Where the next piece of `bytes` bytes would begin; `None` while too much is taken.
    pub fn place(&mut self, bytes: usize) -> Option<usize> {
        let bytes = bytes.checked_next_multiple_of(ALIGN)?;
        let Some(&(tail, _)) = self.pieces.front() else {
            self.head = 0;
            return (bytes <= self.capacity).then_some(0);
        };
        if self.head <= tail {
            return (self.head + bytes <= tail).then_some(self.head);
        }
        if self.head + bytes <= self.capacity {
            return Some(self.head);
        }
        (bytes <= tail).then_some(0)
    }

    /// Takes the piece that [`Self::place`] gave.
    pub fn take(&mut self, start: usize, bytes: usize, until: T) {
        self.head = start + bytes.next_multiple_of(ALIGN);
        self.pieces.push_back((start, until));
    }

    pub fn oldest(&self) -> Option<&T> {
        self.pieces.front().map(|(_, until)| until)
    }

    pub fn retire(&mut self) -> Option<T> {
        self.pieces.pop_front().map(|(_, until)| until)
    }
}

/// Cuts `bytes` bytes into pieces of at most `chunk` bytes.
pub(crate) fn pieces(bytes: usize, chunk: usize) -> impl Iterator<Item = Range<usize>> {
    (0..bytes).step_by(chunk.max(1)).map(move |at| at..bytes.min(at + chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_cut_into_chunks_without_gaps() {
        let cut = |bytes| pieces(bytes, 4).map(|p| (p.start, p.end)).collect::<Vec<_>>();
        assert_eq!(cut(0), []);
        assert_eq!(cut(3), [(0, 3)]);
        assert_eq!(cut(8), [(0, 4), (4, 8)]);
        assert_eq!(cut(9), [(0, 4), (4, 8), (8, 9)]);
    }

    #[test]
    fn pieces_follow_each_other_and_wrap_around() {
        let mut buffer = RingBuffer::new(1024);
        for n in 0..4 {
            let at = buffer.place(200).unwrap();
            assert_eq!(at, 256 * n);
            buffer.take(at, 200, n);
        }
        assert_eq!((buffer.place(1), buffer.oldest()), (None, Some(&0)));
        assert_eq!(buffer.retire(), Some(0));
        let at = buffer.place(256).unwrap();
        assert_eq!((at, buffer.place(257)), (0, None));
        buffer.take(at, 256, 4);
        assert_eq!(buffer.place(1), None);
        while buffer.retire().is_some() {}
        assert_eq!((buffer.place(1024), buffer.place(1025)), (Some(0), None));
    }

    /// No two live pieces overlap, whatever their sizes.
    #[test]
    fn live_pieces_never_overlap() {
        let mut buffer = RingBuffer::new(4096);
        let mut live: VecDeque<Range<usize>> = VecDeque::new();
        let mut random = 1_u32;
        for step in 0..20_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bytes = (random >> 16) as usize % 1500 + 1;
            while buffer.place(bytes).is_none() {
                assert!(buffer.retire().is_some(), "step {step}: an empty buffer has room");
                live.pop_front();
            }
            let at = buffer.place(bytes).unwrap();
            let piece = at..at + bytes;
            assert!(piece.end <= 4096);
            for other in &live {
                assert!(piece.end <= other.start || other.end <= piece.start, "step {step}");
            }
            buffer.take(at, bytes, ());
            live.push_back(piece);
        }
    }
}
