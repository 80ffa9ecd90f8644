//! Definite assignment: a register must have been written on every path to a use.
//!
//! Guards are tracked as far as generated code uses them: the result of a guarded instruction has a
//! value where the guard holds, and a branch on a predicate fixes its value on both paths.

use crate::inst::{Class, Inst, Label, Opnd, Reg};
use crate::module::{Guard, Kernel, Stmt};
use crate::operands::{Operand, Role};
use std::collections::{BTreeMap, BTreeSet};

/// A register that may be read without a value: the statement's index in the body, and the
/// register.
pub type Undefined = (usize, Reg);

/// A basic block.
pub(crate) struct Block {
    /// Indices in the body.
    pub from: usize,
    pub to: usize,
}

/// A bit set of registers.
#[derive(Clone, PartialEq, Default)]
struct Registers([Vec<u64>; 4]);

impl Registers {
    fn contains(&self, reg: &Reg) -> bool {
        let word = self.0[reg.class.place()].get(reg.id as usize / 64);
        word.is_some_and(|w| w >> (reg.id % 64) & 1 != 0)
    }

    fn insert(&mut self, reg: Reg) {
        let words = &mut self.0[reg.class.place()];
        let place = reg.id as usize / 64;
        words.resize(words.len().max(place + 1), 0);
        words[place] |= 1 << (reg.id % 64);
    }

    fn intersection(&self, other: &Self) -> Self {
        let both = |n: usize| self.0[n].iter().zip(&other.0[n]).map(|(a, b)| a & b).collect();
        Self(std::array::from_fn(both))
    }

    fn difference(&self, other: &Self) -> Vec<Reg> {
        let mut out = Vec::new();
        for class in [Class::Pred, Class::B16, Class::B32, Class::B64] {
            let others = other.0[class.place()].iter().copied().chain(std::iter::repeat(0));
            for (n, (a, b)) in self.0[class.place()].iter().zip(others).enumerate() {
                let bits = (0..64).filter(|bit| (a & !b) >> bit & 1 != 0);
                out.extend(bits.map(|bit| Reg { class, id: n as u32 * 64 + bit }));
            }
        }
        out
    }
}

/// The dataflow state at a point.
#[derive(Clone, PartialEq, Default)]
struct FlowState {
    defined: Registers,
    /// Registers that have a value where a predicate has a value: reg, predicate, its value.
    when: BTreeSet<(Reg, Reg, bool)>,
    /// Predicates whose value is known.
    facts: BTreeMap<Reg, bool>,
}

impl FlowState {
    /// Whether `reg` has a value wherever `p` is `value`.
    fn has_when(&self, reg: Reg, p: Reg, value: bool) -> bool {
        self.defined.contains(&reg)
            || self.when.contains(&(reg, p, value))
            || self.facts.get(&p) == Some(&!value)
    }

    /// Whether `reg` has a value, given that the guards hold.
    fn has(&self, reg: Reg, mut guards: impl Iterator<Item = Guard>) -> bool {
        let known = |g: Guard| self.facts.get(&g.reg) == Some(&g.negated);
        self.defined.contains(&reg)
            || guards.any(|g| known(g) || self.has_when(reg, g.reg, !g.negated))
            || self.facts.iter().any(|(p, value)| self.when.contains(&(reg, *p, *value)))
    }

    fn write(&mut self, reg: Reg, guard: Option<Guard>) {
        match guard.filter(|g| self.facts.get(&g.reg) != Some(&!g.negated)) {
            None => {
                self.defined.insert(reg);
            }
            Some(g) if self.has_when(reg, g.reg, g.negated) => {
                self.defined.insert(reg);
            }
            Some(g) => {
                self.when.insert((reg, g.reg, !g.negated));
            }
        }
        // Facts about its old value are dropped.
        if reg.class == Class::Pred {
            self.facts.remove(&reg);
            self.when.retain(|(_, p, _)| *p != reg);
        }
    }

