//! Layouts of results: transposing, expanding, reducing and broadcasting a layout, and which
//! register of one layout is which register of another.

use std::collections::BTreeMap;

use crate::bits::Span;
use crate::layout::{In, LANES, Layout, xor};

impl Layout {
    /// Result dim `i` is operand dim `perm[i]`. Registers keep their numbers.
    pub fn transpose(&self, perm: &[usize]) -> Layout {
        assert_eq!(perm.len(), self.rank(), "one dim of the operand for each dim of the result");
        let pick = |row: &[u32]| perm.iter().map(|&dim| row[dim]).collect::<Vec<u32>>();
        let new_dim = |old: &usize| perm.iter().position(|dim| dim == old).expect("a permutation");
        let order: Vec<usize> = self.repeat_order().iter().map(new_dim).collect();
        self.rebuilt(pick(self.shape()), pick, pick(self.repeat()), &order)
    }

    /// Inserts a dim of extent 1 before dim `axis`. Registers keep their numbers.
    pub fn expand(&self, axis: usize) -> Layout {
        let with = |row: &[u32], value: u32| {
            let mut row = row.to_vec();
            row.insert(axis, value);
            row
        };
        let moved = self.repeat_order().iter().map(|&dim| dim + usize::from(dim >= axis));
        let order: Vec<usize> = moved.chain([axis]).collect();
        let shape = with(self.shape(), 1);
        self.rebuilt(shape, |basis| with(basis, 0), with(self.repeat(), 1), &order)
    }

    /// Removes a dim of extent 1: the inverse of [`Layout::expand`]. `None` where the atom is
    /// wider than that one position, for then some threads hold only padding.
    pub fn squeeze(&self, axis: usize) -> Option<Layout> {
        (self.box_extents()[axis] == 1 && self.repeat()[axis] == 1).then(|| self.without(axis))
    }

    /// The layout of a reduction along `axis`, which it drops. Registers that held different
    /// positions along it merge; threads that did are left with copies of the result.
    pub fn reduce(&self, axis: usize) -> Layout {
        self.flattened(|dim| dim == axis).without(axis)
    }

    /// For each register of the operand of a reduction the register of [`Layout::reduce`] that it
    /// goes into.
    pub fn reduce_regs(&self, axis: usize) -> Vec<u32> {
        self.flattened_regs(|dim| dim == axis)
    }

    /// The layout that an operand must have so that broadcasting it to this layout moves no data:
    /// the same threads, and position 0 along the broadcast dims.
    pub fn broadcast_from(&self, operand_shape: &[u32]) -> Layout {
        self.flattened(self.stretched(operand_shape))
    }

    /// For each register of this layout, that of a broadcast tile, the register of
    /// [`Layout::broadcast_from`] that holds its element.
    pub fn broadcast_regs(&self, operand_shape: &[u32]) -> Vec<u32> {
        self.flattened_regs(self.stretched(operand_shape))
    }

    fn stretched(&self, operand: &[u32]) -> impl Fn(usize) -> bool {
        assert_eq!(operand.len(), self.rank(), "operand and result have as many dims");
        let flat: Vec<bool> = operand.iter().zip(self.shape()).map(|(a, b)| a != b).collect();
        assert!(flat.iter().zip(operand).all(|(&flat, &extent)| !flat || extent == 1));
        move |dim| flat[dim]
    }

    /// The same layout with the fastest repeats written as register bits, as far as they are powers
    /// of two. Registers keep their numbers.
    pub fn folded(&self) -> Layout {
        let (mut bases, mut repeat) = (self.all_bases().clone(), self.repeat().to_vec());
        for &dim in self.repeat_order() {
            let mut step = self.box_extents()[dim];
            while repeat[dim].is_multiple_of(2) {
                let mut basis = vec![0; self.rank()];
                basis[dim] = step;
                bases[0].push(basis);
                (step, repeat[dim]) = (step * 2, repeat[dim] / 2);
            }
            if repeat[dim] > 1 {
                break;
            }
        }
        let order = Some(self.repeat_order());
        Layout::assemble(self.shape().to_vec(), bases, repeat, order).expect("the same places")
    }

    /// When no data moves between threads: for each register of `to` a register of `from` that
    /// holds the same element in every thread. Registers that hold only padding name register 0.
    pub fn reg_map(from: &Layout, to: &Layout) -> Option<Vec<u32>> {
        let sizes = |layout: &Layout| (layout.shape().to_vec(), layout.warps(), layout.ctas());
        if sizes(from) != sizes(to) {
            return None;
        }
        let same_threads = [In::Lane, In::Warp, In::Cta].map(|i| from.bases(i) == to.bases(i));
        if same_threads != [true; 3] && !to.has_padding() {
            return None;
        }
        let holders = from.reg_parts();
        let threads = Threads::new(from, to);
        (0..to.regs()).map(|reg| threads.source(&holders, to.reg_part(reg))).collect()
    }

