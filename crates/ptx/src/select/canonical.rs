//! Strict reductions: sums and products of floats in the canonical order of LANGUAGE 14. The layout
//! keeps 64 partial results in adjacent lanes.

use super::Select;
use crate::inst::*;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::OpId;
use tessera_layout::{In, Layout};
use tessera_numerics::DType;

/// Elements that have 64 partial results of their own.
const CHUNK: u32 = 65536;
/// The most chunks of one reduction: their results are combined as the lanes of one chunk are.
const MOST_CHUNKS: u32 = 64;

impl Select<'_> {
    /// The canonical order: 64 partial results, partial result `i` over elements `i mod 64` in
    /// ascending order, then a tree that adds the upper half onto the lower. Along the axis the
    /// layout has lanes in the lowest five bits, the sixth bit in the lowest warp bit (or in a
    /// register bit, with one warp), registers above, and other warps above those.
    ///
    /// Beyond 65536 elements each chunk of 65536 has its own partial results, and their sums are
    /// combined in the same order.
    pub fn reduce_in_order(
        &mut self,
        id: OpId,
        layout: &Arc<Layout>,
        axis: usize,
        op: &str,
        dtype: DType,
        xs: &[Reg],
    ) -> Result<Vec<Reg>, Diagnostics> {
        let Some(form) = &Canonical::of(layout, axis) else {
            return self.unsupported(id, format!("{layout} has no canonical order along {axis}"));
        };
        let Some(chunks) = form.chunks(layout, axis) else {
            return self.unsupported(
                id,
                format!(
                    "a strict {op} over {} elements is too long: use a loop over pieces",
                    layout.shape()[axis]
                ),
            );
        };
        let results = layout.reduce(axis).regs() as usize;
        let map = layout.reduce_regs(axis);
        let nothing = self.identity(op, dtype);
        // The elements of each partial result, in order along the axis.
        let mut rows: Vec<[Vec<(u32, Reg)>; 2]> = vec![[Vec::new(), Vec::new()]; results];
        for (reg, &x) in xs.iter().enumerate() {
            let at = layout.reg_part(reg as u32)[axis];
            let x = match self.valid(layout, reg as u32) {
                Ok(true) => x,
                Ok(false) => continue,
                Err(p) => self.choose(p, x, nothing),
            };
            let half = if form.register { (at >> 5 & 1) as usize } else { 0 };
            rows[map[reg] as usize][half].push((at, x));
        }
        for row in &mut rows {
            for half in row.iter_mut() {
                half.sort_by_key(|e| e.0);
            }
        }
        let class = crate::scalar::carrier(dtype);
        if form.register {
            let mut out = Vec::new();
            for [low, high] in &rows {
                let low = self.add_up(id, op, dtype, nothing, low)?;
                let high = self.add_up(id, op, dtype, nothing, high)?;
                let both = self.combine(id, op, dtype, low, high)?;
                out.push(self.halve(id, op, dtype, both)?);
            }
            return Ok(out);
        }
        let rows: Vec<Vec<(u32, Reg)>> = rows.into_iter().map(|[all, _]| all).collect();
        // As many rows together as shared memory has room for.
        let size = if class == Class::B64 { 8 } else { 4 };
        let one = form.groups() * chunks * 64 * size;
        let batch = (self.scratch_room().min(self.larger_room()) / one).max(1) as usize;
        let chain =
            Chain { form, chunks, each: form.iterations_of_chunk(layout, axis), size, nothing };
        let mut out = Vec::new();
        for rows in rows.chunks(batch) {
            out.extend(self.add_in_chain(id, op, dtype, &chain, rows)?);
        }
        Ok(out)
    }

    /// Adds elements one after another into one register.
    fn add_up(
        &mut self,
        id: OpId,
        op: &str,
        dtype: DType,
        first: Reg,
        elements: &[(u32, Reg)],
    ) -> Result<Reg, Diagnostics> {
        let mut acc = first;
        for &(_, x) in elements {
            acc = self.combine(id, op, dtype, acc, x)?;
        }
        Ok(acc)
    }

    /// Pairs of warps continue one after another, each with the partial results of the pair before.
    fn add_in_chain(
        &mut self,
        id: OpId,
        op: &str,
        dtype: DType,
        chain: &Chain<'_>,
        rows: &[Vec<(u32, Reg)>],
    ) -> Result<Vec<Reg>, Diagnostics> {
        let &Chain { form, chunks, each, size, nothing } = chain;
        let class = crate::scalar::carrier(dtype);
        let (lane, warp) = (self.lane(), self.warp());
        let half = 32 * i64::from(size);
        let row_bytes = 2 * half;
        let group_bytes = rows.len() as i64 * row_bytes;
        let chunk_bytes = i64::from(form.groups()) * group_bytes;
        let region = self.scratch(chunks * chunk_bytes as u32);
        let base = self.region(region);
        let low = self.asm.int(Alu::And, Ty::B32, &[warp.into(), Opnd::Int(1)]);
        let mut at = base;
        let field = |me: &mut Self, bit: usize| {
            me.asm.int(Alu::Bfe, Ty::U32, &[warp.into(), Opnd::Int(bit as i64), Opnd::Int(1)])
        };
        // Warps that hold different rows use separate memory.
        for (to, &bit) in form.rows.iter().enumerate() {
            let one = field(self, bit);
            let by = Opnd::Int(group_bytes << to);
            at = self.asm.int(Alu::MadLo, Ty::U32, &[one.into(), by, at.into()]);
        }
        let n = Opnd::Int(size.into());
        let lane_at = self.asm.int(Alu::MadLo, Ty::U32, &[lane.into(), n, at.into()]);
        let n = Opnd::Int(half);
        let own = self.asm.int(Alu::MadLo, Ty::U32, &[low.into(), n, lane_at.into()]);
        let iteration = self.asm.mov(Ty::B32, Opnd::Int(0));
        let mut mine = self.asm.mov(Ty::B32, Opnd::Int(0));
        for (to, &bit) in form.chain.iter().enumerate() {
            let one = field(self, bit);
            let n = Opnd::Int(1 << to);
            mine = self.asm.int(Alu::MadLo, Ty::U32, &[one.into(), n, mine.into()]);
        }
        let copies = form.copies(self.warps);
        let adds = (copies != 0).then(|| {
            let bits = self.asm.int(Alu::And, Ty::B32, &[warp.into(), Opnd::Int(copies.into())]);
            self.asm.setp(Cmp::Eq, Ty::U32, bits, Opnd::Int(0))
        });
        let acc: Vec<Reg> = rows.iter().map(|_| self.asm.reg(class)).collect();
        self.move_all(&acc, &vec![nothing; rows.len()]);
        let [again, skip, first] = [self.asm.label(), self.asm.label(), self.asm.label()];
        self.asm.place(again);
        let is_mine = self.asm.setp(Cmp::Eq, Ty::U32, mine, iteration);
        // Of warps that hold copies of the same elements, one adds them.
        let is_mine = self.both(Some(is_mine), adds).unwrap_or(is_mine);
        self.asm.bra_if(is_mine, false, skip);
        // A chunk starts from the identity, in its own place.
        let (here, within) = if chunks > 1 {
            let by = Opnd::Int(each.trailing_zeros().into());
            let chunk = self.asm.int(Alu::Shr, Ty::U32, &[iteration.into(), by]);
            let n = Opnd::Int(chunk_bytes);
            let here = self.asm.int(Alu::MadLo, Ty::U32, &[chunk.into(), n, own.into()]);
            let mask = Opnd::Int(i64::from(each) - 1);
            (here, self.asm.int(Alu::And, Ty::B32, &[iteration.into(), mask]))
        } else {
            (own, iteration)
        };
        let at_start = self.asm.setp(Cmp::Eq, Ty::U32, within, Opnd::Int(0));
        self.asm.bra_if(at_start, true, first);
        for (i, &acc) in acc.iter().enumerate() {
            let old = self.take(Space::Shared, Addr::reg(here, i as i64 * row_bytes), class);
            self.move_all(&[acc], &[old]);
        }
        self.asm.place(first);
        for (i, (row, &acc)) in rows.iter().zip(&acc).enumerate() {
            let sum = self.add_up(id, op, dtype, acc, row)?;
            self.put(Addr::reg(here, i as i64 * row_bytes), sum, None);
        }
        self.asm.place(skip);
        self.barrier();
        let next = self.asm.int(Alu::Add, Ty::U32, &[iteration.into(), Opnd::Int(1)]);
        self.asm.mov_to(Ty::B32, iteration, next);
        let iterations = Opnd::Int(1 << form.chain.len());
        let more = self.asm.setp(Cmp::Lt, Ty::U32, iteration, iterations);
        self.asm.when(more, true, |asm| asm.emit(Inst::Bra { to: again, uniform: true }));
        // Every thread reads the 64 partial results of its row.
        let mut out = Vec::new();
        for i in 0..rows.len() as i64 {
            let mut lanes: Vec<Option<Reg>> = vec![None; MOST_CHUNKS as usize];
            for chunk in 0..chunks {
                let at = i * row_bytes + i64::from(chunk) * chunk_bytes;
                let a = self.take(Space::Shared, Addr::reg(lane_at, at), class);
                let b = self.take(Space::Shared, Addr::reg(lane_at, at + half), class);
                let both = self.combine(id, op, dtype, a, b)?;
                lanes[chunk as usize] = Some(self.halve(id, op, dtype, both)?);
            }
            // Lanes without a chunk hold the identity.
            for half in [32, 16, 8, 4, 2, 1] {
                for lane in 0..half {
                    if let Some(b) = lanes[lane + half] {
                        lanes[lane] = Some(match lanes[lane] {
                            Some(a) => self.combine(id, op, dtype, a, b)?,
                            None => b,
                        });
                    }
                }
            }
            out.push(lanes[0].unwrap_or(nothing));
        }
        self.reading(region);
        Ok(out)
    }

    /// A tree over the 32 partial results of the lanes.
    fn halve(&mut self, id: OpId, op: &str, dtype: DType, mut x: Reg) -> Result<Reg, Diagnostics> {
        for by in [16, 8, 4, 2, 1] {
            let other = self.shuffle(Shfl::Bfly, x, Opnd::Int(by));
            x = self.combine(id, op, dtype, x, other)?;
        }
        Ok(x)
    }
}

