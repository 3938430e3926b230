//! The thin safe layer over Linux system calls.
//!
//! Everything unsafe that Weir does with the kernel is here: batches of datagrams in and out, the counters
//! that the kernel keeps for a socket, the error queue, netlink, namespaces, descriptors that change hands, and privileges
//! that are given up. Nothing in this crate knows what a relay or a collector is; nothing unsafe leaves it.
//!
//! Datagrams:
//!
//! - [`recv`]: `recvmmsg` into a block of buffers.
//! - [`gro`]: datagrams that the kernel hands over together, and how many there were.
//! - [`send`]: `sendmmsg`, one message a datagram or one `UDP_SEGMENT` message a run of equal length.
//! - [`socket`]: opening and configuring sockets, reading `SO_MEMINFO`, MTU, outstanding bytes.
//! - [`tcp`]: options of TCP sockets, and `tcp_info`.
//! - [`errqueue`]: what `IP_RECVERR` queued: which sent datagrams came back as ICMP errors.
//! - [`poll`]: `poll(2)` and eventfd.
//! - [`activation`]: sockets handed over by a service manager.
//!
//! The kernel's own account of the network:
//!
//! - [`netlink`]: the one kind of netlink socket: whether a datagram is whole, who sent it, from which namespace.
//! - [`route`]: rtnetlink: by which device a destination leaves and what queues stand there.
//! - [`receiver`]: sock_diag: what the kernel dropped at a socket that another program reads.
//! - [`link`]: rtnetlink: devices made, connected and read.
//! - [`traffic`]: packets dropped at random where a device receives them.
//! - [`namespace`]: which network namespaces there are, sockets in each of them, and the ids that netlink knows them by.
//! - [`cgroup`]: control groups by number.
//!
//! Processes:
//!
//! - [`process`], [`clock`]: who this process is, what it may do, what it has used; time.
//! - [`signal`]: the request to stop.
//! - [`terminal`]: how large it is.
//! - [`pass`]: descriptors from one process to another.
//! - [`seccomp`]: giving up system calls.
//!
//! The processor:
//!
//! - [`cpus`]: which processors a thread runs on.
//! - [`prefetch`], [`memory`]: memory that is about to be read, and pages of it.
//! - [`mapped`]: memory that outlives the process.
//!
//! With the feature `kafka`, `kafka`: the one thing that librdkafka knows and its safe bindings do not say.

#![expect(unsafe_code, reason = "this crate is where Weir's system calls are made safe")]

pub mod activation;
pub mod cgroup;
pub mod clock;
pub mod cpus;
pub mod errqueue;
pub mod gro;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod link;
pub mod mapped;
pub mod memory;
pub mod namespace;
pub mod netlink;
pub mod pass;
pub mod poll;
pub mod prefetch;
pub mod process;
pub mod receiver;
pub mod recv;
pub mod route;
pub mod seccomp;
pub mod send;
pub mod signal;
pub mod socket;
pub mod tcp;
pub mod terminal;
pub mod traffic;

mod errno;
mod mounts;
mod sockaddr;
mod source;

pub use errno::Errno;
pub use source::Source;
