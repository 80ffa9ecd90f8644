//! Memory of the buffers of a plan: buffers that are never live together share it.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use tessera_plan::{Array, Origin, Plan, Step};

/// Where each scratch buffer begins in one block of memory, and how large that is. Results have
/// memory of their own.
pub struct Places {
    pub offsets: Vec<Option<usize>>,
    pub bytes: usize,
    /// Bytes of all scratch buffers if none shared memory.
    pub unshared: usize,
}

/// Cache lines, and the widest vectors.
pub const ALIGN: usize = 64;

struct Live {
    first: usize,
    last: usize,
}

pub fn assign(plan: &Plan) -> Places {
    let mut live: Vec<Option<Live>> = plan.buffers.iter().map(|_| None).collect();
    let mut clock = 0;
    walk(&plan.steps, &mut clock, &mut live);
    let mut order: Vec<usize> = (0..plan.buffers.len())
        .filter(|&b| {
            plan.buffers[b].origin == Origin::Scratch
                && !plan.results.iter().any(|(r, _)| *r == b)
                && live[b].is_some()
        })
        .collect();
    // Large ones first; each goes into the lowest gap that is free while it lives.
    order.sort_by_key(|&b| (std::cmp::Reverse(plan.buffers[b].bytes), b));
    let mut out = Places { offsets: vec![None; plan.buffers.len()], bytes: 0, unshared: 0 };
    let mut placed: Vec<(usize, usize, usize, usize)> = Vec::new();
    for b in order {
        let Some(mine) = &live[b] else { continue };
        let size = plan.buffers[b].bytes.next_multiple_of(ALIGN).max(ALIGN);
        let mut busy: Vec<(usize, usize)> = placed
            .iter()
            .filter(|(first, last, _, _)| *first <= mine.last && mine.first <= *last)
            .map(|&(_, _, at, len)| (at, len))
            .collect();
        busy.sort_unstable();
        let mut at = 0;
        for (start, len) in busy {
            if start >= at + size {
                break;
            }
            at = at.max(start + len);
        }
        placed.push((mine.first, mine.last, at, size));
        out.offsets[b] = Some(at);
        out.bytes = out.bytes.max(at + size);
        out.unshared += size;
    }
    out
}

fn touch(array: &Array, clock: usize, live: &mut [Option<Live>]) {
    match &mut live[array.buffer] {
        Some(l) => l.last = clock,
        none => *none = Some(Live { first: clock, last: clock }),
    }
}

/// Liveness: counts steps and notes when each buffer is used. A buffer that is used inside a loop
/// and also before or after it is live during the whole loop.
fn walk(steps: &[Step], clock: &mut usize, live: &mut Vec<Option<Live>>) {
    for step in steps {
        *clock += 1;
        let begin = *clock;
        match step {
            Step::Launch { args, .. } => args.iter().for_each(|a| touch(a, begin, live)),
            Step::Host { inputs, outputs, .. } => {
                inputs.iter().chain(outputs).for_each(|a| touch(a, begin, live));
            }
            Step::Call { args, .. } => args.iter().for_each(|(a, _)| touch(a, begin, live)),
            Step::Copy { from, to } => {
                touch(from, begin, live);
                touch(to, begin, live);
            }
            Step::Cond { pred, then, otherwise, .. } => {
                touch(pred, begin, live);
                walk(then, clock, live);
                walk(otherwise, clock, live);
            }
            Step::While { test, pred, body, .. } => {
                walk(test, clock, live);
                *clock += 1;
                touch(pred, *clock, live);
                walk(body, clock, live);
                stretch(begin, *clock, live);
            }
            Step::Loop { position, body, .. } => {
                touch(position, begin, live);
                walk(body, clock, live);
                *clock += 1;
                touch(position, *clock, live);
                stretch(begin, *clock, live);
            }
        }
    }
}

/// A value of an earlier iteration may be read: what a loop uses lives as long as the loop.
fn stretch(begin: usize, end: usize, live: &mut [Option<Live>]) {
    for l in live.iter_mut().flatten() {
        if l.last >= begin {
            // Memory of an iteration alone could be shared inside; that it is not costs memory only.
            l.last = l.last.max(end);
            if l.first > begin {
                l.first = begin;
            }
        }
    }
}

/// Memory that is freed with its owner.
pub struct Block {
    at: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory that its owner hands out.
unsafe impl Send for Block {}
unsafe impl Sync for Block {}

impl Block {
    /// `None` where there is not so much memory.
    pub fn new(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.max(ALIGN), ALIGN).ok()?;
        // SAFETY: the size is not zero.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { at, layout })
    }

    pub fn address(&self) -> *mut u8 {
        self.at.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: made with this layout.
        unsafe { dealloc(self.at.as_ptr(), self.layout) }
    }
}
