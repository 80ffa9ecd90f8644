//! What the tests of this crate see of its parts. Nothing else uses it (a structure test): it changes with them.

pub use crate::check::inner::*;
pub use crate::convert::cast;
pub use crate::memory::{Memory, Unwritten};
pub use crate::mma::f32_rows;
pub use crate::reduce::reduce;
pub use crate::room::{LARGE, bytes_of, room};
pub use crate::schedule::run_unverified;
pub use crate::shape::strided;
pub use crate::staged::inner::Clock;
pub use crate::value::{Data, Elem, Tile};
