//! The passes over Tile IR, from what the front end emits to what the interpreter and the backends
//! take, and the lowering to Staged IR (`stage`).
//!
//! Each pass is one file with its contract at the top. The pass order is data: [`TILE_PASSES`].
//!
//! ```
//! use tessera_ir::{PassContext, PassOptions};
//! let text = "func @f(%y: view<[n], f32, write>, %v: f32) {kind = lane} {
//!   %i = tile.linear_id : i64
//!   tile.store %y, %v at(%i) {extent = [0]}
//!   tile.return
//! }";
//! let mut func = tessera_tile::parse(text).unwrap();
//! let passes = tessera_lower::tile_pipeline(PassOptions { verify_each: true, ..PassOptions::default() });
//! passes.run(&mut func, &mut PassContext::default()).unwrap();
//! assert_eq!(func.attrs.get("domain").unwrap().to_string(), "n");
//! ```

mod bounds;
mod canonicalise;
mod check;
mod cover;
mod empty;
mod expand_math;
mod expand_parts;
mod facts;
mod fast_math;
mod geometry;
mod if_convert;
#[doc(hidden)]
pub mod inner;
mod lane_races;
mod lazy_rescale;
mod lift;
mod lift_plan;
mod lift_stages;
mod mask_elimination;
mod normalise;
mod normalise_plan;
mod order;
mod ownership;
mod ragged;
mod runs;
mod sign;
mod split;
mod split_k;
pub mod stage;
mod stage_waits;
mod taint;
mod tickets;

pub use bounds::Bounds;
pub use canonicalise::Canonicalise;
pub use check::{Check, races};
pub use cover::{Cover, Launched, covers};
pub use empty::Empty;
pub use expand_math::{ExpandMath, expanded_functions};
pub use expand_parts::ExpandParts;
pub use facts::user_name;
pub use geometry::{Geometry, geometry_error};
pub use if_convert::IfConvert;
pub use lane_races::lane_races;
pub use lazy_rescale::lazy_rescale;
pub use lift::Lift;
pub use normalise::Normalise;
pub use ownership::{Ownership, Shows, order_shows};
pub use ragged::Ragged;
pub use split::split;
pub use split_k::{GROUPS, SPLITS, SplitK, split_k};
pub use tickets::Differs;

use tessera_diag::Diagnostics;
use tessera_ir::{Changed, Pass, PassContext, PassManager, PassOptions};
use tessera_tile::{Tile, TileFunc};

type MakePass = fn() -> Box<dyn Pass<Tile>>;

/// Every pass over Tile IR in the order of the pipeline.
pub const TILE_PASSES: &[(&str, MakePass)] = &[
    ("tile-ownership", || Box::new(Ownership)),
    ("tile-lift", || Box::new(Lift)),
    ("tile-normalise", || Box::new(Normalise)),
    ("tile-geometry", || Box::new(Geometry)),
    ("tile-empty", || Box::new(Empty)),
    ("tile-ragged", || Box::new(Ragged)),
    ("tile-check", || Box::new(Check)),
    ("tile-if-convert", || Box::new(IfConvert)),
    ("tile-bounds", || Box::new(Bounds)),
    ("tile-canonicalise", || Box::new(Canonicalise)),
];

/// Passes that a backend requests by name, outside the common pipeline.
pub const BACKEND_PASSES: &[(&str, MakePass)] = &[
    ("tile-expand-math", || Box::new(ExpandMath)),
    ("tile-expand-parts", || Box::new(ExpandParts(tessera_tile::Scans::Ordered))),
    ("tile-expand-parts-parallel", || Box::new(ExpandParts(tessera_tile::Scans::Parallel))),
];

pub fn pass_by_name(name: &str) -> Option<Box<dyn Pass<Tile>>> {
    let mut all = TILE_PASSES.iter().chain(BACKEND_PASSES);
    all.find(|(n, _)| *n == name).map(|(_, make)| make())
}

/// The pipeline that every kernel goes through.
pub fn tile_pipeline(options: PassOptions) -> PassManager<Tile> {
    TILE_PASSES
        .iter()
        .fold(PassManager::new(options), |manager, (_, make)| manager.with(Boxed(make())))
}

/// The manager takes passes by type; the table holds them boxed.
struct Boxed(Box<dyn Pass<Tile>>);

impl Pass<Tile> for Boxed {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn run(&self, func: &mut TileFunc, context: &mut PassContext) -> Result<Changed, Diagnostics> {
        self.0.run(func, context)
    }
}
