//! What a kernel says its groups own (`ts.tile.owned`, `unique=True`), held against what they touch.

use super::access::{Touch, Touched, position};
use super::checker::Checker;
use super::races::verb;
use crate::memory::Memory;
use crate::program::{Action, Inst};
use std::collections::BTreeSet;
use tessera_diag::{Code, Diagnostic};

/// An element that a group owns.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Claim {
    pub group: u32,
    pub site: usize,
    /// Others do not read it either.
    pub alone: bool,
}

/// The last accesses of an element. Groups run one after another: the last of the present group, and
/// the last of another before it, are enough.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Last {
    read: Pair,
    write: Pair,
}

/// Groups from 1, each with the op: the last one, and the last that is another.
#[derive(Copy, Clone, Debug, Default)]
struct Pair {
    last: Option<(u32, usize)>,
    other: Option<(u32, usize)>,
}

impl Pair {
    fn note(&mut self, group: u32, site: usize) {
        if self.last.is_some_and(|(before, _)| before != group) {
            self.other = self.last;
        }
        self.last = Some((group, site));
    }

    fn of_another(&self, group: u32) -> Option<(u32, usize)> {
        self.last.filter(|&(before, _)| before != group).or(self.other)
    }
}

impl Last {
    /// An access of another group, and whether it wrote: any, or a write.
    fn of_another(&self, group: u32, any: bool) -> Option<(u32, usize, bool)> {
        let wrote = self.write.of_another(group).map(|(g, site)| (g, site, true));
        let read = || self.read.of_another(group).filter(|_| any).map(|(g, site)| (g, site, false));
        wrote.or_else(read)
    }
}

impl Checker {
    /// An access to what another group owns, or a claim of what another has touched: where the kernel
    /// orders memory itself, an access before the claim may be in order.
    pub(super) fn ownership(
        &mut self,
        inst: &Inst,
        touch: Touch,
        memory: &Memory,
        slot: usize,
        touched: &Touched,
        reported: &mut BTreeSet<usize>,
    ) {
        let (group, site) = (self.number, inst.site);
        let unique = matches!(
            inst.action,
            Action::Store { unique: true, .. } | Action::Scatter { unique: true, .. }
        );
        let (own, reads) = (touch == Touch::Own, touch == Touch::Read);
        let mut broken = Vec::new();
        for spot in &touched.spots {
            let at = (slot, spot.element);
            if let Some(claim) = self.claims.get(&at)
                && claim.group != group
                && (claim.alone || !reads)
                && reported.insert(spot.element)
            {
                broken.push((spot.element, claim.group, claim.site, None));
            }
            let last = self.touches.entry(at).or_default();
            // An element is reported once, whichever promise about it is broken.
            let new = !reported.contains(&spot.element);
            if ((own && self.order.is_none()) || unique)
                && let Some((g, s, wrote)) = last.of_another(group, own).filter(|_| new)
            {
                broken.push((spot.element, g, s, Some(wrote)));
                reported.insert(spot.element);
            }
            if own || unique {
                let claim = Claim { group, site, alone: own };
                let held = self.claims.entry(at).or_insert(claim);
                held.alone |= own && held.group == group;
            }
            match () {
                () if own => {}
                () if reads => last.read.note(group, site),
                () => last.write.note(group, site),
            }
        }
        let Some(&(element, other, before, earlier)) = broken.first() else { return };
        let (name, me, plan) = (self.name(slot), self.who(group, None), self.plan.clone());
        let other = self.who(other, None);
        self.findings.report((Code::E_RACE, site, &inst.loc), broken.len() as u64, || {
            let at = position(&memory.dims, element);
            let loc = plan.sites[before].loc.clone();
            let does = if own { "owns" } else { verb(touch) };
            let (has, label) = match earlier {
                None if plan.sites[before].writes == Touch::Own => ("owns", "owned"),
                None => ("stores with `unique=True`", "stored"),
                Some(true) => ("has written", "written"),
                Some(false) => ("has read", "read"),
            };
            let found = Diagnostic::new(
                Code::E_RACE,
                format!("{me} {does} element {at:?} of `{name}`, which {other} {has}"),
            )
            .label(loc, format!("{label} here by {other}"));
            match unique || label == "stored" {
                true => found.help("leave out `unique=True`, or let one group write each element"),
                false => found.help(
                    "leave out `ts.tile.owned`, or let no other group touch the block: neither before nor after",
                ),
            }
        });
    }
}
