//! Programs of ranks on a transport.

use crate::ordered::Combination;
use crate::{Call, GroupId, Progress, Request, Token, Transport, Waiting};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tessera_diag::{Diagnostic, Diagnostics};

/// What the program of a rank does next.
#[derive(Debug)]
pub enum Step {
    /// It starts a collective and goes on. Its collectives are numbered from 0.
    Start(Box<Request>),
    /// It waits for the collective with this number. Each may be waited for more than once.
    Wait(usize),
    /// The program has ended. Collectives that it did not wait for are waited for.
    Ended,
}

/// A position in the program of a rank.
pub trait Cursor: Send {
    /// Runs to the next step. Not called again after an error or `Ended`.
    fn step(&mut self) -> Result<Step, Diagnostics>;
}

/// Which of several is next.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Order {
    First,
    /// Any, by a seed: for tests.
    Random(u64),
}

/// SplitMix64.
pub(crate) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// Threads that run ranks.
pub trait Workers {
    /// Calls `work` on some threads together, at least on one, and returns when all have returned.
    fn each(&self, work: &(dyn Fn() + Sync));
}

/// That many threads, the caller's among them.
pub struct Threads(pub usize);

impl Workers for Threads {
    fn each(&self, work: &(dyn Fn() + Sync)) {
        std::thread::scope(|scope| {
            for _ in 1..self.0 {
                scope.spawn(work);
            }
            work();
        });
    }
}

enum State {
    /// Behind a combination of its group that has a collective to start yet: members start those of a group in one order.
    Behind(Box<Request>),
    InFlight(Token),
    Combining(Box<Combination>),
    Complete,
}

struct Pending {
    state: State,
    group: GroupId,
    call: Arc<Call>,
}

impl Pending {
    fn start(
        &mut self,
        transport: &dyn Transport,
        rank: usize,
        request: Request,
    ) -> Result<(), Diagnostic> {
        let combines = self.call.kind.combines().is_some() && !transport.combines();
        self.state = match combines {
            true => State::Combining(Box::new(Combination::start(transport, rank, request)?)),
            false => State::InFlight(transport.start(rank, request)?),
        };
        Ok(())
    }

    /// Goes on as far as it can: whether it is complete.
    fn poll(&mut self, transport: &dyn Transport) -> Result<bool, Diagnostic> {
        let complete = match &mut self.state {
            State::Behind(_) => false,
            State::Complete => true,
            State::InFlight(token) => transport.test(*token)?,
            State::Combining(combination) => combination.poll(transport)?,
        };
        if complete {
            self.state = State::Complete;
        }
        Ok(complete)
    }

    /// Whether later collectives of the group must wait before they start.
    fn holds(&self) -> bool {
        match &self.state {
            State::Behind(_) => true,
            State::Combining(combination) => !combination.is_last(),
            State::InFlight(_) | State::Complete => false,
        }
    }

    fn token(&self) -> Option<Token> {
        match &self.state {
            State::InFlight(token) => Some(*token),
            State::Combining(combination) => Some(combination.token()),
            State::Behind(_) | State::Complete => None,
        }
    }
}

struct Rank<'c> {
    number: usize,
    cursor: &'c mut (dyn Cursor + 'c),
    pending: Vec<Pending>,
    /// Those of which parts are started one after another, in order; none where the transport combines.
    staged: Vec<usize>,
    /// The collective that it waits for.
    waits: Option<usize>,
    ended: bool,
}

