//! Processes of one host: rings in shared memory, and a futex where a process has nothing to do.
//!
//! A [`Session`] is a process among others: it has a connection of the control plane, a mapping of the segment (`segment.rs`) and the ends
//! of its rings (`ring.rs`: their invariants and memory order). A [`Socket`] is the transport of a mesh with some number of ranks; each
//! process plays neighbouring ones, by the ceil rule. All meshes share the rings, so a group has a number that all processes find alike: a
//! hash of its ranks.
//!
//! **Messages.** A collective opens in a process when all its members there have arrived; then what goes to other processes is queued, what
//! stays is copied, and what came early is taken. What is for all members of the group goes to each process once. A message is frames of at
//! most 64 KiB with the header of the message, a CRC-32C of the payload and one of the header. Frames of a message are in order; several
//! messages may be under way between two processes. Behind its first frame a message waits until the receiver has opened the collective and
//! says so: a frame that comes early is kept in memory of the receiver, so that others can pass it, and that is little.
//!
//! **It only moves bytes**: combinations are made of `all_to_all` and `all_gather` (`ordered.rs`).
//!
//! **Nothing waits without a limit.** [`Transport::idle`] sleeps on the bell of the process for half a second at most. It ends with an error
//! where a process is lost (`E_RANK_LOST`), where the others say that they failed (the segment is poisoned), where no rank of this process
//! can go on by what others send (`E_DESYNC`), or where nothing moved for the time limit (`E_TIMEOUT_COMM`, which says what each process that
//! is missing does instead). The first error ends all collectives of all processes, for good.

mod collective;
mod engine;
mod fault;
mod frame;
mod report;
mod ring;
mod segment;
mod session;

pub use fault::{Fault, What};
pub use segment::create;
pub use session::{Options, Session};

use crate::{GroupId, Memory, Progress, Request, Token, Transport, Waiting};
use engine::Engine;
use std::ops::Range;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostic};
use tessera_support::StableHasher;

/// How long a process sleeps before it looks at its clocks.
const NAP: Duration = Duration::from_millis(500);
/// How long it looks at its rings before it sleeps, where every process has a core.
const SPIN: Duration = Duration::from_micros(20);

/// The transport of the ranks of a mesh that are in several processes.
pub struct Socket {
    session: Arc<Session>,
    ranks: usize,
}

/// The ranks that a process plays, of so many.
pub fn played(ranks: usize, world: usize, process: usize) -> Range<usize> {
    let each = ranks.div_ceil(world).max(1);
    ranks.min(process * each)..ranks.min((process + 1) * each)
}

impl Socket {
    pub fn new(session: Arc<Session>, ranks: usize) -> Self {
        Self { session, ranks }
    }

    pub fn session(&self) -> &Arc<Session> {
        &self.session
    }

    fn engine(&self) -> Result<MutexGuard<'_, Engine>, Diagnostic> {
        let engine = self.session.engine.lock().unwrap_or_else(PoisonError::into_inner);
        self.session.checked(engine)
    }
}

impl Transport for Socket {
    fn ranks(&self) -> usize {
        self.ranks
    }

    fn here(&self) -> Range<usize> {
        played(self.ranks, self.session.world(), self.session.rank())
    }

    fn group(&self, ranks: &[usize]) -> Result<GroupId, Diagnostic> {
        let apart =
            ranks.iter().enumerate().all(|(i, r)| *r < self.ranks && !ranks[..i].contains(r));
        if ranks.is_empty() || !apart {
            let text = format!("expected ranks of {}, each once, got {ranks:?}", self.ranks);
            let help = "give the ranks along some axes of a mesh";
            return Err(Diagnostic::new(Code::E_ARGUMENT, text).help(help));
        }
        let each = self.ranks.div_ceil(self.session.world()).max(1);
        let mut hasher = StableHasher::new();
        hasher.write_u64(self.ranks as u64);
        ranks.iter().for_each(|r| hasher.write_u64(*r as u64));
        let [a, b, c, d, ..] = hasher.finish().0;
        let wire = u32::from_le_bytes([a, b, c, d]);
        self.engine()?.group(ranks, ranks.iter().map(|r| r / each).collect(), wire)
    }

    fn members(&self, group: GroupId) -> Vec<usize> {
        let engine = self.session.engine.lock().unwrap_or_else(PoisonError::into_inner);
        engine.groups.get(group.0 as usize).map_or(Vec::new(), |g| g.members.to_vec())
    }

    fn combines(&self) -> bool {
        false
    }

    fn start(&self, rank: usize, request: Request) -> Result<Token, Diagnostic> {
        if let Some(queue) = [request.from, request.to].iter().find_map(Memory::queue) {
            let text = format!("expected arrays in host memory, got one on {}", queue.device);
            let error = Diagnostic::new(Code::E_UNSUPPORTED, text).at(request.call.at.clone());
            return Err(error.help("copy it to the host: this transport moves host memory"));
        }
        self.session.before(&request.call)?;
        let mut engine = self.engine()?;
        engine.corrupts |= self.session.corrupts();
        let token = engine.start(rank, request)?;
        // What others wait for leaves immediately.
        engine.pump()?;
        Ok(token)
    }

    fn test(&self, token: Token) -> Result<bool, Diagnostic> {
        Ok(self.engine()?.test(token))
    }

    fn has_work(&self) -> bool {
        self.engine().is_ok_and(|engine| engine.can_move())
    }

    fn progress(&self) -> Result<Progress, Diagnostic> {
        let moved = self.engine()?.pump()?;
        Ok(match (moved.complete, moved.any) {
            (true, _) => Progress::Complete,
            (false, true) => Progress::Some,
            (false, false) => Progress::Nothing,
        })
    }

    fn idle(&self, waiting: &[Waiting]) -> Result<(), Diagnostic> {
        // Without the lock: it may take the interpreter's.
        let interrupted = self.session.is_interrupted();
        let mut engine = self.engine()?;
        if interrupted {
            let why = engine.fail(report::interrupted(self.session.rank()));
            drop(engine);
            self.session.poison(&why);
            return Err(tessera_target::interruption());
        }
        if engine.can_move() || waiting.iter().any(|w| report::is_complete(&engine, w)) {
            return Ok(());
        }
        if let Some(why) = self.session.hopeless(&mut engine, waiting) {
            let why = engine.fail(why);
            drop(engine);
            self.session.poison(&why);
            return Err(why);
        }
        drop(engine);
        let happened = || self.session.is_over() || self.engine().is_ok_and(|e| e.can_move());
        if self.session.spins {
            let until = Instant::now() + SPIN;
            while Instant::now() < until {
                if happened() {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
        }
        let nap = NAP.min(self.session.options().limit / 4).max(Duration::from_millis(1));
        self.session.segment().sleep(self.session.rank(), nap, happened);
        Ok(())
    }

    fn abort(&self, why: &Diagnostic) {
        let mut engine = self.session.engine.lock().unwrap_or_else(PoisonError::into_inner);
        engine.fail(why.clone());
        drop(engine);
        self.session.poison(why);
    }
}
