//! The side of one process.

use super::wire::{Frame, MOST, Over, Wire};
use super::{BEAT, Place, SILENT, host, polled, wait_for};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tessera_diag::{Code, Diagnostic};

/// What a process learns of others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A process is lost; without a number it is the coordinator.
    Lost(Option<usize>, String),
    /// A process has ended its part.
    Left(usize),
}

/// A process that has joined: a connection with a thread.
pub struct Member {
    ends: Arc<AtomicBool>,
    quiet: Arc<AtomicBool>,
    /// Another handle of the connection, to wake the thread.
    stream: Option<TcpStream>,
    thread: Option<JoinHandle<()>>,
}

fn refused(text: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::E_COMM_INIT, text)
}

/// A connection that has said who it is.
pub struct Joining {
    wire: Wire<TcpStream>,
    until: Instant,
    limit: Duration,
    place: Place,
}

impl Joining {
    /// The next frame other than a heartbeat.
    fn next(&mut self, what: &str) -> Result<Frame, Diagnostic> {
        let mut beat = Instant::now();
        loop {
            match self.wire.receive(MOST) {
                Ok(Some(Frame::Beat)) => {}
                Ok(Some(Frame::Refused { text })) => {
                    return Err(refused(text).help("every process must be started by one launcher, with the same version, on this host; the others print what they lack"));
                }
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) if Instant::now() > self.until => {
                    let text = format!(
                        "expected {what} from the coordinator at {}:{} within {:.0} s, got nothing",
                        self.place.address,
                        self.place.port,
                        self.limit.as_secs_f64()
                    );
                    return Err(refused(text).help("`dist.init(timeout=…)` waits longer"));
                }
                Ok(None) => {
                    if beat.elapsed() >= BEAT {
                        beat = Instant::now();
                        let _ = self.wire.send(&Frame::Beat);
                    }
                    wait_for(&mut [polled(self.wire.stream.as_raw_fd(), self.wire.has_waiting())]);
                }
                Err(over) => {
                    let why = match over {
                        Over::Ended => {
                            "its end: the token is another one (TESSERA_TOKEN), or the launcher ended"
                        }
                        Over::Garbage => "what no coordinator of Tessera sends",
                    };
                    let text = format!(
                        "expected {what} from the coordinator at {}:{}, got {why}",
                        self.place.address, self.place.port
                    );
                    return Err(refused(text).help("start all processes by one `tessera run`, or give all the same MASTER_ADDR, MASTER_PORT and TESSERA_TOKEN"));
                }
            }
        }
    }
}

impl Member {
    /// Joins the others: `map` takes what they are offered (a name and its bytes) and is called once. Then `heard` is called for each event,
    /// by the thread of the connection.
    pub fn join<T>(
        place: &Place,
        version: &str,
        limit: Duration,
        map: impl FnOnce(&str, u64) -> Result<T, Diagnostic>,
        heard: impl FnOnce(&T) -> Box<dyn Fn(Event) + Send>,
    ) -> Result<(Member, T), Diagnostic> {
        place.check()?;
        let until = Instant::now() + limit;
        let stream = connect(place, until, limit)?;
        let mut joining = Joining { wire: Wire::new(stream), until, limit, place: place.clone() };
        let hello = Frame::Hello {
            rank: place.rank as u32,
            world: place.world as u32,
            version: version.into(),
            host: host(),
            token: place.token.clone(),
        };
        let _ = joining.wire.send(&hello);
        let mapped = match joining.next("the other processes")? {
            Frame::Welcome { segment, bytes } => map(&segment, bytes).inspect_err(|why| {
                let _ = joining.wire.send(&Frame::Failed { text: why.message.clone() });
            })?,
            other => return Err(refused(format!("expected a segment of memory, got {other:?}"))),
        };
        let _ = joining.wire.send(&Frame::Ready);
        match joining.next("the start of all processes")? {
            Frame::Go => {}
            other => {
                return Err(refused(format!("expected the start of all processes, got {other:?}")));
            }
        }
        let (ends, quiet) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let stream = joining.wire.stream.try_clone().ok();
        let mut listening = Listening {
            wire: joining.wire,
            heard: heard(&mapped),
            ends: ends.clone(),
            quiet: quiet.clone(),
        };
        let thread = std::thread::Builder::new().name("tessera-heartbeat".into());
        let thread = thread.spawn(move || listening.run());
        let thread =
            thread.map_err(|e| refused(format!("expected a thread for heartbeats, got {e}")))?;
        Ok((Member { ends, quiet, stream, thread: Some(thread) }, mapped))
    }

    /// Ends the connection, as a network does that fails: for tests.
    pub fn disconnect(&self) {
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Stops heartbeats, as a process does that was stopped: for tests.
    pub fn hush(&self) {
        self.quiet.store(true, Ordering::Release);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        if let Some(stream) = &self.stream {
            let _ = stream.shutdown(std::net::Shutdown::Read);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn connect(place: &Place, until: Instant, limit: Duration) -> Result<TcpStream, Diagnostic> {
    let mut last = String::from("no such address");
    loop {
        let found = (&*place.address, place.port).to_socket_addrs();
        for address in found.into_iter().flatten() {
            let left =
                until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => {
                    let set = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
                    match set {
                        Ok(()) => return Ok(stream),
                        Err(e) => last = e.to_string(),
                    }
                }
                Err(e) => last = e.to_string(),
            }
        }
        if Instant::now() >= until {
            let text = format!(
                "expected a coordinator at {}:{} within {:.0} s, got: {last}",
                place.address,
                place.port,
                limit.as_secs_f64()
            );
            return Err(refused(text).help("the process of rank 0 listens there, unless the launcher does: look at what it printed"));
        }
        // It may not listen yet.
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Listening {
    wire: Wire<TcpStream>,
    heard: Box<dyn Fn(Event) + Send>,
    ends: Arc<AtomicBool>,
    quiet: Arc<AtomicBool>,
}

impl Listening {
    fn run(&mut self) {
        let (mut beat, mut last) = (Instant::now(), Instant::now());
        loop {
            if beat.elapsed() >= BEAT && !self.quiet.load(Ordering::Acquire) {
                beat = Instant::now();
                let _ = self.wire.send(&Frame::Beat);
            }
            wait_for(&mut [polled(self.wire.stream.as_raw_fd(), self.wire.has_waiting())]);
            if self.ends.load(Ordering::Acquire) {
                let _ = self.wire.send(&Frame::Bye);
                return;
            }
            let _ = self.wire.flush();
            // A process that was stopped has not heard anything either: what came meanwhile is read before it judges.
            let over = loop {
                match self.wire.receive(MOST) {
                    Ok(None) => break None,
                    Ok(Some(frame)) => {
                        last = Instant::now();
                        match frame {
                            Frame::Lost { rank, text } => {
                                (self.heard)(Event::Lost(Some(rank as usize), text));
                            }
                            Frame::Left { rank } => (self.heard)(Event::Left(rank as usize)),
                            // It has ended as it should: nobody says any more who is lost.
                            Frame::Bye => return,
                            _ => {}
                        }
                    }
                    Err(_) => break Some("its connection ended".to_string()),
                }
            };
            let silent = last.elapsed() > SILENT;
            let silent = silent.then(|| format!("it was not heard for {} s", SILENT.as_secs()));
            if let Some(text) = over.or(silent) {
                return (self.heard)(Event::Lost(None, text));
            }
        }
    }
}
