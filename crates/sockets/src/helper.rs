//! The helper: a small process that holds the capabilities, so that the collector and listeners need none.
//!
//! It finds namespaces, opens netlink sockets in them, and passes those on (`SCM_RIGHTS`). It reads no data of the network,
//! keeps nothing open, and knows eight requests. [`serve`] is its side, [`Remote`] the collector's.
//! Listeners ask it as well, with [`counter`].
//!
//! Messages are of one `SOCK_SEQPACKET` each, all numbers in host byte order: request and answer are between two processes
//! of one host and one version. What a client is given can do no more than read: the kernel checks the capabilities of who
//! sends a netlink request as well as those of who opened the socket (net/netlink/af_netlink.c, netlink_ns_capable).

mod client;
mod events;
mod protocol;
mod server;

pub use client::{Remote, counter};
pub use events::EVENT_BUFFER_BYTES_MAX;
pub use server::{Allowed, serve};
