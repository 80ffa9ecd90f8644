//! Memory as generated code sees it, and access to it in vectors.

use crate::llvm::{IntCmp, Ir, Ty, Val};
use crate::scalar::Scalars;
use tessera_numerics::{DType, Scalar};

/// An array of the caller or a buffer of the group. Extents, and strides in bytes, are i64.
#[derive(Clone, Debug)]
pub struct Mem {
    pub base: Val,
    pub dims: Vec<Val>,
    pub strides: Vec<Val>,
    /// Axes along which it is contiguous.
    pub unit: Vec<bool>,
    pub dtype: DType,
    /// Large, only written, and on cache lines: whole lines may go past the caches.
    pub stream: bool,
}

/// Where along one axis the lanes are.
#[derive(Copy, Clone, Debug)]
pub enum Pos {
    /// All at one position.
    Uniform(Val),
    /// `first, first + step, …`
    Steps { first: Val, step: i64 },
    /// Each at its own: a vector of i64.
    Each(Val),
}

/// What the lanes of an access touch.
enum Address {
    One(Val),
    /// The first of contiguous elements.
    Row(Val),
    /// A vector of pointers.
    Each(Val),
}

/// Arrays of the caller may be misaligned.
const ALIGN: u32 = 1;

/// With a stride between lanes above this, in elements, a gather is faster.
const FARTHEST: i64 = 4;

/// One access: positions, and which of them must be held against the extents.
pub struct Access<'a> {
    pub mem: &'a Mem,
    pub at: &'a [Pos],
    pub checked: &'a [bool],
    pub lanes: u32,
    /// Lanes that take part; all where there is none.
    pub mask: Option<Val>,
}

/// An integer of any dtype as a signed 64-bit position.
pub fn to_index(ir: &Ir, p: Val, dtype: DType) -> Val {
    let wide = ir.like(ir.ty(p), ir.i64());
    match dtype.carrier() {
        DType::I64 | DType::U64 => p,
        DType::U32 | DType::Bool => ir.zext(p, wide),
        _ => ir.sext(p, wide),
    }
}

/// The layout bit of an array that may be written past the caches.
pub const STREAM: u32 = 1 << 31;
/// The layout bit of an array that a matmul writes and that has few rows or columns: its code has a form for these.
pub const FEW: u32 = 1 << 30;

