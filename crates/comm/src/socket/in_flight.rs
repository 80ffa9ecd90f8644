//! Moves messages through the channels of one process: what all its transports share, behind one lock.

use super::channel::{Damaged, Reader, Writer};
use super::collective::{Collective, Group, Incoming, Message};
use super::frame::{FRONT, Frame, TO_ALL, What};
use super::segment::Segment;
use crate::piece::{checksum, runs};
use crate::{Call, GroupId, Header, Kind, Memory, Piece, Request, Token, crc32c, desync};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;
use tessera_diag::{Code, Diagnostic};

/// The most bytes of a message in one frame. Longer messages wait behind the first until the receiver has a place for them.
const CHUNK: usize = 64 << 10;
/// Bytes from one process that came before their place was known. Above it no more is taken from the channel.
const EARLY: usize = 64 << 20;
/// Rounds of one call of [`InFlight::pump`].
const ROUNDS: usize = 64;

/// A message in flight.
struct Outgoing {
    group: usize,
    sequence: u64,
    header: Header,
    call: Arc<Call>,
    to: u32,
    memory: Memory,
    piece: Piece,
    total: u64,
    sent: u64,
    /// The receiver has a place for all of it.
    granted: bool,
}

/// The channel to another process, and what goes there.
struct Outbox {
    writer: Writer,
    /// Answers, which go first.
    answers: VecDeque<Frame>,
    queue: VecDeque<Outgoing>,
}

struct Early {
    process: usize,
    frame: Frame,
    bytes: Vec<u8>,
}

pub struct InFlight {
    pub segment: Arc<Segment>,
    pub me: usize,
    pub groups: Vec<Group>,
    /// Groups by the numbers that processes agree on.
    wires: BTreeMap<u32, usize>,
    outboxes: Vec<Option<Outbox>>,
    readers: Vec<Option<Reader>>,
    /// What came for collectives that are not open, by group and sequence.
    early: BTreeMap<(u32, u64), Vec<Early>>,
    early_bytes: Vec<usize>,
    pub failed: Option<Diagnostic>,
    /// Since when nothing has moved, and whether that was said.
    pub still: Option<Instant>,
    pub warned: bool,
    /// Changes a bit of the next payload: a fault, for tests.
    pub corrupts: bool,
}

/// What moved.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct Moved {
    pub any: bool,
    pub complete: bool,
}

fn damaged(process: usize) -> Diagnostic {
    let text = format!("expected messages from process {process}, got bytes that are none");
    Diagnostic::new(Code::E_DESYNC, text).help(
        "shared memory was written by something else: run again, or test the memory of the machine",
    )
}

impl InFlight {
    pub fn new(segment: Arc<Segment>, me: usize) -> Self {
        let world = segment.world();
        let others = |process: usize| process != me;
        let outbox = |to| Outbox {
            writer: Writer::of(&segment, me, to),
            answers: VecDeque::new(),
            queue: VecDeque::new(),
        };
        Self {
            outboxes: (0..world).map(|to| others(to).then(|| outbox(to))).collect(),
            readers: (0..world)
                .map(|from| others(from).then(|| Reader::of(&segment, from, me)))
                .collect(),
            segment,
            me,
            groups: Vec::new(),
            wires: BTreeMap::new(),
            early: BTreeMap::new(),
            early_bytes: vec![0; world],
            failed: None,
            still: None,
            warned: false,
            corrupts: false,
        }
    }

    pub fn fail(&mut self, why: Diagnostic) -> Diagnostic {
        if self.failed.is_none() {
            // Nothing uses the memory of requests any more.
            self.outboxes.iter_mut().flatten().for_each(|o| o.queue.clear());
            self.groups.iter_mut().for_each(|g| g.open.clear());
        }
        self.failed.get_or_insert(why).clone()
    }

