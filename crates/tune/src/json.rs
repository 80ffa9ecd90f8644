//! The JSON that records are written in: a value, its text, and a reader that says where it failed.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Deeper files than ours are refused before they exhaust the stack.
const MAX_DEPTH: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    pub fn object<const N: usize>(fields: [(&str, Json); N]) -> Json {
        Json::Object(fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
    }

    pub fn texts(fields: &BTreeMap<String, String>) -> Json {
        Json::Object(fields.iter().map(|(n, v)| (n.clone(), Json::Text(v.clone()))).collect())
    }

    pub fn get(&self, name: &str) -> Option<&Json> {
        match self {
            Json::Object(fields) => fields.get(name),
            _ => None,
        }
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<f64> {
        match self {
            Json::Number(value) => Some(*value),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[Json]> {
        match self {
            Json::List(items) => Some(items),
            _ => None,
        }
    }

    pub fn as_object(&self) -> Option<&BTreeMap<String, Json>> {
        match self {
            Json::Object(fields) => Some(fields),
            _ => None,
        }
    }

    /// Indented, lists of numbers on one line: people read records, and compare them.
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out.push('\n');
        out
    }

    fn write(&self, out: &mut String, depth: usize) {
        match self {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => _ = write!(out, "{value}"),
            // What JSON cannot say is nothing.
            Json::Number(value) if !value.is_finite() => out.push_str("null"),
            Json::Number(value) => _ = write!(out, "{value}"),
            Json::Text(text) => write_text(out, text),
            Json::List(items) => {
                let flat = items.iter().all(|i| matches!(i, Json::Number(_) | Json::Text(_)));
                write_items(out, ['[', ']'], items.len(), depth, flat, |out, i| {
                    items[i].write(out, depth + 1);
                });
            }
            Json::Object(fields) => {
                let rows: Vec<_> = fields.iter().collect();
                write_items(out, ['{', '}'], rows.len(), depth, false, |out, i| {
                    write_text(out, rows[i].0);
                    out.push_str(": ");
                    rows[i].1.write(out, depth + 1);
                });
            }
        }
    }

    /// Reads a whole text; `Err` says what is wrong and where.
    pub fn parse(text: &str) -> Result<Json, String> {
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.space();
        if reader.at < text.len() {
            return Err(reader.fault("expected the end"));
        }
        Ok(value)
    }
}

fn write_items(
    out: &mut String,
    [open, close]: [char; 2],
    count: usize,
    depth: usize,
    flat: bool,
    mut item: impl FnMut(&mut String, usize),
) {
    out.push(open);
    for i in 0..count {
        if i > 0 {
            out.push(',');
        }
        match flat {
            true if i > 0 => out.push(' '),
            true => {}
            false => _ = write!(out, "\n{:width$}", "", width = 2 * (depth + 1)),
        }
        item(out, i);
    }
    if count > 0 && !flat {
        let _ = write!(out, "\n{:width$}", "", width = 2 * depth);
    }
    out.push(close);
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c < ' ' => _ = write!(out, "\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out.push('"');
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn fault(&self, what: &str) -> String {
        let line = 1 + self.text.as_bytes()[..self.at].iter().filter(|&&b| b == b'\n').count();
        format!("{what} in line {line}")
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Result<(), String> {
        self.space();
        if self.peek() != Some(byte) {
            return Err(self.fault(&format!("expected `{}`", byte as char)));
        }
        self.at += 1;
        Ok(())
    }

    /// Whether the list ends here; else there must be a comma, but before the first item.
    fn ends(&mut self, close: u8, first: bool) -> Result<bool, String> {
        self.space();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(true);
        }
        if !first {
            self.take(b',')?;
        }
        Ok(false)
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        if depth > MAX_DEPTH {
            return Err(self.fault("expected fewer nested brackets"));
        }
        self.space();
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                let mut fields = BTreeMap::new();
                while !self.ends(b'}', fields.is_empty())? {
                    self.space();
                    let name = self.string()?;
                    self.take(b':')?;
                    fields.insert(name, self.value(depth + 1)?);
                }
                Ok(Json::Object(fields))
            }
            Some(b'[') => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.ends(b']', items.is_empty())? {
                    items.push(self.value(depth + 1)?);
                }
                Ok(Json::List(items))
            }
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(_) => self.word(),
            None => Err(self.fault("expected a value, got the end")),
        }
    }

    fn word(&mut self) -> Result<Json, String> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
        let word = &rest[..end.unwrap_or(rest.len())];
        let value = match word {
            "null" => Json::Null,
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            _ => match word.parse::<f64>() {
                Ok(number) if number.is_finite() => Json::Number(number),
                _ => return Err(self.fault("expected a value")),
            },
        };
        self.at += word.len();
        Ok(value)
    }

    fn string(&mut self) -> Result<String, String> {
        self.take(b'"')?;
        let mut out = String::new();
        loop {
            let Some(c) = self.text[self.at..].chars().next() else {
                return Err(self.fault("expected the end of a text"));
            };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(out),
                '\\' => out.push(self.escape()?),
                c if c < ' ' => {
                    return Err(self.fault("expected an escape for a control character"));
                }
                c => out.push(c),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let byte = self.peek().ok_or_else(|| self.fault("expected an escape"))?;
        self.at += 1;
        Ok(match byte {
            b'"' | b'\\' | b'/' => byte as char,
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'u' => {
                let high = self.unit()?;
                let code = if (0xd800..0xdc00).contains(&high) {
                    self.take(b'\\')?;
                    self.take(b'u')?;
                    let low = self.unit()?;
                    0x10000 + ((high - 0xd800) << 10) + (low.wrapping_sub(0xdc00) & 0x3ff)
                } else {
                    high
                };
                char::from_u32(code).ok_or_else(|| self.fault("expected a character"))?
            }
            _ => return Err(self.fault("expected an escape")),
        })
    }

    fn unit(&mut self) -> Result<u32, String> {
        let digits = self.text.get(self.at..self.at + 4);
        let unit = digits.and_then(|d| u32::from_str_radix(d, 16).ok());
        self.at += if unit.is_some() { 4 } else { 0 };
        unit.ok_or_else(|| self.fault("expected four hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::Bool),
            (-1e300f64..1e300).prop_map(Json::Number),
            any::<String>().prop_map(Json::Text),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Json::List),
                prop::collection::btree_map(any::<String>(), inner, 0..5).prop_map(Json::Object),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in json()) {
            prop_assert_eq!(Json::parse(&value.pretty()), Ok(value));
        }

        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = Json::parse(&text);
        }
    }

    #[test]
    fn damage_is_reported_with_its_line() {
        assert_eq!(Json::parse("{\"a\": 1,\n ?}"), Err("expected `\"` in line 2".into()));
        assert_eq!(Json::parse("[1 2]"), Err("expected `,` in line 1".into()));
        assert!(Json::parse(&"[".repeat(100_000)).is_err());
        assert_eq!(Json::parse(r#""😀""#), Ok(Json::Text("😀".into())));
        assert_eq!(Json::parse("1e999"), Err("expected a value in line 1".into()));
    }
}
