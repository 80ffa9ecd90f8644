//! What the tests of this crate see of single passes. Nothing else uses it (a structure test): it changes with the passes.

pub use crate::lazy_rescale::inner::{Base, Range, chosen, exponent};
pub use crate::mask_elimination::always;
pub use crate::runs::gathered;
pub use crate::stage::inner::{Length, Trend, stage_layout};
