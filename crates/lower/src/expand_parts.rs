//! `tile-expand-parts`: expands ops on parts of tiles into shared buffers, loops and elementwise
//! ops. The expansion is [`tessera_tile::expand_parts`], which backends call themselves; as a pass it
//! can be tested on text.

use tessera_diag::Diagnostics;
use tessera_ir::{Changed, Pass, PassContext};
use tessera_tile::{Scans, Tile, TileFunc, expand_parts};

pub struct ExpandParts(pub Scans);

impl Pass<Tile> for ExpandParts {
    fn name(&self) -> &'static str {
        match self.0 {
            Scans::Ordered => "tile-expand-parts",
            Scans::Parallel => "tile-expand-parts-parallel",
        }
    }

    fn run(&self, func: &mut TileFunc, _: &mut PassContext) -> Result<Changed, Diagnostics> {
        match expand_parts(func, self.0) {
            Some(new) => {
                *func = new;
                Ok(Changed::Yes)
            }
            None => Ok(Changed::No),
        }
    }
}
