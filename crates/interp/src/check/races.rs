//! Wrong accesses to memory: races, divergent barriers, elements outside or never written.

use super::access::{Access, Touch, Touched, code, count, position};
use super::checker::Checker;
use super::group_shadow::GroupShadow;
use super::order_shadow::{Now, OrderShadow};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::program::Inst;
use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use tessera_diag::{Code, Diagnostic};

/// The help for locks.
const LOCK: &str = "take a lock with order=\"acquire\" and give it back with order=\"release\"; \
                    relaxed atomics order nothing else";

impl Checker {
    pub(super) fn bounds(
        &mut self,
        inst: &Inst,
        access: &Access<'_>,
        memory: &Memory,
        slot: usize,
        touched: &Touched,
    ) {
        let Some(outside) = touched.outside.as_ref().filter(|_| !access.other) else { return };
        let positions = inst.args.iter().skip(access.at).take(access.rank);
        if positions.into_iter().any(|a| self.plan.names_outside[a.slot]) {
            return;
        }
        let (name, who) = (self.name(slot), self.who(self.number, Some(outside.i)));
        self.findings.report((Code::E_OOB, inst.site, &inst.loc), outside.count, || {
            let (axis, p) = (outside.axis, outside.index[outside.axis]);
            let extent = memory.dims[axis];
            let does = if access.touch == Touch::Read { "reads" } else { "writes" };
            let found = Diagnostic::new(
                Code::E_OOB,
                format!(
                    "index {p} is outside `{name}`, which has {extent} elements along axis {axis}"
                ),
            )
            .note(format!("{who} {does} `{name}` at {:?}", outside.index));
            if access.touch == Touch::Read {
                found
                    .note("an element outside reads as zero")
                    .help("guard the access with a condition, or give `other=` for what outside is")
            } else {
                found
                    .note("an element outside is not written")
                    .help("guard the access with a condition, or use `mask=`")
            }
        });
    }

    /// Repeated positions in a store that promises there are none.
    pub(super) fn repeated(
        &mut self,
        inst: &Inst,
        memory: &Memory,
        slot: usize,
        touched: &Touched,
        reported: &mut BTreeSet<usize>,
    ) {
        let mut first = BTreeMap::new();
        let mut again = Vec::new();
        for spot in &touched.spots {
            match first.entry(spot.element) {
                Entry::Vacant(place) => _ = place.insert(spot.i),
                Entry::Occupied(place) => again.push((*place.get(), *spot)),
            }
        }
        let Some(&(before, spot)) = again.first() else { return };
        reported.extend(again.iter().map(|(_, s)| s.element));
        let (name, who) = (self.name(slot), self.who(self.number, None));
        let by_lane = self.by_lane();
        let place = (Code::E_RACE, inst.site, &inst.loc);
        self.findings.report(place, again.len() as u64, || {
            let at = position(&memory.dims, spot.element);
            Diagnostic::new(
                Code::E_RACE,
                format!(
                    "a store with `unique=True` writes element {at:?} of `{name}` more than once"
                ),
            )
            .note(match by_lane {
                true => format!("lanes {before} and {} of {who} write it", spot.i),
                false => {
                    format!("in {who}, positions {before} and {} of the index tile name it", spot.i)
                }
            })
            .note("which of the values stays is not specified")
            .help(match by_lane {
                true => "leave out `unique=True`, or let one lane write each element",
                false => "leave out `unique=True`, or mask all but one of the positions",
            })
        });
    }

    pub(super) fn initialised(
        &mut self,
        inst: &Inst,
        memory: &Memory,
        slot: usize,
        touched: &Touched,
    ) {
        let made = self.made.get(&slot);
        let written = |element: usize| match made {
            Some(made) => made.written[element],
            None => memory.is_written(element),
        };
        let mut unwritten = touched.spots.iter().filter(|s| !written(s.element));
        let Some(first) = unwritten.next() else { return };
        let many = 1 + unwritten.count() as u64;
        let (name, who) = (self.name(slot), self.who(self.number, Some(first.i)));
        self.findings.report((Code::E_UNINIT, inst.site, &inst.loc), many, || {
            let at = position(&memory.dims, first.element);
            Diagnostic::new(
                Code::E_UNINIT,
                format!("element {at:?} of `{name}` is read but was never written"),
            )
            .note(format!("{who} reads it; it is taken as zero"))
        });
    }

    /// A variable is read that no iteration of its loop assigned.
    pub(super) fn unset(&mut self, m: &Machine<'_>, inst: &Inst) {
        let first = match self.by_lane() {
            true => match m.mask.lanes().iter().position(|&on| on) {
                Some(first) => Some(first),
                None => return,
            },
            false => None,
        };
        let who = self.who(self.number, first);
        self.findings.report((Code::E_UNINIT, inst.site, &inst.loc), 1, || {
            Diagnostic::new(
                Code::E_UNINIT,
                "a loop's variable is read, and the loop had no iteration".to_string(),
            )
            .note(format!("{who} reads it; it is taken as zero"))
            .help("give it a value before the loop")
        });
    }

