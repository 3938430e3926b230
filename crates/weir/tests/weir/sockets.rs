//! `weir sockets` as a user runs it: real sockets, the real kernel, and `ss` beside it.

mod captures;
mod command;
mod flags;
mod follow;
mod formats;
mod like_ss;
mod namespaces;
mod reading;
mod receive;
mod rig;
mod ss;
mod udp;
