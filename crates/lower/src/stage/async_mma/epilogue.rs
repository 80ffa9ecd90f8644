//! Epilogue through shared memory: a result tile is written to shared memory and stored from there
//! with TMA.
//!
//! Input: a valid function in which each group stores tiles from registers. Output: a tile whose
//! array is TMA compatible is written to a shared memory buffer, and a TMA store copies it to
//! global memory while the threads continue. The next group waits until the buffer has been read. A
//! tile whose array is not TMA compatible, and of whose rows each thread holds short pieces, is
//! read back in long pieces and stored by the threads (coalescing). Where there is no room in
//! shared memory, tiles are stored from registers.
//!
//! A tile that is added to memory (`C[…] += x`) uses a TMA reduction where that gives the same
//! bits. The threads would have to wait for the old values and hold them in registers.
//!
//! Warpgroups that are no power of two (`m_split`) each store their own rows. There only TMA stores
//! are used, from a buffer in which the rows of each warpgroup are one block.
//!
//! A tile may be stored in pieces through one or two small buffers, which leaves more shared memory
//! to the pipelines. This is used by `overlapped_epilogue`, which spreads the pieces over the next
//! tile's iterations; by CTAs with one group whose pipeline gets more stages that way; and for
//! tiles that are added to memory and do not fit as a whole.

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

/// Tiles of fewer bytes are stored by the threads just as fast.
const LEAST: u32 = 4096;

/// How a tile is stored.
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
    /// Buffers for pieces. With two, a piece waits for the store of the one before the last.
    fn buffers(self) -> u32 {
        if self.count.is_multiple_of(2) { 2 } else { 1 }
    }
}