    /// The number of a group of ranks, which are all of one program.
    pub fn group(
        &mut self,
        members: &[usize],
        process: Vec<usize>,
        wire: u32,
    ) -> Result<GroupId, Diagnostic> {
        if let Some(&known) = self.wires.get(&wire) {
            let is_same =
                *self.groups[known].members == *members && self.groups[known].process == process;
            if is_same {
                return Ok(GroupId(known as u32));
            }
            let text = format!(
                "expected groups with numbers of their own, got one for {members:?} and {:?}",
                self.groups[known].members
            );
            return Err(Diagnostic::new(Code::E_ARGUMENT, text)
                .help("order the axes of the mesh in another way"));
        }
        let next = vec![0; members.len()];
        self.groups.push(Group {
            members: members.into(),
            process,
            wire,
            next,
            open: BTreeMap::new(),
        });
        self.wires.insert(wire, self.groups.len() - 1);
        Ok(GroupId(self.groups.len() as u32 - 1))
    }

    /// A member of this process starts its next collective.
    pub fn start(&mut self, rank: usize, request: Request) -> Result<Token, Diagnostic> {
        let at = request.group.0 as usize;
        let me = self.me;
        let refused = |text: String| {
            Err(Diagnostic::new(Code::E_ARGUMENT, text)
                .help("make the group before the program runs"))
        };
        let found = self.groups.get_mut(at);
        let member = found.as_ref().and_then(|g| g.members.iter().position(|r| *r == rank));
        let (Some(group), Some(member)) = (found, member) else {
            return refused(format!("expected a group that rank {rank} is in, got group {at}"));
        };
        if group.process[member] != me {
            return refused(format!("expected a rank of process {me}, got {rank}"));
        }
        request.check(group.members.len(), member)?;
        if request.call.kind.combines().is_some() {
            return refused(format!(
                "expected a collective that only moves bytes, got {}",
                request.call
            ));
        }
        let sequence = group.next[member];
        group.next[member] += 1;
        let token = Token { group: request.group, member, sequence };
        let here = group.process.iter().filter(|p| **p == me).count();
        let n = group.members.len();
        let open = group.open.entry(sequence).or_insert_with(|| Collective {
            arrived: vec![None; n],
            missing: here,
            unseen: here,
            ..Collective::default()
        });
        let first = open.arrived.iter().enumerate().find_map(|(i, a)| Some((i, a.as_ref()?)));
        let header = |call: &Call| Header::new(0, sequence, 0, call);
        if let Some((other, first)) = first.filter(|(_, a)| {
            !Arc::ptr_eq(&a.call, &request.call) && !header(&a.call).agrees(&header(&request.call))
        }) {
            let (a, b) = ((group.members[other], &*first.call), (rank, &*request.call));
            let why = desync::differ(sequence, a, b);
            return Err(self.fail(why));
        }
        open.arrived[member] = Some(request);
        open.missing -= 1;
        self.still = None;
        if open.missing == 0 {
            self.open(at, sequence).map_err(|why| self.fail(why))?;
        }
        Ok(token)
    }

    /// All members of this process are there.
    fn open(&mut self, at: usize, sequence: u64) -> Result<(), Diagnostic> {
        let group = &mut self.groups[at];
        let Some(mut open) = group.open.remove(&sequence) else { return Ok(()) };
        if open.arrived.iter().flatten().any(|r| r.call.kind == Kind::AllToAll) {
            pairs_agree(group, &open)?;
        }
        let sends = open.start(group, self.me);
        let wire = group.wire;
        for Message { process, from, to, memory, piece } in sends {
            let request = open.arrived[from as usize].as_ref();
            let Some((call, outbox)) =
                request.map(|r| r.call.clone()).zip(self.outboxes[process].as_mut())
            else {
                continue;
            };
            outbox.queue.push_back(Outgoing {
                group: at,
                sequence,
                header: Header::new(wire, sequence, from, &call),
                call,
                to,
                memory,
                piece,
                total: piece.bytes() as u64,
                sent: 0,
                granted: false,
            });
        }
        group.open.insert(sequence, open);
        for Early { process, frame, bytes } in
            self.early.remove(&(wire, sequence)).unwrap_or_default()
        {
            self.early_bytes[process] -= bytes.len();
            self.deliver(process, &frame, [&bytes, &[]])?;
        }
        Ok(())
    }

