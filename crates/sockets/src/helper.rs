//! The helper: a small process that holds the capabilities, so that the collector and the listeners need none.
//!
//! It finds namespaces, opens netlink sockets in them, and passes those on (`SCM_RIGHTS`). It reads no network data, keeps
//! nothing open, and knows eight requests. [`serve`] is its side, [`Remote`] the collector's. Listeners use it too, through
//! [`counter`].
//!
//! Each message is one `SOCK_SEQPACKET` message, with all numbers in host byte order: both processes run on one host with one
//! version. The sockets that a client gets can only read: for a netlink request, the kernel checks the capabilities of the sender
//! as well as those of the process that opened the socket (net/netlink/af_netlink.c, netlink_ns_capable).

mod client;
mod events;
mod protocol;
mod server;

pub use client::{Remote, counter};
pub use events::EVENT_BUFFER_BYTES_MAX;
pub use server::{Allowed, serve};
