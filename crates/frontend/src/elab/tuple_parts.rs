//! How tuples are nested: a tuple that a loop changes is carried as one variable for each of its parts.

use super::Env;
use super::val::{Const, Val};

/// How the parts of a tuple are nested.
pub enum Parts {
    One,
    Several(Vec<Parts>),
}

impl Parts {
    /// `None` where a part is no number or tile, and so cannot be carried. What was refused before counts as one.
    pub fn of(v: &Val) -> Option<Parts> {
        match v {
            Val::Tuple(items) => {
                items.iter().map(Parts::of).collect::<Option<_>>().map(Parts::Several)
            }
            Val::Const(Const::Str(_) | Const::DType(_)) => None,
            Val::Rt(_)
            | Val::Const(_)
            | Val::Dim(_)
            | Val::Open(_)
            | Val::After(_)
            | Val::Poison => Some(Parts::One),
            _ => None,
        }
    }

    /// The variable of each part: no name of Python's has a dot in it.
    pub fn names(&self, name: &str) -> Vec<String> {
        match self {
            Parts::One => vec![name.to_string()],
            Parts::Several(parts) => parts
                .iter()
                .enumerate()
                .flat_map(|(i, p)| p.names(&format!("{name}.{i}")))
                .collect(),
        }
    }

    /// Binds the variables of the parts of a tuple; false where it is of another form.
    pub fn spread(&self, name: &str, v: &Val, env: &mut Env) -> bool {
        match (self, v) {
            (Parts::One, Val::Tuple(_)) => false,
            (Parts::One, v) => {
                env.insert(name.to_string(), v.clone());
                true
            }
            (Parts::Several(parts), Val::Tuple(items)) if parts.len() == items.len() => {
                let mut all = parts.iter().zip(items).enumerate();
                all.all(|(i, (p, v))| p.spread(&format!("{name}.{i}"), v, env))
            }
            (Parts::Several(_), _) => false,
        }
    }

    /// The tuple of the variables of its parts.
    pub fn collect(&self, name: &str, env: &Env) -> Val {
        match self {
            Parts::One => env.get(name).cloned().unwrap_or(Val::Poison),
            Parts::Several(parts) => Val::Tuple(
                parts
                    .iter()
                    .enumerate()
                    .map(|(i, p)| p.collect(&format!("{name}.{i}"), env))
                    .collect(),
            ),
        }
    }
}