    /// Whether it is complete for who started it; the token is used up then.
    pub fn test(&mut self, token: Token) -> bool {
        let Some(group) = self.groups.get_mut(token.group.0 as usize) else { return true };
        let Some(open) = group.open.get_mut(&token.sequence) else { return true };
        if !open.is_complete() {
            return false;
        }
        open.unseen -= 1;
        if open.unseen == 0 {
            group.open.remove(&token.sequence);
        }
        true
    }

    pub fn collective(&self, token: Token) -> Option<(&Group, &Collective)> {
        let group = self.groups.get(token.group.0 as usize)?;
        Some((group, group.open.get(&token.sequence)?))
    }

    /// Whether something can be received or sent now.
    pub fn can_move(&self) -> bool {
        let arrives = |(p, r): (usize, &Option<Reader>)| {
            r.as_ref().is_some_and(|r| self.early_bytes[p] < EARLY && r.available() != Ok(0))
        };
        let leaves = |o: &Outbox| {
            let size = match (o.answers.front(), o.queue.iter().find(|m| m.may_go())) {
                (Some(answer), _) => answer.bytes(),
                (None, Some(m)) => Frame::most(m.next(o.writer.capacity())),
                (None, None) => return false,
            };
            o.writer.has_room(size) != Ok(false)
        };
        self.readers.iter().enumerate().any(arrives) || self.outboxes.iter().flatten().any(leaves)
    }

    /// Bytes from a process that were not taken yet.
    pub fn has_from(&self, process: usize) -> bool {
        self.readers[process].as_ref().is_some_and(|r| r.available() != Ok(0))
    }

    /// Sends and receives what can be.
    pub fn pump(&mut self) -> Result<Moved, Diagnostic> {
        let mut moved = Moved::default();
        for _ in 0..ROUNDS {
            let mut now = Moved::default();
            for process in 0..self.readers.len() {
                self.receive(process, &mut now).map_err(|why| self.fail(why))?;
                self.send(process, &mut now).map_err(|why| self.fail(why))?;
            }
            moved.any |= now.any;
            moved.complete |= now.complete;
            if !now.any || now.complete {
                break;
            }
        }
        if moved.any {
            (self.still, self.warned) = (None, false);
        }
        Ok(moved)
    }

    fn send(&mut self, process: usize, moved: &mut Moved) -> Result<(), Diagnostic> {
        let Some(outbox) = &mut self.outboxes[process] else { return Ok(()) };
        let Outbox { writer, answers, queue } = outbox;
        let broken = |_: Damaged| damaged(process);
        while let Some(answer) = answers.front() {
            if !writer.has_room(answer.bytes()).map_err(broken)? {
                return Ok(());
            }
            writer.write(&answer.encode());
            writer.skip(answer.bytes() - answer.front());
            writer.publish();
            self.segment.strike_bell(process);
            answers.pop_front();
            moved.any = true;
        }
        let mut at = 0;
        while let Some(message) = queue.get_mut(at) {
            while message.may_go() {
                let len = message.next(writer.capacity());
                if !writer.has_room(Frame::most(len)).map_err(broken)? {
                    return Ok(());
                }
                let corrupts = len > 0 && std::mem::take(&mut self.corrupts);
                message.write(writer, len, corrupts);
                writer.publish();
                self.segment.strike_bell(process);
                moved.any = true;
            }
            if message.is_over() {
                let group = &mut self.groups[message.group];
                if let Some(open) = group.open.get_mut(&message.sequence) {
                    open.sends -= 1;
                    moved.complete |= open.is_complete();
                }
                queue.remove(at);
            } else {
                // It waits for its receiver; others need not.
                at += 1;
            }
        }
        Ok(())
    }

    fn receive(&mut self, process: usize, moved: &mut Moved) -> Result<(), Diagnostic> {
        // It is lent out while frames are delivered.
        let Some(mut reader) = self.readers[process].take() else { return Ok(()) };
        let done = self.receive_from(process, &mut reader, moved);
        self.readers[process] = Some(reader);
        done
    }

