//! Stages every kernel under `tests/footprint` and compares the resources of its blocks with the
//! lines after `=>`. `TESSERA_BLESS=1` rewrites those.
//!
//! Lines that begin with `; ` are options: `warps: - 4 8` pins `num_warps` in turn (`-`: not),
//! `async_mma: none` is a target without asynchronous MMAs.

use crate::golden;
use std::fmt::Write;
use tessera_diag::Diagnostics;
use tessera_ir::{PassContext, PassOptions, Type};
use tessera_lower::stage::{
    GpuCaps, MOST_STAGES, MatrixRow, Staging, footprint, stage, with_warps,
};
use tessera_numerics::{DType, Profile, ReduceOp};
use tessera_target::arrays::ArrayClass;
use tessera_tile::TileFunc;

fn headers<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let found = text.lines().filter_map(|l| l.strip_prefix("; ")?.strip_prefix(name));
    found.flat_map(str::split_whitespace).collect()
}

fn caps(async_mma: bool) -> GpuCaps {
    let row = MatrixRow { a: DType::BF16, b: DType::BF16, acc: DType::F32, k: 16 };
    GpuCaps {
        matrix: vec![row],
        async_mma: if async_mma { vec![row] } else { Vec::new() },
        folds: if async_mma { vec![(ReduceOp::Sum, DType::F32)] } else { Vec::new() },
        register_pools: async_mma,
        ..golden::caps()
    }
}

fn lowered(text: &str) -> TileFunc {
    let mut func = tessera_tile::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let passes = tessera_lower::tile_pipeline(PassOptions::default());
    let mut context = PassContext::default();
    passes.run(&mut func, &mut context).unwrap_or_else(|e| panic!("{e}"));
    func
}

fn footprints(text: &str) -> String {
    let func = lowered(text);
    let class = |&v| match func.ty(v) {
        Type::View { dims, .. } => ArrayClass::said(dims.len(), dims.len().checked_sub(1), 16),
        _ => ArrayClass::default(),
    };
    let classes: Vec<_> = func.params().iter().map(class).collect();
    let caps = caps(headers(text, "async_mma:") != ["none"]);
    let staging = Staging { caps: &caps, classes: &classes, profile: Profile::Default };
    let mut out = String::new();
    for warps in headers(text, "warps:") {
        let requested = warps.parse().map_or(func.clone(), |n| with_warps(&func, n));
        let _ = match stage(&requested, &staging, MOST_STAGES, &mut Diagnostics::new()) {
            Ok(staged) => {
                let f = footprint(&staged, &caps);
                let way = match f.async_mma {
                    Some(true) => ", on the async_mma",
                    Some(false) => ", by warps",
                    None => "",
                };
                let line = f.widest.line();
                writeln!(
                    out,
                    "{warps}: {} threads, tiles {} of {} registers, {} spilled{way}, line {line}",
                    f.threads,
                    f.tiles,
                    f.registers,
                    f.spilled()
                )
            }
            Err(errors) => {
                writeln!(out, "{warps}: {}", errors.iter().next().map_or("", |e| &e.message))
            }
        };
    }
    out
}

#[test]
fn footprints_are_as_written() {
    golden::check("footprint", 4, footprints);
}
