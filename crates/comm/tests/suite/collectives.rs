//! Random programs of ranks, with random interleavings of ranks and parts, against brute force over elements.

use crate::script::{Action, Script, call, in_place, memory};
use crate::{Random, seed};
use std::ops::Range;
use std::sync::Arc;
use tessera_comm::{
    Call, Cursor, GroupId, Kind, Local, LocalOptions, Order, Piece, Progress, Request, Threads,
    Token, Transport, Waiting, run,
};
use tessera_diag::Diagnostic;
use tessera_numerics::{DType, ReduceOp, canonical_reduce};

const DTYPES: [DType; 11] = [
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F32,
    DType::F64,
];

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

/// A number as an element: of floats a small whole number other than 0, so that combinations are exact in every order.
fn element(dtype: DType, v: i64) -> Vec<u8> {
    let small = [-2, -1, 1, 2][v.rem_euclid(4) as usize];
    match dtype {
        DType::Bool => vec![(v & 1) as u8],
        DType::F32 => (small as f32).to_ne_bytes().to_vec(),
        DType::F64 => (small as f64).to_ne_bytes().to_vec(),
        _ => v.to_le_bytes()[..dtype.bytes()].to_vec(),
    }
}

fn number(dtype: DType, bytes: &[u8]) -> i128 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let (word, shift) = (u64::from_le_bytes(wide), 64 - 8 * bytes.len() as u32);
    match dtype {
        DType::F32 => f32::from_ne_bytes(bytes.try_into().unwrap()) as i128,
        DType::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()) as i128,
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            i128::from((word << shift) as i64 >> shift)
        }
        _ => i128::from(word),
    }
}

/// Elements combined as whole numbers, then wrapped.
fn combined(op: ReduceOp, dtype: DType, all: &[&[u8]]) -> Vec<u8> {
    let each = all.iter().map(|b| number(dtype, b));
    let join = |a: i128, b: i128| match op {
        ReduceOp::Sum => a.wrapping_add(b),
        ReduceOp::Prod => a.wrapping_mul(b),
        ReduceOp::Max => a.max(b),
        ReduceOp::Min => a.min(b),
        ReduceOp::And => a & b,
        ReduceOp::Or => a | b,
        ReduceOp::Xor => a ^ b,
    };
    let v = each.reduce(join).unwrap();
    match dtype {
        // Any, or all.
        DType::Bool => vec![(v != 0) as u8],
        DType::F32 => (v as f32).to_ne_bytes().to_vec(),
        DType::F64 => (v as f64).to_ne_bytes().to_vec(),
        _ => v.to_le_bytes()[..dtype.bytes()].to_vec(),
    }
}

/// An array of rows × middle × columns, element by element.
#[derive(Clone)]
struct Array {
    dims: [usize; 3],
    data: Vec<Vec<u8>>,
}

impl Array {
    fn bytes(&self) -> Vec<u8> {
        self.data.concat()
    }

    fn at(&self, i: usize, j: usize, k: usize) -> &Vec<u8> {
        &self.data[(i * self.dims[1] + j) * self.dims[2] + k]
    }

    fn make(dims: [usize; 3], f: impl Fn(usize, usize, usize) -> Vec<u8>) -> Self {
        let [a, b, c] = dims;
        let places = (0..a).flat_map(|i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k))));
        Self { dims, data: places.map(|(i, j, k)| f(i, j, k)).collect() }
    }

    fn middle(&self, from: usize, count: usize) -> Self {
        let [a, _, c] = self.dims;
        Self::make([a, count, c], |i, j, k| self.at(i, from + j, k).clone())
    }

    fn joined(parts: &[Self]) -> Self {
        let [a, _, c] = parts[0].dims;
        let each = parts.iter().flat_map(|p| (0..p.dims[1]).map(move |j| (p, j)));
        let columns: Vec<(&Self, usize)> = each.collect();
        Self::make([a, columns.len(), c], |i, j, k| columns[j].0.at(i, columns[j].1, k).clone())
    }
}

/// One collective on all its groups: what each rank gives, and what it must get.
pub struct Round {
    kind: Kind,
    dtype: DType,
    groups: Vec<Vec<usize>>,
    counts: Vec<Vec<u64>>,
    given: Vec<Array>,
    wanted: Vec<Array>,
}

