//! What a body does with each array parameter, and whether its annotation allows it (LANGUAGE 5).
//! An unannotated parameter gets the least that covers the body.

use crate::elab::Elab;
use crate::source::ParamKind;
use tessera_diag::{Code, Diagnostic, Loc};
use tessera_ir::{Attr, Privilege, Type, Value};
use tessera_tile::TileOp;
use tessera_tile::ops::atomic::{allowed, is_used};

#[derive(Default)]
struct Uses {
    read: Option<Loc>,
    write: Option<Loc>,
    accumulate: Option<Loc>,
    /// The operator of each accumulation, and where it is.
    folds: Vec<(String, Loc)>,
    /// The operator, whether the old value is used, and where.
    atomics: Vec<(String, bool, Loc)>,
}

/// Sets the privilege of every view to what the body needs and reports what the annotation
/// forbids. Gives the privilege of each kernel parameter.
pub fn assign(e: &mut Elab<'_>) -> Vec<Option<Privilege>> {
    let decl = e.decl;
    let mut out = Vec::new();
    for p in &decl.params {
        let Some(&view) = e.views.get(&p.name) else {
            out.push(None);
            continue;
        };
        let uses = uses_of(e, view);
        let declared = match &p.kind {
            ParamKind::Tensor { privilege, out, .. } => {
                privilege.or(out.then_some(Privilege::Write))
            }
            _ => None,
        };
        let privilege = match declared {
            Some(privilege) => {
                check(e, (&p.name, &p.kind), privilege, &uses);
                privilege
            }
            None => least(&uses),
        };
        if let Type::View { privilege: slot, .. } = &mut e.func.values[view].ty {
            *slot = privilege;
        }
        out.push(Some(privilege));
    }
    out
}

/// Reports what writes constant tables.
pub fn tables(e: &mut Elab<'_>) {
    for (_, view) in e.tables.clone() {
        let uses = uses_of(e, view);
        let atomic = uses.atomics.first().map(|(_, _, loc)| loc.clone());
        if let Some(loc) = uses.write.or(uses.accumulate).or(atomic) {
            let error = Diagnostic::new(
                Code::E_PRIVILEGE,
                "expected a captured array to be read only, but it is written",
            );
            e.report(error.at(loc).help("captured arrays are constants: make it a parameter"));
        }
    }
}

fn uses_of(e: &Elab<'_>, view: Value) -> Uses {
    let mut uses = Uses::default();
    for id in e.func.walk() {
        let op = &e.func.ops[id];
        let slot = match op.code {
            TileOp::Load | TileOp::Gather if op.operands[0] == view => &mut uses.read,
            TileOp::CopyAsync if op.operands[1] == view => &mut uses.read,
            TileOp::Store | TileOp::Scatter if op.operands[0] == view => &mut uses.write,
            TileOp::Accumulate if op.operands[0] == view => {
                let name = op.attr("op").and_then(Attr::as_word).unwrap_or_default();
                uses.folds.push((name.to_string(), op.loc.clone()));
                &mut uses.accumulate
            }
            TileOp::Atomic if op.operands[0] == view => {
                let name = op.attr("op").and_then(Attr::as_word).unwrap_or_default();
                uses.atomics.push((name.to_string(), is_used(&e.func, id), op.loc.clone()));
                continue;
            }
            _ => continue,
        };
        if slot.is_none() {
            *slot = Some(op.loc.clone());
        }
    }
    uses
}

fn least(uses: &Uses) -> Privilege {
    let updates = uses.accumulate.is_some() || !uses.atomics.is_empty();
    match (uses.read.is_some(), uses.write.is_some(), updates) {
        (_, _, true) | (true, true, _) => Privilege::ReadWrite,
        (false, true, false) => Privilege::Write,
        (_, false, false) => Privilege::Read,
    }
}

/// The type of a parameter as an annotation, with `Tensor` or `Out` as the privilege goes with it.
fn annotation(kind: &ParamKind, made: bool) -> Option<String> {
    let ParamKind::Tensor { dims, elem, .. } = kind else { return None };
    let symbol = |d: &String| match d.parse::<i64>() {
        Ok(_) => d.clone(),
        Err(_) => format!("\"{d}\""),
    };
    let mut items: Vec<String> = dims.as_ref()?.iter().map(symbol).collect();
    let elem = elem.as_ref()?;
    let dtype = elem.to_string();
    items.push(if dtype.contains(' ') { format!("\"{dtype}\"") } else { format!("ts.{dtype}") });
    let of = if made { "Out" } else { "Tensor" };
    Some(format!("ts.{of}[{}]", items.join(", ")))
}

fn check(e: &mut Elab<'_>, (name, kind): (&str, &ParamKind), privilege: Privilege, uses: &Uses) {
    let made = matches!(kind, ParamKind::Tensor { out: true, .. });
    let mut refuse = |at: &Option<Loc>, does: &str, help: String| {
        if let Some(loc) = at {
            e.report(
                Diagnostic::new(
                    Code::E_PRIVILEGE,
                    format!(
                        "expected `{name}` to be used as `{}`, but it is {does}",
                        privilege.name()
                    ),
                )
                .at(loc.clone())
                .help(help),
            );
        }
    };
    // What is made for the launch holds nothing yet: it can be folded into, and not read.
    let suggest = |p: &str| {
        let folds = p.starts_with("reduce_");
        let ty = annotation(kind, made && folds).map_or(String::new(), |t| format!(", {t}"));
        let passed = if made && !folds { ", and pass an array," } else { "" };
        format!("declare it `{name}: ts.Region[ts.{p}{ty}]`{passed} if that is intended")
    };
    // Folding with one operator is what `reduce_*` is for.
    let fold_of = |op: &str, used: bool| match op {
        "add" if made && !used => "reduce_sum",
        "max" if made && !used => "reduce_max",
        "min" if made && !used => "reduce_min",
        _ => "read_write",
    };
    for (op, used, loc) in &uses.atomics {
        let place = Some(loc.clone());
        if !allowed(privilege, op) {
            refuse(&place, &format!("changed by an atomic {op}"), suggest(fold_of(op, *used)));
        } else if privilege.reduces() && *used {
            refuse(&place, "read: the old value of an atomic is used", suggest("read_write"));
        }
    }
    match privilege {
        Privilege::Read => {
            refuse(&uses.write, "written", suggest("read_write"));
            refuse(&uses.accumulate, "accumulated into", suggest("reduce_sum"));
        }
        Privilege::Write => {
            refuse(&uses.read, "read", suggest("read_write"));
            let folds = uses.folds.iter().all(|(op, _)| op == "sum") && uses.read.is_none();
            let wanted = if made && folds { "reduce_sum" } else { "read_write" };
            refuse(&uses.accumulate, "read by `+=`", suggest(wanted));
        }
        Privilege::ReadWrite => {}
        Privilege::ReduceSum
        | Privilege::ReduceMax
        | Privilege::ReduceMin
        | Privilege::ReduceProd => {
            refuse(&uses.read, "read", suggest("read_write"));
            refuse(&uses.write, "assigned", suggest("read_write"));
            let own = privilege.name().trim_start_matches("reduce_");
            for (_, loc) in uses.folds.iter().filter(|(op, _)| op != own) {
                let help = format!(
                    "fold with its own operator: `ts.tile.accumulate({name}[…], v)`, or declare it \
                     `{name}: ts.Region[ts.reduce_sum]`"
                );
                refuse(&Some(loc.clone()), "added to", help);
            }
        }
    }
}
