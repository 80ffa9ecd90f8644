//! Diagnostics as JSON, for editors and other tools.

use crate::{Diagnostic, Loc};
use std::fmt::Write;

impl Diagnostic {
    /// One JSON object on one line.
    pub fn to_json(&self) -> String {
        let labels: Vec<_> = self
            .labels
            .iter()
            .map(|l| format!("{{\"at\":{},\"text\":{}}}", place(&l.loc), quote(&l.text)))
            .collect();
        let notes: Vec<_> = self.notes.iter().map(|n| quote(n)).collect();
        format!(
            "{{\"code\":{},\"message\":{},\"at\":{},\"labels\":[{}],\"notes\":[{}],\"help\":{}}}",
            quote(self.code.name()),
            quote(&self.message),
            place(&self.loc),
            labels.join(","),
            notes.join(","),
            self.fix().map_or("null".into(), quote),
        )
    }
}

fn place(loc: &Loc) -> String {
    let Some(file) = loc.file() else { return "null".into() };
    let (end_line, end_column) = loc.end();
    format!(
        "{{\"file\":{},\"line\":{},\"column\":{},\"end_line\":{end_line},\"end_column\":{end_column},\"function\":{},\"call_site\":{}}}",
        quote(&file.name),
        loc.line(),
        loc.column(),
        loc.function().map_or("null".into(), |f| quote(f)),
        loc.call_site().map_or("null".into(), place),
    )
}

fn quote(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