/// What the warps of a chain share.
struct Chain<'a> {
    form: &'a Canonical,
    chunks: u32,
    /// Chain iterations of one chunk.
    each: u32,
    /// Bytes of a partial result.
    size: u32,
    nothing: Reg,
}

/// How a layout keeps the canonical order along an axis.
struct Canonical {
    /// The sixth bit is a register bit, and all warps hold different rows or copies.
    register: bool,
    /// Warp bits above the register bits along the axis, lowest first.
    chain: Vec<usize>,
    /// Warp bits that move along other dims.
    rows: Vec<usize>,
}

impl Canonical {
    /// Sets of rows that different warps hold.
    fn groups(&self) -> u32 {
        1 << self.rows.len()
    }

    /// Chain iterations that one chunk takes.
    fn iterations_of_chunk(&self, layout: &Layout, axis: usize) -> u32 {
        let first = self.chain.first().map_or(CHUNK, |&bit| layout.bases(In::Warp)[bit][axis]);
        CHUNK / first
    }

    /// How many chunks there are; none where a chunk is not a whole number of chain iterations, or
    /// there are too many.
    fn chunks(&self, layout: &Layout, axis: usize) -> Option<u32> {
        // Padding counts too: its iterations also run.
        let chunks = layout.box_extents()[axis].div_ceil(CHUNK);
        let whole = !self.register
            && layout.repeat()[axis] == 1
            && layout.bases(In::Reg).iter().all(|b| b[axis] < CHUNK)
            && self.iterations_of_chunk(layout, axis) > 0;
        (chunks <= 1 || whole && chunks <= MOST_CHUNKS).then_some(chunks.max(1))
    }

