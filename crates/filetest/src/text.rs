//! Comments and expectations in IR text.

use std::collections::BTreeMap;
use tessera_diag::{Diagnostic, Diagnostics, Severity};

/// Where the comment of a line begins: a `;` that is not in a string, at the start or after a
/// space (`pipeline<3; …>` is a type).
pub fn comment_start(line: &str) -> Option<usize> {
    let mut in_string = false;
    let mut escaped = false;
    let mut before = ' ';
    for (i, c) in line.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            ';' if !in_string && before.is_whitespace() => return Some(i),
            _ => {}
        }
        before = c;
    }
    None
}

/// The text without comments: a line that is a comment goes as a whole; a comment after code goes
/// with the spaces before it; blank lines at both ends go.
pub fn without_comments(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let code = comment_start(line).map_or(line, |at| &line[..at]);
        if code.trim().is_empty() && code.len() != line.len() {
            continue;
        }
        out.push_str(if code.len() == line.len() { code } else { code.trim_end() });
        out.push('\n');
    }
    let mut text = out.trim_matches('\n').to_string();
    text.push('\n');
    text
}

const EXPECTATIONS: [&str; 5] = ["; error:", "; warning:", "; note:", "; > ", "; >"];

fn is_expectation(comment: &str) -> bool {
    EXPECTATIONS[..4].iter().any(|e| comment.starts_with(e)) || comment == EXPECTATIONS[4]
}

/// The text without expectations: comments that begin with `error:`, `warning:`, `note:` or `>`.
/// The header keeps all its lines.
pub fn without_expectations(text: &str) -> String {
    let mut out = String::new();
    let mut in_header = true;
    for line in text.lines() {
        in_header &= line.starts_with(';');
        let kept = match comment_start(line).filter(|&at| is_expectation(&line[at..])) {
            Some(at) if line[..at].trim().is_empty() && !in_header => continue,
            Some(at) if !in_header => line[..at].trim_end(),
            _ => line,
        };
        out.push_str(kept);
        out.push('\n');
    }
    out
}

/// What came out, by the line (from 1) of the text without expectations that it belongs to.
#[derive(Default)]
pub struct Findings {
    diagnostics: BTreeMap<u32, Vec<String>>,
    outputs: BTreeMap<u32, String>,
}

impl Findings {
    /// A diagnostic without a place is put at `line`.
    pub fn diagnostic(&mut self, d: &Diagnostic, line: u32) {
        let word = match d.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let line = if d.loc.is_known() { d.loc.line() } else { line };
        let text = format!("; {word}: {} {}", d.code, d.message);
        let here = self.diagnostics.entry(line).or_default();
        if !here.contains(&text) {
            here.push(text);
        }
    }

    pub fn diagnostics(&mut self, all: &Diagnostics, line: u32) {
        all.iter().for_each(|d| self.diagnostic(d, line));
    }

    /// IR to show as `; > …` below a line.
    pub fn output(&mut self, line: u32, text: String) {
        self.outputs.insert(line, text);
    }

    /// Puts the findings into the text they are about.
    pub fn write_into(&self, bare: &str) -> String {
        let mut out = String::new();
        for (number, line) in (1..).zip(bare.lines()) {
            out.push_str(line);
            let found = self.diagnostics.get(&number).map(Vec::as_slice).unwrap_or_default();
            if let Some((first, more)) = found.split_first() {
                out.push_str(&format!("  {first}"));
                let indent = &line[..line.len() - line.trim_start().len()];
                more.iter().for_each(|m| out.push_str(&format!("\n{indent}{m}")));
            }
            out.push('\n');
            for shown in self.outputs.get(&number).iter().flat_map(|t| t.lines()) {
                out.push_str(format!("; > {shown}").trim_end());
                out.push('\n');
            }
        }
        // An error at the very end of the text has no line of its own.
        let count = bare.lines().count() as u32;
        for (_, texts) in self.diagnostics.range(count + 1..) {
            texts.iter().for_each(|t| out.push_str(&format!("{t}\n")));
        }
        out
    }
}

/// A function in the text: its lines from 1, both inclusive.
pub struct Chunk {
    pub first: u32,
    pub last: u32,
    /// The function alone, with empty lines before it so that its lines keep their numbers.
    pub text: String,
}

/// The functions of a file: each begins with a line `func …` and ends before the next.
pub fn chunks(bare: &str) -> Vec<Chunk> {
    let lines: Vec<&str> = bare.lines().collect();
    let starts: Vec<usize> = (0..lines.len()).filter(|&i| lines[i].starts_with("func ")).collect();
    let ends = starts.iter().skip(1).copied().chain([lines.len()]);
    let chunk = |(start, end): (usize, usize)| {
        let close = (start..end).rev().find(|&i| lines[i].starts_with('}')).unwrap_or(end - 1);
        let text = format!("{}{}\n", "\n".repeat(start), lines[start..end].join("\n"));
        Chunk { first: start as u32 + 1, last: close as u32 + 1, text }
    };
    starts.iter().copied().zip(ends).map(chunk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_diag::Code;

    #[test]
    fn comments_end_outside_strings_only() {
        assert_eq!(comment_start(r#"a "x;y" ; z"#), Some(8));
        assert_eq!(comment_start(r#""\";" "#), None);
        assert_eq!(comment_start("pipeline<3; a> ; b"), Some(15));
        assert_eq!(without_comments("; h\n\na ; b\n  ; c\nd\n\n"), "a\nd\n");
    }

    #[test]
    fn expectations_come_off_and_go_on_again() {
        let text =
            "; test: verify\nfunc @f() {\n  x  ; error: E_NAME y\n  ; error: E_TYPE z\n}\n; > a\n";
        let bare = without_expectations(text);
        assert_eq!(bare, "; test: verify\nfunc @f() {\n  x\n}\n");
        let mut found = Findings::default();
        found.diagnostic(&Diagnostic::new(Code::E_NAME, "y"), 3);
        found.diagnostic(&Diagnostic::new(Code::E_TYPE, "z"), 3);
        found.output(4, "a\n".into());
        assert_eq!(found.write_into(&bare), text);
    }
}
