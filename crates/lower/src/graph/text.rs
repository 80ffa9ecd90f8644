//! A plan as text: what has memory, which kernels run in which order on what.
//!
//! Lines that begin with `store` say that a value has memory of its own, those that begin with `fused`
//! that it is a part of kernels alone. [`PlanOptions::from_text`] reads the first back, so that a plan can be
//! printed, changed there and asked for: a value that is listed gets memory, one that is not may become a
//! part of a kernel.

use super::plan::{Array, Origin, Plan, PlanOptions, Step};
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use tessera_diag::{Code, Diagnostic, Diagnostics, Loc, SourceFile};

impl Display for Plan {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan @{}", self.name)?;
        for (i, buffer) in self.buffers.iter().enumerate() {
            let result = self.results.iter().position(|(b, _)| *b == i);
            let what = match (&buffer.origin, result) {
                (Origin::Argument(n), _) => format!("argument {n}"),
                (Origin::Constant(_), _) => "constant".into(),
                (Origin::Scratch, Some(n)) => format!("result {n}"),
                (Origin::Scratch, None) => "scratch".into(),
            };
            let word = if buffer.origin == Origin::Scratch { "store" } else { "given" };
            writeln!(f, "  {word} %{} : {} ; b{i}, {what}", buffer.name, buffer.ty)?;
        }
        for (name, ty, op) in &self.fused {
            writeln!(f, "  fused %{name} : {ty} ; {op}")?;
        }
        steps(f, self, &self.steps, 1)
    }
}

fn steps(f: &mut Formatter<'_>, plan: &Plan, list: &[Step], depth: usize) -> fmt::Result {
    let pad = "  ".repeat(depth);
    for step in list {
        match step {
            Step::Launch { kernel, args, grid, label, .. } => {
                let name = &plan.kernels[*kernel].name;
                writeln!(f, "{pad}launch @{name} {grid:?} {} ; {label}", Views(plan, args))?;
            }
            Step::Host { inputs, outputs, label, .. } => {
                let (i, o) = (Views(plan, inputs), Views(plan, outputs));
                writeln!(f, "{pad}host {label} {i} -> {o}")?;
            }
            Step::Call { kernel, args, .. } => {
                let arrays: Vec<Array> = args.iter().map(|(a, _)| a.clone()).collect();
                writeln!(f, "{pad}call @{kernel} {}", Views(plan, &arrays))?;
            }
            Step::Copy { from, to } => {
                let both = [from.clone(), to.clone()];
                writeln!(f, "{pad}copy {}", Views(plan, &both))?;
            }
            Step::Cond { pred, then, otherwise, .. } => {
                writeln!(f, "{pad}if {}", Views(plan, std::slice::from_ref(pred)))?;
                steps(f, plan, then, depth + 1)?;
                writeln!(f, "{pad}else")?;
                steps(f, plan, otherwise, depth + 1)?;
            }
            Step::While { test, pred, body, .. } => {
                writeln!(f, "{pad}while")?;
                steps(f, plan, test, depth + 1)?;
                writeln!(f, "{pad}holds {}", Views(plan, std::slice::from_ref(pred)))?;
                steps(f, plan, body, depth + 1)?;
            }
            Step::Loop { trip, reverse, body, .. } => {
                let order = if *reverse { " from the end" } else { "" };
                writeln!(f, "{pad}loop {trip}{order}")?;
                steps(f, plan, body, depth + 1)?;
            }
        }
    }
    Ok(())
}

/// Arrays by the names of their buffers, with shape, and strides where they do not lie row by row.
struct Views<'a>(&'a Plan, &'a [Array]);

impl Display for Views<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (i, a) in self.1.iter().enumerate() {
            let mark = if a.writes { "!" } else { "" };
            let space = if i == 0 { "" } else { " " };
            write!(f, "{space}{mark}%{}{:?}", self.0.buffers[a.buffer].name, a.dims)?;
            let mut dense = a.dtype.bytes() as i64;
            let mut plain = true;
            for (&d, &s) in a.dims.iter().zip(&a.strides).rev() {
                plain &= d == 1 || s == dense;
                dense *= d;
            }
            if !plain || a.offset != 0 {
                write!(f, "@{}:{:?}", a.offset, a.strides)?;
            }
        }
        Ok(())
    }
}

impl PlanOptions {
    /// The options that a plan's text, as printed or changed, asks for.
    pub fn from_text(text: &str) -> Result<PlanOptions, Diagnostics> {
        let mut lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
        let file = SourceFile::new("<plan>", text, 1);
        let error = |line: usize, why: String| -> Diagnostics {
            let row = line as u32 + 1;
            let width = text.lines().nth(line).map_or(1, |l| l.len() as u32 + 1);
            let place = Loc::span(&file, row, 1, row, width);
            Diagnostic::new(Code::E_SYNTAX, why).at(place).into()
        };
        match lines.next() {
            Some((_, first)) if first.trim_start().starts_with("plan @") => {}
            Some((i, first)) => {
                return Err(error(i, format!("expected `plan @name`, got `{}`", first.trim())));
            }
            None => return Err(error(0, "expected a plan, got no text".into())),
        }
        const WORDS: [&str; 13] = [
            "given", "fused", "launch", "host", "call", "copy", "if", "else", "while", "holds",
            "loop", "plan", ";",
        ];
        let mut materialise = BTreeSet::new();
        for (i, line) in lines {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("store"), Some(name)) if name.starts_with('%') => {
                    materialise.insert(name[1..].to_string());
                }
                (Some("store"), got) => {
                    let got = got.unwrap_or("nothing");
                    return Err(error(i, format!("expected a value's name, got `{got}`")));
                }
                (Some(word), _) if WORDS.contains(&word) => {}
                (word, _) => {
                    let word = word.unwrap_or_default();
                    return Err(error(i, format!("expected a line of a plan, got `{word}`")));
                }
            }
        }
        Ok(PlanOptions { materialise, ..PlanOptions::default() })
    }
}
