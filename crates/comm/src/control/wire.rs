//! Frames of the control plane: a length, a kind, and fields of fixed sizes or with lengths of their own, little-endian. What does not fit
//! is refused before memory is taken for it.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};

/// The most bytes behind a length.
pub const MOST: usize = 4096;
/// The same before the token was checked.
pub const MOST_HELLO: usize = 512;
/// The most bytes of a name, a version or a token.
pub const SHORT: usize = 64;
/// The most bytes of a message for people.
pub const TEXT: usize = 1024;
/// Bytes that wait to be sent to one connection. Who reads so slowly is lost.
const MOST_WAITING: usize = 64 << 10;

const MAGIC: u64 = u64::from_le_bytes(*b"tessera1");

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    Hello {
        rank: u32,
        world: u32,
        version: String,
        host: String,
        token: String,
    },
    Welcome {
        segment: String,
        bytes: u64,
    },
    Ready,
    Go,
    Beat,
    Lost {
        rank: u32,
        text: String,
    },
    Refused {
        text: String,
    },
    Bye,
    Left {
        rank: u32,
    },
    /// A member cannot go on with the start.
    Failed {
        text: String,
    },
}

impl Frame {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        let number = |out: &mut Vec<u8>, n: u32| out.extend_from_slice(&n.to_le_bytes());
        let text = |out: &mut Vec<u8>, text: &str, most: usize| {
            // Cut between characters.
            let end = (0..=text.len().min(most)).rev().find(|&i| text.is_char_boundary(i));
            let text = &text[..end.unwrap_or(0)];
            out.extend_from_slice(&(text.len() as u16).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        match self {
            Frame::Hello { rank, world, version, host, token } => {
                out.push(1);
                out.extend_from_slice(&MAGIC.to_le_bytes());
                number(&mut out, *rank);
                number(&mut out, *world);
                text(&mut out, version, SHORT);
                text(&mut out, host, SHORT);
                text(&mut out, token, SHORT);
            }
            Frame::Welcome { segment, bytes } => {
                out.push(2);
                out.extend_from_slice(&bytes.to_le_bytes());
                text(&mut out, segment, SHORT);
            }
            Frame::Ready => out.push(3),
            Frame::Go => out.push(4),
            Frame::Beat => out.push(5),
            Frame::Lost { rank, text: why } => {
                out.push(6);
                number(&mut out, *rank);
                text(&mut out, why, TEXT);
            }
            Frame::Refused { text: why } => {
                out.push(7);
                text(&mut out, why, TEXT);
            }
            Frame::Bye => out.push(8),
            Frame::Left { rank } => {
                out.push(9);
                number(&mut out, *rank);
            }
            Frame::Failed { text: why } => {
                out.push(10);
                text(&mut out, why, TEXT);
            }
        }
        let len = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&len.to_le_bytes());
        out
    }

    /// What is behind the length. `None` of anything that `encode` does not make.
    pub fn decode(bytes: &[u8]) -> Option<Frame> {
        let (kind, rest) = bytes.split_first()?;
        let mut fields = Fields(rest);
        let frame = match kind {
            1 => {
                (fields.wide()? == MAGIC).then_some(())?;
                let (rank, world) = (fields.number()?, fields.number()?);
                let mut short = || fields.text(SHORT);
                Frame::Hello { rank, world, version: short()?, host: short()?, token: short()? }
            }
            2 => {
                let bytes = fields.wide()?;
                Frame::Welcome { segment: fields.text(SHORT)?, bytes }
            }
            3 => Frame::Ready,
            4 => Frame::Go,
            5 => Frame::Beat,
            6 => Frame::Lost { rank: fields.number()?, text: fields.text(TEXT)? },
            7 => Frame::Refused { text: fields.text(TEXT)? },
            8 => Frame::Bye,
            9 => Frame::Left { rank: fields.number()? },
            10 => Frame::Failed { text: fields.text(TEXT)? },
            _ => return None,
        };
        fields.0.is_empty().then_some(frame)
    }
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (here, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(here)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn wide(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn text(&mut self, most: usize) -> Option<String> {
        let len = usize::from(u16::from_le_bytes(self.take(2)?.try_into().ok()?));
        let bytes = (len <= most).then(|| self.take(len))??;
        std::str::from_utf8(bytes).ok().map(str::to_owned)
    }
}

/// Why a connection cannot be used any more.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Over {
    /// The other side ended it, or the system did.
    Ended,
    /// It sent what no frame is.
    Garbage,
}

/// A connection that never blocks.
pub struct Wire<S> {
    pub stream: S,
    got: Vec<u8>,
    waiting: VecDeque<u8>,
}

impl<S: Read + Write> Wire<S> {
    /// The stream does not block.
    pub fn new(stream: S) -> Self {
        Self { stream, got: Vec::new(), waiting: VecDeque::new() }
    }

    /// The next frame, of at most `most` bytes, where it is here.
    pub fn receive(&mut self, most: usize) -> Result<Option<Frame>, Over> {
        loop {
            let length = self.got.first_chunk::<4>().map(|b| u32::from_le_bytes(*b) as usize);
            if let Some(len) = length {
                if len == 0 || len > most {
                    return Err(Over::Garbage);
                }
                if self.got.len() >= 4 + len {
                    let frame = Frame::decode(&self.got[4..4 + len]).ok_or(Over::Garbage)?;
                    self.got.drain(..4 + len);
                    return Ok(Some(frame));
                }
            }
            // Never more than what is missing of this frame.
            let missing = 4 + length.unwrap_or(0) - self.got.len();
            let mut some = [0; 512];
            let n = missing.min(some.len());
            match self.stream.read(&mut some[..n]) {
                Ok(0) => return Err(Over::Ended),
                Ok(n) => self.got.extend_from_slice(&some[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Over::Ended),
            }
        }
    }

    pub fn send(&mut self, frame: &Frame) -> Result<(), Over> {
        self.waiting.extend(frame.encode());
        self.flush()
    }

    /// Sends what waits, as far as it can.
    pub fn flush(&mut self) -> Result<(), Over> {
        while !self.waiting.is_empty() {
            match self.stream.write(self.waiting.as_slices().0) {
                Ok(0) => return Err(Over::Ended),
                Ok(n) => drop(self.waiting.drain(..n)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(Over::Ended),
            }
        }
        if self.waiting.len() > MOST_WAITING { Err(Over::Ended) } else { Ok(()) }
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }
}