    fn receive_from(
        &mut self,
        process: usize,
        reader: &mut Reader,
        moved: &mut Moved,
    ) -> Result<(), Diagnostic> {
        loop {
            let available = reader.available().map_err(|_| damaged(process))?;
            if available == 0 || self.early_bytes[process] >= EARLY {
                return Ok(());
            }
            let frame = Frame::decode(|at, to| reader.read(at, to), available, CHUNK);
            let frame = frame.ok_or_else(|| damaged(process))?;
            let payload = reader.runs(frame.front(), frame.len).map(|(from, len)| {
                // SAFETY: bytes of the channel that are the reader's.
                unsafe { std::slice::from_raw_parts(from, len) }
            });
            moved.complete |= self.take(process, &frame, payload)?;
            if reader.release(frame.bytes()) {
                self.segment.strike_bell(process);
            }
            moved.any = true;
        }
    }

    /// A frame that came. Whether a collective is complete by it.
    fn take(
        &mut self,
        process: usize,
        frame: &Frame,
        payload: [&[u8]; 2],
    ) -> Result<bool, Diagnostic> {
        let header = &frame.header;
        if frame.what == What::GoOn {
            let queue = self.outboxes[process].iter_mut().flat_map(|o| &mut o.queue);
            let is = |m: &&mut Outgoing| {
                let h = &m.header;
                (h.group, h.sequence, h.from, m.to)
                    == (header.group, header.sequence, header.from, frame.to)
            };
            queue.filter_map(|m| Some(m).filter(is)).for_each(|m| m.granted = true);
            return Ok(false);
        }
        let is_open = self.wires.get(&header.group).is_some_and(|&at| {
            self.groups[at].open.get(&header.sequence).is_some_and(|c| c.is_open)
        });
        if is_open {
            return self.deliver(process, frame, payload);
        }
        let bytes = payload.concat();
        self.early_bytes[process] += bytes.len();
        let kept = self.early.entry((header.group, header.sequence)).or_default();
        kept.push(Early { process, frame: frame.clone(), bytes });
        Ok(false)
    }

    /// Brings a payload to its place.
    fn deliver(
        &mut self,
        process: usize,
        frame: &Frame,
        payload: [&[u8]; 2],
    ) -> Result<bool, Diagnostic> {
        let header = &frame.header;
        let Some(&at) = self.wires.get(&header.group) else { return Err(damaged(process)) };
        let group = &mut self.groups[at];
        let Some(open) = group.open.get_mut(&header.sequence) else { return Err(damaged(process)) };
        let Some((member, request)) =
            open.arrived.iter().enumerate().find_map(|(m, r)| Some((m, r.as_ref()?)))
        else {
            return Err(damaged(process));
        };
        let call = request.call.clone();
        let sender = group.members.get(header.from as usize).copied();
        let sender = sender.ok_or_else(|| damaged(process))?;
        let ours = Header::new(header.group, header.sequence, member as u32, &call);
        if frame.offset == 0 && !ours.agrees(header) {
            return Err(differs(frame, sender, (group.members[member], &call)));
        }
        let key = (header.from, frame.to);
        let Some(incoming) = open.incoming.get_mut(&key).filter(|i| i.process == process) else {
            return Err(differs(frame, sender, (group.members[member], &call)));
        };
        if frame.total != incoming.total {
            let item = call.dtype.bytes().max(1) as u64;
            let to = if frame.to == TO_ALL { member } else { frame.to as usize };
            let to = (group.members.get(to).copied().unwrap_or(0), incoming.total / item);
            return Err(desync::sent((sender, frame.total / item), to, &call));
        }
        let sum = payload.iter().fold(0, |sum, part| crc32c(sum, part));
        if sum != header.checksum {
            return Err(desync::corrupted(sender, &call));
        }
        if frame.offset != incoming.got {
            return Err(damaged(process));
        }
        incoming.place(frame.offset as usize, payload);
        incoming.got += frame.len as u64;
        let is_first = frame.offset == 0;
        if incoming.got < incoming.total {
            if is_first {
                let answer = Frame {
                    what: What::GoOn,
                    len: 0,
                    offset: 0,
                    total: 0,
                    file: Vec::new(),
                    ..frame.clone()
                };
                self.outboxes[process].iter_mut().for_each(|o| o.answers.push_back(answer.clone()));
            }
            return Ok(false);
        }
        open.incoming.remove(&key);
        open.receives -= 1;
        Ok(open.is_complete())
    }
}

