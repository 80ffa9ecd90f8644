//! The side that knows all processes.

use super::wire::{Frame, MOST, MOST_HELLO, Over, Wire};
use super::{BEAT, SILENT, polled, wait_for};
use std::io::Error;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Connections that have not said who they are: how many, and how long.
const STRANGERS: usize = 64;
const STRANGER: Duration = Duration::from_secs(5);
/// The same where others wait for their places.
const PATIENCE: Duration = Duration::from_millis(200);

/// What processes are offered when all are there: a segment of shared memory, whose name is removed when this is dropped.
pub trait Offer: Send {
    fn name(&self) -> String;
    fn bytes(&self) -> u64;
}

type Make = Box<dyn FnOnce(usize) -> Result<Box<dyn Offer>, String> + Send>;

/// A thread that listens.
pub struct Coordinator {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Coordinator {
    /// Listens at an address of this host, for `world` processes that say `token`, which have to be there within `limit`. `make` makes what
    /// they are offered, then.
    pub fn start(
        (address, port): (&str, u16),
        world: usize,
        token: &str,
        limit: Duration,
        make: Make,
    ) -> Result<Self, Error> {
        let found = (address, port).to_socket_addrs()?.next();
        let listener = TcpListener::bind(found.unwrap_or((Ipv4Addr::LOCALHOST, port).into()))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let ends = Arc::new(AtomicBool::new(false));
        let mut state = State {
            listener,
            world,
            token: token.to_owned(),
            strangers: Vec::new(),
            members: (0..world).map(|_| None).collect(),
            phase: Phase::Joining { until: Instant::now() + limit, limit, make: Some(make) },
            ends: ends.clone(),
            known: None,
        };
        let thread = std::thread::Builder::new().name("tessera-control".into());
        let thread = Some(thread.spawn(move || state.run())?);
        Ok(Self { address, ends, thread })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Release);
        // Wakes the thread.
        let _ = TcpStream::connect_timeout(&self.address, BEAT);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

enum Phase {
    Joining {
        until: Instant,
        limit: Duration,
        make: Option<Make>,
    },
    /// All have what they were offered; some are not ready.
    Mapping {
        until: Instant,
        limit: Duration,
        _offer: Box<dyn Offer>,
    },
    Running,
    Over,
}

struct Known {
    wire: Wire<TcpStream>,
    last: Instant,
    ready: bool,
}

struct State {
    listener: TcpListener,
    world: usize,
    token: String,
    strangers: Vec<(Wire<TcpStream>, Instant)>,
    members: Vec<Option<Known>>,
    phase: Phase,
    ends: Arc<AtomicBool>,
    /// The version and the host of the first process.
    known: Option<(String, String)>,
}

/// Whether texts are equal; how long it takes tells their lengths alone.
fn is_equal(a: &str, b: &str) -> bool {
    let differ = a.bytes().zip(b.bytes()).fold(0, |all, (x, y)| all | (x ^ y));
    a.len() == b.len() && std::hint::black_box(differ) == 0
}

impl State {
    fn run(&mut self) {
        let mut beat = Instant::now();
        while !self.ends.load(Ordering::Acquire) && !matches!(self.phase, Phase::Over) {
            let mut fds = vec![polled(self.listener.as_raw_fd(), false)];
            fds.extend(self.strangers.iter().map(|(w, _)| polled(w.stream.as_raw_fd(), false)));
            let members = self.members.iter().flatten();
            fds.extend(members.map(|m| polled(m.wire.stream.as_raw_fd(), m.wire.has_waiting())));
            wait_for(&mut fds);
            self.accept();
            self.hear_strangers();
            self.hear_members();
            self.go_on();
            if beat.elapsed() >= BEAT {
                beat = Instant::now();
                self.tell(&Frame::Beat, None);
            }
        }
        // Members that are left go on without it.
        self.hear_members();
        self.tell(&Frame::Bye, None);
    }

    /// As many as there is room for; others wait in the system. Those that have said nothing for a while make room.
    fn accept(&mut self) {
        if self.strangers.len() == STRANGERS {
            self.strangers.retain(|(_, since)| since.elapsed() < PATIENCE);
        }
        for _ in self.strangers.len()..STRANGERS {
            let Ok((stream, _)) = self.listener.accept() else { return };
            let is_set = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
            if is_set.is_ok() {
                self.strangers.push((Wire::new(stream), Instant::now()));
            }
        }
    }

