//! Register coalescing of WGMMA accumulators.
//!
//! Where branches and loops pass an accumulator on, it is copied from one virtual register to
//! another. The assembler keeps many of these moves: WGMMA needs consecutive registers, so one
//! remaining move is a move of the whole accumulator, during which nothing else runs. Here
//! registers that a move joins become one, where no instruction writes one of them while the other
//! is live.
//!
//! Before: a kernel in which accumulators, and the values moved to and from them, have separate
//! registers. After: the same kernel with fewer registers and moves.
//!
//! Must not: touch register operands of WGMMA. They are read asynchronously, after the instruction.

use crate::flow::{Block, blocks};
use crate::inst::*;
use crate::module::{Kernel, Stmt};
use std::collections::{BTreeMap, BTreeSet};

/// A bit set of candidates.
#[derive(Clone, PartialEq)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(n: usize) -> Self {
        Self(vec![0; n.div_ceil(64)])
    }

    fn has(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    fn set(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    fn clear(&mut self, i: usize) {
        self.0[i / 64] &= !(1 << (i % 64));
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(a, b)| *a |= b);
    }

    fn each(&self) -> impl Iterator<Item = usize> + '_ {
        let bits = |(n, &word): (usize, &u64)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * n + bit)
        };
        self.0.iter().enumerate().flat_map(bits)
    }
}

/// The registers that may be coalesced, and what is known about them.
struct Candidates {
    number: BTreeMap<Reg, usize>,
    regs: Vec<Reg>,
    /// Positions in WGMMA accumulators.
    places: Vec<usize>,
}

pub fn accumulators(kernel: &mut Kernel) {
    let Some(all) = candidates(kernel) else { return };
    let mut apart = interference(kernel, &all);
    let mut name: Vec<usize> = (0..all.regs.len()).collect();
    let find = |name: &[usize], mut i: usize| {
        while name[i] != i {
            i = name[i];
        }
        i
    };
    for stmt in &kernel.body {
        let Some([d, a]) = moved(stmt) else { continue };
        let (Some(&d), Some(&a)) = (all.number.get(&d), all.number.get(&a)) else { continue };
        let (d, a) = (find(&name, d), find(&name, a));
        if d == a || apart[d].has(a) || all.places[d] != all.places[a] {
            continue;
        }
        // The earlier register stays.
        let (to, from) = (d.min(a), d.max(a));
        name[from] = to;
        let others = apart[from].clone();
        others.each().for_each(|i| apart[i].set(to));
        apart[to].add(&others);
    }
    let new = |r: Reg| all.number.get(&r).map_or(r, |&i| all.regs[find(&name, i)]);
    kernel.body.retain_mut(|stmt| {
        if let Stmt::Inst { inst, .. } = stmt {
            rename(inst, &new);
        }
        moved(stmt).is_none_or(|[d, a]| d != a || !all.number.contains_key(&d))
    });
}

/// The registers of an unconditional move.
fn moved(stmt: &Stmt) -> Option<[Reg; 2]> {
    match stmt {
        Stmt::Inst { guard: None, inst: Inst::Mov { d, a: Opnd::Reg(a), .. } }
            if d.class == Class::B32 && a.class == Class::B32 =>
        {
            Some([*d, *a])
        }
        _ => None,
    }
}

