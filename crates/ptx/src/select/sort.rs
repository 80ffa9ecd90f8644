//! Sorts along an axis, as a bitonic network over the registers of all threads: between registers
//! of a thread without moving anything, between lanes by shuffles, between warps through shared
//! memory. The layout of the result numbers positions by register, lane and warp.
//!
//! Elements become unsigned integers of the same order (`Keys`), so that a comparison of two is a
//! minimum and a maximum. Where the network cannot see which of two equal elements came first but
//! the result shows it, they are followed by their places.

use super::{Repr, Select};
use crate::inst::*;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Value};
use tessera_layout::{In, Layout};
use tessera_numerics::{DType, Profile};

/// What the network compares.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Keys {
    /// One word of 32 bits, or of 64.
    One(Ty),
    /// A key of 32 bits above the place, in one word of 64.
    Joined,
    /// A key of 64 bits, and the place in a register of its own.
    Pair,
}

/// One element: a word, or a key and its place.
type Entry = Vec<Reg>;

/// The threads and registers that exchange in one step.
#[derive(Copy, Clone, Default, Debug)]
struct Partner {
    /// By how much register numbers, lanes and warps differ, as masks.
    reg: u32,
    lane: u32,
    warp: u32,
}

/// Where the bits of a position are.
struct Network {
    bits: Vec<(In, u32)>,
}

impl Network {
    /// `None` where the layout is none of [`Layout::ascending`].
    fn of(layout: &Layout, axis: usize) -> Option<Network> {
        let layout = layout.folded();
        let up = layout.ascending(axis)?;
        if up != layout {
            return None;
        }
        let mut bits = Vec::new();
        for input in [In::Reg, In::Lane, In::Warp] {
            let moving = layout.bases(input).iter().enumerate().filter(|(_, b)| b[axis] != 0);
            bits.extend(moving.map(|(bit, _)| (input, bit as u32)));
        }
        Some(Network { bits })
    }

    /// The partner of a position that differs in these bits.
    fn partner(&self, mask: u32) -> Partner {
        let mut out = Partner::default();
        for (i, &(input, bit)) in self.bits.iter().enumerate() {
            if mask >> i & 1 == 1 {
                match input {
                    In::Reg => out.reg |= 1 << bit,
                    In::Lane => out.lane |= 1 << bit,
                    _ => out.warp |= 1 << bit,
                }
            }
        }
        out
    }

    /// The steps of the network: the positions that are compared differ in `mask`, and the lower
    /// has a zero in its highest bit. Every comparison puts the smaller one first: a run and the
    /// next one, reversed, are merged from their ends (the first step of a level), and halves after
    /// that.
    fn steps(&self) -> Vec<(u32, u32)> {
        let mut out = Vec::new();
        for level in 1..=self.bits.len() as u32 {
            out.push(((1 << level) - 1, level - 1));
            out.extend((0..level - 1).rev().map(|bit| (1 << bit, bit)));
        }
        out
    }
}