impl Access<'_> {
    fn address(&self, ir: &Ir) -> Address {
        let (mut base, mut spread) = (self.mem.base, None);
        let one_row = self.is_row();
        for ((pos, &stride), _) in self.at.iter().zip(&self.mem.strides).zip(0..) {
            let (first, each) = match *pos {
                Pos::Uniform(p) => (Some(p), None),
                Pos::Steps { first, .. } if one_row => (Some(first), None),
                Pos::Steps { first, step } => {
                    let ty = ir.vec(ir.i64(), self.lanes);
                    let by = ir.splat(ir.mul_const(stride, step), self.lanes);
                    (Some(first), Some(ir.mul(ir.const_steps(ty, 0, 1), by)))
                }
                Pos::Each(p) => (None, Some(ir.mul(p, ir.splat(stride, self.lanes)))),
            };
            if let Some(p) = first
                && ir.as_int(p) != Some(0)
            {
                base = ir.offset(base, ir.mul(p, stride));
            }
            spread = match (spread, each) {
                (Some(a), Some(b)) => Some(ir.add(a, b)),
                (a, b) => a.or(b),
            };
        }
        match spread {
            Some(offsets) => Address::Each(ir.offset(base, offsets)),
            None if one_row && self.lanes > 1 => Address::Row(base),
            None => Address::One(base),
        }
    }

    /// The address of the first lane and the distance of the lanes in elements, where that is a small number that is
    /// known, and all lanes take part.
    fn apart(&self, ir: &Ir) -> Option<(Val, u32)> {
        let bytes = self.mem.dtype.bytes() as i64;
        let (mut base, mut every) = (self.mem.base, None);
        for (pos, &stride) in self.at.iter().zip(&self.mem.strides) {
            let first = match *pos {
                Pos::Uniform(p) => p,
                Pos::Steps { first, step } => {
                    let by = ir.as_int(stride)?.checked_mul(step)?;
                    let fits = by % bytes == 0 && (2..=FARTHEST).contains(&(by / bytes));
                    if every.is_some() || !fits {
                        return None;
                    }
                    every = Some((by / bytes) as u32);
                    first
                }
                Pos::Each(_) => return None,
            };
            if ir.as_int(first) != Some(0) {
                base = ir.offset(base, ir.mul(first, stride));
            }
        }
        let every = every.filter(|&n| self.lanes > n && self.mask.is_none())?;
        (!self.checked.contains(&true)).then_some((base, every))
    }

    /// Each `every`-th element, out of vectors that are read whole.
    fn load_apart(&self, ir: &Ir, ty: Ty, base: Val, every: u32) -> Val {
        let (lanes, row) = (self.lanes, i64::from(self.lanes) * self.mem.dtype.bytes() as i64);
        let vector = |i: u32| {
            let p = ir.offset_const(base, row * i64::from(i));
            if i + 1 < every {
                return ir.load(ty, p, ALIGN);
            }
            // Nothing is read behind the last element.
            let mask = ir.const_first_lanes(lanes + 1 - every, lanes);
            ir.masked_load(ty, p, ALIGN, mask, ir.zero(ty))
        };
        let place = |lane: u32, i: u32| {
            let e = lane * every;
            if e / lanes == i { lanes + e % lanes } else { lane }
        };
        let first: Vec<u32> = (0..lanes)
            .map(|lane| if lane * every < 2 * lanes { lane * every } else { 0 })
            .collect();
        let mut out = ir.shuffle(vector(0), vector(1), &first);
        for i in 2..every {
            out = ir.shuffle(out, vector(i), &(0..lanes).map(|l| place(l, i)).collect::<Vec<_>>());
        }
        out
    }

    /// Writes each `every`-th element, and none between them.
    fn store_apart(&self, ir: &Ir, code: Val, base: Val, every: u32) {
        let (lanes, row) = (self.lanes, i64::from(self.lanes) * self.mem.dtype.bytes() as i64);
        for i in 0..every {
            let mine = |t: u32| (i * lanes + t).is_multiple_of(every);
            let from = |t: u32| if mine(t) { (i * lanes + t) / every } else { 0 };
            let mask: Vec<Val> = (0..lanes).map(|t| ir.bool(mine(t))).collect();
            let data = ir.shuffle(code, code, &(0..lanes).map(from).collect::<Vec<_>>());
            let p = ir.offset_const(base, row * i64::from(i));
            ir.masked_store(data, p, ALIGN, ir.const_vec(&mask));
        }
    }

    /// Whether the lanes are neighbours in memory.
    fn is_row(&self) -> bool {
        let mut rows = 0;
        for (pos, &unit) in self.at.iter().zip(&self.mem.unit) {
            match pos {
                Pos::Uniform(_) => {}
                Pos::Steps { step: 1, .. } if unit => rows += 1,
                Pos::Steps { .. } | Pos::Each(_) => return false,
            }
        }
        rows == 1
    }

    /// The lanes that may touch memory, from the extents and the mask: one for all, and one each.
    fn guard(&self, ir: &Ir) -> (Option<Val>, Option<Val>) {
        let (mut one, mut each) = (None, None);
        let and = |a: &mut Option<Val>, b| *a = Some(a.map_or(b, |a| ir.and(a, b)));
        for ((pos, &dim), &checked) in self.at.iter().zip(&self.mem.dims).zip(self.checked) {
            if !checked {
                continue;
            }
            // Extents are not negative, so one comparison without sign holds a position to both ends.
            match *pos {
                Pos::Uniform(p) => and(&mut one, ir.icmp(IntCmp::LLVMIntULT, p, dim)),
                Pos::Steps { first, step } => {
                    let ty = ir.vec(ir.i64(), self.lanes);
                    let p = ir.add(ir.splat(first, self.lanes), ir.const_steps(ty, 0, step));
                    and(&mut each, ir.icmp(IntCmp::LLVMIntULT, p, ir.splat(dim, self.lanes)));
                }
                Pos::Each(p) => {
                    and(&mut each, ir.icmp(IntCmp::LLVMIntULT, p, ir.splat(dim, self.lanes)));
                }
            }
        }
        if let Some(mask) = self.mask {
            match ir.lanes(ir.ty(mask)) {
                1 => and(&mut one, mask),
                _ => and(&mut each, mask),
            }
        }
        (one, each)
    }

    /// Both guards as one of all lanes.
    fn vector_mask(&self, ir: &Ir) -> Option<Val> {
        match self.guard(ir) {
            (None, None) => None,
            (Some(one), None) => Some(ir.splat(one, self.lanes)),
            (None, Some(each)) => Some(each),
            (Some(one), Some(each)) => Some(ir.and(each, ir.splat(one, self.lanes))),
        }
    }

    /// The elements in their carrier; `other` (zero where there is none) outside. One value where
    /// all lanes are at one place.
    ///
    /// `safe` is an address that can be read, whatever happens.
    pub fn load(&self, s: &Scalars<'_>, other: Option<Val>, safe: Val) -> Val {
        let (ir, dtype) = (s.ir, self.mem.dtype);
        if let Some((base, every)) = self.apart(ir) {
            let code = self.load_apart(ir, s.stored(dtype, self.lanes), base, every);
            return s.decode(code, dtype);
        }
        let address = self.address(ir);
        let lanes = match address {
            Address::One(_) => 1,
            Address::Row(_) | Address::Each(_) => self.lanes,
        };
        let ty = s.stored(dtype, lanes);
        let zero = ir.zero(ty);
        let (code, guard) = match address {
            Address::One(p) => {
                let (one, each) = self.guard(ir);
                let guard = match (one, each) {
                    (one, None) => one,
                    // The lanes differ only in whether they read: any of them will do.
                    (one, Some(each)) => {
                        let value = self.load_one(s, p, one, safe);
                        let all = ir.splat(value, self.lanes);
                        let other = self.other(s, other, self.lanes);
                        let read = one.map_or(each, |g| ir.and(each, ir.splat(g, self.lanes)));
                        return ir.select(read, all, other);
                    }
                };
                let code = match guard {
                    Some(g) => ir.load(ty, ir.select(g, p, safe), ALIGN),
                    None => ir.load(ty, p, ALIGN),
                };
                (code, guard)
            }
            // Where all lanes read or none does, those that do not find zeros elsewhere: a number chosen is less than
            // a mask made.
            Address::Row(p) if other.is_none() && dtype != DType::E8M0 => {
                let (one, each) = self.guard(ir);
                let p = one.map_or(p, |one| {
                    ir.select(one, p, ir.zeros(dtype.bytes() as u64 * u64::from(lanes)))
                });
                match each {
                    Some(mask) => (ir.masked_load(ty, p, ALIGN, mask, zero), Some(mask)),
                    None => (ir.load(ty, p, ALIGN), None),
                }
            }
            Address::Row(p) => match self.vector_mask(ir) {
                Some(mask) => (ir.masked_load(ty, p, ALIGN, mask, zero), Some(mask)),
                None => (ir.load(ty, p, ALIGN), None),
            },
            Address::Each(ps) => {
                let guard = self.vector_mask(ir);
                let all = || ir.const_first_lanes(lanes, lanes);
                (ir.gather(ty, ps, ALIGN, guard.unwrap_or_else(all), zero), guard)
            }
        };
        let value = s.decode(code, dtype);
        match guard {
            // What is masked off was loaded as zero bits already, but for one place.
            Some(g) if other.is_some() || lanes == 1 || dtype == DType::E8M0 => {
                ir.select(g, value, self.other(s, other, lanes))
            }
            _ => value,
        }
    }

    fn load_one(&self, s: &Scalars<'_>, p: Val, guard: Option<Val>, safe: Val) -> Val {
        let p = guard.map_or(p, |g| s.ir.select(g, p, safe));
        s.decode(s.ir.load(s.stored(self.mem.dtype, 1), p, ALIGN), self.mem.dtype)
    }

    fn other(&self, s: &Scalars<'_>, other: Option<Val>, lanes: u32) -> Val {
        match other {
            Some(v) if s.ir.lanes(s.ir.ty(v)) == lanes => v,
            Some(v) => s.ir.splat(v, lanes),
            None => s.constant(Scalar::zero(self.mem.dtype), lanes),
        }
    }

    /// The address of each lane's element, and the lanes that may touch it where not all may.
    pub fn places(&self, ir: &Ir) -> (Val, Option<Val>) {
        let ps = match self.address(ir) {
            Address::One(p) => ir.splat(p, self.lanes),
            Address::Row(p) => {
                let steps = ir.const_steps(ir.vec(ir.i64(), self.lanes), 0, 1);
                ir.offset(p, ir.mul_const(steps, self.mem.dtype.bytes() as i64))
            }
            Address::Each(ps) => ps,
        };
        (ps, self.vector_mask(ir))
    }

    /// The address of the first lane, where the lanes are contiguous.
    pub fn row(&self, ir: &Ir) -> Option<Val> {
        match self.address(ir) {
            Address::Row(p) => Some(p),
            Address::One(_) | Address::Each(_) => None,
        }
    }

    /// As `store`, with non-temporal stores where whole vectors are whole cache lines; `on_lines`
    /// says that they are known to be, otherwise each address is tested. False where the lanes are
    /// not such a vector: then nothing was written.
    pub fn stream(&self, s: &Scalars<'_>, code: Val, on_lines: bool) -> bool {
        let ir = s.ir;
        let per_line = 64 / self.mem.dtype.bytes() as u32;
        let whole = self.lanes.is_multiple_of(per_line);
        if !self.mem.stream || !whole || self.mask.is_some() || self.checked.contains(&true) {
            return false;
        }
        let Address::Row(p) = self.address(ir) else { return false };
        let past = |ir: &Ir| {
            for line in 0..self.lanes / per_line {
                let lanes: Vec<u32> = (per_line * line..per_line * (line + 1)).collect();
                let one = if lanes.len() as u32 == self.lanes {
                    code
                } else {
                    ir.shuffle(code, code, &lanes)
                };
                ir.non_temporal(ir.store(one, ir.offset_const(p, 64 * i64::from(line)), 64));
            }
        };
        if on_lines {
            past(ir);
            return true;
        }
        let low = ir.and(ir.ptr_to_int(p, ir.i64()), ir.c64(63));
        let whole_line = ir.icmp(IntCmp::LLVMIntEQ, low, ir.c64(0));
        let otherwise = |ir: &Ir| {
            ir.store(code, p, ALIGN);
            Vec::new()
        };
        ir.if_else(
            whole_line,
            |ir| {
                past(ir);
                Vec::new()
            },
            otherwise,
        );
        true
    }

    /// Writes codes (of as many lanes, or one for all).
    pub fn store(&self, s: &Scalars<'_>, code: Val) {
        let ir = s.ir;
        let wide =
            |v: Val| if ir.lanes(ir.ty(v)) == self.lanes { v } else { ir.splat(v, self.lanes) };
        if let Some((base, every)) = self.apart(ir) {
            return self.store_apart(ir, wide(code), base, every);
        }
        match self.address(ir) {
            Address::One(p) if self.lanes == 1 => match self.guard(ir) {
                (None, None) => {
                    ir.store(code, p, ALIGN);
                }
                (one, each) => {
                    let guard = match (one, each) {
                        (Some(a), Some(b)) => ir.and(a, b),
                        (a, b) => a.or(b).unwrap_or_else(|| ir.bool(true)),
                    };
                    ir.masked_store(code, p, ALIGN, guard);
                }
            },
            Address::Row(p) => match self.vector_mask(ir) {
                Some(mask) => ir.masked_store(wide(code), p, ALIGN, mask),
                None => {
                    ir.store(wide(code), p, ALIGN);
                }
            },
            // All lanes at one place: the last that takes part stays, as in memory order.
            Address::One(p) => {
                let ps = ir.splat(p, self.lanes);
                let mask = self
                    .vector_mask(ir)
                    .unwrap_or_else(|| ir.const_first_lanes(self.lanes, self.lanes));
                ir.scatter(wide(code), ps, ALIGN, mask);
            }
            Address::Each(ps) => {
                let mask = self
                    .vector_mask(ir)
                    .unwrap_or_else(|| ir.const_first_lanes(self.lanes, self.lanes));
                ir.scatter(wide(code), ps, ALIGN, mask);
            }
        }
    }
}