/// Accumulators and the registers that moves join them with: registers that have the same position
/// in every accumulator, and occur only where they can be renamed.
fn candidates(kernel: &Kernel) -> Option<Candidates> {
    let mut place: BTreeMap<Reg, usize> = BTreeMap::new();
    let mut never = BTreeSet::new();
    let mut sums = BTreeSet::new();
    for inst in kernel.instructions() {
        if let Inst::Wgmma { d, a, .. } = inst {
            for (i, &r) in d.iter().enumerate() {
                sums.insert(r);
                if *place.entry(r).or_insert(i) != i {
                    never.insert(r);
                }
            }
            if let WgmmaA::Regs(regs) = a {
                never.extend(regs);
            }
        }
    }
    if sums.is_empty() {
        return None;
    }
    let mut joined: BTreeMap<Reg, Vec<Reg>> = BTreeMap::new();
    for [d, a] in kernel.body.iter().filter_map(moved) {
        joined.entry(d).or_default().push(a);
        joined.entry(a).or_default().push(d);
    }
    // A register that is moved to different positions, such as one zero for all, has none.
    let mut edge: BTreeSet<Reg> = sums.clone();
    while !edge.is_empty() {
        let mut reached: BTreeMap<Reg, BTreeSet<usize>> = BTreeMap::new();
        for r in &edge {
            for &other in joined.get(r).into_iter().flatten() {
                if !place.contains_key(&other) && !never.contains(&other) {
                    reached.entry(other).or_default().insert(place[r]);
                }
            }
        }
        edge.clear();
        for (r, places) in reached {
            match places.first() {
                Some(&at) if places.len() == 1 => {
                    place.insert(r, at);
                    edge.insert(r);
                }
                _ => {
                    never.insert(r);
                }
            }
        }
    }
    let fixed = |inst: &Inst| !can_rename(inst);
    for inst in kernel.instructions().filter(|inst| fixed(inst)) {
        never.extend(inst.reads());
        never.extend(inst.writes());
    }
    for inst in kernel.instructions() {
        for (_, addr) in inst.addresses() {
            if let Base::Reg(r) = addr.base {
                never.insert(r);
            }
        }
    }
    let regs: Vec<Reg> = place.keys().copied().filter(|r| !never.contains(r)).collect();
    let number = regs.iter().enumerate().map(|(i, &r)| (r, i)).collect();
    let places = regs.iter().map(|r| place[r]).collect();
    Some(Candidates { number, regs, places })
}

/// The interference graph: which candidates are live together.
fn interference(kernel: &Kernel, all: &Candidates) -> Vec<Bits> {
    let n = all.regs.len();
    let blocks = blocks(kernel);
    let mut labels = BTreeMap::new();
    for (i, block) in blocks.iter().enumerate() {
        if let Some(Stmt::Label(label)) = kernel.body.get(block.from) {
            labels.insert(*label, i);
        }
    }
    let next: Vec<Vec<usize>> =
        blocks.iter().enumerate().map(|(i, block)| after(kernel, block, i, &labels)).collect();
    let mut live: Vec<Bits> = vec![Bits::new(n); blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for i in (0..blocks.len()).rev() {
            let mut now = Bits::new(n);
            next[i].iter().filter_map(|&to| live.get(to)).for_each(|bits| now.add(bits));
            walk(kernel, &blocks[i], all, &mut now, &mut |_, _, _| {});
            if now != live[i] {
                live[i] = now;
                changed = true;
            }
        }
    }
    let mut apart = vec![Bits::new(n); n];
    in_flight(kernel, &blocks, &next, all, &mut apart);
    for i in 0..blocks.len() {
        let mut now = Bits::new(n);
        next[i].iter().filter_map(|&to| live.get(to)).for_each(|bits| now.add(bits));
        walk(kernel, &blocks[i], all, &mut now, &mut |written, live, from| {
            for &d in written {
                let others = live.each().chain(written.iter().copied());
                for other in others.filter(|&o| o != d && Some(o) != from) {
                    apart[d].set(other);
                    apart[other].set(d);
                }
            }
        });
    }
    apart
}

/// WGMMA writes accumulators until it is waited for, also those that are dead: what is written
/// meanwhile interferes. A wait that leaves some in flight is taken to leave all.
fn in_flight(
    kernel: &Kernel,
    blocks: &[Block],
    next: &[Vec<usize>],
    all: &Candidates,
    apart: &mut [Bits],
) {
    let mut begins = vec![Bits::new(all.regs.len()); blocks.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (i, block) in blocks.iter().enumerate() {
            let mut now = begins[i].clone();
            for stmt in &kernel.body[block.from..block.to] {
                let Stmt::Inst { inst, .. } = stmt else { continue };
                let written: Vec<usize> =
                    inst.writes().iter().filter_map(|r| all.number.get(r).copied()).collect();
                for &d in &written {
                    for other in now.each().filter(|&o| o != d) {
                        apart[d].set(other);
                        apart[other].set(d);
                    }
                }
                match inst {
                    Inst::Wgmma { .. } => written.iter().for_each(|&d| now.set(d)),
                    Inst::WgmmaWait { groups: 0 } => now = Bits::new(all.regs.len()),
                    _ => {}
                }
            }
            for &to in next[i].iter().filter(|&&to| to < blocks.len()) {
                let before = begins[to].clone();
                begins[to].add(&now);
                changed |= begins[to] != before;
            }
        }
    }
}

