//! WGMMA: MMAs of a warpgroup, four warps with 16 of the 64 rows each.
//!
//! A WGMMA is executed when it is waited for, or immediately if `Options::copies` is `Early`. Until
//! then its registers may not be touched by anything else and the shared memory it reads not be
//! written. Accumulation is that of `mma.sync` here.

use super::exec::Flow;
use super::fault::{FaultKind, Res, Trouble};
use super::float::NAN_F32;
use super::machine::{Copies, Machine};
use super::matrix::operand;
use super::program::{GroupA, GroupMma, Op, Slot};
use super::races::Use;
use super::soft::Mode;
use super::tensor::swizzled;
use super::warp::Warp;
use tessera_ptx::inst::Ty;

/// A WGMMA in flight.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    pc: u32,
    /// How many groups the warp had committed before.
    group: u32,
    a: u64,
    b: u64,
    add: bool,
    /// Shared memory that it reads.
    pub reads: Vec<(usize, usize)>,
    /// It was executed when another warp of its warpgroup waited.
    pub done: bool,
}

/// The layout of an operand in shared memory, decoded from its matrix descriptor.
#[derive(Copy, Clone, Debug)]
struct Matrix {
    start: u64,
    leading: u64,
    stride: u64,
    span: u32,
    /// MN-major: the other axis is contiguous, not k.
    transposed: bool,
    bytes: u64,
}

impl Matrix {
    fn new(bits: u64, ty: Ty, transposed: bool) -> Res<Self> {
        let span = match bits >> 62 {
            0 => 0,
            1 => 128,
            2 => 64,
            _ => 32,
        };
        if bits >> 49 & 7 != 0 {
            let text = "descriptors with a base offset are not interpreted";
            return Err(Trouble::new(FaultKind::Unsupported, text));
        }
        Ok(Matrix {
            start: (bits & 0x3FFF) << 4,
            leading: (bits >> 16 & 0x3FFF) << 4,
            stride: (bits >> 32 & 0x3FFF) << 4,
            span,
            transposed,
            bytes: ty.bits() as u64 / 8,
        })
    }

    /// The shared address of an element by its row (or column) and k.
    fn at(&self, i: u64, k: u64) -> u64 {
        let per = 16 / self.bytes;
        let offset = match (self.transposed, self.span) {
            // Eight rows of 16 bytes form a core matrix.
            (false, 0) => {
                i % 8 * 16 + i / 8 * self.stride + k / per * self.leading + k % per * self.bytes
            }
            (false, span) => i % 8 * span as u64 + i / 8 * self.stride + k * self.bytes,
            (true, 0) => {
                i % per * self.bytes + i / per * self.stride + k % 8 * 16 + k / 8 * self.leading
            }
            (true, span) => {
                let wide = span as u64 / self.bytes;
                i % wide * self.bytes
                    + i / wide * self.leading
                    + k % 8 * span as u64
                    + k / 8 * self.stride
            }
        };
        swizzled(self.start + offset, self.span)
    }
}

