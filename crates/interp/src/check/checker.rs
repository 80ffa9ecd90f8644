//! The checker of one launch: its work before and after each op.

use super::access::{Access, Spot, Touch, Touched, accesses, contents, count, position, touched};
use super::check_plan::CheckPlan;
use super::claims::{Claim, Last};
use super::findings::Findings;
use super::group_shadow::GroupShadow;
use super::lane_shadow::LaneShadow;
use super::order::{Agent, Order};
use super::order_shadow::OrderShadow;
use super::origins::{Birth, Origins};
use crate::lanes::Mask;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::program::{Action, Change, Inst};
use crate::value::{Data, Tile};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tessera_diag::Loc;
use tessera_tile::KernelKind;

pub(crate) struct Checker {
    pub(super) plan: Arc<CheckPlan>,
    pub findings: Findings,
    grid: [i64; 3],
    group: Option<[i64; 3]>,
    /// The group's index in launch order, from 1.
    pub(super) number: u32,
    /// By slot, of arguments that are written.
    pub(super) shadows: Vec<Option<GroupShadow>>,
    /// What groups said they own, of arguments.
    pub(super) claims: BTreeMap<(usize, usize), Claim>,
    /// The last groups that wrote an element, or touched it, where groups own any.
    pub(super) touches: BTreeMap<(usize, usize), Last>,
    pub(super) lanes: LaneShadow,
    /// Present in kernels that order memory themselves; it replaces both shadows.
    pub(super) order: Option<Order>,
    pub(super) ordered: Vec<Option<OrderShadow>>,
    pub(super) width: usize,
    pub(super) origins: Origins,
    /// Arrays that are uninitialised when the launch begins, by slot.
    pub made: BTreeMap<usize, Made>,
}

/// An array that was allocated for the launch: which of its elements were written.
pub(crate) struct Made {
    pub dims: Vec<i64>,
    pub loc: Loc,
    pub written: Vec<bool>,
}

impl Made {
    pub fn new(dims: &[i64], loc: &Loc) -> Self {
        Self { dims: dims.to_vec(), loc: loc.clone(), written: vec![false; count(dims)] }
    }
}

/// The state of an op that is needed after it has run.
#[derive(Default)]
pub(crate) struct Seen {
    /// The operands, where all of them are values.
    operands: Option<Vec<Tile>>,
    /// What was touched in the op's first memory.
    touched: Touched,
    /// The old values of the touched elements, where the op folds floats into them; and the value.
    old: Option<(Data, Tile)>,
    /// What a compare-and-exchange expects.
    expected: Option<Tile>,
}

impl Checker {
    pub fn new(plan: Arc<CheckPlan>, limit: usize) -> Self {
        let slots = plan.memory.len();
        Self {
            order: plan.orders.then(Order::default),
            ordered: (0..slots).map(|_| None).collect(),
            width: 1,
            made: BTreeMap::new(),
            plan,
            findings: Findings::new(limit),
            grid: [1; 3],
            group: None,
            number: 0,
            shadows: (0..slots).map(|_| None).collect(),
            claims: BTreeMap::new(),
            touches: BTreeMap::new(),
            lanes: LaneShadow::default(),
            origins: Origins::default(),
        }
    }

    pub(super) fn by_lane(&self) -> bool {
        self.plan.kind == KernelKind::Lane
    }

    fn enter(&mut self, m: &Machine<'_>) {
        if self.group == Some(m.group) {
            return;
        }
        (self.grid, self.group) = (m.grid, Some(m.group));
        let linear = (m.group[0] * m.grid[1] + m.group[1]) * m.grid[2] + m.group[2];
        self.number = u32::try_from(linear + 1).unwrap_or(u32::MAX);
        self.lanes.next_group();
        self.origins.next_group();
        self.width = m.width;
        if let Some(order) = &mut self.order {
            order.next_group(linear as Agent * m.width as Agent, m.width);
        }
    }

