//! The control plane of processes on one host: they find each other, prove that all hear all, and learn of each other's end.
//!
//! A **coordinator** ([`Coordinator`]) listens on the loopback interface: the launcher has it, or else the process of rank 0. Each process
//! has a **member** ([`Member`]), which is a TCP connection and a native thread. The thread sends a heartbeat each second, also while the
//! process holds the interpreter's lock, and hands on what the coordinator says of others.
//!
//! ```text
//! member                                coordinator
//! Hello {rank, world, version, host, token} ->      checked; a wrong token is a closed connection and no answer
//!                                       <- Welcome {segment}   to all, when all are there
//! Ready ->                                          the segment is mapped
//!                                       <- Go                  to all, when all are ready; the segment's name is removed
//! Beat -> … <- Beat                                 each second, both ways
//!                                       <- Lost {rank, text}   a connection ended without Bye, or was silent for 8 s
//! Bye ->                                <- Left {rank}         a process has ended its part
//!                                       <- Bye                 the process that has the coordinator has ended its part
//! ```
//!
//! **What it believes.** Bytes from the network are lengths, numbers and short texts, in frames of at most [`wire::MOST`] bytes; there is
//! nothing that runs. Before the token was checked a connection may send one frame of at most [`wire::MOST_HELLO`] bytes in 5 s, and there
//! are at most 64 such connections. Tokens are compared in constant time.
//!
//! **Limits.** [`Member::join`] returns within the time that it is given. The thread of a coordinator or a member waits at most a quarter of
//! a second at a time.

mod coordinator;
mod member;
mod place;
pub mod wire;

pub use coordinator::{Coordinator, Offer};
pub use member::{Event, Member};
pub use place::Place;

use std::time::Duration;

/// How often each side says that it is there.
const BEAT: Duration = Duration::from_secs(1);
/// A connection that is silent for this long belongs to a process that was stopped.
const SILENT: Duration = Duration::from_secs(8);
/// How long a thread waits at most before it looks at its clocks.
const TICK_MS: i32 = 250;

/// Waits until one of the descriptors has something, at most for a tick.
fn wait_for(fds: &mut [libc::pollfd]) {
    // SAFETY: the slice has as many entries as it says. What is wrong with a descriptor is found when it is read.
    unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, TICK_MS) };
}

fn polled(fd: std::os::fd::RawFd, writes: bool) -> libc::pollfd {
    let events = libc::POLLIN | if writes { libc::POLLOUT } else { 0 };
    libc::pollfd { fd, events, revents: 0 }
}

/// What identifies this host as it runs now.
fn host() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().chars().take(wire::SHORT).collect()
}