impl Machine<'_> {
    pub(super) fn wgmma(&mut self, w: &mut Warp, mask: u32, p: &GroupMma) -> Res<Flow> {
        if mask != u32::MAX {
            return Ok(Flow::Park);
        }
        if !self.kernel.threads.is_multiple_of(128) {
            let text = "a warpgroup has four whole warps, and this block has others";
            return Err(Trouble::new(FaultKind::Invalid, text));
        }
        for slot in p.d.iter().chain(p.a_regs()) {
            if w.loose.contains(&slot.row()) {
                let text = "registers of this WGMMA were used since the last wgmma.fence";
                return Err(Trouble::new(FaultKind::Unfenced, text));
            }
        }
        let add = w.get(p.add, 0) & 1 == 1;
        let (a, b) = (if let GroupA::Shared(a) = &p.a { w.get(*a, 0) } else { 0 }, w.get(p.b, 0));
        let group = w.wgmma_commits;
        let mut begun = Begun { pc: self.pc, group, a, b, add, reads: Vec::new(), done: false };
        begun.reads = self.operand_ranges(w, p, &begun)?;
        for (at, bytes) in begun.reads.clone() {
            let copy = self.wgmma_clock(w, group + 1);
            self.leave_from(w, 0, w.block, (at, bytes), Use::Together, copy)?;
        }
        w.flying.extend(p.d.iter().chain(p.a_regs()).map(|s| s.row()));
        w.wgmmas.push(begun);
        if self.options.copies == Copies::Early {
            // It is executed now, and counts as in flight until it is waited for.
            let begun = w.wgmmas[w.wgmmas.len() - 1].clone();
            self.multiply(w, p, &begun)?;
        }
        Ok(Flow::Next)
    }

    /// The runs of 16 bytes that a warp's part reads.
    fn operand_ranges(&self, w: &Warp, p: &GroupMma, begun: &Begun) -> Res<Vec<(usize, usize)>> {
        let mut pieces = Vec::new();
        // Neighbours are mostly in the same 16 bytes.
        let mut add = |at: u64| {
            if pieces.last() != Some(&(at & !15)) {
                pieces.push(at & !15);
            }
        };
        let k = p.row.k as u64;
        if let GroupA::Shared(_) = p.a {
            let a = Matrix::new(begun.a, p.row.a, p.trans_a)?;
            let first = (w.index as u64 % 4) * 16;
            for (i, k) in (first..first + 16).flat_map(|i| (0..k).map(move |k| (i, k))) {
                add(a.at(i, k));
            }
        }
        let b = Matrix::new(begun.b, p.row.b, p.trans_b)?;
        for (i, k) in (0..p.row.n as u64).flat_map(|i| (0..k).map(move |k| (i, k))) {
            add(b.at(i, k));
        }
        pieces.sort_unstable();
        pieces.dedup();
        let mut out: Vec<(usize, usize)> = Vec::new();
        for at in pieces {
            match out.last_mut() {
                Some((from, bytes)) if *from + *bytes == at as usize => *bytes += 16,
                _ => out.push((at as usize, 16)),
            }
        }
        Ok(out)
    }

    pub(super) fn wgmma_wait(&mut self, w: &mut Warp, mask: u32, groups: u32) -> Res<Flow> {
        if mask != u32::MAX {
            return Ok(Flow::Park);
        }
        // A WGMMA belongs to four warps: it is executed when all of them have issued it, and then
        // for all.
        let below = w.wgmma_commits.saturating_sub(groups);
        let others = self.warpgroup_others(w);
        let late = |o: &usize| self.warps[*o].as_ref().is_some_and(|x| x.wgmma_commits < below);
        if others.iter().any(late) {
            return Ok(Flow::Hold);
        }
        let program = self.program;
        self.take_place(w, below)?;
        let mut done = Vec::new();
        for &o in &others {
            if let Some(mut other) = self.warps[o].take() {
                let made = self.take_place(&mut other, below);
                done.extend(other.wgmmas.iter().filter(|b| b.done).flat_map(|b| b.reads.clone()));
                self.warps[o] = Some(other);
                made?;
            }
        }
        let me = self.number(w);
        if let Some((agent, clock)) = self.wgmma_clock(w, below)
            && let Some(races) = &mut self.races
        {
            let mut known = vec![0; agent as usize + 1];
            known[agent as usize] = clock;
            races.learn(me, &known);
        }
        let (own, left): (Vec<Begun>, Vec<Begun>) =
            std::mem::take(&mut w.wgmmas).into_iter().partition(|b| b.group < below);
        w.wgmmas = left;
        done.extend(own.iter().flat_map(|b| b.reads.clone()));
        self.unleave(w.block, done);
        let flying: Vec<(usize, usize)> =
            w.wgmmas.iter().filter(|b| !b.done).flat_map(|b| b.reads.iter().copied()).collect();
        let state = &mut self.blocks[w.block].shared.state;
        for (at, bytes) in flying {
            state[at..at + bytes].iter_mut().for_each(|s| *s |= super::shared::LEAVING);
        }
        w.flying.clear();
        for begun in &w.wgmmas {
            if let Op::Wgmma(p) = &program.steps[begun.pc as usize].op {
                w.flying.extend(p.d.iter().chain(p.a_regs()).map(|s| s.row()));
            }
        }
        Ok(Flow::Next)
    }

    /// Executes the WGMMAs of a warp's first groups, if they have not been yet.
    fn take_place(&mut self, w: &mut Warp, below: u32) -> Res<()> {
        let program = self.program;
        for i in 0..w.wgmmas.len() {
            if w.wgmmas[i].done || w.wgmmas[i].group >= below {
                continue;
            }
            w.wgmmas[i].done = true;
            let begun = w.wgmmas[i].clone();
            if let Op::Wgmma(p) = &program.steps[begun.pc as usize].op
                && self.options.copies != Copies::Early
            {
                self.multiply(w, p, &begun)?;
            }
        }
        Ok(())
    }

    /// The other three warps of a warpgroup.
    fn warpgroup_others(&self, w: &Warp) -> Vec<usize> {
        let me = self.number(w);
        let first = me - w.index as usize % 4;
        (first..first + 4).filter(|&o| o != me && o < self.warps.len()).collect()
    }

    /// The clock that counts the completed WGMMAs of a warpgroup, and its value after `groups`
    /// groups.
    fn wgmma_clock(&mut self, w: &Warp, groups: u32) -> Option<(u32, u32)> {
        let group = self.number(w) / 4;
        let races = self.races.as_mut()?;
        let agent = match self.wgmma_agents.get(&group) {
            Some(&agent) => agent,
            None => {
                let agent = races.new_agent();
                self.wgmma_agents.insert(group, agent);
                agent
            }
        };
        Some((agent, groups))
    }

    fn multiply(&mut self, w: &mut Warp, p: &GroupMma, begun: &Begun) -> Res<()> {
        let (n, k) = (p.row.n as usize, p.row.k as usize);
        let first = (w.index as usize % 4) * 16;
        let data = &self.blocks[w.block].shared.data;
        let fetch = |at: u64, bytes: u64| {
            let mut word = [0; 8];
            word[..bytes as usize].copy_from_slice(&data[at as usize..(at + bytes) as usize]);
            u64::from_le_bytes(word)
        };
        let mut a = vec![0u64; 16 * k];
        match &p.a {
            GroupA::Shared(_) => {
                let m = Matrix::new(begun.a, p.row.a, p.trans_a)?;
                for (i, k_at) in (0..16).flat_map(|i| (0..k).map(move |x| (i, x))) {
                    a[i * k + k_at] = fetch(m.at((first + i) as u64, k_at as u64), m.bytes);
                }
            }
            GroupA::Regs(regs) => {
                let bits = p.row.a.bits();
                let per = (32 / bits) as usize;
                for (r, lane) in (0..4).flat_map(|r| (0..32).map(move |l| (r, l))) {
                    let word = w.get(regs[r], lane);
                    for i in 0..per {
                        let (row, x) =
                            (lane / 4 + 8 * (r % 2), r / 2 * 4 * per + lane % 4 * per + i);
                        a[row * k + x] = word >> (i as u32 * bits) & super::alu::mask(bits);
                    }
                }
            }
        }
        let m = Matrix::new(begun.b, p.row.b, p.trans_b)?;
        let b: Vec<u64> =
            (0..k * n).map(|at| fetch(m.at((at % n) as u64, (at / n) as u64), m.bytes)).collect();
        if p.row.c == Ty::S32 {
            sum_int(w, p, begun.add, &a, &b)
        } else {
            sum_float(w, p, begun.add, &a, &b)
        }
        Ok(())
    }
}

