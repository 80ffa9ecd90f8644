//! Reshapes without data movement: the same elements under another shape.

use std::ops::Range;

use crate::layout::{LANES, Layout};

impl Layout {
    /// The layout of the same elements, counted row-major, under another shape. Each register of
    /// each thread keeps its element, so the change is free. `None` where the bits do not allow
    /// it: the new positions are not a repeated bit-linear atom, or the counts differ.
    pub fn reshape(&self, shape: &[u32]) -> Option<Layout> {
        let groups = groups(self.shape(), shape)?;
        let steps = self.repeat_order().iter().map(|&dim| {
            let mut step = vec![0; self.rank()];
            step[dim] = self.box_extents()[dim];
            (self.repeat()[dim], step)
        });
        let mut digits = Vec::new();
        for (count, step) in steps.filter(|&(count, _)| count > 1) {
            let group = groups.iter().find(|group| group.old.clone().any(|dim| step[dim] > 0))?;
            digits.extend(group.digits(self.shape(), shape, count, &step)?);
        }
        let place = |basis: &Vec<u32>| {
            let mut coords = vec![0; shape.len()];
            groups
                .iter()
                .try_for_each(|group| group.place(self.shape(), shape, basis, &mut coords))?;
            Some(coords)
        };
        let bases: [Option<Vec<_>>; 4] =
            self.all_bases().each_ref().map(|all| all.iter().map(place).collect());
        let [Some(mut reg), Some(lane), Some(warp), Some(cta)] = bases else { return None };
        // Repeats become register bits one by one, from the fastest, until the rest are repeats of
        // what the bits cover.
        loop {
            let bases = [reg.clone(), lane.clone(), warp.clone(), cta.clone()];
            if let Some(layout) = repeated(shape, bases, &digits)
                && layout.holds_as(self)
            {
                return Some(layout);
            }
            let first = digits.first_mut().filter(|digit| digit.count.is_multiple_of(2))?;
            let mut basis = vec![0; shape.len()];
            basis[first.dim] = first.step;
            reg.push(basis);
            (first.count, first.step) = (first.count / 2, first.step * 2);
            digits.retain(|digit| digit.count > 1);
        }
    }

    /// Whether each register of each thread has the element, counted row-major, that it has in
    /// another layout, or is padding in both.
    fn holds_as(&self, other: &Layout) -> bool {
        self.parts_hold_as(other).unwrap_or_else(|| self.all_hold_as(other))
    }

    /// The same, from the parts that registers and the bits of threads have in the numbers of
    /// elements: enough where those add up. `None` where they do not.
    fn parts_hold_as(&self, other: &Layout) -> Option<bool> {
        let alike = self.all_bases().iter().zip(other.all_bases()).skip(1);
        if !self.adds_up() || !other.adds_up() || alike.clone().any(|(a, b)| a.len() != b.len()) {
            return None;
        }
        let bits = alike
            .flat_map(|(a, b)| a.iter().zip(b))
            .all(|(a, b)| self.number(a.iter().copied()) == other.number(b.iter().copied()));
        let reg = |layout: &Layout, reg| layout.number(layout.reg_part(reg).into_iter());
        Some(bits && (0..self.regs()).all(|r| reg(self, r) == reg(other, r)))
    }

    /// Whether an element's number is the sum of those of the parts of its coordinates: no two
    /// vectors have a bit in common, and there is no padding.
    fn adds_up(&self) -> bool {
        let whole = (0..self.rank())
            .all(|dim| self.box_extents()[dim] * self.repeat()[dim] == self.shape()[dim]);
        let mut seen = vec![0; self.rank()];
        whole
            && self.all_bases().iter().flatten().all(|basis| {
                basis.iter().zip(&mut seen).all(|(&bits, seen)| {
                    let apart = *seen & bits == 0;
                    *seen |= bits;
                    apart
                })
            })
    }

    /// The number of an element, counted row-major; `None` for padding.
    fn number(&self, coords: impl Iterator<Item = u32>) -> Option<u64> {
        coords.zip(self.shape()).try_fold(0, |number, (at, &extent)| {
            (at < extent).then_some(number * u64::from(extent) + u64::from(at))
        })
    }

    /// The same as [`Layout::holds_as`], from every register of every thread.
    fn all_hold_as(&self, other: &Layout) -> bool {
        let regs: Vec<_> =
            (0..self.regs()).map(|reg| (self.reg_part(reg), other.reg_part(reg))).collect();
        let both = |reg: &[u32], part: &[u32], layout: &Layout| {
            layout.number(reg.iter().zip(part).map(|(a, b)| a ^ b))
        };
        let all = |count: u32| 0..count;
        all(self.ctas()).all(|cta| {
            all(self.threads()).all(|thread| {
                let part =
                    |layout: &Layout| layout.thread_part(thread % LANES, thread / LANES, cta);
                let (here, there) = (part(self), part(other));
                regs.iter().all(|(a, b)| both(a, &here, self) == both(b, &there, other))
            })
        })
    }
}

