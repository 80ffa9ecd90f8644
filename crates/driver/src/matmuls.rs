//! Schedules of matmuls for the library: tile sizes, pipeline depth and passes from the cost model.

use crate::backends::Backends;
use crate::platforms::LIBRARY_TARGET;
use tessera_cost::matmul::{Problem, Schedule, Shape, schedule};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_target::speed::Speed;

/// The speed of the GPU that is there, or of the one that code is made for where there is none.
fn speed(backends: &Backends) -> Result<Speed, Diagnostics> {
    let caps = backends.to_compile(Some(LIBRARY_TARGET))?.caps()?;
    caps.speed().ok_or_else(|| {
        Diagnostic::new(Code::E_UNSUPPORTED, "the target has no figures of its speed").into()
    })
}

/// How a matmul is computed on a GPU: see [`tessera_cost::matmul::schedule()`].
pub fn matmul_schedule(backends: &Backends, problem: &Problem) -> Result<Schedule, Diagnostics> {
    Ok(schedule(problem, &speed(backends)?))
}

/// The tile width of a grouped matmul: see [`tessera_cost::matmul::grouped`].
pub fn grouped_columns(
    backends: &Backends,
    rows: u64,
    count: u64,
    shape: &Shape,
) -> Result<u64, Diagnostics> {
    Ok(tessera_cost::matmul::grouped(rows, count, shape.n, shape, &speed(backends)?))
}
