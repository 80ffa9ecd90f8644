//! The control plane: who may join, what is refused, and what garbage does to it.

use crate::{Random, seed};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tessera_comm::Session;
use tessera_comm::control::wire::{Frame, MOST, Over, Wire};
use tessera_comm::control::{Coordinator, Place};
use tessera_comm::socket::{Options, create};
use tessera_diag::{Code, Diagnostic};

pub const TOKEN: &str = "of the tests";

pub fn coordinator(world: usize, limit: Duration) -> Coordinator {
    Coordinator::start(("127.0.0.1", 0), world, TOKEN, limit, Box::new(create)).unwrap()
}

pub fn place(rank: usize, world: usize, port: u16) -> Place {
    let (address, token) = ("127.0.0.1".into(), TOKEN.into());
    Place { rank, world, address, port, token, hosts: false }
}

type Joined = Result<Arc<Session>, Diagnostic>;

/// Joins at the same time, each on a thread.
fn join_all(places: Vec<Place>, version: impl Fn(usize) -> String, limit: Duration) -> Vec<Joined> {
    let start = |(i, p): (usize, Place)| {
        let version = version(i);
        thread::spawn(move || Session::join(&p, &version, limit, Options::default()))
    };
    let threads: Vec<_> = places.into_iter().enumerate().map(start).collect();
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

const SOON: Duration = Duration::from_millis(700);
const LATER: Duration = Duration::from_secs(20);

fn refused(joined: Joined) -> Diagnostic {
    let error = joined.err().expect("an error");
    assert_eq!(error.code, Code::E_COMM_INIT);
    assert!(error.help.is_some(), "{error}");
    error
}

#[test]
fn the_environment_says_where_a_process_is() {
    let read = |pairs: &[(&str, &str)]| {
        let of = |name: &str| {
            let found = pairs.iter().find(|(n, _)| *n == name);
            found.map(|(_, v)| v.to_string())
        };
        Place::read(of)
    };
    let all =
        [("RANK", "1"), ("WORLD_SIZE", "4"), ("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500")];
    assert_eq!(read(&[]).unwrap(), None);
    assert_eq!(read(&all[..1]).unwrap(), None);
    let place = read(&all).unwrap().unwrap();
    assert_eq!((place.rank, place.world, place.port, place.hosts), (1, 4, 29500, false));
    // Others can reach this address.
    assert!(place.check().unwrap_err().help.unwrap().contains("TESSERA_TOKEN"));
    assert!(Place { token: "x".into(), ..place.clone() }.check().is_ok());
    assert!(Place { address: "127.0.0.1".into(), ..place }.check().is_ok());
    let mut first = all.to_vec();
    first[0].1 = "0";
    assert!(read(&first).unwrap().unwrap().hosts);
    first.push(("TESSERA_COORDINATOR", "launcher"));
    assert!(!read(&first).unwrap().unwrap().hosts);
    let error = read(&all[..2]).unwrap_err();
    assert!(error.message.ends_with("MASTER_ADDR, MASTER_PORT"), "{error}");
    for (at, wrong) in [(0, "4"), (0, "-1"), (1, "0"), (1, "many"), (3, "65536")] {
        let mut pairs = all.to_vec();
        pairs[at].1 = wrong;
        let error = read(&pairs).unwrap_err();
        assert!(error.code == Code::E_COMM_INIT && error.message.contains(wrong), "{error}");
    }
}

#[test]
fn who_may_not_join_gets_the_reason() {
    // Another token: no reason is given.
    let with = coordinator(1, LATER);
    let wrong = Place { token: "another token".into(), ..place(0, 1, with.port()) };
    let same_length = Place { token: "of the tesTs".into(), ..place(0, 1, with.port()) };
    for found in join_all(vec![wrong, same_length], |_| "1".into(), LATER) {
        let text = refused(found).message;
        assert!(text.contains("got its end"), "{text}");
    }
    assert!(join_all(vec![place(0, 1, with.port())], |_| "1".into(), LATER).remove(0).is_ok());

    // Another version, another world, twice the same.
    let with = coordinator(2, LATER);
    let one = place(0, 2, with.port());
    let found = join_all(vec![one.clone(), one], |_| "1".into(), SOON);
    let texts: Vec<String> = found.into_iter().map(|j| refused(j).message).collect();
    assert!(texts.iter().any(|t| t.contains("got process 0 twice")), "{texts:?}");
    let error = refused(join_all(vec![place(1, 3, with.port())], |_| "1".into(), SOON).remove(0));
    assert!(error.message.contains("got process 1 of 3"), "{error}");
    let with = coordinator(2, SOON);
    let found =
        join_all((0..2).map(|r| place(r, 2, with.port())).collect(), |r| r.to_string(), SOON);
    let texts: Vec<String> = found.into_iter().map(|j| refused(j).message).collect();
    assert!(texts.iter().any(|t| t.contains("one version of Tessera")), "{texts:?}");
}

#[test]
fn who_does_not_come_is_named() {
    let with = coordinator(3, SOON);
    let begin = Instant::now();
    let found =
        join_all(vec![place(0, 3, with.port()), place(2, 3, with.port())], |_| "1".into(), LATER);
    for joined in found {
        let text = refused(joined).message;
        assert_eq!(text, "expected 3 processes within 1 s, got none of process 1");
    }
    assert!(begin.elapsed() < Duration::from_secs(5));
    // Nobody listens.
    let port = coordinator(1, SOON).port();
    let error = refused(join_all(vec![place(0, 1, port)], |_| "1".into(), SOON).remove(0));
    assert!(
        error.message.contains(&format!("a coordinator at 127.0.0.1:{port} within")),
        "{error}"
    );
}

/// Everything that `encode` makes comes back, and nothing else is a frame.
#[test]
fn frames_are_checked() {
    let text = |n: usize| "é".repeat(n);
    let frames = [
        Frame::Hello {
            rank: 3,
            world: 4,
            version: text(40),
            host: "h".into(),
            token: String::new(),
        },
        Frame::Welcome { segment: "/tessera-1".into(), bytes: u64::MAX },
        Frame::Ready,
        Frame::Go,
        Frame::Beat,
        Frame::Lost { rank: 1, text: text(900) },
        Frame::Refused { text: "no".into() },
        Frame::Bye,
        Frame::Left { rank: 0 },
        Frame::Failed { text: text(3) },
    ];
    let mut random = Random(seed());
    for frame in frames {
        let bytes = frame.encode();
        assert!(bytes.len() <= 4 + MOST);
        let again = Frame::decode(&bytes[4..]).unwrap();
        assert_eq!(again.encode(), bytes);
        // Cut, longer, or with a bit changed: refused, or another frame that is whole.
        assert_eq!(Frame::decode(&bytes[4..bytes.len() - 1]).filter(|_| bytes.len() > 5), None);
        assert_eq!(Frame::decode(&[&bytes[4..], &[0]].concat()), None);
        for _ in 0..200 {
            let mut changed = bytes[4..].to_vec();
            let at = random.below(changed.len());
            changed[at] ^= 1 << random.below(8);
            if let Some(other) = Frame::decode(&changed) {
                assert_eq!(other.encode()[4..], changed);
            }
        }
    }
}

/// A stream of bytes that ends.
struct Bytes(std::io::Cursor<Vec<u8>>);

impl Read for Bytes {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(to)
    }
}

