//! Graph IR to kernels: a function becomes a plan, a list of launches over buffers.
//!
//! - `flatten`: one function without calls and symbols, equal ops made one.
//! - `index`: rearrangement as lines through iteration spaces.
//! - `group`: which values get memory, which ops share a kernel.
//! - `nodes`: what a kernel computes; `shape`: how it goes through its space; `emit`: its Tile IR.
//! - `loop_kernel`: a loop with small iterations as one kernel.
//! - `plan`: steps and buffers; `forward`: copies that writers do without; `verify`: whether
//!   it can be run; `text`: a plan to read, change and request.
//! - `invariant`: what no iteration changes, before its loop.
//! - `components`: arrays of few components taken apart.
//! - `join`, `expand`, `gate`, `vector`: sums that are joins, windows that are parts, products that are quotients, products with
//!   vectors that are sums; `scatter`: a kernel of its own.
//! - `fit`: how kernels are cut for a kind of machine; for one of many threads, `large` (sums in parts),
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
mod planner;
mod scatter;
mod shape;
mod sizes;
mod sort;
mod strided;
mod text;
mod vector;
mod verify;
mod words;

pub use flatten::flatten;
pub use machine::Machine;
pub use planner::{
    Array, Buffer, BufferId, Origin, Plan, PlanOptions, Step, argument_type, plan, plan_graph,
};
