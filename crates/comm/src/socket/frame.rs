//! Frames in channels: the header of a message, which bytes of it these are, and where the sender's program calls it.

use crate::{Call, HEADER_BYTES, Header, Kind, crc32c};
use tessera_numerics::{DType, ReduceOp};

/// Bytes in front of the name of the file and the payload.
pub const FRONT: usize = 80;
/// The most bytes of the name of a file.
const NAME: usize = 64;
/// Frames begin at multiples of this.
const LINE: usize = 64;
/// For all members of the group that the receiving process plays.
pub const TO_ALL: u32 = u32::MAX;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum What {
    Data,
    /// From the receiver of a message: the rest may come.
    GoOn,
}

/// What is in front of a payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its checksum is that of the payload of this frame.
    pub header: Header,
    /// The member that it is for, or [`TO_ALL`].
    pub to: u32,
    pub what: What,
    /// Bytes of the payload, where they are in the message, and the bytes of the message.
    pub len: usize,
    pub offset: u64,
    pub total: u64,
    /// Where the sender calls it, in the first frame: the end of the file's name, line and column.
    pub file: Vec<u8>,
    pub line: u32,
    pub column: u32,
    /// What the program calls, which may be a combination: the number of the kind, and one more than that of the operator.
    pub shown: (u8, u8),
}

impl Frame {
    /// With what the program calls and where, as the first of a message has it.
    pub fn of(mut self, call: &Call) -> Self {
        let (kind, loc) = (call.shown(), &call.at);
        let op = kind.combines().and_then(|op| ReduceOp::ALL.iter().position(|o| *o == op));
        self.shown = (kind.number(), op.map_or(0, |at| at as u8 + 1));
        if let Some(file) = loc.file() {
            let name = file.name.as_bytes();
            self.file = name[name.len().saturating_sub(NAME)..].to_vec();
            (self.line, self.column) = (loc.line(), loc.column());
        }
        self
    }

    /// Bytes in front of the payload.
    pub fn front(&self) -> usize {
        (FRONT + self.file.len()).next_multiple_of(8)
    }

    /// All its bytes in a channel.
    pub fn bytes(&self) -> usize {
        (self.front() + self.len).next_multiple_of(LINE)
    }

    /// The most bytes of a frame with `payload` bytes of payload.
    pub fn most(payload: usize) -> usize {
        (FRONT + NAME + 8 + payload).next_multiple_of(LINE)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.front());
        out.extend_from_slice(&self.header.encode());
        out.extend_from_slice(&self.to.to_le_bytes());
        out.extend_from_slice(&(self.len as u32).to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.total.to_le_bytes());
        out.extend_from_slice(&self.line.to_le_bytes());
        out.extend_from_slice(&self.column.to_le_bytes());
        let what = if self.what == What::Data { 0 } else { 1 };
        out.extend_from_slice(&[what, self.file.len() as u8, self.shown.0, self.shown.1]);
        let sum = crc32c(crc32c(0, &out), &self.file);
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&self.file);
        out.resize(self.front(), 0);
        out
    }

    /// From the first bytes of a frame, of which `read` copies more. `None` of bytes that are no frame of at most `most` bytes of payload.
    pub fn decode(read: impl Fn(usize, &mut [u8]), available: usize, most: usize) -> Option<Frame> {
        let mut front = [0; FRONT];
        (available >= FRONT).then(|| read(0, &mut front))?;
        let word = |at: usize| u32::from_le_bytes(front[at..at + 4].try_into().unwrap_or_default());
        let wide = |at: usize| u64::from_le_bytes(front[at..at + 8].try_into().unwrap_or_default());
        let named = usize::from(front[73]);
        (named <= NAME && available >= FRONT + named).then_some(())?;
        let mut file = vec![0; named];
        read(FRONT, &mut file);
        let sum = crc32c(crc32c(0, &front[..76]), &file);
        (sum == word(76)).then_some(())?;
        let header = Header::decode(front[..HEADER_BYTES].try_into().ok()?)?;
        let what = match front[72] {
            0 => What::Data,
            1 => What::GoOn,
            _ => return None,
        };
        let (to, len) = (word(40), word(44) as usize);
        let (offset, total) = (wide(48), wide(56));
        let frame = Frame {
            header,
            to,
            what,
            len,
            offset,
            total,
            file,
            line: word(64),
            column: word(68),
            shown: (front[74], front[75]),
        };
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= total);
        (inside && len <= most && frame.bytes() <= available).then_some(frame)
    }

    /// Where the sender calls it.
    pub fn place(&self) -> Option<String> {
        let name = String::from_utf8_lossy(&self.file);
        (!self.file.is_empty()).then(|| format!("{name}:{}:{}", self.line, self.column))
    }

    /// What the sender calls: `all_reduce max of 4 f32`.
    pub fn call(&self) -> String {
        let op = usize::from(self.shown.1).checked_sub(1).and_then(|at| ReduceOp::ALL.get(at));
        let op = op.map_or(String::new(), |op| format!(" {}", op.name()));
        let dtype = DType::ALL.get(usize::from(self.header.dtype)).map_or("", |d| d.name());
        format!("{}{op} of {} {dtype}", Kind::named(self.shown.0), self.header.count)
    }
}