impl Select<'_> {
    pub fn sort(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let axis = self.axis(id);
        let (x, [sorted, places]) = (op.operands[0], [op.results[0], op.results[1]]);
        let descending = op.attr("descending").and_then(Attr::as_bool) == Some(true);
        let dtype = self.dtype(x);
        let to = self.layout(sorted);
        let Some(network) = Network::of(&to, axis) else {
            return self.unsupported(id, format!("{to} is not divided to sort along {axis}"));
        };
        let mut from = self.layout(x);
        let mut xs = self.regs(x);
        // The order in which a row comes does not matter, so nothing moves where the same registers
        // hold it.
        if from.ascending(axis).as_ref() != Some(&to.folded()) {
            let Some(moved) = self.relaid((&from, &xs), &to, dtype) else {
                return self.unsupported(id, "a sort does not go across the blocks of a cluster");
            };
            (from, xs) = (to.clone(), moved);
        }
        let uses = |v: Value| func.walk().iter().any(|&o| func.ops[o].operands.contains(&v));
        let (wants_values, wants_places) = (uses(sorted), uses(places));
        let zero = self.asm.mov(Ty::B32, Opnd::Int(0));
        if !wants_values && !wants_places {
            let none = self.zero(dtype);
            self.set(sorted, Repr::Splat(none));
            self.set(places, Repr::Splat(zero));
            return Ok(());
        }
        let sort = Sort { id, axis, dtype, descending, network };
        if wants_places || self.shows_ties(dtype) && self.profile == Profile::Strict {
            let (keys, at) = self.sort_with_places(&sort, &from, &xs);
            if wants_values {
                let values = self.elements_of(&sort, &from, &xs, &keys, &at);
                self.set(sorted, Repr::Tile(values));
            }
            self.set(places, Repr::Tile(at));
            return Ok(());
        }
        let values = match self.shows_ties(dtype) {
            false => self.sort_keys(&sort, &from, &xs),
            true => self.sort_unless_ties(&sort, &from, &xs),
        };
        self.set(sorted, Repr::Tile(values));
        self.set(places, Repr::Splat(zero));
        Ok(())
    }

    /// Whether elements that compare as equal may have different bits.
    fn shows_ties(&self, dtype: DType) -> bool {
        dtype.is_float()
    }

    /// A type of the key of a dtype.
    fn key_type(dtype: DType) -> Ty {
        if dtype.bytes() > 4 { Ty::U64 } else { Ty::U32 }
    }

    /// The bits of an element as an unsigned integer of the same order; a NaN is above every number.
    /// Zeros of both signs have one key where `ties` says so, and other keys can be undone.
    fn key(&mut self, s: &Sort, x: Reg, ties: bool) -> Reg {
        let wide = Self::key_type(s.dtype) == Ty::U64;
        let (bits, signed, most) = match wide {
            true => (Ty::B64, Ty::S64, 63),
            false => (Ty::B32, Ty::S32, 31),
        };
        let low = if wide { i64::MIN } else { i64::from(i32::MIN) };
        let flip = |me: &mut Self, x: Reg| me.asm.int(Alu::Xor, bits, &[x.into(), Opnd::Int(low)]);
        let mut key = match s.dtype {
            DType::Bool => self.asm.selp(Ty::B32, x, Opnd::Int(1), Opnd::Int(0)),
            DType::U32 | DType::U64 => x,
            dtype if dtype.is_float() => {
                let mut x = x;
                let float = if wide { Ty::F64 } else { Ty::F32 };
                let nan = self.asm.setp(Cmp::Nan, float, x, x);
                if ties {
                    // -0.0 + 0.0 is 0.0, and nothing else changes.
                    let zero = if wide { Opnd::F64(0) } else { Opnd::F32(0) };
                    x = self.asm.float(Alu::Add, float, &[x.into(), zero]);
                }
                // Negative numbers in reverse: all bits change, of others the sign alone.
                let sign = self.asm.int(Alu::Shr, signed, &[x.into(), Opnd::Int(most)]);
                let mask = self.asm.int(Alu::Or, bits, &[sign.into(), Opnd::Int(low)]);
                let key = self.asm.int(Alu::Xor, bits, &[x.into(), mask.into()]);
                let top = if wide { Opnd::Int(-1) } else { Opnd::Int(0xffff_ffff) };
                self.asm.selp(bits, nan, top, key)
            }
            _ => flip(self, x),
        };
        if s.descending {
            key = self.asm.int(Alu::Not, bits, &[key.into()]);
        }
        key
    }

    /// The element of a key.
    fn unkey(&mut self, s: &Sort, key: Reg) -> Reg {
        let wide = Self::key_type(s.dtype) == Ty::U64;
        let (bits, signed, most) =
            if wide { (Ty::B64, Ty::S64, 63) } else { (Ty::B32, Ty::S32, 31) };
        let low = if wide { i64::MIN } else { i64::from(i32::MIN) };
        let key = match s.descending {
            true => self.asm.int(Alu::Not, bits, &[key.into()]),
            false => key,
        };
        match s.dtype {
            DType::Bool => self.asm.setp(Cmp::Ne, Ty::U32, key, Opnd::Int(0)),
            DType::U32 | DType::U64 => key,
            dtype if dtype.is_float() => {
                // A key without its highest bit is a negative number.
                let flipped = self.asm.int(Alu::Not, bits, &[key.into()]);
                let sign = self.asm.int(Alu::Shr, signed, &[flipped.into(), Opnd::Int(most)]);
                let mask = self.asm.int(Alu::Or, bits, &[sign.into(), Opnd::Int(low)]);
                self.asm.int(Alu::Xor, bits, &[key.into(), mask.into()])
            }
            _ => self.asm.int(Alu::Xor, bits, &[key.into(), Opnd::Int(low)]),
        }
    }

    /// Whether a register holds an element, or padding: `Ok` where all threads agree.
    fn held(&mut self, layout: &Layout, axis: usize, reg: usize) -> Result<bool, Reg> {
        let extent = layout.shape()[axis];
        if layout.box_extents()[axis] * layout.repeat()[axis] == extent {
            return Ok(true);
        }
        let c = self.coords(layout, reg as u32)[axis];
        match c.thread {
            None => Ok(c.offset < extent),
            Some(_) if c.offset >= extent => Ok(false),
            Some(t) => Err(self.below(t, extent - c.offset)),
        }
    }

    /// Keys alone; padding comes last.
    fn sort_keys(&mut self, s: &Sort, from: &Arc<Layout>, xs: &[Reg]) -> Vec<Reg> {
        let ty = Self::key_type(s.dtype);
        let mut entries = Vec::new();
        for (reg, &x) in xs.iter().enumerate() {
            let key = self.key(s, x, false);
            let held = self.held(from, s.axis, reg);
            entries.push(vec![self.or_last(ty, held, key)]);
        }
        self.run_network(s, Keys::One(ty), &mut entries);
        entries.into_iter().map(|e| self.unkey(s, e[0])).collect()
    }

    /// A key, or the last of all where there is no element.
    fn or_last(&mut self, ty: Ty, held: Result<bool, Reg>, key: Reg) -> Reg {
        let (bits, last) = match ty {
            Ty::U64 => (Ty::B64, Opnd::Int(-1)),
            _ => (Ty::B32, Opnd::Int(0xffff_ffff)),
        };
        match held {
            Ok(true) => key,
            Ok(false) => self.asm.mov(bits, last),
            Err(p) => self.asm.selp(bits, p, key, last),
        }
    }

    /// Keys with their places, and so in the order of a stable sort: the keys and the places.
    fn sort_with_places(
        &mut self,
        s: &Sort,
        from: &Arc<Layout>,
        xs: &[Reg],
    ) -> (Vec<Reg>, Vec<Reg>) {
        let ty = Self::key_type(s.dtype);
        let keys = if ty == Ty::U64 { Keys::Pair } else { Keys::Joined };
        let mut entries = Vec::new();
        for (reg, &x) in xs.iter().enumerate() {
            let key = self.key(s, x, true);
            let held = self.held(from, s.axis, reg);
            let key = self.or_last(ty, held, key);
            // Padding has places beyond the axis.
            let c = self.coords(from, reg as u32)[s.axis];
            let place = self.coord_value(c);
            entries.push(match keys {
                Keys::Pair => vec![key, place],
                _ => vec![self.asm.pack(Class::B64, &[place, key])],
            });
        }
        self.run_network(s, keys, &mut entries);
        let parts = |me: &mut Self, e: Entry| match e[..] {
            [key, place] => (key, place),
            _ => {
                let parts = me.asm.unpack(Class::B32, 2, e[0]);
                (parts[1], parts[0])
            }
        };
        entries.into_iter().map(|e| parts(self, e)).unzip()
    }

    /// The elements of sorted keys, which came from these places.
    fn elements_of(
        &mut self,
        s: &Sort,
        from: &Arc<Layout>,
        xs: &[Reg],
        keys: &[Reg],
        at: &[Reg],
    ) -> Vec<Reg> {
        match self.shows_ties(s.dtype) {
            // The key does not say which zero or which NaN it was.
            true => self.taken(s, from, xs, at),
            false => keys.iter().map(|&key| self.unkey(s, key)).collect(),
        }
    }

    /// The elements at these places of the axis, which are inside it (but in padding).
    fn taken(&mut self, s: &Sort, from: &Arc<Layout>, xs: &[Reg], at: &[Reg]) -> Vec<Reg> {
        let to = self.layout(self.func.ops[s.id].results[0]);
        let shape = to.shape().to_vec();
        let bytes = s.dtype.bytes() as u32;
        let m = self.spread(from, s.dtype, xs);
        let base = self.smem_base(&m);
        let mut strides = vec![bytes; shape.len()];
        for d in (0..shape.len().saturating_sub(1)).rev() {
            strides[d] = strides[d + 1] * shape[d + 1];
        }
        let mut out = Vec::new();
        for (reg, &place) in at.iter().enumerate() {
            let coords = self.coords(&to, reg as u32);
            let mut addr = base;
            for (d, c) in coords.into_iter().enumerate() {
                let c = if d == s.axis { place } else { self.coord_value(c) };
                let by = Opnd::Int(strides[d].into());
                addr = self.asm.int(Alu::MadLo, Ty::U32, &[c.into(), by, addr.into()]);
            }
            let when = match self.valid(&to, reg as u32) {
                Ok(false) => {
                    out.push(self.zero(s.dtype));
                    continue;
                }
                valid => valid.err(),
            };
            let x =
                self.load_run(Space::Shared, s.dtype, Addr::reg(addr, 0), 1, when, Cache::Usual);
            out.push(x[0]);
        }
        self.reading(m.region);
        out
    }

    /// Floats without their places. Only zeros of both signs differ by the places (which
    /// NaN is which shows in `strict` alone): where a tile has negative zeros the group sorts it
    /// with places, in memory, so that this takes few registers and little code.
    fn sort_unless_ties(&mut self, s: &Sort, from: &Arc<Layout>, xs: &[Reg]) -> Vec<Reg> {
        let wide = s.dtype == DType::F64;
        let (bits, unsigned, low) = match wide {
            true => (Ty::B64, Ty::U64, i64::MIN),
            false => (Ty::B32, Ty::U32, 0x8000_0000),
        };
        let low = self.asm.mov(bits, Opnd::Int(low));
        let mut any: Option<Reg> = None;
        for &x in xs {
            let p = self.asm.setp(Cmp::Eq, unsigned, x, low);
            any = Some(match any {
                None => p,
                Some(q) => self.asm.int(Alu::Or, Ty::Pred, &[p.into(), q.into()]),
            });
        }
        let Some(any) = any else { return Vec::new() };
        let d = self.asm.reg(Class::Pred);
        match self.warps {
            1 => {
                let mask = Opnd::Int(0xffff_ffff);
                let p = Guardless { reg: any, negated: false };
                self.asm.emit(Inst::Vote { kind: Vote::Any, d, p, mask });
            }
            _ => self.asm.emit(Inst::BarRedOr { id: 0, d, p: any }),
        }
        let out: Vec<Reg> = xs.iter().map(|x| self.asm.reg(x.class)).collect();
        let [rare, done] = [self.asm.label(), self.asm.label()];
        let before = self.sync_state();
        self.asm.when(d, true, |asm| asm.emit(Inst::Bra { to: rare, uniform: true }));
        let usual = self.sort_keys(s, from, xs);
        self.move_all(&out, &usual);
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.asm.place(rare);
        let after = self.swap_sync_state(before);
        let values = self.sort_in_memory(s, from, xs);
        self.move_all(&out, &values);
        self.asm.place(done);
        self.join_sync_state(after);
        out
    }

    /// The same network as loops over shared memory. A key is followed by its place, and that by
    /// whether the element is a negative zero.
    fn sort_in_memory(&mut self, s: &Sort, from: &Arc<Layout>, xs: &[Reg]) -> Vec<Reg> {
        let ty = Self::key_type(s.dtype);
        let to = self.layout(self.func.ops[s.id].results[0]);
        // The axis is the last one in memory.
        let sizes: Vec<u32> =
            (0..to.rank()).map(|d| to.box_extents()[d] * to.repeat()[d]).collect();
        let len = sizes[s.axis];
        let mut strides = vec![0; sizes.len()];
        let mut all = len;
        for d in (0..sizes.len()).filter(|&d| d != s.axis) {
            strides[d] = all;
            all *= sizes[d];
        }
        strides[s.axis] = 1;
        let key_bytes = i64::from(ty.bits() / 8);
        let region = self.scratch(all * (key_bytes as u32 + 4));
        let base = self.region(region);
        let below = i64::from(all) * key_bytes;
        // The places of a position: of its key, and of what follows it.
        let addresses = |me: &mut Self, at: Reg| {
            let n = Opnd::Int(key_bytes);
            let key = me.asm.int(Alu::MadLo, Ty::U32, &[at.into(), n, base.into()]);
            let rest = me.asm.int(Alu::MadLo, Ty::U32, &[at.into(), Opnd::Int(4), base.into()]);
            (Addr::reg(key, 0), Addr::reg(rest, below))
        };
        let position = |me: &mut Self, layout: &Layout, reg: usize| {
            let coords = me.coords(layout, reg as u32);
            let mut at = me.asm.mov(Ty::B32, Opnd::Int(0));
            for (d, c) in coords.into_iter().enumerate() {
                let c = me.coord_value(c);
                let by = Opnd::Int(strides[d].into());
                at = me.asm.int(Alu::MadLo, Ty::U32, &[c.into(), by, at.into()]);
            }
            at
        };
        let owner = self.block_owner(from);
        for (reg, &x) in xs.iter().enumerate() {
            let key = self.key(s, x, true);
            let held = self.held(from, s.axis, reg);
            let key = self.or_last(ty, held, key);
            let bits = if ty == Ty::U64 { self.asm.unpack(Class::B32, 2, x)[1] } else { x };
            // Of elements with one key only zeros differ in their signs; those of NaN do not count.
            let sign = self.asm.int(Alu::Shr, Ty::U32, &[bits.into(), Opnd::Int(31)]);
            let c = self.coords(from, reg as u32)[s.axis];
            let place = self.coord_value(c);
            let rest =
                self.asm.int(Alu::MadLo, Ty::U32, &[place.into(), Opnd::Int(2), sign.into()]);
            let at = position(self, from, reg);
            let (to_key, to_rest) = addresses(self, at);
            self.put(to_key, key, owner);
            self.put(to_rest, rest, owner);
        }
        self.block_barrier();
        self.network_in_memory(len, all, ty, &addresses);
        let mut out = Vec::new();
        for reg in 0..to.regs() as usize {
            let at = position(self, &to, reg);
            let (key_at, rest_at) = addresses(self, at);
            let key = self.take(Space::Shared, key_at, ty.class());
            let rest = self.take(Space::Shared, rest_at, Class::B32);
            let x = self.unkey(s, key);
            let sign = self.asm.int(Alu::And, Ty::B32, &[rest.into(), Opnd::Int(1)]);
            let sign = self.asm.int(Alu::Shl, Ty::B32, &[sign.into(), Opnd::Int(31)]);
            // Negative numbers have the sign already.
            out.push(match ty {
                Ty::U64 => {
                    let parts = self.asm.unpack(Class::B32, 2, x);
                    let high = self.asm.int(Alu::Or, Ty::B32, &[parts[1].into(), sign.into()]);
                    self.asm.pack(Class::B64, &[parts[0], high])
                }
                _ => self.asm.int(Alu::Or, Ty::B32, &[x.into(), sign.into()]),
            });
        }
        self.reading(region);
        out
    }

    /// Sorts `all / len` rows in memory; all threads take part, and have synchronised before and
    /// after.
    fn network_in_memory(
        &mut self,
        len: u32,
        all: u32,
        ty: Ty,
        addresses: &dyn Fn(&mut Self, Reg) -> (Addr, Addr),
    ) {
        let threads = Opnd::Int(i64::from(self.warps) * 32);
        let one = Opnd::Int(1);
        let tid = self.tid();
        let level = self.asm.mov(Ty::B32, one);
        let [levels, steps, pairs, next, done] = [0; 5].map(|_| self.asm.label());
        self.asm.place(levels);
        let over = self.asm.setp(Cmp::Gt, Ty::U32, level, Opnd::Int(len.ilog2().into()));
        self.asm.when(over, true, |asm| asm.emit(Inst::Bra { to: done, uniform: true }));
        // The first step of a level compares from the ends, the others with half the distance.
        let less = self.asm.int(Alu::Sub, Ty::U32, &[level.into(), one]);
        let top = self.asm.mov(Ty::B32, less);
        let first = self.asm.mov(Ty::B32, Opnd::Int(2));
        let ends = self.asm.int(Alu::Shl, Ty::B32, &[first.into(), less.into()]);
        let ends = self.asm.int(Alu::Sub, Ty::U32, &[ends.into(), one]);
        let mask = self.asm.mov(Ty::B32, ends);
        self.asm.place(steps);
        let unit = self.asm.mov(Ty::B32, one);
        let unit = self.asm.int(Alu::Shl, Ty::B32, &[unit.into(), top.into()]);
        let low = self.asm.int(Alu::Sub, Ty::U32, &[unit.into(), one]);
        let pair = self.asm.mov(Ty::B32, tid);
        self.asm.place(pairs);
        let over = self.asm.setp(Cmp::Ge, Ty::U32, pair, Opnd::Int((all / 2).into()));
        let [past, swapped] = [self.asm.label(), self.asm.label()];
        self.asm.bra_if(over, true, past);
        let inside = self.asm.int(Alu::And, Ty::B32, &[pair.into(), low.into()]);
        let above = self.asm.int(Alu::Sub, Ty::U32, &[pair.into(), inside.into()]);
        let above = self.asm.int(Alu::Shl, Ty::B32, &[above.into(), one]);
        let a = self.asm.int(Alu::Or, Ty::B32, &[above.into(), inside.into()]);
        let b = self.asm.int(Alu::Xor, Ty::B32, &[a.into(), mask.into()]);
        let (places_a, places_b) = (addresses(self, a), addresses(self, b));
        let read = |me: &mut Self, (key, rest): &(Addr, Addr)| {
            let key = me.take(Space::Shared, key.clone(), ty.class());
            [key, me.take(Space::Shared, rest.clone(), Class::B32)]
        };
        let (x, y) = (read(self, &places_a), read(self, &places_b));
        let less = self.asm.setp(Cmp::Lt, ty, y[0], x[0]);
        let same = self.asm.setp(Cmp::Eq, ty, y[0], x[0]);
        let earlier = self.asm.setp(Cmp::Lt, Ty::U32, y[1], x[1]);
        let tie = self.and(same, earlier);
        let swap = self.asm.int(Alu::Or, Ty::Pred, &[less.into(), tie.into()]);
        self.asm.bra_if(swap, false, swapped);
        for ((key, rest), [k, r]) in [(places_a, y), (places_b, x)] {
            self.put(key, k, None);
            self.put(rest, r, None);
        }
        self.asm.place(swapped);
        let more = self.asm.int(Alu::Add, Ty::U32, &[pair.into(), threads]);
        self.asm.mov_to(Ty::B32, pair, more);
        self.asm.bra(pairs);
        self.asm.place(past);
        self.asm.emit(Inst::WarpSync { mask: Opnd::Int(0xffff_ffff) });
        self.block_barrier();
        let last = self.asm.setp(Cmp::Eq, Ty::U32, top, Opnd::Int(0));
        self.asm.when(last, true, |asm| asm.emit(Inst::Bra { to: next, uniform: true }));
        let smaller = self.asm.int(Alu::Sub, Ty::U32, &[top.into(), one]);
        self.asm.mov_to(Ty::B32, top, smaller);
        let unit = self.asm.mov(Ty::B32, one);
        let unit = self.asm.int(Alu::Shl, Ty::B32, &[unit.into(), smaller.into()]);
        self.asm.mov_to(Ty::B32, mask, unit);
        self.asm.emit(Inst::Bra { to: steps, uniform: true });
        self.asm.place(next);
        let more = self.asm.int(Alu::Add, Ty::U32, &[level.into(), one]);
        self.asm.mov_to(Ty::B32, level, more);
        self.asm.emit(Inst::Bra { to: levels, uniform: true });
        self.asm.place(done);
    }

    fn run_network(&mut self, s: &Sort, keys: Keys, entries: &mut [Entry]) {
        for (mask, top) in s.network.steps() {
            let partner = s.network.partner(mask);
            let (input, bit) = s.network.bits[top as usize];
            if partner.lane == 0 && partner.warp == 0 {
                for reg in 0..entries.len() {
                    let other = reg ^ partner.reg as usize;
                    if reg >> bit & 1 == 0 {
                        let (a, b) = (entries[reg].clone(), entries[other].clone());
                        (entries[reg], entries[other]) = self.in_order(keys, &a, &b);
                    }
                }
                continue;
            }
            // Whether this thread has the lower positions.
            let low = match input {
                In::Lane => {
                    let lane = self.lane();
                    self.none_of(lane, 1 << bit)
                }
                _ => {
                    let warp = self.warp();
                    self.none_of(warp, 1 << bit)
                }
            };
            let others = self.exchange_entries(entries, partner);
            for (own, other) in entries.iter_mut().zip(others) {
                *own = self.kept(keys, low, own, &other);
            }
        }
    }

    /// The entries of the partners of all registers.
    fn exchange_entries(&mut self, entries: &[Entry], partner: Partner) -> Vec<Entry> {
        let of = |reg: usize| &entries[reg ^ partner.reg as usize];
        if partner.warp == 0 {
            let by = Opnd::Int(partner.lane.into());
            return (0..entries.len())
                .map(|reg| of(reg).iter().map(|&x| self.shuffle(Shfl::Bfly, x, by)).collect())
                .collect();
        }
        let threads = i64::from(self.warps) * 32;
        let sizes: Vec<i64> = entries[0].iter().map(|r| class_bytes(r.class)).collect();
        let each: i64 = sizes.iter().sum();
        let region = self.scratch((each * threads * entries.len() as i64) as u32);
        let base = self.region(region);
        let tid = self.tid();
        let mask = Opnd::Int((partner.warp * 32 + partner.lane).into());
        let far = self.asm.int(Alu::Xor, Ty::B32, &[tid.into(), mask]);
        let at = |me: &mut Self, thread: Reg, size: i64| {
            me.asm.int(Alu::MadLo, Ty::U32, &[thread.into(), Opnd::Int(size), base.into()])
        };
        let own: Vec<Reg> = sizes.iter().map(|&size| at(self, tid, size)).collect();
        let theirs: Vec<Reg> = sizes.iter().map(|&size| at(self, far, size)).collect();
        // A plane for each part of each register.
        let plane = |reg: usize, part: usize| {
            let before: i64 = sizes[..part].iter().sum();
            reg as i64 * each * threads + before * threads
        };
        for (reg, entry) in entries.iter().enumerate() {
            for (part, &x) in entry.iter().enumerate() {
                self.put(Addr::reg(own[part], plane(reg, part)), x, None);
            }
        }
        self.block_barrier();
        let out = (0..entries.len())
            .map(|reg| {
                let from = reg ^ partner.reg as usize;
                let part = |me: &mut Self, part: usize| {
                    let addr = Addr::reg(theirs[part], plane(from, part));
                    me.take(Space::Shared, addr, entries[from][part].class)
                };
                (0..sizes.len()).map(|p| part(self, p)).collect()
            })
            .collect();
        self.reading(region);
        out
    }

    /// Two entries of one thread, the smaller first.
    fn in_order(&mut self, keys: Keys, a: &[Reg], b: &[Reg]) -> (Entry, Entry) {
        match keys {
            Keys::One(ty @ Ty::U32) => {
                let [low, high] = [Alu::Min, Alu::Max]
                    .map(|op| vec![self.asm.int(op, ty, &[a[0].into(), b[0].into()])]);
                (low, high)
            }
            _ => {
                let p = self.comes_first(keys, a, b);
                let pick = |me: &mut Self, a: &[Reg], b: &[Reg]| -> Entry {
                    a.iter().zip(b).map(|(&a, &b)| me.choose(p, a, b)).collect()
                };
                (pick(self, a, b), pick(self, b, a))
            }
        }
    }

    /// Of an entry and its partner's the one that this thread keeps: the smaller where it is `low`.
    fn kept(&mut self, keys: Keys, low: Reg, own: &[Reg], other: &[Reg]) -> Entry {
        if keys == Keys::One(Ty::U32) {
            let [least, most] = [Alu::Min, Alu::Max]
                .map(|op| self.asm.int(op, Ty::U32, &[own[0].into(), other[0].into()]));
            return vec![self.asm.selp(Ty::B32, low, least, most)];
        }
        // Equal keys without places are the same element.
        let first = self.comes_first(keys, own, other);
        let keeps = self.asm.int(Alu::Xor, Ty::Pred, &[first.into(), low.into()]);
        own.iter().zip(other).map(|(&own, &other)| self.choose(keeps, other, own)).collect()
    }

    fn comes_first(&mut self, keys: Keys, a: &[Reg], b: &[Reg]) -> Reg {
        match keys {
            Keys::One(ty) => self.asm.setp(Cmp::Lt, ty, a[0], b[0]),
            Keys::Joined => self.asm.setp(Cmp::Lt, Ty::U64, a[0], b[0]),
            Keys::Pair => {
                let less = self.asm.setp(Cmp::Lt, Ty::U64, a[0], b[0]);
                let same = self.asm.setp(Cmp::Eq, Ty::U64, a[0], b[0]);
                let earlier = self.asm.setp(Cmp::Lt, Ty::U32, a[1], b[1]);
                let tie = self.and(same, earlier);
                self.asm.int(Alu::Or, Ty::Pred, &[less.into(), tie.into()])
            }
        }
    }
}

/// One sort.
struct Sort {
    id: OpId,
    axis: usize,
    dtype: DType,
    descending: bool,
    network: Network,
}

fn class_bytes(class: Class) -> i64 {
    if class == Class::B64 { 8 } else { 4 }
}