fn starts(counts: &[u64]) -> Vec<usize> {
    let all = counts.iter().scan(0, |at, n| {
        let here = *at;
        *at += *n as usize;
        Some(here)
    });
    all.collect()
}

/// The groups of ranks along some axes of a mesh.
fn groups(random: &mut Random, extents: &[usize]) -> Vec<Vec<usize>> {
    let chosen: Vec<bool> = extents.iter().map(|_| random.below(2) == 0).collect();
    let ranks: usize = extents.iter().product();
    let coords = |rank: usize| -> Vec<usize> {
        let mut rest = rank;
        let mut out: Vec<usize> = extents.iter().rev().map(|e| (rest % e, rest /= e).0).collect();
        out.reverse();
        out
    };
    let mut all: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for rank in 0..ranks {
        let at = coords(rank);
        let others = at.iter().zip(&chosen).filter(|(_, c)| !**c).map(|(x, _)| *x).collect();
        match all.iter_mut().find(|(known, _)| *known == others) {
            Some((_, members)) => members.push(rank),
            None => all.push((others, vec![rank])),
        }
    }
    all.into_iter().map(|(_, members)| members).collect()
}

fn round(random: &mut Random, extents: &[usize]) -> Round {
    let ranks: usize = extents.iter().product();
    let groups = groups(random, extents);
    let n = groups[0].len();
    let dtype = random.pick(&DTYPES);
    let ops = if is_float(dtype) { &ReduceOp::ALL[..4] } else { ReduceOp::ALL };
    let op = random.pick(ops);
    let kind = match random.below(7) {
        0 => Kind::AllReduce(op),
        1 => Kind::ReduceScatter(op),
        2 => Kind::AllGather,
        3 => Kind::AllToAll,
        4 => Kind::Broadcast { root: random.below(n) },
        5 => {
            let shift = random.below(n);
            let some = (0..n).filter(|_| random.below(3) > 0);
            Kind::Permute(some.map(|s| (s, (s + shift) % n)).collect::<Vec<_>>().into())
        }
        _ => Kind::Barrier,
    };
    let [a, c] = [1 + random.below(3), random.below(4)];
    // Blocks of the members; of all_to_all, what each sends to each.
    let mut table = |rows: usize| -> Vec<Vec<u64>> {
        (0..rows).map(|_| (0..n).map(|_| random.below(4) as u64).collect()).collect()
    };
    let counts = table(n);
    let mut made = Round {
        given: vec![Array::make([0, 0, 0], |_, _, _| Vec::new()); ranks],
        wanted: vec![Array::make([0, 0, 0], |_, _, _| Vec::new()); ranks],
        counts: vec![Vec::new(); ranks],
        kind,
        dtype,
        groups,
    };
    for members in made.groups.clone() {
        let held = |m: usize| -> u64 {
            match &made.kind {
                Kind::ReduceScatter(_) => counts[0].iter().sum(),
                Kind::AllGather => counts[0][m],
                Kind::AllToAll => counts[m].iter().sum(),
                Kind::AllReduce(_) | Kind::Broadcast { .. } | Kind::Permute(_) => counts[0][0],
                Kind::Barrier => 0,
            }
        };
        let sizes: Vec<usize> = (0..n).map(|m| held(m) as usize).collect();
        let given: Vec<Array> = sizes
            .iter()
            .map(|&b| {
                let base = random.below(1 << 30) as i64;
                Array::make([a, b, c], |i, j, k| {
                    let mixed =
                        (base + ((i * 7 + j) * 11 + k) as i64).wrapping_mul(0x5851_f42d_4c95_7f2d);
                    element(dtype, mixed >> 17)
                })
            })
            .collect();
        let all = |op: ReduceOp| {
            Array::make(given[0].dims, |i, j, k| {
                let each: Vec<&[u8]> = given.iter().map(|x| x.at(i, j, k).as_slice()).collect();
                combined(op, dtype, &each)
            })
        };
        for (m, &rank) in members.iter().enumerate() {
            let item = (a * c) as u64;
            let scaled = |row: &[u64]| row.iter().map(|n| n * item).collect::<Vec<u64>>();
            made.given[rank] = given[m].clone();
            (made.wanted[rank], made.counts[rank]) = match &made.kind {
                Kind::AllReduce(op) => (all(*op), scaled(&counts[0][..1])),
                Kind::ReduceScatter(op) => {
                    let from = starts(&counts[0])[m];
                    (all(*op).middle(from, counts[0][m] as usize), scaled(&counts[0]))
                }
                Kind::AllGather => (Array::joined(&given), scaled(&counts[0])),
                Kind::AllToAll => {
                    let parts: Vec<Array> = (0..n)
                        .map(|s| given[s].middle(starts(&counts[s])[m], counts[s][m] as usize))
                        .collect();
                    (Array::joined(&parts), scaled(&counts[m]))
                }
                Kind::Broadcast { root } => (given[*root].clone(), scaled(&counts[0][..1])),
                Kind::Permute(pairs) => {
                    let zero = Array::make(given[m].dims, |_, _, _| vec![0; dtype.bytes()]);
                    let source =
                        pairs.iter().find(|(_, t)| *t == m).map(|(s, _)| given[*s].clone());
                    (source.unwrap_or(zero), scaled(&counts[0][..1]))
                }
                Kind::Barrier => (given[m].clone(), Vec::new()),
            };
        }
    }
    made
}

