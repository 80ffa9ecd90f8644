//! Reads IR text character by character and remembers where it is.

use std::sync::Arc;
use tessera_diag::{Code, Diagnostic, Loc, SourceFile};

pub(crate) struct Cursor<'s> {
    pub file: Arc<SourceFile>,
    text: &'s str,
    pos: usize,
    /// Starts of lines, to convert a position to line and column.
    lines: Vec<usize>,
}

pub(crate) type Parsed<T> = Result<T, Diagnostic>;

fn is_word_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

impl<'s> Cursor<'s> {
    pub fn new(text: &'s str, file: Arc<SourceFile>) -> Self {
        let lines =
            std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Self { file, text, pos: 0, lines }
    }

    pub fn pos(&self) -> usize {
        self.pos
    }

    pub fn set_pos(&mut self, pos: usize) {
        self.pos = pos;
    }

    pub fn between(&self, from: usize, to: usize) -> &'s str {
        &self.text[from..to]
    }

    pub fn loc_at(&self, from: usize, to: usize) -> Loc {
        let place = |pos: usize| {
            let line = self.lines.partition_point(|&start| start <= pos) - 1;
            let column = self.text[self.lines[line]..pos].chars().count() as u32 + 1;
            (line as u32 + self.file.first_line, column)
        };
        let ((line, column), (end_line, end_column)) = (place(from), place(to));
        Loc::span(&self.file, line, column, end_line, end_column)
    }

    pub fn error(&self, message: impl Into<String>) -> Diagnostic {
        let next = self.rest().chars().next().map_or(0, char::len_utf8);
        Diagnostic::new(Code::E_SYNTAX, message).at(self.loc_at(self.pos, self.pos + next))
    }

    pub fn expected<T>(&mut self, what: &str) -> Parsed<T> {
        self.skip_space();
        let got = self.found();
        Err(self.error(format!("expected {what}, got {got}")))
    }

    /// What stands here, for messages.
    fn found(&self) -> String {
        let rest = self.rest();
        match rest.chars().next() {
            None => "the end of the text".into(),
            Some(c) if is_word_start(c) || c.is_ascii_digit() => {
                let word: String =
                    rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                format!("`{word}`")
            }
            Some(c) => format!("`{c}`"),
        }
    }

    pub fn rest(&self) -> &'s str {
        &self.text[self.pos..]
    }

    pub fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.pos += rest.len() - trimmed.len();
            // After a space only: `pipeline<3; …>` is no comment.
            let apart = !self.text[..self.pos].ends_with(|c: char| !c.is_whitespace());
            if !trimmed.starts_with(';') || !apart {
                return;
            }
            self.pos += trimmed.find('\n').unwrap_or(trimmed.len());
        }
    }

    pub fn at_end(&mut self) -> bool {
        self.skip_space();
        self.rest().is_empty()
    }

    pub fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.rest().chars().next()
    }

    /// Takes `text` if it stands here.
    pub fn eat(&mut self, text: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(text);
        if found {
            self.pos += text.len();
        }
        found
    }

    /// Takes `text` only where no word goes on after it.
    pub fn eat_word(&mut self, text: &str) -> bool {
        self.skip_space();
        let rest = self.rest();
        let ends = rest
            .get(text.len()..)
            .is_some_and(|r| !r.starts_with(|c: char| c.is_alphanumeric() || c == '_'));
        let found = rest.starts_with(text) && ends;
        if found {
            self.pos += text.len();
        }
        found
    }

    pub fn expect(&mut self, text: &str) -> Parsed<()> {
        if self.eat(text) { Ok(()) } else { self.expected(&format!("`{text}`")) }
    }

    /// Letters, digits, `_`, and dots between them.
    pub fn dotted(&mut self) -> Option<&'s str> {
        self.word_with(|c| c.is_alphanumeric() || c == '_' || c == '.')
    }

    pub fn word(&mut self) -> Option<&'s str> {
        self.word_with(|c| c.is_alphanumeric() || c == '_')
    }

    fn word_with(&mut self, goes_on: impl Fn(char) -> bool) -> Option<&'s str> {
        self.skip_space();
        let rest = self.rest();
        if !rest.starts_with(is_word_start) {
            return None;
        }
        let len = rest.find(|c| !goes_on(c)).unwrap_or(rest.len());
        self.pos += len;
        Some(&rest[..len])
    }

    /// A value's name after `%`: words, digits and dots.
    pub fn value_name(&mut self) -> Parsed<&'s str> {
        self.expect("%")?;
        let rest = self.rest();
        let len = rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .unwrap_or(rest.len());
        if len == 0 {
            return self.expected("a value name after `%`");
        }
        self.pos += len;
        Ok(&rest[..len])
    }

    pub fn int(&mut self) -> Option<i64> {
        self.skip_space();
        let rest = self.rest();
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let len = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let total = len + rest.len() - digits.len();
        let value = rest[..total].parse().ok().filter(|_| len > 0)?;
        self.pos += total;
        Some(value)
    }

    /// The text of a number, integer or float, with `inf` and `nan`.
    pub fn number(&mut self) -> Option<&'s str> {
        self.skip_space();
        let rest = self.rest();
        for special in ["-inf", "inf", "nan"] {
            if rest.starts_with(special)
                && !rest[special.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
            {
                self.pos += special.len();
                return Some(special);
            }
        }
        let body = rest.strip_prefix('-').unwrap_or(rest);
        if !body.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let mut len = rest.len() - body.len();
        let mut before = ' ';
        for c in body.chars() {
            let sign = (c == '-' || c == '+') && matches!(before, 'e' | 'E');
            if !(c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E') || sign) {
                break;
            }
            before = c;
            len += 1;
        }
        self.pos += len;
        Some(&rest[..len])
    }

    pub fn string(&mut self) -> Parsed<String> {
        self.expect("\"")?;
        let mut out = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.pos += i + 1;
                    return Ok(out);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, 't')) => out.push('\t'),
                    Some((_, 'r')) => out.push('\r'),
                    Some((_, '0')) => out.push('\0'),
                    Some((_, 'u')) => {
                        let mut hex = String::new();
                        for (_, h) in chars.by_ref().skip(1) {
                            if h == '}' {
                                break;
                            }
                            hex.push(h);
                        }
                        match u32::from_str_radix(&hex, 16).ok().and_then(char::from_u32) {
                            Some(c) => out.push(c),
                            None => return Err(self.error("expected a character code in `\\u{…}`")),
                        }
                    }
                    Some((_, other)) => out.push(other),
                    None => break,
                },
                // The printer writes `\n`: a string that goes on over the line was never closed.
                '\n' => break,
                c => out.push(c),
            }
        }
        Err(self.error("expected `\"` at the end of the string"))
    }
}
