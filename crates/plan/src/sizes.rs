//! Refuses arrays that no memory can hold, before sizes are computed in bytes. Intermediate arrays
//! need no memory where they are fused; yet their positions are 64-bit integers, and are
//! multiplied.

use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_graph::GraphFunc;

/// The most bytes of an array: far more than any memory, far less than 64 bits count to.
const MOST_BYTES: i64 = 1 << 56;

pub fn check(func: &GraphFunc) -> Result<(), Diagnostics> {
    let mut errors = Diagnostics::new();
    for id in func.walk() {
        let op = &func.ops[id];
        for &result in &op.results {
            let Some(dims) = func.ty(result).static_shape() else { continue };
            // An extent of 0 does not make others small: loops count to them.
            let size = func.ty(result).dtype().bytes() as i64;
            let bytes = dims.iter().try_fold(size, |n, &d| n.checked_mul(d.max(1)));
            if bytes.is_none_or(|bytes| bytes > MOST_BYTES) {
                let message =
                    format!("expected arrays of at most 2^56 bytes, got {}", func.ty(result));
                let error = Diagnostic::new(Code::E_OOM, message).at(op.loc.clone());
                errors.push(error.help("work on smaller parts"));
            }
        }
    }
    errors.into_result().map(drop)
}
