//! The datagram tee: one receiving thread writes each datagram once into a ring, and every target reads it from there.
//!
//! - `ring`: the memory that both sides share, and the protocol that keeps them apart. The only unsafe code.
//! - `socket`: the listening sockets. `receiver`, `inlet`, `arrivals`, `intake`: socket to ring. `member`, `merge`: several
//!   sockets to one ring. `gate`, `target`: ring to messages. `outlet`, `file`: messages to the kernel.
//! - `rows`: ring to a sink's memory. `link`: ring to another Weir's ring.
//! - `pump`, `worker`: the targets of a thread, and the threads. `listener`: the handle that callers hold.
//! - `path`: what the kernel's tables say about the paths to targets, kept up to date by a thread of its own.
//! - `meter`: the counts along the way, as hops of the ledger.
//!
//! A target that falls behind loses its own oldest datagrams; subtracting sequence numbers gives how many. The receiving thread
//! never waits for a target. Nothing allocates, locks or logs per datagram.

#![deny(unsafe_code)]

mod arrivals;
mod error;
mod file;
mod gate;
mod inlet;
mod intake;
mod link;
mod listener;
mod member;
mod merge;
mod meter;
mod options;
mod outlet;
mod path;
mod prefix;
mod pump;
mod receiver;
mod ring;
mod rows;
#[cfg(all(test, not(loom)))]
mod simulation;
mod socket;
mod sync;
mod target;
mod thread_time;
mod trust;
mod waker;
mod worker;

pub use error::Error;
pub use link::{LinkListenOptions, LinkOptions, check_link_state};
pub use listener::{ChangesUnderWay, Listener, TargetChange};
pub use options::{
    FileFormat, FileOptions, Gso, Header, ListenerOptions, Order, Sample, SampleBy, Schedule,
    SenderSockets, SocketOwner, SourceAddress, TargetKind, TargetOptions,
};
pub use outlet::UnixPeer;
pub use path::{Path, Paths};
pub use prefix::{Prefix, PrefixError};
pub use rows::{Datagram, Flushed, RowTarget, Taken};
pub use socket::{ListenSocket, Receive};
pub use thread_time::ReadingTime;

/// Minimum ring size, in bytes: the largest datagram fits several times.
pub const RING_BYTES_MIN: usize = 256 * 1024;

/// Memory that a ring takes in addition to `ring_bytes` of payload memory, in bytes: one descriptor for each datagram.
pub fn descriptor_bytes(ring_bytes: usize) -> usize {
    ring::descriptor_bytes(ring_bytes)
}

/// Memory of the extra rings of a listener with several sockets, descriptors included, in bytes. Its own ring has `ring_bytes`.
pub fn member_rings_bytes(ring_bytes: usize, sockets: usize) -> usize {
    let each = listener::member_ring_bytes(ring_bytes, sockets);
    if sockets > 1 { sockets * (each + descriptor_bytes(each)) } else { 0 }
}

/// Maximum memory of a file target's write buffer, in bytes.
pub const FILE_BUFFER_BYTES_MAX: usize = file::BUFFER_BYTES_MAX;