/// A layout whose repeats are the digits, where they are repeats of what the bases cover.
fn repeated(shape: &[u32], bases: [Vec<Vec<u32>>; 4], digits: &[Digit]) -> Option<Layout> {
    let mut repeat = vec![1; shape.len()];
    let mut order: Vec<usize> = Vec::new();
    for digit in digits {
        if order.last() != Some(&digit.dim) {
            order.push(digit.dim);
        }
        repeat[digit.dim] *= digit.count;
    }
    order.extend((0..shape.len()).rev().filter(|dim| digits.iter().all(|d| d.dim != *dim)));
    let [reg, lane, warp, cta] = bases;
    let layout = Layout::new(shape, reg, lane, warp, cta, repeat).ok()?.with_order(&order).ok()?;
    let mut next = layout.box_extents().to_vec();
    let follow = digits.iter().all(|digit| {
        let follows = digit.step == next[digit.dim];
        next[digit.dim] *= digit.count;
        follows
    });
    follow.then_some(layout)
}

/// One counter of repeats: `count` positions along `dim`, `step` apart.
struct Digit {
    dim: usize,
    count: u32,
    step: u32,
}

/// Dims of the old and of the new shape that hold the same number of positions, while no smaller
/// part of them does: what happens to one group does not touch the others.
struct Group {
    old: Range<usize>,
    new: Range<usize>,
}

/// Cuts two shapes into groups; `None` when they hold different numbers of elements.
fn groups(old: &[u32], new: &[u32]) -> Option<Vec<Group>> {
    let count = |shape: &[u32]| shape.iter().map(|&n| u64::from(n)).product::<u64>();
    let mut groups: Vec<Group> = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < old.len() && j < new.len() {
        let (from, to) = (i, j);
        (i, j) = (i + 1, j + 1);
        while count(&old[from..i]) != count(&new[to..j]) {
            let behind = count(&old[from..i]) < count(&new[to..j]);
            let (at, end) = if behind { (&mut i, old.len()) } else { (&mut j, new.len()) };
            if *at == end {
                return None;
            }
            *at += 1;
        }
        groups.push(Group { old: from..i, new: to..j });
    }
    // What is left on one side are dims of extent 1, or the shapes differ.
    if count(&old[i..]) != count(&new[j..]) {
        return None;
    }
    let rest = Group { old: i..old.len(), new: j..new.len() };
    match groups.last_mut() {
        Some(last) => (last.old.end, last.new.end) = (rest.old.end, rest.new.end),
        None => groups.push(rest),
    }
    Some(groups)
}

impl Group {
    /// The number of a place inside the group.
    fn number(&self, old: &[u32], coords: &[u32]) -> u64 {
        self.old.clone().fold(0, |n, dim| n * u64::from(old[dim]) + u64::from(coords[dim]))
    }

    /// Writes the group's new coordinates of a place with old coordinates. The slowest dim takes
    /// what is beyond the shape.
    fn place(&self, old: &[u32], new: &[u32], from: &[u32], to: &mut [u32]) -> Option<()> {
        let mut number = self.number(old, from);
        for dim in self.new.clone().rev() {
            let slowest = dim == self.new.start;
            let extent = if slowest { u64::MAX } else { new[dim].into() };
            to[dim] = u32::try_from(number % extent).ok()?;
            number /= extent;
        }
        (number == 0).then_some(())
    }

    /// Cuts `count` positions that are a step apart where they go over from one new dim to the
    /// next.
    fn digits(&self, old: &[u32], new: &[u32], mut count: u32, step: &[u32]) -> Option<Vec<Digit>> {
        let mut step = u32::try_from(self.number(old, step)).ok()?;
        let mut digits = Vec::new();
        let mut stride = 1;
        for dim in self.new.clone().rev() {
            let slowest = dim == self.new.start;
            let end = stride * new[dim];
            if count > 1 && (step < end || slowest) {
                let here = if slowest || (count - 1) * step < end { count } else { end / step };
                if !step.is_multiple_of(stride) || here == 0 || !count.is_multiple_of(here) {
                    return None;
                }
                digits.push(Digit { dim, count: here, step: step / stride });
                (count, step) = (count / here, step * here);
            }
            stride = end;
        }
        digits.retain(|digit| digit.count > 1);
        (count == 1).then_some(digits)
    }
}
