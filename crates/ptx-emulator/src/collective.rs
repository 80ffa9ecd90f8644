//! Warp-collective instructions: shuffles, votes, `redux`, `elect`, `bar.warp.sync`.

use super::exec::Flow;
use super::fault::{FaultKind, Res, Trouble};
use super::machine::Machine;
use super::program::{Shuffle, Slot};
use super::warp::{Warp, lanes, name_lanes};
use tessera_ptx::inst::{AtomOp, Shfl, Vote};

impl Machine<'_> {
    /// The groups of lanes that synchronise at an instruction: those whose masks name the same
    /// lanes. None if a named lane is not here yet.
    fn converge(&self, w: &Warp, here: u32, named: Slot) -> Res<Option<Vec<u32>>> {
        let mut groups: Vec<u32> = Vec::new();
        let mut rest = here;
        while rest != 0 {
            let first = rest.trailing_zeros() as usize;
            let mask = w.get(named, first) as u32;
            let group = lanes(rest)
                .filter(|l| w.get(named, *l) as u32 == mask)
                .fold(0, |m, l| m | 1u32 << l);
            if group & !mask != 0 {
                let text = format!(
                    "lanes {} execute it with a mask that does not name them: {mask:#010x}",
                    name_lanes(group & !mask)
                );
                return Err(Trouble::new(FaultKind::Divergent, text).lane(first));
            }
            if mask & w.alive != group {
                return Ok(None);
            }
            groups.push(group);
            rest &= !group;
        }
        Ok(Some(groups))
    }

    pub(super) fn shuffle(&mut self, w: &mut Warp, here: u32, s: &Shuffle) -> Res<Flow> {
        let Some(groups) = self.converge(w, here, s.mask)? else { return Ok(Flow::Park) };
        let mut values = [0; 32];
        let mut inside = 0;
        for group in groups {
            for lane in lanes(group) {
                let (b, c) = (w.get(s.b, lane) as u32, w.get(s.c, lane) as u32);
                let (from, ok) = source(s.kind, lane as u32, b, c);
                if group >> from & 1 == 0 {
                    let text = format!("lane {lane} reads lane {from}, which does not take part");
                    return Err(Trouble::new(FaultKind::Divergent, text).lane(lane));
                }
                values[lane] = w.get(s.a, from as usize);
                inside |= (ok as u32) << lane;
            }
        }
        lanes(here).for_each(|lane| w.set(s.d, lane, values[lane]));
        if let Some(p) = s.ok {
            w.set_pred(p, here, inside);
        }
        Ok(Flow::Next)
    }

    pub(super) fn vote(
        &mut self,
        w: &mut Warp,
        here: u32,
        kind: Vote,
        d: Slot,
        (p, negated): (u32, bool),
        named: Slot,
    ) -> Res<Flow> {
        let Some(groups) = self.converge(w, here, named)? else { return Ok(Flow::Park) };
        let yes = if negated { !w.preds[p as usize] } else { w.preds[p as usize] };
        for group in groups {
            let votes = yes & group;
            let answer = match kind {
                Vote::Any => (votes != 0) as u32,
                Vote::All => (votes == group) as u32,
                Vote::Uni => (votes == 0 || votes == group) as u32,
                Vote::Ballot => votes,
            };
            lanes(group).for_each(|lane| w.set(d, lane, answer as u64));
        }
        Ok(Flow::Next)
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn redux(
        &mut self,
        w: &mut Warp,
        here: u32,
        op: AtomOp,
        signed: bool,
        d: Slot,
        a: Slot,
        named: Slot,
    ) -> Res<Flow> {
        let Some(groups) = self.converge(w, here, named)? else { return Ok(Flow::Park) };
        for group in groups {
            let words = lanes(group).map(|lane| w.get(a, lane) as u32);
            let whole = words.reduce(|x, y| match op {
                AtomOp::Min if signed => (x as i32).min(y as i32) as u32,
                AtomOp::Max if signed => (x as i32).max(y as i32) as u32,
                AtomOp::Min => x.min(y),
                AtomOp::Max => x.max(y),
                AtomOp::And => x & y,
                AtomOp::Or => x | y,
                AtomOp::Xor => x ^ y,
                _ => x.wrapping_add(y),
            });
            let whole = whole.unwrap_or(0) as u64;
            lanes(group).for_each(|lane| w.set(d, lane, whole));
        }
        Ok(Flow::Next)
    }

    /// True in one lane. Which one the ISA leaves open; here it is the lowest.
    pub(super) fn elect(&mut self, w: &mut Warp, here: u32, p: u32, named: Slot) -> Res<Flow> {
        let Some(groups) = self.converge(w, here, named)? else { return Ok(Flow::Park) };
        for group in groups {
            w.set_pred(p, group, group & group.wrapping_neg());
        }
        Ok(Flow::Next)
    }

    pub(super) fn warp_sync(&mut self, w: &mut Warp, here: u32, named: Slot) -> Res<Flow> {
        let Some(groups) = self.converge(w, here, named)? else { return Ok(Flow::Park) };
        let me = self.number(w);
        // Partial warps are not tracked, so only a barrier of the whole warp orders accesses.
        if groups == [w.alive]
            && let Some(races) = &mut self.races
        {
            races.tick(me);
        }
        Ok(Flow::Next)
    }
}

/// The lane that a shuffle reads, and whether it is inside its segment.
fn source(kind: Shfl, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (b, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let max = lane & segment | clamp & !segment;
    let min = lane & segment;
    let (j, ok) = match kind {
        Shfl::Up => (lane.wrapping_sub(b), lane as i32 - b as i32 >= max as i32),
        Shfl::Down => (lane + b, lane + b <= max),
        Shfl::Bfly => (lane ^ b, (lane ^ b) <= max),
        Shfl::Idx => (min | b & !segment, (min | b & !segment) <= max),
    };
    if ok { (j, true) } else { (lane, false) }
}
