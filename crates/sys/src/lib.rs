//! The thin safe layer over Linux system calls.
//!
//! Everything unsafe that Weir does with the kernel is here: batches of datagrams in and out, the counters that the kernel
//! keeps for a socket, the error queue, netlink, namespaces, passing descriptors, and dropping privileges. Nothing in this
//! crate knows what a relay or a collector is, and no `unsafe` is needed outside it.
//!
//! Datagrams:
//!
//! - [`recv`]: `recvmmsg` into a block of buffers.
//! - [`gro`]: datagrams that the kernel delivers as one message, and how many there were.
//! - [`send`]: `sendmmsg`, one message per datagram or one `UDP_SEGMENT` message per run of datagrams of equal length.
//! - [`socket`]: opening and configuring sockets, reading `SO_MEMINFO`, MTU, outstanding bytes.
//! - [`tcp`]: options of TCP sockets, and `tcp_info`.
//! - [`errqueue`]: the `IP_RECVERR` queue: sent datagrams that came back as ICMP errors.
//! - [`poll`]: `poll(2)` and eventfd.
//! - [`activation`]: sockets handed over by a service manager.
//!
//! The kernel's own account of the network:
//!
//! - [`netlink`]: netlink sockets: whether a datagram is complete, who sent it, and from which namespace.
//! - [`route`]: rtnetlink: the device by which a destination is reached, and the queues there.
//! - [`receiver`]: sock_diag: what the kernel dropped at a socket that another program reads.
//! - [`link`]: rtnetlink: creates, connects and reads devices.
//! - [`traffic`]: drops packets at random where a device receives them.
//! - [`namespace`]: lists network namespaces, opens sockets in them, and finds the ids that netlink knows them by.
//! - [`cgroup`]: control groups by id.
//!
//! Processes:
//!
//! - [`process`], [`clock`]: who this process is, what it may do and what it has used; time.
//! - [`signal`]: the request to stop.
//! - [`terminal`]: its size.
//! - [`pass`]: descriptors from one process to another.
//! - [`acl`]: a file of ours that named users may read.
//! - [`seccomp`], [`landlock`]: giving up system calls and files.
//!
//! The CPU:
//!
//! - [`cpus`]: which CPUs a thread runs on.
//! - [`prefetch`], [`memory`]: prefetching, huge pages, and what the allocator keeps.
//! - [`mapped`]: memory that outlives the process.
//!
//! With the feature `kafka`, `kafka`: the one thing that librdkafka knows and its safe bindings do not expose.

#![expect(unsafe_code, reason = "this crate is where Weir's system calls are made safe")]

pub mod acl;
pub mod activation;
pub mod cgroup;
pub mod clock;
pub mod cpus;
pub mod errqueue;
pub mod gro;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod landlock;
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
