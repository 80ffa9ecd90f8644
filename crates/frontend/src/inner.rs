//! What the tests of this crate see of its parts. Nothing else uses it (a structure test): it changes with them.

pub use crate::api::{Handler, find};
pub use crate::foreign::{ELSEWHERE, KEYWORDS, METHODS, NAMES, PYTHON};
pub use crate::source::shown;
