//! The group's shared memory: buffers of the kernel, and scratch memory for group operations.

use super::Lanes;
use super::memory::Memory;
use crate::inst::*;
use crate::module::DYNAMIC_SHARED;
use crate::scalar::carrier;
use tessera_ir::{Attr, Value};
use tessera_tile::TileOp;

#[derive(Default)]
pub struct Shared {
    buffers: Vec<(Value, Memory)>,
    /// The offset of the buffers; before them is the scratch memory.
    first: u32,
    bytes: u32,
    /// Threads may still read the scratch memory.
    dirty: bool,
    base: Option<Reg>,
}

impl Shared {
    pub fn buffers(&self) -> Vec<(Value, Memory)> {
        self.buffers.clone()
    }

    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    pub fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub fn swap_dirty(&mut self, dirty: bool) -> bool {
        std::mem::replace(&mut self.dirty, dirty)
    }

    pub fn join_dirty(&mut self, dirty: bool) {
        self.dirty |= dirty;
    }
}

/// The minimum alignment of buffers.
const ALIGN: u32 = 16;

impl Lanes<'_> {
    /// Allocates everything.
    pub fn lay_out_shared(&mut self) {
        let func = self.func;
        let threads = self.asm.kernel.threads;
        let mut room = 0;
        for id in func.walk() {
            let op = &func.ops[id];
            let reported = match op.code {
                TileOp::GroupReduce
                | TileOp::GroupScan
                | TileOp::GroupBroadcast
                | TileOp::GroupShuffle => carrier(self.dtype(op.result())),
                // The value that decides, for threads without a lane.
                TileOp::If | TileOp::For | TileOp::While => {
                    room = if self.uniform.must_agree(func, id) { room.max(8) } else { room };
                    continue;
                }
                _ => continue,
            };
            room = room.max(if reported == Class::B64 { 8 * threads } else { 4 * threads });
        }
        self.shared.first = room.next_multiple_of(ALIGN);
        self.shared.bytes = self.shared.first;
        for id in func.walk() {
            let op = &func.ops[id];
            if op.code != TileOp::BufAlloc {
                continue;
            }
            let ty = func.ty(op.result());
            let shape = ty.static_shape().unwrap_or_default();
            let bytes = shape.iter().product::<i64>().max(0) as u32 * ty.dtype().bytes() as u32;
            let align = op.attr("alignment").and_then(Attr::as_int).unwrap_or(1);
            let align = (align.clamp(1, 1024) as u32).next_power_of_two().max(ALIGN);
            let at = self.shared.bytes.next_multiple_of(align);
            self.shared.bytes = (at + bytes).next_multiple_of(ALIGN);
            self.shared.buffers.push((op.result(), Memory::buffer(ty, at as usize)));
        }
    }

    /// The start address of the group's memory.
    pub fn shared_base(&mut self) -> Reg {
        if let Some(base) = self.shared.base {
            return base;
        }
        let base = self.at_head(|me| me.asm.address_of(DYNAMIC_SHARED));
        self.shared.base = Some(base);
        base
    }

    /// Buffers are zero-initialised, as on the CPU: reads of unwritten elements are the same in
    /// every run.
    pub fn clear_shared(&mut self) {
        let (first, end) = (self.shared.first, self.shared.bytes);
        if first == end {
            return;
        }
        let threads = self.asm.kernel.threads;
        let stride = i64::from(threads * ALIGN);
        let tid = self.special(Special::TidX);
        let base = self.shared_base();
        let own = self.asm.int(Alu::Shl, Ty::B32, &[tid.into(), Opnd::Int(4)]);
        let at = self.asm.mov(Ty::B32, own);
        let [again, done] = [self.asm.label(), self.asm.label()];
        let size = Opnd::Int((end - first).into());
        let none = self.asm.setp(Cmp::Ge, Ty::U32, at, size);
        self.asm.bra_if(none, true, done);
        self.asm.place(again);
        let address = self.asm.int(Alu::Add, Ty::U32, &[base.into(), at.into()]);
        let zero: Vec<Opnd> =
            (0..4).map(|_| Opnd::Reg(self.asm.mov(Ty::B32, Opnd::Int(0)))).collect();
        let to = Addr::reg(address, first.into());
        self.asm.st(Space::Shared, Ty::B32, &zero, to, Cache::Usual);
        let next = self.asm.int(Alu::Add, Ty::U32, &[at.into(), Opnd::Int(stride)]);
        self.asm.mov_to(Ty::B32, at, next);
        let more = self.asm.setp(Cmp::Lt, Ty::U32, at, size);
        self.asm.bra_if(more, true, again);
        self.asm.place(done);
        self.asm.barrier();
    }

    /// Synchronises all lanes of the group.
    pub fn synchronise(&mut self) {
        self.asm.barrier();
        self.shared.dirty = false;
    }

    /// Makes sure that no thread still reads the scratch memory.
    pub fn claim_room(&mut self) {
        if self.shared.dirty {
            self.synchronise();
        }
    }

    /// The scratch memory may be read from now on until the next barrier.
    pub fn read_room(&mut self) {
        self.shared.dirty = true;
    }
}
