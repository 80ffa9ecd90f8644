//! Warp specialization: warps of one block take different roles (producer, consumer, scheduler) and
//! run concurrently.
//!
//! A role's code is emitted for an instance: a range of warps, whose threads are numbered from 0.
//! Replicas that are warpgroups and differ only in their number run the same code, so that they
//! share the instruction cache; other replicas have their own code. An instance has its own named
//! barrier, scratch memory and head: values that are computed once are computed where the instance
//! begins, so that the registers of one role are not live in another. Warps branch to their
//! instance's code and do not synchronise with others after it.

use super::sync::SyncState;
use super::{Repr, Select};
use crate::asm::Asm;
use crate::inst::*;
use crate::module::Stmt;
use std::collections::BTreeMap;
use tessera_diag::Diagnostics;
use tessera_ir::{Attr, OpId, Type, Value};
use tessera_layout::Shared;
use tessera_staged::ops::roles::{RoleInfo, role_info};
use tessera_staged::{StagedFunc, StagedOp};
use tessera_tile::TileOp;

/// Named barriers of a block.
pub const BARRIERS: u32 = 16;
/// Registers of a multiprocessor, and the granularity of `setmaxnreg`.
const REGISTERS: u32 = 65536;
const POOL_STEP: u32 = 8;
/// Warps of a warpgroup, which change their register count and issue WGMMA together.
const GROUP: u32 = 4;

/// The threads that run what is being emitted.
#[derive(Clone, Debug, Default)]
pub struct RoleInstance {
    /// The index of its barrier and scratch memory; 0 is the whole block.
    pub number: u32,
    pub role: Option<OpId>,
    pub replica: u32,
    pub replicas: u32,
    /// The replica's number, where one code serves all of them.
    pub number_of: Option<Reg>,
    /// Whether the replicas take tiles in turn.
    pub by_tiles: bool,
    pub one_thread: bool,
}

/// What is known about the roles of a function.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    pub any: bool,
    /// Named barriers of all replicas of a role.
    all: BTreeMap<OpId, u32>,
    instances: u32,
}

/// What is computed once at the current head, and must be forgotten with it.
#[derive(Clone, Default)]
struct Known {
    specials: BTreeMap<Special, Reg>,
    tid_fields: BTreeMap<(u32, u32), Reg>,
    coords: BTreeMap<(Vec<u32>, Vec<u32>), Option<Reg>>,
    belows: BTreeMap<(Reg, u32), Reg>,
    nones: BTreeMap<(Reg, u32), Reg>,
    pairs: BTreeMap<(Reg, Reg), Reg>,
    words: BTreeMap<usize, Reg>,
    ids: BTreeMap<usize, Reg>,
    strides: BTreeMap<(usize, usize), Reg>,
    places: BTreeMap<(Vec<Option<Reg>>, Shared, u32), Reg>,
    maps: BTreeMap<usize, Reg>,
    mbars: super::mbar::Own,
}

/// The state of the code around an instance's.
struct Outside {
    scope: Known,
    instance: RoleInstance,
    warps: u32,
    depth: u32,
    head: Vec<Stmt>,
    body: Vec<Stmt>,
    state: SyncState,
}

pub fn survey(func: &StagedFunc) -> Roles {
    let any = func.walk().iter().any(|&id| func.ops[id].code == StagedOp::WarpSpecialize);
    Roles { any, ..Roles::default() }
}

