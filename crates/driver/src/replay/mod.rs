//! Call replay: a call that differs from an earlier one only in addresses, elements and free numbers
//! runs what the earlier call ran, without being bound, specialised and checked again.
//!
//! - [`Tokens`] say what a call looks like: its structure, its constants, and of each array all but
//!   its address and elements. Equal tokens mean equal code.
//! - A [`Table`] finds the recording of a call by its tokens. It is bounded.
//! - A [`Recipe`] is the recording of one launch. The full path makes it: see [`Key`].
//!
//! The binding walks Python's values into tokens, and makes recordings of whole operations and of
//! traced functions from these parts.

mod recipe;
mod table;
mod tokens;

pub use recipe::{Launches, Made, Recipe, Return};
pub(crate) use recipe::{Note, Noted, Way};
pub use table::Table;
pub use tokens::{Free, Held, Key, MAX_RANK, Mark, Numbers, Tokens, View, guards};