    pub fn before(&mut self, m: &Machine<'_>, inst: &Inst) -> Seen {
        self.enter(m);
        let mut seen = Seen::default();
        if matches!(inst.action, Action::Barrier) {
            self.meeting(m, inst);
            return seen;
        }
        let plan = self.plan.clone();
        if plan.sites[inst.site].unset {
            self.unset(m, inst);
        }
        let list = accesses(inst, plan.kind, &plan.memory);
        if list.is_empty() {
            seen.operands = (0..inst.args.len()).map(|i| m.value(inst, i).ok().cloned()).collect();
            return seen;
        }
        self.lanes.next_op();
        for access in &list {
            let (Ok(memory), Some(arg)) =
                (m.memory(inst, access.memory), inst.args.get(access.memory))
            else {
                continue;
            };
            let Some(place) = &plan.memory[arg.slot] else { continue };
            let made = self.made.contains_key(&arg.slot);
            let want = place.written || memory.dtype.is_int() || made || plan.claims;
            let guard = plan.sites[inst.site].guard.filter(|_| access.touch == Touch::Read);
            let Some(touched) = touched(m, inst, access, guard, want) else { continue };
            self.look(m, inst, access, memory, arg.slot, &touched);
            if access.memory == 0 {
                let folds = !matches!(access.touch, Touch::Read | Touch::Write | Touch::Own);
                if folds && memory.dtype.is_float() {
                    let value = access.value.and_then(|i| m.value(inst, i).ok());
                    seen.old = value.map(|v| (contents(memory, &touched.spots), v.clone()));
                }
                if let Action::Atomic { rank, change: Change::CompareExchange, .. } = inst.action {
                    seen.expected = m.value(inst, 2 + rank).ok().cloned();
                }
                seen.touched = touched;
            }
        }
        seen
    }

    fn look(
        &mut self,
        m: &Machine<'_>,
        inst: &Inst,
        access: &Access<'_>,
        memory: &Memory,
        slot: usize,
        touched: &Touched,
    ) {
        self.bounds(inst, access, memory, slot, touched);
        // Elements of which a broken promise was reported: not once more as a race.
        let mut reported = BTreeSet::new();
        let unique = match inst.action {
            Action::Scatter { unique, .. } => unique,
            Action::Store { unique, .. } => unique && self.by_lane(),
            _ => false,
        };
        if unique {
            self.repeated(inst, memory, slot, touched, &mut reported);
        }
        if self.plan.claims && !memory.is_buffer() {
            self.ownership(inst, access.touch, memory, slot, touched, &mut reported);
        }
        if access.touch == Touch::Own {
            return;
        }
        if access.touch != Touch::Write {
            self.initialised(inst, memory, slot, touched);
        }
        if let Some(made) = self.made.get_mut(&slot).filter(|_| access.touch != Touch::Read) {
            touched.spots.iter().for_each(|s| made.written[s.element] = true);
        }
        let value = access.value.and_then(|i| m.value(inst, i).ok());
        let codes = OnceCell::new();
        let codes = || match value {
            Some(v) => &codes.get_or_init(|| v.encode(memory.dtype))[..],
            None => &[],
        };
        let written = self.plan.memory[slot].as_ref().is_some_and(|p| p.written);
        if self.order.is_some() {
            if written && (self.by_lane() || !memory.is_buffer()) {
                self.in_order(inst, access.touch, memory, slot, (touched, &reported), codes);
            }
        } else if !memory.is_buffer() && written {
            self.between_groups(inst, access.touch, memory, slot, (touched, &reported), codes);
        }
        if self.by_lane() && written && self.order.is_none() {
            self.between_lanes(inst, access.touch, memory, slot, (touched, &reported), codes);
        }
        if access.touch == Touch::Write {
            let marks = value.and_then(|v| self.origins.of(v)).map(<[u64]>::to_vec);
            let mark = |s: &Spot| marks.as_ref().and_then(|m| m.get(s.i)).copied().unwrap_or(0);
            if memory.is_buffer() {
                let marks = touched.spots.iter().map(|s| (s.element, mark(s)));
                self.origins.write(slot, count(&memory.dims), marks);
            } else if marks.is_some() {
                for spot in &touched.spots {
                    if let Some(birth) = Birth::of(mark(spot)) {
                        self.born(inst, birth, memory, slot, spot);
                    }
                }
            }
        }
    }

