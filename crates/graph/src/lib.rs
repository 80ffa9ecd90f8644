//! Graph IR: what to compute, on whole arrays. A small closed set of primitives on tensors, with
//! explicit broadcasting and conversion; everything richer is a composition of them. Kernels are
//! called on arrays and scalars, and give a new version of each array they write.
//!
//! The op table is [`GraphOp`]; its rules are in [`ops`], one file for each family. [`GraphBuilder`]
//! makes functions op by op, [`Copier`] moves ops between functions, [`walk`] answers questions about
//! uses and removes what is not used, [`dims`] is arithmetic on extents that are expressions.
//!
//! ```
//! use tessera_graph::{Graph, kernel_call_module};
//! use tessera_ir::{Attr, Attrs, Privilege, Type, parse_module, verify};
//!
//! let text = "\
//! module @axpy : graph {version = 1}
//!
//! func @axpy(%x: tensor<[n], f32>, %y: tensor<[n], f32>, %alpha: f32) {
//!   %y.1 = graph.kernel_call %x, %y, %alpha {kernel = @axpy, privileges = [read, read_write, read], config = {B = 64}} : tensor<[n], f32>
//!   graph.return %y.1
//! }
//! ";
//! let module = parse_module::<Graph>(text, "axpy.tir").unwrap();
//! verify(&module.funcs[0]).unwrap();
//! assert_eq!(module.to_string(), text);
//!
//! // The same module, built.
//! let x = module.funcs[0].ty(module.funcs[0].params()[0]).clone();
//! let f32 = Type::Scalar(tessera_numerics::DType::F32);
//! let params = [
//!     ("x", x.clone(), Privilege::Read),
//!     ("y", x, Privilege::ReadWrite),
//!     ("alpha", f32, Privilege::Read),
//! ];
//! let built = kernel_call_module("axpy", &params, Attrs::new().with("B", Attr::Int(64)));
//! assert_eq!(built.to_string(), text);
//! assert_eq!(built.hash(), module.hash());
//! ```

mod build;
mod builder;
mod copy;
pub mod dims;
mod emit;
mod emit_window;
mod factors;
mod level;
mod module;
pub mod ops;
mod rule;
pub mod states;
mod table;
mod traffic;
pub mod walk;

pub use build::kernel_call_module;
pub use builder::GraphBuilder;
pub use copy::{Copier, clone_with};
pub use emit::{DotAxes, extents};
pub use emit_window::Windows;
pub use factors::FactorRule;
pub use level::Graph;
pub use module::{call_results, verify_module};
pub use rule::{Refusal, Ruled, Site, elem, scalar, tensor, types_of};
pub use table::GraphOp;
pub use traffic::{Collective, collectives};

pub type GraphFunc = tessera_ir::Func<Graph>;
pub type GraphModule = tessera_ir::Module<Graph>;

/// Parses one Graph IR function.
pub fn parse(text: &str) -> Result<GraphFunc, tessera_diag::Diagnostics> {
    tessera_ir::parse_func(text, "<ir>")
}
