//! Tiles leave through shared memory.
//!
//! Before: a valid function in which each group stores tiles from registers. After: a tile whose
//! array takes boxes is written to shared memory of its own, from where the copy engine stores it
//! while the threads go on; the next group waits until it has been read. Other tiles are stored from
//! where they are: what moved them into better places would need shared memory too.

use super::super::Staging;
use super::super::seeds::extents;
use super::encode::boxed;
use super::flow::users;
use super::{Refusal, budget, feeds};
use std::collections::BTreeMap;
use tessera_ir::{Attr, BlockId, OpId, OpSpec, Rewriter, Type, Value};
use tessera_staged::{Staged, StagedBuild, StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// Bytes of a tile below which its threads store it as well.
const LEAST: u32 = 4096;

pub fn epilogue(
    func: &StagedFunc,
    staging: &Staging<'_>,
    most: u32,
) -> Result<StagedFunc, Refusal> {
    let plan = feeds::plan(func, staging)?;
    let mut other = budget::other_bytes(func, &plan);
    let slots = budget::fit(staging, &plan, other, most);
    let mut staged: BTreeMap<OpId, Type> = BTreeMap::new();
    for id in func.walk() {
        let Some(ty) = memory_for(func, staging, id) else { continue };
        let Type::Smem { layout, .. } = &ty else { continue };
        let with = other.next_multiple_of(budget::ALIGN) + layout.bytes();
        if budget::fit(staging, &plan, with, most) >= slots.min(budget::ENOUGH) {
            other = with;
            staged.insert(id, ty);
        }
    }
    if staged.is_empty() {
        return Ok(func.clone());
    }
    let mut rw = Rewriter::new(func);
    let body = rw.new.body;
    let mut memory = BTreeMap::new();
    for (id, ty) in staged {
        let mem = rw.builder(body, func.ops[id].loc.clone()).smem_alloc(ty);
        memory.insert(id, mem);
    }
    for &id in &func.blocks[func.body].ops {
        if func.ops[id].is_terminator() {
            let wait = OpSpec::new(StagedOp::BulkWait, &[]).attr("keep", Attr::Int(0));
            rw.builder(body, func.loc.clone()).effect(wait);
        }
        emit(&mut rw, &memory, id, body);
    }
    Ok(rw.new)
}

fn emit(rw: &mut Rewriter<'_, Staged>, memory: &BTreeMap<OpId, Value>, id: OpId, into: BlockId) {
    let old = rw.old;
    let op = &old.ops[id];
    let Some(&mem) = memory.get(&id) else {
        rw.copy_op_with(id, into, &mut |rw, inner, block| emit(rw, memory, inner, block));
        return;
    };
    let (dst, tile) = (rw.get(op.operands[0]), rw.get(op.operands[1]));
    let at: Vec<Value> = op.group("at").iter().map(|&v| rw.get(v)).collect();
    let mut build = rw.builder(into, op.loc.clone());
    let wait = OpSpec::new(StagedOp::BulkWait, &[]).attr("keep", Attr::Int(0));
    build.effect(wait.attr("read", Attr::Bool(true)));
    build.sync(StagedOp::BlockBarrier);
    build.frag_store(mem, tile);
    build.sync(StagedOp::FenceAsync);
    build.sync(StagedOp::BlockBarrier);
    let mut spec = OpSpec::new(StagedOp::BulkStore, &[mem, dst]).group("at", &at);
    for name in ["extent", "bounds"] {
        if let Some(attr) = op.attr(name) {
            spec = spec.attr(name, attr.clone());
        }
    }
    build.effect(spec);
}

/// The memory that a store goes through, if it can: it stores the whole of a tile, once for each
/// group, to an array that takes boxes and that nothing here reads.
fn memory_for(func: &StagedFunc, staging: &Staging<'_>, id: OpId) -> Option<Type> {
    let op = &func.ops[id];
    if op.code != StagedOp::Tile(TileOp::Store) || !func.ty(op.operands[1]).is_tile() {
        return None;
    }
    let parent = func.blocks[op.block].parent?;
    let once = func.ops[parent].code == StagedOp::Tiles;
    if !once || !op.group("mask").is_empty() || op.attr("step").is_some() {
        return None;
    }
    let param = func.params().iter().position(|&p| p == op.operands[0])?;
    let (view, tile) = (func.ty(op.operands[0]), func.ty(op.operands[1]));
    let read_back = users(func).get(&op.operands[0]).is_some_and(|all| all.len() > 1);
    if view.dtype() != tile.dtype() || read_back {
        return None;
    }
    let extent = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
    let shape = extents(tile);
    let bytes = tile.dtype().bytes() as u32;
    let shared = boxed(staging.classes[param], &extent, &shape, bytes).ok()?;
    (shared.bytes() >= LEAST).then(|| Type::Smem {
        shape: tile.shape().to_vec(),
        dtype: tile.dtype(),
        layout: std::sync::Arc::new(shared),
    })
}
