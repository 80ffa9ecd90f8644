//! Tile IR: the portable meaning of a kernel. A kernel is a group program over tile values; the
//! schedule, threads and layouts are elsewhere. A lane kernel is scalar code run by every lane.
//!
//! The op table is [`TileOp`]; its rules are in `ops/`, one file for each family.
//!
//! ```
//! use tessera_tile::{Tile, parse};
//! let text = "func @f(%x: view<[n], f32, read_write>) {kind = group} {\n  tile.return\n}\n";
//! let func = parse(text).unwrap();
//! assert_eq!(func.to_string(), text);
//! tessera_ir::verify::<Tile>(&func).unwrap();
//! ```

mod analysis;
mod asm;
pub mod attrs;
mod build;
mod distance;
mod expand;
mod inline;
mod interval;
mod lanes;
mod level;
mod magnitude;
mod numbering;
pub mod ops;
mod polynomial;
mod table;

pub use analysis::{Atom, Linear, dim_expr_of, keeps, launch_extent_of, linear_of, linear_within};
pub use asm::{AsmHost, choose_asm, is_asm, no_otherwise, split_asm, without_asm};
pub use build::TileBuild;
pub use distance::distance;
pub use expand::{Scans, expand_parts, expand_parts_but, is_part};
pub use inline::without_slow_paths;
pub use interval::{Interval, interval_of};
pub use lanes::{
    MOST_LANE_AXES, domain_of, lane_axes, lane_axis, lane_extents, lane_grid, lanes_attr, lanes_of,
};
pub use level::{KernelKind, Tile, has_elements, is_collective, is_table, kind_of};
pub use magnitude::{magnitude, upper_bits};
pub use polynomial::{Factor, Polynomial};
pub use table::TileOp;

use tessera_diag::Diagnostics;

pub type TileFunc = tessera_ir::Func<Tile>;
pub type TileModule = tessera_ir::Module<Tile>;

/// Parses one Tile IR function.
pub fn parse(text: &str) -> Result<TileFunc, Diagnostics> {
    tessera_ir::parse_func(text, "<ir>")
}
