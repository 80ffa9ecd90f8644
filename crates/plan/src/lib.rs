//! The planner: a function of Graph IR becomes a plan, a list of kernel launches over buffers.
//!
//! - `composites`: which function stands for each composite: a kernel's, or the decomposition.
//! - `flatten`: inlining and shape specialisation; equal ops become one.
//! - `index`: views as index maps through iteration spaces.
//! - `group`: operator fusion: which values get memory, which ops share a kernel.
//! - `nodes`: the expressions of a kernel; `shape`: its tiles and grid; `emit`: its Tile IR.
//! - `loop_kernel`: a loop with small iterations as one kernel.
//! - `planner`: steps and buffers; `forward`: copy elision; `places`: lifetimes and places of
//!   buffers; `text`: the plan as Schedule IR, which is verified, printed, changed and given back.
//! - `collective`: the collectives of a rank's program; `overlap`: their order; `buckets`: those that are joined.
//! - `queues`: list scheduling of steps on several queues; `order`: the events between these.
//! - `invariant`: loop-invariant code motion.
//! - `components`: scalar replacement of arrays with a short axis.
//! - `join`, `expand`, `gate`, `vector`: rewrites of sums to concats, windows to slices, gates to
//!   quotients, and matrix-vector products to sums; `scatter`: a kernel of its own.
//! - `machine`: tile sizes for CPUs and GPUs; for GPUs, `large` (two-pass reductions, split-K),
//!   `sort`, `words` and `nothing` write ops with others that have kernels.

//! # What runs
//!
//! A [`Plan`] is what the passes above work on. [`Plan::write`] makes Schedule IR of it, [`Written`]: a
//! buffer is a `sched.store` with a place in one block and a `sched.free` behind its last use; a step is
//! an op with a queue; what the text does not hold (the number of a kernel, the definition of an op that
//! the host evaluates, the user's line) is its [`Meaning`]. That is verified, printed and run: executors
//! decode the ops and nothing else, and `given` reads a changed text as the same. Steps are on queue 0
//! where `queues` does not put them on others.

mod buckets;
mod class;
mod collective;
mod components;
mod composites;
mod emit;
mod epilogue;
mod expand;
mod flatten;
mod forward;
mod gate;
mod given;
mod group;
mod index;
mod invariant;
mod join;
mod large;
mod loop_kernel;
mod machine;
mod nodes;
mod nothing;
mod order;
mod overlap;
mod places;
mod planner;
mod queues;
mod scatter;
mod shape;
mod sizes;
mod sort;
mod strided;
mod text;
mod vector;
mod words;

pub use buckets::{Alike, buckets};
pub use collective::{Collective, Member, Together};
pub use composites::{Chosen, Site, undecided};
pub use flatten::flatten;
pub use given::rearranged;
pub use machine::Machine;
pub use places::{ALIGN, Places, assign};
pub use planner::{
    Array, Buffer, BufferId, Origin, Plan, PlanOptions, Step, argument_type, plan, plan_graph,
};
pub use queues::{Queues, queues};
pub use text::{Meaning, Written};

/// What the tests of this crate see of single passes. Nothing else uses it (a structure test): it changes with the passes.
#[doc(hidden)]
pub mod inner {
    pub use crate::gate::gate;
    pub use crate::machine::{Matrix, Side, threads};
    pub use crate::strided::{Strided, strided};
    pub use crate::text::check;
}