impl Round {
    /// The middle extents of the pieces that a rank sends and receives.
    fn pieces(&self, rank: usize, members: &[usize], m: usize) -> (Vec<Piece>, Vec<Piece>) {
        let item = self.dtype.bytes();
        let per = (self.given[rank].dims[0] * self.given[rank].dims[2]).max(1) as u64;
        let along = |x: &Array, sizes: Vec<u64>| -> Vec<Piece> {
            let at = starts(&sizes);
            let each = at.iter().zip(&sizes);
            each.map(|(from, n)| Piece::along(&x.dims, 1, *from, *n as usize, item)).collect()
        };
        let (given, wanted) = (&self.given[rank], &self.wanted[rank]);
        let whole = |x: &Array| vec![Piece::along(&x.dims, 1, 0, x.dims[1], item)];
        let blocks: Vec<u64> = self.counts[rank].iter().map(|n| n / per).collect();
        let is_empty = self.given[rank].dims[2] == 0;
        let split = |x: &Array, sizes: Vec<u64>| match is_empty {
            true => vec![Piece::contiguous(0, 0); members.len()],
            false => along(x, sizes),
        };
        match &self.kind {
            Kind::ReduceScatter(_) => (split(given, blocks), whole(wanted)),
            Kind::AllGather => (whole(given), split(wanted, blocks)),
            Kind::AllToAll => {
                let from = members.iter().map(|&s| self.counts[s][m] / per).collect();
                (split(given, blocks), split(wanted, from))
            }
            Kind::Barrier => (Vec::new(), Vec::new()),
            Kind::AllReduce(_) | Kind::Broadcast { .. } | Kind::Permute(_) => {
                (whole(given), whole(wanted))
            }
        }
    }
}

/// A transport that only moves bytes.
struct Moves(Local);

impl Transport for Moves {
    fn ranks(&self) -> usize {
        self.0.ranks()
    }
    fn here(&self) -> Range<usize> {
        self.0.here()
    }
    fn group(&self, ranks: &[usize]) -> Result<GroupId, Diagnostic> {
        self.0.group(ranks)
    }
    fn members(&self, group: GroupId) -> Vec<usize> {
        self.0.members(group)
    }
    fn combines(&self) -> bool {
        false
    }
    fn start(&self, rank: usize, request: Request) -> Result<Token, Diagnostic> {
        assert_eq!(request.call.kind.combines(), None);
        self.0.start(rank, request)
    }
    fn test(&self, token: Token) -> Result<bool, Diagnostic> {
        self.0.test(token)
    }
    fn progress(&self) -> Result<Progress, Diagnostic> {
        self.0.progress()
    }
    fn idle(&self, waiting: &[Waiting]) -> Result<(), Diagnostic> {
        self.0.idle(waiting)
    }
    fn abort(&self, why: &Diagnostic) {
        self.0.abort(why);
    }
}

/// A transport whose tests come late: a worker that tests a rank sees what was there before others went on.
struct LateTests<T>(T);

