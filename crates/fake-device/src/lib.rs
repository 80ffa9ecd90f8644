//! A device in software that finds what a real one hides. Only tests use it.
//!
//! - **Memory** has addresses that the host cannot read: doing so ends the process. New memory is poisoned. An address is
//!   never used twice, so that work on freed memory is found.
//! - **Streams** are queues. Their work runs as late as possible, as early as possible, or in a random order that the
//!   waits allow ([`Order`]), from a seed.
//! - **Hazards**: each access is held against earlier ones of the same bytes. Two that no wait orders, of which one
//!   writes, are reported whatever the order was ([`FakeDevice::hazards`]).
//! - **Failures** on demand: the n-th call of a kind, or of any ([`FakeDevice::fail`]).
//! - **Counts** of live objects ([`FakeDevice::live`]).
//!
//! Its [`backend`](FakeBackend) passes Tile IR as text to [`tessera_target::device::Device::load`], and the interpreter
//! runs it when the queue gets there.

mod backend;
mod code;
mod device;
mod memory;
mod objects;
mod queue;
mod world;

pub use backend::FakeBackend;
pub use device::{Fake, FakeDevice};
pub use queue::Order;
pub use world::{Call, Live};
