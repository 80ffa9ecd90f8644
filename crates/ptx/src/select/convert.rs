//! Layout conversions of tiles, and moves between shared memory and registers.

use super::sync::Smem;
use super::{Repr, Select};
use crate::inst::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{OpId, Value};
use tessera_layout::{Between, In, Layout, Move, Shared, best_between, conversion};
use tessera_numerics::DType;

/// Where a thread's elements are in shared memory.
pub struct Places {
    shared: Arc<Shared>,
    /// The thread's byte offset before the swizzle.
    thread: Option<Reg>,
    base: Reg,
    /// Whether the thread's part and the register's part of an address never share or carry into a
    /// bit.
    clean: bool,
    known: BTreeMap<u32, Reg>,
}

impl Select<'_> {
    /// The start address of shared memory.
    pub fn smem_base(&mut self, m: &Smem) -> Reg {
        let mut base = self.region(m.region);
        if let Some(moving) = m.moving {
            base = self.asm.int(Alu::Add, Ty::U32, &[base.into(), moving.into()]);
        }
        if m.offset > 0 {
            base = self.asm.int(Alu::Add, Ty::U32, &[base.into(), Opnd::Int(m.offset.into())]);
        }
        base
    }

    /// A thread's part of the coordinates as a byte offset in shared memory.
    pub fn thread_bytes(&mut self, coords: &[Option<Reg>], shared: &Shared) -> Option<Reg> {
        let (strides, panel_stride) = shared.strides();
        let mut all: Option<Reg> = None;
        for (place, (&dim, stride)) in shared.order.iter().zip(strides).enumerate() {
            let Some(mut t) = coords[dim] else { continue };
            if place == 0 && shared.blocks > 1 {
                // Each block of the cluster holds its own part.
                let mask = Opnd::Int(i64::from(shared.part()) - 1);
                t = self.asm.int(Alu::And, Ty::B32, &[t.into(), mask]);
            }
            let mut terms = Vec::new();
            match shared.panel {
                Some(panel) if place == 0 => {
                    let by = Opnd::Int(panel.trailing_zeros().into());
                    let far = self.asm.int(Alu::Shr, Ty::U32, &[t.into(), by]);
                    let near =
                        self.asm.int(Alu::And, Ty::B32, &[t.into(), Opnd::Int((panel - 1).into())]);
                    terms.push((far, panel_stride));
                    terms.push((near, 1));
                }
                _ => terms.push((t, stride)),
            }
            for (t, stride) in terms {
                let bytes = stride * shared.elem_bytes;
                let term = match bytes {
                    1 => t,
                    b if b.is_power_of_two() => {
                        let by = Opnd::Int(b.trailing_zeros().into());
                        self.asm.int(Alu::Shl, Ty::B32, &[t.into(), by])
                    }
                    b => self.asm.int(Alu::MulLo, Ty::U32, &[t.into(), Opnd::Int(b.into())]),
                };
                all = Some(match all {
                    None => term,
                    Some(a) => self.asm.int(Alu::Add, Ty::U32, &[a.into(), term.into()]),
                });
            }
        }
        all
    }

    /// The addresses of elements whose coordinates are the thread's part plus a constant; the two
    /// share no bit.
    pub fn places(&mut self, coords: &[Option<Reg>], m: &Smem) -> Places {
        let shared = m.layout.clone();
        let base = self.smem_base(m);
        let (strides, panel) = shared.strides();
        let clean = strides.iter().chain([&panel]).all(|s| s.is_power_of_two());
        let thread = self.thread_bytes(coords, &shared);
        Places { shared, thread, base, clean, known: BTreeMap::new() }
    }

    pub fn layout_places(&mut self, layout: &Layout, m: &Smem) -> Places {
        let coords: Vec<_> = (0..layout.rank()).map(|d| self.thread_coord(layout, d)).collect();
        self.places(&coords, m)
    }

    /// The address of a register's element.
    pub fn register_address(&mut self, places: &mut Places, layout: &Layout, reg: u32) -> Addr {
        if layout.disjoint() {
            self.shared_address(places, &layout.reg_part(reg))
        } else {
            self.shared_address_slow(places, layout, reg)
        }
    }

    /// The address of the element at a constant distance from the thread's own place.
    pub fn shared_address(&mut self, places: &mut Places, offset: &[u32]) -> Addr {
        let swizzle = places.shared.swizzle;
        // What is added before the swizzle.
        let plain = Shared { swizzle: None, ..(*places.shared).clone() };
        let own = plain.offset(offset);
        let Some(swizzle) = swizzle else {
            let base = match places.known.get(&0) {
                Some(&r) => r,
                None => {
                    let r = self.sum(places.base, places.thread);
                    places.known.insert(0, r);
                    r
                }
            };
            return Addr::reg(base, own.into());
        };
        // Bits that the swizzle reads or changes go through it; the rest is added afterwards.
        let low = ((1u32 << swizzle.bits) - 1) << swizzle.base;
        let moved = low | low << swizzle.shift;
        let through = if places.clean { own & moved } else { own };
        let base = match places.known.get(&through) {
            Some(&r) => r,
            None => {
                let asm = &mut self.asm;
                let mut at = match places.thread {
                    Some(t) if through == 0 => t,
                    Some(t) => asm.int(Alu::Add, Ty::U32, &[t.into(), Opnd::Int(through.into())]),
                    None => asm.mov(Ty::B32, Opnd::Int(through.into())),
                };
                let by = Opnd::Int(swizzle.shift.into());
                let high = asm.int(Alu::Shr, Ty::U32, &[at.into(), by]);
                let bits = asm.int(Alu::And, Ty::B32, &[high.into(), Opnd::Int(low.into())]);
                at = asm.int(Alu::Xor, Ty::B32, &[at.into(), bits.into()]);
                let r = self.sum(places.base, Some(at));
                places.known.insert(through, r);
                r
            }
        };
        Addr::reg(base, i64::from(own - through))
    }

    /// For layouts where registers and threads share bits of a coordinate.
    fn shared_address_slow(&mut self, places: &mut Places, layout: &Layout, reg: u32) -> Addr {
        let coords = self.coords(layout, reg);
        let (strides, panel_stride) = places.shared.strides();
        let mut at = self.asm.mov(Ty::B32, Opnd::Int(0));
        for (place, (&dim, stride)) in places.shared.order.iter().zip(strides).enumerate() {
            let c = self.coord_value(coords[dim]);
            let mut terms = vec![(c, stride)];
            if let (Some(panel), 0) = (places.shared.panel, place) {
                let by = Opnd::Int(panel.trailing_zeros().into());
                let far = self.asm.int(Alu::Shr, Ty::U32, &[c.into(), by]);
                let near =
                    self.asm.int(Alu::And, Ty::B32, &[c.into(), Opnd::Int((panel - 1).into())]);
                terms = vec![(far, panel_stride), (near, 1)];
            }
            for (t, stride) in terms {
                let n = Opnd::Int((stride * places.shared.elem_bytes).into());
                at = self.asm.int(Alu::MadLo, Ty::U32, &[t.into(), n, at.into()]);
            }
        }
        if let Some(s) = places.shared.swizzle {
            let low = ((1u32 << s.bits) - 1) << s.base;
            let high = self.asm.int(Alu::Shr, Ty::U32, &[at.into(), Opnd::Int(s.shift.into())]);
            let bits = self.asm.int(Alu::And, Ty::B32, &[high.into(), Opnd::Int(low.into())]);
            at = self.asm.int(Alu::Xor, Ty::B32, &[at.into(), bits.into()]);
        }
        let r = self.sum(places.base, Some(at));
        Addr::reg(r, 0)
    }

    fn sum(&mut self, a: Reg, b: Option<Reg>) -> Reg {
        match b {
            None => a,
            Some(b) => self.asm.int(Alu::Add, Ty::U32, &[a.into(), b.into()]),
        }
    }

    /// Elements per access. Two narrow elements do not fill a word.
    pub fn shared_vector(shared: &Shared, layout: &Layout) -> u32 {
        let n = shared.vector(layout);
        if n * shared.elem_bytes < 4 { 1 } else { n }
    }

    /// Writes a tile to shared memory. Of several threads that hold an element, one writes it.
    pub fn write_shared(&mut self, m: &Smem, layout: &Arc<Layout>, xs: &[Reg]) {
        let owner = self.block_owner(layout);
        let n = Self::shared_vector(&m.layout, layout);
        let mut places = self.layout_places(layout, m);
        for first in (0..layout.regs()).step_by(n as usize) {
            let valid = match self.valid(layout, first) {
                Ok(false) => continue,
                valid => valid.err(),
            };
            let when = self.both(valid, owner);
            let addr = self.register_address(&mut places, layout, first);
            self.store_run(Space::Shared, m.dtype, addr, &xs[first as usize..][..n as usize], when);
        }
    }

    /// Reads a tile from shared memory. Padding is not read: it may be outside the allocation.
    pub fn read_shared(&mut self, m: &Smem, layout: &Arc<Layout>) -> Vec<Reg> {
        let n = Self::shared_vector(&m.layout, layout);
        let mut places = self.layout_places(layout, m);
        let mut out = Vec::with_capacity(layout.regs() as usize);
        for first in (0..layout.regs()).step_by(n as usize) {
            match self.valid(layout, first) {
                Ok(false) => {
                    let zero = self.zero(m.dtype);
                    out.extend(vec![zero; n as usize]);
                }
                valid => {
                    let when = valid.err();
                    let addr = self.register_address(&mut places, layout, first);
                    out.extend(self.load_run(Space::Shared, m.dtype, addr, n, when, Cache::Usual));
                }
            }
        }
        out
    }

    /// Scratch memory for a tile.
    fn scratch_for(&mut self, shared: Shared, dtype: DType) -> Smem {
        let region = self.scratch(shared.bytes());
        Smem { region, offset: 0, moving: None, layout: Arc::new(shared), dtype }
    }

    pub fn convert(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let (from, to) = (self.layout(x), self.layout(result));
        if let Repr::Splat(r) = *self.repr(x) {
            self.set(result, Repr::Splat(r));
            return Ok(());
        }
        match conversion(&from, &to) {
            Move::Nothing => {
                let repr = self.repr(x).clone();
                self.set(result, repr);
                Ok(())
            }
            Move::Registers(map) => {
                if let Repr::Packed(words) = self.repr(x).clone()
                    && let Some(words) = self.move_words(&words, &map)
                {
                    self.set(result, Repr::Packed(words));
                    return Ok(());
                }
                let regs = self.regs(x);
                let out = map.iter().map(|&r| regs[r as usize]).collect();
                self.set(result, Repr::Tile(out));
                Ok(())
            }
            Move::Shared { across: In::Cta } => {
                self.unsupported(id, "a tile does not move between the blocks of a cluster")
            }
            Move::Shuffle { .. } | Move::Shared { .. } => {
                let out = self.convert_through_memory(x, &from, &to);
                self.set(result, out);
                Ok(())
            }
        }
    }

    /// Registers are taken in the order of the intermediate memory.
    fn convert_through_memory(&mut self, x: Value, from: &Arc<Layout>, to: &Arc<Layout>) -> Repr {
        let dtype = self.dtype(x);
        let Between { write, read, shared } = best_between(from, to, dtype.bytes() as u32);
        let order = |from: &Layout, to: &Layout| {
            Layout::reg_map(from, to).unwrap_or_else(|| unreachable!("threads hold the same"))
        };
        let (into, back) = (order(from, &write), order(&read, to));
        let (write, read) = (Arc::new(write), Arc::new(read));
        let tile = self.repr(x).clone();
        if let Some(pieces) = self.pieces(shared.bytes()) {
            let xs = self.regs(x);
            let xs: Vec<Reg> = into.iter().map(|&r| xs[r as usize]).collect();
            let out = self.convert_in_pieces((&write, &xs), &read, dtype, shared, pieces);
            return Repr::Tile(back.iter().map(|&r| out[r as usize]).collect());
        }
        let m = self.scratch_for(shared, dtype);
        match tile {
            Repr::Packed(words) if self.moves_words(&m, &write) => {
                let words = self.words_in_order(dtype, &words, &into);
                self.write_words(&m, &write, &words);
            }
            _ => {
                let xs = self.regs(x);
                let xs: Vec<Reg> = into.iter().map(|&r| xs[r as usize]).collect();
                self.write_shared(&m, &write, &xs);
            }
        }
        self.barrier();
        let out = if let Some(words) = self.matrix_fragments(&m, to) {
            Repr::Packed(words)
        } else if self.moves_words(&m, &read) {
            let words = self.read_words(&m, &read);
            Repr::Packed(self.words_in_order(dtype, &words, &back))
        } else {
            let out = self.read_shared(&m, &read);
            Repr::Tile(back.iter().map(|&r| out[r as usize]).collect())
        };
        self.reading(m.region);
        out
    }

    /// Whether a tile of narrow elements is moved in whole words.
    fn moves_words(&self, m: &Smem, layout: &Layout) -> bool {
        m.dtype.bytes() < 4 && Self::shared_vector(&m.layout, layout) * m.layout.elem_bytes >= 4
    }

    /// The words of a tile whose register `i` is register `map[i]` of the tile in `words`.
    fn words_in_order(&mut self, dtype: DType, words: &[Reg], map: &[u32]) -> Vec<Reg> {
        let each = (4 / dtype.bytes()) as u32;
        let mut prmt = |a: Reg, b: Reg, which: u32| {
            let args = [a.into(), b.into(), Opnd::Int(which.into())];
            self.asm.int(Alu::Prmt, Ty::B32, &args)
        };
        let place = |r: u32| (words[(r / each) as usize], r % each);
        let mut out = Vec::new();
        for regs in map.chunks(each as usize) {
            let (first, at) = place(regs[0]);
            let stays = at == 0 && regs.iter().zip(regs[0]..).all(|(&r, wanted)| r == wanted);
            out.push(match *regs {
                _ if stays => first,
                [a, b] => {
                    let ((a, i), (b, j)) = (place(a), place(b));
                    let low = [0x10, 0x32][i as usize];
                    let high = [0x54, 0x76][j as usize];
                    prmt(a, b, high << 8 | low)
                }
                [a, b, c, d] => {
                    let mut pair = |a: u32, b: u32| {
                        let ((a, i), (b, j)) = (place(a), place(b));
                        prmt(a, b, (4 + j) << 4 | i)
                    };
                    let (low, high) = (pair(a, b), pair(c, d));
                    prmt(low, high, 0x5410)
                }
                _ => unreachable!("a word has two elements or four"),
            });
        }
        out
    }

    /// Writes a tile that is held in packed words. Of several threads that hold an element, one
    /// writes it.
    fn write_words(&mut self, m: &Smem, layout: &Arc<Layout>, words: &[Reg]) {
        let owner = self.owner(layout);
        let n = Self::shared_vector(&m.layout, layout);
        let each = 4 / m.layout.elem_bytes;
        let mut places = self.layout_places(layout, m);
        for first in (0..layout.regs()).step_by(n as usize) {
            let valid = match self.valid(layout, first) {
                Ok(false) => continue,
                valid => valid.err(),
            };
            let when = self.both(valid, owner);
            let addr = self.register_address(&mut places, layout, first);
            let raw = &words[(first / each) as usize..][..(n / each) as usize];
            let raw: Vec<Opnd> = raw.iter().map(|&r| r.into()).collect();
            self.asm.maybe(when, |asm| asm.st(Space::Shared, Ty::B32, &raw, addr, Cache::Usual));
        }
    }

    /// Reads the words of a tile; padding is zero.
    fn read_words(&mut self, m: &Smem, layout: &Arc<Layout>) -> Vec<Reg> {
        let n = Self::shared_vector(&m.layout, layout);
        let each = 4 / m.layout.elem_bytes;
        let mut places = self.layout_places(layout, m);
        let mut out = Vec::new();
        for first in (0..layout.regs()).step_by(n as usize) {
            match self.valid(layout, first) {
                Ok(false) => {
                    let zero = self.asm.mov(Ty::B32, Opnd::Int(0));
                    out.extend(vec![zero; (n / each) as usize]);
                }
                valid => {
                    let when = valid.err();
                    let addr = self.register_address(&mut places, layout, first);
                    let cache = Cache::Usual;
                    out.extend(self.load_words(Space::Shared, m.dtype, addr, n, when, cache));
                }
            }
        }
        out
    }

    /// A tile from shared memory, as MMA fragments where the layout is that of an MMA operand.
    pub fn read_tile(&mut self, m: &Smem, layout: &Arc<Layout>) -> Repr {
        match self.matrix_fragments(m, layout) {
            Some(words) => Repr::Packed(words),
            None => Repr::Tile(self.read_shared(m, layout)),
        }
    }

    pub fn frag_load(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (m, result) = (self.smem(op.operands[0]), op.result());
        let layout = self.layout(result);
        let out = self.read_tile(&m, &layout);
        self.set(result, out);
        Ok(())
    }

    pub fn frag_store(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let (m, value) = (self.smem(op.operands[0]), op.operands[1]);
        let layout = self.layout(value);
        if !self.matrix_store(&m, &layout, value) {
            let xs = self.regs(value);
            self.write_shared(&m, &layout, &xs);
        }
        Ok(())
    }

    /// A tile in scratch memory, row-major; synchronised when this returns.
    pub fn spread(&mut self, layout: &Arc<Layout>, dtype: DType, xs: &[Reg]) -> Smem {
        let shared = Shared::row_major(layout.shape(), dtype.bytes() as u32);
        let m = self.scratch_for(shared, dtype);
        self.write_shared(&m, layout, xs);
        self.barrier();
        m
    }
}
