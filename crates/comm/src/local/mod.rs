//! Any mesh in one process. The last rank to arrive at a collective makes its parts, and workers do them. Host memory only.

mod job;

use crate::cursor::Random;
use crate::piece::checksum;
use crate::transport::check_group;
use crate::{Call, GroupId, Header, Order, Piece, Progress, Request, Token, Transport, Waiting};
use crate::{Kind, Memory, desync};
use job::{Job, Work};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tessera_diag::{Code, Diagnostic};

/// A fault, for tests: a bit of what a rank sends is changed after its checksum is taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Corruption {
    pub rank: usize,
    /// Which of the collectives that the rank starts, from 0.
    pub at: u64,
}

#[derive(Copy, Clone, Debug)]
pub struct LocalOptions {
    /// Take and compare checksums of payloads.
    pub checksums: bool,
    /// Bytes of a part: a multiple of 16, so that it has whole elements.
    pub part: usize,
    /// Which part is done next.
    pub order: Order,
    pub corruption: Option<Corruption>,
}

impl Default for LocalOptions {
    fn default() -> Self {
        Self { checksums: true, part: 128 << 10, order: Order::First, corruption: None }
    }
}

pub struct Local {
    ranks: usize,
    options: LocalOptions,
    state: Mutex<State>,
    /// A thread is done with a part.
    idle: Condvar,
}

struct State {
    groups: Vec<Group>,
    parts: VecDeque<(Arc<Job>, Vec<Work>)>,
    /// Threads that work on a part.
    active: usize,
    /// Collectives that each rank has started.
    started: Vec<u64>,
    random: Random,
    failed: Option<Diagnostic>,
}

struct Group {
    members: Arc<[usize]>,
    /// How many collectives each member has started.
    next: Vec<u64>,
    open: BTreeMap<u64, Collective>,
}

/// Members arrive, then parts are done, then members see that it is complete.
struct Collective {
    arrived: Vec<Option<Arrival>>,
    missing: usize,
    parts: usize,
    complete: bool,
    /// Members that have not seen that it is complete.
    unseen: usize,
}

struct Arrival {
    request: Request,
    /// The checksums of each part of each piece.
    sums: Vec<Vec<u32>>,
}