    /// Warp bits, above the lowest, that do not affect the position.
    fn copies(&self, warps: u32) -> u32 {
        let used = self.chain.iter().chain(&self.rows).fold(1, |m, &bit| m | 1 << bit);
        (warps - 1) & !used
    }

    fn of(layout: &Layout, axis: usize) -> Option<Canonical> {
        let unit = |b: &[u32], n: u32| {
            b.iter().enumerate().all(|(d, &c)| c == if d == axis { n } else { 0 })
        };
        let lanes = layout.bases(In::Lane);
        if layout.ctas() > 1 && layout.bases(In::Cta).iter().any(|b| b[axis] != 0) {
            return None;
        }
        if !lanes.iter().enumerate().all(|(i, b)| unit(b, 1 << i)) {
            return None;
        }
        let warps = layout.bases(In::Warp);
        let along: Vec<usize> = (0..warps.len()).filter(|&i| warps[i][axis] != 0).collect();
        let rows = (0..warps.len())
            .filter(|&i| warps[i][axis] == 0 && warps[i].iter().any(|&c| c != 0))
            .collect();
        match along.split_first() {
            None => Some(Canonical { register: true, chain: Vec::new(), rows }),
            Some((&first, chain)) => {
                let above = |&i: &usize| warps[i][axis] >= 64 && warps[i][axis].is_power_of_two();
                let regs_inside = layout.bases(In::Reg).iter().all(|b| {
                    b[axis] == 0
                        || b[axis] >= 64 && chain.first().is_none_or(|&c| b[axis] < warps[c][axis])
                });
                let sorted = chain.windows(2).all(|w| warps[w[0]][axis] < warps[w[1]][axis]);
                let ok = first == 0 && unit(&warps[0], 32) && chain.iter().all(above) && sorted && regs_inside
                    // Repeats come after everything else, which only works without a chain.
                    && (chain.is_empty() || layout.repeat()[axis] == 1);
                ok.then(|| Canonical { register: false, chain: chain.to_vec(), rows })
            }
        }
    }
}
