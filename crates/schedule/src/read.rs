//! Reading what a plan pins.

use crate::{SchedOp, Schedule};
use tessera_diag::{Code, Diagnostic, Diagnostics};
use tessera_ir::{Attr, Attrs, parse_module, verify};

/// The kernel of a plan of one launch, and all that the plan says of how it runs: what it was given, and over that what
/// the compiler chose.
pub fn pinned(text: &str, file: &str) -> Result<(String, Attrs), Diagnostics> {
    let module = parse_module::<Schedule>(text, file)?;
    let mut launches = Vec::new();
    for func in &module.funcs {
        verify(func)?;
        let ops = func.walk().into_iter().map(|id| &func.ops[id]);
        launches.extend(ops.filter(|op| op.code == SchedOp::Launch));
    }
    let [launch] = launches[..] else {
        let message = format!("expected a plan of one launch, got {} of them", launches.len());
        return Err(Diagnostic::new(Code::E_ARGUMENT, message).into());
    };
    let kernel = launch.attr("kernel").and_then(Attr::as_ref_name).unwrap_or_default();
    let mut out = Attrs::new();
    for part in ["config", "chosen"] {
        for (name, value) in
            launch.attr(part).and_then(Attr::as_dict).into_iter().flat_map(Attrs::iter)
        {
            out.set(name, value.clone());
        }
    }
    Ok((kernel.to_string(), out))
}
