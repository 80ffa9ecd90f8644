//! Tiles leave through shared memory.
//!
//! Before: a valid function in which each group stores tiles from registers. After: a tile whose
//! array takes boxes is written to shared memory of its own, from where TMA stores it
//! while the threads go on; the next group waits until it has been read. A tile whose array takes none,
//! and whose threads hold it in short pieces of its rows, is read back from there in long ones, and
//! stored by the threads. Where there is no room for that, tiles are stored from where they are.
//!
//! A tile that is added to memory (`C[…] += x`) leaves the same way where the tensor cores adds with the same
//! bits: threads would wait for what is there, and need registers for it.
//!
//! Warpgroups that are no power of two (`m_split`) copy their rows each on its own: tiles leave so only by
//! boxes, from memory in which the rows of each are one block.
//!
//! In pieces, a tile goes through memory of one or two of them, which leaves pipelines more of it; that is
//! for `overlapped_epilogue`, which puts time between one piece and the next, for blocks with one group where a pipeline
//! has more stages so, and for tiles that are added to memory and do not fit as a whole.

use super::super::Staging;
use super::super::seeds::{extents, useful};
use super::super::threads::Team;
use super::encode::boxed;
use super::uses::users;
use super::{Refusal, budget, producer_loads, tile_scheduler};
use std::collections::BTreeMap;
use tessera_ir::{Attr, BlockId, Builder, Op, OpId, OpSpec, Rewriter, Type, Value};
use tessera_layout::{Layout, Shared};
use tessera_numerics::{Profile, ReduceOp, ScalarFn};
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_target::arrays::ArrayClass;
use tessera_tile::TileOp;

/// Bytes of a tile below which its threads store it as well.
const LEAST: u32 = 4096;

/// How a tile leaves.
enum Variant<T> {
    /// By TMA, from memory of this type (or from this memory).
    Boxes(T),
    /// By the threads, which read it back.
    Rows(T),
    /// By TMA, one piece after another.
    Pieces(T, Cut),
}

impl Variant<Type> {
    /// Bytes of the memory.
    fn bytes(&self) -> u32 {
        let bytes = |ty: &Type| match ty {
            Type::Smem { layout, .. } => layout.bytes(),
            _ => 0,
        };
        match self {
            Variant::Boxes(ty) | Variant::Rows(ty) => bytes(ty),
            Variant::Pieces(ty, cut) => bytes(ty).next_multiple_of(budget::ALIGN) * cut.buffers(),
        }
    }
}

/// How a tile is cut into pieces.
#[derive(Copy, Clone)]
struct Cut {
    dim: usize,
    width: u32,
    count: u32,
}

impl Cut {
    /// Pieces that have memory at once: each then waits for the one before the last, over and over.
    fn buffers(self) -> u32 {
        if self.count.is_multiple_of(2) { 2 } else { 1 }
    }
}

/// Numbers of pieces, the best first: as many iterations of the next loop have something to do beside it.
const PIECES: [u32; 5] = [4, 3, 2, 6, 8];
/// Bytes of a row of a piece that memory takes without two threads in each other's way.
const ROW: u32 = 128;

