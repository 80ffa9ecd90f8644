//! Group operations of lanes: reductions, scans, broadcasts, shuffles. Lanes that do not exist
//! contribute the operator's identity; they are the last where lanes have one axis. Warps combine by shuffles and exchange partial
//! results through shared memory.

use super::lane_control::bits_of;
use super::{Lanes, Repr};
use crate::caps::Feature;
use crate::inst::*;
use crate::scalar::carrier;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId};
use tessera_numerics::{DType, LANES, Profile, ReduceOp};

/// All lanes of the warp, as one segment.
const ALL: Opnd = Opnd::Int(-1);
const WHOLE: Opnd = Opnd::Int(31);
/// For `Up` the segment's bound is the lowest lane.
const BEGIN: Opnd = Opnd::Int(0);

/// A group operation: the operand and the operator.
#[derive(Copy, Clone)]
pub struct Join {
    pub id: OpId,
    pub op: ReduceOp,
    pub dtype: DType,
}

impl Lanes<'_> {
    fn join(&self, id: OpId) -> Join {
        let op = &self.func.ops[id];
        let name = op.attr("op").and_then(Attr::as_word).unwrap_or("sum");
        let dtype = self.dtype(op.operands[0]);
        Join { id, op: ReduceOp::from_name(name).unwrap_or(ReduceOp::Sum), dtype }
    }

    fn combine(&mut self, j: Join, a: Reg, b: Reg) -> Result<Reg, Diagnostics> {
        let made = self.scalars().combine(j.op, j.dtype, a, b);
        self.sure(j.id, made)
    }

    /// Whether the order of the lanes shows in the result and must be the canonical one.
    fn is_ordered(&self, j: Join) -> bool {
        let sums = matches!(j.op, ReduceOp::Sum | ReduceOp::Prod);
        sums && j.dtype.is_float() && self.profile == Profile::Strict
    }

    fn warps(&self) -> u32 {
        self.asm.kernel.threads / 32
    }

    /// The operand in lanes that exist, and the identity in the others.
    fn given(&mut self, j: Join) -> Reg {
        let x = self.one(self.func.ops[j.id].operands[0]);
        match self.guard.clone() {
            None => x,
            Some(guard) => {
                let nothing = self.scalars().identity(j.op, j.dtype);
                self.scalars().select(j.dtype, guard[0], x, nothing)
            }
        }
    }

    /// Bits that a shuffle can move: predicates are converted.
    fn word_of(&mut self, dtype: DType, x: Reg) -> Reg {
        match carrier(dtype) {
            Class::Pred => self.asm.selp(Ty::B32, x, Opnd::Int(1), Opnd::Int(0)),
            _ => x,
        }
    }

    fn value_of(&mut self, dtype: DType, x: Reg) -> Reg {
        match carrier(dtype) {
            Class::Pred => self.asm.setp(Cmp::Ne, Ty::U32, x, Opnd::Int(0)),
            _ => x,
        }
    }

    /// The value of another lane of the warp.
    fn shuffled(&mut self, kind: Shfl, dtype: DType, x: Reg, b: Opnd) -> Reg {
        let c = if kind == Shfl::Up { BEGIN } else { WHOLE };
        let word = self.word_of(dtype, x);
        let move_one = |me: &mut Self, a: Reg| {
            let d = me.asm.reg(Class::B32);
            me.asm.emit(Inst::Shfl { kind, d, ok: None, a: a.into(), b, c, mask: ALL });
            d
        };
        let out = match word.class {
            Class::B64 => {
                let halves = self.asm.unpack(Class::B32, 2, word);
                let halves: Vec<Reg> = halves.into_iter().map(|h| move_one(self, h)).collect();
                self.asm.pack(Class::B64, &halves)
            }
            _ => move_one(self, word),
        };
        self.value_of(dtype, out)
    }

    /// The address of a thread's place, or of another index, in the scratch memory for group
    /// operations.
    fn room_at(&mut self, dtype: DType, number: Reg) -> Reg {
        let shift = if carrier(dtype) == Class::B64 { 3 } else { 2 };
        let base = self.shared_base();
        let far = self.asm.int(Alu::Shl, Ty::B32, &[number.into(), Opnd::Int(shift)]);
        self.asm.int(Alu::Add, Ty::U32, &[base.into(), far.into()])
    }

    fn put(&mut self, dtype: DType, addr: Addr, x: Reg, when: Option<Reg>) {
        let word = self.word_of(dtype, x);
        let ty = bits_of(word.class);
        self.asm.maybe(when, |asm| asm.st(Space::Shared, ty, &[word.into()], addr, Cache::Usual));
    }

    /// Loads; zero where the condition does not hold.
    fn take(&mut self, dtype: DType, addr: Addr, when: Option<Reg>) -> Reg {
        let class = match carrier(dtype) {
            Class::B64 => Class::B64,
            _ => Class::B32,
        };
        let (space, ty, cache, sem, scope) =
            (Space::Shared, bits_of(class), Cache::Usual, Sem::Weak, Scope::Gpu);
        let d = self.asm.reg(class);
        if when.is_some() {
            self.asm.mov_to(ty, d, Opnd::Int(0));
        }
        self.asm.maybe(when, |asm| {
            asm.emit(Inst::Ld { space, ty, d: vec![d], addr, cache, sem, scope });
        });
        self.value_of(dtype, d)
    }

    fn bytes_in_room(dtype: DType) -> i64 {
        if carrier(dtype) == Class::B64 { 8 } else { 4 }
    }

    pub fn in_warp(&mut self) -> Reg {
        let tid = self.special(Special::TidX);
        self.asm.int(Alu::And, Ty::B32, &[tid.into(), WHOLE])
    }

    fn warp(&mut self) -> Reg {
        let tid = self.special(Special::TidX);
        self.asm.int(Alu::Shr, Ty::U32, &[tid.into(), Opnd::Int(5)])
    }

    /// Every lane writes its value where all can read it.
    fn publish(&mut self, dtype: DType, x: Reg) {
        self.claim_room();
        let tid = self.special(Special::TidX);
        let at = self.room_at(dtype, tid);
        self.put(dtype, Addr::reg(at, 0), x, None);
        self.synchronise();
        self.read_room();
    }

    /// The value of the group's first lane, in all threads of the block. All must come here, but for
    /// lanes that were stopped: then the others end.
    pub fn of_first_lane(&mut self, dtype: DType, x: Reg) -> Reg {
        if self.warps() == 1 {
            self.poll();
            return self.shuffled(Shfl::Idx, dtype, x, Opnd::Int(0));
        }
        let tid = self.special(Special::TidX);
        let own = self.asm.setp(Cmp::Eq, Ty::U32, tid, Opnd::Int(0));
        self.claim_room();
        let at = self.shared_base();
        self.put(dtype, Addr::reg(at, 0), x, Some(own));
        self.synchronise();
        self.poll();
        let out = self.take(dtype, Addr::reg(at, 0), None);
        self.read_room();
        out
    }

    pub fn group_reduce(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let j = self.join(id);
        let x = self.given(j);
        let out = if self.is_ordered(j) { self.reduce_in_order(j, x)? } else { self.reduce(j, x)? };
        self.set(self.func.ops[id].result(), Repr::One(out));
        Ok(())
    }

    fn reduce(&mut self, j: Join, x: Reg) -> Result<Reg, Diagnostics> {
        let x = self.reduce_warp(j, x)?;
        let warps = self.warps();
        if warps == 1 {
            return Ok(x);
        }
        self.claim_room();
        let (lane, warp) = (self.in_warp(), self.warp());
        let first = self.asm.setp(Cmp::Eq, Ty::U32, lane, Opnd::Int(0));
        let at = self.room_at(j.dtype, warp);
        self.put(j.dtype, Addr::reg(at, 0), x, Some(first));
        self.synchronise();
        let at = self.room_at(j.dtype, lane);
        let there =
            (warps < 32).then(|| self.asm.setp(Cmp::Lt, Ty::U32, lane, Opnd::Int(warps.into())));
        let mut all = self.take(j.dtype, Addr::reg(at, 0), there);
        self.read_room();
        if let Some(there) = there {
            let nothing = self.scalars().identity(j.op, j.dtype);
            all = self.scalars().select(j.dtype, there, all, nothing);
        }
        self.reduce_warp(j, all)
    }

    /// All lanes of the warp get the result.
    pub fn reduce_warp(&mut self, j: Join, mut x: Reg) -> Result<Reg, Diagnostics> {
        if let Some((op, ty)) = self.redux(j) {
            let d = self.asm.reg(Class::B32);
            self.asm.emit(Inst::Redux { op, ty, d, a: x.into(), mask: ALL });
            return Ok(d);
        }
        for far in [16, 8, 4, 2, 1] {
            let y = self.shuffled(Shfl::Bfly, j.dtype, x, Opnd::Int(far));
            x = self.combine(j, x, y)?;
        }
        Ok(x)
    }

    /// The `redux` instruction, where there is one.
    fn redux(&self, j: Join) -> Option<(AtomOp, Ty)> {
        let signed = match j.dtype {
            DType::I32 => Ty::S32,
            DType::U32 => Ty::U32,
            _ => return None,
        };
        if !self.caps.has(Feature::Redux) {
            return None;
        }
        Some(match j.op {
            ReduceOp::Sum => (AtomOp::Add, signed),
            ReduceOp::Max => (AtomOp::Max, signed),
            ReduceOp::Min => (AtomOp::Min, signed),
            ReduceOp::And => (AtomOp::And, Ty::B32),
            ReduceOp::Or => (AtomOp::Or, Ty::B32),
            ReduceOp::Xor => (AtomOp::Xor, Ty::B32),
            ReduceOp::Prod => return None,
        })
    }

    /// The canonical order of LANGUAGE 14: lane `i` into partial result `i mod 64`, then a tree.
    /// Every warp does it for itself; a lane has the partial results `i` and `i + 32`.
    fn reduce_in_order(&mut self, j: Join, x: Reg) -> Result<Reg, Diagnostics> {
        self.publish(j.dtype, x);
        let lane = self.in_warp();
        let at = self.room_at(j.dtype, lane);
        let (bytes, threads) = (Self::bytes_in_room(j.dtype), i64::from(self.asm.kernel.threads));
        let mut parts = Vec::new();
        for begin in [0, 32] {
            let mut sum = None;
            for i in (begin..threads).step_by(LANES) {
                let x = self.take(j.dtype, Addr::reg(at, i * bytes), None);
                sum = Some(match sum {
                    None => x,
                    Some(sum) => self.combine(j, sum, x)?,
                });
            }
            parts.extend(sum);
        }
        // Missing lanes contribute the identity, which changes nothing.
        let mut sum = match parts[..] {
            [low, high] => self.combine(j, low, high)?,
            _ => parts[0],
        };
        for far in [16, 8, 4, 2, 1] {
            let y = self.shuffled(Shfl::Bfly, j.dtype, sum, Opnd::Int(far));
            sum = self.combine(j, sum, y)?;
        }
        Ok(sum)
    }

    pub fn group_scan(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let j = self.join(id);
        let op = &self.func.ops[id];
        let exclusive = op.attr("exclusive").and_then(Attr::as_bool) == Some(true);
        let x = self.given(j);
        let out = match self.is_ordered(j) {
            true => self.scan_in_order(j, x, exclusive)?,
            false => self.scan(j, x, exclusive)?,
        };
        self.set(op.result(), Repr::One(out));
        Ok(())
    }

    fn scan(&mut self, j: Join, mut x: Reg, exclusive: bool) -> Result<Reg, Diagnostics> {
        let lane = self.in_warp();
        let nothing = self.scalars().identity(j.op, j.dtype);
        for far in [1, 2, 4, 8, 16] {
            let before = self.shuffled(Shfl::Up, j.dtype, x, Opnd::Int(far));
            let with = self.combine(j, before, x)?;
            let some = self.asm.setp(Cmp::Ge, Ty::U32, lane, Opnd::Int(far));
            x = self.scalars().select(j.dtype, some, with, x);
        }
        let own = x;
        if exclusive {
            let before = self.shuffled(Shfl::Up, j.dtype, x, Opnd::Int(1));
            let some = self.asm.setp(Cmp::Gt, Ty::U32, lane, Opnd::Int(0));
            x = self.scalars().select(j.dtype, some, before, nothing);
        }
        if self.warps() == 1 {
            return Ok(x);
        }
        // Combines the results of the warps before.
        self.claim_room();
        let warp = self.warp();
        let last = self.asm.setp(Cmp::Eq, Ty::U32, lane, WHOLE);
        let at = self.room_at(j.dtype, warp);
        self.put(j.dtype, Addr::reg(at, 0), own, Some(last));
        self.synchronise();
        let at = self.room_at(j.dtype, lane);
        let earlier = self.asm.setp(Cmp::Lt, Ty::U32, lane, warp);
        let before = self.take(j.dtype, Addr::reg(at, 0), Some(earlier));
        self.read_room();
        let before = self.scalars().select(j.dtype, earlier, before, nothing);
        let before = self.reduce_warp(j, before)?;
        self.combine(j, before, x)
    }

    /// Sequentially: the first thread scans all lanes.
    fn scan_in_order(&mut self, j: Join, x: Reg, exclusive: bool) -> Result<Reg, Diagnostics> {
        const BATCH: i64 = 4;
        self.publish(j.dtype, x);
        let tid = self.special(Special::TidX);
        let bytes = Self::bytes_in_room(j.dtype);
        let [again, done] = [self.asm.label(), self.asm.label()];
        let others = self.asm.setp(Cmp::Ne, Ty::U32, tid, Opnd::Int(0));
        // The first lane is combined with the identity, so that it needs no special case.
        let nothing = self.scalars().identity(j.op, j.dtype);
        let sum = self.asm.mov(bits_of(nothing.class), nothing);
        let start = self.shared_base();
        let at = self.asm.mov(Ty::B32, start);
        let Some(present) = self.ids.present else { unreachable!("groups know their lanes") };
        let present = self.asm.cvt(Ty::U32, Ty::U64, None, present);
        let end = self.room_at(j.dtype, present);
        self.asm.bra_if(others, true, done);
        self.asm.place(again);
        let places: Vec<Addr> = (0..BATCH).map(|i| Addr::reg(at, i * bytes)).collect();
        let xs: Vec<Reg> = places.iter().map(|p| self.take(j.dtype, p.clone(), None)).collect();
        let mut before = sum;
        for (place, x) in places.into_iter().zip(xs) {
            let with = self.combine(j, before, x)?;
            self.put(j.dtype, place, if exclusive { before } else { with }, None);
            before = with;
        }
        self.asm.mov_to(bits_of(sum.class), sum, before);
        let next = self.asm.int(Alu::Add, Ty::U32, &[at.into(), Opnd::Int(BATCH * bytes)]);
        self.asm.mov_to(Ty::B32, at, next);
        let more = self.asm.setp(Cmp::Lt, Ty::U32, at, end);
        self.asm.bra_if(more, true, again);
        self.asm.place(done);
        self.synchronise();
        let own = self.room_at(j.dtype, tid);
        let out = self.take(j.dtype, Addr::reg(own, 0), None);
        self.read_room();
        Ok(out)
    }

    /// Whether the source lane exists.
    fn is_there(&mut self, src: Reg) -> Reg {
        let Some(present) = self.ids.present else { unreachable!("groups know their lanes") };
        let there = self.asm.setp(Cmp::Lt, Ty::U64, src, present);
        match self.is_in_rows(src) {
            Some(row) => self.and(there, row),
            None => there,
        }
    }

    pub fn group_broadcast(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let dtype = self.dtype(op.result());
        // `tile-check` refuses a source that differs between lanes.
        if self.warps() == 1 || self.uniform.varies(op.operands[1]) {
            return self.group_shuffle(id);
        }
        let [x, src] = [0, 1].map(|i| self.one(op.operands[i]));
        let Repr::One(local) = self.ids.local else { unreachable!("a thread has one lane here") };
        let there = self.is_there(src);
        let own = self.asm.setp(Cmp::Eq, Ty::S64, src, local);
        let own = self.and(own, there);
        self.claim_room();
        let at = self.shared_base();
        self.put(dtype, Addr::reg(at, 0), x, Some(own));
        self.synchronise();
        let out = self.take(dtype, Addr::reg(at, 0), Some(there));
        self.read_room();
        let out = self.or_zero(dtype, there, out);
        self.set(op.result(), Repr::One(out));
        Ok(())
    }

    /// Zero where a lane does not exist. A word of zero is zero in every carrier.
    fn or_zero(&mut self, dtype: DType, there: Reg, x: Reg) -> Reg {
        let zero = self.zero(dtype);
        self.scalars().select(dtype, there, x, zero)
    }

    pub fn group_shuffle(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let dtype = self.dtype(op.result());
        let [x, src] = [0, 1].map(|i| self.one(op.operands[i]));
        if self.warps() == 1 {
            return self.shuffle_warp(id, x, src);
        }
        self.publish(dtype, x);
        let there = self.is_there(src);
        let number = self.asm.cvt(Ty::U32, Ty::U64, None, src);
        let at = self.room_at(dtype, number);
        let out = self.take(dtype, Addr::reg(at, 0), Some(there));
        let out = self.or_zero(dtype, there, out);
        self.set(op.result(), Repr::One(out));
        Ok(())
    }

    /// In a group of one warp.
    fn shuffle_warp(&mut self, id: OpId, x: Reg, src: Reg) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let dtype = self.dtype(op.result());
        let there = self.is_there(src);
        let number = self.asm.cvt(Ty::U32, Ty::U64, None, src);
        let out = self.shuffled(Shfl::Idx, dtype, x, number.into());
        let out = self.or_zero(dtype, there, out);
        self.set(op.result(), Repr::One(out));
        Ok(())
    }
}
