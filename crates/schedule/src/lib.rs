//! Schedule IR: the plan of launches. For a kernel it says how it is launched: the grid, the
//! backend, the compile-time values, and what the compiler chose, so that the text is complete. For
//! a function it says which values have memory, which are fused into kernels, and the steps over
//! that memory: launches, copies, host calls, branches and loops. A field exists from the commit in
//! which something reads it.
//!
//! ```
//! use tessera_ir::{Attrs, DimExpr, Privilege, parse_module, verify};
//! use tessera_schedule::{Schedule, launch_module};
//!
//! let text = "\
//! module @axpy : schedule {version = 1}
//!
//! func @axpy(%x: view<[n], f32, read>, %y: view<[n], f32, read_write>) {
//!   sched.launch %x, %y {kernel = @axpy, grid = [cdiv(n, 64)], backend = interp}
//!   sched.return
//! }
//! ";
//! let module = parse_module::<Schedule>(text, "axpy.tir").unwrap();
//! let func = &module.funcs[0];
//! verify(func).unwrap();
//! assert_eq!(module.to_string(), text);
//!
//! // The same module, built.
//! let [x, y] = [0, 1].map(|i| func.ty(func.params()[i]).clone());
//! let params = [("x", x, Privilege::Read), ("y", y, Privilege::ReadWrite)];
//! let grid = vec![DimExpr::sym("n").ceil_div(64)];
//! let (config, chosen) = (Attrs::new(), Attrs::new());
//! let built = launch_module("axpy", &params, Some(grid), None, None, "interp", config, chosen);
//! assert_eq!(built.to_string(), text);
//! assert_eq!(built.hash(), module.hash());
//! ```

mod build;
mod flow;
mod level;
mod ordered;
mod parts;
mod read;
mod steps;
mod table;

pub use build::launch_module;
pub use level::Schedule;
pub use parts::{Access, Part, Place, Space, accesses, device_kinds, part, place, space, whole};
pub use read::{Kept, kept, pinned};
pub use table::SchedOp;