impl Write for Bytes {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        Ok(from.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Random bytes, and frames with random faults.
fn garbage(random: &mut Random) -> Vec<u8> {
    let mut bytes: Vec<u8> = match random.below(3) {
        0 => (0..random.below(600)).map(|_| random.below(256) as u8).collect(),
        1 => {
            let token = if random.below(2) == 0 { "x" } else { TOKEN }.to_string();
            let (version, host) = ("1".into(), "elsewhere".into());
            let hello =
                Frame::Hello { rank: random.below(1 << 20) as u32, world: 2, version, host, token };
            [
                hello.encode(),
                Frame::Beat.encode(),
                Frame::Lost { rank: 9, text: "x".into() }.encode(),
            ]
            .concat()
        }
        _ => [&[255, 255, 255, 127][..], &[0; 64]].concat(),
    };
    if !bytes.is_empty() && random.below(2) == 0 {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
        bytes.truncate(1 + random.below(bytes.len()));
    }
    bytes
}

#[test]
fn garbage_takes_no_memory_and_ends_the_connection() {
    let mut random = Random(seed());
    for _ in 0..2000 {
        let bytes = garbage(&mut random);
        let mut wire = Wire::new(Bytes(std::io::Cursor::new(bytes)));
        // The bytes end, or no frame can be made of them.
        let over = (0..1000).find_map(|_| wire.receive(512).err());
        assert!(matches!(over, Some(Over::Ended | Over::Garbage)));
    }
}

/// More connections than the coordinator keeps say nothing, and the processes join.
#[test]
fn silent_connections_keep_nobody_out() {
    let with = coordinator(1, LATER);
    let silent: Vec<_> =
        (0..200).map(|_| TcpStream::connect(("127.0.0.1", with.port())).unwrap()).collect();
    let joined = join_all(vec![place(0, 1, with.port())], |_| "1".into(), LATER).remove(0);
    assert!(joined.is_ok(), "{:?}", joined.err());
    drop(silent);
}

/// Processes start while others send garbage, and their collectives work.
#[test]
fn processes_join_among_garbage() {
    let mut random = Random(seed());
    let with = coordinator(2, LATER);
    let port = with.port();
    let mut strangers = Vec::new();
    for round in 0..300 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _ = stream.write_all(&garbage(&mut random));
        // Some stay and say nothing more.
        if round % 20 == 0 {
            strangers.push(stream);
        }
    }
    let joined = join_all((0..2).map(|r| place(r, 2, port)).collect(), |_| "1".into(), LATER);
    let sessions: Vec<_> =
        joined.into_iter().map(|j| j.unwrap_or_else(|e| panic!("{e}"))).collect();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let _ = stream.write_all(&garbage(&mut random));
    }
    crate::processes::all_sum(&sessions);
}
