//! Loads, stores and folds of blocks of global memory and of shared buffers. Accesses are as wide as the layout, the
//! alignment and the position allow. Where the whole block is inside the array there are no bounds
//! tests; elsewhere one per element.

use super::place::Coord;
use super::{Repr, Select, View};
use crate::atomic::Fold;
use crate::inst::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Type, Value};
use tessera_layout::Layout;
use tessera_lower::stage::{divisor, neighbour_axis};
use tessera_numerics::{DType, Profile, ReduceOp};
use tessera_tile::attrs::checked_axes;

/// One access of a block, ready to be emitted.
pub struct Block {
    pub view: View,
    pub layout: Arc<Layout>,
    /// The address of the thread's first element.
    base: Reg,
    /// For each dim of the tile: the memory's axis and the step between positions.
    dims: Vec<(usize, i64)>,
    /// The first position along each axis.
    at: Vec<Reg>,
    /// Axes whose positions must be checked against the extents.
    checked: Vec<bool>,
    /// Elements of one access.
    vector: u32,
    /// Contiguous elements of a thread that one access would take at an aligned address: more than
    /// one only where the alignment allows no word access.
    pub(super) span: u32,
    rows: BTreeMap<Vec<u32>, Reg>,
}

/// Registers `first ..first + n` with their coordinates.
#[derive(Clone)]
pub struct Unit {
    pub first: u32,
    pub n: u32,
    pub(super) coords: Vec<Coord>,
}

