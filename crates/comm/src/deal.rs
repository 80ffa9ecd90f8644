//! From any placement to any other between processes: every process finds the same plan, packs what others lack, sends it in one
//! `all_to_all`, and fills its blocks from its own and from what came, by the same copies and the same canonical combinations as in one
//! process (`exchange.rs`).

use crate::exchange::{Exchange, Exchanged, run_plan};
use crate::{
    BlockMemory, Call, Cursor, Kind, Memory, Order, Piece, Request, Session, Socket, Step, Threads,
    Transport, run,
};
use std::sync::Arc;
use tessera_diag::{Diagnostics, Loc};
use tessera_mesh::{Aside, BlockMove, BlockMoves, Kind as Moves, Placed, between};
use tessera_numerics::DType;

/// The processes that have each block, in order.
fn holders(placed: &Placed, world: usize) -> Vec<Vec<usize>> {
    let each = (placed.mesh().size() as usize).div_ceil(world).max(1);
    let of = |ranks: &[u64]| {
        let mut found: Vec<usize> = ranks.iter().map(|r| *r as usize / each).collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    placed.blocks().iter().map(|b| of(&b.ranks)).collect()
}

/// The extents of what a move takes.
fn counts(plan: &BlockMoves, of: &BlockMove) -> Vec<u64> {
    plan.dims(of).map(|dim| dim.iter().map(|p| p.count).sum()).collect()
}

fn bytes_of(extents: &[u64], item: usize) -> usize {
    extents.iter().product::<u64>() as usize * item
}

/// Memory for the elements of moves, one behind the other.
struct Packed {
    bytes: Vec<u8>,
    blocks: Vec<BlockMemory>,
}

impl Packed {
    fn of(plan: &BlockMoves, moves: &[usize], item: usize) -> Self {
        let extents: Vec<Vec<u64>> = moves.iter().map(|&m| counts(plan, &plan.moves[m])).collect();
        let mut bytes = vec![0; extents.iter().map(|e| bytes_of(e, item)).sum()];
        let mut at = 0;
        let blocks = extents.into_iter().map(|extents| {
            let begin = at;
            at += bytes_of(&extents, item);
            // SAFETY: a part of `bytes`, which stay where they are as long as the blocks are used.
            unsafe { BlockMemory::new(bytes[begin..].as_mut_ptr(), extents, item, None) }
        });
        let blocks = blocks.collect();
        Self { bytes, blocks }
    }
}

/// Fills the blocks of `to` that this process has from those of `from`, in the order of [`Placed::blocks`]; of blocks that it has not, the
/// extents alone count. All processes call it with the same placements. With `everyone` each process has all blocks of `to`.
pub fn deal(
    session: &Arc<Session>,
    (from, to, everyone): (&Placed, &Placed, bool),
    sources: Vec<BlockMemory>,
    targets: &[BlockMemory],
    most: usize,
) -> Result<Exchanged, Diagnostics> {
    let (me, world) = (session.rank(), session.world());
    let plan = between(from, to)?;
    let item = sources.first().map_or(1, BlockMemory::item);
    let here = holders(from, world);
    let there = match everyone {
        true => vec![(0..world).collect(); to.blocks().len()],
        false => holders(to, world),
    };
    // What each process gets from others, and what this one fills its blocks with.
    let mut sends: Vec<Vec<usize>> = vec![Vec::new(); world];
    let mut receives = sends.clone();
    let mut mine: Vec<(usize, Option<usize>)> = Vec::new();
    let mut travels = false;
    for (at, of) in plan.moves.iter().enumerate() {
        let holders = &here[of.source];
        for &target in &there[of.target] {
            if holders.contains(&target) {
                mine.extend((target == me).then_some((at, None)));
                continue;
            }
            travels = true;
            // Those that have copies take turns.
            let sender = holders[target % holders.len()];
            if sender == me {
                sends[target].push(at);
            }
            if target == me {
                mine.push((at, Some(sender)));
                receives[sender].push(at);
            }
        }
    }
    let mut filled = vec![false; targets.len()];
    plan.moves.iter().for_each(|m| filled[m.target] = true);
    let count = sources.len();
    let (mut all, mut places) = (sources, vec![0; plan.moves.len()]);
    let mut kept = Vec::new();
    if travels {
        let packed = Packed::of(&plan, &sends.concat(), item);
        let which: Vec<(usize, Option<Aside>)> =
            sends.iter().flatten().enumerate().map(|(k, &m)| (m, Some(Aside::Target(k)))).collect();
        let mut packing = plan.some(&which);
        packing.kind = Moves::Values;
        run_plan(&Exchange { plan: &packing, sources: &all, targets: &packed.blocks }, most)?;
        let came = Packed::of(&plan, &receives.concat(), item);
        let sizes = |moves: &Vec<usize>| -> usize {
            moves.iter().map(|&m| bytes_of(&counts(&plan, &plan.moves[m]), item)).sum()
        };
        let (out, into): (Vec<usize>, Vec<usize>) =
            (sends.iter().map(sizes).collect(), receives.iter().map(sizes).collect());
        let Packed { mut bytes, blocks: _ } = packed;
        let Packed { bytes: mut got, blocks } = came;
        let whole = Call {
            kind: Kind::AllToAll,
            dtype: all.iter().find_map(BlockMemory::dtype).unwrap_or(DType::U8),
            counts: vec![from.shape().iter().product()],
            at: Loc::unknown(),
            part_of: None,
        };
        all_to_all(session, whole, (&mut bytes, &out), (&mut got, &into))?;
        for (k, &m) in receives.iter().flatten().enumerate() {
            places[m] = count + k;
        }
        all.extend(blocks);
        kept = got;
    }
    let which: Vec<(usize, Option<Aside>)> =
        mine.iter().map(|&(m, sender)| (m, sender.map(|_| Aside::Source(places[m])))).collect();
    let filling = plan.some(&which);
    run_plan(&Exchange { plan: &filling, sources: &all, targets }, most)?;
    drop(kept);
    Ok(Exchanged { kind: plan.kind, filled })
}

/// Returns when all processes have called it.
pub fn synchronise(session: &Arc<Session>) -> Result<(), Diagnostics> {
    let socket = Socket::new(session.clone(), session.world());
    let group = socket.group(&(0..session.world()).collect::<Vec<_>>())?;
    let call = Call {
        kind: Kind::Barrier,
        dtype: DType::U8,
        counts: Vec::new(),
        at: Loc::unknown(),
        part_of: None,
    };
    let (from, to, none) = (Memory::NONE, Memory::NONE, Arc::from([]));
    let request =
        Request { group, call: Arc::new(call), from, send: Arc::clone(&none), to, receive: none };
    let mut one = One(vec![Step::Ended, Step::Wait(0), Step::Start(Box::new(request))]);
    run(&socket, &mut [&mut one], &Threads(1), Order::First)
}

/// Sends some bytes to each process, and receives some from each, for what the program calls.
fn all_to_all(
    session: &Arc<Session>,
    whole: Call,
    (from, out): (&mut [u8], &[usize]),
    (to, into): (&mut [u8], &[usize]),
) -> Result<(), Diagnostics> {
    let socket = Socket::new(session.clone(), session.world());
    let group = socket.group(&(0..session.world()).collect::<Vec<_>>())?;
    let pieces = |sizes: &[usize]| -> Arc<[Piece]> {
        let mut at = 0;
        let each = sizes.iter().map(|&n| {
            at += n;
            Piece::contiguous(at - n, n)
        });
        each.collect()
    };
    let counts = out.iter().map(|n| *n as u64).collect();
    let call = Call {
        kind: Kind::AllToAll,
        dtype: DType::U8,
        counts,
        at: Loc::unknown(),
        part_of: Some(Arc::new(whole)),
    };
    // SAFETY: both live until the run is over, and nothing else uses them.
    let (from, to) = unsafe {
        (Memory::host(from.as_mut_ptr(), from.len()), Memory::host(to.as_mut_ptr(), to.len()))
    };
    let request =
        Request { group, call: Arc::new(call), from, send: pieces(out), to, receive: pieces(into) };
    let mut one = One(vec![Step::Ended, Step::Wait(0), Step::Start(Box::new(request))]);
    run(&socket, &mut [&mut one], &Threads(1), Order::First)
}

/// The steps of a rank, the last first.
struct One(Vec<Step>);

impl Cursor for One {
    fn step(&mut self) -> Result<Step, Diagnostics> {
        Ok(self.0.pop().unwrap_or(Step::Ended))
    }
}
