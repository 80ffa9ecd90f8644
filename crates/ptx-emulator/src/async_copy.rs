//! Asynchronous bulk copies (`cp.async.bulk`, TMA, `st.async`): byte runs and tensor boxes, between
//! global and shared memory and between blocks of a cluster.
//!
//! When a copy that an mbarrier counts lands is chosen by `Options::copies`: immediately, at
//! random, or as late as possible, which is when no warp can go on without it. A copy of a bulk
//! group lands when it is waited for. While it is in flight its destination may not be accessed,
//! and its source not be written.

use super::atomic;
use super::fault::{FaultKind, Res, Trouble};
use super::machine::{Copies, Machine};
use super::program::{Bulk, Slot, Where};
use super::races::Use;
use super::shared::{ARRIVING, LEAVING, UNFENCED, WRITTEN};
use super::tensor::TensorMap;
use super::warp::{Warp, lanes};
use tessera_numerics::DType;
use tessera_ptx::inst::{AtomOp, Round, Space, Ty};

/// A byte run between a shared offset and global memory; zeros where there is no address.
pub(super) type Piece = (u64, Option<u64>, u32);

#[derive(Clone, Debug)]
enum Work {
    /// Into the shared memory of blocks, counted by an mbarrier of each.
    Load { blocks: Vec<usize>, pieces: Vec<Piece>, bar: usize, bytes: u32, tf32: bool },
    /// From shared memory, in a bulk group of the thread.
    Store { block: usize, pieces: Vec<Piece>, reduce: Option<(AtomOp, Ty)> },
    /// From a block's shared memory into another's.
    Send { from: (usize, usize), to: (usize, usize), bytes: u32, bar: usize },
    /// Values from registers into another block's shared memory.
    Put { to: (usize, usize), data: Vec<u8>, bar: usize, reduce: Option<(AtomOp, Ty)> },
    /// An arrival once the thread's own `cp.async` copies have landed.
    Arrive { bar: (usize, usize), copies: Vec<super::copy::Pending> },
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    warp: usize,
    lane: usize,
    pc: u32,
    /// How many groups the lane had committed before.
    group: u32,
    clock: Vec<u32>,
    work: Work,
}

impl Job {
    /// Whether an mbarrier waits for it, rather than its own thread.
    fn counted(&self) -> bool {
        !matches!(self.work, Work::Store { .. })
    }
}

fn wrong(text: impl Into<String>) -> Box<Trouble> {
    Trouble::new(FaultKind::Invalid, text)
}