    pub fn after(&mut self, m: &mut Machine<'_>, inst: &Inst, seen: Seen, result: Option<&Tile>) {
        self.synchronised(inst, &seen, result);
        if let (Action::BufAlloc { .. }, Some(&slot)) = (&inst.action, inst.results.first()) {
            self.lanes.forget(slot);
            self.ordered[slot] = None;
            if let Some(order) = &mut self.order {
                order.forget(slot);
            }
            self.origins.forget_buffer(slot);
            m.tolerate_unwritten(slot);
        } else if let (Some((old, value)), Some(arg)) = (&seen.old, inst.args.first()) {
            if let Ok(memory) = m.memory(inst, 0) {
                self.folded(inst, memory, arg.slot, &seen.touched, old, value);
            }
        } else if let (Some(operands), Some(result)) = (&seen.operands, result) {
            let active = |i: usize| self.plan.kind == KernelKind::Group || is_active(&m.mask, i);
            self.origins.trace((&inst.action, inst.site), operands, result, active);
            self.arithmetic(m, inst, operands, result);
        } else if let (Some(result), Some(arg)) = (result, inst.args.first()) {
            self.loaded(m, inst, arg.slot, &seen.touched, result);
        }
    }

    /// Merges the clocks of releases where an atomic acquires, and publishes where it releases.
    fn synchronised(&mut self, inst: &Inst, seen: &Seen, result: Option<&Tile>) {
        let (Some(order), Some(result), Some(arg)) = (&mut self.order, result, inst.args.first())
        else {
            return;
        };
        let Action::Atomic { dtype, wide, acquire, release, .. } = inst.action else { return };
        let expected = seen.expected.as_ref().map(|e| e.encode(dtype));
        let (old, width) = (result.encode(dtype), dtype.bytes());
        for spot in &seen.touched.spots {
            let (at, range) = ((arg.slot, spot.element), spot.i * width..(spot.i + 1) * width);
            let lane = if self.plan.kind == KernelKind::Lane { spot.i } else { 0 };
            if acquire {
                order.acquire(lane, at, wide);
            }
            // A compare-and-exchange that fails writes nothing.
            let wrote = expected.as_ref().is_none_or(|e| e.get(range.clone()) == old.get(range));
            if release && wrote {
                order.release(lane, at, wide);
            }
        }
    }

    /// Merges the marks of values that were merged under a mask.
    pub fn merged(&mut self, mask: &Mask, new: &Tile, old: &Tile, out: &Tile) {
        let (a, b) = (self.origins.of(new), self.origins.of(old));
        if a.is_none() && b.is_none() {
            return;
        }
        let pick = |(i, &m): (usize, &bool)| {
            (if m { a } else { b }).and_then(|marks| marks.get(i)).copied().unwrap_or(0)
        };
        let marks = mask.lanes().iter().enumerate().map(pick).collect();
        self.origins.put(out, marks);
    }

    pub(super) fn name(&self, slot: usize) -> String {
        self.plan.memory[slot].as_ref().map_or_else(String::new, |p| p.name.clone())
    }

    /// A group by its coordinates, and in a lane kernel the lane.
    pub(super) fn who(&self, number: u32, lane: Option<usize>) -> String {
        let at = position(&self.grid, number.saturating_sub(1) as usize);
        let axes = 1 + self.grid.iter().rposition(|&n| n > 1).unwrap_or(0);
        let group = match &at[..axes] {
            [one] => format!("group {one}"),
            several => {
                let list: Vec<_> = several.iter().map(i64::to_string).collect();
                format!("group ({})", list.join(", "))
            }
        };
        match lane.filter(|_| self.by_lane()) {
            Some(lane) => format!("lane {lane} of {group}"),
            None => group,
        }
    }

    /// An element of an op's result, in words.
    pub(super) fn element_of(&self, inst: &Inst, i: usize) -> String {
        let who = self.who(self.number, Some(i));
        match inst.results.first().map(|&r| &self.plan.shapes[r]) {
            Some(shape) if !shape.is_empty() => {
                format!("element {:?} of {who}", position(shape, i))
            }
            _ => who,
        }
    }
}

pub(super) fn is_active(mask: &Mask, i: usize) -> bool {
    mask.lanes().get(i).is_none_or(|&m| m)
}
