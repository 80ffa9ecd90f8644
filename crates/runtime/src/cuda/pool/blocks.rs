//! A stream-ordered caching allocator. Blocks come from a [`Memory`] and are kept when they are
//! freed. A freed block is reused immediately on the stream it was allocated on, whose work runs in
//! order; on another stream only when the work that may touch it is complete. No stream ever waits
//! for another because of the pool.

use crate::cuda::error::CudaError;
use crate::cuda::stream::{StreamKey, StreamRef};
use std::collections::BTreeMap;
use tessera_diag::{Code, Diagnostic};
use tessera_support::ForkLock;
use tessera_target::device::{MemoryInfo, PoolStats};

/// Where blocks come from.
pub(crate) trait Memory {
    /// A point in a stream's work.
    type Mark;
    fn allocate(&self, bytes: u64) -> Result<u64, CudaError>;
    fn release(&self, address: u64);
    /// Records a mark after the stream's work so far.
    fn mark(&self, stream: StreamRef) -> Result<Self::Mark, CudaError>;
    fn is_past(&self, mark: &Self::Mark) -> bool;
    /// Waits for all work of a stream. No, where it cannot be waited for now.
    fn settle(&self, stream: StreamRef) -> Result<bool, CudaError>;
    fn room(&self) -> Option<MemoryInfo>;
}

/// The least that is allocated, and the step between small sizes.
const SMALL: u64 = 512;
/// From here on sizes are not classes of powers of two: too much would be lost.
const LARGE: u64 = 1 << 20;
/// The driver maps memory in pieces of this size.
const GRAIN: u64 = 2 << 20;
/// How many free blocks are looked at for one request.
const LOOKS: usize = 16;

pub(crate) struct Blocks<M: Memory> {
    pub memory: M,
    /// The device's name in messages.
    device: String,
    state: ForkLock<PoolState<M::Mark>>,
}

struct PoolState<T> {
    free: BTreeMap<u64, Vec<Free<T>>>,
    stats: PoolStats,
}

impl<T> Default for PoolState<T> {
    fn default() -> Self {
        Self { free: BTreeMap::new(), stats: PoolStats::default() }
    }
}

/// A block in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub address: u64,
    pub bytes: u64,
    home: StreamRef,
    key: StreamKey,
}

struct Free<T> {
    block: Block,
    /// Streams besides its own that used it, each with a mark made when it was freed; `None` where
    /// none could be made.
    uses: Vec<(StreamRef, Option<T>)>,
    /// A mark on its own stream, made at the first request of another stream.
    left: Option<T>,
}

impl<M: Memory> Blocks<M> {
    pub fn new(memory: M, device: String) -> Self {
        Self { memory, device, state: ForkLock::default() }
    }

    pub fn take(&self, bytes: u64, stream: StreamRef) -> Result<Block, CudaError> {
        let size = class(bytes);
        if let Some(block) = self.find(size, stream) {
            return Ok(block);
        }
        let address = match self.memory.allocate(size) {
            Err(error) if error.is_out_of_memory() => {
                self.trim()?;
                let again = self.memory.allocate(size);
                again.map_err(|error| self.explain(bytes, error))?
            }
            other => other?,
        };
        let stats = &mut self.state.lock().stats;
        stats.allocated += 1;
        stats.held += size;
        use_more(stats, size);
        Ok(Block { address, bytes: size, home: stream, key: stream.key() })
    }

