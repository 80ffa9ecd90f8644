//! What ranks share: a value that is the same on some ranks is computed once for them, into one memory.
//!
//! A value varies along axes of the mesh where ranks have blocks of their own, where it was computed from such a value or from the rank's
//! position, or under a condition that varies. All copies of a rank's program compute the same bits from the same operands, so ranks that agree
//! on their coordinates along these axes may share the value. A buffer has a *home*: the axes along which each coordinate has a copy of it. A step
//! whose results have homes that leave out some axis is done by one of the ranks that share them, when all of them have come to it: then
//! nobody reads any more what was in this memory before. Others wait for it.

use super::list::Command;
use tessera_graph::ops::collective::{Manual, MeshAxes};
use tessera_plan::{Collective, Origin, Plan, Together};

/// Axes of a mesh, as bits; those of one rank are left out.
pub type Mask = u64;

/// What is known of each buffer of the plan of a rank.
pub struct Shared {
    /// All axes that have several ranks.
    pub all: Mask,
    /// Along which its value varies between ranks.
    varies: Vec<Mask>,
    /// Along which each rank has memory of its own for it.
    pub homes: Vec<Mask>,
    /// Indices of loops: each rank counts for itself, and all count alike.
    indices: Vec<bool>,
}

/// The bits of axes.
pub fn mask(mesh: &MeshAxes, names: &[String]) -> Mask {
    let places = names.iter().filter_map(|name| mesh.place(name));
    places.filter(|&at| mesh.sizes[at] > 1).fold(0, |all, at| all | 1 << at)
}

/// The ranks that agree with one on the coordinates along these axes, in order.
pub fn sharers(mesh: &MeshAxes, rank: usize, along: Mask) -> Vec<usize> {
    let at = mesh.coords(rank);
    let agrees = |other: &usize| {
        let there = mesh.coords(*other);
        (0..at.len()).all(|axis| along >> axis & 1 == 0 || there[axis] == at[axis])
    };
    (0..mesh.count() as usize).filter(agrees).collect()
}

/// The buffers that a step reads and writes, and those of indices of loops in it.
fn touched(step: &Command, with: &mut dyn FnMut(usize, Use)) {
    match step {
        Command::Launch { launch, .. } => {
            for array in &launch.arrays {
                // What a launch leaves as it was it has read.
                with(array.buffer, if array.writes { Use::Write } else { Use::Read });
            }
        }
        Command::Host { inputs, outputs, .. } => {
            inputs.iter().for_each(|a| with(a.buffer, Use::Read));
            outputs.iter().for_each(|a| with(a.buffer, Use::Write));
        }
        Command::Call { args, .. } => {
            for (array, privilege) in args {
                with(array.buffer, if privilege.writes() { Use::Write } else { Use::Read });
            }
        }
        Command::Copy { from, to, .. } => {
            with(from.buffer, Use::Read);
            with(to.buffer, Use::Write);
        }
        // They have rules of their own.
        Command::Collective { .. } | Command::Record { .. } | Command::Wait { .. } => {}
        Command::If { pred, branches, .. } => {
            with(pred.buffer, Use::Read);
            branches.iter().flatten().for_each(|step| touched(step, with));
        }
        Command::While { test, pred, body, .. } => {
            with(pred.buffer, Use::Read);
            test.iter().chain(body).for_each(|step| touched(step, with));
        }
        Command::Loop { position, body, .. } => {
            with(position.buffer, Use::Index);
            body.iter().for_each(|step| touched(step, with));
        }
    }
}

#[derive(Copy, Clone, PartialEq, Eq)]
enum Use {
    Read,
    Write,
    Index,
}

