//! Why values are where they are, and which ops requested the collectives: a text for users.

use crate::composites::Rules;
use crate::placement::named;
use crate::propagate::{Placements, Why};
use std::collections::BTreeSet;
use std::fmt::Write;
use tessera_diag::{Code, Loc};
use tessera_graph::ops::collective::MeshAxes;
use tessera_graph::{GraphFunc, GraphOp, states::is_collective};
use tessera_ir::{Attr, OpId, Opcode, Value};

fn shown(func: &GraphFunc, value: Value) -> String {
    func.name_of(value).map_or_else(|| format!("%{value}"), |name| format!("%{name}"))
}

fn at(loc: &Loc) -> String {
    if *loc == Loc::unknown() { String::new() } else { format!(" ({loc})") }
}

/// The placement of a value: `[{dp}, {}]`.
fn placement(mesh: &MeshAxes, func: &GraphFunc, p: &Placements, value: Value) -> String {
    let split = named(mesh, &p.of(func, value));
    let dims: Vec<String> = split.iter().map(|d| format!("{{{}}}", d.join(", "))).collect();
    format!("[{}]", dims.join(", "))
}

/// A line for each value that is split, with the reason for each dim.
pub fn values(func: &GraphFunc, p: &Placements) -> String {
    let mut out = String::new();
    let mut line = |value: Value, what: &str, loc: &Loc| {
        let dims = p.of(func, value);
        if dims.iter().all(Vec::is_empty) {
            return;
        }
        let reasons = (0..dims.len()).filter_map(|dim| {
            Some(match p.why(value, dim)? {
                Why::Pinned => format!("dim {dim} is pinned"),
                Why::With(op, from) => {
                    let (name, from) = (func.ops[op].code.mnemonic(), shown(func, from));
                    format!("dim {dim} goes with {from} in `{name}`")
                }
            })
        });
        let reasons: Vec<String> = reasons.collect();
        let place = placement(&p.mesh, func, p, value);
        let name = shown(func, value);
        writeln!(out, "{name} {place}: {what}{}: {}", at(loc), reasons.join("; ")).ok();
    };
    for &param in func.params() {
        line(param, "argument", &Loc::unknown());
    }
    for id in func.walk() {
        let op = &func.ops[id];
        for &result in &op.results {
            line(result, &format!("`{}`", op.code.mnemonic()), &op.loc);
        }
    }
    out
}

/// A line for each kernel of a user that runs on whole arrays though ranks have blocks of them; `gathered` are those that could run on
/// other blocks.
pub fn whole_kernels(
    func: &GraphFunc,
    rules: &Rules,
    p: &Placements,
    gathered: &BTreeSet<OpId>,
) -> String {
    let mut out = String::new();
    for id in func.walk() {
        let op = &func.ops[id];
        let is_split = |v: &Value| p.of(func, *v).iter().any(|axes| !axes.is_empty());
        let is_named = op.code == GraphOp::KernelCall && !rules.of(func, id).kinds.is_empty();
        let is_whole = op.code == GraphOp::KernelCall && (!is_named || gathered.contains(&id));
        if is_whole && op.operands.iter().any(is_split) {
            let kernel = op.attr("kernel").and_then(Attr::as_ref_name).unwrap_or_default();
            let code = Code::N_WHOLE_KERNEL;
            let cure = match is_named {
                false => "name the dims that ranks may split: `@ts.kernel(parallel=…, contract=…)`",
                true => {
                    "split its arrays in equal blocks along dims that it names; in `strict` those of `parallel=` alone"
                }
            };
            let at = at(&op.loc);
            writeln!(out, "{code}: `{kernel}` runs on whole arrays on each rank{at}; {cure}").ok();
        }
    }
    out
}

/// A line for each collective of the program of a rank, with the op that requested it.
pub fn moves(func: &GraphFunc) -> String {
    let mut out = String::new();
    for id in func.walk() {
        let op = &func.ops[id];
        if !is_collective(op.code) {
            continue;
        }
        let words = op.attr("axes").and_then(Attr::as_list).unwrap_or_default();
        let axes: Vec<&str> = words.iter().filter_map(Attr::as_word).collect();
        let of = op.operands.first().map_or(String::new(), |&v| format!(" of {}", func.ty(v)));
        let (name, axes) = (op.code.mnemonic(), axes.join(", "));
        writeln!(out, "{name} over {axes}{of}{}", at(&op.loc)).ok();
    }
    out
}
