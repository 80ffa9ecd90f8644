//! One time slice of a warp: executes instructions for all converged lanes, until the warp has to
//! wait.

use super::alu;
use super::cvt;
use super::fast::{CmpRow, L32, L64, Row};
use super::fault::{FaultKind, Res, Trouble};
use super::machine::Machine;
use super::program::{ALWAYS, Op, Slot};
use super::warp::{Warp, lanes, name_lanes};
use tessera_ptx::inst::Alu;

/// What follows an instruction.
pub(super) enum Flow {
    Next,
    Jump(u32),
    Return,
    /// The lanes wait for others of their warp, then execute it.
    Park,
    /// The lanes wait for something outside their warp, then try again.
    Hold,
    /// It is done, and the whole warp waits at a barrier.
    Wait,
}

impl Machine<'_> {
    /// Runs a warp until it waits, ends, or has used up its slice.
    pub(super) fn run_slice(&mut self, w: &mut Warp, slice: u32) -> Res<()> {
        let program = self.program;
        let mut left = slice;
        w.held = 0;
        loop {
            let Some(pick) = w.pick() else {
                if w.held != 0 || w.alive == 0 {
                    w.held_since = self.events;
                    return Ok(());
                }
                self.unpark(w)?;
                continue;
            };
            let (mut pc, active) = (pick.pc, pick.active);
            let alone = active == w.alive;
            loop {
                if left == 0 {
                    w.stand(active, pc);
                    w.avoid |= active;
                    self.pc = pc;
                    return self.check_steps();
                }
                left -= 1;
                let step = &program.steps[pc as usize];
                let mask = if step.guard == ALWAYS {
                    active
                } else {
                    let p = w.preds[(step.guard >> 1) as usize];
                    active & if step.guard & 1 == 0 { p } else { !p }
                };
                self.stats.warp_steps += 1;
                self.stats.thread_steps += mask.count_ones() as u64;
                if mask != 0 {
                    self.pc = pc;
                    if step.watched {
                        self.watch(w, pc)?;
                    }
                    let flow = if let Op::Row { f, d, a, b, c } = &step.op {
                        row(w, mask, *f, [*d, *a, *b, *c]);
                        Flow::Next
                    } else {
                        self.execute(w, mask, &step.op)?
                    };
                    match flow {
                        Flow::Next => {}
                        Flow::Jump(to) if mask == active && alone => {
                            pc = to;
                            continue;
                        }
                        flow => {
                            w.stand(active & !mask, pc + 1);
                            match flow {
                                Flow::Jump(to) => w.stand(mask, to),
                                Flow::Return => w.alive &= !mask,
                                Flow::Hold => {
                                    w.stand(mask, pc);
                                    w.held |= mask;
                                }
                                Flow::Park => {
                                    w.stand(mask, pc);
                                    w.parked |= mask;
                                    w.parked_alive = w.alive;
                                }
                                Flow::Next | Flow::Wait => {
                                    w.stand(mask, pc + 1);
                                    return Ok(());
                                }
                            }
                            break;
                        }
                    }
                }
                pc += 1;
                if pc == pick.limit {
                    w.stand(active, pc);
                    break;
                }
            }
        }
    }

    fn check_steps(&self) -> Res<()> {
        if self.stats.warp_steps > self.options.step_limit {
            let text = format!("the kernel runs longer than {} steps", self.options.step_limit);
            return Err(Trouble::new(FaultKind::StepLimit, text));
        }
        Ok(())
    }

    /// All runnable lanes wait for others of the warp. If some have returned since, the rest may
    /// suffice now; else they never will.
    fn unpark(&mut self, w: &mut Warp) -> Res<()> {
        if w.parked_alive != w.alive {
            w.parked_alive = w.alive;
            w.parked = 0;
            return Ok(());
        }
        let first = lanes(w.parked).map(|l| w.pcs[l]).min().unwrap_or(0);
        self.pc = first;
        let here = lanes(w.alive).filter(|l| w.pcs[*l] == first).fold(0, |m, l| m | 1 << l);
        let text = format!(
            "lanes {} execute an instruction that needs other lanes of the warp, which do not come",
            name_lanes(here)
        );
        let mut trouble = Trouble::new(FaultKind::Divergent, text);
        for (group, pc) in self.standing(w) {
            trouble = trouble.note(format!("lanes {group} stand at {}", self.name_step(pc)));
        }
        let returned = !w.alive;
        if returned != 0 {
            trouble = trouble.note(format!("lanes {} have returned", name_lanes(returned)));
        }
        Err(trouble.lane(here.trailing_zeros() as usize))
    }

    /// A WGMMA register is used by another instruction while the WGMMA is in flight.
    #[cold]
    fn watch(&mut self, w: &mut Warp, pc: u32) -> Res<()> {
        for row in &self.program.watch[&pc] {
            if w.flying.contains(row) {
                let text = "a register of a WGMMA in flight is used before it was waited for";
                return Err(Trouble::new(FaultKind::InFlight, text));
            }
            w.loose.insert(*row);
        }
        Ok(())
    }

    fn execute(&mut self, w: &mut Warp, mask: u32, op: &Op) -> Res<Flow> {
        match op {
            Op::Row { f, d, a, b, c } => row(w, mask, *f, [*d, *a, *b, *c]),
            Op::Mov { d, a } => mov(w, mask, *d, *a),
            Op::Alu { spec, d, a } => {
                let bits = result_mask(spec.op, spec.ty.bits());
                for lane in lanes(mask) {
                    let x = [0, 1, 2, 3].map(|i| w.get(a[i], lane));
                    w.set(*d, lane, alu::eval(*spec, x) & bits);
                }
            }
            Op::Carry { from, to, d, a, b } => carry(w, mask, *from, *to, [*d, *a, *b]),
            Op::Cvt { spec, d, a, b } => {
                let bits = if spec.narrow { 0xFFFF } else { u64::MAX };
                for lane in lanes(mask) {
                    let value = cvt::eval(*spec, w.get(*a, lane), w.get(*b, lane));
                    w.set(*d, lane, value & bits);
                }
            }
            Op::CmpRow { f, d, a, b } => {
                let bits = match f {
                    CmpRow::N(f) => f(&w.narrow[*a as usize], &w.narrow[*b as usize]),
                    CmpRow::W(f) => f(&w.wide[*a as usize], &w.wide[*b as usize]),
                };
                w.set_pred(*d, mask, bits);
            }
            Op::Cmp { cmp, ty, ftz, d, a, b } => {
                let bits = lanes(mask).fold(0, |bits, lane| {
                    let (a, b) = (w.get(*a, lane), w.get(*b, lane));
                    bits | (cvt::compare(*cmp, *ty, *ftz, a, b) as u32) << lane
                });
                w.set_pred(*d, mask, bits);
            }
            Op::Select { d, a, b, p } => {
                let p = w.preds[*p as usize];
                select(w, mask, p, *d, *a, *b);
            }
            Op::Pred { op, d, a, b } => {
                let (a, b) = (w.preds[*a as usize], w.preds[*b as usize]);
                let bits = match op {
                    Alu::And => a & b,
                    Alu::Or => a | b,
                    Alu::Xor => a ^ b,
                    _ => !a,
                };
                w.set_pred(*d, mask, bits);
            }
            Op::Pack { d, parts, bits } => {
                for lane in lanes(mask) {
                    let whole = (0u32..).zip(parts.iter()).fold(0, |whole, (i, part)| {
                        whole | (w.get(*part, lane) & alu::mask(*bits)) << (i * bits)
                    });
                    w.set(*d, lane, whole);
                }
            }
            Op::Unpack { parts, a, bits } => {
                for lane in lanes(mask) {
                    let whole = w.get(*a, lane);
                    for (i, part) in (0u32..).zip(parts.iter()) {
                        w.set(*part, lane, whole >> (i * bits) & alu::mask(*bits));
                    }
                }
            }
            Op::Clock { d } => {
                let now = self.stats.warp_steps;
                lanes(mask).for_each(|lane| w.set(*d, lane, now));
            }
            Op::Ld(access) => self.load(w, mask, access)?,
            Op::St(access) => self.store(w, mask, access)?,
            Op::Atom(atom) => self.atomic(w, mask, atom)?,
            Op::Shfl(shuffle) => return self.shuffle(w, mask, shuffle),
            Op::Vote { kind, d, p, negated, mask: named } => {
                return self.vote(w, mask, *kind, *d, (*p, *negated), *named);
            }
            Op::Redux { op, signed, d, a, mask: named } => {
                return self.redux(w, mask, *op, *signed, *d, *a, *named);
            }
            Op::Elect { p, mask: named } => return self.elect(w, mask, *p, *named),
            Op::Activemask { d } => {
                lanes(mask).for_each(|lane| w.set(*d, lane, mask as u64));
            }
            Op::WarpSync { mask: named } => return self.warp_sync(w, mask, *named),
            Op::BarSync { id, count } => {
                if mask != w.alive {
                    return Ok(Flow::Park);
                }
                let id = self.barrier_number(w, mask, *id)?;
                let on = self.arrive(w, id, *count, true, None)?;
                return Ok(if on { Flow::Next } else { Flow::Wait });
            }
            Op::BarArrive { id, count } => {
                if mask != w.alive {
                    return Ok(Flow::Park);
                }
                let id = self.barrier_number(w, mask, *id)?;
                self.arrive(w, id, Some(*count), false, None)?;
            }
            Op::BarRedOr { id, d, p } => {
                if mask != w.alive {
                    return Ok(Flow::Park);
                }
                let any = w.preds[*p as usize] & mask != 0;
                let on = self.arrive(w, *id, None, true, Some((*d, any)))?;
                return Ok(if on { Flow::Next } else { Flow::Wait });
            }
            Op::Copy { dst, src, bytes, src_bytes } => {
                self.copy(w, mask, *dst, *src, *bytes, *src_bytes)?;
            }
            Op::CopyCommit => lanes(mask).for_each(|lane| w.commits[lane] += 1),
            Op::CopyWait { groups } => self.copy_wait(w, mask, *groups)?,
            Op::Ldmatrix { d, trans, at } => return self.ldmatrix(w, mask, d, *trans, *at),
            Op::Stmatrix { a, trans, at } => return self.stmatrix(w, mask, a, *trans, *at),
            Op::Mma(mma) => return self.mma(w, mask, mma),
            Op::Mapa { d, a, rank } => {
                for lane in lanes(mask) {
                    let (a, rank) = (w.get(*a, lane), w.get(*rank, lane));
                    if rank >= self.blocks.len() as u64 {
                        let n = self.blocks.len();
                        let text = format!("block {rank} of a cluster that has {n}");
                        return Err(Trouble::new(FaultKind::OutOfBounds, text).lane(lane));
                    }
                    w.set(*d, lane, a & 0xFF_FFFF | rank << 24);
                }
            }
            Op::ClusterArrive => self.cluster_arrive(w, mask)?,
            Op::ClusterWait => {
                let on = self.cluster_wait(w, mask)?;
                return Ok(if on { Flow::Next } else { Flow::Hold });
            }
            Op::Bra { to } => return Ok(Flow::Jump(*to)),
            Op::Ret => return Ok(Flow::Return),
            Op::Trap => {
                let lane = mask.trailing_zeros() as usize;
                return Err(Trouble::new(FaultKind::Trap, "the kernel trapped").lane(lane));
            }
            Op::Nothing => {}
            Op::MbarInit { at, count } => self.mbar_init(w, mask, *at, *count)?,
            Op::MbarInval { at } => self.mbar_inval(w, mask, *at)?,
            Op::Mbar { space, at, count, bytes, arrives } => {
                self.mbar_arrive(w, mask, (*space, *at), *count, *bytes, *arrives)?;
            }
            Op::MbarWait { d, at, parity, block } => {
                return self.mbar_wait(w, mask, *d, *at, *parity, *block);
            }
            Op::Bulk(bulk) => self.bulk(w, mask, bulk)?,
            Op::BulkCommit => lanes(mask).for_each(|lane| w.bulk_commits[lane] += 1),
            Op::BulkWait { groups } => self.bulk_wait(w, mask, *groups)?,
            Op::FenceProxy => self.fence_proxy(w, mask),
            Op::Wgmma(wgmma) => return self.wgmma(w, mask, wgmma),
            Op::WgmmaFence | Op::WgmmaCommit if mask != u32::MAX => return Ok(Flow::Park),
            Op::WgmmaFence => w.loose.clear(),
            Op::WgmmaCommit => {
                w.wgmma_commits += 1;
                self.events += 1;
            }
            Op::WgmmaWait { groups } => return self.wgmma_wait(w, mask, *groups),
        }
        Ok(Flow::Next)
    }
}

