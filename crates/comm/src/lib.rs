//! Collectives between the ranks of a mesh: what a transport is, the one that is here, and programs of ranks that run on any.
//!
//! **Ranks are cursors, not threads.** A [`Cursor`] is a position in the program of a rank. [`run`] has some workers; each takes any rank
//! that can go on and runs it to the next collective that it must wait for. A machine with two cores plays 72 ranks so, and a program that
//! cannot go on is seen immediately: no rank is ready and nothing is in flight.
//!
//! **A [`Transport`] never blocks.** [`Transport::start`] takes the part of one rank in a collective and gives a [`Token`];
//! [`Transport::test`] says whether it is complete, [`Transport::progress`] does some of the work in flight, and
//! [`Transport::abort`] ends everything, after which all calls give the reason. Only [`Transport::idle`] may wait, and only with a limit:
//! it is called when no rank of the process can go on. One trait so serves ranks in one process (a rank that waits for one that ended is
//! [`E_DESYNC`](tessera_diag::Code::E_DESYNC)), processes that share memory (idle sleeps until a message arrives, and fails after the time
//! limit), MPI (`start` is `MPI_I*`, `test` is `MPI_Test`), and NCCL (`start` enqueues on the stream of the memory, `test` asks for an event).
//!
//! **Memory is the caller's**, in host memory or on a device ([`Memory`]). What goes to a rank and what comes from one is a [`Piece`]: rows
//! at a stride, which is a block along any dim of an array. Where a transport needs contiguous messages, it packs them. A process plays
//! neighbouring ranks ([`Transport::here`]), and several of them may be in one group.
//!
//! **Every message has a [`Header`]**: group, sequence, kind, dtype, count and the hash of the call, and a CRC-32C of the payload. Members
//! that make different calls get `E_DESYNC` with both places.
//!
//! **Combinations are ordered.** A transport moves bytes; a reduction is `all_to_all`, the canonical reduction over the coordinates of the
//! group (LANGUAGE 14), and `all_gather` ([`ordered`]). Its bits are the same over every transport, and a rank sends no more bytes than by
//! any other algorithm.
//! A transport that combines by itself in that order says so ([`Transport::combines`]).

mod call;
mod checksum;
#[cfg(target_os = "linux")]
pub mod control;
mod cursor;
#[cfg(target_os = "linux")]
mod deal;
mod desync;
mod exchange;
mod local;
pub mod ordered;
mod piece;
#[cfg(target_os = "linux")]
pub mod socket;
mod transport;

pub use call::{Call, HEADER_BYTES, Header, Kind};
pub use checksum::crc32c;
pub use cursor::{Cursor, Order, Step, Threads, Workers, run};
#[cfg(target_os = "linux")]
pub use deal::{deal, synchronise};
pub use exchange::{BlockMemory, Exchanged, exchange};
pub use local::{Corruption, Local, LocalOptions};
pub use piece::{Memory, Piece};
#[cfg(target_os = "linux")]
pub use socket::{Session, Socket};
pub use transport::{GroupId, Progress, Request, Token, Transport, Waiting};

/// What the tests of this crate need of its inside.
pub mod inner {
    pub use crate::checksum::by_tables;
}
