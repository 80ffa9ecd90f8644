//! Whole functions of Graph IR, compiled and run.
//!
//! [`compile_graph`] plans a function for arguments of given types and compiles its kernels, each
//! once in the process; [`GraphProgram::run`] runs the plan on arrays in host memory,
//! [`GraphProgram::run_on`] on those of a device, and [`GraphProgram::replay_on`] as one graph of it.

mod arena;
mod blocks;
mod calls;
mod captured;
mod device;
mod donate;
mod interpret;
mod joint;
mod kernels;
mod layouts;
mod list;
mod on_mesh;
mod program;
mod rank_code;
mod rank_run;
mod ranks;
mod run;
mod shared;
mod strided;

pub use blocks::{Boundary, Given};
pub use calls::{MadeKernel, MadeKernels};
pub(crate) use kernels::census as kernels_alive;
pub use kernels::compiled_kernels;
pub use on_mesh::{OnMesh, on_mesh};
pub(crate) use program::census as functions_alive;
pub use program::{
    GraphOptions, GraphProgram, GraphStats, compile_graph, compile_graph_for, machine_text,
};
pub use run::{GraphKernels, HostKernels};
pub use tessera_graph::Collective;
pub use tessera_plan::{Chosen, Plan, PlanOptions, argument_type, undecided};
pub use tessera_shard::{placements, same};
