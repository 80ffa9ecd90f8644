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
    /// What would be read instead: a text of the right form.
    pub fn help(&self) -> String {
        match self {
            PolicyError::UnknownDType { name, suggestions } => match suggestions.first() {
                Some(near) => format!("write \"{near}\" or `ts.{near}`"),
                None if name.contains("complex") => {
                    "there are no complex numbers: keep both parts in arrays of their own".into()
                }
                None => "write a name such as \"f32\", \"bf16\", \"fp8_e4m3\" or \"i32\"".into(),
            },
            PolicyError::UnknownItem { suggestion: Some(near), .. } => {
                format!("write {}", example(near))
            }
            PolicyError::UnknownItem { suggestion: None, .. } | PolicyError::Syntax { .. } => {
                "write a dtype, then policy items: \"bf16 @accum(f32) @saturate\"".into()
            }
            PolicyError::Duplicate { .. } => "keep one of them".into(),
            PolicyError::BadArgument { item, .. } => format!("write {}", example(item)),
        }
    }

    pub(crate) fn bad(item: &'static str, expected: &str, got: &str) -> PolicyError {
        PolicyError::BadArgument { item, expected: expected.to_owned(), got: clip(got) }
    }
}

/// A type with this policy item.
fn example(item: &str) -> &'static str {
    match item {
        "accum" => "\"bf16 @accum(f32)\" or \"fp8_e4m3 @accum(fp32_fast)\"",
        "compute" => "\"bf16 @compute(f32)\"",
        "round" => "\"bf16 @round(rne)\"; the modes are rne, rtz, up, down and stochastic",
        "stochastic_round" => "\"bf16 @stochastic_round\"",
        "saturate" => "\"i8 @saturate\" or \"fp8_e4m3 @saturate(false)\"",
        "scale" => "\"fp8_e4m3 @scale(amax_dynamic)\" or \"fp8_e4m3 @scale(delayed)\"",
        "loss_scale" => "\"f16 @loss_scale(128.0)\"",
        _ => "\"fp4 @packed\" or \"i4 @packed\"",
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