    fn hear_strangers(&mut self) {
        for (mut wire, since) in std::mem::take(&mut self.strangers) {
            match wire.receive(MOST_HELLO) {
                Ok(Some(Frame::Hello { rank, world, version, host, token }))
                    if is_equal(&token, &self.token) =>
                {
                    match self.refusal(rank as usize, world as usize, (&version, &host)) {
                        Some(text) => drop(wire.send(&Frame::Refused { text })),
                        None => {
                            self.known.get_or_insert((version, host));
                            let (last, ready) = (Instant::now(), false);
                            self.members[rank as usize] = Some(Known { wire, last, ready });
                        }
                    }
                }
                Ok(None) if since.elapsed() < STRANGER => self.strangers.push((wire, since)),
                // Who does not know the token learns nothing.
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn refusal(&self, rank: usize, world: usize, about: (&str, &str)) -> Option<String> {
        if !matches!(self.phase, Phase::Joining { .. }) {
            return Some(
                "expected processes of a program that starts, got one when all were there".into(),
            );
        }
        if world != self.world || rank >= self.world {
            return Some(format!(
                "expected processes 0 to {} of {}, got process {rank} of {world}",
                self.world - 1,
                self.world
            ));
        }
        if self.members[rank].is_some() {
            return Some(format!("expected each process once, got process {rank} twice"));
        }
        let (version, host) = self.known.as_ref()?;
        if *version != about.0 {
            return Some(format!(
                "expected one version of Tessera, got {version} and {} (process {rank})",
                about.0
            ));
        }
        (*host != about.1).then(|| {
            format!("expected processes on one host, got process {rank} on another: shared memory does not reach it")
        })
    }

    fn hear_members(&mut self) {
        for rank in 0..self.world {
            let Some(member) = &mut self.members[rank] else { continue };
            let mut lost = member.wire.flush().err().map(|_| "its process ended".to_string());
            let (mut failed, mut left) = (None, false);
            while lost.is_none() && !left {
                match member.wire.receive(MOST) {
                    Ok(None) => break,
                    Ok(Some(Frame::Beat)) => member.last = Instant::now(),
                    Ok(Some(Frame::Ready)) => member.ready = true,
                    Ok(Some(Frame::Bye)) => left = true,
                    Ok(Some(Frame::Failed { text })) => failed = Some(text),
                    Ok(Some(_)) | Err(Over::Garbage) => {
                        lost = Some("it sent what no process of Tessera sends".into());
                    }
                    Err(Over::Ended) => lost = Some("its process ended".into()),
                }
            }
            if lost.is_none() && !left && member.last.elapsed() > SILENT {
                lost = Some(format!("its process was not heard for {} s", SILENT.as_secs()));
            }
            let starts = matches!(self.phase, Phase::Joining { .. } | Phase::Mapping { .. });
            if let Some(text) = failed {
                self.refuse(format!("process {rank}: {text}"));
            } else if let Some(text) = lost {
                self.members[rank] = None;
                match (starts, &self.phase) {
                    // It may come again.
                    (true, Phase::Joining { .. }) => {}
                    (true, _) => self.refuse(format!("process {rank}: {text}")),
                    (false, _) => self.tell(&Frame::Lost { rank: rank as u32, text }, None),
                }
            } else if left {
                self.members[rank] = None;
                self.tell(&Frame::Left { rank: rank as u32 }, None);
            }
        }
    }

    /// Ends the start for all.
    fn refuse(&mut self, text: String) {
        self.tell(&Frame::Refused { text }, None);
        self.phase = Phase::Over;
    }

    fn tell(&mut self, frame: &Frame, except: Option<usize>) {
        for (rank, member) in self.members.iter_mut().enumerate() {
            if let Some(member) = member.as_mut().filter(|_| except != Some(rank)) {
                // What is wrong with it is found when it is heard.
                let _ = member.wire.send(frame);
            }
        }
    }

    fn go_on(&mut self) {
        let all = self.members.iter().all(Option::is_some);
        let ready = self.members.iter().flatten().all(|m| m.ready);
        match &mut self.phase {
            Phase::Joining { until, limit, make } if all => {
                let (until, limit) = (*until, *limit);
                let Some(make) = make.take() else { return };
                match make(self.world) {
                    Ok(offer) => {
                        let (segment, bytes) = (offer.name(), offer.bytes());
                        self.phase = Phase::Mapping { until, limit, _offer: offer };
                        self.tell(&Frame::Welcome { segment, bytes }, None);
                    }
                    Err(text) => self.refuse(text),
                }
            }
            Phase::Mapping { .. } if all && ready => {
                // Drops the offer: all have it.
                self.phase = Phase::Running;
                self.tell(&Frame::Go, None);
            }
            Phase::Joining { until, limit, .. } | Phase::Mapping { until, limit, .. }
                if Instant::now() > *until =>
            {
                let late = self.members.iter().enumerate();
                let late: Vec<String> = late
                    .filter(|(_, m)| m.as_ref().is_none_or(|m| all && !m.ready))
                    .map(|(rank, _)| rank.to_string())
                    .collect();
                let text = format!(
                    "expected {} processes within {:.0} s, got none of process {}",
                    self.world,
                    limit.as_secs_f64(),
                    late.join(", ")
                );
                self.refuse(text);
            }
            Phase::Running if self.members.iter().all(Option::is_none) => self.phase = Phase::Over,
            Phase::Joining { .. } | Phase::Mapping { .. } | Phase::Running | Phase::Over => {}
        }
    }
}
