//! Diagnostics as text: the code and message, the line with carets under it, every frame of the
//! call chain, further places, notes, and what to do.

use crate::{Diagnostic, Loc, Severity};
use std::fmt::Write;

impl Diagnostic {
    /// The whole diagnostic as text, without a trailing newline.
    pub fn render(&self) -> String {
        let severity = match self.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let mut out = format!("{severity}[{}]: {}\n", self.code, self.message);
        frame(&mut out, &self.loc, "");
        for label in &self.labels {
            frame(&mut out, &label.loc, &label.text);
        }
        for note in &self.notes {
            bullet(&mut out, "note", note);
        }
        if let Some(help) = self.fix() {
            bullet(&mut out, "help", help);
        }
        out.truncate(out.trim_end().len());
        out
    }
}

fn bullet(out: &mut String, word: &str, text: &str) {
    for (i, line) in text.lines().enumerate() {
        let lead = if i == 0 { format!("  = {word}: ") } else { " ".repeat(word.len() + 6) };
        let _ = writeln!(out, "{lead}{line}");
    }
}

/// The place, its source line with carets, then the places it was inlined from.
fn frame(out: &mut String, loc: &Loc, text: &str) {
    if !loc.is_known() {
        return;
    }
    excerpt(out, loc, text);
    let mut site = loc;
    while let Some(outer) = site.call_site() {
        let name = site.function().map_or("function", |n| n);
        excerpt(out, outer, &format!("`{name}` is called here"));
        site = outer;
    }
}

fn excerpt(out: &mut String, loc: &Loc, text: &str) {
    let inside = loc.function().map(|name| format!(" in `{name}`")).unwrap_or_default();
    let _ = writeln!(out, "  --> {loc}{inside}");
    let Some(line) = loc.file().and_then(|f| f.line(loc.line())) else {
        if !text.is_empty() {
            let _ = writeln!(out, "   | {text}");
        }
        return;
    };
    let number = loc.line().to_string();
    let length = line.chars().count();
    let start = (loc.column() as usize).saturating_sub(1).min(length);
    let (end_line, end_column) = loc.end();
    let end = if end_line == loc.line() { (end_column as usize).saturating_sub(1) } else { length };
    let carets = end.clamp(start + 1, length.max(start + 1)) - start;
    // Tabs keep their width, so that the carets stand under what they point at.
    let pad: String =
        line.chars().take(start).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    let _ = writeln!(out, "{number:>4} | {line}");
    let tail = if text.is_empty() { String::new() } else { format!(" {text}") };
    let _ = writeln!(out, "     | {pad}{}{tail}", "^".repeat(carets));
}
