//! Ranks that disagree: always an error with the places, and never a hang.

use crate::script::{Action, Script, call, in_place, line, memory};
use crate::{Random, seed};
use std::sync::Arc;
use tessera_comm::{
    Call, Corruption, Cursor, GroupId, Kind, Local, LocalOptions, Memory, Order, Piece, Request,
    Threads, Transport, run,
};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_numerics::{DType, ReduceOp};

const SUM: Kind = Kind::AllReduce(ReduceOp::Sum);

/// Runs a program for each rank: collectives one after another, each waited for, over buffers of their size.
fn attempt(local: &Local, programs: &[Vec<(GroupId, Call)>], seed: u64) -> Result<(), Diagnostics> {
    let buffer = |(_, call): &(GroupId, Call)| vec![1; call.count() as usize * call.dtype.bytes()];
    let mut buffers: Vec<Vec<Vec<u8>>> =
        programs.iter().map(|p| p.iter().map(buffer).collect()).collect();
    let mut scripts = Vec::new();
    for (program, buffers) in programs.iter().zip(&mut buffers) {
        let mut actions = Vec::new();
        for (i, ((group, call), buffer)) in program.iter().zip(buffers).enumerate() {
            actions.push(Action::Start(Box::new(in_place(*group, call.clone(), buffer))));
            actions.push(Action::Wait(i));
        }
        scripts.push(Script::new(actions));
    }
    let mut cursors: Vec<&mut dyn Cursor> = scripts.iter_mut().map(|s| s as _).collect();
    run(local, &mut cursors, &Threads(2), Order::Random(seed))
}

fn refused(local: &Local, programs: &[Vec<(GroupId, Call)>], seed: u64) -> Diagnostic {
    let errors = attempt(local, programs, seed).expect_err("ranks that disagree");
    let first = errors.iter().next().unwrap().clone();
    assert_eq!(first.code, Code::E_DESYNC, "{}", errors.render());
    assert!(first.help.is_some());
    // Everything after it gives the same error.
    assert_eq!(local.progress().unwrap_err(), first);
    first
}

fn whole(ranks: usize) -> (Local, GroupId) {
    let local = Local::new(ranks, LocalOptions::default());
    let group = local.group(&(0..ranks).collect::<Vec<_>>()).unwrap();
    (local, group)
}

#[test]
fn different_calls_show_both_places() {
    let others = [
        call(Kind::AllReduce(ReduceOp::Max), DType::F32, &[4], 7),
        call(SUM, DType::F32, &[5], 7),
        call(SUM, DType::I32, &[4], 7),
        call(Kind::Broadcast { root: 0 }, DType::F32, &[4], 7),
        call(Kind::Permute([(0, 1)].into()), DType::F32, &[4], 7),
    ];
    for (i, other) in others.into_iter().enumerate() {
        for seed in 0..8 {
            let (local, group) = whole(3);
            let usual = || vec![(group, call(SUM, DType::F32, &[4], 3))];
            let odd = vec![(group, other.clone())];
            let error = refused(&local, &[usual(), odd, usual()], seed);
            let places = [&error.loc, &error.labels[0].loc].map(|l| l.line());
            assert!(places == [3, 7] || places == [7, 3], "{i}: {error}");
            assert!(error.message.contains(&other.to_string()), "{i}: {error}");
            assert!(error.message.contains("all_reduce sum of 4 f32"), "{i}: {error}");
        }
    }
}

#[test]
fn the_text_of_a_disagreement() {
    let (local, group) = whole(2);
    let programs = [
        vec![(group, call(SUM, DType::F32, &[4], 3))],
        vec![(group, call(SUM, DType::F32, &[5], 7))],
    ];
    let mut buffers = [vec![0u8; 16], vec![0u8; 20]];
    let [a, b] = &mut buffers;
    local.start(0, in_place(group, programs[0][0].1.clone(), a)).unwrap();
    let error = local.start(1, in_place(group, programs[1][0].1.clone(), b)).unwrap_err();
    let text = "error[E_DESYNC]: expected all_reduce sum of 4 f32 on rank 1, as rank 0 calls it, got all_reduce sum of 5 f32: collective 0 of their group
  --> program.py:7:1
   7 | y7 = all_reduce(x)
     | ^^^
  --> program.py:3:1
   3 | y3 = all_reduce(x)
     | ^^^ rank 0 calls all_reduce
  = help: every rank of a group must call the same collectives in the same order, with the same dtype and sizes";
    assert_eq!(error.to_string().trim_end(), text);
}

