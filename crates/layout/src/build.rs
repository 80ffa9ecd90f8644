//! Blocked layouts for loads, stores and elementwise ops: adjacent blocks of lanes and warps.

use crate::layout::{LANE_BITS, LANES, Layout};

/// A blocked layout: in each dim the contiguous elements of one thread, then the lanes, then the
/// warps, then the ctas. All are powers of two.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Blocked {
    pub vector: Vec<u32>,
    /// Their product is 32.
    pub lanes: Vec<u32>,
    pub warps: Vec<u32>,
    pub ctas: Vec<u32>,
    /// Dims in the order in which bits are assigned and repeats counted, fastest first.
    pub order: Vec<usize>,
}

impl Layout {
    /// The layout of a [`Blocked`]. Where it requests more than the shape (rounded up to a power of
    /// two) has, surplus elements of a thread are dropped and surplus lanes and warps hold copies.
    /// Ctas own contiguous blocks where the extent is a power of two; else the
    /// blocks alternate between them, for equal shares.
    ///
    /// # Panics
    /// When the spec's numbers are no powers of two, too few, or the lanes are not 32.
    pub fn blocked(shape: &[u32], spec: &Blocked) -> Layout {
        let mut at = vec![1u32; shape.len()];
        // What one cta has, and what all have.
        let whole: Vec<u32> = shape.iter().map(|n| n.next_power_of_two()).collect();
        let own: Vec<u32> = (shape.iter().zip(&spec.ctas))
            .map(|(n, ctas)| n.div_ceil(*ctas).next_power_of_two())
            .collect();
        let mut bits = |counts: &[u32], limits: &[u32], surplus: bool| {
            let mut bases = Vec::new();
            for &dim in &spec.order {
                assert!(counts[dim].is_power_of_two(), "{spec:?}");
                for _ in 0..counts[dim].ilog2() {
                    let mut basis = vec![0; shape.len()];
                    if at[dim] < limits[dim] {
                        basis[dim] = at[dim];
                        at[dim] *= 2;
                    } else if !surplus {
                        continue;
                    }
                    bases.push(basis);
                }
            }
            bases
        };
        let mut reg = bits(&spec.vector, &own, false);
        let lane = bits(&spec.lanes, &own, true);
        let warp = bits(&spec.warps, &own, true);
        let split = |dim: usize| spec.ctas[dim] > 1 && shape[dim].is_power_of_two();
        let rest: Vec<u32> =
            (0..shape.len()).map(|dim| if split(dim) { own[dim] } else { 1 }).collect();
        reg.extend(bits(&rest, &rest, false));
        let cta = bits(&spec.ctas, &whole, true);
        Layout::tiled(shape, reg, lane, warp, cta)
            .and_then(|layout| layout.with_order(&spec.order))
            .unwrap_or_else(|error| panic!("{error}: {spec:?}"))
    }

    /// A blocked layout for moving a tile between memory and registers, where `contiguous` is the
    /// contiguous dim in memory and `vector` the most elements of one access.
    ///
    /// Lanes go along the contiguous dim until it is used up, then along the others, last dim
    /// first; warps along the slowest dims that have room, else along the contiguous one. An
    /// extent that is no power of two is divided so that at most a fifth of the positions is
    /// padding, unless threads would go without work. The vector is shortened to what divides
    /// the extent and leaves no thread without an element. Ctas divide `cta_dim`; without one they
    /// hold copies.
    ///
    /// # Panics
    /// When `vector`, `warps` or `ctas` are no powers of two.
    pub fn coalesced(
        shape: &[u32],
        contiguous: Option<usize>,
        vector: u32,
        warps: u32,
        ctas: u32,
        cta_dim: Option<usize>,
    ) -> Layout {
        Layout::coalesced_beside(shape, contiguous, vector, None, warps, ctas, cta_dim)
    }

