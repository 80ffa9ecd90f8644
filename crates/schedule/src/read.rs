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

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(launches: &str) -> String {
        format!(
            "module @k : schedule {{version = 1}}\n\nfunc @k(%x: view<[n], f32, read>) {{\n{launches}  sched.return\n}}\n"
        )
    }

    #[test]
    fn what_was_chosen_is_put_over_what_was_given() {
        let text = plan(
            "  sched.launch %x {kernel = @k, grid = [n], backend = ptx, config = {BM = 64, num_warps = 0}, chosen = {num_warps = 8, off = [rotate]}}\n",
        );
        let (kernel, found) = pinned(&text, "plan").unwrap();
        assert_eq!(kernel, "k");
        assert_eq!(Attr::Dict(found).to_string(), "{BM = 64, num_warps = 8, off = [rotate]}");
    }

    #[test]
    fn a_plan_of_one_launch_is_asked_for() {
        let one = "  sched.launch %x {kernel = @k, grid = [n], backend = ptx}\n";
        assert!(pinned(&plan(one), "plan").is_ok());
        for wrong in [String::new(), one.repeat(2)] {
            let errors = pinned(&plan(&wrong), "plan").unwrap_err();
            assert!(
                errors.errors().next().unwrap().message.contains("expected a plan of one launch")
            );
        }
        assert!(pinned("nothing", "plan").is_err());
    }
}
