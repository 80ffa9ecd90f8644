//! Graph IR for the tracer: source locations, functions under construction, and the module of
//! traced functions with its transforms and runs.

mod attrs;
mod builder;
mod collective;
mod composites;
mod dims;
mod executable;
mod kernels;
mod on_device;
mod place;
mod program;
mod run;
mod transform;

pub use builder::GraphBuilder;
pub use collective::Collective;
pub use composites::check_factors;
pub use dims::{dim_compute, dim_value};
pub use executable::Executable;
pub use kernels::TracedKernel;
pub use place::{Place, SourceText};
pub use program::Program;