impl Shared {
    /// Of the plan of a rank and its commands. Without `sharing` each rank has all for itself.
    pub fn of(
        manual: &Manual,
        positions: &[Vec<String>],
        plan: &Plan,
        steps: &[Command],
        sharing: bool,
    ) -> Self {
        let mesh = &manual.mesh;
        let all = mask(mesh, &mesh.names);
        let count = plan.buffers.len();
        let split = |split: &[Vec<String>]| split.iter().fold(0, |m, names| m | mask(mesh, names));
        let mut known = Self {
            all,
            varies: vec![0; count],
            homes: vec![0; count],
            indices: vec![false; count],
        };
        if !sharing {
            known.varies.fill(all);
            known.homes.fill(all);
            return known;
        }
        for step in steps {
            touched(step, &mut |buffer, how| known.indices[buffer] |= how == Use::Index);
        }
        for (at, buffer) in plan.buffers.iter().enumerate() {
            if let Origin::Argument(place) = buffer.origin {
                let places = place.checked_sub(manual.ins.len());
                known.varies[at] = match (manual.ins.get(place), places.map(|p| &positions[p])) {
                    (Some(of), _) => split(of),
                    (None, Some(axes)) => mask(mesh, axes),
                    (None, None) => all,
                };
            }
        }
        // Each rank writes its block of a result.
        for ((buffer, _), of) in plan.results.iter().zip(&manual.outs) {
            known.homes[*buffer] |= split(of);
        }
        while known.list(mesh, steps, 0) {}
        for (home, is_index) in known.homes.iter_mut().zip(&known.indices) {
            if *is_index {
                *home = all;
            }
        }
        known
    }

    /// The axes along which a step is done by each rank for itself, under a condition that varies along some.
    pub fn along(&self, step: &Command, under: Mask) -> Mask {
        let mut along = under;
        touched(step, &mut |buffer, how| {
            along |= match how {
                Use::Read => self.varies[buffer],
                // What it leaves as it was is as of the copy that it has.
                Use::Write => self.varies[buffer] | self.homes[buffer],
                Use::Index => 0,
            };
        });
        along
    }

    pub fn varies(&self, buffer: usize) -> Mask {
        self.varies[buffer]
    }

    /// What buffers have alike that may be parts of one: nothing is then computed by more ranks, or kept by more.
    pub fn alike(&self, buffer: usize) -> tessera_plan::Alike {
        (self.varies[buffer], self.homes[buffer])
    }

    fn widen(&mut self, buffer: usize, varies: Mask, home: Mask) -> bool {
        let before = (self.varies[buffer], self.homes[buffer]);
        self.varies[buffer] |= varies;
        self.homes[buffer] |= home;
        before != (self.varies[buffer], self.homes[buffer])
    }

    /// Whether anything became wider by the steps of a list.
    fn list(&mut self, mesh: &MeshAxes, steps: &[Command], under: Mask) -> bool {
        let mut is_new = false;
        for step in steps {
            is_new |= self.step(mesh, step, under);
        }
        is_new
    }

    fn step(&mut self, mesh: &MeshAxes, step: &Command, under: Mask) -> bool {
        let mut is_new = match step {
            Command::Collective { how, from, to } => {
                let (varies, home) = self.together(mesh, how, self.varies[from.buffer] | under);
                return self.widen(to.buffer, varies, home);
            }
            Command::If { pred, branches, .. } => {
                let under = under | self.varies[pred.buffer];
                branches.iter().fold(false, |any, branch| self.list(mesh, branch, under) | any)
            }
            Command::While { test, pred, body, .. } => {
                let under = under | self.varies[pred.buffer];
                self.list(mesh, test, under) | self.list(mesh, body, under)
            }
            Command::Loop { body, .. } => self.list(mesh, body, under),
            Command::Launch { .. }
            | Command::Host { .. }
            | Command::Call { .. }
            | Command::Copy { .. }
            | Command::Record { .. }
            | Command::Wait { .. } => false,
        };
        // With a collective inside, its steps are for themselves.
        if super::rank_code::is_for_ranks(step) {
            return is_new;
        }
        let home = self.along(step, under);
        let mut varies = under;
        touched(step, &mut |buffer, how| {
            if how != Use::Index {
                varies |= self.varies[buffer];
            }
        });
        let mut written = Vec::new();
        touched(step, &mut |buffer, how| {
            if how == Use::Write {
                written.push(buffer);
            }
        });
        for buffer in written {
            is_new |= self.widen(buffer, varies, home);
        }
        is_new
    }

    /// Along which axes the result of a collective varies, and along which each rank has its own memory. Ranks that share that memory are
    /// all members of one group: others would write it at another time.
    fn together(&self, mesh: &MeshAxes, how: &Collective, from: Mask) -> (Mask, Mask) {
        let over = mask(mesh, &how.axes.names);
        match how.kind {
            Together::AllReduce(_) | Together::AllGather { .. } | Together::FromRank { .. } => {
                (from & !over, self.all & !over)
            }
            Together::ReduceScatter { .. } | Together::AllToAll { .. } | Together::Permute(_) => {
                (from | over, self.all)
            }
        }
    }
}