impl Machine<'_> {
    pub(super) fn bulk(&mut self, w: &mut Warp, mask: u32, bulk: &Bulk) -> Res<()> {
        for lane in lanes(mask) {
            self.bulk_lane(w, lane, mask, bulk).map_err(|t| t.lane(lane))?;
        }
        Ok(())
    }

    fn bulk_lane(&mut self, w: &mut Warp, lane: usize, mask: u32, bulk: &Bulk) -> Res<()> {
        let value = |s: Slot| w.get(s, lane);
        let work = match bulk {
            Bulk::Load { dst, src, bytes, bar, multicast } => {
                let (src, bytes) = (w.address(*src, lane), value(*bytes));
                let (dst, bar) = (self.own_at(w, lane, *dst, 16)?, self.own_at(w, lane, *bar, 8)?);
                self.check_run(src, bytes, false)?;
                let blocks = self.targets(w, multicast.map(value))?;
                let pieces = vec![(dst as u64, Some(src), bytes as u32)];
                Work::Load { blocks, pieces, bar, bytes: bytes as u32, tf32: false }
            }
            Bulk::TensorLoad { dst, map, coords, bar, multicast } => {
                let (map, coords) = self.tensor(w, lane, *map, coords)?;
                let (dst, bar) = (self.own_at(w, lane, *dst, 128)?, self.own_at(w, lane, *bar, 8)?);
                let blocks = self.targets(w, multicast.map(value))?;
                let pieces = map.pieces(&coords, dst as u64);
                self.check_pieces(&pieces, false)?;
                let tf32 = map.dtype == DType::Tf32;
                Work::Load { blocks, pieces, bar, bytes: map.bytes(), tf32 }
            }
            Bulk::Store { dst, src, bytes, reduce } => {
                let (dst, bytes) = (w.address(*dst, lane), value(*bytes));
                let src = self.own_at(w, lane, *src, 16)?;
                self.check_run(dst, bytes, true)?;
                let pieces = vec![(src as u64, Some(dst), bytes as u32)];
                Work::Store { block: w.block, pieces, reduce: *reduce }
            }
            Bulk::TensorStore { map, coords, src, reduce } => {
                let (map, coords) = self.tensor(w, lane, *map, coords)?;
                let src = self.own_at(w, lane, *src, 128)?;
                let pieces = map.pieces(&coords, src as u64);
                self.check_pieces(&pieces, true)?;
                let reduce = match reduce {
                    Some(op) => Some((*op, reduced_type(*op, map.dtype)?)),
                    None => None,
                };
                Work::Store { block: w.block, pieces, reduce }
            }
            Bulk::Send { dst, src, bytes, bar } => {
                let bytes = value(*bytes);
                let from = (w.block, self.own_at(w, lane, *src, 16)?);
                let to = self.cluster_at(w, lane, *dst, 16)?;
                let bar = self.cluster_at(w, lane, *bar, 8)?;
                if bytes == 0 || !bytes.is_multiple_of(16) || to.0 != bar.0 {
                    return Err(wrong(
                        "a copy between blocks has whole 16 bytes and its barrier where it goes",
                    ));
                }
                Work::Send { from, to, bytes: bytes as u32, bar: bar.1 }
            }
            Bulk::Put { addr, a, bytes, bar, reduce } => {
                let whole = *bytes as u64 * a.len() as u64;
                let to = self.cluster_at(w, lane, *addr, whole)?;
                let bar = self.cluster_at(w, lane, *bar, 8)?;
                if to.0 != bar.0 {
                    return Err(wrong("a store to another block has its barrier there too"));
                }
                let data =
                    a.iter().flat_map(|s| value(*s).to_le_bytes()[..*bytes as usize].to_vec());
                Work::Put { to, data: data.collect(), bar: bar.1, reduce: *reduce }
            }
            Bulk::CopyArrive { bar } => {
                let at = self.own_at(w, lane, *bar, 8)?;
                let (mine, rest) = std::mem::take(&mut w.copies)
                    .into_iter()
                    .partition(|c: &super::copy::Pending| c.is_of(lane));
                w.copies = rest;
                Work::Arrive { bar: (w.block, at), copies: mine }
            }
        };
        self.begin_job(w, lane, mask, work)
    }

    /// An offset in the own block.
    fn own_at(&self, w: &Warp, lane: usize, at: Where, align: u64) -> Res<usize> {
        let offset = self.own(w, w.address(at, lane), at.base.is_some())?;
        self.aligned(w.block, offset, align)
    }

    fn cluster_at(&self, w: &Warp, lane: usize, at: Where, align: u64) -> Res<(usize, usize)> {
        let address = w.address(at, lane);
        let (block, offset) = self.find(w, address, Space::SharedCluster, at.base.is_some())?;
        Ok((block, self.aligned(block, offset, align)?))
    }

    fn aligned(&self, block: usize, offset: u64, align: u64) -> Res<usize> {
        if !offset.is_multiple_of(align) {
            let text = format!("shared address {offset:#x} is not a multiple of {align}");
            return Err(Trouble::new(FaultKind::Misaligned, text).address(offset));
        }
        self.blocks[block].shared.place(offset, 1)
    }

    fn check_run(&self, address: u64, bytes: u64, write: bool) -> Res<()> {
        if bytes == 0 || !bytes.is_multiple_of(16) || !address.is_multiple_of(16) {
            let text = format!(
                "{bytes} bytes at {address:#x}: a bulk copy has whole 16 bytes at a multiple of 16"
            );
            return Err(Trouble::new(FaultKind::Misaligned, text).address(address));
        }
        self.memory.check_run(address, bytes, write)
    }

    fn check_pieces(&self, pieces: &[Piece], write: bool) -> Res<()> {
        for (_, address, bytes) in pieces {
            if let Some(address) = address {
                self.memory.check_run(*address, *bytes as u64, write)?;
            }
        }
        Ok(())
    }

    fn tensor(
        &self,
        w: &Warp,
        lane: usize,
        map: Slot,
        coords: &[Slot],
    ) -> Res<(TensorMap, Vec<i64>)> {
        let map = TensorMap::read(self.params, self.memory, w.get(map, lane))?;
        map.check(coords.len()).map_err(wrong)?;
        let coords = coords.iter().map(|c| w.get(*c, lane) as i32 as i64).collect();
        Ok((map, coords))
    }

    /// The destination blocks of a copy.
    fn targets(&self, w: &Warp, multicast: Option<u64>) -> Res<Vec<usize>> {
        let Some(set) = multicast else { return Ok(vec![w.block]) };
        let set = set as u16;
        let blocks: Vec<usize> = (0..16).filter(|b| set >> b & 1 == 1).collect();
        if blocks.is_empty() || blocks.iter().any(|b| *b >= self.blocks.len()) {
            let n = self.blocks.len();
            return Err(wrong(format!("a copy to the blocks {set:#06x} of a cluster of {n}")));
        }
        if let Some(b) = blocks.iter().find(|b| self.blocks[**b].live == 0) {
            return Err(wrong(format!("a copy to block {b} of the cluster, which has ended")));
        }
        Ok(blocks)
    }

    fn begin_job(&mut self, w: &mut Warp, lane: usize, mask: u32, work: Work) -> Res<()> {
        let me = self.number(w);
        let mut clock = Vec::new();
        self.mark(w, lane, &work, &mut clock)?;
        if let Some(races) = &mut self.races {
            races.publish_lanes(me, mask, &mut clock);
        }
        let group = w.bulk_commits[lane];
        let job = Job { warp: me, lane, pc: self.pc, group, clock, work };
        let now = match self.options.copies {
            Copies::Early => true,
            Copies::Late => false,
            Copies::Random => self.random() & 3 == 0,
        };
        if now && !matches!(job.work, Work::Store { .. }) {
            return self.land(&job);
        }
        self.jobs.push(job);
        Ok(())
    }

    /// Checks the source and destination bytes of a copy, and marks them as in flight.
    fn mark(&mut self, w: &Warp, lane: usize, work: &Work, clock: &mut Vec<u32>) -> Res<()> {
        match work {
            Work::Load { blocks, pieces, bar, .. } => {
                for &block in blocks {
                    let copy = self.counted(block, *bar, clock)?;
                    let written = pieces.iter().map(|(at, _, n)| (*at as usize, *n as usize));
                    for run in runs(written.collect()) {
                        self.claim(w, lane, block, run, copy)?;
                    }
                }
            }
            Work::Store { block, pieces, .. } => {
                for (at, to, bytes) in pieces {
                    if to.is_some() {
                        let run = (*at as usize, *bytes as usize);
                        self.leave_from(w, lane, *block, run, Use::Read, None)?;
                    }
                }
            }
            Work::Send { from, to, bytes, bar } => {
                let run = (from.1, *bytes as usize);
                self.leave_from(w, lane, from.0, run, Use::Read, None)?;
                let copy = self.counted(to.0, *bar, clock)?;
                self.claim(w, lane, to.0, (to.1, *bytes as usize), copy)?;
            }
            Work::Put { to, data, reduce: None, bar } => {
                let copy = self.counted(to.0, *bar, clock)?;
                self.claim(w, lane, to.0, (to.1, data.len()), copy)?;
            }
            Work::Put { .. } => {}
            Work::Arrive { copies, bar } => {
                let copy = self.counted(bar.0, bar.1, clock)?;
                for range in copies.iter().map(|c| c.range()) {
                    self.used_slowly(w, lane, w.block, range, Use::Write, copy)?;
                }
            }
        }
        Ok(())
    }

    /// The clock of a copy that an mbarrier counts; the mbarrier must exist.
    fn counted(&mut self, block: usize, bar: usize, to: &mut Vec<u32>) -> Res<Option<(u32, u32)>> {
        let agent = self.bar_at(block, bar)?.agent;
        Ok(self.races.as_mut().map(|r| (agent, r.begin_copy(agent, to))))
    }

    fn claim(
        &mut self,
        w: &Warp,
        lane: usize,
        block: usize,
        (at, bytes): (usize, usize),
        copy: Option<(u32, u32)>,
    ) -> Res<()> {
        let shared = &mut self.blocks[block].shared;
        shared.inside(at, bytes)?;
        shared.writable(at, bytes)?;
        shared.state[at..at + bytes].iter_mut().for_each(|s| *s |= ARRIVING);
        self.used_slowly(w, lane, block, (at, bytes), Use::Write, copy)
    }

    /// Marks bytes that an asynchronous copy reads: they must be written, and visible to the async
    /// proxy.
    pub(super) fn leave_from(
        &mut self,
        w: &Warp,
        lane: usize,
        block: usize,
        (at, bytes): (usize, usize),
        how: Use,
        copy: Option<(u32, u32)>,
    ) -> Res<()> {
        let shared = &mut self.blocks[block].shared;
        shared.inside(at, bytes)?;
        shared.readable(at, bytes)?;
        if let Some(i) = shared.state[at..at + bytes].iter().position(|s| s & UNFENCED != 0) {
            let text = format!(
                "an asynchronous copy reads shared byte {:#x}, and its writer has executed no fence.proxy.async since",
                at + i
            );
            return Err(Trouble::new(FaultKind::Unfenced, text).address((at + i) as u64));
        }
        shared.state[at..at + bytes].iter_mut().for_each(|s| *s |= LEAVING);
        self.used_slowly(w, lane, block, (at, bytes), how, copy)
    }

    /// Lets one copy that an mbarrier waits for land; false if there is none.
    pub(super) fn land_something(&mut self) -> Res<bool> {
        let waiting: Vec<usize> =
            (0..self.jobs.len()).filter(|i| self.jobs[*i].counted()).collect();
        if waiting.is_empty() {
            return Ok(false);
        }
        let pick = if self.options.seed == 0 { 0 } else { self.random() as usize % waiting.len() };
        let job = self.jobs.remove(waiting[pick]);
        self.land(&job)?;
        Ok(true)
    }

    /// Waits until at most `groups` of a lane's bulk groups are in flight.
    pub(super) fn bulk_wait(&mut self, w: &mut Warp, mask: u32, groups: u32) -> Res<()> {
        let me = self.number(w);
        let mut i = 0;
        while i < self.jobs.len() {
            let job = &self.jobs[i];
            let mine = job.warp == me && mask >> job.lane & 1 == 1 && !job.counted();
            if mine && job.group + groups < w.bulk_commits[job.lane] {
                let job = self.jobs.remove(i);
                self.land(&job)?;
            } else {
                i += 1;
            }
        }
        Ok(())
    }

    fn land(&mut self, job: &Job) -> Res<()> {
        let here = std::mem::replace(&mut self.pc, job.pc);
        self.land_work(job).map_err(|t| t.lane(job.lane))?;
        self.pc = here;
        Ok(())
    }

    fn land_work(&mut self, job: &Job) -> Res<()> {
        match &job.work {
            Work::Load { blocks, pieces, bar, bytes, tf32 } => {
                for &block in blocks {
                    for (at, from, bytes) in pieces {
                        let (at, bytes) = (*at as usize, *bytes as usize);
                        let mut data: Vec<u8> = match from {
                            Some(a) => {
                                (0..bytes as u64).map(|i| self.memory.read::<1>(a + i)[0]).collect()
                            }
                            None => vec![0; bytes],
                        };
                        if *tf32 {
                            round_words(&mut data);
                        }
                        self.blocks[block].shared.arrive(at, &data);
                    }
                    self.bar_complete(block, *bar, *bytes as i64, &job.clock)?;
                }
            }
            Work::Store { block, pieces, reduce } => {
                for (at, to, bytes) in pieces {
                    let Some(to) = to else { continue };
                    let at = *at as usize;
                    let data = self.blocks[*block].shared.data[at..at + *bytes as usize].to_vec();
                    self.write_out(*to, &data, *reduce);
                }
                self.unleave(*block, pieces.iter().map(|(at, _, n)| (*at as usize, *n as usize)));
            }
            Work::Send { from, to, bytes, bar } => {
                let n = *bytes as usize;
                let data = self.blocks[from.0].shared.data[from.1..from.1 + n].to_vec();
                self.blocks[to.0].shared.arrive(to.1, &data);
                self.unleave(from.0, [(from.1, n)]);
                self.bar_complete(to.0, *bar, *bytes as i64, &job.clock)?;
            }
            Work::Put { to, data, bar, reduce } => {
                let shared = &mut self.blocks[to.0].shared;
                match reduce {
                    None => shared.arrive(to.1, data),
                    Some((op, ty)) => {
                        let n = ty.bits() / 8;
                        shared.readable(to.1, n as usize)?;
                        let mut word = [0; 8];
                        word[..data.len()].copy_from_slice(data);
                        let old = shared.load(to.1, n);
                        let new = atomic::apply(*op, *ty, false, old, u64::from_le_bytes(word), 0);
                        shared.store(to.1, n, new);
                    }
                }
                self.bar_complete(to.0, *bar, data.len() as i64, &job.clock)?;
            }
            Work::Arrive { bar, copies } => {
                for c in copies {
                    self.land_copy(bar.0, c);
                }
                self.bar_arrive(bar.0, bar.1, 1, &job.clock)?;
            }
        }
        Ok(())
    }

    fn write_out(&self, to: u64, data: &[u8], reduce: Option<(AtomOp, Ty)>) {
        let Some((op, ty)) = reduce else {
            data.iter().enumerate().for_each(|(i, b)| self.memory.write(to + i as u64, [*b]));
            return;
        };
        let n = (ty.bits() / 8) as usize;
        for (i, piece) in data.chunks_exact(n).enumerate() {
            let at = to + (i * n) as u64;
            let mut word = [0; 8];
            word[..n].copy_from_slice(piece);
            let mut old = [0; 8];
            (0..n).for_each(|j| old[j] = self.memory.read::<1>(at + j as u64)[0]);
            let new =
                atomic::apply(op, ty, false, u64::from_le_bytes(old), u64::from_le_bytes(word), 0);
            new.to_le_bytes()[..n].iter().enumerate().for_each(|(j, b)| {
                self.memory.write(at + j as u64, [*b]);
            });
        }
    }

    /// Clears the mark of bytes that a copy read, unless another copy still reads them.
    pub(super) fn unleave(
        &mut self,
        block: usize,
        ranges: impl IntoIterator<Item = (usize, usize)>,
    ) {
        let shared = &mut self.blocks[block].shared;
        for (at, bytes) in ranges {
            shared.state[at..at + bytes].iter_mut().for_each(|s| *s &= !LEAVING);
        }
        let mut still: Vec<(usize, usize)> = Vec::new();
        for job in &self.jobs {
            match &job.work {
                Work::Store { block: b, pieces, .. } if *b == block => {
                    let real = pieces.iter().filter(|p| p.1.is_some());
                    still.extend(real.map(|(at, _, n)| (*at as usize, *n as usize)));
                }
                Work::Send { from, bytes, .. } if from.0 == block => {
                    still.push((from.1, *bytes as usize));
                }
                _ => {}
            }
        }
        for w in self.warps.iter().flatten().filter(|w| w.block == block) {
            let flying = w.wgmmas.iter().filter(|p| !p.done);
            still.extend(flying.flat_map(|p| p.reads.iter().copied()));
        }
        for (at, bytes) in still {
            shared.state[at..at + bytes].iter_mut().for_each(|s| *s |= LEAVING);
        }
    }

    /// `fence.proxy.async`: the threads' writes to shared memory become visible to the async proxy.
    pub(super) fn fence_proxy(&mut self, w: &mut Warp, mask: u32) {
        let mut kept = Vec::new();
        for (lane, block, at, bytes) in std::mem::take(&mut w.unfenced) {
            if mask >> lane & 1 == 0 {
                kept.push((lane, block, at, bytes));
                continue;
            }
            let state = &mut self.blocks[block as usize].shared.state;
            let at = at as usize;
            state[at..at + bytes as usize].iter_mut().for_each(|s| *s &= !UNFENCED);
        }
        w.unfenced = kept;
    }

    /// Records a thread's write for the async proxy, if the kernel has asynchronous readers.
    #[inline(always)]
    pub(super) fn wrote(
        &mut self,
        w: &mut Warp,
        lane: usize,
        block: usize,
        at: usize,
        bytes: usize,
    ) {
        if self.program.async_copies {
            let state = &mut self.blocks[block].shared.state;
            state[at..at + bytes].iter_mut().for_each(|s| *s |= UNFENCED);
            w.unfenced.push((lane as u8, block as u8, at as u32, bytes as u32));
        }
    }

    /// At the end of a cluster: no copy may be in flight.
    pub(super) fn check_jobs(&self) -> Result<(), (usize, Box<Trouble>)> {
        let Some(job) = self.jobs.first() else { return Ok(()) };
        let text = "the block ended before this copy was waited for";
        Err((job.warp, Trouble::new(FaultKind::InFlight, text).lane(job.lane)))
    }

    pub(super) fn job_pc(&self) -> u32 {
        self.jobs.first().map_or(0, |j| j.pc)
    }
}

