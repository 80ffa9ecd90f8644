//! Products of tiles by one fused multiply-add for each k, ascending, on operands in shared memory:
//! what strict results ask for, and dtypes that matrix units do not have.

use super::Select;
use super::place::Coord;
use super::sync::Smem;
use super::{Repr, ring::KnownPlaces};
use crate::inst::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use tessera_diag::Diagnostics;
use tessera_ir::{OpId, Type};
use tessera_layout::Layout;
use tessera_numerics::{DType, ScalarFn};

/// The most multiply-adds that are written one after another.
const UNROLLED: u32 = 2048;

/// One operand: a line of elements for each k.
struct Side {
    m: Smem,
    /// The dim of the memory that goes along the sums; the other one is k.
    dim: usize,
    /// Where the thread's elements are along it: the thread's part and an offset, ascending.
    places: Vec<Coord>,
    /// Neighbours that one load takes, along k or along the sums.
    along_k: bool,
    vector: u32,
    known: KnownPlaces,
    /// What was loaded: the first k, and for each place the elements from there on.
    loaded: Option<(u32, Vec<Vec<Reg>>)>,
}

impl Select<'_> {
    pub fn issue(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let b = self.smem(op.operands[1]);
        let a = match self.repr(op.operands[0]) {
            Repr::Smem(m) => m.clone(),
            // Other threads need its elements too.
            _ => {
                let v = op.operands[0];
                let (layout, dtype) = (self.layout(v), self.dtype(v));
                let xs = self.regs(v);
                self.spread(&layout, dtype, &xs)
            }
        };
        let spread = a.region;
        let acc = op.operands[2];
        let layout = self.layout(acc);
        let dtype = match func.ty(acc) {
            Type::Pending(of) => of.dtype(),
            ty => ty.dtype(),
        };
        let k = a.layout.shape[1];
        let mut sums = self.regs(acc);
        let at: Vec<Vec<u32>> = (0..layout.regs()).map(|r| layout.reg_part(r)).collect();
        let distinct = |d: usize| at.iter().map(|c| c[d]).collect::<BTreeSet<u32>>();
        let lines = [distinct(0), distinct(1)].map(|l| l.into_iter().collect::<Vec<u32>>());
        let mut left = self.side(a, 0, &lines[0], &layout);
        let mut right = self.side(b, 1, &lines[1], &layout);
        let step = self.loop_step(&[&left, &right], k, layout.regs());
        let share = self.held_copies().div_ceil(step as usize);
        let looped = (step < k).then(|| {
            self.issue_copies(usize::MAX);
            let carried: Vec<Reg> = sums.iter().map(|r| self.asm.reg(r.class)).collect();
            self.move_all(&carried, &sums);
            sums = carried.clone();
            let bytes = [&left, &right].map(|side| (step, side.bytes_to(step)));
            let moving = [&mut left, &mut right].map(|side| self.own_base(side));
            let turns = self.asm.mov(Ty::B32, Opnd::Int((k / step).into()));
            let again = self.asm.label();
            self.asm.place(again);
            (carried, bytes, moving, turns, again)
        });
        for kk in 0..step {
            self.issue_copies(share);
            let xs = self.line(id, &mut left, kk, dtype)?;
            let ys = self.line(id, &mut right, kk, dtype)?;
            for (reg, c) in at.iter().enumerate() {
                let find = |d: usize| lines[d].binary_search(&c[d]).unwrap_or_default();
                let args = [xs[find(0)], ys[find(1)], sums[reg]];
                let r = self.scalars().apply(ScalarFn::Fma, dtype, &args);
                sums[reg] = r.or_else(|u| self.unsupported(id, u.to_string()))?;
            }
        }
        if let Some((carried, bytes, moving, turns, again)) = looped {
            self.move_all(&carried, &sums);
            sums = carried;
            for ((_, bytes), base) in bytes.into_iter().zip(moving) {
                let n = Opnd::Int(bytes.into());
                let moved = self.asm.int(Alu::Add, Ty::U32, &[base.into(), n]);
                self.asm.mov_to(Ty::B32, base, moved);
            }
            let less = self.asm.int(Alu::Sub, Ty::U32, &[turns.into(), Opnd::Int(1)]);
            self.asm.mov_to(Ty::B32, turns, less);
            let more = self.asm.setp(Cmp::Ne, Ty::U32, turns, Opnd::Int(0));
            self.asm.when(more, true, |asm| asm.emit(Inst::Bra { to: again, uniform: true }));
        }
        self.reading(spread);
        self.set(op.result(), Repr::Tile(sums));
        Ok(())
    }

    fn side(&mut self, m: Smem, dim: usize, offsets: &[u32], layout: &Arc<Layout>) -> Side {
        let thread = self.thread_coord(layout, dim);
        let padded = layout.has_padding();
        let last = Opnd::Int((layout.shape()[dim] - 1).into());
        let places = offsets
            .iter()
            .map(|&offset| match thread {
                // What padding reads is of no use, but it must be there.
                Some(t) if padded => {
                    let thread = self.head(|me| {
                        let own = Opnd::Int(offset.into());
                        let c = me.asm.int(Alu::Add, Ty::U32, &[t.into(), own]);
                        me.asm.int(Alu::Min, Ty::U32, &[c.into(), last])
                    });
                    Coord { thread: Some(thread), offset: 0 }
                }
                None if padded => Coord { thread, offset: offset.min(layout.shape()[dim] - 1) },
                thread => Coord { thread, offset },
            })
            .collect();
        let along_k = m.layout.order.first() != Some(&dim);
        let most = match along_k {
            true => 1 << m.layout.shape[1 - dim].trailing_zeros(),
            false if padded => 1,
            false => layout.run_along(dim),
        };
        let vector = widest(&m, most);
        Side { m, dim, places, along_k, vector, known: KnownPlaces::new(), loaded: None }
    }

    /// How many k are written one after another before the code comes again: all, where that is not
    /// too much, or as few as both operands move by a constant for.
    fn loop_step(&self, sides: &[&Side; 2], k: u32, sums: u32) -> u32 {
        if k * sums <= UNROLLED {
            return k;
        }
        let fits = |step: &u32| {
            k.is_multiple_of(*step)
                && sides.iter().all(|s| {
                    step.is_multiple_of(if s.along_k { s.vector } else { 1 })
                        && s.moves_evenly(*step)
                })
        };
        (0..k.trailing_zeros() + 1).map(|i| 1 << i).find(fits).unwrap_or(k)
    }

    /// Gives an operand a base address of its own, which may be moved.
    fn own_base(&mut self, side: &mut Side) -> Reg {
        let address = self.smem_address(&side.m);
        let base = self.region(side.m.region);
        let moving = self.asm.int(Alu::Sub, Ty::U32, &[address.into(), base.into()]);
        let own = self.asm.mov(Ty::B32, address);
        self.know_slot([moving, own]);
        side.m.moving = Some(moving);
        own
    }

    /// The elements of an operand for one k, in the dtype of the sums.
    fn line(
        &mut self,
        id: OpId,
        side: &mut Side,
        k: u32,
        dtype: DType,
    ) -> Result<Vec<Reg>, Diagnostics> {
        let deep = if side.along_k { side.vector } else { 1 };
        let fresh = side.loaded.as_ref().is_none_or(|(first, _)| k - first >= deep);
        if fresh {
            let mut all: Vec<Vec<Reg>> = Vec::new();
            let wide = if side.along_k { 1 } else { side.vector as usize };
            for place in side.places.clone().iter().step_by(wide) {
                let mut coords = vec![None; 2];
                let mut offset = vec![0; 2];
                (coords[side.dim], offset[side.dim]) = (place.thread, place.offset);
                offset[1 - side.dim] = k;
                let known = side.known.entry(coords.clone()).or_default();
                let addr = self.place_address(&coords, &side.m, &offset, known);
                let raw = self.load_run(
                    Space::Shared,
                    side.m.dtype,
                    addr,
                    side.vector,
                    None,
                    Cache::Usual,
                );
                let mut cast = Vec::new();
                for x in raw {
                    cast.push(self.cast_plain(id, side.m.dtype, dtype, x)?);
                }
                match side.along_k {
                    true => all.push(cast),
                    false => all.extend(cast.into_iter().map(|x| vec![x])),
                }
            }
            side.loaded = Some((k, all));
        }
        let Some((first, all)) = &side.loaded else { unreachable!("it was loaded") };
        Ok(all.iter().map(|xs| xs[(k - first) as usize]).collect())
    }
}