impl Local {
    pub fn new(ranks: usize, options: LocalOptions) -> Self {
        let part = options.part.max(16).next_multiple_of(16);
        let seed = match options.order {
            Order::First => 0,
            Order::Random(seed) => seed,
        };
        let state = State {
            groups: Vec::new(),
            parts: VecDeque::new(),
            active: 0,
            started: vec![0; ranks],
            random: Random(seed),
            failed: None,
        };
        let options = LocalOptions { part, ..options };
        Self { ranks, options, state: Mutex::new(state), idle: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The members of the group of a request and the rank's position among them.
    fn group_of(&self, rank: usize, group: GroupId) -> Result<(Arc<[usize]>, usize), Diagnostic> {
        let state = self.state();
        if let Some(why) = &state.failed {
            return Err(why.clone());
        }
        let found = state.groups.get(group.0 as usize);
        let found = found
            .and_then(|g| Some((g.members.clone(), g.members.iter().position(|r| *r == rank)?)));
        found.ok_or_else(|| {
            let text = format!("expected a group that rank {rank} is in, got group {}", group.0);
            Diagnostic::new(Code::E_ARGUMENT, text).help("make the group before the program runs")
        })
    }

    fn sums(&self, request: &Request) -> Vec<Vec<u32>> {
        if !self.options.checksums {
            return Vec::new();
        }
        let each = |piece: &Piece| {
            let ends = (0..piece.bytes()).step_by(self.options.part);
            let part = |from: usize| {
                checksum(&request.from, piece, from..piece.bytes().min(from + self.options.part))
            };
            ends.map(part).collect()
        };
        request.send.iter().map(each).collect()
    }

    fn corrupt(&self, rank: usize, number: u64, request: &Request) {
        let chosen = self.options.corruption.is_some_and(|c| (c.rank, c.at) == (rank, number));
        let piece = request.send.iter().find(|p| p.bytes() > 0);
        if let Some(piece) = piece.filter(|_| chosen) {
            // SAFETY: the first byte of a piece that is inside the memory.
            unsafe { *request.from.address().add(piece.offset) ^= 4 }
        }
    }
}

/// What one member sends another is what that expects.
fn pairs_agree(members: &[usize], all: &[&Request]) -> Result<(), Diagnostic> {
    for (s, from) in all.iter().enumerate() {
        for (t, to) in all.iter().enumerate() {
            let item = from.call.dtype.bytes().max(1) as u64;
            let (sent, expected) =
                (from.send[t].bytes() as u64 / item, to.receive[s].bytes() as u64 / item);
            if sent != expected {
                return Err(desync::sent((members[s], sent), (members[t], expected), &to.call));
            }
        }
    }
    Ok(())
}

impl State {
    fn fail(&mut self, why: Diagnostic) -> Diagnostic {
        self.parts.clear();
        self.failed.get_or_insert(why).clone()
    }

    /// The parts of a collective at which all members have arrived.
    fn complete(&mut self, token: Token, part: usize) -> Result<(), Diagnostic> {
        let group = &mut self.groups[token.group.0 as usize];
        let Some(open) = group.open.get_mut(&token.sequence) else { return Ok(()) };
        let arrived: Vec<Arrival> = open.arrived.iter_mut().filter_map(Option::take).collect();
        let requests: Vec<&Request> = arrived.iter().map(|a| &a.request).collect();
        if requests[0].call.kind == Kind::AllToAll {
            pairs_agree(&group.members, &requests)?;
        }
        let (requests, sums) = arrived.into_iter().map(|a| (a.request, a.sums)).unzip();
        let members = group.members.clone();
        let job =
            Job { requests, sums, members, group: token.group, sequence: token.sequence, part };
        let parts = job.parts();
        (open.parts, open.complete) = (parts.len(), parts.is_empty());
        let job = Arc::new(job);
        self.parts.extend(parts.into_iter().map(|works| (job.clone(), works)));
        Ok(())
    }
}

impl Transport for Local {
    fn ranks(&self) -> usize {
        self.ranks
    }

    fn here(&self) -> Range<usize> {
        0..self.ranks
    }

    fn group(&self, ranks: &[usize]) -> Result<GroupId, Diagnostic> {
        check_group(ranks, self.ranks)?;
        let mut state = self.state();
        let known = state.groups.iter().position(|g| *g.members == *ranks);
        let at = known.unwrap_or_else(|| {
            let (members, next) = (ranks.into(), vec![0; ranks.len()]);
            state.groups.push(Group { members, next, open: BTreeMap::new() });
            state.groups.len() - 1
        });
        Ok(GroupId(at as u32))
    }

    fn members(&self, group: GroupId) -> Vec<usize> {
        self.state().groups.get(group.0 as usize).map_or(Vec::new(), |g| g.members.to_vec())
    }

    fn combines(&self) -> bool {
        true
    }

    fn start(&self, rank: usize, request: Request) -> Result<Token, Diagnostic> {
        let (members, member) = self.group_of(rank, request.group)?;
        request.check(members.len(), member)?;
        let on_device = [request.from, request.to].iter().find_map(Memory::queue);
        if let Some(queue) = on_device {
            let text = format!("expected arrays in host memory, got one on {}", queue.device);
            let error = Diagnostic::new(Code::E_UNSUPPORTED, text).at(request.call.at.clone());
            return Err(error.help("copy it to the host: this transport moves host memory"));
        }
        let sums = self.sums(&request);
        let mut state = self.state();
        if let Some(why) = &state.failed {
            return Err(why.clone());
        }
        let number = state.started[rank];
        state.started[rank] += 1;
        self.corrupt(rank, number, &request);
        let group = &mut state.groups[request.group.0 as usize];
        let sequence = group.next[member];
        group.next[member] += 1;
        let token = Token { group: request.group, member, sequence };
        let n = members.len();
        let open = group.open.entry(sequence).or_insert_with(|| Collective {
            arrived: (0..n).map(|_| None).collect(),
            missing: n,
            parts: 0,
            complete: false,
            unseen: n,
        });
        let first = open.arrived.iter().enumerate().find_map(|(i, a)| Some((i, a.as_ref()?)));
        // Ranks of one program have one call; the headers of others are compared, as those of messages are.
        let agrees = |a: &Arrival| {
            let header = |call: &Call| Header::new(request.group.0, sequence, member as u32, call);
            Arc::ptr_eq(&a.request.call, &request.call)
                || header(&a.request.call).agrees(&header(&request.call))
        };
        if let Some((other, first)) = first.filter(|(_, a)| !agrees(a)) {
            let why = desync::differ(
                sequence,
                (members[other], &*first.request.call),
                (rank, &*request.call),
            );
            return Err(state.fail(why));
        }
        open.arrived[member] = Some(Arrival { request, sums });
        open.missing -= 1;
        if open.missing == 0 {
            state.complete(token, self.options.part).map_err(|why| state.fail(why))?;
        }
        Ok(token)
    }

    fn test(&self, token: Token) -> Result<bool, Diagnostic> {
        let mut state = self.state();
        if let Some(why) = &state.failed {
            return Err(why.clone());
        }
        let Some(group) = state.groups.get_mut(token.group.0 as usize) else { return Ok(true) };
        let Some(open) = group.open.get_mut(&token.sequence) else { return Ok(true) };
        if !open.complete {
            return Ok(false);
        }
        open.unseen -= 1;
        if open.unseen == 0 {
            group.open.remove(&token.sequence);
        }
        Ok(true)
    }

    fn has_work(&self) -> bool {
        !self.state().parts.is_empty()
    }

    fn progress(&self) -> Result<Progress, Diagnostic> {
        let mut state = self.state();
        if let Some(why) = &state.failed {
            return Err(why.clone());
        }
        let at = match self.options.order {
            Order::First => 0,
            Order::Random(_) => {
                let n = state.parts.len().max(1);
                state.random.below(n)
            }
        };
        let Some((job, works)) = state.parts.remove(at) else { return Ok(Progress::Nothing) };
        state.active += 1;
        drop(state);
        let done = works.iter().try_for_each(|work| job.perform(work));
        let mut state = self.state();
        state.active -= 1;
        self.idle.notify_all();
        if let Err(why) = done {
            return Err(state.fail(why));
        }
        let group = &mut state.groups[job.group.0 as usize];
        let Some(open) = group.open.get_mut(&job.sequence) else { return Ok(Progress::Some) };
        open.parts -= 1;
        open.complete = open.parts == 0;
        Ok(if open.complete { Progress::Complete } else { Progress::Some })
    }

    fn idle(&self, waiting: &[Waiting]) -> Result<(), Diagnostic> {
        let mut state = self.state();
        if let Some(why) = &state.failed {
            return Err(why.clone());
        }
        // Every rank is in this process: what is not in flight will not come.
        let complete = |w: &Waiting| match w {
            Waiting::Ended { .. } => false,
            Waiting::For { token: None, .. } => false,
            Waiting::For { token: Some(token), .. } => {
                let group = state.groups.get(token.group.0 as usize);
                group.and_then(|g| g.open.get(&token.sequence)).is_none_or(|c| c.complete)
            }
        };
        if !state.parts.is_empty() || state.active > 0 || waiting.iter().any(complete) {
            return Ok(());
        }
        Err(state.fail(desync::stuck(waiting)))
    }

    fn abort(&self, why: &Diagnostic) {
        let mut state = self.state();
        state.fail(why.clone());
        while state.active > 0 {
            state = self.idle.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
