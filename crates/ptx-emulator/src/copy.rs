//! `cp.async`: copies of a thread from global to shared memory, which complete when they are waited
//! for.
//!
//! The bytes may be used only after the wait, whenever they are fetched. `Options::copies` chooses
//! when: the results of a correct kernel do not depend on it.

use super::fault::{FaultKind, Res, Trouble};
use super::machine::{Copies, Machine};
use super::program::{Slot, Where};
use super::races::Use;
use super::shared::ARRIVING;
use super::warp::{Warp, lanes};

/// One copy of one lane.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    lane: u8,
    /// How many groups the lane had committed before.
    group: u32,
    dst: usize,
    src: u64,
    bytes: u8,
    from_source: u8,
    /// The bytes, if they were fetched at issue.
    early: Option<[u8; 16]>,
    pc: u32,
}

impl Pending {
    pub fn is_of(&self, lane: usize) -> bool {
        self.lane as usize == lane
    }

    /// The destination range.
    pub fn range(&self) -> (usize, usize) {
        (self.dst, self.bytes as usize)
    }
}

impl Machine<'_> {
    pub(super) fn copy(
        &mut self,
        w: &mut Warp,
        mask: u32,
        dst: Where,
        src: Where,
        bytes: u32,
        src_bytes: Option<Slot>,
    ) -> Res<()> {
        for lane in lanes(mask) {
            let to =
                self.own(w, w.address(dst, lane), dst.base.is_some()).map_err(|t| t.lane(lane))?;
            let from = w.address(src, lane);
            let from_source = src_bytes.map_or(bytes as u64, |s| w.get(s, lane));
            if from_source > bytes as u64 {
                let text = format!("cp.async reads {from_source} bytes to write {bytes}");
                return Err(Trouble::new(FaultKind::Invalid, text).lane(lane));
            }
            self.issue(w, lane, to, from, bytes, from_source as u32).map_err(|t| t.lane(lane))?;
        }
        Ok(())
    }

    fn issue(
        &mut self,
        w: &mut Warp,
        lane: usize,
        to: u64,
        src: u64,
        bytes: u32,
        from_source: u32,
    ) -> Res<()> {
        let shared = &mut self.blocks[w.block].shared;
        let dst = shared.place(to, bytes as u64)?;
        shared.writable(dst, bytes as usize)?;
        if src & (bytes as u64 - 1) != 0 {
            let text = format!(
                "cp.async of {bytes} bytes from global address {src:#x}, which is not a multiple of {bytes}"
            );
            return Err(Trouble::new(FaultKind::Misaligned, text).address(src));
        }
        for i in 0..from_source as u64 {
            self.memory.check(src + i, 1, false)?;
        }
        let now = match self.options.copies {
            Copies::Late => false,
            Copies::Early => true,
            Copies::Random => self.random() & 1 == 0,
        };
        let early = now.then(|| self.fetch(src, from_source));
        let shared = &mut self.blocks[w.block].shared;
        shared.state[dst..dst + bytes as usize].iter_mut().for_each(|s| *s |= ARRIVING);
        w.copies.push(Pending {
            lane: lane as u8,
            group: w.commits[lane],
            dst,
            src,
            bytes: bytes as u8,
            from_source: from_source as u8,
            early,
            pc: self.pc,
        });
        Ok(())
    }

    /// Bytes of global memory, zero-padded.
    fn fetch(&self, src: u64, bytes: u32) -> [u8; 16] {
        let mut out = [0; 16];
        for (i, o) in out[..bytes as usize].iter_mut().enumerate() {
            *o = self.memory.read::<1>(src + i as u64)[0];
        }
        out
    }

    pub(super) fn copy_wait(&mut self, w: &mut Warp, mask: u32, groups: u32) -> Res<()> {
        let mut copies = std::mem::take(&mut w.copies);
        let mut kept = Vec::new();
        for c in copies.drain(..) {
            let lane = c.lane as usize;
            // Copies of the last `groups` groups, and those not yet committed, stay in flight.
            if mask >> lane & 1 == 0 || c.group + groups >= w.commits[lane] {
                kept.push(c);
                continue;
            }
            self.finish(w, &c).map_err(|t| t.lane(lane))?;
        }
        w.copies = kept;
        Ok(())
    }

    /// The bytes of a copy land.
    pub(super) fn land_copy(&mut self, block: usize, c: &Pending) {
        let data = match c.early {
            Some(data) => data,
            None => self.fetch(c.src, c.from_source as u32),
        };
        self.blocks[block].shared.arrive(c.dst, &data[..c.bytes as usize]);
    }

    fn finish(&mut self, w: &mut Warp, c: &Pending) -> Res<()> {
        self.land_copy(w.block, c);
        let (dst, bytes) = c.range();
        self.wrote(w, c.lane as usize, w.block, dst, bytes);
        let issued = std::mem::replace(&mut self.pc, c.pc);
        let raced = self.used(w, c.lane as usize, w.block, dst, bytes, Use::Write);
        self.pc = issued;
        raced
    }
}
