//! Processes of one host: channels in shared memory, and a futex where a process has nothing to do.
//!
//! A [`Session`] is a process among others: it has a connection of the control plane, a mapping of the segment (`segment.rs`) and the ends
//! of its channels (`channel.rs`: their invariants and memory order). A [`Socket`] is the transport of a mesh with some number of ranks; each
//! process plays neighbouring ones, by the ceil rule. All meshes share the channels, so a group has a number that all processes find alike: a
//! hash of its ranks.
//!
//! **Messages.** A collective opens in a process when all its members there have arrived; then what goes to other processes is queued, what
//! stays is copied, and what came early is taken. What is for all members of the group goes to each process once. A message is frames of at
//! most 64 KiB with the header of the message, a CRC-32C of the payload and one of the header. Frames of a message are in order; several
//! messages may be in flight between two processes. Behind its first frame a message waits until the receiver has opened the collective and
//! says so: a frame that comes early is kept in memory of the receiver, so that others can pass it, and that is little.
//!
//! **It only moves bytes**: combinations are made of `all_to_all` and `all_gather` (`ordered.rs`).
//!
//! **Nothing waits without a limit.** [`Transport::idle`] sleeps on the bell of the process for half a second at most. It ends with an error
//! where a process is lost (`E_RANK_LOST`), where the others say that they failed (the segment is poisoned), where no rank of this process
//! can go on by what others send (`E_DESYNC`), or where nothing moved for the time limit (`E_TIMEOUT_COMM`, which says what each process that
//! is missing does instead). The first error ends all collectives of all processes, for good.

mod channel;
mod collective;
mod fault;
mod frame;
mod in_flight;
mod report;
mod segment;
mod session;

pub use fault::{Fault, What};
pub use segment::create;
pub use session::{Options, Session};

use crate::transport::check_group;
use crate::{GroupId, Memory, Progress, Request, Token, Transport, Waiting};
use in_flight::InFlight;
use std::ops::Range;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostic};
use tessera_support::StableHasher;

/// How long a process sleeps before it looks at its clocks.
const NAP: Duration = Duration::from_millis(500);
/// How long it looks at its channels before it sleeps, where every process has a core.
const SPIN: Duration = Duration::from_micros(20);

/// The transport of the ranks of a mesh that are in several processes.
pub struct Socket {
    session: Arc<Session>,
    ranks: usize,
}

/// The ranks that a process plays, of `ranks`.
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

    fn in_flight(&self) -> Result<MutexGuard<'_, InFlight>, Diagnostic> {
        let in_flight = self.session.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        self.session.checked(in_flight)
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
        check_group(ranks, self.ranks)?;
        let each = self.ranks.div_ceil(self.session.world()).max(1);
        let mut hasher = StableHasher::new();
        hasher.write_u64(self.ranks as u64);
        ranks.iter().for_each(|r| hasher.write_u64(*r as u64));
        let [a, b, c, d, ..] = hasher.finish().0;
        let wire = u32::from_le_bytes([a, b, c, d]);
        self.in_flight()?.group(ranks, ranks.iter().map(|r| r / each).collect(), wire)
    }

    fn members(&self, group: GroupId) -> Vec<usize> {
        let in_flight = self.session.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        in_flight.groups.get(group.0 as usize).map_or(Vec::new(), |g| g.members.to_vec())
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
        let mut in_flight = self.in_flight()?;
        in_flight.corrupts |= self.session.corrupts();
        let token = in_flight.start(rank, request)?;
        // What others wait for leaves immediately.
        in_flight.pump()?;
        Ok(token)
    }

    fn test(&self, token: Token) -> Result<bool, Diagnostic> {
        Ok(self.in_flight()?.test(token))
    }

    fn has_work(&self) -> bool {
        self.in_flight().is_ok_and(|in_flight| in_flight.can_move())
    }

    fn progress(&self) -> Result<Progress, Diagnostic> {
        let moved = self.in_flight()?.pump()?;
        Ok(match (moved.complete, moved.any) {
            (true, _) => Progress::Complete,
            (false, true) => Progress::Some,
            (false, false) => Progress::Nothing,
        })
    }

    fn idle(&self, waiting: &[Waiting]) -> Result<(), Diagnostic> {
        // Without the lock: it may take the interpreter's.
        let interrupted = self.session.is_interrupted();
        let mut in_flight = self.in_flight()?;
        if interrupted {
            let why = in_flight.fail(report::interrupted(self.session.rank()));
            drop(in_flight);
            self.session.poison(&why);
            return Err(tessera_target::interruption());
        }
        if in_flight.can_move() || waiting.iter().any(|w| report::is_complete(&in_flight, w)) {
            return Ok(());
        }
        if let Some(why) = self.session.hopeless(&mut in_flight, waiting) {
            let why = in_flight.fail(why);
            drop(in_flight);
            self.session.poison(&why);
            return Err(why);
        }
        drop(in_flight);
        let happened = || self.session.is_over() || self.in_flight().is_ok_and(|e| e.can_move());
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
        let mut in_flight = self.session.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        in_flight.fail(why.clone());
        drop(in_flight);
        self.session.poison(why);
    }
}