/// The mask of a result: the bits of the type, or twice as many.
fn result_mask(op: Alu, bits: u32) -> u64 {
    match op {
        Alu::MulWide | Alu::MadWide => alu::mask(bits * 2),
        Alu::Popc | Alu::Clz => u64::MAX,
        _ => alu::mask(bits),
    }
}

#[inline(always)]
fn put_narrow(w: &mut Warp, mask: u32, d: u32, f: impl FnOnce(&mut L32, &Warp)) {
    let mut out = [0; 32];
    f(&mut out, w);
    let d = &mut w.narrow[d as usize];
    if mask == u32::MAX {
        *d = out;
    } else {
        (0..32).for_each(|i| d[i] = if mask >> i & 1 == 1 { out[i] } else { d[i] });
    }
}

#[inline(always)]
fn put_wide(w: &mut Warp, mask: u32, d: u32, f: impl FnOnce(&mut L64, &Warp)) {
    let mut out = [0; 32];
    f(&mut out, w);
    let d = &mut w.wide[d as usize];
    if mask == u32::MAX {
        *d = out;
    } else {
        (0..32).for_each(|i| d[i] = if mask >> i & 1 == 1 { out[i] } else { d[i] });
    }
}

/// An operation on all lanes, of which those in `mask` are kept.
#[inline(always)]
fn row(w: &mut Warp, mask: u32, f: Row, [d, a, b, c]: [u32; 4]) {
    let [a, b, c] = [a, b, c].map(|i| i as usize);
    match f {
        Row::N1(f) => put_narrow(w, mask, d, |o, w| f(&w.narrow[a], o)),
        Row::N2(f) => put_narrow(w, mask, d, |o, w| f(&w.narrow[a], &w.narrow[b], o)),
        Row::N3(f) => {
            put_narrow(w, mask, d, |o, w| f(&w.narrow[a], &w.narrow[b], &w.narrow[c], o));
        }
        Row::W1(f) => put_wide(w, mask, d, |o, w| f(&w.wide[a], o)),
        Row::W2(f) => put_wide(w, mask, d, |o, w| f(&w.wide[a], &w.wide[b], o)),
        Row::W3(f) => put_wide(w, mask, d, |o, w| f(&w.wide[a], &w.wide[b], &w.wide[c], o)),
        Row::WN(f) => put_wide(w, mask, d, |o, w| f(&w.wide[a], &w.narrow[b], o)),
        Row::Widen(f) => put_wide(w, mask, d, |o, w| f(&w.narrow[a], o)),
        Row::NnW(f) => put_wide(w, mask, d, |o, w| f(&w.narrow[a], &w.narrow[b], o)),
        Row::NnwW(f) => {
            put_wide(w, mask, d, |o, w| f(&w.narrow[a], &w.narrow[b], &w.wide[c], o));
        }
        Row::Narrow(f) => put_narrow(w, mask, d, |o, w| f(&w.wide[a], o)),
    }
}

