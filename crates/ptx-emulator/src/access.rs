//! Loads and stores.

use super::alu::sign_extend;
use super::fault::{FaultKind, Res, Trouble};
use super::machine::Machine;
use super::program::{Access, Slot};
use super::races::Use;
use super::warp::{Warp, lanes};
use tessera_ptx::inst::Space;

/// The bit position of the block's cluster rank in a shared address.
pub(super) const RANK_SHIFT: u32 = 24;

impl Machine<'_> {
    /// The block and offset that a shared address means. `named`: the address is in a register;
    /// else it is an offset in the own block.
    #[inline(always)]
    pub(super) fn find(
        &self,
        w: &Warp,
        address: u64,
        space: Space,
        named: bool,
    ) -> Res<(usize, u64)> {
        if !named {
            return Ok((w.block, address));
        }
        let rank = (address >> RANK_SHIFT) as usize;
        let offset = address & ((1 << RANK_SHIFT) - 1);
        if rank == w.block {
            return Ok((rank, offset));
        }
        let live = self.blocks.get(rank).is_some_and(|b| b.live > 0);
        if space == Space::SharedCluster && live {
            return Ok((rank, offset));
        }
        let text = if space == Space::SharedCluster && rank < self.blocks.len() {
            format!(
                "shared address {address:#x} is of block {rank} of the cluster, which has ended"
            )
        } else if rank < self.blocks.len() {
            format!(
                "shared address {address:#x} is of block {rank} of the cluster, and this is block {}",
                w.block
            )
        } else {
            format!("{address:#x} is no shared address")
        };
        Err(Trouble::new(FaultKind::OutOfBounds, text).address(address))
    }

    /// An offset in the own block.
    pub(super) fn own(&self, w: &Warp, address: u64, named: bool) -> Res<u64> {
        Ok(self.find(w, address, Space::Shared, named)?.1)
    }

    pub(super) fn load(&mut self, w: &mut Warp, mask: u32, access: &Access) -> Res<()> {
        if let (Space::Global, 4, [Slot::N(d)]) = (access.space, access.bytes, &access.regs[..]) {
            for lane in lanes(mask) {
                let address = w.address(access.at, lane);
                self.memory.check(address, 4, false).map_err(|t| t.lane(lane))?;
                w.narrow[*d as usize][lane] = u32::from_le_bytes(self.memory.read(address));
            }
            return Ok(());
        }
        for lane in lanes(mask) {
            self.load_lane(w, lane, access).map_err(|t| t.lane(lane))?;
        }
        Ok(())
    }

    fn load_lane(&mut self, w: &mut Warp, lane: usize, access: &Access) -> Res<()> {
        let Access { space, bytes, .. } = *access;
        let whole = bytes as u64 * access.regs.len() as u64;
        let address = w.address(access.at, lane);
        match space {
            Space::Global | Space::Param => {
                self.memory.check(address, whole, false)?;
                for (i, d) in access.regs.iter().enumerate() {
                    let address = address + i as u64 * bytes as u64;
                    let value = match bytes {
                        1 => self.memory.read::<1>(address)[0] as u64,
                        2 => u16::from_le_bytes(self.memory.read(address)) as u64,
                        4 => u32::from_le_bytes(self.memory.read(address)) as u64,
                        _ => u64::from_le_bytes(self.memory.read(address)),
                    };
                    w.set(*d, lane, access.extend(*d, value));
                }
            }
            Space::Shared | Space::SharedCluster => {
                let (block, offset) = self.find(w, address, space, access.at.base.is_some())?;
                let shared = &self.blocks[block].shared;
                let at = shared.place(offset, whole)?;
                shared.readable(at, whole as usize)?;
                for (i, d) in access.regs.iter().enumerate() {
                    let value = shared.load(at + i * bytes as usize, bytes);
                    w.set(*d, lane, access.extend(*d, value));
                }
                if self.races.is_some() {
                    let how = if access.strong { Use::Atomic } else { Use::Read };
                    self.used(w, lane, block, at, whole as usize, how)?;
                }
            }
            // No kernel declares any: decoding refuses it.
            Space::Local => {}
        }
        Ok(())
    }

    pub(super) fn store(&mut self, w: &mut Warp, mask: u32, access: &Access) -> Res<()> {
        for lane in lanes(mask) {
            self.store_lane(w, lane, access).map_err(|t| t.lane(lane))?;
        }
        Ok(())
    }

    fn store_lane(&mut self, w: &mut Warp, lane: usize, access: &Access) -> Res<()> {
        let Access { space, bytes, .. } = *access;
        let whole = bytes as u64 * access.regs.len() as u64;
        let address = w.address(access.at, lane);
        match space {
            Space::Global => {
                self.memory.check(address, whole, true)?;
                for (i, a) in access.regs.iter().enumerate() {
                    let (address, value) = (address + i as u64 * bytes as u64, w.get(*a, lane));
                    match bytes {
                        1 => self.memory.write(address, [value as u8]),
                        2 => self.memory.write(address, (value as u16).to_le_bytes()),
                        4 => self.memory.write(address, (value as u32).to_le_bytes()),
                        _ => self.memory.write(address, value.to_le_bytes()),
                    }
                }
            }
            Space::Param => {
                let text = "parameters are not written";
                return Err(Trouble::new(FaultKind::ReadOnly, text).address(address));
            }
            Space::Shared | Space::SharedCluster => {
                let (block, offset) = self.find(w, address, space, access.at.base.is_some())?;
                let shared = &self.blocks[block].shared;
                let at = shared.place(offset, whole)?;
                shared.writable(at, whole as usize)?;
                if self.races.is_some() {
                    let same = access.regs.iter().enumerate().all(|(i, a)| {
                        let bits = super::alu::mask(bytes * 8);
                        shared.load(at + i * bytes as usize, bytes) == w.get(*a, lane) & bits
                    });
                    let how = match (access.strong, same) {
                        (true, _) => Use::Atomic,
                        (false, true) => Use::Rewrite,
                        (false, false) => Use::Write,
                    };
                    self.used(w, lane, block, at, whole as usize, how)?;
                }
                let shared = &mut self.blocks[block].shared;
                for (i, a) in access.regs.iter().enumerate() {
                    shared.store(at + i * bytes as usize, bytes, w.get(*a, lane));
                }
                self.wrote(w, lane, block, at, whole as usize);
            }
            Space::Local => {}
        }
        Ok(())
    }
}

impl Access {
    /// A loaded value as its register holds it. 16-bit registers hold only the bits.
    #[inline(always)]
    fn extend(&self, d: Slot, value: u64) -> u64 {
        if !self.signed {
            return value;
        }
        let wide = sign_extend(value, self.bytes * 8) as u64;
        match d {
            Slot::N(r) if r < self.halves => wide & 0xFFFF,
            Slot::N(_) | Slot::W(_) | Slot::P(_) => wide,
        }
    }
}