pub fn epilogue(
    func: &StagedFunc,
    staging: &Staging<'_>,
    team: Team,
    most: u32,
    parts: u32,
    in_pieces: bool,
) -> Result<StagedFunc, Refusal> {
    let plan = producer_loads::plan(func, staging)?;
    let mut other = budget::other_bytes(func, &plan);
    let stages = budget::fit(staging, &plan, other, most).min(budget::enough(func, &plan));
    let mut staged: BTreeMap<OpId, Variant<Type>> = BTreeMap::new();
    for id in func.walk() {
        let Some(way) = memory_for(func, staging, team, id) else { continue };
        let adds = func.ops[id].code == StagedOp::Tile(TileOp::Accumulate);
        let with = |way: &Variant<Type>| other.next_multiple_of(budget::ALIGN) + way.bytes();
        let fit = |way: &Variant<Type>| budget::fit(staging, &plan, with(way), most);
        let way = match way {
            Variant::Boxes(whole) => {
                let whole = Variant::Boxes(whole);
                let pieces = cut(func, staging, id).map(|(piece, cut)| Variant::Pieces(piece, cut));
                let better = |pieces: &Variant<Type>| {
                    let (pieces, whole) = (fit(pieces), fit(&whole));
                    let alone = tile_scheduler::is_alone(&func.attrs);
                    let room = adds && whole < stages && pieces >= stages;
                    in_pieces || alone && pieces > whole || room
                };
                pieces.filter(better).unwrap_or(whole)
            }
            way => way,
        };
        if parts > 1 && (adds || !can_be_divided(&way)) {
            continue;
        }
        let with = with(&way);
        // What only some groups store is not worth a stage.
        let rarely = path(func, func.ops[id].block).iter().any(|(p, _)| is_branch(func, *p));
        let least = if rarely { budget::fit(staging, &plan, other, most) } else { stages };
        if budget::fit(staging, &plan, with, most) >= least {
            other = with;
            staged.insert(id, way);
        }
    }
    if staged.is_empty() {
        return Ok(func.clone());
    }
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    let mut memory = BTreeMap::new();
    let by_async_unit = staged.values().any(|way| !matches!(way, Variant::Rows(_)));
    for (id, way) in staged {
        let mut build = rw.builder(body, func.ops[id].loc.clone());
        let way = match way {
            Variant::Boxes(ty) => Variant::Boxes(vec![build.smem_alloc(ty)]),
            Variant::Rows(ty) => Variant::Rows(vec![build.smem_alloc(ty)]),
            Variant::Pieces(ty, cut) => {
                let each = (0..cut.buffers()).map(|_| build.smem_alloc(ty.clone()));
                Variant::Pieces(each.collect(), cut)
            }
        };
        memory.insert(id, way);
    }
    for &id in &func.blocks[func.body].ops {
        if func.ops[id].is_terminator() && by_async_unit {
            // The memory must stay until it is read; whoever comes after the kernel sees what it wrote.
            let wait = OpSpec::new(StagedOp::BulkWait, &[]).attr("keep", Attr::Int(0));
            rw.builder(body, func.loc.clone()).effect(wait.attr("read", Attr::Bool(true)));
        }
        emit(&mut rw, (staging, team), &memory, id, body);
    }
    Ok(rw.new)
}

fn emit(
    rw: &mut Rewriter<'_, Staged>,
    on: (&Staging<'_>, Team),
    memory: &BTreeMap<OpId, Variant<Vec<Value>>>,
    id: OpId,
    into: BlockId,
) {
    let old = rw.old;
    let op = &old.ops[id];
    let Some(way) = memory.get(&id) else {
        rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, on, memory, inner, block));
        return;
    };
    let (dst, tile) = (rw.get(op.operands[0]), rw.get(op.operands[1]));
    let at: Vec<Value> = op.group("at").iter().map(|&v| rw.get(v)).collect();
    let rows = rows(old, on.0, on.1, id);
    let mut build = rw.builder(into, op.loc.clone());
    let mut spec = match (way, rows) {
        (Variant::Pieces(mem, cut), _) => {
            pieces(rw, id, mem, *cut, into);
            return;
        }
        (Variant::Rows(mem), Some(rows)) => {
            let mem = mem[0];
            build.sync(StagedOp::BlockBarrier);
            build.frag_store(mem, tile);
            build.sync(StagedOp::BlockBarrier);
            let ty = old.ty(op.operands[1]).with_layout(rows);
            let again = build.frag_load(mem, ty);
            OpSpec::new(StagedOp::Tile(TileOp::Store), &[dst, again]).group("at", &at)
        }
        (Variant::Boxes(mem) | Variant::Rows(mem), _) => {
            let mem = mem[0];
            through(&mut build, mem, tile, 0);
            leaves(op, mem, dst).group("at", &at)
        }
    };
    for name in ["extent", "bounds"] {
        if let Some(attr) = op.attr(name) {
            spec = spec.attr(name, attr.clone());
        }
    }
    build.effect(spec);
}

/// The copy by which an op's tile leaves shared memory.
fn leaves(op: &Op<Staged>, mem: Value, dst: Value) -> OpSpec<Staged> {
    match op.attr("op").filter(|_| op.code == StagedOp::Tile(TileOp::Accumulate)) {
        Some(fold) => OpSpec::new(StagedOp::BulkReduce, &[mem, dst]).attr("op", fold.clone()),
        None => OpSpec::new(StagedOp::BulkStore, &[mem, dst]),
    }
}

/// Writes a tile to memory that at most the `keep` newest copies do not read.
fn through(build: &mut Builder<'_, Staged>, mem: Value, tile: Value, keep: i64) {
    let wait = OpSpec::new(StagedOp::BulkWait, &[]).attr("keep", Attr::Int(keep));
    build.effect(wait.attr("read", Attr::Bool(true)));
    build.sync(StagedOp::BlockBarrier);
    build.frag_store(mem, tile);
    build.sync(StagedOp::FenceAsync);
    build.sync(StagedOp::BlockBarrier);
}