fn mov(w: &mut Warp, mask: u32, d: Slot, a: Slot) {
    match (d, a) {
        (Slot::N(d), Slot::N(a)) => put_narrow(w, mask, d, |o, w| *o = w.narrow[a as usize]),
        (Slot::W(d), Slot::W(a)) => put_wide(w, mask, d, |o, w| *o = w.wide[a as usize]),
        (Slot::P(d), Slot::P(a)) => w.set_pred(d, mask, w.preds[a as usize]),
        _ => lanes(mask).for_each(|lane| w.set(d, lane, w.get(a, lane))),
    }
}

fn select(w: &mut Warp, mask: u32, p: u32, d: Slot, a: Slot, b: Slot) {
    match (d, a, b) {
        (Slot::N(d), Slot::N(a), Slot::N(b)) => put_narrow(w, mask, d, |o, w| {
            let (a, b) = (&w.narrow[a as usize], &w.narrow[b as usize]);
            (0..32).for_each(|i| o[i] = if p >> i & 1 == 1 { a[i] } else { b[i] });
        }),
        (Slot::W(d), Slot::W(a), Slot::W(b)) => put_wide(w, mask, d, |o, w| {
            let (a, b) = (&w.wide[a as usize], &w.wide[b as usize]);
            (0..32).for_each(|i| o[i] = if p >> i & 1 == 1 { a[i] } else { b[i] });
        }),
        _ => {
            for lane in lanes(mask) {
                let value = w.get(if p >> lane & 1 == 1 { a } else { b }, lane);
                w.set(d, lane, value);
            }
        }
    }
}

/// Addition with the carry flag.
fn carry(w: &mut Warp, mask: u32, from: bool, to: bool, [d, a, b]: [Slot; 3]) {
    let bits = if matches!(d, Slot::W(_)) { 64 } else { 32 };
    for lane in lanes(mask) {
        let flag = (from && w.carry >> lane & 1 == 1) as u128;
        let sum = w.get(a, lane) as u128 + w.get(b, lane) as u128 + flag;
        w.set(d, lane, sum as u64);
        if to {
            w.carry = w.carry & !(1 << lane) | ((sum >> bits) as u32 & 1) << lane;
        }
    }
}