    fn find(&self, size: u64, stream: StreamRef) -> Option<Block> {
        let mut state = self.state.lock();
        let (key, mut looks) = (stream.key(), LOOKS);
        let most = if size >= LARGE { size.saturating_add(size / 8) } else { size };
        let mut found = None;
        'sizes: for (&bytes, list) in state.free.range_mut(size..=most) {
            // What was freed last is likeliest to be in the caches.
            for at in (0..list.len()).rev() {
                if self.is_usable(&mut list[at], key) {
                    found = Some((bytes, at));
                    break 'sizes;
                }
                looks -= 1;
                if looks == 0 {
                    break 'sizes;
                }
            }
        }
        let (bytes, at) = found?;
        let list = state.free.get_mut(&bytes)?;
        let mut block = list.swap_remove(at).block;
        // There are few small sizes, and small blocks come and go with every call.
        if list.is_empty() && bytes >= LARGE {
            state.free.remove(&bytes);
        }
        (block.home, block.key) = (stream, key);
        state.stats.reused += 1;
        state.stats.free_blocks -= 1;
        use_more(&mut state.stats, bytes);
        Some(block)
    }

    fn is_usable(&self, free: &mut Free<M::Mark>, key: StreamKey) -> bool {
        let past = |mark: &Option<M::Mark>| mark.as_ref().is_some_and(|m| self.memory.is_past(m));
        free.uses.retain(|(_, mark)| !past(mark));
        if !free.uses.is_empty() {
            return false;
        }
        if free.block.key == key {
            return true;
        }
        // A thread's default stream is another one on every thread, and cannot be marked here.
        if free.left.is_none() && free.block.home != StreamRef::PER_THREAD {
            free.left = self.memory.mark(free.block.home).ok();
        }
        past(&free.left)
    }

    /// Takes a block back. `others` are the streams besides its own that have used it.
    pub fn give(&self, block: Block, others: &[StreamRef]) {
        let marked = |&stream| (stream, self.memory.mark(stream).ok());
        let uses = others.iter().filter(|s| s.key() != block.key).map(marked).collect();
        let mut state = self.state.lock();
        state.stats.in_use -= block.bytes;
        state.stats.free_blocks += 1;
        let list = state.free.entry(block.bytes).or_default();
        list.push(Free { block, uses, left: None });
    }

    /// Gives what is not in use back to the device, after the work that may touch it. Gives the
    /// bytes.
    pub fn trim(&self) -> Result<u64, CudaError> {
        let mut blocks = {
            let mut state = self.state.lock();
            std::mem::take(&mut state.free).into_values().flatten().collect::<Vec<_>>()
        };
        let mut settled = BTreeMap::new();
        let mut error = None;
        let mut freed = (0, 0);
        blocks.retain(|free| {
            let streams = free.uses.iter().map(|(stream, _)| stream).chain([&free.block.home]);
            let over = streams.fold(true, |over, &stream| {
                let done = settled.entry(stream).or_insert_with(|| {
                    // After an error nothing more is waited for.
                    let done = if error.is_none() { self.memory.settle(stream) } else { Ok(false) };
                    done.unwrap_or_else(|e| {
                        error = Some(e);
                        false
                    })
                });
                over & *done
            });
            if over {
                self.memory.release(free.block.address);
                freed = (freed.0 + 1, freed.1 + free.block.bytes);
            }
            !over
        });
        let mut state = self.state.lock();
        for free in blocks {
            state.free.entry(free.block.bytes).or_default().push(free);
        }
        state.stats.free_blocks -= freed.0;
        state.stats.held -= freed.1;
        error.map_or(Ok(freed.1), Err)
    }

    pub fn stats(&self) -> PoolStats {
        self.state.lock().stats
    }

    fn explain(&self, bytes: u64, error: CudaError) -> CudaError {
        if !error.is_out_of_memory() {
            return error;
        }
        let PoolStats { held, in_use, peak, .. } = self.stats();
        let message = format!("memory ran out on {}: {} were requested", self.device, show(bytes));
        let mut diagnostic = Diagnostic::new(Code::E_OOM, message)
            .note(format!("Tessera holds {}, of which {} are in use", show(held), show(in_use)))
            .note(format!("the most it had in use was {}", show(peak)));
        if let Some(MemoryInfo { free, total }) = self.memory.room() {
            diagnostic.notes.push(format!("the device has {} free of {}", show(free), show(total)));
        }
        let help = "let go of arrays that are not needed; other libraries keep memory too (`torch.cuda.empty_cache()`)";
        let mut oom = CudaError::refused(diagnostic.help(help));
        oom.result = error.result;
        oom
    }
}

fn use_more(stats: &mut PoolStats, bytes: u64) {
    stats.in_use += bytes;
    stats.peak = stats.peak.max(stats.in_use);
}