#[test]
fn ranks_that_wait_for_others_are_found_immediately() {
    // Rank 2 has ended; ranks 0 and 1 wait for it.
    let (local, group) = whole(3);
    let sum = |at| (group, call(SUM, DType::F32, &[4], at));
    let error = refused(&local, &[vec![sum(3), sum(4)], vec![sum(3), sum(4)], vec![sum(3)]], 1);
    assert_eq!(error.loc, line(4));
    let notes = error.notes.join("\n");
    assert!(notes.contains("ranks 0, 1: waits in all_reduce sum of 4 f32, collective 1 of its group at program.py:4:1"), "{error}");
    assert!(notes.contains("rank 2: its program has ended"), "{error}");

    // Two groups that share ranks, entered in two orders.
    let local = Local::new(2, LocalOptions::default());
    let (a, b) = (local.group(&[0, 1]).unwrap(), local.group(&[1, 0]).unwrap());
    let in_group = |group, at| (group, call(SUM, DType::F32, &[4], at));
    let programs = [vec![in_group(a, 3), in_group(b, 4)], vec![in_group(b, 8), in_group(a, 9)]];
    let error = refused(&local, &programs, 5);
    let mut lines: Vec<u32> = error.labels.iter().map(|l| l.loc.line()).collect();
    lines.push(error.loc.line());
    lines.sort();
    assert_eq!(lines, [3, 8], "{error}");

    // Of 72 ranks one does something else.
    let local = Local::new(72, LocalOptions::default());
    let (all, one) =
        (local.group(&(0..72).collect::<Vec<_>>()).unwrap(), local.group(&[5]).unwrap());
    let programs: Vec<_> = (0..72)
        .map(|r| if r == 5 { vec![in_group(one, 6)] } else { vec![in_group(all, 3)] })
        .collect();
    let error = refused(&local, &programs, 5);
    assert!(error.notes[0].starts_with("ranks 0 to 4, 6 to 71: waits in"), "{error}");
    assert_eq!(error.notes[1], "rank 5: its program has ended");
}

/// Random programs of which one rank's is changed in one place.
#[test]
fn random_programs_with_one_fault_end_in_an_error() {
    let mut random = Random(seed());
    for round in 0..400 {
        let ranks = 2 + random.below(6);
        let local = Local::new(
            ranks,
            LocalOptions { order: Order::Random(round), ..LocalOptions::default() },
        );
        let group = local.group(&(0..ranks).collect::<Vec<_>>()).unwrap();
        let steps = 1 + random.below(5);
        let program: Vec<(GroupId, Call)> = (0..steps)
            .map(|i| {
                let kind = random.pick(&[
                    SUM,
                    Kind::AllReduce(ReduceOp::Max),
                    Kind::Broadcast { root: 1 },
                ]);
                let dtype = random.pick(&[DType::F32, DType::I64]);
                (group, call(kind, dtype, &[1 + random.below(3) as u64], 1 + i as u32))
            })
            .collect();
        let mut programs = vec![program; ranks];
        assert!(attempt(&local, &programs, round).is_ok());
        let (rank, at) = (random.below(ranks), random.below(steps));
        let odd = &mut programs[rank];
        match random.below(6) {
            0 => odd[at].1.kind = Kind::AllReduce(ReduceOp::Min),
            1 => odd[at].1.counts[0] += 1,
            2 => odd[at].1.dtype = DType::F64,
            3 => drop(odd.remove(at)),
            4 => {
                odd.insert(at, (group, call(Kind::AllReduce(ReduceOp::Prod), DType::F32, &[1], 20)))
            }
            _ => odd[at].1.kind = Kind::Broadcast { root: 0 },
        }
        refused(&local, &programs, round);
    }
}