/// Whether warpgroups with a part of the rows each can store their parts: the rows of each are one block of
/// the memory.
fn can_be_divided(way: &Variant<Type>) -> bool {
    match way {
        Variant::Boxes(Type::Smem { layout, .. })
        | Variant::Pieces(Type::Smem { layout, .. }, _) => {
            layout.panel.is_none() || layout.order.first() == Some(&0)
        }
        Variant::Boxes(_) | Variant::Pieces(..) | Variant::Rows(_) => false,
    }
}

/// Stores a tile one piece after another.
fn pieces(rw: &mut Rewriter<'_, Staged>, id: OpId, mem: &[Value], cut: Cut, into: BlockId) {
    let old = rw.old;
    let op = &old.ops[id];
    let (dst, tile) = (rw.get(op.operands[0]), rw.get(op.operands[1]));
    let at: Vec<Value> = op.group("at").iter().map(|&v| rw.get(v)).collect();
    let mut extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let axis = (0..extent.len()).filter(|&a| extent[a] != 0).nth(cut.dim).unwrap_or(0);
    extent[axis] = cut.width.into();
    let mut shape = extents(old.ty(op.operands[1]));
    shape[cut.dim] = cut.width;
    for piece in 0..cut.count {
        let mem = mem[piece as usize % mem.len()];
        let mut first = vec![0; shape.len()];
        first[cut.dim] = piece * cut.width;
        let mut at = at.clone();
        let mut build = rw.builder(into, op.loc.clone());
        if piece > 0 {
            let far = build.index(first[cut.dim].into());
            at[axis] = build.ew(ScalarFn::Add, &[at[axis], far]);
        }
        let part = build.frag_part(tile, &first, &shape).expect("the layout was requested");
        through(&mut build, mem, part, i64::from(cut.buffers()) - 1);
        let mut spec = leaves(op, mem, dst).group("at", &at);
        spec = spec.attr("extent", Attr::ints(extent.iter().copied()));
        if let Some(bounds) = op.attr("bounds") {
            spec = spec.attr("bounds", bounds.clone());
        }
        build.effect(spec);
    }
}

/// How a tile that leaves by boxes is cut into pieces, and the memory of one: along the dim in which
/// each thread holds the most.
fn cut(func: &StagedFunc, staging: &Staging<'_>, id: OpId) -> Option<(Type, Cut)> {
    let op = &func.ops[id];
    let tile = func.ty(op.operands[1]);
    let layout = tile.layout()?;
    let param = func.params().iter().position(|&p| p == op.operands[0])?;
    let class = staging.classes[param];
    let dim = (0..layout.rank()).max_by_key(|&d| layout.repeat()[d])?;
    let shape = extents(tile);
    let bytes = tile.dtype().bytes() as u32;
    let fast = fast_dim(func, class, id)?;
    let fits = |count: &u32| {
        let width = shape[dim] / count;
        let rows = dim != fast || (width * bytes).is_multiple_of(ROW);
        let even = shape[dim].is_multiple_of(*count) && rows;
        even && (0..*count).all(|n| {
            let (mut at, mut extent) = (vec![0; shape.len()], shape.clone());
            (at[dim], extent[dim]) = (n * width, width);
            layout.part(&at, &extent).is_some()
        })
    };
    let count = PIECES.into_iter().find(|count| fits(count))?;
    let cut = Cut { dim, width: shape[dim] / count, count };
    let mut piece = shape.clone();
    piece[dim] = cut.width;
    let mut extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let axis = (0..extent.len()).filter(|&a| extent[a] != 0).nth(dim)?;
    extent[axis] = cut.width.into();
    let shared = boxed(class, &extent, &piece, bytes).ok()?;
    let piece: Vec<i64> = piece.iter().map(|&n| n.into()).collect();
    Some((Type::smem(&piece, tile.dtype(), shared), cut))
}

/// The dim of a stored tile along which its array's elements lie side by side.
fn fast_dim(func: &StagedFunc, class: ArrayClass, id: OpId) -> Option<usize> {
    let extent = func.ops[id].attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let axes = (0..extent.len()).filter(|&a| extent[a] != 0);
    axes.enumerate().find(|&(_, axis)| class.is_contiguous(axis)).map(|(dim, _)| dim)
}

