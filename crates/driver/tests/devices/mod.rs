//! The driver on a fake device: waits that are missing, calls that fail, arrays that are elsewhere.

mod failures;
mod queues;
mod refusals;
mod rig;
mod waits;