    /// The same elements in the same threads, with the registers along a dim first.
    pub fn regs_along(&self, dim: usize) -> Layout {
        let mut bases = self.all_bases().clone();
        let along = |basis: &[u32]| {
            basis[dim] != 0 && basis.iter().enumerate().all(|(d, &part)| d == dim || part == 0)
        };
        // The nearest first; the rest keeps its order.
        bases[0].sort_by_key(|basis| if along(basis) { basis[dim] } else { u32::MAX });
        let order = Some(self.repeat_order());
        Layout::assemble(self.shape().to_vec(), bases, self.repeat().to_vec(), order)
            .expect("the same positions in another order")
    }

    /// The first register with each coordinates in thread 0.
    fn reg_parts(&self) -> BTreeMap<Vec<u32>, u32> {
        // In reverse, so that the first register stays.
        (0..self.regs()).rev().map(|reg| (self.reg_part(reg), reg)).collect()
    }

    /// The layout with the coordinates along some dims set to 0, their extents to 1, and without
    /// the register bits that are then redundant.
    fn flattened(&self, flat: impl Fn(usize) -> bool) -> Layout {
        let fill = |row: &[u32], value: u32| -> Vec<u32> {
            (0..row.len()).map(|dim| if flat(dim) { value } else { row[dim] }).collect()
        };
        if (0..self.rank()).all(|dim| !flat(dim)) {
            return self.clone();
        }
        let mut bases = self.all_bases().clone();
        bases.iter_mut().flatten().for_each(|basis| *basis = fill(basis, 0));
        let mut span = Span::default();
        bases[0].retain(|basis| span.insert(self.pack(basis)));
        let (shape, repeat) = (fill(self.shape(), 1), fill(self.repeat(), 1));
        Layout::assemble(shape, bases, repeat, Some(self.repeat_order())).expect("still covered")
    }

    fn flattened_regs(&self, flat: impl Fn(usize) -> bool) -> Vec<u32> {
        let result = self.flattened(&flat).reg_parts();
        (0..self.regs())
            .map(|reg| {
                let mut at = self.reg_part(reg);
                (0..at.len()).filter(|&dim| flat(dim)).for_each(|dim| at[dim] = 0);
                result[&at]
            })
            .collect()
    }

    /// Takes out a dim in which the atom does not move.
    fn without(&self, axis: usize) -> Layout {
        let drop = |row: &[u32]| [&row[..axis], &row[axis + 1..]].concat();
        let others = self.repeat_order().iter().filter(|&&dim| dim != axis);
        let order: Vec<usize> = others.map(|&dim| dim - usize::from(dim > axis)).collect();
        self.rebuilt(drop(self.shape()), drop, drop(self.repeat()), &order)
    }

    fn rebuilt(
        &self,
        shape: Vec<u32>,
        basis: impl Fn(&[u32]) -> Vec<u32>,
        repeat: Vec<u32>,
        order: &[usize],
    ) -> Layout {
        let bases = self.all_bases().each_ref().map(|all| all.iter().map(|b| basis(b)).collect());
        Layout::assemble(shape, bases, repeat, Some(order)).expect("dims only moved")
    }
}

/// The parts of all threads in two layouts.
struct Threads<'l> {
    shape: &'l [u32],
    same: bool,
    parts: Vec<(Vec<u32>, Vec<u32>)>,
}

impl<'l> Threads<'l> {
    fn new(from: &'l Layout, to: &Layout) -> Threads<'l> {
        let mut parts = Vec::new();
        for cta in 0..to.ctas() {
            for warp in 0..to.warps() {
                for lane in 0..LANES {
                    let parts_of = |layout: &Layout| layout.thread_part(lane, warp, cta);
                    parts.push((parts_of(from), parts_of(to)));
                }
            }
        }
        let same = parts.iter().all(|(from, to)| from == to);
        Threads { shape: from.shape(), same, parts }
    }

    /// The register that holds what a register with the part `want` needs, in every thread where
    /// that is no padding.
    fn source(&self, holders: &BTreeMap<Vec<u32>, u32>, want: Vec<u32>) -> Option<u32> {
        if self.same
            && let Some(&reg) = holders.get(&want)
        {
            return Some(reg);
        }
        let mut found = None;
        for (from, to) in &self.parts {
            let element = xor(want.clone(), to);
            if element.iter().zip(self.shape).any(|(at, extent)| at >= extent) {
                continue;
            }
            let part = xor(element, from);
            if *found.get_or_insert_with(|| part.clone()) != part {
                return None;
            }
        }
        found.map_or(Some(0), |part| holders.get(&part).copied())
    }
}
