//! Thread coordinates: the coordinates of a thread's elements in a layout, from its lane, warp and
//! block index, computed once at the head of the kernel.

use super::Select;
use crate::inst::{Alu, Class, Cmp, Opnd, Reg, Special, Ty};
use tessera_layout::{In, Layout};

/// A coordinate along one dim: the thread's part plus a constant of the register.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Coord {
    /// The thread's part; none where it is zero for all threads.
    pub thread: Option<Reg>,
    pub offset: u32,
}

impl Select<'_> {
    /// Emits code at the head of the kernel, before everything else.
    pub fn head<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        std::mem::swap(&mut self.asm.kernel.body, &mut self.head);
        let out = write(self);
        std::mem::swap(&mut self.asm.kernel.body, &mut self.head);
        out
    }

    pub fn special(&mut self, s: Special) -> Reg {
        if let Some(&r) = self.specials.get(&s) {
            return r;
        }
        let r = self.head(|me| me.asm.special(s));
        self.specials.insert(s, r);
        r
    }

    pub fn tid(&mut self) -> Reg {
        self.special(Special::TidX)
    }

    pub fn cta_rank(&mut self) -> Reg {
        self.special(Special::ClusterCtaRank)
    }

    /// The linear block index.
    pub fn block_id(&mut self) -> Reg {
        self.special(Special::CtaidX)
    }

    pub fn block_count(&mut self) -> Reg {
        self.special(Special::NctaidX)
    }

    pub fn lane(&mut self) -> Reg {
        self.field_of_tid(0, 5)
    }

    pub fn warp(&mut self) -> Reg {
        self.field_of_tid(5, 27)
    }

    /// A bit field of the thread index.
    fn field_of_tid(&mut self, first: u32, bits: u32) -> Reg {
        if let Some(&r) = self.tid_fields.get(&(first, bits)) {
            return r;
        }
        let tid = self.tid();
        let r = self.head(|me| {
            let mut r = tid;
            if first > 0 {
                r = me.asm.int(Alu::Shr, Ty::U32, &[r.into(), Opnd::Int(first.into())]);
            }
            if first + bits < 32 {
                let mask = (1i64 << bits) - 1;
                r = me.asm.int(Alu::And, Ty::B32, &[r.into(), Opnd::Int(mask)]);
            }
            r
        });
        self.tid_fields.insert((first, bits), r);
        r
    }

    /// The exclusive or of `bases[i]` over the set bits `i` of the thread index and of the block's
    /// rank in its cluster.
    fn xor_of_bases(&mut self, thread: &[u32], cta: &[u32]) -> Option<Reg> {
        let key = (thread.to_vec(), cta.to_vec());
        if let Some(&r) = self.coords.get(&key) {
            return r;
        }
        let mut terms = Vec::new();
        for (bits, from_cta) in [(thread, false), (cta, true)] {
            if bits.iter().all(|&b| b == 0) {
                continue;
            }
            let source = if from_cta { self.cta_rank() } else { self.tid() };
            let mut i = 0;
            while i < bits.len() {
                if bits[i] == 0 {
                    i += 1;
                    continue;
                }
                // Consecutive bits with proportional bases are one shift and one mask.
                let mut n = 1;
                let single = bits[i].is_power_of_two();
                while single && i + n < bits.len() && bits[i + n] == bits[i] << n {
                    n += 1;
                }
                terms.push(self.head(|me| me.run(source, i as u32, n as u32, bits[i], bits.len())));
                i += n;
            }
        }
        let r = self.head(|me| {
            terms.into_iter().reduce(|a, b| me.asm.int(Alu::Xor, Ty::B32, &[a.into(), b.into()]))
        });
        self.coords.insert(key, r);
        r
    }

    /// The sum of `bases[i]` over the set bits `i` of the thread index, lanes first.
    pub fn thread_sum(&mut self, bases: &[u32]) -> Option<Reg> {
        let mut thread = bases.to_vec();
        let bits = self.warps.trailing_zeros() as usize + 5;
        thread.resize(bits.max(thread.len()), 0);
        self.xor_of_bases(&thread, &[])
    }

    /// `n` bits of `source` from bit `first` on, times `base`. Bits above `width` are zero.
    fn run(&mut self, source: Reg, first: u32, n: u32, base: u32, width: usize) -> Reg {
        let asm = &mut self.asm;
        let mut r = source;
        if first > 0 {
            r = asm.int(Alu::Shr, Ty::U32, &[r.into(), Opnd::Int(first.into())]);
        }
        if ((first + n) as usize) < width {
            r = asm.int(Alu::And, Ty::B32, &[r.into(), Opnd::Int((1 << n) - 1)]);
        }
        match base {
            1 => r,
            b if b.is_power_of_two() => {
                let by = Opnd::Int(b.trailing_zeros().into());
                asm.int(Alu::Shl, Ty::B32, &[r.into(), by])
            }
            b => asm.int(Alu::MulLo, Ty::U32, &[r.into(), Opnd::Int(b.into())]),
        }
    }

    /// The thread's part of the coordinate along a dim.
    pub fn thread_coord(&mut self, layout: &Layout, dim: usize) -> Option<Reg> {
        let of = |i: In| layout.bases(i).iter().map(|b| b[dim]).collect::<Vec<u32>>();
        let mut thread = of(In::Lane);
        thread.extend(of(In::Warp));
        // Warps beyond those of the layout hold copies.
        let bits = self.warps.trailing_zeros() as usize + 5;
        thread.resize(bits.max(thread.len()), 0);
        let cta = of(In::Cta);
        self.xor_of_bases(&thread, &cta)
    }

    /// The coordinates of a register.
    pub fn coords(&mut self, layout: &Layout, reg: u32) -> Vec<Coord> {
        let offset = layout.reg_offset(reg);
        let disjoint = layout.disjoint();
        (0..layout.rank())
            .map(|dim| {
                let thread = self.thread_coord(layout, dim);
                let (xor, add) = (offset.xor[dim], offset.add[dim]);
                match thread {
                    Some(t) if !disjoint && xor != 0 => {
                        let t = self.head(|me| {
                            me.asm.int(Alu::Xor, Ty::B32, &[t.into(), Opnd::Int(xor.into())])
                        });
                        Coord { thread: Some(t), offset: add }
                    }
                    thread => Coord { thread, offset: xor + add },
                }
            })
            .collect()
    }

    /// A coordinate as a number.
    pub fn coord_value(&mut self, c: Coord) -> Reg {
        match (c.thread, c.offset) {
            (None, n) => self.asm.mov(Ty::B32, Opnd::Int(n.into())),
            (Some(t), 0) => t,
            (Some(t), n) => self.asm.int(Alu::Add, Ty::U32, &[t.into(), Opnd::Int(n.into())]),
        }
    }

    /// Whether a register holds an element and not padding: `Ok(true)` always, `Ok(false)` never,
    /// else a predicate.
    pub fn valid(&mut self, layout: &Layout, reg: u32) -> Result<bool, Reg> {
        if !layout.has_padding() {
            return Ok(true);
        }
        let coords = self.coords(layout, reg);
        let mut all: Option<Reg> = None;
        for (dim, c) in coords.into_iter().enumerate() {
            let extent = layout.shape()[dim];
            let reach = self.thread_reach(layout, dim);
            if c.offset >= extent {
                return Ok(false);
            }
            if c.offset + reach < extent {
                continue;
            }
            let Some(t) = c.thread else { continue };
            let p = self.below(t, extent - c.offset);
            all = Some(match all {
                None => p,
                Some(q) => self.and(p, q),
            });
        }
        all.map_or(Ok(true), Err)
    }

    /// The greatest value of the thread's part along a dim.
    fn thread_reach(&self, layout: &Layout, dim: usize) -> u32 {
        [In::Lane, In::Warp, In::Cta]
            .into_iter()
            .flat_map(|i| layout.bases(i))
            .fold(0, |all, b| all | b[dim])
    }

    /// `r < limit`, computed once per kernel.
    pub fn below(&mut self, r: Reg, limit: u32) -> Reg {
        if let Some(&p) = self.belows.get(&(r, limit)) {
            return p;
        }
        let p = self.head(|me| me.asm.setp(Cmp::Lt, Ty::U32, r, Opnd::Int(limit.into())));
        self.belows.insert((r, limit), p);
        p
    }

    pub fn and(&mut self, a: Reg, b: Reg) -> Reg {
        self.asm.int(Alu::And, Ty::Pred, &[a.into(), b.into()])
    }

    /// The conjunction of two optional conditions.
    pub fn both(&mut self, a: Option<Reg>, b: Option<Reg>) -> Option<Reg> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.and(a, b)),
            (a, b) => a.or(b),
        }
    }

    /// Of the threads of a block that hold the same elements, one is the owner, which writes them
    /// to the block's shared memory. None where every thread is an owner.
    pub fn block_owner(&mut self, layout: &Layout) -> Option<Reg> {
        let (lanes, warps, _) = layout.replicas();
        let mut bits: Vec<bool> = lanes;
        bits.extend(warps);
        bits.resize(5 + self.warps.trailing_zeros() as usize, true);
        let mask = bits.iter().enumerate().fold(0u32, |m, (i, &b)| m | u32::from(b) << i);
        (mask != 0).then(|| self.tid()).map(|tid| self.none_of(tid, mask))
    }

    /// Of threads that hold the same elements, one is the owner. None where every thread is.
    pub fn owner(&mut self, layout: &Layout) -> Option<Reg> {
        let (lanes, warps, ctas) = layout.replicas();
        let mut bits: Vec<bool> = lanes;
        bits.extend(warps);
        bits.resize(5 + self.warps.trailing_zeros() as usize, true);
        let mask = bits.iter().enumerate().fold(0u32, |m, (i, &b)| m | u32::from(b) << i);
        let cta = ctas.iter().enumerate().fold(0u32, |m, (i, &b)| m | u32::from(b) << i);
        let cta = cta | self.cluster.saturating_sub(1) & !((1 << ctas.len()) - 1);
        let a = (mask != 0).then(|| self.tid()).map(|tid| self.none_of(tid, mask));
        let b = (cta != 0).then(|| self.cta_rank()).map(|rank| self.none_of(rank, cta));
        match (a, b) {
            (Some(a), Some(b)) => {
                let key = (a, b);
                if let Some(&p) = self.pairs.get(&key) {
                    return Some(p);
                }
                let p = self.head(|me| me.and(a, b));
                self.pairs.insert(key, p);
                Some(p)
            }
            (a, b) => a.or(b),
        }
    }

    /// Whether none of the bits is set, computed once per kernel.
    pub fn none_of(&mut self, r: Reg, mask: u32) -> Reg {
        if let Some(&p) = self.nones.get(&(r, mask)) {
            return p;
        }
        let p = self.head(|me| {
            let m = me.asm.int(Alu::And, Ty::B32, &[r.into(), Opnd::Int(mask.into())]);
            me.asm.setp(Cmp::Eq, Ty::U32, m, Opnd::Int(0))
        });
        self.nones.insert((r, mask), p);
        p
    }

    /// A 32-bit number as a 64-bit one.
    pub fn widen(&mut self, r: Reg) -> Reg {
        match r.class {
            Class::B64 => r,
            _ => self.asm.cvt(Ty::U64, Ty::U32, None, r),
        }
    }
}
