//! The planner: a function of Graph IR becomes a plan, a list of kernel launches over buffers.
//!
//! - `flatten`: inlining and shape specialisation; equal ops become one.
//! - `index`: views as index maps through iteration spaces.
//! - `group`: operator fusion: which values get memory, which ops share a kernel.
//! - `nodes`: the expressions of a kernel; `shape`: its tiles and grid; `emit`: its Tile IR.
//! - `loop_kernel`: a loop with small iterations as one kernel.
//! - `planner`: steps and buffers; `forward`: copy elision; `places`: lifetimes and places of
//!   buffers; `text`: the plan as Schedule IR, which is verified, printed, changed and given back.
//! - `invariant`: loop-invariant code motion.
//! - `components`: scalar replacement of arrays with a short axis.
//! - `join`, `expand`, `gate`, `vector`: rewrites of sums to concats, windows to slices, gates to
//!   quotients, and matrix-vector products to sums; `scatter`: a kernel of its own.
//! - `machine`: tile sizes for CPUs and GPUs; for GPUs, `large` (two-pass reductions, split-K),
//!   `sort`, `words` and `nothing` write ops with others that have kernels.

mod class;
mod components;
mod emit;
mod epilogue;
mod expand;
mod flatten;
mod forward;
mod gate;
mod group;
mod index;
mod invariant;
mod join;
mod large;
mod loop_kernel;
mod machine;
mod nodes;
mod nothing;
mod places;
mod planner;
mod scatter;
mod shape;
mod sizes;
mod sort;
mod strided;
mod text;
mod vector;
mod words;

pub use flatten::flatten;
pub use machine::Machine;
pub use places::{ALIGN, Places, assign};
pub use planner::{
    Array, Buffer, BufferId, Origin, Plan, PlanOptions, Step, argument_type, plan, plan_graph,
};

/// What the tests of this crate see of single passes. Nothing else uses it (a structure test): it changes with the passes.
#[doc(hidden)]
pub mod inner {
    pub use crate::gate::gate;
    pub use crate::machine::{Matrix, Side, threads};
    pub use crate::strided::{Strided, strided};
    pub use crate::text::check;
}
