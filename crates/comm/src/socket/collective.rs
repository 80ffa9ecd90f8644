//! A collective as one process has it: what it sends to other processes, what it expects of them, and what stays here.

use super::frame::TO_ALL;
use crate::piece::copy;
use crate::{Kind, Memory, Piece, Request};
use std::collections::BTreeMap;
use std::sync::Arc;

pub struct Group {
    pub members: Arc<[usize]>,
    /// The process that plays each member.
    pub process: Vec<usize>,
    /// Equal in all processes.
    pub wire: u32,
    /// How many collectives each member has started.
    pub next: Vec<u64>,
    pub open: BTreeMap<u64, Collective>,
}

impl Group {
    /// The lowest member of each process but this one.
    pub fn others(&self, me: usize) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        for (member, &process) in self.process.iter().enumerate() {
            if process != me && !found.iter().any(|f| f.0 == process) {
                found.push((process, member));
            }
        }
        found
    }
}

/// Members of this process arrive; then messages are sent and received; then members see that it is complete.
#[derive(Default)]
pub struct Collective {
    /// Of each member; of those of other processes none.
    pub arrived: Vec<Option<Request>>,
    pub missing: usize,
    /// All members of this process are there.
    pub is_open: bool,
    /// Messages that are not sent to the end.
    pub sends: usize,
    /// What comes, by the sender and the member that it is for.
    pub incoming: BTreeMap<(u32, u32), Incoming>,
    /// Messages that are not received to the end.
    pub receives: usize,
    /// Members that have not seen that it is complete.
    pub unseen: usize,
}

/// A message that comes: where its bytes go.
pub struct Incoming {
    pub process: usize,
    pub total: u64,
    pub got: u64,
    pub targets: Vec<(Memory, Piece)>,
}

/// A message that goes.
pub struct Message {
    pub process: usize,
    pub from: u32,
    pub to: u32,
    pub memory: Memory,
    pub piece: Piece,
}

impl Collective {
    pub fn is_complete(&self) -> bool {
        self.is_open && self.sends == 0 && self.receives == 0
    }

    /// Takes what all members of this process gave: copies what stays here, notes what comes, and gives what goes. `me` is the process.
    pub fn start(&mut self, group: &Group, me: usize) -> Vec<Message> {
        self.is_open = true;
        let here: Vec<usize> =
            (0..group.members.len()).filter(|&m| group.process[m] == me).collect();
        let mut made = Parts {
            group,
            me,
            of: self,
            here: &here,
            sends: Vec::new(),
            incoming: BTreeMap::new(),
        };
        made.find();
        let (sends, incoming) = (made.sends, made.incoming);
        (self.sends, self.receives) = (sends.len(), incoming.len());
        self.incoming = incoming;
        sends
    }
}

const NOTHING: Piece = Piece { offset: 0, rows: 1, len: 0, stride: 0 };

struct Parts<'a> {
    group: &'a Group,
    me: usize,
    of: &'a Collective,
    /// The members of this process.
    here: &'a [usize],
    sends: Vec<Message>,
    incoming: BTreeMap<(u32, u32), Incoming>,
}

impl Parts<'_> {
    fn request(&self, member: usize) -> Option<&Request> {
        self.of.arrived[member].as_ref()
    }

    /// The places of members for piece `place`; ranks that share memory have one of them.
    fn targets(&self, members: &[usize], place: usize) -> Vec<(Memory, Piece)> {
        let mut found: Vec<(Memory, Piece)> = Vec::new();
        for request in members.iter().filter_map(|&m| self.request(m)) {
            let to = (request.to, request.receive[place]);
            if !found.iter().any(|(m, p)| (m.address(), *p) == (to.0.address(), to.1)) {
                found.push(to);
            }
        }
        found
    }

    fn sent(&self, member: usize, piece: usize) -> (Memory, Piece) {
        self.request(member).map_or((Memory::NONE, NOTHING), |r| (r.from, r.send[piece]))
    }

    /// Piece `piece` of a member goes to all others, to their piece `place`.
    fn send_all(&mut self, from: usize, piece: usize, place: usize, bytes: u64) {
        let process = self.group.process[from];
        let targets = self.targets(self.here, place);
        if process != self.me {
            let incoming = Incoming { process, total: bytes, got: 0, targets };
            self.incoming.insert((from as u32, TO_ALL), incoming);
            return;
        }
        let (memory, piece) = self.sent(from, piece);
        for (process, _) in self.group.others(self.me) {
            self.sends.push(Message { process, from: from as u32, to: TO_ALL, memory, piece });
        }
        for (there, place) in targets {
            copy((&memory, &piece), (&there, &place), 0..piece.bytes());
        }
    }

    /// Piece `piece` of one member goes to another, to its piece `place`.
    fn send_one(&mut self, from: usize, piece: usize, to: usize, place: usize) {
        let (a, b) = (self.group.process[from] == self.me, self.group.process[to] == self.me);
        let targets = self.targets(if b { std::slice::from_ref(&to) } else { &[] }, place);
        match (a, b) {
            (false, false) => {}
            (true, false) => {
                let (memory, piece) = self.sent(from, piece);
                let process = self.group.process[to];
                self.sends.push(Message {
                    process,
                    from: from as u32,
                    to: to as u32,
                    memory,
                    piece,
                });
            }
            (false, true) => {
                let total = targets.iter().map(|(_, p)| p.bytes() as u64).sum();
                let process = self.group.process[from];
                let incoming = Incoming { process, total, got: 0, targets };
                self.incoming.insert((from as u32, to as u32), incoming);
            }
            (true, true) => {
                let (memory, piece) = self.sent(from, piece);
                for (there, place) in targets {
                    copy((&memory, &piece), (&there, &place), 0..piece.bytes());
                }
            }
        }
    }

    fn find(&mut self) {
        let Some(call) = self.here.first().and_then(|&m| self.request(m)).map(|r| r.call.clone())
        else {
            return;
        };
        let (n, item) = (self.group.members.len(), call.dtype.bytes() as u64);
        match &call.kind {
            Kind::AllGather => {
                for from in 0..n {
                    self.send_all(from, 0, from, call.counts[from] * item);
                }
            }
            Kind::Broadcast { root } => self.send_all(*root, 0, 0, call.count() * item),
            Kind::AllToAll => {
                for from in 0..n {
                    for to in 0..n {
                        self.send_one(from, to, to, from);
                    }
                }
            }
            Kind::Permute(pairs) => {
                for &(from, to) in pairs.iter() {
                    self.send_one(from, 0, to, 0);
                }
                for &member in self.here.iter().filter(|m| !pairs.iter().any(|(_, to)| to == *m)) {
                    for (memory, piece) in self.targets(&[member], 0) {
                        crate::piece::zero(&memory, &piece);
                    }
                }
            }
            Kind::Barrier => {
                // One message from each process to each.
                let others = self.group.others(self.me);
                for &(process, from) in &others {
                    let incoming = Incoming { process, total: 0, got: 0, targets: Vec::new() };
                    self.incoming.insert((from as u32, TO_ALL), incoming);
                }
                let from = self.here[0] as u32;
                self.sends.extend(others.into_iter().map(|(process, _)| Message {
                    process,
                    from,
                    to: TO_ALL,
                    memory: Memory::NONE,
                    piece: NOTHING,
                }));
            }
            // `ordered` makes others of these.
            Kind::AllReduce(_) | Kind::ReduceScatter(_) => {}
        }
    }
}
