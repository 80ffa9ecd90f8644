//! Bank conflicts: how many wavefronts shared memory takes to serve a warp.
//!
//! A wavefront moves one word of 4 bytes in each of 32 banks. Accesses of 8 bytes are served by
//! half warps, of 16 bytes by quarter warps; threads with the same word share it.

use crate::layout::{LANES, Layout};
use crate::shared::Shared;

pub(crate) const BANKS: u32 = 32;
pub(crate) const WORD: u32 = 4;

/// The wavefronts of one access of a warp, `bytes` from each address, and the fewest it could be.
fn served(addresses: &[Option<u32>; LANES as usize], bytes: u32) -> (u32, u32) {
    let words = bytes.div_ceil(WORD);
    let (mut taken, mut least) = (0, 0);
    let mut wanted = Vec::with_capacity(LANES as usize);
    for together in addresses.chunks((LANES / words) as usize) {
        wanted.clear();
        for address in together.iter().flatten() {
            wanted.extend((0..words).map(|word| address / WORD + word));
        }
        wanted.sort_unstable();
        wanted.dedup();
        let mut banks = [0; BANKS as usize];
        wanted.iter().for_each(|word| banks[(word % BANKS) as usize] += 1);
        taken += banks.into_iter().max().unwrap_or(0);
        least += u32::from(!wanted.is_empty());
    }
    (taken, least)
}

/// The coordinates that the threads of one cta hold: XOR of a register's and a lane's part.
pub(crate) struct Held<'l> {
    layout: &'l Layout,
    padding: bool,
    regs: Vec<Vec<u32>>,
    /// For each warp, its lanes.
    warps: Vec<Vec<Vec<u32>>>,
}

/// The totals of all accesses of one cta to a tile.
#[derive(Default)]
pub(crate) struct Accesses {
    /// Of all warps together.
    pub wavefronts: u32,
    /// The most extra wavefronts of one access.
    pub worst: u32,
}

impl<'l> Held<'l> {
    pub fn new(layout: &'l Layout, cta: u32) -> Held<'l> {
        let lanes = |warp| (0..LANES).map(|lane| layout.thread_part(lane, warp, cta)).collect();
        Held {
            layout,
            padding: layout.has_padding(),
            regs: (0..layout.regs()).map(|reg| layout.reg_part(reg)).collect(),
            warps: (0..layout.warps()).map(lanes).collect(),
        }
    }

    /// Counts accesses of `vector` elements, until there are more than `limit` wavefronts.
    pub fn accesses(&self, shared: &Shared, vector: u32, limit: u32) -> Accesses {
        let places = shared.places();
        let access = |reg: &[u32], lanes: &[Vec<u32>]| {
            let mut addresses = [None; LANES as usize];
            for (address, lane) in addresses.iter_mut().zip(lanes) {
                let coords = reg.iter().zip(lane).map(|(reg, lane)| reg ^ lane);
                let mut bounds = coords.clone().zip(self.layout.shape());
                if !self.padding || bounds.all(|(at, &extent)| at < extent) {
                    *address = Some(places.offset(coords));
                }
            }
            served(&addresses, vector * shared.elem_bytes)
        };
        if shared.is_linear() && !self.padding {
            // The addresses of any register and warp are those of the first, XORed with a
            // constant: that renames banks and changes nothing else.
            let (taken, least) = access(&self.regs[0], &self.warps[0]);
            let count = (self.regs.len() * self.warps.len()) as u32 / vector;
            return Accesses { wavefronts: taken * count, worst: taken - least };
        }
        let mut all = Accesses::default();
        for lanes in &self.warps {
            for reg in self.regs.iter().step_by(vector as usize) {
                let (taken, least) = access(reg, lanes);
                all.wavefronts += taken;
                all.worst = all.worst.max(taken - least);
                if all.wavefronts > limit {
                    return all;
                }
            }
        }
        all
    }
}

impl Shared {
    /// The most extra wavefronts of one access of a warp, of `vector` elements each. `vector` must
    /// not be more than [`Shared::vector`] says.
    pub fn conflicts(&self, layout: &Layout, vector: u32) -> u32 {
        let worst = |cta| Held::new(layout, cta).accesses(self, vector, u32::MAX).worst;
        (0..layout.ctas()).map(worst).max().unwrap_or(0)
    }

    /// The wavefronts that all warps of a cta together take to write or read their part of a tile.
    pub fn wavefronts(&self, layout: &Layout, vector: u32) -> u32 {
        Held::new(layout, 0).accesses(self, vector, u32::MAX).wavefronts
    }

    /// Whether the bits of an address are sums of bits of the coordinates: all factors of the
    /// slowest counter are powers of two.
    fn is_linear(&self) -> bool {
        let powers = |dims: &[usize]| dims.iter().all(|&dim| self.shape[dim].is_power_of_two());
        let counted = match (self.panel, self.order.split_last()) {
            (Some(panel), _) => panel.is_power_of_two() && powers(&self.order),
            (None, Some((_, inner))) => powers(inner),
            (None, None) => true,
        };
        counted && self.pad == 0
    }
}
