//! Random layouts, and loops over all places of one.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tessera_layout::{LANES, Layout, Place};

pub fn config(cases: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(0x7e55e7a);
    ProptestConfig { cases, failure_persistence: None, rng_seed, ..ProptestConfig::default() }
}

/// Draws numbers from a word; a small word gives small numbers.
#[derive(Clone, Debug)]
pub struct Draw(pub u64);

impl Draw {
    pub fn below(&mut self, n: usize) -> usize {
        // A linear congruence; its high bits are random enough.
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }

    pub fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut all: Vec<usize> = (0..n).collect();
        (1..n).rev().for_each(|at| all.swap(at, self.below(at + 1)));
        all
    }

    pub fn shape(&mut self, rank: usize, most: usize) -> Vec<u32> {
        (0..rank).map(|_| 1 + self.below(most) as u32).collect()
    }

    /// Any layout: mixed bits, copies, padding, repeats in any order.
    pub fn layout(&mut self, rank: usize) -> Layout {
        let extents: Vec<usize> = (0..rank).map(|_| self.below(4)).collect();
        let mut bases = Vec::new();
        for (dim, &bits) in extents.iter().enumerate() {
            for bit in 0..bits {
                let mut basis = vec![0u32; rank];
                basis[dim] = 1 << bit;
                bases.push(basis);
            }
        }
        // Adding one vector to another keeps the span.
        let mixed = if self.below(2) == 0 { 0 } else { self.below(6) };
        for _ in 0..mixed.min(bases.len().saturating_sub(1)) {
            let (a, b) = (self.below(bases.len()), self.below(bases.len()));
            if a != b {
                let add = bases[b].clone();
                bases[a].iter_mut().zip(add).for_each(|(a, b)| *a ^= b);
            }
        }
        let copies = self.below(3);
        for _ in 0..copies {
            let zero = vec![0; rank];
            let old = bases.get(self.below(bases.len() + 1)).cloned();
            bases.push(old.filter(|_| self.below(2) == 0).unwrap_or(zero));
        }
        while bases.len() < 5 {
            bases.push(vec![0; rank]);
        }
        let mut bases: Vec<Vec<u32>> =
            self.permutation(bases.len()).into_iter().map(|at| bases[at].clone()).collect();
        let lane = bases.split_off(bases.len() - 5);
        let warp = bases.split_off(bases.len() - self.below(3).min(bases.len()));
        let cta = bases.split_off(bases.len() - self.below(2).min(bases.len()));
        let repeat: Vec<u32> = (0..rank).map(|_| [1, 1, 2, 3, 4, 6][self.below(6)]).collect();
        let shape = (repeat.iter().zip(&extents))
            .map(|(&repeat, &bits)| {
                let extent = 1 << bits;
                let cut = if self.below(2) == 0 { 0 } else { self.below(extent as usize) as u32 };
                repeat * extent - cut
            })
            .collect::<Vec<u32>>();
        let layout = Layout::new(&shape, bases, lane, warp, cta, repeat).unwrap();
        let order = self.permutation(rank);
        layout.with_order(&order).unwrap()
    }

    /// Another layout of the same tile and as many threads: the same with its bits exchanged
    /// between registers and lanes, or its repeats counted in another order.
    pub fn variant(&mut self, layout: &Layout) -> Layout {
        use tessera_layout::In;
        let layout = if self.below(2) == 0 { layout.folded() } else { layout.clone() };
        let of = |input| layout.bases(input).to_vec();
        let [mut reg, mut lane, mut warp, cta] = [In::Reg, In::Lane, In::Warp, In::Cta].map(of);
        for _ in 0..1 + self.below(6) {
            let (a, b) = (self.below(5), self.below(5));
            match self.below(4) {
                0 if !reg.is_empty() => {
                    let at = self.below(reg.len());
                    std::mem::swap(&mut reg[at], &mut lane[a]);
                }
                1 if !warp.is_empty() && self.below(2) == 0 => {
                    let at = self.below(warp.len());
                    std::mem::swap(&mut warp[at], &mut lane[a]);
                }
                2 if a != b => {
                    let add = lane[b].clone();
                    lane[a].iter_mut().zip(add).for_each(|(a, b)| *a ^= b);
                }
                _ => lane.swap(a, b),
            }
        }
        let order = self.permutation(layout.rank());
        Layout::new(layout.shape(), reg, lane, warp, cta, layout.repeat().to_vec())
            .unwrap()
            .with_order(&order)
            .unwrap()
    }
}

prop_compose! {
    pub fn draws()(word in any::<u64>()) -> Draw { Draw(word) }
}

prop_compose! {
    pub fn layouts()(word in any::<u64>(), rank in 0usize..4) -> Layout {
        Draw(word).layout(rank)
    }
}

/// All registers of all threads.
pub fn places(layout: &Layout) -> impl Iterator<Item = Place> {
    let (regs, warps, ctas) = (layout.regs(), layout.warps(), layout.ctas());
    let threads = (0..ctas).flat_map(move |cta| {
        (0..warps).flat_map(move |warp| (0..LANES).map(move |l| (cta, warp, l)))
    });
    threads
        .flat_map(move |(cta, warp, lane)| (0..regs).map(move |reg| Place { cta, warp, lane, reg }))
}

pub fn coords(layout: &Layout, place: Place) -> Vec<u32> {
    layout.coords(place.reg, place.lane, place.warp, place.cta)
}

pub fn is_padding(layout: &Layout, place: Place) -> bool {
    layout.is_padding(place.reg, place.lane, place.warp, place.cta)
}

/// All elements of a shape, row-major.
pub fn elements(shape: &[u32]) -> Vec<Vec<u32>> {
    let mut all = vec![Vec::new()];
    for &extent in shape {
        all = all
            .iter()
            .flat_map(|at: &Vec<u32>| {
                (0..extent).map(move |next| [at.as_slice(), &[next]].concat())
            })
            .collect();
    }
    all
}
