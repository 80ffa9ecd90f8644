//! A staged kernel in short: ops that copy, wait, multiply or branch, in order, without values
//! and types. `…3` is three ops that only compute.

use tessera_ir::{Effects, Opcode};
use tessera_staged::{StagedFunc, StagedOp};

/// Whether an op is one of those that are counted.
fn only_computes(mnemonic: &str) -> bool {
    let op = StagedOp::all().into_iter().find(|op| op.mnemonic() == mnemonic);
    matches!(op, Some(op @ StagedOp::Tile(_)) if op.info().effects == Effects::Pure)
}

/// An op without values and types: its name and attributes.
fn short(line: &str, name: &str) -> String {
    let kept = line.split(" : ").next().unwrap_or(line);
    let attrs = kept.find('{').zip(kept.rfind('}')).map(|(from, to)| &kept[from..=to]);
    attrs.map_or(name.to_string(), |attrs| format!("{name} {attrs}"))
}

/// Ops of one region, filled into lines.
#[derive(Default)]
struct Run {
    ops: Vec<String>,
    computed: usize,
}

impl Run {
    fn count(&mut self) {
        if self.computed > 0 {
            self.ops.push(format!("…{}", self.computed));
            self.computed = 0;
        }
    }

    fn write(&mut self, out: &mut String, left: &str) {
        self.count();
        let mut line = String::new();
        for op in self.ops.drain(..) {
            if !line.is_empty() && left.len() + line.len() + op.len() > 110 {
                *out += &format!("{left}{line}\n");
                line.clear();
            }
            line += if line.is_empty() { "" } else { "; " };
            line += &op;
        }
        if !line.is_empty() {
            *out += &format!("{left}{line}\n");
        }
    }
}

/// Regions are indented; the ops that end them are left out.
pub fn outline(func: &StagedFunc) -> String {
    let text = func.to_string();
    let mut lines = text.lines();
    let mut out = lines.next().map(|line| format!("{line}\n")).unwrap_or_default();
    let (mut run, mut left) = (Run::default(), "");
    for line in lines {
        let here = &line[..line.len() - line.trim_start().len()];
        if here.len() != left.len() {
            run.write(&mut out, left);
            left = here;
        }
        let Some(name) = line.split_whitespace().find_map(|w| w.strip_prefix("staged.")) else {
            if line.ends_with('{') {
                out += &format!("{left}or\n");
            }
            continue;
        };
        if line.ends_with('{') {
            run.write(&mut out, left);
            out += &format!("{left}{}\n", short(line, name));
        } else if only_computes(name) {
            run.computed += 1;
        } else if name != "yield" && name != "return" {
            run.count();
            run.ops.push(short(line, name));
        }
    }
    run.write(&mut out, left);
    without_empty(&out)
}

/// A second region that does nothing is not shown.
fn without_empty(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<&str> = text.lines().collect();
    let is_empty = |at: usize| {
        let next = lines.get(at + 1).map_or(0, |next| indent(next));
        lines[at].trim() == "or" && next <= indent(lines[at])
    };
    let kept = (0..lines.len()).filter(|&at| !is_empty(at));
    kept.map(|at| format!("{}\n", lines[at])).collect()
}
