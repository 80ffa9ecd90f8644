//! Graph IR: what to compute, on whole arrays. Its first true form says one thing: a kernel is
//! called on arrays and scalars, and gives a new version of each array it writes.
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
mod level;
mod table;

pub use build::kernel_call_module;
pub use level::Graph;
pub use table::GraphOp;