#[test]
fn damaged_messages_are_found() {
    let kinds: [(Kind, &[u64]); 6] = [
        (SUM, &[40]),
        (Kind::ReduceScatter(ReduceOp::Max), &[20, 20]),
        (Kind::AllGather, &[40, 40]),
        (Kind::AllToAll, &[20, 20]),
        (Kind::Broadcast { root: 1 }, &[40]),
        (Kind::Permute([(1, 0)].into()), &[40]),
    ];
    for (kind, counts) in kinds {
        for at in 0..2 {
            let corruption = Some(Corruption { rank: 1, at });
            let local =
                Local::new(2, LocalOptions { part: 32, corruption, ..LocalOptions::default() });
            let group = local.group(&[0, 1]).unwrap();
            let name = kind.name();
            let mut buffers = vec![(vec![1u8; 160], vec![0u8; 320]); 2];
            let mut scripts = Vec::new();
            for (i, (from, to)) in buffers.iter_mut().enumerate() {
                let (half, whole) = (
                    |i: usize| Piece::contiguous(80 * i, 80),
                    |i: usize| Piece::contiguous(160 * i, 160),
                );
                let (send, receive) = match &kind {
                    Kind::ReduceScatter(_) => (vec![half(0), half(1)], vec![half(0)]),
                    Kind::AllGather => (vec![whole(0)], vec![whole(0), whole(1)]),
                    Kind::AllToAll => (vec![half(0), half(1)], vec![half(0), half(1)]),
                    _ => (vec![whole(0)], vec![whole(0)]),
                };
                let one = |line| Request {
                    group,
                    call: call(kind.clone(), DType::F32, counts, line).into(),
                    from: memory(from),
                    send: send.clone().into(),
                    to: memory(to),
                    receive: receive.clone().into(),
                };
                let mut one = one;
                let actions = vec![
                    Action::Start(Box::new(one(3))),
                    Action::Wait(0),
                    Action::Start(Box::new(one(4 + i as u32))),
                    Action::Wait(1),
                ];
                scripts.push(Script::new(actions));
            }
            let mut cursors: Vec<&mut dyn Cursor> = scripts.iter_mut().map(|s| s as _).collect();
            let errors = run(&local, &mut cursors, &Threads(2), Order::First)
                .expect_err("a damaged message");
            let error = errors.iter().next().unwrap();
            assert_eq!(error.code, Code::E_DESYNC);
            assert!(error.message.ends_with(&format!("checksum of rank 1's {name}")), "{error}");
            assert_eq!(error.loc.line(), if at == 0 { 3 } else { 5 }, "{error}");
        }
    }
}

#[test]
fn blocks_that_do_not_fit_each_other() {
    let (local, group) = whole(2);
    let mut buffers = [vec![0u8; 64], vec![0u8; 64]];
    let mut start = |rank: usize, send: [usize; 2], receive: [usize; 2]| {
        let piece = |n: &usize| Piece::contiguous(0, 4 * n);
        let counts: Vec<u64> = send.iter().map(|n| *n as u64).collect();
        let request = Request {
            group,
            call: call(Kind::AllToAll, DType::I32, &counts, 3 + rank as u32).into(),
            from: memory(&mut buffers[rank]),
            send: send.iter().map(piece).collect(),
            to: memory(&mut buffers[rank]),
            receive: receive.iter().map(piece).collect(),
        };
        local.start(rank, request)
    };
    start(0, [1, 2], [1, 3]).unwrap();
    let error = start(1, [4, 1], [2, 1]).unwrap_err();
    assert_eq!(error.message, "expected 3 i32 from rank 1 in the all_to_all of rank 0, got 4");
    assert_eq!((error.code, error.loc.line()), (Code::E_DESYNC, 3));
}

