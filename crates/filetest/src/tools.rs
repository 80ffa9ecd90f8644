//! The passes and backends of file tests. The caller gives the list of backends: each `; run:` line
//! is executed by every one of them.

use tessera_diag::Diagnostics;
use tessera_ir::{Pass, PassContext};
use tessera_target::Backend;
use tessera_tile::{Tile, TileFunc};

type FindPass = dyn Fn(&str) -> Option<Box<dyn Pass<Tile>>>;
type RunPipeline = dyn Fn(&mut TileFunc, &mut PassContext) -> Result<(), Diagnostics>;

pub struct Tools {
    pub pass: Box<FindPass>,
    /// What every function goes through before it runs.
    pub pipeline: Box<RunPipeline>,
    pub backends: Vec<Box<dyn Backend>>,
}

impl Tools {
    /// Enough for roundtrip and verify: no passes and no backends.
    pub fn none() -> Self {
        Self { pass: Box::new(|_| None), pipeline: Box::new(|_, _| Ok(())), backends: Vec::new() }
    }
}