/// Calls `each` with row, column, lane, register and position in it of each accumulator element of
/// a warp.
fn places(p: &GroupMma, mut each: impl FnMut(usize, usize, usize, usize, usize)) {
    let halves = p.row.c == Ty::F16;
    for j in 0..p.row.n as usize / 8 {
        for lane in 0..32 {
            for i in 0..4 {
                let (r, part) = if halves { (2 * j + i / 2, i % 2) } else { (4 * j + i, 0) };
                each(lane / 4 + 8 * (i / 2), 8 * j + lane % 4 * 2 + i % 2, lane, r, part);
            }
        }
    }
}

/// `c += a b`, each element summed in the order of k by fused multiply-adds.
fn multiply_add(a: &[f32], b: &[f32], c: &mut [f32], n: usize, k: usize) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the processor has the instruction.
        return unsafe { multiply_add_fma(a, b, c, n, k) };
    }
    multiply_add_plainly(a, b, c, n, k);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma,avx")]
unsafe fn multiply_add_fma(a: &[f32], b: &[f32], c: &mut [f32], n: usize, k: usize) {
    multiply_add_plainly(a, b, c, n, k);
}

#[inline(always)]
fn multiply_add_plainly(a: &[f32], b: &[f32], c: &mut [f32], n: usize, k: usize) {
    for (a, c) in a.chunks(k).zip(c.chunks_mut(n)) {
        for (a, b) in a.iter().zip(b.chunks(n)) {
            c.iter_mut().zip(b).for_each(|(c, b)| *c = a.mul_add(*b, *c));
        }
    }
}

