//! Random placements, and who has an element by a formula for each element, without sets.

use tessera_mesh::{Combine, Dim, Distribution, Mesh, Placed, Spec, Split};

/// The seed of the day, or of `TESSERA_FUZZ_SEED`; printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("TESSERA_FUZZ_SEED").ok().and_then(|s| s.parse().ok());
    let days = || std::time::UNIX_EPOCH.elapsed().map_or(0, |t| t.as_secs() / 86400);
    let seed = given.unwrap_or_else(days);
    println!("TESSERA_FUZZ_SEED={seed}");
    seed
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }

    /// A mesh of 1 to 12 ranks; primes too.
    pub fn mesh(&mut self) -> Mesh {
        let shapes: [&[u64]; 17] = [
            &[1],
            &[2],
            &[3],
            &[5],
            &[7],
            &[11],
            &[12],
            &[2, 2],
            &[2, 3],
            &[3, 2],
            &[5, 2],
            &[1, 4],
            &[2, 5],
            &[2, 2, 3],
            &[3, 1, 2],
            &[2, 3, 2],
            &[4, 3],
        ];
        let shape = self.pick(&shapes);
        let names: Vec<String> =
            ["dp", "tp", "pp"][..shape.len()].iter().map(|n| (*n).to_owned()).collect();
        Mesh::new(&names, shape, vec!["cpu:0".to_owned(); shape.iter().product::<u64>() as usize])
            .unwrap()
    }

    /// Extents with empty blocks and odd ones among them.
    pub fn shape(&mut self) -> Vec<u64> {
        (0..self.below(4)).map(|_| self.pick(&[0, 1, 2, 3, 5, 7, 8, 12, 13])).collect()
    }

    pub fn spec(&mut self, mesh: &Mesh, ndim: usize) -> Spec {
        let mut axes: Vec<String> = mesh.axes().into_iter().map(str::to_owned).collect();
        let mut made = Spec::default();
        let mut left: Vec<usize> = (0..ndim).collect();
        while !axes.is_empty() && !left.is_empty() && self.below(4) > 0 {
            let dim = left.remove(self.below(left.len() as u64) as usize);
            let count = 1 + self.below(axes.len() as u64) as usize;
            let taken =
                (0..count).map(|_| axes.remove(self.below(axes.len() as u64) as usize)).collect();
            let how = self.pick(&[
                Distribution::Block,
                Distribution::Block,
                Distribution::BlockCyclic(1),
                Distribution::BlockCyclic(2),
                Distribution::BlockCyclic(3),
            ]);
            made.splits.push(Split { dim: Dim::At(dim as i64), axes: taken, how });
        }
        if !axes.is_empty() && self.below(3) == 0 {
            made.combine = Some((self.pick(&Combine::ALL), axes));
        }
        made
    }

    pub fn placed(&mut self) -> Placed {
        let (mesh, shape) = (self.mesh(), self.shape());
        let spec = self.spec(&mesh, shape.len());
        Placed::new(mesh, &spec, &shape, &[]).unwrap()
    }
}

/// Whether a rank has an element, by following the element through the splits of each dim.
pub fn has(placed: &Placed, rank: u64, element: &[u64]) -> bool {
    let (coords, extents) = (placed.mesh().coords(rank), placed.mesh().extents());
    placed.placement().dims().iter().enumerate().all(|(dim, (axes, how))| {
        let (mut n, mut i) = (placed.shape()[dim], element[dim]);
        axes.iter().all(|a| {
            let ranks = extents[*a];
            let owner;
            match how {
                Distribution::Block => {
                    let c = n.div_ceil(ranks);
                    owner = i / c;
                    n = n.min((owner + 1) * c) - owner * c;
                    i -= owner * c;
                }
                Distribution::BlockCyclic(b) => {
                    owner = i / b % ranks;
                    n = (0..n).filter(|j| j / b % ranks == owner).count() as u64;
                    i = i / b / ranks * b + i % b;
                }
            }
            owner == coords[*a]
        })
    })
}

/// All elements of a shape, row-major.
pub fn elements(shape: &[u64]) -> Vec<Vec<u64>> {
    shape.iter().fold(vec![Vec::new()], |all, n| {
        all.into_iter().flat_map(|e| (0..*n).map(move |i| [e.clone(), vec![i]].concat())).collect()
    })
}