/// The layout that stores of the tile by threads should have, where its own would waste most of what
/// they touch.
fn rows(func: &StagedFunc, staging: &Staging<'_>, team: Team, id: OpId) -> Option<Layout> {
    let op = &func.ops[id];
    let class = staging.classes[func.params().iter().position(|&p| p == op.operands[0])?];
    let tile = func.ty(op.operands[1]);
    let (dim, shape) = (fast_dim(func, class, id)?, extents(tile));
    let bytes = tile.dtype().bytes() as u32;
    let widest = 16 / bytes.min(16);
    let vector = (class.align.max(bytes) / bytes).clamp(1, widest);
    let best = Layout::coalesced(&shape, Some(dim), vector, team.warps, 1, None);
    // Two neighbours that one access cannot take are two accesses.
    let part = |layout: &Layout| useful(layout, dim, bytes, vector);
    (part(tile.layout()?) < 0.6 * part(&best)).then_some(best)
}

/// The ops around a block, each with its own block that holds it.
fn path(func: &StagedFunc, mut block: BlockId) -> Vec<(OpId, BlockId)> {
    let mut out = Vec::new();
    while let Some(around) = func.blocks[block].parent {
        out.push((around, block));
        block = func.ops[around].block;
    }
    out
}

fn is_branch(func: &StagedFunc, id: OpId) -> bool {
    func.ops[id].code == StagedOp::Tile(TileOp::If)
}

/// Whether of two blocks at most one runs in a group: they are in different branches.
fn are_exclusive(func: &StagedFunc, a: BlockId, b: BlockId) -> bool {
    let of_b = path(func, b);
    path(func, a).iter().any(|&(around, own)| {
        is_branch(func, around) && of_b.iter().any(|&(other, its)| other == around && its != own)
    })
}

/// Whether the tensor cores adds a tile to memory as its threads would. Where several groups may fold into one
/// element, the order in which they come shows, and only the default profile leaves it open.
fn tma_folds(func: &StagedFunc, staging: &Staging<'_>, op: &Op<Staged>) -> bool {
    let fold = op.attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name);
    let row = fold.map(|fold| (fold, func.ty(op.operands[1]).dtype()));
    let any_order = match func.ty(op.operands[0]) {
        Type::View { privilege, .. } => !privilege.reduces() || staging.profile == Profile::Default,
        _ => false,
    };
    any_order && row.is_some_and(|row| staging.caps.folds.contains(&row))
}

/// The memory that a store goes through, if it can: it stores the whole of a tile, at most once for
/// each group, to an array that nothing here reads. What the tensor cores adds to an array nobody else touches
/// either.
fn memory_for(
    func: &StagedFunc,
    staging: &Staging<'_>,
    team: Team,
    id: OpId,
) -> Option<Variant<Type>> {
    let op = &func.ops[id];
    let folds = match op.code {
        StagedOp::Tile(TileOp::Store) => false,
        StagedOp::Tile(TileOp::Accumulate) if tma_folds(func, staging, op) => true,
        _ => return None,
    };
    if !func.ty(op.operands[1]).is_tile() {
        return None;
    }
    let once =
        |(p, _): &(OpId, BlockId)| func.ops[*p].code == StagedOp::Tiles || is_branch(func, *p);
    if !path(func, op.block).iter().all(once)
        || !op.group("mask").is_empty()
        || op.attr("step").is_some()
    {
        return None;
    }
    let param = func.params().iter().position(|&p| p == op.operands[0])?;
    let (view, tile) = (func.ty(op.operands[0]), func.ty(op.operands[1]));
    // Of several ways to write it a group takes one.
    let users = users(func);
    let all = users.get(&op.operands[0]).map_or(&[][..], |all| all);
    let alone = all.iter().all(|&(user, _)| {
        let other = &func.ops[user];
        let writes = matches!(other.code, StagedOp::Tile(TileOp::Store | TileOp::Scatter));
        user == id || !folds && writes && are_exclusive(func, op.block, other.block)
    });
    if view.dtype() != tile.dtype() || !alone {
        return None;
    }
    let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let shape = extents(tile);
    let bytes = tile.dtype().bytes() as u32;
    let class = staging.classes[param];
    let memory = |layout: Shared| Type::Smem {
        shape: tile.shape().to_vec(),
        dtype: tile.dtype(),
        layout: std::sync::Arc::new(layout),
    };
    let (way, size) = match boxed(class, &extent, &shape, bytes) {
        Ok(shared) => (Variant::Boxes(memory(shared.clone())), shared.bytes()),
        // Threads that add to memory read it too.
        Err(_) if folds => return None,
        Err(_) => {
            rows(func, staging, team, id).filter(|_| team.blocks == 1)?;
            // The same memory as if it did: only the array is in the way.
            let shared =
                boxed(ArrayClass { tma_compatible: true, ..class }, &extent, &shape, bytes).ok()?;
            (Variant::Rows(memory(shared.clone())), shared.bytes())
        }
    };
    (size >= LEAST).then_some(way)
}