impl Select<'_> {
    /// Extent of an axis of a parameter.
    pub fn extent(&mut self, view: &View, axis: usize) -> Reg {
        self.word(view.word + 1 + axis)
    }

    pub fn stride(&mut self, view: &View, axis: usize) -> Reg {
        self.word(view.word + 1 + view.rank + axis)
    }

    /// `at * stride` in bytes; a constant factor along the contiguous axis.
    pub fn scaled(&mut self, view: &View, axis: usize, at: Reg) -> Reg {
        if let Some(buffer) = &view.buffer {
            let stride = Opnd::Int(buffer.strides[axis]);
            let at = self.narrow(at);
            return self.asm.int(Alu::MulLo, Ty::U32, &[at.into(), stride]);
        }
        let bytes = view.dtype.bytes() as i64;
        if view.class.is_contiguous(axis) {
            return match bytes {
                1 => at,
                _ => {
                    let by = Opnd::Int(bytes.trailing_zeros().into());
                    self.asm.int(Alu::Shl, Ty::B64, &[at.into(), by])
                }
            };
        }
        let stride = self.stride(view, axis);
        self.asm.int(Alu::MulLo, Ty::S64, &[at.into(), stride.into()])
    }

    pub fn add64(&mut self, a: Reg, b: Reg) -> Reg {
        self.asm.int(Alu::Add, Ty::S64, &[a.into(), b.into()])
    }

    /// The sum of two addresses or distances, both of 32 or of 64 bits.
    fn plus(&mut self, a: Reg, b: Reg) -> Reg {
        let ty = if a.class == Class::B64 { Ty::S64 } else { Ty::U32 };
        self.asm.int(Alu::Add, ty, &[a.into(), b.into()])
    }

    /// The distance of a thread's first element from that of the block, along an axis.
    fn thread_distance(&mut self, view: &View, axis: usize, step: i64, t: Reg) -> Reg {
        let (mut t, ty) = match view.buffer {
            Some(_) => (t, Ty::U32),
            None => (self.widen(t), Ty::S64),
        };
        if step != 1 {
            t = self.asm.int(Alu::MulLo, ty, &[t.into(), Opnd::Int(step)]);
        }
        self.scaled(view, axis, t)
    }

    /// Plans the access of `op`, whose tile has this layout.
    fn block_access(&mut self, id: OpId, layout: Arc<Layout>) -> Block {
        let func = self.func;
        let op = &func.ops[id];
        let view = self.view(op.operands[0]);
        let extents = op.attr("extent").and_then(Attr::as_ints).unwrap_or_default();
        let steps = op.attr("step").and_then(Attr::as_ints);
        let ats: Vec<Value> = op.group("at").to_vec();
        let at: Vec<Reg> = ats.iter().map(|&v| self.scalar(v)).collect();
        let mut dims = Vec::new();
        let mut base = self.first_address(&view);
        for axis in 0..view.rank {
            let term = self.scaled(&view, axis, at[axis]);
            base = self.plus(base, term);
            if extents[axis] != 0 {
                dims.push((axis, steps.as_ref().map_or(1, |s| s[axis])));
            }
        }
        // The widest access that the layout, the alignment and the position allow.
        let bytes = view.dtype.bytes() as u32;
        let (mut vector, mut span) = (1, 1);
        // Where rows are one element apart too, their starts are not aligned.
        let neighbours = neighbour_axis(view.class, view.rank);
        if let Some(dim) =
            dims.iter().position(|&(axis, step)| step == 1 && neighbours == Some(axis))
        {
            let axis = dims[dim].0;
            let aligned = match divisor(func, ats[axis]) {
                0 => crate::code::WIDEST,
                d => 1 << d.trailing_zeros().min(4),
            };
            let fits = (view.class.align.min(crate::code::WIDEST) / bytes).max(1);
            let run = layout.run_along(dim);
            let even = 1 << (layout.shape()[dim] as u64).trailing_zeros().min(4);
            let most = run.min(even).min(crate::code::WIDEST / bytes);
            vector = most.min(aligned).min(fits);
            // Two bytes of narrow elements do not fill a word.
            if vector * bytes < 4 {
                vector = 1;
                span = if most * bytes >= 8 && view.buffer.is_none() { most } else { 1 };
            }
        }
        for (dim, &(axis, step)) in dims.clone().iter().enumerate() {
            let Some(t) = self.thread_coord(&layout, dim) else { continue };
            let term = self.thread_distance(&view, axis, step, t);
            base = self.plus(base, term);
        }
        let checked = checked_axes(op, view.rank);
        Block { view, layout, base, dims, at, checked, vector, span, rows: BTreeMap::new() }
    }

    pub(super) fn units(&mut self, block: &Block, vector: u32) -> Vec<Unit> {
        let layout = block.layout.clone();
        (0..layout.regs() / vector)
            .map(|i| {
                let first = i * vector;
                Unit { first, n: vector, coords: self.coords(&layout, first) }
            })
            .collect()
    }

    /// The address of a unit: a register and a constant.
    pub(super) fn address(&mut self, block: &mut Block, unit: &Unit) -> Addr {
        let bytes = block.view.dtype.bytes() as i64;
        let mut constant = 0;
        let mut far = Vec::new();
        for (dim, &(axis, step)) in block.dims.iter().enumerate() {
            let n = unit.coords[dim].offset;
            if let Some(buffer) = &block.view.buffer {
                constant += i64::from(n) * step * buffer.strides[axis];
                far.push(0);
            } else if block.view.class.is_contiguous(axis) {
                constant += i64::from(n) * step * bytes;
                far.push(0);
            } else {
                far.push(n);
            }
        }
        let base = match block.rows.get(&far) {
            Some(&r) => r,
            None => {
                let mut r = block.base;
                for (dim, &(axis, step)) in block.dims.clone().iter().enumerate() {
                    if far[dim] == 0 {
                        continue;
                    }
                    let stride = self.stride(&block.view, axis);
                    let n = Opnd::Int(i64::from(far[dim]) * step);
                    let term = self.asm.int(Alu::MulLo, Ty::S64, &[stride.into(), n]);
                    r = self.add64(r, term);
                }
                block.rows.insert(far, r);
                r
            }
        };
        Addr::reg(base, constant)
    }

    /// Whether the whole block is inside, uniform over all threads; none where nothing is checked.
    fn all_inside(&mut self, block: &Block) -> Option<Reg> {
        let mut all = None;
        for axis in 0..block.view.rank {
            if !block.checked[axis] {
                continue;
            }
            let (extent, at) = (self.limit_along(&block.view, axis), block.at[axis]);
            let last = block
                .dims
                .iter()
                .position(|d| d.0 == axis)
                .map_or(0, |dim| i64::from(block.layout.shape()[dim] - 1) * block.dims[dim].1);
            let p = if last == 0 {
                self.asm.setp(Cmp::Lt, Ty::U64, at, extent)
            } else {
                // at >= 0 and at + last < extent; the sum of two positions does not wrap.
                let end = self.asm.int(Alu::Add, Ty::S64, &[at.into(), Opnd::Int(last)]);
                let below = self.asm.setp(Cmp::Lt, Ty::S64, end, extent);
                let above = self.asm.setp(Cmp::Ge, Ty::S64, at, Opnd::Int(0));
                self.and(below, above)
            };
            all = self.both(all, Some(p));
        }
        all
    }

    /// Whether an element is inside, computed once for each dim and offset.
    pub(super) fn element_inside(
        &mut self,
        block: &Block,
        coords: &[Coord],
        known: &mut BTreeMap<(usize, u32), Reg>,
    ) -> Option<Reg> {
        let mut all = None;
        for axis in 0..block.view.rank {
            if !block.checked[axis] {
                continue;
            }
            let dim = block.dims.iter().position(|d| d.0 == axis);
            let offset = dim.map_or(0, |d| coords[d].offset);
            let p = match known.get(&(axis, offset)) {
                Some(&p) => p,
                None => {
                    let mut at = block.at[axis];
                    if let Some(dim) = dim {
                        let step = block.dims[dim].1;
                        if let Some(t) = coords[dim].thread {
                            let mut t = self.widen(t);
                            if step != 1 {
                                t = self.asm.int(Alu::MulLo, Ty::S64, &[t.into(), Opnd::Int(step)]);
                            }
                            at = self.add64(at, t);
                        }
                        if offset != 0 {
                            let n = Opnd::Int(i64::from(offset) * step);
                            at = self.asm.int(Alu::Add, Ty::S64, &[at.into(), n]);
                        }
                    }
                    let extent = self.limit_along(&block.view, axis);
                    // A negative position is large as an unsigned number.
                    let p = self.asm.setp(Cmp::Lt, Ty::U64, at, extent);
                    known.insert((axis, offset), p);
                    p
                }
            };
            all = self.both(all, Some(p));
        }
        all
    }

    /// Loads `n` contiguous elements; undefined where the condition does not hold.
    pub fn load_codes(&mut self, view: &View, addr: Addr, n: u32, when: Option<Reg>) -> Vec<Reg> {
        let cache = if view.read_only { Cache::ReadOnly } else { Cache::Usual };
        self.load_run(view.space(), view.dtype, addr, n, when, cache)
    }

    /// Loads `n` contiguous elements from any memory space, in their carrier.
    pub fn load_run(
        &mut self,
        space: Space,
        dtype: DType,
        addr: Addr,
        n: u32,
        when: Option<Reg>,
        cache: Cache,
    ) -> Vec<Reg> {
        let raw = self.load_words(space, dtype, addr, n, when, cache);
        self.decode_words(dtype, n, raw)
    }

    /// The words that hold `n` contiguous elements; zero where the condition does not hold.
    pub fn load_words(
        &mut self,
        space: Space,
        dtype: DType,
        addr: Addr,
        n: u32,
        when: Option<Reg>,
        cache: Cache,
    ) -> Vec<Reg> {
        let (ty, words) = word_of(dtype.bytes() as u32, n);
        let raw: Vec<Reg> = (0..words).map(|_| self.asm.reg(ty.class())).collect();
        if when.is_some() {
            for &r in &raw {
                let bits = if r.class == Class::B16 { Ty::B16 } else { ty };
                self.asm.mov_to(bits, r, Opnd::Int(0));
            }
        }
        let d = raw.clone();
        self.asm.maybe(when, |asm| {
            let (sem, scope) = (Sem::Weak, Scope::Gpu);
            asm.emit(Inst::Ld { space, ty, d, addr, cache, sem, scope });
        });
        raw
    }

    fn decode_words(&mut self, dtype: DType, n: u32, raw: Vec<Reg>) -> Vec<Reg> {
        let bytes = dtype.bytes() as u32;
        let mut scalars = self.scalars();
        if bytes * n < 4 || bytes >= 4 {
            return raw.into_iter().map(|r| scalars.decode(dtype, r)).collect();
        }
        raw.into_iter().flat_map(|r| scalars.decode_packed(dtype, r)).collect()
    }

    /// Stores contiguous elements, given in their carrier.
    pub fn store_run(
        &mut self,
        space: Space,
        dtype: DType,
        addr: Addr,
        xs: &[Reg],
        when: Option<Reg>,
    ) {
        let bytes = dtype.bytes() as u32;
        let (ty, words) = word_of(bytes, xs.len() as u32);
        let mut scalars = self.scalars();
        let raw: Vec<Opnd> = if bytes * xs.len() as u32 >= 4 && bytes < 4 {
            let each = xs.len() / words as usize;
            xs.chunks(each).map(|c| scalars.encode_packed(dtype, c).into()).collect()
        } else {
            xs.iter().map(|&x| scalars.encode(dtype, x).into()).collect()
        };
        self.asm.maybe(when, |asm| asm.st(space, ty, &raw, addr, Cache::Usual));
    }

    pub fn load(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        self.before_read(id);
        let other = op.group("other").first().map(|&v| self.scalar(v));
        let result = op.result();
        if let Type::Scalar(dtype) = *func.ty(result) {
            let r = self.load_element(id, dtype, other);
            self.set(result, Repr::Scalar(r));
            return Ok(());
        }
        let layout = self.layout(result);
        let mut block = self.block_access(id, layout.clone());
        if block.span > 1 {
            let words = self.load_shifted(&mut block, other);
            self.set(result, Repr::Packed(words));
            return Ok(());
        }
        let inside = self.all_inside(&block);
        let Some(inside) = inside else {
            let repr = match self.stays_packed(id, &block) {
                true => Repr::Packed(self.load_plain_words(&mut block)),
                false => Repr::Tile(self.load_plain(&mut block)),
            };
            self.set(result, repr);
            return Ok(());
        };
        if block.view.dtype.bytes() < 4 && block.vector > 1 {
            let words = self.load_packed(&mut block, inside, other);
            self.set(result, Repr::Packed(words));
            return Ok(());
        }
        let class = crate::scalar::carrier(block.view.dtype);
        let d: Vec<Reg> = (0..layout.regs()).map(|_| self.asm.reg(class)).collect();
        let [edge, done] = [self.asm.label(), self.asm.label()];
        self.asm.when(inside, false, |asm| asm.emit(Inst::Bra { to: edge, uniform: true }));
        let regs = self.load_plain(&mut block);
        self.move_all(&d, &regs);
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.asm.place(edge);
        block.rows.clear();
        let mut known = BTreeMap::new();
        for unit in self.units(&block, 1) {
            let inside = self.element_inside(&block, &unit.coords, &mut known);
            let valid = match self.valid(&layout, unit.first) {
                Ok(true) => None,
                Ok(false) => {
                    let zero = self.zero(block.view.dtype);
                    self.move_all(&d[unit.first as usize..][..1], &[zero]);
                    continue;
                }
                Err(p) => Some(p),
            };
            let when = self.both(inside, valid);
            let addr = self.address(&mut block, &unit);
            let view = block.view.clone();
            let x = self.load_codes(&view, addr, 1, when)[0];
            let x = match when {
                None => x,
                Some(p) => {
                    let zero = match other {
                        Some(o) => o,
                        None => self.zero(view.dtype),
                    };
                    self.scalars().select(view.dtype, p, x, zero)
                }
            };
            self.move_all(&d[unit.first as usize..][..1], &[x]);
        }
        self.asm.place(done);
        self.set(result, Repr::Tile(d));
        Ok(())
    }

    /// The words of a block of narrow elements that may be partly outside. They are decoded where
    /// they are used: decoding here would wait for them before the next load is issued.
    fn load_packed(&mut self, block: &mut Block, inside: Reg, other: Option<Reg>) -> Vec<Reg> {
        let layout = block.layout.clone();
        let (view, vector) = (block.view.clone(), block.vector);
        let bytes = view.dtype.bytes() as u32;
        let each = 4 / bytes;
        let d: Vec<Reg> = (0..layout.regs() / each).map(|_| self.asm.reg(Class::B32)).collect();
        let cache = if view.read_only { Cache::ReadOnly } else { Cache::Usual };
        let [edge, done] = [self.asm.label(), self.asm.label()];
        self.asm.when(inside, false, |asm| asm.emit(Inst::Bra { to: edge, uniform: true }));
        for unit in self.units(block, vector) {
            let to = &d[(unit.first / each) as usize..][..(unit.n / each) as usize];
            let valid = self.valid(&layout, unit.first);
            if valid != Ok(true) {
                to.iter().for_each(|&r| self.asm.mov_to(Ty::B32, r, Opnd::Int(0)));
            }
            if valid == Ok(false) {
                continue;
            }
            let addr = self.address(block, &unit);
            let (space, ty, to) = (view.space(), Ty::B32, to.to_vec());
            let (sem, scope) = (Sem::Weak, Scope::Gpu);
            self.asm.maybe(valid.err(), |asm| {
                asm.emit(Inst::Ld { space, ty, d: to, addr, cache, sem, scope });
            });
        }
        self.asm.emit(Inst::Bra { to: done, uniform: true });
        self.asm.place(edge);
        block.rows.clear();
        self.load_each(block, &d, other, BTreeMap::new());
        self.asm.place(done);
        d
    }

    /// The words of a block of narrow elements, loaded element by element, only those inside.
    pub(super) fn load_each(
        &mut self,
        block: &mut Block,
        words: &[Reg],
        other: Option<Reg>,
        mut known: BTreeMap<(usize, u32), Reg>,
    ) {
        let (layout, view) = (block.layout.clone(), block.view.clone());
        let bytes = view.dtype.bytes() as u32;
        let cache = if view.read_only { Cache::ReadOnly } else { Cache::Usual };
        let zero = match other {
            Some(other) => other,
            None => self.zero(view.dtype),
        };
        let outside = self.scalars().encode(view.dtype, zero);
        let ty = if bytes == 1 { Ty::U8 } else { Ty::B16 };
        let mut codes = Vec::new();
        for unit in self.units(block, 1) {
            let code = self.asm.mov(Ty::B16, outside);
            let valid = self.valid(&layout, unit.first);
            if valid != Ok(false) {
                let inside = self.element_inside(block, &unit.coords, &mut known);
                let when = self.both(inside, valid.err());
                let addr = self.address(block, &unit);
                let (space, sem, scope, d) = (view.space(), Sem::Weak, Scope::Gpu, vec![code]);
                self.asm.maybe(when, |asm| {
                    asm.emit(Inst::Ld { space, ty, d, addr, cache, sem, scope });
                });
            }
            codes.push(code);
        }
        for (&to, codes) in words.iter().zip(codes.chunks(4 / bytes as usize)) {
            let word = self.pack_codes(codes);
            self.asm.mov_to(Ty::B32, to, word);
        }
    }

    /// Packs codes of one or two bytes, in 16 bits each, into one word.
    pub fn pack_codes(&mut self, codes: &[Reg]) -> Reg {
        let pairs: Vec<Reg> = match codes {
            [low, high] => vec![*low, *high],
            codes => codes.chunks(2).map(|pair| self.pack_bytes(pair)).collect(),
        };
        self.asm.pack(Class::B32, &pairs)
    }

    /// Packs two bytes into one half of a word.
    fn pack_bytes(&mut self, pair: &[Reg]) -> Reg {
        let [low, high] = [pair[0], pair[1]]
            .map(|r| self.asm.int(Alu::And, Ty::B16, &[r.into(), Opnd::Int(0xff)]));
        let high = self.asm.int(Alu::Shl, Ty::B16, &[high.into(), Opnd::Int(8)]);
        self.asm.int(Alu::Or, Ty::B16, &[low.into(), high.into()])
    }

    /// Whether narrow elements stay packed until they are used: in later loops, for which they are
    /// kept.
    fn stays_packed(&self, id: OpId, block: &Block) -> bool {
        let func = self.func;
        let op = &func.ops[id];
        let result = op.result();
        let later = |&user: &OpId| {
            func.ops[user].block != op.block || !func.ops[user].operands.contains(&result)
        };
        block.view.dtype.bytes() < 4
            && block.vector * block.view.dtype.bytes() as u32 >= 4
            && func.walk().iter().all(later)
    }

    /// The words of a block of narrow elements that is all inside.
    fn load_plain_words(&mut self, block: &mut Block) -> Vec<Reg> {
        let layout = block.layout.clone();
        let (vector, view) = (block.vector, block.view.clone());
        let cache = if view.read_only { Cache::ReadOnly } else { Cache::Usual };
        let words = vector * view.dtype.bytes() as u32 / 4;
        let mut out = Vec::new();
        for unit in self.units(block, vector) {
            match self.valid(&layout, unit.first) {
                Ok(false) => {
                    out.extend((0..words).map(|_| self.asm.mov(Ty::B32, Opnd::Int(0))));
                }
                valid => {
                    let addr = self.address(block, &unit);
                    let (space, when) = (view.space(), valid.err());
                    out.extend(self.load_words(space, view.dtype, addr, unit.n, when, cache));
                }
            }
        }
        out
    }

    /// Every element is inside; padding is not read. All loads are issued before the first is used.
    fn load_plain(&mut self, block: &mut Block) -> Vec<Reg> {
        let layout = block.layout.clone();
        let (vector, view) = (block.vector, block.view.clone());
        let cache = if view.read_only { Cache::ReadOnly } else { Cache::Usual };
        let mut begun = Vec::new();
        for unit in self.units(block, vector) {
            begun.push(match self.valid(&layout, unit.first) {
                Ok(false) => None,
                valid => {
                    let addr = self.address(block, &unit);
                    let (space, n) = (view.space(), unit.n);
                    Some(self.load_words(space, view.dtype, addr, n, valid.err(), cache))
                }
            });
        }
        let mut out = Vec::with_capacity(layout.regs() as usize);
        for raw in begun {
            match raw {
                Some(raw) => out.extend(self.decode_words(view.dtype, vector, raw)),
                None => {
                    let zero = self.zero(view.dtype);
                    out.extend(vec![zero; vector as usize]);
                }
            }
        }
        out
    }

    /// One element, read by all threads.
    fn load_element(&mut self, id: OpId, dtype: DType, other: Option<Reg>) -> Reg {
        let op = &self.func.ops[id];
        let view = self.view(op.operands[0]);
        let at: Vec<Reg> = op.group("at").to_vec().iter().map(|&v| self.scalar(v)).collect();
        let checked = checked_axes(&self.func.ops[id], view.rank);
        let (addr, inside) = self.element_address(&view, &at, &checked);
        let x = self.load_codes(&view, addr, 1, inside)[0];
        match inside {
            None => x,
            Some(p) => {
                let zero = match other {
                    Some(o) => o,
                    None => self.zero(dtype),
                };
                self.scalars().select(dtype, p, x, zero)
            }
        }
    }

    /// The address of an element, and whether it is inside.
    pub fn element_address(
        &mut self,
        view: &View,
        at: &[Reg],
        checked: &[bool],
    ) -> (Addr, Option<Reg>) {
        let mut base = self.first_address(view);
        let mut inside = None;
        for axis in 0..view.rank {
            let term = self.scaled(view, axis, at[axis]);
            base = self.plus(base, term);
            if checked[axis] {
                let extent = self.limit_along(view, axis);
                let p = self.asm.setp(Cmp::Lt, Ty::U64, at[axis], extent);
                inside = self.both(inside, Some(p));
            }
        }
        (Addr::reg(base, 0), inside)
    }

    pub fn store(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        self.before_write(id);
        let value = op.operands[1];
        let mask = op.group("mask").first().copied();
        if let Type::Scalar(_) = *func.ty(value) {
            let view = self.view(op.operands[0]);
            let at: Vec<Reg> = op.group("at").iter().map(|&v| self.scalar(v)).collect();
            let checked = checked_axes(op, view.rank);
            let (addr, inside) = self.element_address(&view, &at, &checked);
            let first = self.first_thread();
            let when = self.both(inside, Some(first));
            let mask = mask.map(|v| self.scalar(v));
            let when = self.both(when, mask);
            let x = self.scalar(value);
            self.store_run(view.space(), view.dtype, addr, &[x], when);
            return Ok(());
        }
        let layout = self.layout(value);
        let masks = mask.map(|v| self.value_regs(v, &layout));
        let owner = self.owner(&layout);
        let mut block = self.block_access(id, layout.clone());
        let inside = self.all_inside(&block);
        if masks.is_none() {
            let Some(inside) = inside else {
                self.store_whole(&mut block, value, owner);
                return Ok(());
            };
            let [edge, done] = [self.asm.label(), self.asm.label()];
            self.asm.when(inside, false, |asm| asm.emit(Inst::Bra { to: edge, uniform: true }));
            self.store_whole(&mut block, value, owner);
            self.asm.emit(Inst::Bra { to: done, uniform: true });
            self.asm.place(edge);
            block.rows.clear();
            let xs = self.regs(value);
            self.store_elements(&mut block, &xs, None, owner);
            self.asm.place(done);
        } else {
            let xs = self.regs(value);
            self.store_elements(&mut block, &xs, masks.as_deref(), owner);
        }
        Ok(())
    }

    /// Stores a block that is inside; packed narrow elements are stored as words.
    fn store_whole(&mut self, block: &mut Block, value: Value, owner: Option<Reg>) {
        let dtype = block.view.dtype;
        let bytes = dtype.bytes() as u32;
        // Under `strict` stored NaNs are canonical: those that came from memory need not be.
        let as_is =
            self.dtype(value) == dtype && (self.profile != Profile::Strict || !dtype.is_float());
        match self.repr(value).clone() {
            Repr::Packed(words) if as_is && block.vector * bytes >= 4 => {
                let (layout, vector, each) = (block.layout.clone(), block.vector, 4 / bytes);
                let space = block.view.space();
                for unit in self.units(block, vector) {
                    let valid = match self.valid(&layout, unit.first) {
                        Ok(false) => continue,
                        valid => valid.err(),
                    };
                    let when = self.both(valid, owner);
                    let addr = self.address(block, &unit);
                    let raw = &words[(unit.first / each) as usize..][..(unit.n / each) as usize];
                    let raw: Vec<Opnd> = raw.iter().map(|&r| r.into()).collect();
                    self.asm.maybe(when, |asm| {
                        asm.st(space, Ty::B32, &raw, addr, Cache::Usual);
                    });
                }
            }
            _ => {
                let xs = self.regs(value);
                self.store_plain(block, &xs, owner);
            }
        }
    }

    fn store_plain(&mut self, block: &mut Block, xs: &[Reg], owner: Option<Reg>) {
        let layout = block.layout.clone();
        let vector = block.vector;
        for unit in self.units(block, vector) {
            let valid = match self.valid(&layout, unit.first) {
                Ok(false) => continue,
                valid => valid.err(),
            };
            let when = self.both(valid, owner);
            let addr = self.address(block, &unit);
            let run = &xs[unit.first as usize..][..unit.n as usize];
            let (space, dtype) = (block.view.space(), block.view.dtype);
            self.store_run(space, dtype, addr, run, when);
        }
    }

    fn store_elements(
        &mut self,
        block: &mut Block,
        xs: &[Reg],
        masks: Option<&[Reg]>,
        owner: Option<Reg>,
    ) {
        let space = block.view.space();
        self.each_element(block, owner, masks, |me, r, addr, when| {
            let dtype = me.1;
            me.0.store_run(space, dtype, addr, &xs[r as usize..][..1], when);
        });
    }

    /// Calls `write` for each register with the address of its element and the condition that it is
    /// valid, inside, unmasked and owned by this thread.
    fn each_element(
        &mut self,
        block: &mut Block,
        owner: Option<Reg>,
        masks: Option<&[Reg]>,
        mut write: impl FnMut((&mut Self, DType), u32, Addr, Option<Reg>),
    ) {
        let layout = block.layout.clone();
        let mut known = BTreeMap::new();
        for unit in self.units(block, 1) {
            let valid = match self.valid(&layout, unit.first) {
                Ok(false) => continue,
                valid => valid.err(),
            };
            let inside = self.element_inside(block, &unit.coords, &mut known);
            let when = self.both(valid, inside);
            let when = self.both(when, owner);
            let when = self.both(when, masks.map(|m| m[unit.first as usize]));
            let addr = self.address(block, &unit);
            let dtype = block.view.dtype;
            write((self, dtype), unit.first, addr, when);
        }
    }

    /// Folds a tile into memory.
    pub fn accumulate(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let name = op.attr("op").and_then(Attr::as_word).unwrap_or("sum").to_string();
        let value = op.operands[1];
        let compute = func.ty(value).dtype();
        let shared = match func.ty(op.operands[0]) {
            Type::View { privilege, .. } => privilege.reduces(),
            _ => false,
        };
        // While a group is in the ordered section it folds alone.
        let shared = shared && !self.in_ordered_section(id);
        self.before_write(id);
        let mask = op.group("mask").first().copied();
        let f = ReduceOp::from_name(&name).unwrap_or(ReduceOp::Sum).combine();
        let plain = Fold::new(func.ty(op.operands[0]), f, compute);
        let space = self.view(op.operands[0]).space();
        let fold = |me: &mut Self, dtype, addr: Addr, x, when| {
            if shared {
                me.fold_atomic(id, &name, dtype, compute, addr, x, when)
            } else {
                let old = me.load_run(space, dtype, addr.clone(), 1, when, Cache::Usual)[0];
                let new = plain.value(&mut me.scalars(), old, x);
                let new = new.or_else(|u| me.unsupported(id, u.to_string()))?;
                me.store_run(space, dtype, addr, &[new], when);
                Ok(())
            }
        };
        if let Type::Scalar(_) = *func.ty(value) {
            let view = self.view(op.operands[0]);
            let at: Vec<Reg> = op.group("at").iter().map(|&v| self.scalar(v)).collect();
            let checked = checked_axes(op, view.rank);
            let (addr, inside) = self.element_address(&view, &at, &checked);
            let first = self.first_thread();
            let when = self.both(inside, Some(first));
            let mask = mask.map(|v| self.scalar(v));
            let when = self.both(when, mask);
            let x = self.scalar(value);
            return fold(self, view.dtype, addr, x, when);
        }
        let layout = self.layout(value);
        let xs = self.regs(value);
        let masks = mask.map(|v| self.value_regs(v, &layout));
        let owner = self.owner(&layout);
        let mut block = self.block_access(id, layout.clone());
        if !shared && masks.is_none() {
            return self.fold_block(id, &mut block, &xs, owner, &plain);
        }
        let mut result = Ok(());
        self.each_element(&mut block, owner, masks.as_deref(), |(me, dtype), r, addr, when| {
            if result.is_ok() {
                result = fold(me, dtype, addr, xs[r as usize], when);
            }
        });
        result
    }

    /// Folds a tile into memory that no other group folds into: as wide as stores are where all of
    /// it is inside.
    fn fold_block(
        &mut self,
        id: OpId,
        block: &mut Block,
        xs: &[Reg],
        owner: Option<Reg>,
        fold: &Fold,
    ) -> Result<(), Diagnostics> {
        let inside = self.all_inside(block);
        let [edge, done] = [self.asm.label(), self.asm.label()];
        if let Some(p) = inside {
            self.asm.when(p, false, |asm| asm.emit(Inst::Bra { to: edge, uniform: true }));
        }
        let vector = block.vector;
        self.fold_units(id, block, vector, xs, owner, fold)?;
        if inside.is_some() {
            self.asm.emit(Inst::Bra { to: done, uniform: true });
            self.asm.place(edge);
            block.rows.clear();
            self.fold_units(id, block, 1, xs, owner, fold)?;
            self.asm.place(done);
        }
        Ok(())
    }

    /// Loads a batch before each store: a store may alias a later load, so that they would be
    /// serialised.
    fn fold_units(
        &mut self,
        id: OpId,
        block: &mut Block,
        vector: u32,
        xs: &[Reg],
        owner: Option<Reg>,
        fold: &Fold,
    ) -> Result<(), Diagnostics> {
        // Registers that are loaded together. Storing a batch frees as many again.
        const TOGETHER: u32 = 32;
        let mut known = BTreeMap::new();
        let units = self.units(block, vector);
        let mut batches = units.chunks((TOGETHER / vector).max(1) as usize);
        let mut waiting = VecDeque::new();
        loop {
            for batch in batches.by_ref().take(2) {
                waiting.push_back(self.load_units(block, batch, owner, vector == 1, &mut known));
            }
            let Some(batch) = waiting.pop_front() else { return Ok(()) };
            for (first, addr, old, when) in batch {
                let mut new = Vec::new();
                for (i, old) in old.into_iter().enumerate() {
                    let r = fold.value(&mut self.scalars(), old, xs[first as usize + i]);
                    new.push(r.or_else(|u| self.unsupported(id, u.to_string()))?);
                }
                self.store_run(block.view.space(), block.view.dtype, addr, &new, when);
            }
        }
    }

    /// Loads some units: the first register of each, its address, the old values, and the condition
    /// that it is this thread's.
    fn load_units(
        &mut self,
        block: &mut Block,
        units: &[Unit],
        owner: Option<Reg>,
        checked: bool,
        known: &mut BTreeMap<(usize, u32), Reg>,
    ) -> Vec<(u32, Addr, Vec<Reg>, Option<Reg>)> {
        let (layout, dtype) = (block.layout.clone(), block.view.dtype);
        let mut loaded = Vec::new();
        for unit in units {
            let valid = match self.valid(&layout, unit.first) {
                Ok(false) => continue,
                valid => valid.err(),
            };
            let mut when = self.both(valid, owner);
            if checked {
                let inside = self.element_inside(block, &unit.coords, known);
                when = self.both(when, inside);
            }
            let addr = self.address(block, unit);
            let (space, at) = (block.view.space(), addr.clone());
            let old = self.load_run(space, dtype, at, unit.n, when, Cache::Usual);
            loaded.push((unit.first, addr, old, when));
        }
        loaded
    }

    pub fn zero(&mut self, dtype: DType) -> Reg {
        self.scalars().constant(dtype, tessera_numerics::Scalar::zero(dtype))
    }

    /// Whether this is the thread that acts for all.
    pub fn first_thread(&mut self) -> Reg {
        let whole = Layout::coalesced(&[1], Some(0), 1, self.warps, self.cluster, None);
        let tid = self.tid();
        match self.owner(&whole) {
            Some(p) => p,
            None => self.asm.setp(Cmp::Eq, Ty::U32, tid, Opnd::Int(0)),
        }
    }

    pub fn move_all(&mut self, to: &[Reg], from: &[Reg]) {
        for (&d, &a) in to.iter().zip(from) {
            if d == a {
                continue;
            }
            let ty = match d.class {
                Class::Pred => Ty::Pred,
                Class::B16 => Ty::B16,
                Class::B32 => Ty::B32,
                Class::B64 => Ty::B64,
            };
            self.asm.mov_to(ty, d, a);
        }
    }
}

/// How `n` contiguous elements of `bytes` bytes are moved: the type and the count.
pub fn word_of(bytes: u32, n: u32) -> (Ty, u32) {
    match (bytes, bytes * n) {
        (8, total) => (Ty::B64, total / 8),
        (_, total) if total >= 4 => (Ty::B32, total / 4),
        (2, _) => (Ty::B16, n),
        (_, _) => (Ty::U8, n),
    }
}