impl Side {
    /// The bytes from one k to another further on.
    fn bytes_to(&self, k: u32) -> u32 {
        let mut at = vec![0; 2];
        at[1 - self.dim] = k;
        self.m.layout.offset(&at)
    }

    /// Whether so many k further on everything is the same number of bytes further on.
    fn moves_evenly(&self, k: u32) -> bool {
        let far = self.bytes_to(k);
        // Bits above all that a swizzle reads go through it unchanged.
        let whole = self.m.layout.swizzle.map_or(1, |s| 1u32 << (s.base + s.shift + s.bits));
        let steps = self.m.layout.shape[1 - self.dim] / k;
        far.is_multiple_of(whole) && (1..steps).all(|i| self.bytes_to(i * k) == i * far)
    }
}

/// The widest load of neighbours, at most `most` of them, that is always aligned.
fn widest(m: &Smem, most: u32) -> u32 {
    let bytes = m.dtype.bytes() as u32;
    let (strides, panel) = m.layout.strides();
    let slower = strides.iter().skip(1).chain(m.layout.panel.map(|_| &panel));
    let slower: Vec<u32> = slower.map(|s| s * bytes).collect();
    let mut n = (16 / bytes).min(1 << most.ilog2());
    while n > 1 && !slower.iter().all(|s| s.is_multiple_of(n * bytes)) {
        n /= 2;
    }
    // Two narrow ones are no word.
    if n * bytes < 4 { 1 } else { n }
}
