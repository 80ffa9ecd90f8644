//! What the tests of this crate see of its parts. Nothing else uses it (a structure test): it changes with them.

pub use crate::coalesce::accumulators;
pub use crate::maps::check as check_maps;
pub use crate::select::inner::*;