impl Select<'_> {
    pub fn has_roles(&self) -> bool {
        self.roles.any
    }

    fn scope(&self) -> Known {
        Known {
            specials: self.specials.clone(),
            tid_fields: self.tid_fields.clone(),
            coords: self.coords.clone(),
            belows: self.belows.clone(),
            nones: self.nones.clone(),
            pairs: self.pairs.clone(),
            words: self.words.clone(),
            ids: self.ids.clone(),
            strides: self.pipelines.strides.clone(),
            places: self.pipelines.places.clone(),
            maps: self.map_addresses.clone(),
            mbars: self.mbars.own.clone(),
        }
    }

    fn set_scope(&mut self, scope: Known) {
        self.specials = scope.specials;
        self.tid_fields = scope.tid_fields;
        self.coords = scope.coords;
        self.belows = scope.belows;
        self.nones = scope.nones;
        self.pairs = scope.pairs;
        self.words = scope.words;
        self.ids = scope.ids;
        self.pipelines.strides = scope.strides;
        self.pipelines.places = scope.places;
        self.map_addresses = scope.maps;
        self.mbars.own = scope.mbars;
    }

    /// Starts an instance's code: uniform values stay known, thread indices do not.
    fn enter(
        &mut self,
        instance: RoleInstance,
        first_warp: u32,
        warps: u32,
        together: bool,
    ) -> Outside {
        let tid = self.tid();
        let number = instance.number as usize;
        let outside = Outside {
            scope: self.scope(),
            instance: std::mem::replace(&mut self.instance, instance),
            warps: std::mem::replace(&mut self.warps, warps),
            depth: std::mem::take(&mut self.depth),
            head: std::mem::take(&mut self.head),
            body: std::mem::take(&mut self.asm.kernel.body),
            state: self.swap_sync_state(SyncState::default()),
        };
        self.asm.forget_location();
        self.set_sync_instance(number);
        self.tid_fields.clear();
        self.coords.clear();
        // Another replica runs the same ops with its own registers.
        self.votes.clear();
        self.mbars.own = Default::default();
        let mut own = tid;
        if first_warp > 0 {
            let before = Opnd::Int((32 * first_warp).into());
            own = self.head(|me| me.asm.int(Alu::Sub, Ty::U32, &[tid.into(), before]));
        }
        if together {
            // The warps of a replica are a power of two.
            let bits = Opnd::Int((5 + warps.ilog2()).into());
            let mask = Opnd::Int((32 * warps - 1).into());
            let number = self.head(|me| me.asm.int(Alu::Shr, Ty::U32, &[own.into(), bits]));
            self.instance.number_of = Some(self.uniform(number));
            own = self.head(|me| me.asm.int(Alu::And, Ty::B32, &[own.into(), mask]));
        }
        self.specials.insert(Special::TidX, own);
        outside
    }

    /// Whether one code serves all replicas of a role: they are warpgroups, and differ in nothing
    /// but their number.
    fn are_together(&self, role: OpId, info: &RoleInfo) -> bool {
        let func = self.func;
        let mut iterations = false;
        func.walk_block(func.ops[role].regions[0], &mut |o| {
            iterations |= matches!(func.ops[o].code, StagedOp::OrderWait | StagedOp::OrderArrive);
        });
        info.replicas > 1
            && info.warps as u32 == GROUP
            && !info.by_tiles
            && !info.one_thread
            && !iterations
    }

    /// Ends it, and returns its code, head first.
    fn leave(&mut self, outside: Outside) -> Vec<Stmt> {
        let mut code = std::mem::replace(&mut self.head, outside.head);
        code.extend(std::mem::replace(&mut self.asm.kernel.body, outside.body));
        self.set_scope(outside.scope);
        self.instance = outside.instance;
        self.warps = outside.warps;
        self.depth = outside.depth;
        self.swap_sync_state(outside.state);
        self.set_sync_instance(self.instance.number as usize);
        self.asm.forget_location();
        code
    }

    pub fn roles(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let func = self.func;
        if self.cluster > 1 {
            return self.unsupported(
                id,
                "expected one block to a cluster where there are roles, got several: \
                 leave out `cluster`",
            );
        }
        let block = func.ops[id].regions[0];
        let list: Vec<(OpId, RoleInfo)> = func.blocks[block]
            .ops
            .iter()
            .filter(|&&o| func.ops[o].code == StagedOp::WarpRole)
            .map(|&o| (o, role_info(func, o)))
            .collect();
        self.check_roles(id, &list)?;
        let registers = self.register_reallocation(&list);
        self.asm.kernel.min_blocks = Some(1);
        let begin = self.asm.kernel.body.len();
        self.plan_work_queue(&list);
        self.ready(Self::place_once)?;
        // All lanes of a warp have one warp index; a shuffle shows the assembler that it is
        // uniform.
        let warp = self.warp();
        let uniform = self.asm.reg(Class::B32);
        self.asm.emit(Inst::Shfl {
            kind: Shfl::Idx,
            d: uniform,
            ok: None,
            a: warp.into(),
            b: Opnd::Int(0),
            c: Opnd::Int(31),
            mask: Opnd::Int(0xffff_ffff),
        });
        let done = self.asm.label();
        let mut first = 0u32;
        let instances: u32 = list.iter().map(|(_, r)| r.replicas as u32).sum();
        let mut left = instances;
        let mut copies_from = None;
        let dispatch = self.asm.kernel.body.len();
        // The end of the warpgroup whose warps share a `setmaxnreg`.
        let mut shared: Option<(u32, Label)> = None;
        for (n, ((role, info), &pool)) in list.iter().zip(&registers).enumerate() {
            let warps = info.warps as u32;
            if list[n..].iter().all(|(_, r)| r.one_thread) && first.is_multiple_of(GROUP) && n > 0 {
                copies_from.get_or_insert((first, self.asm.kernel.body.len()));
            }
            let together = self.are_together(*role, info);
            let (copies, each) = match together {
                true => (1, info.replicas as u32),
                false => (info.replicas as u32, 1),
            };
            for replica in 0..copies {
                left -= each;
                let end = shared_until(&list[n..], first, replica);
                if pool.is_some() && first.is_multiple_of(GROUP) && end != first + warps {
                    let past = self.asm.label();
                    if left > 0 {
                        self.beyond(uniform, end, past);
                    }
                    self.change_registers(pool);
                    shared = Some((end, past));
                }
                let next = self.asm.label();
                if left > 0 {
                    self.beyond(uniform, first + warps * each, next);
                }
                if shared.is_none() {
                    self.change_registers(pool);
                }
                if info.one_thread {
                    self.elect(uniform, first, warps, done);
                }
                self.roles.instances += 1;
                let instance = RoleInstance {
                    number: self.roles.instances,
                    role: Some(*role),
                    replica,
                    replicas: info.replicas as u32,
                    number_of: None,
                    by_tiles: info.by_tiles,
                    one_thread: info.one_thread,
                };
                let number = instance.number as usize;
                let outside = self.enter(instance, first, warps, together);
                self.begin_pingpong(*role);
                self.block(func.ops[*role].regions[0])?;
                self.end_pingpong(*role);
                let code = self.leave(outside);
                if together {
                    self.share_scratch(number, first, warps, each);
                    self.roles.instances += each - 1;
                }
                self.asm.kernel.body.extend(code);
                if left > 0 {
                    self.asm.emit(Inst::Bra { to: done, uniform: !info.one_thread });
                }
                self.asm.place(next);
                first += warps * each;
                if let Some((_, past)) = shared.take_if(|(end, _)| *end == first) {
                    self.asm.place(past);
                }
            }
        }
        if let Some((first, place)) = copies_from.filter(|_| self.once.is_some()) {
            self.put_first(dispatch, place, (uniform, first), done);
        }
        self.asm.place(done);
        self.fetch_maps_at(begin);
        // The roles join: the code after them is run by all threads again.
        let after = func.blocks[func.ops[id].block].ops.iter().skip_while(|&&o| o != id).skip(1);
        if after.into_iter().any(|&o| !func.ops[o].is_terminator()) {
            self.asm.emit(Inst::WarpSync { mask: Opnd::Int(0xffff_ffff) });
            self.barrier();
        }
        Ok(())
    }

    /// Moves the code of the last roles, from a position and a warp on, before that of the others.
    /// Where a block has one tile, all code is new to the instruction cache, which prefetches
    /// sequentially but not across jumps, and all other roles wait for the producers.
    fn put_first(&mut self, dispatch: usize, place: usize, (warp, first): (Reg, u32), done: Label) {
        let last = self.asm.kernel.body.split_off(place);
        let others = self.asm.kernel.body.split_off(dispatch);
        let past = self.asm.label();
        let before = self.asm.setp(Cmp::Lt, Ty::U32, warp, Opnd::Int(first.into()));
        self.asm.when(before, true, |asm| asm.emit(Inst::Bra { to: past, uniform: true }));
        self.asm.kernel.body.extend(last);
        self.asm.emit(Inst::Bra { to: done, uniform: false });
        self.asm.place(past);
        self.asm.kernel.body.extend(others);
    }

    /// Warps from one on branch away.
    fn beyond(&mut self, warp: Reg, end: u32, to: Label) {
        let others = self.asm.setp(Cmp::Ge, Ty::U32, warp, Opnd::Int(end.into()));
        self.asm.when(others, true, |asm| asm.emit(Inst::Bra { to, uniform: true }));
    }

    fn change_registers(&mut self, pool: Option<(bool, u32)>) {
        if let Some((more, count)) = pool {
            self.asm.emit(Inst::SetMaxRegs { more, count });
        }
    }

    /// One elected thread of the first of these warps continues, the others branch to the end.
    fn elect(&mut self, warp: Reg, first: u32, warps: u32, done: Label) {
        if warps > 1 {
            let others = self.asm.setp(Cmp::Ne, Ty::U32, warp, Opnd::Int(first.into()));
            self.asm.when(others, true, |asm| asm.emit(Inst::Bra { to: done, uniform: true }));
        }
        let p = self.asm.reg(Class::Pred);
        self.asm.emit(Inst::Elect { p, mask: Opnd::Int(0xffff_ffff) });
        self.asm.bra_if(p, false, done);
    }

    /// Reports what has no code.
    fn check_roles(&mut self, id: OpId, list: &[(OpId, RoleInfo)]) -> Result<(), Diagnostics> {
        let func = self.func;
        let mut first = 0;
        let mut barriers = 1 + list.iter().map(|(_, r)| r.replicas as u32).sum::<u32>();
        for (role, info) in list {
            let mut synchronises = false;
            let mut tiles = None;
            let mut async_mma = None;
            func.walk_block(func.ops[*role].regions[0], &mut |o| {
                let op = &func.ops[o];
                synchronises |= op.code == StagedOp::RoleBarrier && all_replicas(op.attr("all"));
                if op.results.iter().chain(&op.operands).any(|&v| is_tile(func, v)) {
                    tiles = tiles.or(Some(o));
                }
                if op.code == StagedOp::MmaIssue && self.is_async_mma(o) {
                    async_mma = async_mma.or(Some(o));
                }
            });
            if synchronises && info.replicas > 1 {
                self.roles.all.insert(*role, barriers);
                barriers += 1;
            }
            let name = &info.name;
            if let Some(op) = tiles {
                if info.one_thread {
                    let why = format!("expected scalars alone in role `{name}` of one thread");
                    return self.unsupported(op, why + ", got a tile");
                }
                if !(info.warps as u32).is_power_of_two() {
                    let why = format!("expected a power of two of warps in role `{name}`");
                    return self.unsupported(op, format!("{why}, got {}", info.warps));
                }
            }
            let whole = |warps: u32| warps.is_multiple_of(GROUP);
            if let Some(op) = async_mma.filter(|_| !whole(first) || !whole(info.warps as u32)) {
                let why = format!("expected role `{name}` to be whole groups of {GROUP} warps");
                return self.unsupported(op, why + " for WGMMA, got others");
            }
            first += (info.warps * info.replicas) as u32;
            if info.one_thread && info.replicas > 1 {
                let why = format!("expected one replica of role `{name}` of one thread");
                return self.unsupported(*role, format!("{why}, got {}", info.replicas));
            }
        }
        if barriers > BARRIERS {
            let why = format!("expected roles that need at most {BARRIERS} barriers");
            return self.unsupported(id, format!("{why}, got {barriers}"));
        }
        for (role, info) in list {
            self.survey_per_warpgroup(*role, info, &mut barriers);
            self.survey_pingpong(*role, info, &mut barriers);
        }
        // Threads have other indices in a role than in the block, and hold other elements.
        for &o in &func.blocks[func.body].ops {
            let op = &func.ops[o];
            let constant = op.code == StagedOp::Tile(TileOp::Const);
            if !constant && op.results.iter().any(|&v| is_tile(func, v)) {
                return self.unsupported(
                    o,
                    "expected tiles only inside roles in a function that has any, got one outside",
                );
            }
        }
        Ok(())
    }

    /// Register reallocation (`setmaxnreg`): the registers of each role, if that is more or less
    /// than a thread starts with; for no role where they do not add up, as some would wait for
    /// ever.
    fn register_reallocation(&self, list: &[(OpId, RoleInfo)]) -> Vec<Option<(bool, u32)>> {
        let none = vec![None; list.len()];
        let has = crate::Feature::SetMaxRegs.on().has(self.caps.target);
        let threads: u32 = self.warps * 32;
        let begin = (REGISTERS / threads / POOL_STEP * POOL_STEP).min(255 / POOL_STEP * POOL_STEP);
        let mut taken = 0;
        let mut out = Vec::new();
        let mut first = 0;
        for (n, (_, info)) in list.iter().enumerate() {
            let warps = (info.warps * info.replicas) as u32;
            let count = info.regs.map_or(begin, |r| r as u32);
            // All warps of a warpgroup change together: roles that share one must request the same.
            let from = first / GROUP * GROUP;
            let group = from..(first + warps).next_multiple_of(GROUP);
            let mut at = 0;
            let alike = list.iter().enumerate().all(|(m, (_, other))| {
                let own = at..at + (other.warps * other.replicas) as u32;
                at = own.end;
                m == n
                    || own.end <= group.start
                    || group.end <= own.start
                    || other.regs == info.regs
            });
            let whole = self.warps.is_multiple_of(GROUP);
            if info.regs.is_some() && !(alike && whole) {
                return none;
            }
            taken += warps * 32 * count;
            out.push((count != begin).then_some((count > begin, count)));
            first += warps;
        }
        if !has || taken > begin * threads {
            return none;
        }
        out
    }

    /// The number of this replica.
    pub fn replica(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let r = match self.instance.number_of {
            Some(number) => self.head(|me| me.asm.cvt(Ty::U64, Ty::U32, None, number)),
            None => self.asm.constant(Ty::B64, Opnd::Int(self.instance.replica.into())),
        };
        let v = self.func.ops[id].result();
        self.set(v, Repr::Scalar(r));
        Ok(())
    }

    pub fn role_barrier(&mut self, id: OpId) -> Result<(), Diagnostics> {
        let all = self.instance.role.and_then(|r| self.roles.all.get(&r)).copied();
        match all.filter(|_| all_replicas(self.func.ops[id].attr("all"))) {
            Some(barrier) => {
                let count = Some(self.warps * 32 * self.instance.replicas);
                self.asm.emit(Inst::BarSync { id: Opnd::Int(barrier.into()), count });
                self.swap_sync_state(SyncState::default());
            }
            None if self.per_warpgroup_barrier(id) => {}
            None => self.barrier(),
        }
        Ok(())
    }

    /// Synchronises all threads of the role, if one is current.
    pub fn instance_barrier(&mut self) -> bool {
        if self.instance.role.is_none() {
            return false;
        }
        match (self.instance.one_thread, self.warps) {
            (true, _) => {}
            (false, 1) => self.asm.emit(Inst::WarpSync { mask: Opnd::Int(0xffff_ffff) }),
            (false, warps) => {
                let id = Opnd::Int(self.instance.number.into());
                let id = match self.instance.number_of {
                    Some(n) => {
                        self.head(|me| me.asm.int(Alu::Add, Ty::U32, &[n.into(), id])).into()
                    }
                    None => id,
                };
                self.asm.emit(Inst::BarSync { id, count: Some(32 * warps) });
            }
        }
        true
    }

    /// Code of one thread: the others branch around it, uniformly.
    pub fn by_leader(&mut self, who: Option<Reg>, write: impl FnOnce(&mut Asm)) {
        let past = self.asm.label();
        if let Some(who) = who {
            self.asm.bra_if(who, false, past);
        }
        write(&mut self.asm);
        self.asm.place(past);
    }

    /// Whether this is the thread that acts for its instance; none where there is only one.
    pub fn leader(&mut self) -> Option<Reg> {
        if self.instance.one_thread {
            return None;
        }
        let tid = self.tid();
        Some(self.below(tid, 1))
    }
}

/// The end of the warps that change their registers with an instance that begins at a warp: the
/// instance's own end where it is whole warpgroups, or else that of the last instance in the same
/// warpgroup.
fn shared_until(list: &[(OpId, RoleInfo)], first: u32, replica: u32) -> u32 {
    let mut end = first;
    for (n, (_, info)) in list.iter().enumerate() {
        let before = if n == 0 { replica } else { 0 };
        for _ in before..info.replicas as u32 {
            end += info.warps as u32;
            if end.is_multiple_of(GROUP) {
                return end;
            }
        }
    }
    end
}

fn all_replicas(attr: Option<&Attr>) -> bool {
    attr.and_then(Attr::as_bool).unwrap_or(false)
}

fn is_tile(func: &StagedFunc, v: Value) -> bool {
    matches!(func.ty(v), Type::Frag { .. } | Type::Pending(_))
}
