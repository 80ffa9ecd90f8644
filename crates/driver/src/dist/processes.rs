//! This process among those of a program: joined once, by what a launcher says in the environment.

#[cfg(target_os = "linux")]
pub use joined::{Joined, barrier, current, host, join, leave};
#[cfg(target_os = "linux")]
pub use tessera_comm::control::Coordinator;

/// Which process this is, and how many there are.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Number {
    pub rank: usize,
    pub world: usize,
}

impl Number {
    /// A process that no launcher started.
    pub const ALONE: Self = Self { rank: 0, world: 1 };
}

/// How many processes play the ranks of meshes: 1 where this one was not joined to others.
pub fn world() -> usize {
    #[cfg(target_os = "linux")]
    return current().map_or(1, |j| j.session.world());
    #[cfg(not(target_os = "linux"))]
    1
}

#[cfg(target_os = "linux")]
mod joined {
    use super::Number;
    use crate::knobs;
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
    use std::time::Duration;
    use tessera_comm::control::{Coordinator, Place};
    use tessera_comm::socket::{Fault, Options, create};
    use tessera_comm::{Session, Socket};
    use tessera_diag::{Code, Diagnostic, Diagnostics};

    /// The others, as this process reaches them.
    pub struct Joined {
        pub session: Arc<Session>,
        /// Held by one collective program at a time: all processes run them in one order.
        runs: Mutex<()>,
        /// A forked child has none of its threads.
        process: u32,
    }

    struct State {
        joined: Option<Arc<Joined>>,
        /// Where this process has it, with the number of the process: a forked child has none of its threads.
        coordinator: Option<(Coordinator, u32)>,
        /// Whether the environment was looked at, or the others were left.
        known: bool,
    }

    static STATE: RwLock<State> =
        RwLock::new(State { joined: None, coordinator: None, known: false });

    impl Joined {
        pub fn alone(&self) -> MutexGuard<'_, ()> {
            self.runs.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// The transport of a mesh with `ranks` ranks.
        pub fn socket(&self, ranks: usize) -> Socket {
            Socket::new(self.session.clone(), ranks)
        }

        pub fn number(&self) -> Number {
            Number { rank: self.session.rank(), world: self.session.world() }
        }
    }

    /// The others, where there are any.
    pub fn current() -> Option<Arc<Joined>> {
        let state = STATE.read().unwrap_or_else(PoisonError::into_inner);
        state.joined.clone().filter(|j| j.process == std::process::id())
    }

    fn seconds(text: &str) -> Result<Duration, Diagnostic> {
        let found: Option<f64> = text.trim().parse().ok();
        let made = found.filter(|s| *s > 0.0).and_then(|s| Duration::try_from_secs_f64(s).ok());
        made.ok_or_else(|| {
            let text = format!("expected seconds in TESSERA_COMM_TIMEOUT, got {text:?}");
            Diagnostic::new(Code::E_COMM_INIT, text).help("write a number above 0, such as 300")
        })
    }

    /// Joins the others, once: a second call gives what the first gave.
    pub fn join(limit: Duration) -> Result<Number, Diagnostics> {
        if let Some(joined) = current() {
            return Ok(joined.number());
        }
        let mut state = STATE.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(joined) = &state.joined {
            let is_here = joined.process == std::process::id();
            return Ok(if is_here { joined.number() } else { Number::ALONE });
        }
        if state.known || knobs::DIST.is_off() {
            return Ok(Number::ALONE);
        }
        let Some(place) = Place::read(|name| std::env::var(name).ok().filter(|v| !v.is_empty()))?
        else {
            state.known = true;
            return Ok(Number::ALONE);
        };
        let fault = knobs::FAULT.get().map(|text| Fault::parse(&text)).transpose()?;
        let mut options = Options { fault, ..Options::default() };
        if let Some(text) = knobs::COMM_TIMEOUT.get() {
            options.limit = seconds(&text)?;
        }
        place.check()?;
        if place.hosts {
            let (address, port) = (&*place.address, place.port);
            let made = host((address, port), place.world, &place.token, limit)?;
            state.coordinator = Some((made, std::process::id()));
        }
        let session = Session::join(&place, env!("CARGO_PKG_VERSION"), limit, options)?;
        let joined = Joined { session, runs: Mutex::new(()), process: std::process::id() };
        let number = joined.number();
        state.joined = Some(Arc::new(joined));
        state.known = true;
        Ok(number)
    }

    /// Returns when all processes have called it.
    pub fn barrier() -> Result<(), Diagnostics> {
        let Some(joined) = current() else { return Ok(()) };
        let _one = joined.alone();
        tessera_comm::synchronise(&joined.session)
    }

    /// Ends the part of this process; there is no way back.
    pub fn leave() {
        let mut state = STATE.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(joined) = state.joined.take() {
            match joined.process == std::process::id() {
                true => joined.session.leave(),
                // The threads that it would wait for are the parent's.
                false => std::mem::forget(joined),
            }
        }
        match state.coordinator.take() {
            Some((coordinator, process)) if process == std::process::id() => drop(coordinator),
            other => std::mem::forget(other),
        }
    }

    /// Listens for processes that start.
    pub fn host(
        address: (&str, u16),
        world: usize,
        token: &str,
        limit: Duration,
    ) -> Result<Coordinator, Diagnostics> {
        Coordinator::start(address, world, token, limit, Box::new(create)).map_err(|why| {
            let text = format!("expected to listen at {}:{}, got: {why}", address.0, address.1);
            let help = "another program listens there: give another MASTER_PORT";
            Diagnostic::new(Code::E_COMM_INIT, text).help(help).into()
        })
    }
}
