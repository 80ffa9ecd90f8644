//! Several processes: the programs of `collectives.rs` between real ones, and between sessions on threads each way in which one goes wrong.

use crate::collectives::{play, rounds};
use crate::control::{TOKEN, coordinator, place};
use crate::script::{Action, Script, call, in_place, line};
use crate::{Random, seed};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tessera_comm::control::Place;
use tessera_comm::socket::{Fault, Options, played};
use tessera_comm::{
    Call, Cursor, GroupId, Kind, Order, Session, Socket, Threads, Transport, Waiting, run,
};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_numerics::{DType, ReduceOp, canonical_reduce};

const SUM: Kind = Kind::AllReduce(ReduceOp::Sum);
const LATER: Duration = Duration::from_secs(20);

/// Runs programs of one collective after another, each waited for, over buffers of their size: of the ranks of this process.
fn attempt(
    socket: &Socket,
    programs: &[Vec<Call>],
    fill: impl Fn(usize) -> u8,
) -> Result<Vec<Vec<Vec<u8>>>, Diagnostics> {
    let all: Vec<usize> = (0..socket.ranks()).collect();
    let group = socket.group(&all)?;
    let mut buffers: Vec<Vec<Vec<u8>>> = socket
        .here()
        .map(|rank| {
            let size = |call: &Call| call.count() as usize * call.dtype.bytes();
            programs[rank].iter().map(|call| vec![fill(rank); size(call)]).collect()
        })
        .collect();
    let mut scripts = Vec::new();
    for (rank, buffers) in socket.here().zip(&mut buffers) {
        let mut actions = Vec::new();
        for (i, (call, buffer)) in programs[rank].iter().zip(buffers).enumerate() {
            actions.push(Action::Start(Box::new(in_place(group, call.clone(), buffer))));
            actions.push(Action::Wait(i));
        }
        scripts.push(Script::new(actions));
    }
    let mut cursors: Vec<&mut dyn Cursor> = scripts.iter_mut().map(|s| s as _).collect();
    run(socket, &mut cursors, &Threads(1), Order::First)?;
    Ok(buffers)
}

/// Sessions on threads: what each finds.
fn together<T: Send + 'static>(
    world: usize,
    options: impl Fn(usize) -> Options,
    work: impl Fn(Arc<Session>) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let with = coordinator(world, LATER);
    let port = with.port();
    let work = Arc::new(work);
    let threads: Vec<_> = (0..world)
        .map(|rank| {
            let (options, work) = (options(rank), work.clone());
            thread::spawn(move || {
                let joined = Session::join(&place(rank, world, port), "1", LATER, options);
                work(joined.unwrap_or_else(|e| panic!("{e}")))
            })
        })
        .collect();
    threads.into_iter().map(|t| t.join().unwrap()).collect()
}

fn usual(_: usize) -> Options {
    Options::default()
}

fn within(limit: Duration) -> impl Fn(usize) -> Options {
    move |_| Options { limit, ..Options::default() }
}

/// One sum over all.
pub fn all_sum(sessions: &[Arc<Session>]) {
    let ranks = sessions.len();
    thread::scope(|scope| {
        for session in sessions {
            scope.spawn(|| {
                let socket = Socket::new(session.clone(), ranks);
                let programs = vec![vec![call(SUM, DType::U8, &[3], 1)]; ranks];
                let found = attempt(&socket, &programs, |rank| rank as u8 + 1).unwrap();
                let wanted = (1..=ranks).sum::<usize>() as u8;
                assert_eq!(found, [[[wanted; 3]]]);
            });
        }
    });
}

#[test]
fn neighbouring_ranks_are_played_together() {
    let all = |n, world| (0..world).map(|p| played(n, world, p)).collect::<Vec<_>>();
    assert_eq!(all(4, 2), [0..2, 2..4]);
    assert_eq!(all(5, 2), [0..3, 3..5]);
    assert_eq!(all(1, 3), [0..1, 1..1, 1..1]);
    assert_eq!(all(72, 4), [0..18, 18..36, 36..54, 54..72]);
}

