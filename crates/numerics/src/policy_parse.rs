//! Text to [`NumType`]: `name { "@" ident [ "(" arg ")" ] }`, where an argument is a word, a number
//! or a quoted string. Blanks may stand between tokens.

use crate::dtype::DType;
use crate::modes::{Rounding, ScaleMode};
use crate::policy::{Accum, NumType, PolicyItem};
use crate::policy_error::{ITEM_NAMES, PolicyError, clip};
use crate::suggest::{UnknownDType, nearest, unknown_dtype_suggestions};
use std::str::FromStr;

impl NumType {
    /// Reads a type with its policy. Items may come in any order; each kind at most once.
    pub fn parse(text: &str) -> Result<NumType, PolicyError> {
        let mut p = Parser { text, at: 0 };
        p.blanks();
        let name = p.word();
        if name.is_empty() {
            return Err(p.expected("a dtype name"));
        }
        let mut out = NumType::plain(dtype(name)?);
        loop {
            p.blanks();
            if p.rest().is_empty() {
                return Ok(out);
            }
            if !p.eat('@') {
                return Err(p.expected("`@` or the end"));
            }
            p.blanks();
            let item = p.word();
            if item.is_empty() {
                return Err(p.expected("a policy item"));
            }
            p.blanks();
            let arg = if p.eat('(') { Some(p.argument()?) } else { None };
            out = out.with(policy_item(item, arg)?)?;
        }
    }
}

impl FromStr for NumType {
    type Err = PolicyError;

    fn from_str(s: &str) -> Result<NumType, PolicyError> {
        NumType::parse(s)
    }
}

fn dtype(name: &str) -> Result<DType, PolicyError> {
    // An absurdly long name is cut before it is kept in an error.
    DType::parse(name).ok_or_else(|| {
        UnknownDType { name: clip(name), suggestions: unknown_dtype_suggestions(name) }.into()
    })
}

/// One item by name, with its argument unquoted.
fn policy_item(name: &str, arg: Option<&str>) -> Result<PolicyItem, PolicyError> {
    let need = |item: &'static str, expected: &str| {
        arg.ok_or_else(|| PolicyError::bad(item, expected, "no argument"))
    };
    let none = |item: &'static str, value: PolicyItem| match arg {
        None => Ok(value),
        Some(got) => Err(PolicyError::bad(item, "no argument", got)),
    };
    match name {
        "accum" => match need("accum", "an accumulator type")? {
            "fp32_fast" | "f32_fast" => Ok(PolicyItem::Accum(Accum::Fp32Fast)),
            other => Ok(PolicyItem::Accum(Accum::Type(dtype(other)?))),
        },
        "compute" => Ok(PolicyItem::Compute(dtype(need("compute", "a dtype")?)?)),
        "round" => {
            let expected = "\"rne\", \"rtz\", \"up\", \"down\" or \"stochastic\"";
            let word = need("round", expected)?;
            let mode = Rounding::from_name(word);
            Ok(PolicyItem::Round(mode.ok_or_else(|| PolicyError::bad("round", expected, word))?))
        }
        "stochastic_round" => none("stochastic_round", PolicyItem::Round(Rounding::Stochastic)),
        "saturate" => match arg {
            None | Some("true") => Ok(PolicyItem::Saturate(true)),
            Some("false") => Ok(PolicyItem::Saturate(false)),
            Some(got) => Err(PolicyError::bad("saturate", "true, false or no argument", got)),
        },
        "scale" => {
            let expected = "\"amax_dynamic\" or \"delayed\"";
            let word = need("scale", expected)?;
            let mode = ScaleMode::from_name(word);
            Ok(PolicyItem::Scale(mode.ok_or_else(|| PolicyError::bad("scale", expected, word))?))
        }
        "loss_scale" => {
            let expected = "a finite number above zero";
            let word = need("loss_scale", expected)?;
            let value = word.parse().map_err(|_| PolicyError::bad("loss_scale", expected, word))?;
            Ok(PolicyItem::LossScale(value))
        }
        "packed" => none("packed", PolicyItem::Packed),
        _ => Err(PolicyError::UnknownItem {
            name: clip(name),
            suggestion: nearest(name, ITEM_NAMES),
        }),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, c: char) -> bool {
        let hit = self.rest().starts_with(c);
        self.at += if hit { c.len_utf8() } else { 0 };
        hit
    }

    /// The longest run of characters for which `f` holds.
    fn run(&mut self, f: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !f(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn word(&mut self) -> &'a str {
        self.run(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// What stands between parentheses, the closing one eaten too.
    fn argument(&mut self) -> Result<&'a str, PolicyError> {
        self.blanks();
        let quote = if self.eat('"') {
            Some('"')
        } else if self.eat('\'') {
            Some('\'')
        } else {
            None
        };
        let arg = match quote {
            Some(q) => {
                let body = self.run(|c| c != q);
                if !self.eat(q) {
                    return Err(self.expected("a closing quote"));
                }
                body
            }
            None => self.run(|c| c.is_ascii_alphanumeric() || "_.+-".contains(c)),
        };
        if arg.is_empty() && quote.is_none() {
            return Err(self.expected("an argument"));
        }
        self.blanks();
        if self.eat(')') { Ok(arg) } else { Err(self.expected("`)`")) }
    }

    fn expected(&self, expected: &'static str) -> PolicyError {
        let got = match self.rest() {
            "" => "the end".to_owned(),
            rest => format!("`{}`", clip(rest)),
        };
        PolicyError::Syntax { expected, got, at: self.at }
    }
}