/// Members of two processes made different calls.
fn differs(frame: &Frame, sender: usize, (rank, call): (usize, &Call)) -> Diagnostic {
    let text = format!(
        "expected {} on rank {sender}, as rank {rank} calls it, got {}: collective {} of their group",
        call,
        frame.call(),
        frame.header.sequence
    );
    let error = Diagnostic::new(Code::E_DESYNC, text).at(call.at.clone()).help(desync::HELP);
    match frame.place() {
        Some(place) => error.note(format!("rank {sender} calls it at {place}")),
        None => error,
    }
}

/// What members of this process send each other is what they expect.
fn pairs_agree(group: &Group, open: &Collective) -> Result<(), Diagnostic> {
    let here: Vec<(usize, &Request)> =
        open.arrived.iter().enumerate().filter_map(|(m, r)| Some((m, r.as_ref()?))).collect();
    for &(s, from) in &here {
        for &(t, to) in &here {
            let item = from.call.dtype.bytes().max(1) as u64;
            let sizes = (from.send[t].bytes() as u64 / item, to.receive[s].bytes() as u64 / item);
            if sizes.0 != sizes.1 {
                let (a, b) = ((group.members[s], sizes.0), (group.members[t], sizes.1));
                return Err(desync::sent(a, b, &to.call));
            }
        }
    }
    Ok(())
}

impl Incoming {
    fn place(&self, offset: usize, payload: [&[u8]; 2]) {
        for (memory, piece) in &self.targets {
            let mut at = offset;
            for part in payload {
                let mut rest = part;
                runs(memory, piece, at..at + part.len(), |address, len| {
                    let (here, after) = rest.split_at(len);
                    rest = after;
                    // SAFETY: what a collective receives into is its own, and lives until it is complete or aborted.
                    unsafe { std::ptr::copy_nonoverlapping(here.as_ptr(), address, len) };
                });
                at += part.len();
            }
        }
    }
}

impl Outgoing {
    fn is_over(&self) -> bool {
        self.sent == self.total && self.granted
    }

    fn may_go(&self) -> bool {
        // The first frame goes without waiting, also of a message without bytes.
        self.sent == 0 && !self.granted || self.granted && self.sent < self.total
    }

    /// The bytes of the next frame.
    fn next(&self, capacity: usize) -> usize {
        ((self.total - self.sent) as usize).min(CHUNK).min(capacity / 4)
    }

    fn write(&mut self, writer: &mut Writer, len: usize, corrupts: bool) {
        let from = self.sent as usize;
        let mut header = self.header;
        header.checksum = checksum(&self.memory, &self.piece, from..from + len);
        let frame = Frame {
            header,
            to: self.to,
            what: What::Data,
            len,
            offset: self.sent,
            total: self.total,
            file: Vec::new(),
            line: 0,
            column: 0,
            shown: (0, 0),
        };
        let frame = if from == 0 { frame.of(&self.call) } else { frame };
        writer.write(&frame.encode());
        runs(&self.memory, &self.piece, from..from + len, |address, len| {
            // SAFETY: nothing writes what a collective sends.
            writer.write(unsafe { std::slice::from_raw_parts(address, len) });
        });
        writer.skip(frame.bytes() - frame.front() - len);
        if corrupts {
            writer.damage(frame.front() as u64);
        }
        self.sent += len as u64;
        // What fits in one frame needs no answer.
        self.granted |= self.sent == self.total;
    }
}

const _: () = assert!(FRONT.is_multiple_of(8));
