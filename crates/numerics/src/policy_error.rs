//! What can be wrong with a written policy, each in one line.

use crate::suggest::UnknownDType;
use std::fmt;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyError {
    /// The name before the first `@` is no dtype.
    UnknownDType { name: String, suggestions: Vec<&'static str> },
    /// The word after `@` names no item.
    UnknownItem { name: String, suggestion: Option<&'static str> },
    /// Two items of one kind; `stochastic_round` and `round` are one kind.
    Duplicate { item: &'static str },
    /// The item does not take this argument, or takes none, or needs one, or does not fit the type.
    BadArgument { item: &'static str, expected: String, got: String },
    /// The text is not of the form `name { "@" ident [ "(" arg ")" ] }`. `at` counts bytes.
    Syntax { expected: &'static str, got: String, at: usize },
}

/// The items by name, as error texts list them.
pub(crate) const ITEM_NAMES: &[&str] =
    &["accum", "compute", "round", "stochastic_round", "saturate", "scale", "loss_scale", "packed"];

impl PolicyError {
    pub(crate) fn bad(item: &'static str, expected: &str, got: &str) -> PolicyError {
        PolicyError::BadArgument { item, expected: expected.to_owned(), got: clip(got) }
    }
}

/// User text in an error stays one short line.
pub(crate) fn clip(s: &str) -> String {
    let line: String = s.chars().take(40).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if s.chars().nth(40).is_some() { line + "..." } else { line }
}

impl From<UnknownDType> for PolicyError {
    fn from(e: UnknownDType) -> PolicyError {
        PolicyError::UnknownDType { name: e.name, suggestions: e.suggestions }
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::UnknownDType { name, suggestions } => {
                UnknownDType { name: name.clone(), suggestions: suggestions.clone() }.fmt(f)
            }
            PolicyError::UnknownItem { name, suggestion: Some(near) } => {
                write!(f, "expected a policy item (did you mean `@{near}`?), got `@{name}`")
            }
            PolicyError::UnknownItem { name, suggestion: None } => {
                let all = ITEM_NAMES.join(", ");
                write!(f, "expected a policy item (one of {all}), got `@{name}`")
            }
            PolicyError::Duplicate { item } => {
                write!(f, "expected `@{item}` at most once, got it twice")
            }
            PolicyError::BadArgument { item, expected, got } => {
                write!(f, "expected {expected} for `@{item}`, got `{got}`")
            }
            PolicyError::Syntax { expected, got, at } => {
                write!(f, "expected {expected} at byte {at}, got {got}")
            }
        }
    }
}

impl std::error::Error for PolicyError {}