/// The size that is allocated for a request: steps of an eighth to a quarter for small ones.
fn class(bytes: u64) -> u64 {
    let step = match bytes {
        LARGE.. => GRAIN,
        _ => (bytes.max(1).next_power_of_two() / 8).max(SMALL),
    };
    // Nothing is as large as what does not fit, and the driver will say so.
    bytes.max(1).checked_next_multiple_of(step).unwrap_or(u64::MAX - u64::MAX % GRAIN)
}

/// Exact, and readable.
fn show(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut size = bytes as f64 / 1024.0;
    if size < 1.0 {
        return format!("{bytes} bytes");
    }
    let mut unit = 0;
    while size >= 1024.0 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{bytes} bytes ({size:.1} {})", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;

    const A: StreamRef = stream(4096);
    const B: StreamRef = stream(8192);

    const fn stream(raw: u64) -> StreamRef {
        // SAFETY: it is never passed to a driver.
        unsafe { StreamRef::from_raw(raw) }
    }

    /// Memory of limited capacity, with a clock that the test moves: a mark is past when it is
    /// older.
    #[derive(Default)]
    struct Fake {
        capacity: u64,
        used: Cell<u64>,
        live: RefCell<BTreeMap<u64, u64>>,
        next: Cell<u64>,
        marks: Cell<u64>,
        past: Cell<u64>,
        /// Streams that cannot be marked or waited for.
        busy: RefCell<BTreeSet<StreamRef>>,
        settled: Cell<u64>,
        broken: Cell<bool>,
    }

    fn failure(result: u32) -> CudaError {
        crate::cuda::api::Failure { call: "cuMemAlloc_v2", result }.into()
    }

    impl Memory for Fake {
        type Mark = u64;
        fn allocate(&self, bytes: u64) -> Result<u64, CudaError> {
            if self.used.get().checked_add(bytes).is_none_or(|all| all > self.capacity) {
                return Err(failure(2));
            }
            self.used.set(self.used.get() + bytes);
            self.next.set(self.next.get() + 1);
            self.live.borrow_mut().insert(self.next.get(), bytes);
            Ok(self.next.get())
        }
        fn release(&self, address: u64) {
            let bytes = self.live.borrow_mut().remove(&address).expect("freed once");
            self.used.set(self.used.get() - bytes);
        }
        fn mark(&self, stream: StreamRef) -> Result<u64, CudaError> {
            if self.busy.borrow().contains(&stream) {
                return Err(failure(900));
            }
            self.marks.set(self.marks.get() + 1);
            Ok(self.marks.get())
        }
        fn is_past(&self, mark: &u64) -> bool {
            *mark <= self.past.get()
        }
        fn settle(&self, stream: StreamRef) -> Result<bool, CudaError> {
            self.settled.set(self.settled.get() + 1);
            if self.broken.get() {
                return Err(failure(700));
            }
            Ok(!self.busy.borrow().contains(&stream))
        }
        fn room(&self) -> Option<MemoryInfo> {
            Some(MemoryInfo { free: self.capacity - self.used.get(), total: self.capacity })
        }
    }

    fn pool(capacity: u64) -> Blocks<Fake> {
        Blocks::new(Fake { capacity, ..Fake::default() }, "cuda:0".into())
    }

    #[test]
    fn a_block_is_reused_immediately_on_its_own_stream() {
        let pool = pool(1 << 30);
        let first = pool.take(1000, A).unwrap();
        let address = first.address;
        pool.give(first, &[]);
        assert_eq!(pool.take(900, A).unwrap().address, address);
        assert_eq!(pool.memory.marks.get(), 0);
        let stats = pool.stats();
        assert_eq!((stats.held, stats.in_use, stats.allocated, stats.reused), (1024, 1024, 1, 1));
    }

    #[test]
    fn another_stream_gets_it_when_the_work_before_is_over() {
        let pool = pool(1 << 30);
        let block = pool.take(1000, A).unwrap();
        let address = block.address;
        pool.give(block, &[]);
        let other = pool.take(1000, B).unwrap();
        assert_ne!(other.address, address);
        // It was marked at the first request of B, and B gets it once the mark is past.
        assert_eq!(pool.memory.marks.get(), 1);
        pool.memory.past.set(1);
        assert_eq!(pool.take(1000, B).unwrap().address, address);
        assert_eq!(pool.memory.marks.get(), 1);
    }

    #[test]
    fn a_block_that_other_streams_used_waits_for_them_even_on_its_own() {
        let pool = pool(1 << 30);
        let block = pool.take(1000, A).unwrap();
        let address = block.address;
        pool.give(block, &[B, A, B]);
        assert_eq!(pool.memory.marks.get(), 2);
        let fresh = pool.take(1000, A).unwrap();
        assert_ne!(fresh.address, address);
        pool.memory.past.set(2);
        assert_eq!(pool.take(1000, A).unwrap().address, address);
    }

    #[test]
    fn what_cannot_be_marked_is_not_used_again_before_a_trim() {
        let pool = pool(1 << 30);
        let block = pool.take(1000, A).unwrap();
        let address = block.address;
        pool.memory.busy.borrow_mut().insert(B);
        pool.give(block, &[B]);
        assert_ne!(pool.take(1000, A).unwrap().address, address);
        assert_eq!(pool.trim().unwrap(), 0);
        pool.memory.busy.borrow_mut().clear();
        assert_eq!(pool.trim().unwrap(), 1024);
    }

    #[test]
    fn large_blocks_serve_requests_a_little_smaller() {
        let pool = pool(1 << 40);
        let block = pool.take(100 << 20, A).unwrap();
        let address = block.address;
        pool.give(block, &[]);
        let near = pool.take(95 << 20, A).unwrap();
        assert_eq!((near.address, near.bytes), (address, 100 << 20));
        pool.give(near, &[]);
        assert_ne!(pool.take(50 << 20, A).unwrap().address, address);
        assert_ne!(pool.take(101 << 20, A).unwrap().address, address);
    }

    #[test]
    fn out_of_memory_trims_and_tries_once_more() {
        let pool = pool(64 << 20);
        let block = pool.take(40 << 20, A).unwrap();
        pool.give(block, &[]);
        let block = pool.take(30 << 20, A).unwrap();
        assert_eq!((pool.memory.settled.get(), pool.stats().held), (1, 30 << 20));
        pool.give(block, &[]);
        assert_eq!(pool.trim().unwrap(), 30 << 20);
        assert_eq!(pool.stats(), PoolStats { peak: 40 << 20, allocated: 2, ..Default::default() });
        assert!(pool.memory.live.borrow().is_empty());
    }

    #[test]
    fn out_of_memory_names_every_figure_and_the_pool_goes_on() {
        let pool = pool(64 << 20);
        let _kept = pool.take(40 << 20, A).unwrap();
        let error = pool.take(30 << 20, A).unwrap_err();
        assert_eq!((error.code(), error.result, error.sticky), (Code::E_OOM, Some(2), false));
        let text = error.to_string();
        for figure in
            ["31457280 bytes (30.0 MiB)", "holds 41943040", "25165824", "67108864", "cuda:0"]
        {
            assert!(text.contains(figure), "{figure} is not in\n{text}");
        }
        assert!(pool.take(u64::MAX, A).unwrap_err().is_out_of_memory());
        assert!(pool.take(20 << 20, A).is_ok());
    }

    #[test]
    fn a_trim_that_fails_frees_nothing_more_and_loses_no_block() {
        let pool = pool(1 << 30);
        let block = pool.take(1000, A).unwrap();
        pool.give(block, &[]);
        pool.memory.broken.set(true);
        assert!(pool.trim().unwrap_err().sticky);
        pool.memory.broken.set(false);
        assert_eq!((pool.stats().free_blocks, pool.trim().unwrap()), (1, 1024));
    }

    #[test]
    fn classes_lose_little_and_keep_alignment() {
        let cases = [0, 1, 512, 513, 5000, 600_000, (1 << 20) - 1, 1 << 20, (10 << 30) + 1];
        for bytes in cases {
            let size = class(bytes);
            assert!(size >= bytes.max(512) && size.is_multiple_of(512), "{bytes}");
            assert!(size - bytes <= (bytes / 4).max(GRAIN), "{bytes}: {size}");
            assert!(bytes >= LARGE || size - bytes <= (bytes / 4).max(512), "{bytes}: {size}");
        }
    }
}
