//! Reductions of a tile along an axis: within a thread, across lanes, across warps, across the
//! blocks of a cluster. Every thread that held elements of a row ends with its result.
//!
//! Under `strict`, sums and products of floats keep the canonical order of LANGUAGE 14: the layout
//! keeps the 64 partial results in adjacent lanes, see `canonical`.

use super::{Repr, Select};
use crate::inst::*;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Type};
use tessera_layout::{In, Layout};
use tessera_numerics::{DType, Profile, ScalarFn};

/// One element that is combined: a value, or a value and its index.
type Item = Vec<Reg>;

/// Emits code that combines two of them.
type Join<'a, S> = dyn FnMut(&mut S, &[Reg], &[Reg]) -> Result<Item, Diagnostics> + 'a;

impl Select<'_> {
    /// The value of another lane.
    pub fn shuffle(&mut self, kind: Shfl, x: Reg, by: Opnd) -> Reg {
        let full = Opnd::Int(0xffff_ffff);
        // `Up` is bounded by the lowest lane, the others by the highest.
        let c = Opnd::Int(if kind == Shfl::Up { 0 } else { 0x1f });
        let word = |me: &mut Self, a: Reg| {
            let d = me.asm.reg(Class::B32);
            me.asm.emit(Inst::Shfl { kind, d, ok: None, a: a.into(), b: by, c, mask: full });
            d
        };
        match x.class {
            Class::B32 => word(self, x),
            Class::B64 => {
                let parts = self.asm.unpack(Class::B32, 2, x);
                let parts: Vec<Reg> = parts.into_iter().map(|p| word(self, p)).collect();
                self.asm.pack(Class::B64, &parts)
            }
            Class::Pred => {
                let n = self.asm.selp(Ty::B32, x, Opnd::Int(1), Opnd::Int(0));
                let n = word(self, n);
                self.asm.setp(Cmp::Ne, Ty::U32, n, Opnd::Int(0))
            }
            Class::B16 => {
                let wide = self.asm.cvt(Ty::U32, Ty::U16, None, x);
                let wide = word(self, wide);
                self.asm.cvt(Ty::U16, Ty::U32, None, wide)
            }
        }
    }

    /// Stores a register to shared memory as it is, and loads it back.
    pub fn put(&mut self, addr: Addr, x: Reg, when: Option<Reg>) {
        let (ty, x) = match x.class {
            Class::Pred => (Ty::B32, self.asm.selp(Ty::B32, x, Opnd::Int(1), Opnd::Int(0))),
            Class::B16 => (Ty::B16, x),
            Class::B32 => (Ty::B32, x),
            Class::B64 => (Ty::B64, x),
        };
        self.asm.maybe(when, |asm| asm.st(Space::Shared, ty, &[x.into()], addr, Cache::Usual));
    }

    pub fn take(&mut self, space: Space, addr: Addr, class: Class) -> Reg {
        let ty = match class {
            Class::Pred | Class::B32 => Ty::B32,
            Class::B16 => Ty::B16,
            Class::B64 => Ty::B64,
        };
        let r = self.asm.ld(space, ty, 1, addr, Cache::Usual)[0];
        match class {
            Class::Pred => self.asm.setp(Cmp::Ne, Ty::U32, r, Opnd::Int(0)),
            _ => r,
        }
    }

    pub fn reduce(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let name = op.attr("op").and_then(Attr::as_word).unwrap_or("sum").to_string();
        let dtype = self.dtype(x);
        let axis = self.axis(id);
        let layout = self.layout(x);
        let xs = self.regs(x);
        let ordered = self.profile == Profile::Strict
            && dtype.is_float()
            && matches!(name.as_str(), "sum" | "add" | "prod");
        let out = if ordered {
            self.reduce_in_order(id, &layout, axis, &name, dtype, &xs)?
        } else {
            let items = xs.into_iter().map(|x| vec![x]).collect();
            let nothing = self.identity(&name, dtype);
            let out = self.combine_all(&layout, axis, items, &[nothing], &mut |me, a, b| {
                Ok(vec![me.combine(id, &name, dtype, a[0], b[0])?])
            })?;
            out.into_iter().map(|i| i[0]).collect()
        };
        self.give_reduced(id, result, &layout, axis, out)
    }

    fn give_reduced(
        &mut self,
        id: OpId,
        result: tessera_ir::Value,
        layout: &Layout,
        axis: usize,
        out: Vec<Reg>,
    ) -> Result<(), Diagnostics> {
        if let Type::Scalar(_) = self.func.ty(result) {
            self.set(result, Repr::Scalar(out[0]));
            return Ok(());
        }
        let to = self.layout(result);
        let Some(map) = Layout::reg_map(&layout.reduce(axis), &to) else {
            return self
                .unsupported(id, format!("the result of a reduction is not laid out as {to}"));
        };
        let out = map.iter().map(|&r| out[r as usize]).collect();
        self.set(result, Repr::Tile(out));
        Ok(())
    }

    pub fn arg_reduce(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let (x, result) = (op.operands[0], op.result());
        let max = op.attr("op").and_then(Attr::as_word) != Some("min");
        let dtype = self.dtype(x);
        let axis = self.axis(id);
        let layout = self.layout(x);
        let xs = self.regs(x);
        let mut items = Vec::new();
        for (reg, x) in xs.into_iter().enumerate() {
            let c = self.coords(&layout, reg as u32)[axis];
            items.push(vec![x, self.coord_value(c)]);
        }
        // Padding sorts after every element, so that its value does not matter.
        let zero = self.zero(dtype);
        let last = self.asm.mov(Ty::B32, Opnd::Int(i64::from(i32::MAX)));
        let out = self.combine_all(&layout, axis, items, &[zero, last], &mut |me, a, b| {
            me.better(id, dtype, max, a, b)
        })?;
        let out = out.into_iter().map(|i| i[1]).collect();
        self.give_reduced(id, result, &layout, axis, out)
    }

    /// The better of two candidates: NaN before numbers, then by value, then the first.
    fn better(
        &mut self,
        id: OpId,
        dtype: DType,
        max: bool,
        a: &[Reg],
        b: &[Reg],
    ) -> Result<Item, Diagnostics> {
        let apply = |me: &mut Self, f, x: &[Reg]| {
            let r = me.scalars().apply(f, dtype, x);
            r.or_else(|u| me.unsupported(id, u.to_string()))
        };
        let order = if max { ScalarFn::Gt } else { ScalarFn::Lt };
        let mut wins = apply(self, order, &[b[0], a[0]])?;
        let mut ties = apply(self, ScalarFn::Eq, &[b[0], a[0]])?;
        if dtype.is_float() {
            let [na, nb] = [a[0], b[0]].map(|x| apply(self, ScalarFn::IsNan, &[x]));
            let (na, nb) = (na?, nb?);
            let not_na = self.asm.int(Alu::Not, Ty::Pred, &[na.into()]);
            let only_b = self.and(nb, not_na);
            wins = self.asm.int(Alu::Or, Ty::Pred, &[wins.into(), only_b.into()]);
            let both = self.and(na, nb);
            ties = self.asm.int(Alu::Or, Ty::Pred, &[ties.into(), both.into()]);
        }
        let earlier = self.asm.setp(Cmp::Lt, Ty::S32, b[1], a[1]);
        let tie = self.and(ties, earlier);
        let mut take = self.asm.int(Alu::Or, Ty::Pred, &[wins.into(), tie.into()]);
        // Padding never wins, and anything wins over it.
        let padding = Opnd::Int(i64::from(i32::MAX));
        let b_is = self.asm.setp(Cmp::Ne, Ty::S32, b[1], padding);
        let a_not = self.asm.setp(Cmp::Eq, Ty::S32, a[1], padding);
        take = self.asm.int(Alu::Or, Ty::Pred, &[take.into(), a_not.into()]);
        take = self.and(take, b_is);
        let value = self.scalars().select(dtype, take, b[0], a[0]);
        Ok(vec![value, self.asm.selp(Ty::B32, take, b[1], a[1])])
    }

    /// Combines everything along an axis; the results have the layout `layout.reduce(axis)`.
    fn combine_all(
        &mut self,
        layout: &Arc<Layout>,
        axis: usize,
        items: Vec<Item>,
        nothing: &[Reg],
        f: &mut Join<'_, Self>,
    ) -> Result<Vec<Item>, Diagnostics> {
        let results = layout.reduce(axis).regs() as usize;
        let map = layout.reduce_regs(axis);
        let mut rows: Vec<Vec<Item>> = vec![Vec::new(); results];
        for (reg, item) in items.into_iter().enumerate() {
            let item = match self.valid(layout, reg as u32) {
                Ok(true) => item,
                Ok(false) => continue,
                Err(p) => item.iter().zip(nothing).map(|(&x, &z)| self.choose(p, x, z)).collect(),
            };
            rows[map[reg] as usize].push(item);
        }
        let mut out = Vec::with_capacity(results);
        for mut row in rows {
            if row.is_empty() {
                row.push(nothing.to_vec());
            }
            // As a tree, so that the steps are independent.
            while row.len() > 1 {
                let mut next = Vec::with_capacity(row.len().div_ceil(2));
                for pair in row.chunks(2) {
                    next.push(match pair {
                        [a, b] => f(self, a, b)?,
                        _ => pair[0].clone(),
                    });
                }
                row = next;
            }
            out.push(row.swap_remove(0));
        }
        for (bit, base) in layout.bases(In::Lane).iter().enumerate() {
            if base[axis] == 0 {
                continue;
            }
            for item in &mut out {
                let by = Opnd::Int(1 << bit);
                let other: Item = item.iter().map(|&x| self.shuffle(Shfl::Bfly, x, by)).collect();
                *item = f(self, item, &other)?;
            }
        }
        let moving = |i: In| -> Vec<usize> {
            let bases = layout.bases(i).iter().enumerate();
            bases.filter(|(_, b)| b[axis] != 0).map(|(bit, _)| bit).collect()
        };
        let warps = moving(In::Warp);
        if !warps.is_empty() {
            self.across_warps(layout, axis, &warps, &mut out, f)?;
        }
        let ctas = moving(In::Cta);
        if !ctas.is_empty() {
            if warps.is_empty() && self.warps > 1 {
                self.block_barrier();
            }
            self.across_blocks(&layout.reduce(axis), &ctas, &mut out, f)?;
        }
        Ok(out)
    }

    pub fn choose(&mut self, p: Reg, a: Reg, b: Reg) -> Reg {
        match a.class {
            Class::Pred => {
                // (p and a) or (not p and b)
                let x = self.and(p, a);
                let not = self.asm.int(Alu::Not, Ty::Pred, &[p.into()]);
                let y = self.and(not, b);
                self.asm.int(Alu::Or, Ty::Pred, &[x.into(), y.into()])
            }
            Class::B16 => self.asm.selp(Ty::B16, p, a, b),
            Class::B32 => self.asm.selp(Ty::B32, p, a, b),
            Class::B64 => self.asm.selp(Ty::B64, p, a, b),
        }
    }

    /// Combines partial results of warps through shared memory, at index (item part, warp, lane).
    fn across_warps(
        &mut self,
        layout: &Arc<Layout>,
        axis: usize,
        bits: &[usize],
        out: &mut [Item],
        f: &mut Join<'_, Self>,
    ) -> Result<(), Diagnostics> {
        // Lanes that hold copies of a result share one place.
        let lane_bits: Vec<usize> = layout
            .reduce(axis)
            .bases(In::Lane)
            .iter()
            .enumerate()
            .filter(|(_, b)| b.iter().any(|&c| c != 0))
            .map(|(bit, _)| bit)
            .collect();
        let lanes = 1u32 << lane_bits.len();
        let warps = self.warps;
        let parts = out.len() as u32 * out[0].len() as u32;
        let slot_bytes = 8u32;
        let region = self.scratch(parts * warps * lanes * slot_bytes);
        let base = self.region(region);
        let (lane, warp) = (self.lane(), self.warp());
        // The lane part of the index: the bits that matter, packed.
        let mut slot = self.asm.mov(Ty::B32, Opnd::Int(0));
        for (to, &bit) in lane_bits.iter().enumerate() {
            let one = self.asm.int(
                Alu::Bfe,
                Ty::U32,
                &[lane.into(), Opnd::Int(bit as i64), Opnd::Int(1)],
            );
            let shifted = self.asm.int(Alu::Shl, Ty::B32, &[one.into(), Opnd::Int(to as i64)]);
            slot = self.asm.int(Alu::Or, Ty::B32, &[slot.into(), shifted.into()]);
        }
        let row = i64::from(lanes * slot_bytes);
        let eight = Opnd::Int(slot_bytes.into());
        let lane_at = self.asm.int(Alu::MadLo, Ty::U32, &[slot.into(), eight, base.into()]);
        let own = self.asm.int(Alu::MadLo, Ty::U32, &[warp.into(), Opnd::Int(row), lane_at.into()]);
        // One of the lanes that hold a result writes it.
        let copies = (0..5).filter(|b| !lane_bits.contains(b)).fold(0i64, |m, b| m | 1 << b);
        let writer = (copies != 0).then(|| {
            let m = self.asm.int(Alu::And, Ty::B32, &[lane.into(), Opnd::Int(copies)]);
            self.asm.setp(Cmp::Eq, Ty::U32, m, Opnd::Int(0))
        });
        let plane = i64::from(warps) * row;
        for (i, item) in out.iter().enumerate() {
            for (j, &x) in item.iter().enumerate() {
                let part = (i * item.len() + j) as i64;
                self.put(Addr::reg(own, part * plane), x, writer);
            }
        }
        self.block_barrier();
        // The first warp of this row: without the bits along the axis.
        let moving = bits.iter().fold(0i64, |m, &b| m | 1 << b);
        let keep = i64::from(warps - 1) & !moving;
        let n = 1usize << bits.len();
        let many = lanes == 1 && n > 4 && n <= 32;
        if many {
            // Each lane loads the part of one warp, and lanes combine.
            let mut other = self.asm.int(Alu::And, Ty::B32, &[warp.into(), Opnd::Int(keep)]);
            for (from, &bit) in bits.iter().enumerate() {
                let one = self.asm.int(
                    Alu::Bfe,
                    Ty::U32,
                    &[lane.into(), Opnd::Int(from as i64), Opnd::Int(1)],
                );
                let shifted = self.asm.int(Alu::Shl, Ty::B32, &[one.into(), Opnd::Int(bit as i64)]);
                other = self.asm.int(Alu::Or, Ty::B32, &[other.into(), shifted.into()]);
            }
            let at =
                self.asm.int(Alu::MadLo, Ty::U32, &[other.into(), Opnd::Int(row), base.into()]);
            for (i, item) in out.iter_mut().enumerate() {
                let width = item.len();
                for (j, x) in item.iter_mut().enumerate() {
                    let part = (i * width + j) as i64;
                    *x = self.take(Space::Shared, Addr::reg(at, part * plane), x.class);
                }
                for bit in 0..bits.len() {
                    let by = Opnd::Int(1 << bit);
                    let other: Item =
                        item.iter().map(|&x| self.shuffle(Shfl::Bfly, x, by)).collect();
                    *item = f(self, item, &other)?;
                }
            }
        } else {
            let first = self.asm.int(Alu::And, Ty::B32, &[warp.into(), Opnd::Int(keep)]);
            let at =
                self.asm.int(Alu::MadLo, Ty::U32, &[first.into(), Opnd::Int(row), lane_at.into()]);
            for (i, item) in out.iter_mut().enumerate() {
                let mut parts: Vec<Item> = Vec::new();
                for k in 0..n {
                    let warp: i64 = bits
                        .iter()
                        .enumerate()
                        .map(|(from, &b)| ((k >> from & 1) << b) as i64)
                        .sum();
                    let mut part = Vec::new();
                    for (j, x) in item.iter().enumerate() {
                        let place = (i * item.len() + j) as i64;
                        let addr = Addr::reg(at, place * plane + warp * row);
                        part.push(self.take(Space::Shared, addr, x.class));
                    }
                    parts.push(part);
                }
                let mut all = parts.remove(0);
                for part in parts {
                    all = f(self, &all, &part)?;
                }
                *item = all;
            }
        }
        self.reading(region);
        Ok(())
    }

    /// Combines partial results of blocks.
    fn across_blocks(
        &mut self,
        result: &Layout,
        bits: &[usize],
        out: &mut [Item],
        f: &mut Join<'_, Self>,
    ) -> Result<(), Diagnostics> {
        let flat: Vec<Reg> = out.iter().flatten().copied().collect();
        let parts = self.exchanged(result, bits, &flat);
        let mut from = 0;
        for item in out {
            let own = |part: &Vec<Reg>| part[from..from + item.len()].to_vec();
            let mut all = own(&parts[0]);
            for part in &parts[1..] {
                all = f(self, &all, &own(part))?;
            }
            from += item.len();
            *item = all;
        }
        Ok(())
    }
}