/// The successors of a block.
fn after(
    kernel: &Kernel,
    block: &Block,
    number: usize,
    labels: &BTreeMap<Label, usize>,
) -> Vec<usize> {
    let last = kernel.body[block.from..block.to].last();
    let Some(Stmt::Inst { guard, inst }) = last else { return vec![number + 1] };
    let mut out = Vec::new();
    match inst {
        Inst::Bra { to, .. } => out.extend(labels.get(to)),
        Inst::Ret | Inst::Trap => {}
        _ => return vec![number + 1],
    }
    out.extend(guard.map(|_| number + 1));
    out
}

/// Walks a block backwards: `live` is the live-out set, and then the live-in set. `each` is called
/// for every write with the registers that are live after it, and the source of a move.
fn walk(
    kernel: &Kernel,
    block: &Block,
    all: &Candidates,
    live: &mut Bits,
    reported: &mut impl FnMut(&[usize], &Bits, Option<usize>),
) {
    for stmt in kernel.body[block.from..block.to].iter().rev() {
        let Stmt::Inst { guard, inst } = stmt else { continue };
        let of = |regs: Vec<Reg>| -> Vec<usize> {
            regs.iter().filter_map(|r| all.number.get(r).copied()).collect()
        };
        // A text of several instructions may write a result before it reads an operand.
        if matches!(inst, Inst::Text { .. }) {
            of(inst.reads()).into_iter().for_each(|r| live.set(r));
        }
        let written = of(inst.writes());
        if !written.is_empty() {
            let from = moved(stmt).and_then(|[_, a]| all.number.get(&a).copied());
            reported(&written, live, from);
            if guard.is_none() {
                written.iter().for_each(|&d| live.clear(d));
            }
        }
        of(inst.reads()).into_iter().for_each(|r| live.set(r));
    }
}

/// Whether [`rename`] handles all registers of an instruction that could be candidates.
fn can_rename(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::Mov { .. }
            | Inst::Alu { .. }
            | Inst::Cvt { .. }
            | Inst::Setp { .. }
            | Inst::Selp { .. }
            | Inst::Shfl { .. }
            | Inst::Pack { .. }
            | Inst::St { .. }
            | Inst::Stmatrix { .. }
            | Inst::Wgmma { .. }
            | Inst::Text { .. }
    )
}

fn rename(inst: &mut Inst, new: &impl Fn(Reg) -> Reg) {
    let reg = |r: &mut Reg| *r = new(*r);
    let opnd = |o: &mut Opnd| {
        if let Opnd::Reg(r) = o {
            *r = new(*r);
        }
    };
    match inst {
        Inst::Mov { d, a, .. } => {
            reg(d);
            opnd(a);
        }
        Inst::Alu { d, a, .. } => {
            reg(d);
            a.iter_mut().for_each(opnd);
        }
        Inst::Cvt { d, a, b, .. } => {
            reg(d);
            opnd(a);
            b.iter_mut().for_each(opnd);
        }
        Inst::Setp { a, b, .. } => [a, b].into_iter().for_each(opnd),
        Inst::Text { d, a, .. } => d.iter_mut().chain(a).for_each(reg),
        Inst::Selp { d, a, b, .. } => {
            reg(d);
            [a, b].into_iter().for_each(opnd);
        }
        Inst::Shfl { d, a, b, c, mask, .. } => {
            reg(d);
            [a, b, c, mask].into_iter().for_each(opnd);
        }
        Inst::Pack { d, parts } => {
            reg(d);
            parts.iter_mut().for_each(reg);
        }
        // Address registers are never candidates.
        Inst::St { a, .. } => a.iter_mut().for_each(opnd),
        Inst::Stmatrix { a, .. } => a.iter_mut().for_each(reg),
        // The left operand is not renamed.
        Inst::Wgmma { d, .. } => d.iter_mut().for_each(reg),
        _ => {}
    }
}