/// What only a faulty caller could give is refused before anything runs.
#[test]
fn requests_are_checked() {
    let (local, group) = whole(2);
    let good = |buffer: &mut Vec<u8>| in_place(group, call(SUM, DType::F32, &[4], 3), buffer);
    let refused = |change: &dyn Fn(&mut Request)| {
        let mut buffer = vec![0u8; 16];
        let mut request = good(&mut buffer);
        change(&mut request);
        local.start(0, request).unwrap_err()
    };
    let changes: [&dyn Fn(&mut Request); 7] = [
        &|r| r.send = [].into(),
        &|r| Arc::make_mut(&mut r.receive)[0].offset = 1,
        &|r| Arc::make_mut(&mut r.receive)[0].len = 12,
        &|r| Arc::make_mut(&mut r.call).counts.push(4),
        &|r| Arc::make_mut(&mut r.call).kind = Kind::Broadcast { root: 2 },
        &|r| Arc::make_mut(&mut r.call).kind = Kind::Permute([(0, 1), (0, 0)].into()),
        &|r| r.group = GroupId(9),
    ];
    for change in changes {
        assert_eq!(refused(change).code, Code::E_ARGUMENT);
    }
    let device = tessera_target::Queue::default();
    // SAFETY: nothing is read: it is refused.
    let on_device = unsafe { Memory::device(std::ptr::null_mut(), 16, device) };
    assert_eq!(refused(&|r| r.to = on_device).code, Code::E_UNSUPPORTED);
    assert!(
        local.group(&[]).is_err() && local.group(&[0, 0]).is_err() && local.group(&[2]).is_err()
    );
    // None of that counts as a collective.
    let mut buffers = [vec![1u8; 16], vec![1u8; 16]];
    let tokens: Vec<_> =
        buffers.iter_mut().enumerate().map(|(r, b)| local.start(r, good(b)).unwrap()).collect();
    assert_eq!(tokens[0].sequence, 0);
    while local.progress().unwrap() != tessera_comm::Progress::Nothing {}
    assert!(tokens.iter().all(|t| local.test(*t).unwrap()));
    // Contributions of a dtype that is not combined.
    let narrow = |b: &mut Vec<u8>| in_place(group, call(SUM, DType::BF16, &[8], 3), b);
    let tokens: Vec<_> =
        buffers.iter_mut().enumerate().map(|(r, b)| local.start(r, narrow(b))).collect();
    assert!(tokens.iter().all(Result::is_ok));
    assert_eq!(local.progress().unwrap_err().code, Code::E_TYPE);
}

#[test]
fn an_abort_ends_what_waits() {
    let (local, group) = whole(2);
    let mut buffer = vec![0u8; 16];
    let token =
        local.start(0, in_place(group, call(SUM, DType::F32, &[4], 3), &mut buffer)).unwrap();
    assert!(!local.test(token).unwrap());
    let why = Diagnostic::new(Code::E_DESYNC, "the other program failed");
    local.abort(&why);
    local.abort(&Diagnostic::new(Code::E_DESYNC, "later"));
    assert_eq!(local.test(token).unwrap_err(), why);
    assert_eq!(local.progress().unwrap_err(), why);
    assert_eq!(
        local.start(1, in_place(group, call(SUM, DType::F32, &[4], 3), &mut buffer)).unwrap_err(),
        why
    );
}

/// An error of one rank's program ends all.
#[test]
fn an_error_of_a_program_is_the_error_of_the_run() {
    struct Fails;
    impl Cursor for Fails {
        fn step(&mut self) -> Result<tessera_comm::Step, Diagnostics> {
            Err(Diagnostic::new(Code::E_DIV_ZERO, "a kernel of rank 1").at(line(9)).into())
        }
    }
    for seed in 0..4 {
        let (local, group) = whole(2);
        let mut buffer = vec![0u8; 16];
        let request = in_place(group, call(SUM, DType::F32, &[4], 3), &mut buffer);
        let mut script = Script::new(vec![Action::Start(Box::new(request)), Action::Wait(0)]);
        let mut cursors: [&mut dyn Cursor; 2] = [&mut script, &mut Fails];
        let errors = run(&local, &mut cursors, &Threads(2), Order::Random(seed)).unwrap_err();
        assert_eq!(errors.iter().next().unwrap().code, Code::E_DIV_ZERO);
    }
}
