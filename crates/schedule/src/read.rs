//! Reads the requests of a printed or edited plan.

use crate::parts::{shown, whole};
use crate::{SchedOp, Schedule};
use std::collections::{BTreeMap, BTreeSet};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc};
use tessera_ir::{Attr, Attrs, Func, OpId, Opcode, Value, parse_module, verify};

/// The kernel of a plan of one launch, and its configuration: what it was given, overridden by what
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
        let help = "`inspect_ir(\"schedule\")` prints the text that can be handed back";
        return Err(Diagnostic::new(Code::E_ARGUMENT, message).help(help).into());
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

/// What the plan of a function requests, as it was printed or changed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Kept {
    /// The text itself.
    pub text: String,
    /// The values that get memory of their own, by name, with their locations.
    pub stored: BTreeMap<String, Loc>,
    /// The values whose memory its steps use: those that had it when the plan was printed.
    pub used: BTreeSet<String>,
    /// All names of values that it has.
    pub names: BTreeSet<String>,
    /// The steps, as text without the backend, with their locations.
    pub steps: Vec<(String, Loc)>,
}

/// Reads the plan of a function, as it was printed or changed.
pub fn kept(text: &str, file: &str) -> Result<Kept, Diagnostics> {
    let module = parse_module::<Schedule>(text, file)?;
    let [func] = &module.funcs[..] else {
        let message =
            format!("expected a plan of one function, got {} of them", module.funcs.len());
        let help = "`inspect_ir(\"schedule\")` prints the text that can be handed back";
        return Err(Diagnostic::new(Code::E_ARGUMENT, message).help(help).into());
    };
    let mut out = Kept { text: text.to_string(), ..Kept::default() };
    let mut before = func.clone();
    for id in func.walk() {
        let op = &func.ops[id];
        for &v in op.operands.iter().chain(&op.results) {
            out.names.extend(func.name_of(v).map(str::to_string));
        }
        match op.code {
            SchedOp::Store => {
                let name = func.name_of(op.result()).unwrap_or_default();
                out.stored.insert(name.to_string(), op.loc.clone());
                continue;
            }
            SchedOp::Fused | SchedOp::Constant | SchedOp::View => continue,
            SchedOp::Launch
            | SchedOp::Host
            | SchedOp::Call
            | SchedOp::Copy
            | SchedOp::Collective
            | SchedOp::If
            | SchedOp::While
            | SchedOp::Loop
            | SchedOp::Yield
            | SchedOp::Free
            | SchedOp::Record
            | SchedOp::Wait
            | SchedOp::Return => {}
        }
        out.steps.push((step_text(func, id), op.loc.clone()));
        for &v in &op.operands {
            let Some(made) = func.def_id(whole(func, v)) else { continue };
            if matches!(func.ops[made].code, SchedOp::Store | SchedOp::Fused) {
                before.ops[made].code = SchedOp::Store;
                out.used.extend(func.name_of(func.ops[made].result()).map(str::to_string));
            }
        }
    }
    // It must be valid as it was printed; the steps serve to check that.
    verify(&before)?;
    Ok(out)
}

/// A step in the form in which it is compared: its op and the memory it accesses, without its backend
/// and its queue.
pub fn step_text(func: &Func<Schedule>, id: OpId) -> String {
    let op = &func.ops[id];
    let mut attrs = Attrs::new();
    for (name, value) in
        op.attrs.iter().filter(|(name, _)| !["backend", "device", "queue"].contains(name))
    {
        attrs.set(name, value.clone());
    }
    let mut out = format!("sched.{}", Opcode::<Schedule>::mnemonic(op.code));
    for (place, &v) in op.operands.iter().enumerate() {
        out += if place == 0 { " " } else { ", " };
        out += &memory(func, v);
    }
    if !attrs.is_empty() {
        out += &format!(" {}", Attr::Dict(attrs));
    }
    out
}

/// Memory, with the part of it and its type where it is a part.
fn memory(func: &Func<Schedule>, mut v: Value) -> String {
    let mut parts = Vec::new();
    while let Some(op) = func.def(v)
        && op.code == SchedOp::View
        && let Some(&of) = op.operands.first()
    {
        let at: Vec<String> = op.group("at").iter().map(|&v| shown(func, v)).collect();
        let place = Attr::Dict(op.attrs.clone());
        parts.push(format!("[{}]{place}: {}", at.join(", "), func.ty(v)));
        v = of;
    }
    parts.push(shown(func, v));
    parts.reverse();
    parts.concat()
}