/// Numbers of pieces in order of preference: that many iterations of the next loop overlap with a
/// store.
const PIECES: [u32; 5] = [4, 3, 2, 6, 8];
/// Bytes of a row of a piece that can be written without bank conflicts.
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
        let Some(variant) = memory_for(func, staging, team, id) else { continue };
        let adds = func.ops[id].code == StagedOp::Tile(TileOp::Accumulate);
        let with =
            |variant: &Variant<Type>| other.next_multiple_of(budget::ALIGN) + variant.bytes();
        let fit = |variant: &Variant<Type>| budget::fit(staging, &plan, with(variant), most);
        let variant = match variant {
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
            variant => variant,
        };
        if parts > 1 && (adds || !can_be_divided(&variant)) {
            continue;
        }
        let with = with(&variant);
        // A store in a branch is not worth a pipeline stage.
        let rarely = path(func, func.ops[id].block).iter().any(|(p, _)| is_branch(func, *p));
        let least = if rarely { budget::fit(staging, &plan, other, most) } else { stages };
        if budget::fit(staging, &plan, with, most) >= least {
            other = with;
            staged.insert(id, variant);
        }
    }
    if staged.is_empty() {
        return Ok(func.clone());
    }
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    let mut memory = BTreeMap::new();
    let by_async_unit = staged.values().any(|variant| !matches!(variant, Variant::Rows(_)));
    for (id, variant) in staged {
        let mut build = rw.builder(body, func.ops[id].loc.clone());
        let variant = match variant {
            Variant::Boxes(ty) => Variant::Boxes(vec![build.smem_alloc(ty)]),
            Variant::Rows(ty) => Variant::Rows(vec![build.smem_alloc(ty)]),
            Variant::Pieces(ty, cut) => {
                let each = (0..cut.buffers()).map(|_| build.smem_alloc(ty.clone()));
                Variant::Pieces(each.collect(), cut)
            }
        };
        memory.insert(id, variant);
    }
    for &id in &func.blocks[func.body].ops {
        if func.ops[id].is_terminator() && by_async_unit {
            // The buffer must stay allocated until it is read, and the next kernel must see what
            // was stored.
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
    let Some(variant) = memory.get(&id) else {
        rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, on, memory, inner, block));
        return;
    };
    let (dst, tile) = (rw.get(op.operands[0]), rw.get(op.operands[1]));
    let at: Vec<Value> = op.group("at").iter().map(|&v| rw.get(v)).collect();
    let rows = rows(old, on.0, on.1, id);
    let mut build = rw.builder(into, op.loc.clone());
    let mut spec = match (variant, rows) {
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

/// The TMA store of an op's tile from shared memory.
fn leaves(op: &Op<Staged>, mem: Value, dst: Value) -> OpSpec<Staged> {
    match op.attr("op").filter(|_| op.code == StagedOp::Tile(TileOp::Accumulate)) {
        Some(fold) => OpSpec::new(StagedOp::BulkReduce, &[mem, dst]).attr("op", fold.clone()),
        None => OpSpec::new(StagedOp::BulkStore, &[mem, dst]),
    }
}

/// Writes a tile to a buffer that at most the `keep` newest copies do not read.
fn through(build: &mut Builder<'_, Staged>, mem: Value, tile: Value, keep: i64) {
    let wait = OpSpec::new(StagedOp::BulkWait, &[]).attr("keep", Attr::Int(keep));
    build.effect(wait.attr("read", Attr::Bool(true)));
    build.sync(StagedOp::BlockBarrier);
    build.frag_store(mem, tile);
    build.sync(StagedOp::FenceAsync);
    build.sync(StagedOp::BlockBarrier);
}

/// Whether warpgroups that have a part of the rows each can store their parts: the rows of each are
/// one block of the memory.
fn can_be_divided(variant: &Variant<Type>) -> bool {
    match variant {
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

/// How a tile that is stored by TMA is cut into pieces, and the buffer of one: along the dim in
/// which each thread holds the most elements.
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

/// The dim of a stored tile along which its array is contiguous.
fn fast_dim(func: &StagedFunc, class: ArrayClass, id: OpId) -> Option<usize> {
    let extent = func.ops[id].attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let axes = (0..extent.len()).filter(|&a| extent[a] != 0);
    axes.enumerate().find(|&(_, axis)| class.is_contiguous(axis)).map(|(dim, _)| dim)
}

/// The layout for coalesced stores of the tile by threads, where its own layout would waste most of
/// each transaction.
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

/// The ops around a block, each with the block that holds it.
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

/// Whether at most one of two blocks runs in a group: they are in different branches.
fn are_exclusive(func: &StagedFunc, a: BlockId, b: BlockId) -> bool {
    let of_b = path(func, b);
    path(func, a).iter().any(|&(around, own)| {
        is_branch(func, around) && of_b.iter().any(|&(other, its)| other == around && its != own)
    })
}

/// Whether a TMA reduction adds a tile to memory with the same bits as its threads would. Where
/// several groups may add to one element the order shows, and only the default profile leaves it
/// open.
fn tma_folds(func: &StagedFunc, staging: &Staging<'_>, op: &Op<Staged>) -> bool {
    let fold = op.attr("op").and_then(Attr::as_word).and_then(ReduceOp::from_name);
    let row = fold.map(|fold| (fold, func.ty(op.operands[1]).dtype()));
    let any_order = match func.ty(op.operands[0]) {
        Type::View { privilege, .. } => !privilege.reduces() || staging.profile == Profile::Default,
        _ => false,
    };
    any_order && row.is_some_and(|row| staging.caps.folds.contains(&row))
}

/// The memory that a store goes through, if it can: it stores a whole tile, at most once for each
/// group, to an array that the kernel does not read. An array that TMA adds to is not accessed
/// otherwise.
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
    // Of several branches that write it, a group takes one.
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
    let (variant, size) = match boxed(class, &extent, &shape, bytes) {
        Ok(shared) => (Variant::Boxes(memory(shared.clone())), shared.bytes()),
        // Threads that add to memory read it too.
        Err(_) if folds => return None,
        Err(_) => {
            rows(func, staging, team, id).filter(|_| team.blocks == 1)?;
            // The same layout as for TMA: only the array's strides or alignment rule that out.
            let shared =
                boxed(ArrayClass { tma_compatible: true, ..class }, &extent, &shape, bytes).ok()?;
            (Variant::Rows(memory(shared.clone())), shared.bytes())
        }
    };
    (size >= LEAST).then_some(variant)
}
