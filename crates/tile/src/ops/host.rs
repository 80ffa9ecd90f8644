//! Prints and assertions.

use crate::Tile;
use tessera_ir::{Attr, Func, OpErrors, OpId};

/// The pieces of a text between its values, braces undone; `None` where braces do not match up.
pub fn pieces(text: &str) -> Option<Vec<String>> {
    let mut out = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('{', Some('}')) => {
                chars.next();
                out.push(String::new());
            }
            ('{', Some('{')) | ('}', Some('}')) => {
                chars.next();
                out.last_mut()?.push(c);
            }
            ('{' | '}', _) => return None,
            _ => out.last_mut()?.push(c),
        }
    }
    Some(out)
}

pub fn verify_print(func: &Func<Tile>, id: OpId, errors: &mut OpErrors) {
    let op = &func.ops[id];
    let text = op.attr("text").and_then(Attr::as_str).unwrap_or_default();
    let (places, values) = (pieces(text).map(|p| p.len() - 1), op.group("values").len());
    if places != Some(values) {
        errors.structure(format!("expected `{{}}` in `text` once for each of {values} values"));
    }
}