/// Bytes as longer runs. Where an array ends inside a word, what is read and the zeros behind it are
/// pieces of one copy, and not two accesses of the word.
fn runs(mut pieces: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    pieces.sort_unstable();
    let mut out: Vec<(usize, usize)> = Vec::new();
    for (at, bytes) in pieces {
        match out.last_mut() {
            Some((begin, length)) if *begin + *length == at => *length += bytes,
            _ => out.push((at, bytes)),
        }
    }
    out
}

/// How TMA reads the elements that it reduces into a tensor.
#[deny(clippy::wildcard_enum_match_arm)]
fn reduced_type(op: AtomOp, dtype: DType) -> Res<Ty> {
    use DType::*;
    let ty = match dtype {
        F16 => Ty::F16,
        BF16 => Ty::BF16,
        F32 => Ty::F32,
        F64 => Ty::F64,
        I32 => Ty::S32,
        U32 => Ty::U32,
        I64 => Ty::S64,
        U64 => Ty::U64,
        Bool | I4 | I8 | I16 | U8 | U16 | Tf32 | Fp8E4M3 | Fp8E5M2 | Fp6E3M2 | Fp6E2M3
        | Fp4E2M1 | E8M0 => return Err(wrong(format!("TMA does not reduce {dtype} by {op:?}"))),
    };
    if atomic::exists(op, ty) {
        Ok(ty)
    } else {
        Err(wrong(format!("TMA does not reduce {dtype} by {op:?}")))
    }
}

impl super::shared::Shared {
    /// Bytes of a copy land.
    pub(super) fn arrive(&mut self, at: usize, data: &[u8]) {
        self.data[at..at + data.len()].copy_from_slice(data);
        let state = &mut self.state[at..at + data.len()];
        state.iter_mut().for_each(|s| *s = *s & !(ARRIVING | UNFENCED) | WRITTEN);
    }
}

/// TMA rounds tf32 elements to nearest even, and NaN to a canonical one.
fn round_words(data: &mut [u8]) {
    for word in data.chunks_exact_mut(4) {
        let x = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        word.copy_from_slice(&super::cvt::tf32(x, Some(Round::Rn)).to_le_bytes());
    }
}