    /// Drops registers that no other block names.
    fn leave(mut self, known: &Registers) -> Self {
        self.defined = self.defined.intersection(known);
        self.when.retain(|(reg, p, _)| known.contains(reg) && known.contains(p));
        self.facts.retain(|p, _| known.contains(p));
        self
    }

    /// The join of two states: what holds on both paths.
    fn join(&self, other: &FlowState) -> FlowState {
        let defined = self.defined.intersection(&other.defined);
        let facts = self.facts.iter().filter(|(p, v)| other.facts.get(p) == Some(v));
        let facts = facts.map(|(p, v)| (*p, *v)).collect();
        // Registers of one side alone have a value where predicates are as on that side.
        let lacking = |a: &FlowState, b: &FlowState| -> Vec<(Reg, Reg, bool)> {
            let apart = a.facts.iter().filter(|(p, v)| b.facts.get(p).is_some_and(|w| w != *v));
            let apart: Vec<(&Reg, &bool)> = apart.collect();
            let only = if apart.is_empty() { Vec::new() } else { a.defined.difference(&b.defined) };
            only.iter().flat_map(|r| apart.iter().map(|(p, v)| (*r, **p, **v))).collect()
        };
        let candidates = self.when.iter().chain(&other.when).copied();
        let candidates = candidates.chain(lacking(self, other)).chain(lacking(other, self));
        let both = |(r, p, v): &(Reg, Reg, bool)| {
            !defined.contains(r) && self.has_when(*r, *p, *v) && other.has_when(*r, *p, *v)
        };
        let when = candidates.filter(both).collect();
        FlowState { defined, when, facts }
    }
}

/// Every use of a register that may have no value, once for each register and statement; and
/// whether control can run past the end.
pub fn undefined(kernel: &Kernel) -> (Vec<Undefined>, bool) {
    let blocks = blocks(kernel);
    let at: BTreeMap<Label, usize> = blocks
        .iter()
        .enumerate()
        .filter_map(|(n, b)| match kernel.body.get(b.from)? {
            Stmt::Label(label) => Some((*label, n)),
            _ => None,
        })
        .collect();
    let operands: Vec<Vec<Operand>> = kernel.body.iter().map(operands).collect();
    let known = named_in_several(kernel, &operands, &blocks);
    let mut states: Vec<Option<FlowState>> = vec![None; blocks.len()];
    let mut runs_out = blocks.is_empty();
    if let Some(first) = states.first_mut() {
        *first = Some(FlowState::default());
    }
    let mut todo: BTreeSet<usize> = (0..1.min(blocks.len())).collect();
    while let Some(n) = todo.pop_first() {
        let Some(state) = states[n].clone() else { continue };
        let (falls, jumps) = run(kernel, &operands, &blocks[n], state, &mut |_, _| {});
        let falls = falls.map(|state| (n + 1, state));
        let jumps = jumps.into_iter().filter_map(|(label, state)| Some((*at.get(&label)?, state)));
        for (next, state) in falls.into_iter().chain(jumps) {
            let Some(old) = states.get_mut(next) else {
                runs_out = true;
                continue;
            };
            let state = state.leave(&known);
            let joined = old.as_ref().map_or_else(|| state.clone(), |old| old.join(&state));
            if old.as_ref() != Some(&joined) {
                *old = Some(joined);
                todo.insert(next);
            }
        }
    }
    let mut faults = BTreeSet::new();
    for (block, state) in blocks.iter().zip(states) {
        let Some(state) = state else { continue };
        run(kernel, &operands, block, state, &mut |place, reg| {
            faults.insert((place, reg));
        });
    }
    (faults.into_iter().collect(), runs_out)
}

/// Those of an instruction, which each pass over the body needs.
fn operands(stmt: &Stmt) -> Vec<Operand> {
    match stmt {
        Stmt::Inst { inst, .. } => inst.operands(),
        _ => Vec::new(),
    }
}

