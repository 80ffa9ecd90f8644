//! Layout conversion in pieces, for tiles larger than the available shared memory. A piece is a
//! byte range of the whole tile. For each piece, threads write the elements that fall into it,
//! synchronise, read the elements of their new layout that are in it, and synchronise again.

use super::Select;
use super::convert::Places;
use super::sync::Smem;
use crate::inst::*;
use std::sync::Arc;
use tessera_layout::{In, Layout, Move, Shared, best_shared_for, conversion};
use tessera_numerics::DType;

/// The byte range of a register's elements over all threads: lowest and highest byte.
type Reach = (u32, u32);

/// Which of a register's elements fall into a piece.
enum Part {
    None,
    All,
    /// Where the condition holds.
    Some(Reg),
}

impl Select<'_> {
    /// The number of pieces of a tile of `bytes` bytes, and the bytes of one piece; none where the
    /// tile fits whole.
    pub fn pieces(&self, bytes: u32) -> Option<(u32, u32)> {
        if bytes <= self.scratch_room() {
            return None;
        }
        let count = bytes.div_ceil(self.larger_room());
        Some((count, bytes.div_ceil(count).next_multiple_of(super::sync::ALIGN)))
    }

    /// Converts a tile to another layout within the same blocks; none where elements would move
    /// between blocks.
    pub fn relaid(
        &mut self,
        (from, xs): (&Arc<Layout>, &[Reg]),
        to: &Arc<Layout>,
        dtype: DType,
    ) -> Option<Vec<Reg>> {
        match conversion(from, to) {
            Move::Nothing => Some(xs.to_vec()),
            Move::Registers(map) => Some(map.iter().map(|&r| xs[r as usize]).collect()),
            Move::Shared { across: In::Cta } => None,
            Move::Shuffle { .. } | Move::Shared { .. } => {
                let shared = best_shared_for(from, to, dtype.bytes() as u32);
                let pieces = self.pieces(shared.bytes()).unwrap_or((1, shared.bytes()));
                Some(self.convert_in_pieces((from, xs), to, dtype, shared, pieces))
            }
        }
    }

    /// Reshapes a tile: elements keep their row-major order and get the layout of the result.
    pub fn reshaped(
        &mut self,
        (from, xs): (&Arc<Layout>, &[Reg]),
        to: &Arc<Layout>,
        dtype: DType,
    ) -> Vec<Reg> {
        let plain = |layout: &Layout| Shared::row_major(layout.shape(), dtype.bytes() as u32);
        let (source, target) = (plain(from), plain(to));
        let bytes = source.bytes().max(target.bytes());
        let pieces = self.pieces(bytes).unwrap_or((1, bytes));
        self.move_in_pieces((from, xs, source), (to, target), dtype, pieces)
    }

    /// The registers of `to` from those of `from`.
    pub fn convert_in_pieces(
        &mut self,
        (from, xs): (&Arc<Layout>, &[Reg]),
        to: &Arc<Layout>,
        dtype: DType,
        shared: Shared,
        pieces: (u32, u32),
    ) -> Vec<Reg> {
        self.move_in_pieces((from, xs, shared.clone()), (to, shared), dtype, pieces)
    }

    /// The same where the bytes are read under another shape.
    fn move_in_pieces(
        &mut self,
        (from, xs, as_written): (&Arc<Layout>, &[Reg], Shared),
        (to, as_read): (&Arc<Layout>, Shared),
        dtype: DType,
        (count, size): (u32, u32),
    ) -> Vec<Reg> {
        let (from_reach, to_reach) = (as_written.reach(from), as_read.reach(to));
        let region = self.larger_scratch(size);
        let memory = |shared: Shared| {
            let layout = Arc::new(shared);
            Smem { region, offset: 0, moving: None, layout, dtype }
        };
        let (source, target) = (memory(as_written), memory(as_read));
        let base = self.smem_base(&source);
        let owner = self.block_owner(from);
        let zero = self.zero(dtype);
        let mut out = vec![zero; to.regs() as usize];
        let (write_by, read_by) =
            (Self::shared_vector(&source.layout, from), Self::shared_vector(&target.layout, to));
        let mut sources = self.layout_places(from, &source);
        let mut targets = self.layout_places(to, &target);
        for piece in 0..count {
            let start = piece * size;
            if piece > 0 {
                self.barrier();
            }
            for first in (0..from.regs()).step_by(write_by as usize) {
                let valid = match self.valid(from, first) {
                    Ok(false) => continue,
                    valid => valid.err(),
                };
                let Some((addr, inside)) =
                    self.in_piece(&mut sources, from, first, (base, start, size), &from_reach)
                else {
                    continue;
                };
                let when = self.both(valid, owner);
                let when = self.both(when, inside);
                let run = &xs[first as usize..][..write_by as usize];
                self.store_run(Space::Shared, dtype, addr, run, when);
            }
            self.barrier();
            for first in (0..to.regs()).step_by(read_by as usize) {
                let valid = match self.valid(to, first) {
                    Ok(false) => continue,
                    valid => valid.err(),
                };
                let Some((addr, inside)) =
                    self.in_piece(&mut targets, to, first, (base, start, size), &to_reach)
                else {
                    continue;
                };
                let when = self.both(valid, inside);
                let cache = Cache::Usual;
                let got = self.load_run(Space::Shared, dtype, addr, read_by, when, cache);
                for (old, new) in out[first as usize..].iter_mut().zip(got) {
                    *old = match inside {
                        None => new,
                        Some(p) => self.choose(p, new, *old),
                    };
                }
            }
        }
        self.reading(region);
        out
    }

    /// The address of a register's elements in a piece, and the condition that they are in it; none
    /// where no thread has one there.
    fn in_piece(
        &mut self,
        places: &mut Places,
        layout: &Layout,
        reg: u32,
        (base, start, size): (Reg, u32, u32),
        reach: &[Reach],
    ) -> Option<(Addr, Option<Reg>)> {
        let (low, high) = reach[reg as usize];
        let part = match () {
            () if high < start || low >= start + size => Part::None,
            () if low >= start && high < start + size => Part::All,
            () => {
                let addr = self.register_address(places, layout, reg);
                let Base::Reg(at) = addr.base else { unreachable!("a register holds the address") };
                // An offset below the start wraps, and so is beyond the size too.
                let at = self.asm.int(Alu::Sub, Ty::U32, &[at.into(), base.into()]);
                let off = addr.offset - i64::from(start);
                let off = Opnd::Int(i64::from(off as u32));
                let at = self.asm.int(Alu::Add, Ty::U32, &[at.into(), off]);
                Part::Some(self.asm.setp(Cmp::Lt, Ty::U32, at, Opnd::Int(size.into())))
            }
        };
        let inside = match part {
            Part::None => return None,
            Part::All => None,
            Part::Some(p) => Some(p),
        };
        let mut addr = self.register_address(places, layout, reg);
        addr.offset -= i64::from(start);
        Some((addr, inside))
    }
}