    /// As [`Layout::coalesced`], where each thread holds `beside` adjacent vectors along another
    /// dim, as far as there are: a thread's elements are then contiguous along that dim too.
    pub fn coalesced_beside(
        shape: &[u32],
        contiguous: Option<usize>,
        vector: u32,
        beside: Option<(usize, u32)>,
        warps: u32,
        ctas: u32,
        cta_dim: Option<usize>,
    ) -> Layout {
        let counts = [vector, warps, ctas];
        assert!(counts.iter().all(|n| n.is_power_of_two()), "no powers of two in {counts:?}");
        let rank = shape.len();
        let others = (0..rank).rev().filter(|&dim| Some(dim) != contiguous);
        let order: Vec<usize> = contiguous.into_iter().chain(others).collect();
        let cta_counts: Vec<u32> =
            (0..rank).map(|dim| if Some(dim) == cta_dim { ctas } else { 1 }).collect();
        let own: Vec<u32> = shape.iter().zip(&cta_counts).map(|(n, c)| n.div_ceil(*c)).collect();
        let Some(&fast) = order.first() else { return Layout::single(warps, ctas) };

        let each = own.iter().product::<u32>() / (LANES * warps);
        let vector = vector.min(1 << own[fast].trailing_zeros()).min(1 << each.max(1).ilog2());
        let mut room = Room { at: vec![1; rank], own: &own };
        room.at[fast] = vector;
        if let Some((dim, most)) = beside.filter(|&(dim, _)| dim != fast) {
            let left = 1 << (each / vector).max(1).ilog2();
            room.at[dim] = most.min(1 << own[dim].trailing_zeros()).min(left);
        }
        let slowest: Vec<usize> = order.iter().rev().copied().collect();
        let spec = Blocked {
            vector: room.at.clone(),
            lanes: room.give(&order, LANES),
            warps: room.give(&slowest, warps),
            ctas: cta_counts,
            order,
        };
        let layout = Layout::blocked(shape, &spec);
        if cta_dim.is_none() { layout.copied_to_ctas(ctas) } else { layout }
    }

    /// A tile of no dims: one element, which every thread holds.
    fn single(warps: u32, ctas: u32) -> Layout {
        let none = |count: u32| vec![Vec::new(); count.ilog2() as usize];
        let lanes = vec![Vec::new(); LANE_BITS];
        Layout::tiled(&[], Vec::new(), lanes, none(warps), none(ctas)).expect("one element")
    }

    /// The same layout in each of several ctas.
    fn copied_to_ctas(&self, ctas: u32) -> Layout {
        let mut bases = self.all_bases().clone();
        bases[3] = vec![vec![0; self.rank()]; ctas.ilog2() as usize];
        let order = Some(self.repeat_order());
        Layout::assemble(self.shape().to_vec(), bases, self.repeat().to_vec(), order)
            .expect("copies cover as much")
    }
}

/// How much of each dim is given out, in elements.
struct Room<'s> {
    at: Vec<u32>,
    own: &'s [u32],
}

impl Room<'_> {
    /// Divides `count` threads over the dims in turn, and returns how many go along each. Those
    /// for which there is no room are booked on the last one: they will hold copies.
    fn give(&mut self, dims: &[usize], count: u32) -> Vec<u32> {
        let mut left = count.ilog2();
        let mut counts = vec![1; self.at.len()];
        for thrifty in [true, false] {
            for &dim in dims {
                let full = (self.own[dim].next_power_of_two() / self.at[dim]).max(1).ilog2();
                let fits = |&bits: &u32| !thrifty || self.thrifty(dim, bits);
                let bits = (0..=full.min(left)).rev().find(fits).unwrap_or(0);
                counts[dim] <<= bits;
                self.at[dim] <<= bits;
                left -= bits;
            }
        }
        if let Some(&last) = dims.last() {
            counts[last] <<= left;
        }
        counts
    }

    /// Whether `bits` more bits along a dim leave at most a fifth of it padding.
    fn thrifty(&self, dim: usize, bits: u32) -> bool {
        let (extent, block) = (self.own[dim], self.at[dim] << bits);
        u64::from(extent.div_ceil(block) * block) * 4 <= u64::from(extent) * 5
    }
}
