//! The resources that a block of a kernel needs, known after staging and before selection; and the
//! warning for a pinned number of warps that leaves its tiles too few registers.

use crate::caps::PtxCaps;
use crate::code::Classes;
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_lower::stage::{GpuCaps, MOST_STAGES, Staging, pinned_warps, stage, with_warps};
use tessera_numerics::Profile;
use tessera_staged::StagedFunc;
use tessera_target::Footprint;
use tessera_tile::{KernelKind, TileFunc, kind_of};

/// None for lane kernels, and for what cannot be staged.
pub fn footprint(
    func: &TileFunc,
    caps: &PtxCaps,
    profile: Profile,
    classes: &Classes,
) -> Option<Footprint> {
    of_staging(func, &Staging { caps: &caps.gpu, classes, profile })
}

fn of_staging(func: &TileFunc, staging: &Staging<'_>) -> Option<Footprint> {
    if kind_of(func) == Some(KernelKind::Lane) {
        return None;
    }
    let staged = stage(func, staging, MOST_STAGES, &mut Diagnostics::new()).ok()?;
    Some(of_staged(&staged, staging.caps))
}

pub fn of_staged(func: &StagedFunc, caps: &GpuCaps) -> Footprint {
    let found = tessera_lower::stage::footprint(func, caps);
    // Where the target has no WGMMA, MMAs are `mma.sync`.
    Footprint { async_mma: found.async_mma.filter(|_| !caps.async_mma.is_empty()), ..found }
}

/// Warns of tiles that spill with the pinned number of warps.
pub fn warn(func: &TileFunc, staging: &Staging<'_>, found: &Footprint) -> Option<Diagnostic> {
    let warps = pinned_warps(func)?;
    if found.spilled() == 0 {
        return None;
    }
    let Footprint { tiles, registers, .. } = found;
    let message = format!(
        "{warps} warps leave {registers} registers to a thread, and the tiles that are alive here take about {tiles}: they \
         spill to memory"
    );
    let fits = |&n: &u32| {
        let other = of_staging(&with_warps(func, n), staging);
        other.is_some_and(|o| o.spilled() == 0 && o.async_mma >= found.async_mma)
    };
    let most = staging.caps.max_threads_per_block / 32;
    let more = (0..).map(|i| 1 << i).take_while(|&n| n <= most).filter(|&n| i64::from(n) > warps);
    let help = match more.into_iter().find(fits) {
        Some(n) => format!(
            "pin {n} warps (`warps={n}` in `@ts.kernel.schedule`, `num_warps` among tunables), or leave the count to the \
             compiler"
        ),
        None => "take smaller tiles, or hold fewer of them".to_string(),
    };
    let warning = Diagnostic::new(Code::W_REGISTER_SPILL, message);
    Some(warning.at(found.widest.clone()).help(help))
}