impl<T: Transport> Transport for LateTests<T> {
    fn ranks(&self) -> usize {
        self.0.ranks()
    }
    fn here(&self) -> Range<usize> {
        self.0.here()
    }
    fn group(&self, ranks: &[usize]) -> Result<GroupId, Diagnostic> {
        self.0.group(ranks)
    }
    fn members(&self, group: GroupId) -> Vec<usize> {
        self.0.members(group)
    }
    fn combines(&self) -> bool {
        self.0.combines()
    }
    fn start(&self, rank: usize, request: Request) -> Result<Token, Diagnostic> {
        self.0.start(rank, request)
    }
    fn test(&self, token: Token) -> Result<bool, Diagnostic> {
        let found = self.0.test(token);
        std::thread::sleep(std::time::Duration::from_micros(20));
        found
    }
    fn progress(&self) -> Result<Progress, Diagnostic> {
        let found = self.0.progress();
        std::thread::yield_now();
        found
    }
    fn idle(&self, waiting: &[Waiting]) -> Result<(), Diagnostic> {
        self.0.idle(waiting)
    }
    fn abort(&self, why: &Diagnostic) {
        self.0.abort(why);
    }
}

/// The rounds of a program, by a seed.
pub fn rounds(random: &mut Random) -> (usize, Vec<Round>) {
    let extents: Vec<usize> = match random.below(3) {
        0 => vec![1 + random.below(9)],
        1 => vec![1 + random.below(3), 1 + random.below(3)],
        _ => vec![2, 1 + random.below(2), 2],
    };
    let rounds = (0..1 + random.below(6)).map(|_| round(random, &extents)).collect();
    (extents.iter().product(), rounds)
}

/// Runs a program of some rounds on all ranks of one process, and compares what each rank gets.
fn program(seed: u64) {
    let mut random = Random(seed);
    let (ranks, rounds) = rounds(&mut random);
    let options = LocalOptions {
        checksums: random.below(4) > 0,
        part: random.pick(&[16, 48, 1 << 10]),
        order: Order::Random(seed),
        corruption: None,
    };
    let local = Local::new(ranks, options);
    let transport: Box<dyn Transport> = match random.below(4) {
        0 => Box::new(local),
        1 => Box::new(Moves(local)),
        2 => Box::new(LateTests(local)),
        _ => Box::new(LateTests(Moves(local))),
    };
    play(&*transport, &rounds, &mut random, seed);
}

/// Runs the rounds on the ranks of this process, and compares what each gets.
pub fn play(transport: &dyn Transport, rounds: &[Round], random: &mut Random, seed: u64) {
    let here = transport.here();
    let mut given: Vec<Vec<Vec<u8>>> =
        rounds.iter().map(|r| r.given.iter().map(Array::bytes).collect()).collect();
    let mut made: Vec<Vec<Vec<u8>>> = rounds
        .iter()
        .map(|r| r.wanted.iter().map(|x| vec![0xee; x.bytes().len()]).collect())
        .collect();
    // Every process makes all groups, in one order.
    for members in rounds.iter().flat_map(|r| &r.groups) {
        transport.group(members).unwrap();
    }
    let mut scripts = Vec::new();
    for rank in here.clone() {
        let mut actions = Vec::new();
        let mut open = Vec::new();
        for (i, r) in rounds.iter().enumerate() {
            let members = r.groups.iter().find(|g| g.contains(&rank)).unwrap();
            let m = members.iter().position(|x| *x == rank).unwrap();
            let (send, receive) = r.pieces(rank, members, m);
            let request = Request {
                group: transport.group(members).unwrap(),
                call: call(r.kind.clone(), r.dtype, &r.counts[rank], 1 + i as u32).into(),
                from: memory(&mut given[i][rank]),
                send: send.into(),
                to: memory(&mut made[i][rank]),
                receive: receive.into(),
            };
            actions.push(Action::Start(Box::new(request)));
            open.push(i);
            // Some wait immediately, some later, some never; in any order.
            while !open.is_empty() && random.below(3) > 0 {
                actions.push(Action::Wait(open.swap_remove(random.below(open.len()))));
            }
            if random.below(2) == 0 {
                actions.push(Action::Compute(Box::new(std::thread::yield_now)));
            }
        }
        scripts.push(Script::new(actions));
    }
    let mut cursors: Vec<&mut dyn Cursor> = scripts.iter_mut().map(|s| s as _).collect();
    let threads = Threads(1 + random.below(3));
    let done = run(transport, &mut cursors, &threads, Order::Random(seed ^ 77));
    done.unwrap_or_else(|e| panic!("seed {seed}: {}", e.render()));
    for (i, r) in rounds.iter().enumerate() {
        if r.kind == Kind::Barrier {
            continue;
        }
        for rank in here.clone() {
            let (found, wanted) = (&made[i][rank], r.wanted[rank].bytes());
            assert_eq!(*found, wanted, "seed {seed}: {:?} of rank {rank}", r.kind);
        }
    }
}

