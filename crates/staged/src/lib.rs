//! Staged IR: a kernel on a machine with threads. Tiles have layouts, shared memory is allocated,
//! copies (TMA, `cp.async`) and MMAs (WGMMA) are asynchronous, and warps have roles (warp
//! specialization). It computes what the Tile IR it came from computes.
//!
//! The op table is [`StagedOp`]. All ops of Tile IR are there as one family, `StagedOp::Tile`, with
//! rules on layouts beside their own; see `family`. The rules on a whole function are in `verify/`.
//! mbarrier phases, parities and addresses are not part of it: a pipeline op takes the counter of
//! its iteration.
//!
//! ```
//! use tessera_staged::parse;
//! let func = parse(
//!     "func @f(%x: view<[n], f32, read>, %i: i64) {kind = group, threads = 32} {
//!        %r = staged.pipeline_create : pipeline<2; a: 32xf32 #[order 0]>
//!        %s = staged.acquire %r, %i : stage<a: 32xf32 #[order 0]>
//!        staged.fill %s, %x at(%i) {field = a, extent = [32]}
//!        staged.return
//!      }",
//! )
//! .unwrap();
//! let errors = tessera_ir::verify(&func).unwrap_err().render();
//! assert!(errors.contains("expected every counter of pipeline %r that is acquired to be published"));
//! ```

mod adapt;
mod alike;
mod build;
mod family;
mod layouts;
mod level;
pub mod ops;
mod pressure;
mod table;
mod verify;

pub use adapt::tile_alone;
pub use alike::{Alike, drained_by};
pub use build::StagedBuild;
pub use family::in_family;
pub use level::{Staged, kind_of};
pub use pressure::{Widest, pressure};
pub use table::StagedOp;
pub use verify::{registers, shared_bytes};

use tessera_diag::Diagnostics;

pub type StagedFunc = tessera_ir::Func<Staged>;
pub type StagedModule = tessera_ir::Module<Staged>;

/// Parses one Staged IR function.
pub fn parse(text: &str) -> Result<StagedFunc, Diagnostics> {
    tessera_ir::parse_func(text, "<ir>")
}
