//! Shared memory with race detection: every access must happen after the earlier ones that it
//! conflicts with.

use super::clock::Clock;
use crate::access::unwritten;
use crate::fault::{Fault, Outcome, fault};
use crate::memory::Memory;
use crate::shape::{rearrange, strides_of};
use crate::value::{Data, Tile};
use std::sync::Arc;
use tessera_diag::{Code, Loc};
use tessera_layout::Layout;
use tessera_numerics::{DType, Scalar};

/// A block of shared memory as a value: no bytes of its own.
#[derive(Clone, Debug)]
pub(super) struct MemRef {
    pub buffer: usize,
    /// Along each axis of the buffer the first position and how many.
    pub bounds: Vec<(i64, i64)>,
    /// The buffer's axes in the order of the view.
    pub axes: Vec<usize>,
    /// The pipeline, counter and side (filling or reading) that it came through.
    pub stage: Option<StageRef>,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StageRef {
    pub pipeline: usize,
    pub i: i64,
    pub filling: bool,
}

impl MemRef {
    pub fn whole(buffer: usize, dims: &[i64], stage: Option<StageRef>) -> Self {
        let bounds = dims.iter().map(|&d| (0, d)).collect();
        Self { buffer, bounds, axes: (0..dims.len()).collect(), stage }
    }

    /// A block of it; `None` where that is out of bounds.
    pub fn view(&self, at: &[i64], extent: &[i64], perm: Option<&[i64]>) -> Option<Self> {
        let mut out = self.clone();
        let mut kept = Vec::new();
        for ((&axis, &at), &len) in self.axes.iter().zip(at).zip(extent) {
            let (first, room) = self.bounds[axis];
            if at < 0 || at > room - len.max(1) {
                return None;
            }
            out.bounds[axis] = (first + at, len.max(1));
            if len != 0 {
                kept.push(axis);
            }
        }
        out.axes = match perm {
            Some(perm) => perm.iter().filter_map(|&p| kept.get(p as usize).copied()).collect(),
            None => kept,
        };
        Some(out)
    }

    fn starts(&self) -> Vec<i64> {
        self.bounds.iter().map(|b| b.0).collect()
    }

    fn extents(&self) -> Vec<i64> {
        self.bounds.iter().map(|b| b.1).collect()
    }

    /// The extents of the view.
    pub fn shape(&self) -> Vec<usize> {
        self.axes.iter().map(|&axis| self.bounds[axis].1 as usize).collect()
    }
}

/// The kind of an access, and the event that others must see.
pub(super) struct Access<'a> {
    pub writes: bool,
    /// An asynchronous operation, which sees writes of threads only through a fence.
    pub is_async: bool,
    /// The clock component and value that others must have seen to know that it is complete.
    pub component: usize,
    pub value: u64,
    /// What had been seen when it was issued.
    pub clock: &'a Clock,
    /// The layout by which threads access it.
    pub layout: Option<&'a Arc<Layout>>,
    pub loc: &'a Loc,
}

#[derive(Debug)]
struct Past {
    bounds: Vec<(i64, i64)>,
    axes: Vec<usize>,
    writes: bool,
    is_async: bool,
    component: usize,
    value: u64,
    /// When the threads that wrote it made it visible to asynchronous operations.
    fenced: Option<u64>,
    layout: Option<Arc<Layout>>,
    loc: Loc,
}

#[derive(Debug)]
pub(super) struct Buffer {
    memory: Memory,
    past: Vec<Past>,
}

impl Buffer {
    pub fn new(dims: &[i64], dtype: DType) -> Self {
        Self { memory: Memory::buffer(dims, dtype), past: Vec::new() }
    }

    pub fn dims(&self) -> &[i64] {
        &self.memory.dims
    }

    /// Clears the contents; the accesses are not forgotten.
    pub fn clear(&mut self) {
        self.memory = Memory::buffer(&self.memory.dims, self.memory.dtype);
    }

    pub fn load(&self, at: &MemRef, loc: &Loc) -> Outcome<Tile> {
        let zero = Scalar::zero(self.memory.dtype);
        let data = self.memory.load(&at.starts(), &at.extents(), None, zero);
        let data = data.map_err(|e| unwritten(e, loc))?;
        let extents: Vec<usize> = at.extents().iter().map(|&e| e as usize).collect();
        let strides = strides_of(&extents);
        let picked: Vec<usize> = at.axes.iter().map(|&axis| strides[axis]).collect();
        Ok(Arc::new(rearrange(&data, &at.shape(), &picked)))
    }