/// Most registers are named in one block alone; the state need not keep them.
fn named_in_several(kernel: &Kernel, operands: &[Vec<Operand>], blocks: &[Block]) -> Registers {
    // For each class, the block that names a register first.
    let mut first: [Vec<Option<usize>>; 4] = Default::default();
    let mut several = Registers::default();
    for (number, block) in blocks.iter().enumerate() {
        let inside = block.from..block.to;
        for (stmt, operands) in kernel.body[inside.clone()].iter().zip(&operands[inside]) {
            let Stmt::Inst { guard, .. } = stmt else { continue };
            let named = operands.iter().filter_map(|o| match o.what {
                Opnd::Reg(reg) => Some(reg),
                _ => None,
            });
            for reg in named.chain(guard.map(|g| g.reg)) {
                let (first, at) = (&mut first[reg.class.place()], reg.id as usize);
                first.resize(first.len().max(at + 1), None);
                if *first[at].get_or_insert(number) != number {
                    several.insert(reg);
                }
            }
        }
    }
    several
}

/// A block begins at a label and after a jump.
pub(crate) fn blocks(kernel: &Kernel) -> Vec<Block> {
    let mut out = Vec::new();
    let mut from = 0;
    for (place, stmt) in kernel.body.iter().enumerate() {
        match stmt {
            Stmt::Label(_) if place > from => {
                out.push(Block { from, to: place });
                from = place;
            }
            Stmt::Inst { inst: Inst::Bra { .. } | Inst::Ret | Inst::Trap, .. } => {
                out.push(Block { from, to: place + 1 });
                from = place + 1;
            }
            _ => {}
        }
    }
    if from < kernel.body.len() {
        out.push(Block { from, to: kernel.body.len() });
    }
    out
}

/// Walks a block: the state at its end, if control falls through, and at its jumps.
fn run(
    kernel: &Kernel,
    operands: &[Vec<Operand>],
    block: &Block,
    mut state: FlowState,
    fault: &mut impl FnMut(usize, Reg),
) -> (Option<FlowState>, Option<(Label, FlowState)>) {
    for (place, stmt) in kernel.body[block.from..block.to].iter().enumerate() {
        let Stmt::Inst { guard, inst } = stmt else { continue };
        let place = block.from + place;
        // Never executed where its guard is known to be false.
        if guard.is_some_and(|g| state.facts.get(&g.reg) == Some(&g.negated)) {
            continue;
        }
        if let Some(g) = guard.filter(|g| !state.has(g.reg, std::iter::empty())) {
            fault(place, g.reg);
        }
        let operands = &operands[place];
        check_reads(&state, *guard, inst, operands, &mut |reg| fault(place, reg));
        let jump = match inst {
            Inst::Bra { to, .. } => Some(Some(*to)),
            Inst::Ret | Inst::Trap => Some(None),
            _ => None,
        };
        if let Some(to) = jump {
            let mut falls = guard.map(|_| state.clone());
            if let (Some(g), Some(falls)) = (guard, &mut falls) {
                falls.facts.insert(g.reg, g.negated);
                state.facts.insert(g.reg, !g.negated);
            }
            return (falls, to.map(|to| (to, state)));
        }
        for operand in operands.iter().filter(|o| o.role == Role::Write) {
            let Opnd::Reg(d) = operand.what else { continue };
            state.write(d, *guard);
        }
    }
    (Some(state), None)
}

fn check_reads(
    state: &FlowState,
    guard: Option<Guard>,
    inst: &Inst,
    operands: &[Operand],
    fault: &mut impl FnMut(Reg),
) {
    for operand in operands {
        let Opnd::Reg(reg) = operand.what else { continue };
        // A WGMMA starts with `add` false: selection guarantees it.
        let begins = matches!(inst, Inst::Wgmma { .. }) && operand.when.is_some();
        let guards = guard.into_iter().chain(operand.when);
        if operand.role == Role::Read && !begins && !state.has(reg, guards) {
            fault(reg);
        }
    }
}
