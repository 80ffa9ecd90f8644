//! Bank conflicts: how many wavefronts shared memory takes to serve a warp.
//!
//! A wavefront moves one word of 4 bytes in each of 32 banks. Accesses of 8 bytes are served by
//! half warps, of 16 bytes by quarter warps; threads with the same word share it.

use crate::layout::{LANES, Layout};
use crate::shared::{Shared, WIDEST};

pub(crate) const BANKS: u32 = 32;
pub(crate) const WORD: u32 = 4;

/// The address of a thread that a layout's padding leaves without an element.
const OUTSIDE: u32 = u32::MAX;

/// The wavefronts of one access of a warp, `bytes` from each address, and the fewest it could be.
fn served(addresses: &[u32; LANES as usize], bytes: u32) -> (u32, u32) {
    let words = bytes.div_ceil(WORD);
    let (mut taken, mut least) = (0, 0);
    for together in addresses.chunks((LANES / words) as usize) {
        // The different words of each bank, a list: `first` is its last one, and `next` the one before each. None is 0; others are one more
        // than their place in `wanted`. Together the threads have at most as many words as there are banks.
        let mut wanted = [0; BANKS as usize];
        let mut next = [0; BANKS as usize];
        let mut first = [0u8; BANKS as usize];
        let mut counts = [0u8; BANKS as usize];
        let (mut found, mut most) = (0, 0);
        for &address in together.iter().filter(|&&address| address != OUTSIDE) {
            for word in (0..words).map(|word| address / WORD + word) {
                let bank = (word % BANKS) as usize;
                let mut at = first[bank];
                while at != 0 && wanted[usize::from(at) - 1] != word {
                    at = next[usize::from(at) - 1];
                }
                if at == 0 {
                    wanted[found] = word;
                    next[found] = first[bank];
                    found += 1;
                    first[bank] = found as u8;
                    counts[bank] += 1;
                    most = most.max(counts[bank]);
                }
            }
        }
        taken += u32::from(most);
        least += u32::from(most.min(1));
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

/// Where the threads of one cta find their elements in a tile without a swizzle.
pub(crate) struct Addresses {
    /// Of the lanes, for each warp and register of it.
    accesses: Vec<[u32; LANES as usize]>,
    /// Those of the other registers and warps are the first, XORed with a constant: that renames banks and changes nothing else.
    /// They are left out.
    alike: bool,
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

    /// No tile in shared memory has fewer wavefronts: one for each word of each access, where accesses are as wide as any order of dims
    /// allows. None is known where threads have padding.
    pub fn least_wavefronts(&self, elem_bytes: u32) -> u32 {
        if self.padding {
            return 0;
        }
        let runs = (0..self.layout.rank()).map(|dim| self.layout.run_along(dim));
        let vector = runs.max().unwrap_or(1).min(WIDEST / elem_bytes).max(1);
        let accesses = (self.regs.len() * self.warps.len()) as u32 / vector;
        accesses * (vector * elem_bytes).div_ceil(WORD)
    }

    /// The same for tiles that differ in their swizzle only.
    pub fn addresses(&self, shared: &Shared) -> Addresses {
        let plain = Shared { swizzle: None, ..shared.clone() };
        let places = plain.places();
        let shape = self.layout.shape();
        let mut coords = vec![0; shape.len()];
        let mut access = |reg: &[u32], lanes: &[Vec<u32>]| {
            let mut addresses = [OUTSIDE; LANES as usize];
            for (address, lane) in addresses.iter_mut().zip(lanes) {
                for (dim, at) in coords.iter_mut().enumerate() {
                    *at = reg[dim] ^ lane[dim];
                }
                if !self.padding || coords.iter().zip(shape).all(|(at, extent)| at < extent) {
                    *address = places.offset(&coords);
                }
            }
            addresses
        };
        if plain.is_linear() && !self.padding {
            return Addresses {
                accesses: vec![access(&self.regs[0], &self.warps[0])],
                alike: true,
            };
        }
        let mut accesses = Vec::with_capacity(self.warps.len() * self.regs.len());
        for lanes in &self.warps {
            accesses.extend(self.regs.iter().map(|reg| access(reg, lanes)));
        }
        Addresses { accesses, alike: false }
    }

    /// Counts accesses of `vector` elements at `addresses`, until there are more than `limit` wavefronts.
    pub fn accesses(
        &self,
        shared: &Shared,
        addresses: &Addresses,
        vector: u32,
        limit: u32,
    ) -> Accesses {
        let access = |plain: &[u32; LANES as usize]| {
            let bytes = vector * shared.elem_bytes;
            match shared.swizzle {
                Some(swizzle) => served(
                    &plain.map(|at| if at == OUTSIDE { at } else { swizzle.apply(at) }),
                    bytes,
                ),
                None => served(plain, bytes),
            }
        };
        if addresses.alike {
            let (taken, least) = access(&addresses.accesses[0]);
            let count = (self.regs.len() * self.warps.len()) as u32 / vector;
            return Accesses { wavefronts: taken * count, worst: taken - least };
        }
        let mut all = Accesses::default();
        for warp in addresses.accesses.chunks(self.regs.len()) {
            for plain in warp.iter().step_by(vector as usize) {
                let (taken, least) = access(plain);
                all.wavefronts += taken;
                all.worst = all.worst.max(taken - least);
                if all.wavefronts > limit {
                    return all;
                }
            }
        }
        all
    }

    fn all_accesses(&self, shared: &Shared, vector: u32) -> Accesses {
        self.accesses(shared, &self.addresses(shared), vector, u32::MAX)
    }
}

impl Shared {
    /// The most extra wavefronts of one access of a warp, of `vector` elements each. `vector` must
    /// not be more than [`Shared::vector`] says.
    pub fn conflicts(&self, layout: &Layout, vector: u32) -> u32 {
        let worst = |cta| Held::new(layout, cta).all_accesses(self, vector).worst;
        (0..layout.ctas()).map(worst).max().unwrap_or(0)
    }

    /// The wavefronts that all warps of a cta together take to write or read their part of a tile.
    pub fn wavefronts(&self, layout: &Layout, vector: u32) -> u32 {
        Held::new(layout, 0).all_accesses(self, vector).wavefronts
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
