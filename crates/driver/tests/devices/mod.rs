//! The driver on fake devices: code that they share, waits that are missing, calls that fail, arrays that are elsewhere.

mod again;
mod code;
mod failures;
mod queues;
mod ranks;
mod refusals;
mod rig;
mod waits;