#[test]
fn random_programs_of_ranks() {
    let first = seed() << 20;
    let seconds =
        std::env::var("TESSERA_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3.0);
    let until = std::time::Instant::now() + std::time::Duration::from_secs_f64(seconds);
    (0..200).for_each(program);
    let more = (first..).take_while(|_| std::time::Instant::now() < until);
    println!("{} programs of the day", more.inspect(|s| program(*s)).count());
}

/// Sums that depend on the order are those of the canonical reduction over positions, also over a transport that only moves bytes.
#[test]
fn sums_are_canonical() {
    let mut random = Random(seed());
    for n in [1, 2, 3, 7, 9, 65, 72] {
        let given: Vec<Vec<f32>> = (0..n)
            .map(|_| {
                (0..33)
                    .map(|_| {
                        random.below(1 << 24) as f32 * 1e-7 * 10f32.powi(random.below(9) as i32)
                    })
                    .collect()
            })
            .collect();
        let wanted: Vec<f32> = (0..33)
            .map(|i| canonical_reduce(ReduceOp::Sum, given.iter().map(|v| v[i])).unwrap())
            .collect();
        for moves in [false, true] {
            let local = Local::new(n, LocalOptions { part: 64, ..LocalOptions::default() });
            let transport: Box<dyn Transport> =
                if moves { Box::new(Moves(local)) } else { Box::new(local) };
            let group = transport.group(&(0..n).collect::<Vec<_>>()).unwrap();
            let mut buffers: Vec<Vec<u8>> =
                given.iter().map(|v| v.iter().flat_map(|x| x.to_ne_bytes()).collect()).collect();
            let sum = |b: &mut Vec<u8>| {
                let call: Call = call(Kind::AllReduce(ReduceOp::Sum), DType::F32, &[33], 1);
                Script::new(vec![
                    Action::Start(Box::new(in_place(group, call, b))),
                    Action::Wait(0),
                ])
            };
            let mut scripts: Vec<Script> = buffers.iter_mut().map(sum).collect();
            let mut cursors: Vec<&mut dyn Cursor> = scripts.iter_mut().map(|s| s as _).collect();
            run(&*transport, &mut cursors, &Threads(2), Order::Random(n as u64)).unwrap();
            for buffer in &buffers {
                let found: Vec<f32> =
                    buffer.as_chunks::<4>().0.iter().map(|b| f32::from_ne_bytes(*b)).collect();
                let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&found), bits(&wanted), "{n} ranks");
            }
        }
    }
}

/// Ranks that share the memory of a result all see it, and it is written once.
#[test]
fn results_may_share_memory() {
    let local = Local::new(4, LocalOptions::default());
    let group = local.group(&[3, 1, 0, 2]).unwrap();
    assert_eq!(local.group(&[3, 1, 0, 2]).unwrap(), group);
    let mut blocks: Vec<Vec<u8>> = (0..4u8).map(|r| vec![r; 2]).collect();
    let mut whole = vec![0xee; 8];
    let to = memory(&mut whole);
    let mut scripts: Vec<Script> = blocks
        .iter_mut()
        .map(|b| {
            let receive = (0..4).map(|i| Piece::contiguous(2 * i, 2)).collect();
            let call = call(Kind::AllGather, DType::U8, &[2; 4], 1).into();
            let send = [Piece::contiguous(0, 2)].into();
            let request = Request { group, call, from: memory(b), send, to, receive };
            Script::new(vec![Action::Start(Box::new(request))])
        })
        .collect();
    let mut cursors: Vec<&mut dyn Cursor> = scripts.iter_mut().map(|s| s as _).collect();
    run(&local, &mut cursors, &Threads(2), Order::First).unwrap();
    // In the order of the group.
    assert_eq!(whole, [3, 3, 1, 1, 0, 0, 2, 2]);
    let pairs: Arc<[(usize, usize)]> = [(0, 1)].into();
    assert_eq!(Kind::Permute(pairs).name(), "permute");
}