impl Rank<'_> {
    /// Goes on with what was started in parts. Whether anything did.
    fn pump(&mut self, transport: &dyn Transport) -> Result<bool, Diagnostic> {
        let (mut moved, mut held) = (false, Vec::new());
        for at in std::mem::take(&mut self.staged) {
            let pending = &mut self.pending[at];
            let is_free = !held.contains(&pending.group);
            match std::mem::replace(&mut pending.state, State::Complete) {
                State::Behind(request) if is_free => {
                    pending.start(transport, self.number, *request)?;
                    moved = true;
                }
                state => pending.state = state,
            }
            let before = pending.token();
            let complete = pending.poll(transport)?;
            moved |= complete || pending.token() != before;
            if pending.holds() {
                held.push(pending.group);
            }
            if !complete {
                self.staged.push(at);
            }
        }
        Ok(moved)
    }

    /// Whether the collective that it waits for is complete.
    fn is_ready(&mut self, transport: &dyn Transport) -> Result<Ready, Diagnostic> {
        let moved = self.pump(transport)?;
        let Some(waited) = self.waits.and_then(|i| self.pending.get_mut(i)) else {
            self.waits = None;
            return Ok(Ready::Yes);
        };
        if waited.poll(transport)? {
            self.waits = None;
            return Ok(Ready::Yes);
        }
        Ok(if moved { Ready::Moved } else { Ready::No })
    }

    /// Runs until it waits for something that is not complete, or has ended. Calls `wake` where there may be work for others by what it started.
    fn advance(&mut self, transport: &dyn Transport, wake: &dyn Fn()) -> Result<(), Diagnostics> {
        loop {
            if self.is_ready(transport)? != Ready::Yes {
                return Ok(());
            }
            if self.ended {
                // What nobody waited for.
                let open = self.pending.iter().position(|p| !matches!(p.state, State::Complete));
                self.waits = open;
                if open.is_none() {
                    return Ok(());
                }
                continue;
            }
            match self.cursor.step()? {
                Step::Start(request) => {
                    let (call, group) = (request.call.clone(), request.group);
                    let is_behind = self
                        .staged
                        .iter()
                        .any(|&i| self.pending[i].group == group && self.pending[i].holds());
                    let state = State::Complete;
                    let mut pending = Pending { state, group, call };
                    match is_behind {
                        true => pending.state = State::Behind(request),
                        false => pending.start(transport, self.number, *request)?,
                    }
                    if !matches!(pending.state, State::InFlight(_)) {
                        self.staged.push(self.pending.len());
                    } else if pending.poll(transport)? || transport.has_work() {
                        wake();
                    }
                    self.pending.push(pending);
                }
                Step::Wait(number) => self.waits = Some(number),
                Step::Ended => self.ended = true,
            }
        }
    }

    fn waiting(&self) -> Waiting {
        match self.waits.and_then(|i| self.pending.get(i)) {
            Some(p) => Waiting::For { rank: self.number, token: p.token(), call: p.call.clone() },
            None => Waiting::Ended { rank: self.number },
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Ready {
    Yes,
    No,
    /// Not yet, but something that it started went on: others may be ready by that.
    Moved,
}

struct Ranks<'c> {
    ready: Vec<Rank<'c>>,
    waiting: Vec<Rank<'c>>,
    over: Vec<Rank<'c>>,
    /// Workers that run a rank, test those that wait, or do a part of a collective.
    busy: usize,
    asleep: usize,
    /// Counts what workers did, so that one that tested ranks meanwhile tests them again.
    changes: u64,
    error: Option<Diagnostics>,
    random: Option<Random>,
}

/// Workers and the ranks that they share.
struct Pool<'c, 't> {
    transport: &'t dyn Transport,
    ranks: Mutex<Ranks<'c>>,
    change: Condvar,
}

/// Runs the programs of all ranks of this process to their ends; `cursors` are in the order of [`Transport::here`]. The first error ends all.
pub fn run(
    transport: &dyn Transport,
    cursors: &mut [&mut dyn Cursor],
    workers: &dyn Workers,
    order: Order,
) -> Result<(), Diagnostics> {
    let numbered = transport.here().zip(cursors.iter_mut());
    let mut ready: Vec<Rank<'_>> = numbered
        .map(|(number, cursor)| Rank {
            number,
            cursor: &mut **cursor,
            pending: Vec::new(),
            staged: Vec::new(),
            waits: None,
            ended: false,
        })
        .collect();
    // Taken from the end.
    ready.reverse();
    let random = match order {
        Order::First => None,
        Order::Random(seed) => Some(Random(seed)),
    };
    let (waiting, over) = (Vec::new(), Vec::new());
    let ranks = Ranks { ready, waiting, over, busy: 0, asleep: 0, changes: 0, error: None, random };
    let pool = Pool { transport, ranks: Mutex::new(ranks), change: Condvar::new() };
    workers.each(&|| pool.work());
    let error = pool.lock().error.take();
    match error {
        None => Ok(()),
        Some(why) => {
            if let Some(first) = why.iter().next() {
                transport.abort(first);
            }
            Err(why)
        }
    }
}

impl<'c> Pool<'c, '_> {
    fn lock(&self) -> MutexGuard<'_, Ranks<'c>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut ranks = self.lock();
        loop {
            if ranks.error.is_some() {
                break;
            }
            if let Some(rank) = ranks.next() {
                ranks = self.run_one(ranks, rank);
                continue;
            }
            if ranks.waiting.is_empty() && ranks.busy == 0 {
                break;
            }
            let before = ranks.changes;
            ranks.busy += 1;
            drop(ranks);
            let progress = self.transport.progress();
            ranks = self.lock();
            ranks.busy -= 1;
            ranks.changes += u64::from(!matches!(progress, Ok(Progress::Nothing)));
            match progress {
                Err(why) => ranks.fail(why.into()),
                Ok(Progress::Some) => {}
                Ok(Progress::Complete) => ranks = self.test_waiting(ranks).0,
                Ok(Progress::Nothing) => ranks = self.wait(ranks, before),
            }
        }
        self.change.notify_all();
    }

    /// Wakes workers that sleep: they test again what ranks wait for.
    fn wake(&self) {
        let mut ranks = self.lock();
        if ranks.asleep > 0 {
            ranks.changes += 1;
            self.change.notify_all();
        }
    }

    fn run_one<'g>(
        &'g self,
        mut ranks: MutexGuard<'g, Ranks<'c>>,
        mut rank: Rank<'c>,
    ) -> MutexGuard<'g, Ranks<'c>> {
        ranks.busy += 1;
        drop(ranks);
        let done = rank.advance(self.transport, &|| self.wake());
        let mut ranks = self.lock();
        ranks.busy -= 1;
        ranks.changes += 1;
        match done {
            Err(why) => ranks.fail(why),
            Ok(()) if rank.waits.is_some() => ranks.waiting.push(rank),
            Ok(()) => ranks.over.push(rank),
        }
        self.change.notify_all();
        ranks
    }

    /// Makes ranks ready whose collective is complete. Whether anything went on.
    fn test_waiting<'g>(
        &'g self,
        mut ranks: MutexGuard<'g, Ranks<'c>>,
    ) -> (MutexGuard<'g, Ranks<'c>>, bool) {
        let mut tested = std::mem::take(&mut ranks.waiting);
        ranks.busy += 1;
        drop(ranks);
        let mut results = Vec::with_capacity(tested.len());
        for rank in &mut tested {
            results.push(rank.is_ready(self.transport));
        }
        let mut ranks = self.lock();
        ranks.busy -= 1;
        // The lowest is taken first.
        tested.sort_by_key(|r| r.number);
        let ready: Vec<bool> = tested.iter().map(|r| r.waits.is_none()).collect();
        for (rank, is_ready) in tested.into_iter().zip(ready).rev() {
            match is_ready {
                true => ranks.ready.push(rank),
                false => ranks.waiting.push(rank),
            }
        }
        let mut moved = false;
        for result in results {
            match result {
                Ok(ready) => moved |= ready != Ready::No,
                Err(why) => ranks.fail(why.into()),
            }
        }
        // Workers without anything to do stay asleep.
        if !ranks.ready.is_empty() || ranks.error.is_some() {
            self.change.notify_all();
        }
        (ranks, moved)
    }

    /// Nothing was in flight that this worker could do, after the changes that it knew of.
    fn wait<'g>(
        &'g self,
        ranks: MutexGuard<'g, Ranks<'c>>,
        before: u64,
    ) -> MutexGuard<'g, Ranks<'c>> {
        let (mut ranks, moved) = self.test_waiting(ranks);
        // What another worker did meanwhile can be what a rank needs that was tested before it, also in a collective that it does not wait for yet.
        if moved || ranks.changes != before || ranks.error.is_some() {
            return ranks;
        }
        if ranks.busy > 0 {
            ranks.asleep += 1;
            ranks = self.change.wait(ranks).unwrap_or_else(PoisonError::into_inner);
            ranks.asleep -= 1;
            return ranks;
        }
        if ranks.waiting.is_empty() {
            return ranks;
        }
        let mut waiting: Vec<Waiting> =
            ranks.waiting.iter().chain(&ranks.over).map(Rank::waiting).collect();
        waiting.sort_by_key(Waiting::rank);
        // With the lock: other workers have nothing to do either.
        if let Err(why) = self.transport.idle(&waiting) {
            ranks.fail(why.into());
        }
        ranks
    }
}

impl<'c> Ranks<'c> {
    fn next(&mut self) -> Option<Rank<'c>> {
        match &mut self.random {
            None => self.ready.pop(),
            Some(random) => {
                let at = random.below(self.ready.len());
                (at < self.ready.len()).then(|| self.ready.swap_remove(at))
            }
        }
    }

    fn fail(&mut self, why: Diagnostics) {
        self.error.get_or_insert(why);
    }
}
