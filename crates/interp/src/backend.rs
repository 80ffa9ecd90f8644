//! The interpreter as a backend.

use crate::launch::{MAX_LANES, launch};
use crate::prepare::prepare;
use crate::program::{Action, Program};
use std::sync::atomic::{AtomicU32, Ordering};
use tessera_diag::Diagnostics;
use tessera_support::{Hash128, StableHasher};
use tessera_target::{
    Artifact, Backend, Caps, CompileOptions, CpuCaps, HOST_SHARED_BYTES, LaunchArgs, MachineCaps,
};
use tessera_tile::TileFunc;

/// Incremented when the same Tile IR may give other bits than before.
const VERSION: i64 = 1;

/// The reference backend: executes Tile IR on the host, one group after another.
#[derive(Copy, Clone, Debug, Default)]
pub struct Interp;

impl Backend for Interp {
    fn name(&self) -> &'static str {
        "interp"
    }

    fn caps(&self) -> Caps {
        Caps {
            backend: "interp",
            arch: "host".into(),
            mma_dtypes: Vec::new(),
            device_count: 1,
            memory_bytes: 0,
            machine: MachineCaps::Cpu(CpuCaps {
                warp_size: warp_size(),
                max_lanes: MAX_LANES as u32,
                shared_bytes: HOST_SHARED_BYTES,
            }),
            emulated: [
                ("async_copy", "a copy that completes immediately"),
                ("mma", "one fused multiply-add for each k, in order"),
                ("lanes", "vectors with a mask, in lock step"),
            ]
            .into(),
        }
    }

    fn compile(
        &self,
        func: &TileFunc,
        _: &CompileOptions,
    ) -> Result<Box<dyn Artifact>, Diagnostics> {
        // Every profile is run by the strict rules, which satisfy the others.
        Ok(Box::new(Prepared::new(func)?))
    }
}

/// Runs a function once: the short form for tests.
pub fn run(func: &TileFunc, args: &LaunchArgs) -> Result<(), Diagnostics> {
    launch(&prepare(func)?, args)
}

pub(crate) struct Prepared {
    pub program: Program,
    text: String,
    hash: Hash128,
}

impl Prepared {
    pub fn new(func: &TileFunc) -> Result<Self, Diagnostics> {
        let program = prepare(func)?;
        let text =
            format!("module @{} : target.interp {{version = {VERSION}}}\n\n{func}", func.name);
        let mut hasher = StableHasher::new();
        hasher.write_str("target.interp");
        hasher.write_u64(VERSION as u64);
        hasher.write_str(&func.hash().to_string());
        Ok(Self { program, text, hash: hasher.finish() })
    }
}

impl Artifact for Prepared {
    fn target_text(&self) -> String {
        self.text.clone()
    }

    fn hash(&self) -> Hash128 {
        self.hash
    }

    fn launch(&self, args: &LaunchArgs) -> Result<(), Diagnostics> {
        launch(&self.program, args)
    }

    fn resources(&self) -> Vec<(&'static str, String)> {
        let insts = || self.program.blocks.iter().flat_map(|b| &b.insts);
        let shared: i64 = insts()
            .map(|i| match &i.action {
                Action::BufAlloc { dims, dtype } => {
                    dims.iter().product::<i64>() * dtype.bytes() as i64
                }
                _ => 0,
            })
            .sum();
        vec![("ops", insts().count().to_string()), ("shared_bytes", shared.to_string())]
    }
}

/// The emulated warp width. It belongs to the process, as a device's belongs to the machine.
static WARP_SIZE: AtomicU32 = AtomicU32::new(32);

pub(crate) fn warp_size() -> u32 {
    WARP_SIZE.load(Ordering::Relaxed)
}

/// Sets the width that kernels see: 16, 32 or 64, as targets have.
pub fn set_warp_size(lanes: u32) {
    WARP_SIZE.store(lanes.max(1), Ordering::Relaxed);
}
