//! The interpreter of Tile IR: the reference semantics of each op, bit by bit. Every other backend
//! is tested against it.
//!
//! It executes Tile IR directly, one group after another, on one thread. A group kernel runs as a
//! lane kernel of one lane whose values may be tiles, so both kinds share their control flow; only
//! the addressing of memory differs.
//!
//! - [`Interp`] is the backend the driver uses; [`run`] is the short form for tests.
//! - [`check`] is the short form for a checked launch, [`CheckedInterp`] the backend for it.
//! - [`HostArray`] owns an array and makes launch arguments of it.
//! - [`watch()`] runs a function and reports to a host what happens at lines of its source.
//! - [`run_staged`] runs Staged IR, and detects races between its roles and asynchronous
//!   operations.
//! - [`run_graph`] evaluates a function of Graph IR on whole arrays.
//! - [`run_schedule`] runs a plan in Schedule IR, its queues in any order that the plan allows.
//! - [`set_interrupt_check`] lets the host stop a long launch.
//!
//! ```
//! use tessera_interp::{HostArray, run};
//! use tessera_numerics::DType;
//! use tessera_target::LaunchArgs;
//! let func = tessera_tile::parse(
//!     "func @twice(%x: view<[n], f32, read_write>) {kind = lane} {
//!        %i = tile.linear_id : i64
//!        %v = tile.load %x at(%i) {extent = [0]} : f32
//!        %w = tile.add %v, %v : f32
//!        tile.store %x, %w at(%i) {extent = [0]}
//!        tile.return
//!      }",
//! )
//! .unwrap();
//! let mut x = HostArray::new(&[3], DType::F32, &[1.0, 2.0, 3.0]);
//! let args = LaunchArgs {
//!     params: vec![x.as_arg()],
//!     dims: [("n".to_string(), 3)].into(),
//!     grid: [1, 1, 1],
//!     domain: [3, 1, 1],
//!     lanes: 32,
//! };
//! run(&func, &args).unwrap();
//! assert_eq!(x.values(), [2.0, 4.0, 6.0]);
//! ```

mod access;
mod atomic;
mod backend;
mod check;
mod combine;
mod convert;
mod copies;
mod elementwise;
mod exec;
mod fault;
mod graph;
mod group;
mod host;
mod indexed;
#[doc(hidden)]
pub mod inner;
mod interrupt;
mod lanes;
mod launch;
mod liveness;
mod machine;
mod memory;
mod mma;
mod parts;
mod philox;
mod prepare;
mod print;
mod program;
mod reduce;
mod room;
mod scan;
mod schedule;
mod shape;
mod sort;
mod staged;
mod tile_control;
mod value;
mod watch;

pub use backend::{Interp, run, set_warp_size};
pub use check::{CheckOptions, CheckReport, Checked, CheckedInterp, check};
pub use graph::{KernelCall, Kernels, NoKernels, run_graph};
pub use host::HostArray;
pub use schedule::{PlanSteps, QueueOrder, run_schedule};
pub use staged::{StagedOptions, Timing, run_staged};
pub use tessera_target::{is_interrupt, set_interrupt_check, set_print};
pub use watch::{Lines, Moment, Observed, Sink, Watch, lines_of, watch};
