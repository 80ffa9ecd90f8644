//! Schedules of products of matrices, as the library requests them.

use crate::backends::{Backends, PTX};
use tessera_cost::matmul::{MatmulPlan, Shape, plans};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_target::speed::Speed;

/// The speed of the GPU that is there, or of the one that code is made for where there is none.
fn speed(backends: &Backends) -> Result<Speed, Diagnostics> {
    let caps = backends.to_compile(Some(PTX))?.caps()?;
    caps.speed.ok_or_else(|| {
        Diagnostic::new(Code::E_UNSUPPORTED, "the target has no figures of its speed").into()
    })
}

/// The ways to compute a product on a GPU, the quickest first.
pub fn matmul_plans(
    backends: &Backends,
    shape: &Shape,
    may_split: bool,
) -> Result<Vec<MatmulPlan>, Diagnostics> {
    Ok(plans(shape, may_split, &speed(backends)?))
}

/// The width of tiles for a product whose rows are in groups: see [`tessera_cost::matmul::grouped`].
pub fn grouped_columns(
    backends: &Backends,
    rows: u64,
    count: u64,
    shape: &Shape,
) -> Result<u64, Diagnostics> {
    Ok(tessera_cost::matmul::grouped(rows, count, shape.n, shape, &speed(backends)?))
}
