//! Reading the text forms of this crate.

use tessera_diag::{Code, Diagnostic};

/// A text with a place in it. Blanks between words are passed over.
pub struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    pub fn new(text: &'a str) -> Scan<'a> {
        Scan { text, at: 0 }
    }

    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }

    pub fn take(&mut self, mark: &str) -> bool {
        let found = self.rest().starts_with(mark);
        if found {
            self.at += mark.len();
        }
        found
    }

    pub fn expect(&mut self, mark: &str) -> Result<(), Diagnostic> {
        if self.take(mark) { Ok(()) } else { Err(self.wrong(&format!("`{mark}`"))) }
    }

    /// A name, if one is next.
    pub fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = &rest[..len];
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        self.at += len;
        Some(name)
    }

    pub fn integer(&mut self) -> Result<Option<i64>, Diagnostic> {
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let digits = rest[sign..].find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len() - sign);
        if digits == 0 {
            return Ok(None);
        }
        let word = &rest[..sign + digits];
        let value = word.parse().map_err(|_| self.wrong("a number of 64 bits"))?;
        self.at += word.len();
        Ok(Some(value))
    }

    pub fn count(&mut self) -> Result<u64, Diagnostic> {
        match self.integer()? {
            Some(n) if n >= 0 => Ok(n as u64),
            _ => Err(self.wrong("a number")),
        }
    }

    pub fn names(&mut self, end: &str) -> Result<Vec<String>, Diagnostic> {
        let mut found = Vec::new();
        while !self.take(end) {
            if !found.is_empty() {
                self.expect(",")?;
            }
            found.push(self.name().ok_or_else(|| self.wrong("a name"))?.to_owned());
        }
        Ok(found)
    }

    pub fn end(&mut self) -> Result<(), Diagnostic> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.wrong("the end")) }
    }

    pub fn wrong(&mut self, expected: &str) -> Diagnostic {
        let rest: String = self.rest().chars().take(20).collect();
        let got = if rest.is_empty() { "the end".to_owned() } else { format!("`{rest}`") };
        Diagnostic::new(Code::E_SYNTAX, format!("expected {expected}, got {got}"))
            .help("a placement is written `[{dp}, {}, {tp cyclic}] sum{ep}`, a mesh `{axes = [dp, tp], extents = [4, 9]}`")
    }
}