fn sum_float(w: &mut Warp, p: &GroupMma, add: bool, a: &[u64], b: &[u64]) {
    let (n, k) = (p.row.n as usize, p.row.k as usize);
    let sign = |negated: bool| if negated { -1.0 } else { 1.0 };
    let (sa, sb) = (sign(p.neg_a), sign(p.neg_b));
    let a: Vec<f32> = a.iter().map(|c| operand(p.row.a, *c) * sa).collect();
    let b: Vec<f32> = b.iter().map(|c| operand(p.row.b, *c) * sb).collect();
    let halves = p.row.c == Ty::F16;
    let mut c = vec![0f32; 16 * n];
    if add {
        places(p, |row, column, lane, r, part| {
            let word = w.get(p.d[r], lane);
            c[row * n + column] = match halves {
                true => operand(Ty::F16, word >> (16 * part) & 0xFFFF),
                false => f32::from_bits(word as u32),
            };
        });
    }
    multiply_add(&a, &b, &mut c, n, k);
    places(p, |row, column, lane, r, part| {
        let x = c[row * n + column];
        if halves {
            let code = super::float::code(Ty::F16, x as f64, Mode::Nearest);
            let old = w.get(p.d[r], lane) & !(0xFFFF << (16 * part));
            w.set(p.d[r], lane, old | code << (16 * part));
        } else {
            w.set(p.d[r], lane, if x.is_nan() { NAN_F32 } else { x.to_bits() } as u64);
        }
    });
}

fn sum_int(w: &mut Warp, p: &GroupMma, add: bool, a: &[u64], b: &[u64]) {
    let (n, k) = (p.row.n as usize, p.row.k as usize);
    let number = |ty: Ty, c: u64| if ty == Ty::S8 { c as i8 as i64 } else { c as i64 };
    places(p, |row, column, lane, r, _| {
        let start = if add { w.get(p.d[r], lane) as i32 as i64 } else { 0 };
        let sum = (0..k).fold(start, |s, x| {
            s + number(p.row.a, a[row * k + x]) * number(p.row.b, b[x * n + column])
        });
        let sum = if p.row.sat { sum.clamp(i32::MIN as i64, i32::MAX as i64) } else { sum };
        w.set(p.d[r], lane, sum as u32 as u64);
    });
}

impl GroupMma {
    fn a_regs(&self) -> impl Iterator<Item = &Slot> {
        match &self.a {
            GroupA::Regs(regs) => regs.iter(),
            GroupA::Shared(_) => [].iter(),
        }
    }
}
