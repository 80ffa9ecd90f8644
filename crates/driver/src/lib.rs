//! Wires the compiler together: a declared kernel is bound to arguments, specialised, compiled for
//! a backend and launched, and the call can be inspected. The only crate that names backends. It
//! knows no Python: the binding converts values, this crate decides.
//!
//! - [`KernelHandle`] is a kernel with its cache; [`Compiled`] one compiled without data.
//! - [`Backends`] says what there is and what a call runs on; [`knobs`] what the environment sets.
//! - [`device`] is what the binding needs of devices beyond launches; [`register`] adds a platform.
//! - [`memory`] tells how much the process keeps of what it compiled.
//! - [`module::parse`] reads IR text of any level; [`layouts::describe`] draws a layout; [`cache`]
//!   holds what was compiled on disk.

mod alias;
mod args;
mod array_layout;
mod artifacts;
mod backends;
mod bind;
pub mod cache;
pub mod clocks;
mod compiled;
mod config;
mod constraint;
mod copies;
mod cost;
mod described;
pub mod device;
mod dims;
pub mod dist;
mod explain;
mod factors;
mod fetch;
mod geometry;
pub mod graph;
mod inspect;
mod kernel;
pub mod knobs;
mod launch;
mod launches;
pub mod layouts;
mod location;
mod made;
mod matmuls;
pub mod memory;
mod mode;
pub mod module;
mod number;
mod overlap;
mod pack;
mod params;
mod place;
mod platforms;
mod pointwise;
mod predict;
mod processor;
pub mod profile;
pub mod replay;
mod reproducible;
mod request;
mod schedule;
mod specialise;
mod tables;
pub mod tuning;
mod warnings;

pub use args::{Arg, ArrayArg, Number, Place};
pub use backends::{Backends, Choice, Family};
pub use bind::Call;
pub use compiled::Compiled;
pub use constraint::Constraint;
pub use cost::Cost;
pub use described::{Described, MOST_AXES};
pub use explain::{Explanation, Field};
pub use inspect::LevelError;
pub use kernel::{KernelHandle, Options};
pub use launch::{Ask, Missing, Prepared, Purpose, Streams, grid_of};
pub use location::Location;
pub use made::{TracedKernel, compile_made, launch_made};
pub use matmuls::{grouped_columns, matmul_schedule};
pub use pack::{is_packed, packed_bytes, row_major};
pub use platforms::{assembler, features, register};
pub use processor::{Processor, processor, set_threads, threads};
pub use request::Given;
pub use schedule::{fields as schedule_fields, pass_names};
// What the binding needs of the crates below.
pub use tessera_cost::matmul::{
    Problem as MatmulProblem, Schedule as MatmulSchedule, Shape as MatmulShape,
};
pub use tessera_cost::weight as matmul_weight;
pub use tessera_frontend as frontend;
pub use tessera_interp::{
    CheckReport, HostArray, KernelCall, Kernels, Lines, Moment, NoKernels, Observed, Watch,
    is_interrupt, run_graph, set_interrupt_check, set_print,
};
pub use tessera_lower::stage::Off;
pub use tessera_support::{Flights, ForkLock, after_fork, before_fork, forked};
pub use tessera_target::device::{DeviceId, DeviceKind};
pub use tessera_target::{Artifact, BufferArg, MachineCaps, Queue, beside, deep};
