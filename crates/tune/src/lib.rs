//! Autotuning: which candidate of a kernel's tunables runs fastest here, found out once and kept.
//!
//! - [`resource`] says of a candidate, from its Tile IR, that it cannot fit the target.
//! - [`rank`] orders the rest by what the counted work would take on a machine.
//! - [`search`] measures: rounds in which all that are left run once, and halving between them.
//! - [`Record`] holds every candidate with its samples or the reason it has none; [`choose`] picks
//!   from it, and always the same from the same record.
//! - [`Store`] keeps records in a directory that processes share; [`bundle`] makes one file of them.
//! - [`report`] and [`plot`] show a record to people.
//!
//! Nothing here knows a backend or how a candidate is compiled: the driver does.

pub mod bundle;
mod choose;
mod json;
pub mod plot;
pub mod rank;
mod record;
pub mod report;
pub mod resource;
pub mod search;
pub mod stats;
mod store;

pub use choose::{Chosen, Metric, TIE, choose};
pub use record::{Record, RecordState, Row, Subject};
pub use store::Store;