/// The processes of a test that starts itself again.
fn start(world: usize, port: u16, work: &str, more: &[(&str, &str)]) -> Vec<Child> {
    let one = |rank: usize| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["processes::child", "--exact", "--nocapture"]).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", world.to_string());
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
        command.env("TESSERA_TOKEN", TOKEN).env("TESSERA_COORDINATOR", "launcher");
        command.env("TESSERA_TEST_WORK", work).env("TESSERA_FUZZ_SEED", seed().to_string());
        command.envs(more.iter().copied()).spawn().unwrap()
    };
    (0..world).map(one).collect()
}

/// Status and output of each process; those that take longer than a minute are ended.
fn ends(children: Vec<Child>) -> Vec<(Option<i32>, String)> {
    let until = Instant::now() + Duration::from_secs(60);
    let end = |mut child: Child| {
        while child.try_wait().unwrap().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let found = child.wait_with_output().unwrap();
        let text = [found.stdout, found.stderr].concat();
        (found.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    children.into_iter().map(end).collect()
}

/// What a process does that another test has started; nothing of itself.
#[test]
fn child() {
    let Ok(work) = std::env::var("TESSERA_TEST_WORK") else { return };
    let place = Place::read(|name| std::env::var(name).ok()).unwrap().unwrap();
    let fault = std::env::var("TESSERA_FAULT").ok().map(|f| Fault::parse(&f).unwrap());
    let options = Options { fault, ..Options::default() };
    let session = Session::join(&place, "1", LATER, options).unwrap_or_else(|e| panic!("{e}"));
    match &*work {
        "programs" => {
            let first = seed() << 20;
            for seed in (0..60).chain(first..first + 60) {
                let mut random = Random(seed);
                let (ranks, rounds) = rounds(&mut random);
                // Which ranks wait when is each process' own.
                random.0 ^= place.rank as u64;
                play(&Socket::new(session.clone(), ranks), &rounds, &mut random, seed);
            }
        }
        "sums" => {
            let socket = Socket::new(session.clone(), place.world);
            let programs = vec![vec![call(SUM, DType::F32, &[1000], 3); 200]; place.world];
            let began = Instant::now();
            let error = attempt(&socket, &programs, |_| 1).unwrap_err();
            println!("ended after {} ms: {}", began.elapsed().as_millis(), error.render());
        }
        other => panic!("no work is called {other}"),
    }
    session.leave();
}

#[test]
fn random_programs_between_processes() {
    for world in [2, 3] {
        let with = coordinator(world, LATER);
        for (rank, (status, text)) in
            ends(start(world, with.port(), "programs", &[])).into_iter().enumerate()
        {
            assert_eq!(status, Some(0), "process {rank} of {world}: {text}");
        }
    }
}

#[test]
fn a_killed_process_is_an_error_of_all_others() {
    for fault in ["rank=1,at=7,do=kill", "rank=0,at=0,do=kill"] {
        let with = coordinator(3, LATER);
        let began = Instant::now();
        let found = ends(start(3, with.port(), "sums", &[("TESSERA_FAULT", fault)]));
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        let killed: usize = fault[5..6].parse().unwrap();
        for (rank, (status, text)) in found.into_iter().enumerate() {
            if rank == killed {
                assert_eq!(status, None, "{text}");
                continue;
            }
            let wanted = format!("E_RANK_LOST]: expected process {killed} to go on, got its end");
            assert!(status == Some(0) && text.contains(&wanted), "process {rank}: {text}");
        }
    }
}

/// A process that is stopped says nothing any more, and its connection stays.
#[test]
fn a_stopped_process_is_an_error_of_all_others() {
    let options = |rank: usize| {
        let fault = Fault::parse("rank=1,at=2,do=stop,seconds=9.5").unwrap();
        Options { fault: (rank == 1).then_some(fault), ..Options::default() }
    };
    let began = Instant::now();
    let found = together(3, options, move |session| {
        let socket = Socket::new(session.clone(), 3);
        let programs = vec![vec![call(SUM, DType::F32, &[4], 3); 9]; 3];
        let error = first(attempt(&socket, &programs, |_| 1));
        (session.rank(), began.elapsed(), error)
    });
    for (rank, after, error) in found {
        assert_eq!(error.code, Code::E_RANK_LOST, "{error}");
        assert!(error.message.starts_with("expected process 1 to "), "{error}");
        assert!(rank == 1 || after < Duration::from_secs(10), "process {rank} after {after:?}");
    }
}

/// Messages that are longer than the channels, with several ranks in each process.
#[test]
fn long_messages_go_in_parts() {
    for world in [2, 3] {
        together(world, usual, move |session| {
            let ranks = 2 * world;
            let socket = Socket::new(session, ranks);
            let n = 1_300_001;
            let program = vec![
                call(Kind::Broadcast { root: 1 }, DType::I32, &[n], 1),
                call(SUM, DType::I32, &[n], 2),
                call(Kind::Broadcast { root: 0 }, DType::U8, &[1], 3),
            ];
            let found = attempt(&socket, &vec![program; ranks], |rank| rank as u8).unwrap();
            for buffers in &found {
                assert!(buffers[0].iter().all(|b| *b == 1));
                let sum = (0..ranks as i32).map(|r| i32::from_ne_bytes([r as u8; 4])).sum::<i32>();
                assert!(
                    buffers[1].as_chunks::<4>().0.iter().all(|b| i32::from_ne_bytes(*b) == sum)
                );
            }
        });
    }
}

/// One process is far ahead: what comes early is kept, and others pass it.
#[test]
fn a_process_may_be_ahead() {
    together(2, usual, |session| {
        let socket = Socket::new(session.clone(), 2);
        let program: Vec<Call> = (0..300)
            .map(|i| call(Kind::Broadcast { root: 0 }, DType::U8, &[1 + 997 * (i % 100)], 1))
            .collect();
        if session.rank() == 1 {
            thread::sleep(Duration::from_millis(100));
        }
        let found = attempt(&socket, &vec![program; 2], |rank| rank as u8 + 7).unwrap();
        assert!(found[0].iter().flatten().all(|b| *b == 7));
    });
}

#[test]
fn sums_between_processes_are_canonical() {
    let mut random = Random(seed());
    let value = |random: &mut Random| {
        random.below(1 << 24) as f32 * 1e-7 * 10f32.powi(random.below(9) as i32)
    };
    for (n, world) in [(2, 2), (7, 3), (9, 2)] {
        let given: Vec<Vec<f32>> =
            (0..n).map(|_| (0..33).map(|_| value(&mut random)).collect()).collect();
        let wanted: Vec<u32> = (0..33)
            .map(|i| canonical_reduce(ReduceOp::Sum, given.iter().map(|v| v[i])).unwrap().to_bits())
            .collect();
        together(world, usual, move |session| {
            let socket = Socket::new(session, n);
            let group = socket.group(&(0..n).collect::<Vec<_>>()).unwrap();
            let mut buffers: Vec<Vec<u8>> = given[socket.here()]
                .iter()
                .map(|v| v.iter().flat_map(|x| x.to_ne_bytes()).collect())
                .collect();
            let sum = |b: &mut Vec<u8>| {
                let sum = in_place(group, call(SUM, DType::F32, &[33], 1), b);
                Script::new(vec![Action::Start(Box::new(sum)), Action::Wait(0)])
            };
            let mut scripts: Vec<Script> = buffers.iter_mut().map(sum).collect();
            let mut cursors: Vec<&mut dyn Cursor> = scripts.iter_mut().map(|s| s as _).collect();
            run(&socket, &mut cursors, &Threads(2), Order::First).unwrap();
            for buffer in &buffers {
                let found: Vec<u32> =
                    buffer.as_chunks::<4>().0.iter().map(|b| u32::from_ne_bytes(*b)).collect();
                assert_eq!(found, wanted);
            }
        });
    }
}

fn first(errors: Result<Vec<Vec<Vec<u8>>>, Diagnostics>) -> Diagnostic {
    let errors = errors.map(drop).expect_err("an error");
    let error = errors.iter().next().unwrap().clone();
    assert!(error.help.is_some(), "{error}");
    error
}

#[test]
fn processes_that_call_different_collectives_show_both_places() {
    let others = [
        call(Kind::AllReduce(ReduceOp::Max), DType::F32, &[4], 7),
        call(SUM, DType::F32, &[5], 7),
        call(SUM, DType::I32, &[4], 7),
        call(Kind::Broadcast { root: 0 }, DType::F32, &[4], 7),
    ];
    for other in others {
        let odd = other.clone();
        let found = together(3, usual, move |session| {
            let socket = Socket::new(session, 3);
            let mut programs = vec![vec![call(SUM, DType::F32, &[4], 3)]; 3];
            programs[1][0] = odd.clone();
            first(attempt(&socket, &programs, |_| 1))
        });
        // Who has seen both calls has the places; the others get its text.
        let shown = other.to_string();
        assert!(found.iter().any(|e| e.message.contains(&shown)), "{shown}: {}", found[0]);
        for error in &found {
            assert_eq!(error.code, Code::E_DESYNC, "{error}");
            assert!(error.message.contains("collective 0 of their group"), "{error}");
        }
        let seen: Vec<&Diagnostic> = found.iter().filter(|e| e.loc.is_known()).collect();
        assert!(!seen.is_empty());
        for error in seen {
            let lines = [error.loc.line().to_string(), error.notes[0].clone()];
            assert!(
                lines[0] == "3" && lines[1].ends_with("program.py:7:1")
                    || lines[0] == "7" && lines[1].ends_with("program.py:3:1"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_damaged_message_is_an_error_of_all() {
    for at in [0, 3] {
        let options = move |rank: usize| {
            let fault = Fault::parse(&format!("rank={rank},at={at},do=corrupt")).unwrap();
            Options { fault: (rank == 1).then_some(fault), ..Options::default() }
        };
        let found = together(2, options, |session| {
            let socket = Socket::new(session, 2);
            let mut program = vec![call(Kind::Broadcast { root: 1 }, DType::F32, &[400], 3); 5];
            program.push(call(SUM, DType::F32, &[4], 4));
            let programs = vec![program; 2];
            first(attempt(&socket, &programs, |_| 1))
        });
        for error in found {
            assert_eq!(error.code, Code::E_DESYNC);
            assert!(error.message.ends_with("checksum of rank 1's broadcast"), "{error}");
        }
    }
}

#[test]
fn who_hangs_is_named_with_what_it_does() {
    let limit = Duration::from_millis(1500);
    let found = together(3, within(limit), move |session| {
        let me = session.rank();
        let socket = Socket::new(session, 3);
        let mut programs =
            vec![vec![call(SUM, DType::F32, &[4], 3), call(SUM, DType::F32, &[4], 4)]; 3];
        programs[2].pop();
        let done = attempt(&socket, &programs, |_| 1);
        if me == 2 {
            assert!(done.is_ok());
            thread::sleep(2 * limit);
            return None;
        }
        Some(first(done))
    });
    for error in found.into_iter().flatten() {
        assert_eq!(error.code, Code::E_TIMEOUT_COMM, "{error}");
        assert!(
            error.message.starts_with("expected process 2 in all_reduce within 2 s"),
            "{error}"
        );
        if error.loc.is_known() && error.notes.iter().any(|n| n.starts_with("process 2")) {
            assert_eq!(error.loc, line(4));
            assert!(error.notes[0].contains("program.py:3"), "{error}");
        }
    }
}

#[test]
fn a_process_that_ends_is_missed_immediately() {
    let began = Instant::now();
    let found = together(2, usual, |session| {
        let socket = Socket::new(session.clone(), 2);
        if session.rank() == 1 {
            session.leave();
            return None;
        }
        Some(first(attempt(&socket, &vec![vec![call(SUM, DType::F32, &[4], 3)]; 2], |_| 1)))
    });
    let error = found[0].as_ref().unwrap();
    assert_eq!(error.code, Code::E_RANK_LOST);
    assert_eq!(error.message, "expected process 1 in all_reduce, got the end of its program");
    assert!(began.elapsed() < Duration::from_secs(8));
}

/// An error of one rank's program ends all processes; so do ranks of one process that wait for each other.
#[test]
fn errors_reach_all_processes() {
    let found = together(2, usual, |session| {
        let socket = Socket::new(session.clone(), 4);
        let mut programs = vec![vec![call(SUM, DType::F32, &[4], 3); 2]; 4];
        if session.rank() == 1 {
            programs[3].pop();
        }
        first(attempt(&socket, &programs, |_| 1))
    });
    for error in found {
        assert_eq!(error.code, Code::E_DESYNC, "{error}");
        assert!(error.message.contains("none can go on"), "{error}");
    }
    struct Fails;
    impl Cursor for Fails {
        fn step(&mut self) -> Result<tessera_comm::Step, Diagnostics> {
            Err(Diagnostic::new(Code::E_DIV_ZERO, "a kernel").at(line(9)).into())
        }
    }
    let found = together(2, usual, |session| {
        let socket = Socket::new(session.clone(), 2);
        if session.rank() == 1 {
            return run(&socket, &mut [&mut Fails], &Threads(1), Order::First)
                .unwrap_err()
                .iter()
                .next()
                .unwrap()
                .clone();
        }
        first(attempt(&socket, &vec![vec![call(SUM, DType::F32, &[4], 3)]; 2], |_| 1))
    });
    assert_eq!((found[0].code, found[1].code), (Code::E_RANK_LOST, Code::E_DIV_ZERO));
    assert!(found[0].message.ends_with("E_DIV_ZERO: a kernel"), "{}", found[0]);
}

#[test]
fn requests_of_sessions_are_checked() {
    together(1, usual, |session| {
        let socket = Socket::new(session.clone(), 2);
        assert_eq!(socket.here(), 0..2);
        for wrong in [vec![], vec![0, 0], vec![2]] {
            assert_eq!(socket.group(&wrong).unwrap_err().code, Code::E_ARGUMENT);
        }
        let mut buffer = vec![0; 16];
        let group = socket.group(&[0, 1]).unwrap();
        assert_eq!(socket.group(&[0, 1]).unwrap(), group);
        let mut start = |group, kind| {
            let request = in_place(group, call(kind, DType::F32, &[4], 3), &mut buffer);
            socket.start(0, request).unwrap_err()
        };
        assert_eq!(start(GroupId(9), Kind::Broadcast { root: 0 }).code, Code::E_ARGUMENT);
        assert_eq!(start(group, Kind::Broadcast { root: 2 }).code, Code::E_ARGUMENT);
        assert_eq!(start(group, SUM).code, Code::E_ARGUMENT);
        // No rank waits for what others send.
        let waiting = [Waiting::Ended { rank: 0 }, Waiting::Ended { rank: 1 }];
        assert_eq!(socket.idle(&waiting).unwrap_err().code, Code::E_DESYNC);
        session.leave();
        assert_eq!(socket.progress().unwrap_err().code, Code::E_DESYNC);
    });
}

/// The names of segments are gone when the processes run.
#[test]
fn nothing_is_left_in_shared_memory() {
    let mine = || {
        let begin = format!("tessera-{}-", std::process::id());
        let all = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        all.filter(|f| f.file_name().to_string_lossy().starts_with(&begin)).count()
    };
    together(2, usual, |_| ());
    // Other tests may just start theirs.
    let gone = (0..200).any(|_| {
        thread::sleep(Duration::from_millis(10));
        mine() == 0
    });
    assert!(gone);
}