    /// Elements of arrays allocated for the launch that it has not written when it ends.
    pub fn left_out(&mut self) {
        for (slot, made) in std::mem::take(&mut self.made) {
            let mut left = (0..made.written.len()).filter(|&e| !made.written[e]);
            let Some(first) = left.next() else { continue };
            let (many, name) = (1 + left.count() as u64, self.name(slot));
            // An index beyond those of the ops.
            let site = self.plan.sites.len() + slot;
            self.findings.report((Code::E_UNINIT, site, &made.loc), 1, || {
                let at = position(&made.dims, first);
                let of = made.written.len();
                Diagnostic::new(
                    Code::E_UNINIT,
                    format!("element {at:?} of `{name}` is returned but was never written"),
                )
                .note(format!("{many} of its {of} elements are not written by the launch; they are zero"))
                .help(format!(
                    "store to every element, or pass an array for `{name}` that holds what the others shall be"
                ))
            });
        }
    }

    pub(super) fn between_groups<'v>(
        &mut self,
        inst: &Inst,
        touch: Touch,
        memory: &Memory,
        slot: usize,
        (touched, reported): (&Touched, &BTreeSet<usize>),
        codes: impl Fn() -> &'v [u8],
    ) {
        let plan = self.plan.clone();
        let (number, width, by_lane) = (self.number, memory.dtype.bytes(), self.by_lane());
        let shadow =
            self.shadows[slot].get_or_insert_with(|| GroupShadow::new(count(&memory.dims)));
        let mut conflicts = Vec::new();
        for spot in &touched.spots {
            let earlier = if touch == Touch::Read {
                shadow.read(spot.element, number, inst.site)
            } else {
                // Lanes may store one and the same value (LANGUAGE 7); groups own what they write.
                let harmless = || {
                    let own = codes().get(spot.i * width..(spot.i + 1) * width);
                    by_lane && own.is_some() && own == code(memory, spot.element)
                };
                let as_what = |site: usize| plan.sites[site].writes;
                shadow.write(spot.element, number, inst.site, as_what, harmless)
            };
            let new = earlier.filter(|_| !reported.contains(&spot.element));
            conflicts.extend(new.map(|e| (*spot, e)));
        }
        let Some(&(spot, earlier)) = conflicts.first() else { return };
        let (name, me) = (self.name(slot), self.who(number, None));
        let other = self.who(earlier.group, None);
        let place = (Code::E_RACE, inst.site, &inst.loc);
        self.findings.report(place, conflicts.len() as u64, || {
            let at = position(&memory.dims, spot.element);
            let (does, did) = (verb(touch), if earlier.wrote { "written" } else { "read" });
            let found = Diagnostic::new(
                Code::E_RACE,
                format!("{me} {does} element {at:?} of `{name}`, which {other} has {did}"),
            )
            .label(plan.sites[earlier.site].loc.clone(), format!("{did} here by {other}"))
            .note("groups run in no order");
            match touch {
                Touch::Update => found.help(format!(
                    "if every group shall add to it, declare `{name}: ts.Region[ts.reduce_sum]`"
                )),
                _ if plan.locks => found.help(LOCK),
                _ => found.help("let each element be written by one group, and read by no other"),
            }
        });
    }

    pub(super) fn between_lanes<'v>(
        &mut self,
        inst: &Inst,
        touch: Touch,
        memory: &Memory,
        slot: usize,
        (touched, reported): (&Touched, &BTreeSet<usize>),
        codes: impl Fn() -> &'v [u8],
    ) {
        let plan = self.plan.clone();
        let (width, elements) = (memory.dtype.bytes(), count(&memory.dims));
        let own = |i: usize| codes().get(i * width..(i + 1) * width);
        let mut conflicts = Vec::new();
        for spot in &touched.spots {
            let at = (slot, elements, spot.element);
            let earlier = if touch == Touch::Read {
                self.lanes.read(at, spot.i, inst.site)
            } else {
                let as_what = |site: usize| plan.sites[site].writes;
                self.lanes.write(at, spot.i, inst.site, as_what, |e| {
                    let left = if e.together { own(e.lane) } else { code(memory, spot.element) };
                    left.is_some() && own(spot.i) == left
                })
            };
            let new = earlier.filter(|_| !reported.contains(&spot.element));
            conflicts.extend(new.map(|e| (*spot, e)));
        }
        let Some(&(spot, earlier)) = conflicts.first() else { return };
        let (name, me) = (self.name(slot), self.who(self.number, Some(spot.i)));
        let place = (Code::E_RACE, inst.site, &inst.loc);
        self.findings.report(place, conflicts.len() as u64, || {
            let at = position(&memory.dims, spot.element);
            let (does, did) = (verb(touch), if earlier.wrote { "written" } else { "read" });
            let (lane, loc) = (earlier.lane, plan.sites[earlier.site].loc.clone());
            let found = Diagnostic::new(
                Code::E_RACE,
                format!(
                    "{me} {does} element {at:?} of `{name}`, which lane {lane} has {did} with no \
                     barrier between"
                ),
            )
            .label(loc, format!("{did} here by lane {lane}"));
            if earlier.site == inst.site && earlier.together {
                found.help("let each element be written by one lane, or use an atomic operation")
            } else {
                found.help(
                    "call `ts.tile.barrier()` between the two; where lanes do not synchronise, read and write it by atomic \
                     operations alone: `ts.tile.atomic_or(x[i], 0)` reads",
                )
            }
        });
    }

    /// The same for a kernel that orders memory itself: between groups, and between lanes.
    pub(super) fn in_order<'v>(
        &mut self,
        inst: &Inst,
        touch: Touch,
        memory: &Memory,
        slot: usize,
        (touched, reported): (&Touched, &BTreeSet<usize>),
        codes: impl Fn() -> &'v [u8],
    ) {
        let plan = self.plan.clone();
        let (bytes, by_lane, op) = (memory.dtype.bytes(), self.by_lane(), self.lanes.now());
        let Some(order) = &mut self.order else { return };
        let shadow = self.ordered[slot].get_or_insert_with(OrderShadow::default);
        let own = |i: usize| codes().get(i * bytes..(i + 1) * bytes);
        let first = order.agent(0);
        let mut conflicts = Vec::new();
        for spot in &touched.spots {
            let lane = if by_lane { spot.i } else { 0 };
            let now = Now { order, lane, site: inst.site, op };
            let earlier = if touch == Touch::Read {
                shadow.read(spot.element, now)
            } else {
                let as_what = |site: usize| plan.sites[site].writes;
                shadow.write(spot.element, now, as_what, |e| {
                    let together = e.op == op && e.agent >= first;
                    let left = match together {
                        true => own((e.agent - first) as usize),
                        false => code(memory, spot.element),
                    };
                    by_lane && left.is_some() && own(spot.i) == left
                })
            };
            let new = earlier.filter(|_| !reported.contains(&spot.element));
            conflicts.extend(new.map(|e| (*spot, e)));
        }
        if touch == Touch::Write {
            touched.spots.iter().for_each(|s| order.overwritten(slot, s.element));
        }
        let Some(&(spot, earlier)) = conflicts.first() else { return };
        let (name, me) = (self.name(slot), self.who(self.number, Some(spot.i)));
        let width = self.width as u64;
        let (group, lane) = (earlier.agent / width + 1, (earlier.agent % width) as usize);
        let other = self.who(u32::try_from(group).unwrap_or(u32::MAX), Some(lane));
        let place = (Code::E_RACE, inst.site, &inst.loc);
        self.findings.report(place, conflicts.len() as u64, || {
            let at = position(&memory.dims, spot.element);
            let (does, did) = (verb(touch), if earlier.wrote { "written" } else { "read" });
            Diagnostic::new(
                Code::E_RACE,
                format!("{me} {does} element {at:?} of `{name}`, which {other} has {did}"),
            )
            .label(plan.sites[earlier.site].loc.clone(), format!("{did} here by {other}"))
            .note(
                "nothing orders the two: a release after the first, and an acquire of the same \
                 element before the second, would",
            )
            .help(LOCK)
        });
    }

    pub(super) fn meeting(&mut self, m: &Machine<'_>, inst: &Inst) {
        if m.mask != m.present {
            let (here, there) = (m.mask.lanes(), m.present.lanes());
            let came = here.iter().position(|&h| h).unwrap_or(0);
            let missing = here.iter().zip(there).position(|(h, t)| h != t).unwrap_or(0);
            let (who, group) = (self.who(self.number, Some(missing)), self.who(self.number, None));
            self.findings.report((Code::E_DIVERGENT_BARRIER, inst.site, &inst.loc), 1, || {
                Diagnostic::new(
                    Code::E_DIVERGENT_BARRIER,
                    "a barrier was reached by some lanes of the group and not by others",
                )
                .note(format!("in {group} lane {came} reaches it, {who} does not"))
                .help("move the barrier out of the branch or loop that only some lanes take")
            });
        }
        self.lanes.barrier();
        if let Some(order) = &mut self.order {
            order.barrier();
        }
    }
}

pub(super) fn verb(touch: Touch) -> &'static str {
    match touch {
        Touch::Read => "reads",
        Touch::Write => "writes",
        Touch::Update | Touch::Fold(_) => "adds to",
        Touch::Atomic => "updates",
        Touch::Own => "owns",
    }
}
