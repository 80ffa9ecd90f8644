//! What every other crate stands on: typed ids and arenas, insertion-ordered maps, a
//! 128-bit hash that is the same in every process and on every machine, locks that survive a
//! fork, values that are made once, and counts of what is alive.
//!
//! ```
//! use tessera_support::{entity, Arena, StableHasher};
//! entity!(pub struct NodeId, "n");
//! let mut nodes: Arena<NodeId, &str> = Arena::new();
//! let a = nodes.push("a");
//! assert_eq!(nodes[a], "a");
//! assert_eq!(a.to_string(), "n0");
//! let mut h = StableHasher::new();
//! h.write_str("a");
//! assert_eq!(h.finish().to_string().len(), 32);
//! ```

mod arena;
mod census;
mod flights;
mod fork;
mod hash;
mod ordered;

pub use arena::{Arena, Entity, SideTable};
pub use census::{Census, Counted};
pub use flights::Flights;
pub use fork::{ForkLock, after_fork, before_fork, forked, unforked};
pub use hash::{Hash128, StableHasher};
pub use ordered::OrderedMap;
