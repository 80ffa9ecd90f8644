//! Sorts along an axis, as a bitonic network over the registers of all threads: between registers
//! of a thread without moving anything, between lanes by shuffles, between warps through shared
//! memory. The layout of the result numbers positions by register, lane and warp.
//!
//! Elements become unsigned integers of the same order (`sort_keys`), so that a comparison of two
//! is a minimum and a maximum. Where only zeros show which of two equal elements came first, the
//! keys of zeros hold their places. Where the places themselves are wanted, keys are followed by
//! places, or sorted digit by digit (`sort_digits`).

use super::{Repr, Select};
use crate::inst::*;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Value};
use tessera_layout::{In, Layout};
use tessera_numerics::{DType, Profile};
use tessera_staged::StagedOp;
use tessera_tile::TileOp;

/// The bits of register numbers from which keys with places are sorted in several digits.
const DIVIDED: usize = 3;

/// What the network compares.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Keys {
    /// One word of 32 bits, or of 64.
    One(Ty),
    /// A key of 32 bits above the place, in one word of 64.
    Joined,
    /// A key of 64 bits, and the place in a register of its own.
    Pair,
}

/// One element: a word, or a key and its place.
pub type Entry = Vec<Reg>;

/// The threads and registers that exchange in one step.
#[derive(Copy, Clone, Default, Debug)]
struct Partner {
    /// By how much register numbers, lanes and warps differ, as masks.
    reg: u32,
    lane: u32,
    warp: u32,
}

/// Where the bits of a position are.
pub struct Network {
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

    /// How many bits a position has.
    pub fn len(&self) -> u32 {
        self.bits.len() as u32
    }

    /// How many of them are numbers of registers.
    fn in_registers(&self) -> usize {
        self.bits.iter().filter(|(input, _)| *input == In::Reg).count()
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
        let sort = Sort { id, axis, dtype, held: self.held_before(x), descending, network };
        // Which NaN is which shows in `strict` alone.
        if wants_places || dtype.is_float() && self.profile == Profile::Strict {
            let (keys, at) = match sort.divides() {
                true => (None, self.sort_by_digits(&sort, &from, &xs)),
                false => self.sort_with_places(&sort, &from, &xs),
            };
            if wants_values {
                let values = self.elements_of(&sort, (&from, &xs), keys, &at);
                self.set(sorted, Repr::Tile(values));
            }
            self.set(places, Repr::Tile(at));
            return Ok(());
        }
        let values = self.sort_alone(&sort, &from, &xs);
        self.set(sorted, Repr::Tile(values));
        self.set(places, Repr::Splat(zero));
        Ok(())
    }

    /// The dtype that elements had before they were converted to a wider one: all have few bits then.
    fn held_before(&self, v: Value) -> DType {
        let func = self.func;
        let wide = self.dtype(v);
        let mut v = v;
        while let Some(op) = func.def(v).filter(|op| op.code == StagedOp::ConvertLayout) {
            v = op.operands[0];
        }
        let cast = func.def(v).filter(|op| op.code == StagedOp::Tile(TileOp::Cast));
        let narrow = cast.map(|op| self.dtype(op.operands[0]));
        // Floats of fewer bytes are numbers of f32, and such integers of i32.
        let exact = |n: &DType| {
            let alike = n.is_float() == wide.is_float() && *n != DType::Bool;
            alike && n.bytes() < 4 && matches!(wide, DType::F32 | DType::I32)
        };
        narrow.filter(exact).unwrap_or(wide)
    }

    /// Whether a register holds an element, or padding: `Ok` where all threads agree.
    pub(super) fn held(&mut self, layout: &Layout, axis: usize, reg: usize) -> Result<bool, Reg> {
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
    fn sort_alone(&mut self, s: &Sort, from: &Arc<Layout>, xs: &[Reg]) -> Vec<Reg> {
        let keys = self.sort_keys(s, from, xs);
        let mut entries: Vec<Entry> = keys.into_iter().map(|key| vec![key]).collect();
        self.run_network(s, Keys::One(s.key_type()), &mut entries);
        entries.into_iter().map(|e| self.unkey(s, e[0])).collect()
    }

    /// A key, or the last of all where there is no element.
    pub(super) fn or_last(&mut self, ty: Ty, held: Result<bool, Reg>, key: Reg) -> Reg {
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
    ) -> (Option<Vec<Reg>>, Vec<Reg>) {
        let keys = if s.key_type() == Ty::U64 { Keys::Pair } else { Keys::Joined };
        let mut entries = Vec::new();
        for (reg, key) in self.tied_keys(s, from, xs, false).into_iter().enumerate() {
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
        let (keys, places): (Vec<Reg>, Vec<Reg>) =
            entries.into_iter().map(|e| parts(self, e)).unzip();
        ((!s.dtype.is_float()).then_some(keys), places)
    }

    /// The elements that came from these places. A key, where there is one, says which it is; that
    /// of a float does not: zeros of both signs have one, and so has every NaN.
    fn elements_of(
        &mut self,
        s: &Sort,
        elements: (&Arc<Layout>, &[Reg]),
        keys: Option<Vec<Reg>>,
        at: &[Reg],
    ) -> Vec<Reg> {
        match keys {
            None => self.taken(s, elements, s.dtype, at),
            Some(keys) => keys.into_iter().map(|key| self.unkey(s, key)).collect(),
        }
    }

    /// What other threads hold at these places of the axis, which are inside it (but in padding).
    pub(super) fn taken(
        &mut self,
        s: &Sort,
        (from, xs): (&Arc<Layout>, &[Reg]),
        dtype: DType,
        at: &[Reg],
    ) -> Vec<Reg> {
        let to = self.layout(self.func.ops[s.id].results[0]);
        let shape = to.shape().to_vec();
        let bytes = dtype.bytes() as u32;
        let m = self.spread(from, dtype, xs);
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
                    out.push(self.zero(dtype));
                    continue;
                }
                valid => valid.err(),
            };
            let x = self.load_run(Space::Shared, dtype, Addr::reg(addr, 0), 1, when, Cache::Usual);
            out.push(x[0]);
        }
        self.reading(m.region);
        out
    }

    pub(super) fn run_network(&mut self, s: &Sort, keys: Keys, entries: &mut [Entry]) {
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
pub struct Sort {
    pub id: OpId,
    pub axis: usize,
    pub dtype: DType,
    /// The same, or a narrower one that has every element.
    pub held: DType,
    pub descending: bool,
    pub network: Network,
}

impl Sort {
    /// Whether keys with places are sorted digit by digit. Where one digit holds the key, that is
    /// the cheapest. Else more words go through the network one after another, each with 2
    /// instructions for a pair of a thread instead of 6; a pair in different lanes gains nothing.
    fn divides(&self) -> bool {
        self.digits() == 1 || self.network.in_registers() >= DIVIDED
    }
}

fn class_bytes(class: Class) -> i64 {
    if class == Class::B64 { 8 } else { 4 }
}
