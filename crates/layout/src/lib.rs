//! Layouts (linear layouts, as in Triton): which thread holds which element of a tile, where
//! elements are in shared memory, and how data moves from one layout to another.
//!
//! A [`Layout`] maps (register, lane, warp, cta) to coordinates. It is a bit-linear atom, in which
//! each bit of an input moves by one vector and vectors add by XOR, repeated any number of times
//! along each dim. Everything else follows from that: the result of transposing or reducing,
//! whether two layouts differ in registers, lanes or warps, how wide an access may be.
//!
//! ```
//! use tessera_layout::{Layout, Move, conversion};
//! // The accumulator of matrix instructions, 64 x 176, one row of warps.
//! let acc = Layout::mma_acc(&[64, 176], [4, 1]);
//! assert_eq!((acc.regs(), acc.repeat()), (88, &[1, 22][..]));
//! assert_eq!(acc.coords(3, 5, 1, 0), [16 + 8 + 1, 2 + 1]);
//! assert_eq!(
//!     acc.to_string(),
//!     "[reg 0,1 8,0; lane 0,2 0,4 1,0 2,0 4,0; warp 16,0 32,0; repeat 1,22]"
//! );
//! // Sums of rows stay in the threads that held the rows; copies of them too.
//! let sums = acc.reduce(1);
//! assert_eq!(sums.regs(), 2);
//! assert_eq!(conversion(&sums.expand(1), &acc.broadcast_from(&[64, 1])), Move::Nothing);
//! ```

mod along;
mod banks;
mod best;
mod bits;
mod build;
mod convert;
mod draw;
mod facts;
mod layout;
mod maps;
mod mma;
mod part;
mod reduce;
mod reshape;
mod shared;
mod shuffle;
mod text;

pub use along::{Along, Prefer};
pub use best::{Between, best_between, best_shared_for};
pub use build::Blocked;
pub use convert::{Cost, Move, cheapest, conversion, cost, cost_of};
pub use draw::{draw, draw_shared};
pub use layout::{In, LANES, Layout, LayoutError, Place, RegOffset};
pub use shared::{Shared, Swizzle};
pub use shuffle::{LaneFn, Round};