    pub fn store(&mut self, at: &MemRef, value: &Data) {
        let strides = strides_of(&at.shape());
        let extents: Vec<usize> = at.extents().iter().map(|&e| e as usize).collect();
        let stride_of = |axis: usize| at.axes.iter().position(|&a| a == axis).map(|p| strides[p]);
        let back: Vec<usize> = (0..extents.len()).map(|a| stride_of(a).unwrap_or(0)).collect();
        let data = rearrange(value, &extents, &back);
        self.memory.store(&at.starts(), &at.extents(), None, &data);
    }

    /// Makes the writes of the threads of `component` visible to asynchronous operations.
    pub fn fence(&mut self, component: usize, at: u64) {
        let theirs = |p: &&mut Past| p.writes && !p.is_async && p.component == component;
        self.past.iter_mut().filter(theirs).for_each(|p| _ = p.fenced.get_or_insert(at));
    }

    /// Records an access, or reports what it conflicts with.
    pub fn touch(&mut self, at: &MemRef, access: &Access<'_>) -> Outcome<()> {
        for past in self.past.iter().filter(|p| overlap(&p.bounds, &at.bounds)) {
            if !past.writes && !access.writes {
                continue;
            }
            if access.clock.at(past.component) < past.value && !same_threads(past, at, access) {
                return Err(collision(past, access));
            }
            let hidden = past.writes && !past.is_async && access.is_async && !access.writes;
            if hidden && past.fenced.is_none_or(|f| access.clock.at(past.component) < f) {
                return Err(fault(
                    Code::E_RACE,
                    format!(
                        "expected `fence_async` and then a barrier between what threads wrote{} and \
                         this asynchronous read",
                        line(&past.loc)
                    ),
                    access.loc,
                ));
            }
        }
        let inside = |p: &Past| within(&p.bounds, &at.bounds);
        // Accesses that happen before this one need not be compared with later ones; consecutive
        // reads are merged.
        let replaced = |p: &Past| {
            inside(p) && (access.writes || (!p.writes && p.component == access.component))
        };
        self.past.retain(|p| !replaced(p));
        self.past.push(Past {
            bounds: at.bounds.clone(),
            axes: at.axes.clone(),
            writes: access.writes,
            is_async: access.is_async,
            component: access.component,
            value: access.value,
            fenced: None,
            layout: access.layout.cloned(),
            loc: access.loc.clone(),
        });
        Ok(())
    }
}

fn overlap(a: &[(i64, i64)], b: &[(i64, i64)]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.0 < b.0 + b.1 && b.0 < a.0 + a.1)
}

fn within(a: &[(i64, i64)], b: &[(i64, i64)]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.0 >= b.0 && a.0 + a.1 <= b.0 + b.1)
}

/// The same threads at the same elements, in the same layout, need no barrier.
fn same_threads(past: &Past, at: &MemRef, access: &Access<'_>) -> bool {
    let same_block = past.bounds == at.bounds && past.axes == at.axes;
    let threads = !past.is_async && !access.is_async && past.component == access.component;
    threads && same_block && past.layout.is_some() && past.layout.as_ref() == access.layout
}

pub(super) fn line(loc: &Loc) -> String {
    if loc.is_known() { format!(" in line {}", loc.line()) } else { String::new() }
}

fn collision(past: &Past, access: &Access<'_>) -> Fault {
    let at = line(&past.loc);
    let (code, why) = match (past.is_async, past.writes, access.writes) {
        (true, true, false) => (
            Code::E_UNWAITED,
            format!("expected a `wait` before this read: the copy begun{at} may not be done"),
        ),
        (true, true, true) => (
            Code::E_UNWAITED,
            format!("expected a `wait` before this write: the copy begun{at} may not be done"),
        ),
        (true, false, _) => (
            Code::E_UNWAITED,
            format!(
                "expected memory that nothing reads, got asynchronous work begun{at} that may still read it"
            ),
        ),
        (false, true, false) => {
            (Code::E_RACE, format!("expected a barrier between the write{at} and this read"))
        }
        (false, true, true) => {
            (Code::E_RACE, format!("expected a barrier between the write{at} and this write"))
        }
        (false, false, _) => {
            (Code::E_RACE, format!("expected a barrier between the read{at} and this write"))
        }
    };
    fault(code, why, access.loc)
}
