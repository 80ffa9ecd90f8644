//! Regions: which tasks may run together. A task names the elements that it uses and with which privilege ([`Use`]). Two uses do not
//! interfere where they share no element, both only read, or both reduce with one operator. [`Tasks`] orders what interferes as the
//! program does, and nothing else. Everything here is pure.
//!
//! ```
//! use tessera_region::{Tasks, Use};
//! let uses = |texts: &[&str]| texts.iter().map(|t| Use::parse(t).unwrap()).collect::<Vec<_>>();
//! let mut tasks = Tasks::default();
//! let (left, _) = tasks.add(uses(&["write 0[0:4]"]));
//! let (right, before) = tasks.add(uses(&["write 0[4:8]"]));
//! assert!(before.is_empty());
//! let (_, before) = tasks.add(uses(&["read 0[2:6]"]));
//! assert_eq!(before, [left, right]);
//! ```

mod depend;
mod interfere;
mod use_;

pub use depend::{TaskId, Tasks};
pub use interfere::{Conflict, conflict};
pub use use_::{Privilege, Use};
