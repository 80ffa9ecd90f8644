//! Buffers of a group in shared memory: where each is, and how its elements lie.
//!
//! A buffer is row-major. Its rows are padded to whole vectors, and where their length is a
//! multiple of a wavefront, by one vector more: the elements of a column are then in different
//! banks. Buffers that are never in use together share memory. A buffer is in use from its
//! allocation to the end of the last op of the same block that accesses it, which is the whole loop
//! where that op is a loop.
//!
//! `sync` places the barriers between accesses, as it does for global memory.

use super::sync::{ALIGN, Region};
use super::{Repr, Select, View};
use crate::code::{ArrayClass, WIDEST};
use crate::inst::*;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Type, Value};
use tessera_staged::{StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// Where a buffer is in the block's shared memory.
#[derive(Clone, Debug)]
pub struct Place {
    /// Bytes from the start of the kernel's memory.
    pub offset: u32,
    pub extents: Vec<i64>,
    /// In bytes.
    pub strides: Vec<i64>,
    /// The numbers of the other buffers that have some of the same memory.
    pub others: Vec<usize>,
}

/// Bytes that all banks of shared memory deliver together.
const WAVEFRONT: i64 = 128;
/// Shorter rows are not padded: they would grow by too much.
const PADDED: i64 = 64;

/// A buffer before it has a place.
struct Plan {
    op: OpId,
    value: Value,
    extents: Vec<i64>,
    strides: Vec<i64>,
    bytes: u32,
    align: u32,
    /// The first and the last op while it is in use, in program order.
    live: (usize, usize),
    /// Bytes behind the last element that atomics on it read.
    rest: Range<u32>,
}

fn plans(func: &StagedFunc, padded: bool) -> Vec<Plan> {
    let ops = func.walk();
    let order: BTreeMap<OpId, usize> = ops.iter().enumerate().map(|(i, &id)| (id, i)).collect();
    // The last op inside each op.
    let mut ends = order.clone();
    for &id in ops.iter().rev() {
        if let Some(parent) = func.blocks[func.ops[id].block].parent {
            let end = ends[&id].max(ends[&parent]);
            ends.insert(parent, end);
        }
    }
    let mut out = Vec::new();
    for &op in ops.iter().filter(|&&id| func.ops[id].code == StagedOp::Tile(TileOp::BufAlloc)) {
        let value = func.ops[op].result();
        let (block, ty) = (func.ops[op].block, func.ty(value));
        let mut last = order[&op];
        for &user in ops.iter().filter(|&&id| func.ops[id].operands.contains(&value)) {
            let mut at = user;
            while func.ops[at].block != block {
                match func.blocks[func.ops[at].block].parent {
                    Some(parent) => at = parent,
                    None => break,
                }
            }
            last = last.max(ends[&at]);
        }
        let extents = ty.static_shape().unwrap_or_default();
        // Atomics on bytes access the whole word: no word may be partly padding, but the last.
        let in_words = ty.dtype().bytes() == 1 && has_atomics(func, value);
        let (strides, bytes) = strides(&extents, ty.dtype().bytes() as i64, padded && !in_words);
        let requested = func.ops[op].attr("alignment").and_then(Attr::as_int).unwrap_or(1);
        let align = u32::try_from(requested).unwrap_or(ALIGN).clamp(ALIGN, 1024);
        let (used, live) = (bytes as u32, (order[&op], last));
        let bytes = used.next_multiple_of(WIDEST);
        let rest = if in_words { used..used.next_multiple_of(4) } else { 0..0 };
        out.push(Plan { op, value, extents, strides, bytes, align, live, rest });
    }
    out
}

fn has_atomics(func: &StagedFunc, buffer: Value) -> bool {
    let changes = |&id: &OpId| {
        let op = &func.ops[id];
        op.code == StagedOp::Tile(TileOp::Atomic) && op.operands[0] == buffer
    };
    func.walk().iter().any(changes)
}

/// The strides of a buffer in bytes, and its size.
fn strides(extents: &[i64], bytes: i64, padded: bool) -> (Vec<i64>, i64) {
    let mut strides = vec![bytes; extents.len()];
    let mut size = bytes;
    for axis in (0..extents.len()).rev() {
        strides[axis] = size;
        size *= extents[axis];
        let is_row = axis + 1 == extents.len() && axis > 0;
        if is_row && padded && size >= PADDED {
            size = (size as u64).next_multiple_of(WIDEST.into()) as i64;
            if size % WAVEFRONT == 0 {
                size += i64::from(WIDEST);
            }
        }
    }
    (strides, size)
}

/// The offset of each plan, and the bytes of all.
fn pack(plans: &[Plan]) -> (Vec<u32>, u32) {
    let mut offsets: Vec<u32> = Vec::new();
    let mut all = 0;
    for (i, plan) in plans.iter().enumerate() {
        let mut taken: Vec<(u32, u32)> = (0..i)
            .filter(|&j| overlap(plan.live, plans[j].live))
            .map(|j| (offsets[j], offsets[j] + plans[j].bytes))
            .collect();
        taken.sort_unstable();
        let mut at = 0u32;
        for (from, end) in taken {
            if at + plan.bytes > from {
                at = at.max(end.next_multiple_of(plan.align));
            }
        }
        offsets.push(at);
        all = all.max(at + plan.bytes);
    }
    (offsets, all)
}

fn overlap<T: Ord + Copy>(a: (T, T), b: (T, T)) -> bool {
    a.0 <= b.1 && b.0 <= a.1
}

impl Select<'_> {
    /// Gives every buffer of the function its memory.
    pub fn bind_buffers(&mut self) {
        let mut plans_ = plans(self.func, true);
        let (mut offsets, mut bytes) = pack(&plans_);
        if bytes > self.caps.gpu.shared_per_block / 2 {
            plans_ = plans(self.func, false);
            (offsets, bytes) = pack(&plans_);
        }
        if plans_.is_empty() {
            return;
        }
        for plan in &plans_ {
            self.current = Some(plan.op);
            self.takes(plan.bytes);
        }
        let align = plans_.iter().map(|p| p.align).max().unwrap_or(ALIGN);
        let base = self.reserve(bytes, align);
        let first = self.func.params().len();
        for (i, plan) in plans_.iter().enumerate() {
            let range = |j: usize| (offsets[j], offsets[j] + plans_[j].bytes - 1);
            let others = (0..plans_.len()).filter(|&j| j != i && overlap(range(i), range(j)));
            let others = others.map(|j| first + j).collect();
            let rank = plan.extents.len();
            let outer = plan.strides.iter().take(rank.saturating_sub(1));
            let even = outer.fold(i64::from(WIDEST), |all, &stride| all | stride);
            let Type::Buf { dtype, .. } = *self.func.ty(plan.value) else { continue };
            let class = ArrayClass {
                contiguous: 1 << rank.saturating_sub(1),
                align: 1 << even.trailing_zeros(),
                tma_compatible: false,
            };
            let place = Place {
                offset: base + offsets[i],
                extents: plan.extents.clone(),
                strides: plan.strides.clone(),
                others,
            };
            let buffer = Some(Arc::new(place));
            let (param, word) = (first + i, usize::MAX);
            let view = View { param, word, rank, dtype, class, read_only: false, buffer };
            self.set(plan.value, Repr::View(view));
            self.clear_rest(first + i, base + offsets[i], &plan.rest);
        }
    }

    /// Gives the bytes behind a buffer's last element a value, once for all its lives.
    fn clear_rest(&mut self, memory: usize, at: u32, rest: &Range<u32>) {
        if rest.is_empty() {
            return;
        }
        let (first, base) = (self.first_thread(), self.region(Region::Fixed));
        let zero = self.asm.mov(Ty::B16, Opnd::Int(0));
        for byte in rest.clone() {
            self.asm.when(first, true, |asm| {
                let addr = Addr::reg(base, i64::from(at + byte));
                asm.st(Space::Shared, Ty::U8, &[zero.into()], addr, Cache::Usual);
            });
        }
        self.wrote(memory);
    }

    /// A buffer has its memory already; here its life begins.
    pub fn buf_alloc(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let view = self.view(self.func.ops[id].result());
        if let Some(place) = &view.buffer {
            self.inherit_accesses(view.param, &place.others);
        }
        Ok(())
    }

    /// The address of the first element.
    pub fn first_address(&mut self, view: &View) -> Reg {
        let Some(place) = &view.buffer else { return self.word(view.word) };
        let base = self.region(Region::Fixed);
        let offset = Opnd::Int(place.offset.into());
        self.asm.int(Alu::Add, Ty::U32, &[base.into(), offset])
    }

    /// The extent of an axis.
    pub fn limit_along(&mut self, view: &View, axis: usize) -> Opnd {
        match &view.buffer {
            Some(place) => Opnd::Int(place.extents[axis]),
            None => self.extent(view, axis).into(),
        }
    }

    /// The low 32 bits of a number.
    pub fn narrow(&mut self, r: Reg) -> Reg {
        match r.class {
            Class::B64 => self.asm.cvt(Ty::U32, Ty::U64, None, r),
            _ => r,
        }
    }
}
