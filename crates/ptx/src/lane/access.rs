//! Loads, stores and folds of the lanes of a thread: one access where all lanes share an element or
//! are contiguous, else one for each lane.

use super::memory::{Memory, Pos};
use super::{Lanes, Repr};
use crate::atomic::Fold;
use crate::inst::*;
use tessera_diag::{Code as ErrorCode, Diagnostic, Diagnostics};
use tessera_ir::{Attr, OpId, Type, Value};
use tessera_numerics::{DType, Profile, ReduceOp};
use tessera_tile::attrs::checked_axes;

/// The access of one op.
pub struct Access {
    pub mem: Memory,
    pub at: Vec<Pos>,
    /// Axes whose positions must be checked against the extents.
    pub checked: Vec<bool>,
    /// Contiguous elements of one access.
    count: usize,
}

/// No lane is active.
struct Nothing;

impl Access {
    /// Whether all lanes access one element.
    pub fn is_one(&self) -> bool {
        self.at.iter().all(|p| matches!(p, Pos::One(_)))
    }
}

impl Lanes<'_> {
    pub fn access(&mut self, id: OpId) -> Access {
        let op = &self.func.ops[id];
        let mem = self.memory(op.operands[0]);
        let at: Vec<Pos> = op.group("at").to_vec().iter().map(|&v| self.position(v)).collect();
        let mut checked = checked_axes(op, mem.rank());
        for (axis, checked) in checked.iter_mut().enumerate() {
            *checked &= !self.survey.inside.contains(&(id, axis));
        }
        let count = self.survey.wide.get(&id).map_or(1, |&(_, count)| count);
        Access { mem, at, checked, count }
    }

    fn position(&mut self, v: Value) -> Pos {
        match self.repr(v).clone() {
            Repr::One(r) => Pos::One(r),
            Repr::Steps(s) => Pos::Steps(s),
            _ => Pos::Each(self.each(v)),
        }
    }

    /// Whether the access is inside along the axes where all lanes have one position.
    fn inside_together(&mut self, a: &Access) -> Option<Reg> {
        let mut all = None;
        for axis in (0..a.at.len()).filter(|&axis| a.checked[axis]) {
            if let Pos::One(p) = a.at[axis] {
                let inside = self.is_inside(p, a.mem.extents[axis]);
                all = self.both(all, Some(inside));
            }
        }
        all
    }

    /// Whether each lane is inside along the other axes; none where that is not checked.
    fn inside_apart(&mut self, a: &Access) -> Option<Vec<Reg>> {
        let mut all: Option<Vec<Reg>> = None;
        for axis in (0..a.at.len()).filter(|&axis| a.checked[axis]) {
            let lanes = match &a.at[axis] {
                Pos::One(_) => continue,
                Pos::Steps(s) => self.spread(*s),
                Pos::Each(regs) => regs.clone(),
            };
            let extent = a.mem.extents[axis];
            let inside: Vec<Reg> = lanes.into_iter().map(|p| self.is_inside(p, extent)).collect();
            all = self.both_each(all, Some(inside));
        }
        all
    }

    pub fn both_each(&mut self, a: Option<Vec<Reg>>, b: Option<Vec<Reg>>) -> Option<Vec<Reg>> {
        match (a, b) {
            (Some(a), Some(b)) => Some(a.into_iter().zip(b).map(|(x, y)| self.and(x, y)).collect()),
            (a, b) => a.or(b),
        }
    }

    /// The condition of each lane's access: it is inside and active. For several lanes the first
    /// condition is the one they share.
    pub fn conditions(
        &mut self,
        a: &Access,
        own: Option<Vec<Reg>>,
    ) -> (Option<Reg>, Option<Vec<Reg>>) {
        let shared = self.inside_together(a);
        let apart = self.inside_apart(a);
        let apart = self.both_each(apart, own);
        let apart = self.both_each(apart, self.guard.clone());
        match apart {
            Some(apart) if self.width == 1 => (self.both(shared, Some(apart[0])), None),
            apart => (shared, apart),
        }
    }

    fn every(&mut self, lanes: &[Reg]) -> Option<Reg> {
        lanes.iter().copied().reduce(|a, b| self.and(a, b))
    }

    fn some(&mut self, lanes: &[Reg]) -> Option<Reg> {
        lanes.iter().copied().reduce(|a, b| self.or(a, b))
    }

    pub fn load(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let result = op.result();
        let mut a = self.access(id);
        let other = op.group("other").first().map(|&v| self.repr(v).clone());
        if self.width > 1 && self.guard.is_some() {
            // The access is done whether or not a lane is active, so what is known where it is
            // active is not enough.
            for (axis, checked) in a.checked.iter_mut().enumerate() {
                *checked |= !self.survey.inside.contains(&(id, axis));
            }
        }
        let shared = self.inside_together(&a);
        if a.is_one() {
            // Threads without a lane also read what all lanes read alike: branches may depend on
            // it.
            let alone = self.width == 1 && self.uniform.varies(result);
            let guard = self.guard.clone().filter(|_| alone).map(|g| g[0]);
            let when = self.both(shared, guard);
            let base = self.base(&a.mem, &a.at);
            let x = self.load_run(&a.mem, Addr::reg(base, 0), 1, when)[0];
            let repr = match (when, &other) {
                (None, _) => Repr::One(x),
                (Some(p), None | Some(Repr::One(_))) => {
                    Repr::One(self.or_other(&a.mem, p, x, &other, 0))
                }
                (Some(p), Some(_)) => {
                    let lanes = 0..self.width;
                    Repr::Each(lanes.map(|k| self.or_other(&a.mem, p, x, &other, k)).collect())
                }
            };
            self.set(result, repr);
            return Ok(());
        }
        let apart = self.inside_apart(&a);
        let regs = if a.count > 1 && apart.is_none() {
            let mut regs = self.load_wide(&a, shared);
            if let Some(p) = shared {
                for (k, x) in regs.iter_mut().enumerate() {
                    *x = self.or_other(&a.mem, p, *x, &other, k);
                }
            }
            regs
        } else {
            let base = self.base(&a.mem, &a.at);
            let apart = self.both_each(apart, self.guard.clone());
            let mut regs = Vec::with_capacity(self.width);
            for k in 0..self.width {
                let when = self.both(shared, apart.as_ref().map(|p| p[k]));
                let addr = self.lane_address(&a.mem, &a.at, base, k);
                let x = self.load_run(&a.mem, addr, 1, when)[0];
                regs.push(match when {
                    Some(p) => self.or_other(&a.mem, p, x, &other, k),
                    None => x,
                });
            }
            regs
        };
        self.set(result, Repr::Each(regs));
        Ok(())
    }

    /// The loaded value where the condition held, else the `other` value. A code of zero has been
    /// read there.
    fn or_other(&mut self, mem: &Memory, p: Reg, x: Reg, other: &Option<Repr>, k: usize) -> Reg {
        let other = match other {
            None if mem.dtype != DType::E8M0 => return x,
            None => self.zero(mem.dtype),
            Some(Repr::One(r)) => *r,
            Some(Repr::Each(regs)) => regs[k],
            Some(Repr::Steps(s)) => self.spread(*s)[k],
            Some(other) => unreachable!("a value is used where it was not computed: {other:?}"),
        };
        self.scalars().select(mem.dtype, p, x, other)
    }

    fn load_wide(&mut self, a: &Access, when: Option<Reg>) -> Vec<Reg> {
        let base = self.base(&a.mem, &a.at);
        let mut regs = Vec::with_capacity(self.width);
        for k in (0..self.width).step_by(a.count) {
            let addr = self.lane_address(&a.mem, &a.at, base, k);
            regs.extend(self.load_run(&a.mem, addr, a.count, when));
        }
        regs
    }

    fn store_wide(&mut self, a: &Access, xs: &[Reg], when: Option<Reg>) {
        let base = self.base(&a.mem, &a.at);
        for k in (0..self.width).step_by(a.count) {
            let addr = self.lane_address(&a.mem, &a.at, base, k);
            self.store_run(&a.mem, addr, &xs[k..k + a.count], when);
        }
    }

    /// An op's own mask, for each lane; an error where no lane is active.
    fn own_mask(&mut self, id: OpId) -> Result<Option<Vec<Reg>>, Nothing> {
        let Some(&mask) = self.func.ops[id].group("mask").first() else { return Ok(None) };
        match self.survey.known.get(&mask) {
            Some(true) => Ok(None),
            Some(false) => Err(Nothing),
            None => Ok(Some(self.each(mask))),
        }
    }

    pub fn store(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let op = &self.func.ops[id];
        let a = self.access(id);
        let Ok(own) = self.own_mask(id) else { return Ok(()) };
        let (shared, apart) = self.conditions(&a, own);
        if let (true, Repr::One(x)) = (a.is_one(), self.repr(op.operands[1]).clone()) {
            let some = apart.and_then(|p| self.some(&p));
            let when = self.both(shared, some);
            let base = self.base(&a.mem, &a.at);
            self.store_run(&a.mem, Addr::reg(base, 0), &[x], when);
            return Ok(());
        }
        let xs = self.each(op.operands[1]);
        if a.count == 1 {
            self.store_each(&a, &xs, shared, apart.as_deref());
            return Ok(());
        }
        let Some(apart) = apart else {
            self.store_wide(&a, &xs, shared);
            return Ok(());
        };
        // One wide access where all lanes store.
        let [some, done] = [self.asm.label(), self.asm.label()];
        if let Some(all) = self.every(&apart) {
            self.asm.bra_if(all, false, some);
        }
        self.store_wide(&a, &xs, shared);
        self.asm.bra(done);
        self.asm.place(some);
        self.store_each(&a, &xs, shared, Some(&apart));
        self.asm.place(done);
        Ok(())
    }

    fn store_each(&mut self, a: &Access, xs: &[Reg], shared: Option<Reg>, apart: Option<&[Reg]>) {
        let base = self.base(&a.mem, &a.at);
        for k in 0..self.width {
            let when = self.both(shared, apart.map(|p| p[k]));
            let addr = self.lane_address(&a.mem, &a.at, base, k);
            self.store_run(&a.mem, addr, &xs[k..=k], when);
        }
    }

    /// Reads, combines and writes; a `reduce_*` parameter is folded into by many groups
    /// concurrently.
    pub fn accumulate(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        let op = &func.ops[id];
        let name = op.attr("op").and_then(Attr::as_word).unwrap_or("sum");
        let reduce = ReduceOp::from_name(name).unwrap_or(ReduceOp::Sum);
        let (memory, value) = (func.ty(op.operands[0]), op.operands[1]);
        let fold = Fold::new(memory, reduce.combine(), self.dtype(value));
        let a = self.access(id);
        let Ok(own) = self.own_mask(id) else { return Ok(()) };
        let (shared, apart) = self.conditions(&a, own);
        if matches!(memory, Type::View { privilege, .. } if privilege.reduces()) {
            if self.profile != Profile::Default && fold.shows_order(reduce) {
                let why = "folding into a `reduce_*` parameter from several groups has no fixed order on the GPU yet";
                let error = Diagnostic::new(ErrorCode::E_UNSUPPORTED, why);
                let help = "use the default profile, or the `cpu` backend";
                return Err(error.at(self.func.ops[id].loc.clone()).help(help).into());
            }
            return self.fold_shared(id, &a, reduce, fold, shared, apart);
        }
        let xs = self.each(value);
        if a.count > 1 && apart.is_none() {
            let olds = self.load_wide(&a, shared);
            let mut new = Vec::with_capacity(self.width);
            for (old, &x) in olds.into_iter().zip(&xs) {
                let made = fold.value(&mut self.scalars(), old, x);
                new.push(self.sure(id, made)?);
            }
            self.store_wide(&a, &new, shared);
            return Ok(());
        }
        // One after another: lanes of a thread may fold into one element.
        let base = self.base(&a.mem, &a.at);
        for (k, &x) in xs.iter().enumerate() {
            let when = self.both(shared, apart.as_ref().map(|p| p[k]));
            let addr = self.lane_address(&a.mem, &a.at, base, k);
            let old = self.load_run(&a.mem, addr.clone(), 1, when)[0];
            let made = fold.value(&mut self.scalars(), old, x);
            let new = self.sure(id, made)?;
            self.store_run(&a.mem, addr, &[new], when);
        }
        Ok(())
    }

    /// The register of an address without a constant offset.
    pub fn plain_address(&mut self, addr: Addr) -> Reg {
        let Base::Reg(base) = addr.base else { unreachable!("a register holds the address") };
        match (addr.offset, base.class) {
            (0, _) => base,
            (n, Class::B64) => self.add64(base, Opnd::Int(n)),
            (n, _) => self.asm.int(Alu::Add, Ty::U32, &[base.into(), Opnd::Int(n)]),
        }
    }
}
